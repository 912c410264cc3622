"""The process that measures: `python -m autofn.certificate.measure JOB RESULT`.

It alone imports torch. JOB is a pickled `Job`; RESULT becomes JSON: findings, limits, and what
could not run.
"""

from __future__ import annotations

import contextlib
import json
import math
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autofn.certificate.job import Entry, Job, Sweep, Truths
from autofn.certificate.model import CPU, GPU, HOST, NATIVE, TORCH, Finding, Limit, Quantity, Worst
from autofn.verify import host
from autofn.verify.known import Function, recognised
from autofn.verify.leaves import DeviceLeaves, KernelLeaves
from autofn.verify.subject import Subject

PRECISION = {
    "float64": (53, -1074),
    "float32": (24, -149),
    "bfloat16": (8, -133),
    "float16": (11, -24),
}
"""Significant bits, and the exponent of the least subnormal number."""

SCALES = (7 / 8, 15 / 16, 17 / 16, 9 / 8)
"""Factors of all inputs; where one of them changes a value's sign, it is near a root."""

SWEPT = {"quick": 1 << 14, "full": 1 << 20}
"""Points of a sweep over float32; 16-bit types of one tensor have all of theirs."""

LOOKED_UP = 1 << 17
"""Elements from where on CPU kernels look up functions of 16-bit tensors."""

TRUSTED = 1e-13
"""The error of the float64 form, by mpmath's word, up to which sweeps are measured against it."""

KEPT = 12
"""Worst points per finding that are told, for the parent to look at with mpmath."""


class Measure:
    """One package, measured."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.subject = Subject(job)
        self.found: list[dict[str, Any]] = []
        self.limits: list[dict[str, Any]] = []
        self.not_run: list[str] = []
        self.own: dict[Any, tuple[str, Function] | None] = {}

    def all(self) -> None:
        backends = self._backends()
        for truths in self.job.truths:
            for name, leaves in backends.items():
                with leaves():
                    self._at_points(name, truths)
                    if truths.dtype == "float64" or name in (CPU, GPU):
                        self._seconds(name, truths)
            self._own_at_points(truths)
        for limits in self.job.limits:
            for name, leaves in backends.items():
                with leaves():
                    self._at_infinity(name, limits)
        for sweep in self.job.sweeps:
            for dtype in ("float32", "bfloat16", "float16"):
                self._sweep(sweep, dtype, backends)

    def _backends(self) -> dict[str, Callable[[], contextlib.AbstractContextManager[None]]]:
        op, loaded = self.subject.op, self.subject.op._rt._LOADED

        @contextlib.contextmanager
        def off_cpu(*leaves: Any) -> Iterator[None]:
            # Without the CPU's kernels, of second order either.
            kept, loaded["cpu"] = loaded.get("cpu"), None
            try:
                with self.subject.leaves(*leaves):
                    yield
            finally:
                loaded["cpu"] = kept

        found: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {}
        if TORCH in self.job.backends:
            found[TORCH] = partial(off_cpu, op._torch_forward, op._torch_backward)
        try:
            op._rt.kernels("cpu")
            if CPU in self.job.backends:
                found[CPU] = contextlib.nullcontext
        except RuntimeError as error:
            self.not_run.append(f"{CPU}: {error}")
            loaded["cpu"] = None
        if GPU in self.job.backends and torch.cuda.is_available():
            try:
                op._rt.kernels("cuda")
                device = DeviceLeaves(op)
                found[GPU] = partial(
                    off_cpu, device.forward, device.backward, device.double_backward
                )
            except RuntimeError as error:
                self.not_run.append(f"{GPU}: {error}")
        if HOST in self.job.backends:
            package = Path(self.job.folder)
            built = host.build_plainly(package, package / "on_host.so")
            if isinstance(built, str):
                self.not_run.append(f"{HOST}: {built}")
            else:
                kinds = self.job.signature.kinds
                kernels = KernelLeaves(built, self.subject.manifest, kinds, op)
                found[HOST] = lambda: self.subject.leaves(kernels.forward, kernels.backward)
        return found

    # --- points with a truth ---------------------------------------------------------------------

    def _at_points(self, backend: str, truths: Truths) -> None:
        dtype = getattr(torch, truths.dtype)
        given = {name: _column(values) for name, values in truths.points.items()}
        got = self._evaluate(truths.key, given, truths.numbers, dtype)
        near = self._near_roots(truths.key, given, truths.numbers)
        for entry, value in got.items():
            high, low = _column(truths.high[entry]), _column(truths.low[entry])
            self._judge(backend, truths.dtype, entry, given, value, high, low, near[entry], truths)

    def _own(self, at: Truths | Sweep, given: Mapping[str, Tensor]) -> tuple[str, Function] | None:
        """PyTorch's own function, if the formula of this variant equals one."""
        if at.key not in self.own:
            kinds = self.subject.signature.kinds
            tensors = {n: v for n, v in given.items() if kinds[n][0] in ("TENSOR", "OPTIONAL")}
            moderate = torch.stack([v.abs() for v in tensors.values()]).amax(0)
            picked = (moderate > 2**-4) & (moderate < 8)
            few = {name: value[picked][:256] for name, value in given.items()}
            with self.subject.leaves(
                self.subject.op._torch_forward, self.subject.op._torch_backward
            ):
                found = self._evaluate(at.key, few, at.numbers, torch.float64)
            values = found[self.subject.outputs[0],]
            good = values.isfinite()
            self.own[at.key] = None
            if len(self.subject.outputs) == 1 and int(good.sum()) >= 32:
                self.own[at.key] = recognised(
                    values[good], tuple(few[name][good] for name in tensors)
                )
        return self.own[at.key]

    def _of_own(
        self, function: Function, given: Mapping[str, Tensor], dtype: torch.dtype
    ) -> dict[Entry, Tensor]:
        kinds = self.subject.signature.kinds
        names = [n for n in given if kinds[n][0] in ("TENSOR", "OPTIONAL")]
        tensors = [given[n].to(dtype).requires_grad_() for n in names]
        name = self.subject.outputs[0]
        found: dict[Entry, Tensor] = {}
        for k, each in enumerate(names):
            # Losses have no gradient by their target.
            with contextlib.suppress(RuntimeError):
                detached = [t if n == k else t.detach() for n, t in enumerate(tensors)]
                output = function(*detached)
                (gradient,) = torch.autograd.grad(output, tensors[k], torch.ones_like(output))
                found[name,] = output.detach()
                found[name, each] = gradient
        return found

    def _own_at_points(self, truths: Truths) -> None:
        given = {name: _column(values) for name, values in truths.points.items()}
        own = self._own(truths, given)
        if own is None:
            return
        near = self._near_roots(truths.key, given, truths.numbers)
        for entry, value in self._of_own(own[1], given, getattr(torch, truths.dtype)).items():
            high, low = _column(truths.high[entry]), _column(truths.low[entry])
            self._judge(NATIVE, truths.dtype, entry, given, value, high, low, near[entry], truths)

    def _evaluate(
        self,
        key: Sequence[tuple[str, Any]],
        given: Mapping[str, Tensor],
        numbers: Mapping[str, Any],
        dtype: torch.dtype,
    ) -> dict[Entry, Tensor]:
        """Outputs, and gradients for cotangents of 1, element by element."""
        subject = self.subject
        parameter = torch.float64 if dtype is torch.float64 else torch.float32
        kinds = subject.signature.kinds
        tensors = [
            given[name].to(parameter if kinds[name][0] in ("LEARNABLE", "PER_CHANNEL") else dtype)
            if name in given
            else None
            for name in subject.names
        ]
        everything = {**numbers, **dict(key)}
        values = [everything.get(name, name in given) for name in subject.manifest["values"]]
        outputs = subject.op.forward_leaf(tensors, values)
        found: dict[Entry, Tensor] = {
            (name,): output for name, output in zip(subject.outputs, outputs, strict=True)
        }
        for chosen, name in enumerate(subject.outputs):
            grads = [torch.full_like(y, float(o == chosen)) for o, y in enumerate(outputs)]
            gradients = subject.leaf_gradients(tensors, values, outputs, grads)
            for leaf, gradient in gradients.items():
                if leaf in given:
                    zero = torch.zeros(outputs[0].shape, dtype=dtype)
                    found[name, leaf] = zero if gradient is None else gradient
        return found

    def _near_roots(
        self,
        key: Sequence[tuple[str, Any]],
        given: Mapping[str, Tensor],
        numbers: Mapping[str, Any],
    ) -> dict[Entry, Tensor]:
        """Where a value changes its sign when all tensors are scaled a little."""
        kinds = self.subject.signature.kinds
        op = self.subject.op
        with self.subject.leaves(op._torch_forward, op._torch_backward):
            here = self._evaluate(key, given, numbers, torch.float64)
            found = {
                entry: torch.zeros_like(value, dtype=torch.bool) for entry, value in here.items()
            }
            for scale in SCALES:
                scaled = {
                    name: value if kinds[name][0] in ("LEARNABLE", "PER_CHANNEL") else value * scale
                    for name, value in given.items()
                }
                there = self._evaluate(key, scaled, numbers, torch.float64)
                for entry, value in there.items():
                    # A step from 0 to 1 is no root.
                    changed = (here[entry].sign() * value.sign() < 0) | (
                        (here[entry] == 0) != (value == 0)
                    ) & (here[entry].abs() + value.abs() < 0.5)
                    found[entry] |= changed
        return found

    def _judge(
        self,
        backend: str,
        dtype: str,
        entry: Entry,
        given: Mapping[str, Tensor],
        got: Tensor,
        high: Tensor,
        low: Tensor,
        near: Tensor,
        at: Truths | Sweep,
    ) -> None:
        known = high.isfinite()
        got64 = got.double()
        most = torch.finfo(getattr(torch, dtype)).max
        ulps = error_in_ulp(got64, high, low, dtype)
        # What rounds to infinity, or nearly: infinity or the largest number.
        huge = high.abs() >= most * (1 - 2.0 ** (4 - PRECISION[dtype][0]))
        large = huge & (got64.abs() >= most * (1 - 2.0 ** (5 - PRECISION[dtype][0])))
        ulps = torch.where(large & (got64.sign() == high.sign()), 0.0, ulps)
        bad = known & ~got64.isfinite() & ~large & (high.abs() <= most)
        off_roots = known & ~near & ~bad & (high.abs() <= most)
        self.found.append(
            asdict(
                Finding(
                    backend=backend,
                    dtype=dtype,
                    quantity=_quantity(entry),
                    entry=_title(entry),
                    points=int(off_roots.sum()),
                    max_ulp=_maximum(ulps, off_roots),
                    p999=_quantile(ulps[off_roots]),
                    worst=None,
                    bad=int(bad.sum()),
                    bad_at=_worst(given, high, got64, ulps, bad)[0] if bool(bad.any()) else None,
                    near_roots=_maximum(ulps, known & near & ~bad),
                )
            )
            | {
                "key": at.key,
                "numbers": at.numbers,
                "entry_key": entry,
                "source": "sweep" if isinstance(at, Sweep) else "points",
                "candidates": [
                    asdict(each)
                    for each in _worst(given, high, got64, ulps.nan_to_num(-1), off_roots)
                ],
            }
        )

    def _at_infinity(self, backend: str, limits: Truths) -> None:
        given = {name: _column(values) for name, values in limits.points.items()}
        for dtype in ("float32", "bfloat16", "float16", "float64"):
            got = self._evaluate(limits.key, given, limits.numbers, getattr(torch, dtype))
            for entry, value in got.items():
                # Beyond the largest number of the dtype a finite limit is infinite.
                truths = torch.tensor(limits.high[entry], dtype=torch.float64).to(value.dtype)
                for at, truth in enumerate(truths.tolist()):
                    if not math.isnan(truth):
                        (point,) = (v for n, v in limits.points.items() if math.isinf(v[at]))
                        self.limits.append(
                            asdict(
                                Limit(
                                    backend,
                                    dtype,
                                    _title(entry),
                                    point[at],
                                    truth,
                                    float(value[at]),
                                )
                            )
                        )

    # --- second derivatives ------------------------------------------------------------------

    def _seconds(self, backend: str, truths: Truths) -> None:
        dtype = getattr(torch, truths.dtype)
        entries = [entry for entry in truths.high if len(entry) == 3]
        for entry in entries:
            high, low = _column(truths.high[entry]), _column(truths.low[entry])
            picked = high.isfinite()
            if not bool(picked.any()):
                continue
            given = {name: _column(values)[picked] for name, values in truths.points.items()}
            got = self._second(truths, given, entry, dtype)
            if got is None:
                got = torch.zeros(int(picked.sum()), dtype=dtype)
            there = [
                self._second(
                    truths,
                    {n: v * scale if n in entry else v for n, v in given.items()},
                    entry,
                    torch.float64,
                )
                for scale in SCALES
            ]
            near = torch.zeros(int(picked.sum()), dtype=torch.bool)
            for value in there:
                if value is not None:
                    near |= value.sign() * high[picked].sign() <= 0
            self._judge(
                backend, truths.dtype, entry, given, got, high[picked], low[picked], near, truths
            )

    def _second(
        self, truths: Truths, given: Mapping[str, Tensor], entry: Entry, dtype: torch.dtype
    ) -> Tensor | None:
        """d2 out / d first d second, element by element, through double backward; None for 0."""
        subject = self.subject
        output, first, second = entry
        kinds = subject.signature.kinds
        call: dict[str, Any] = {**truths.numbers, **dict(truths.key)}
        for name in subject.names:
            if name not in given:
                call[name] = None
            elif kinds[name][0] in ("LEARNABLE", "PER_CHANNEL"):
                wide = torch.float64 if dtype is torch.float64 else torch.float32
                call[name] = given[name][:1].to(wide)  # at its default everywhere
            else:
                call[name] = given[name].to(dtype).requires_grad_()
        outputs = subject.apply(call)
        y = outputs[subject.outputs.index(output)]
        (gradient,) = torch.autograd.grad(
            y, call[first], torch.ones_like(y), create_graph=True, materialize_grads=True
        )
        if not gradient.requires_grad:
            return None
        (found,) = torch.autograd.grad(
            gradient, call[second], torch.ones_like(gradient), allow_unused=True
        )
        return None if found is None else found.detach()

    # --- sweeps -------------------------------------------------------------------------------

    def _sweep(
        self,
        sweep: Sweep,
        dtype: str,
        backends: Mapping[str, Callable[[], contextlib.AbstractContextManager[None]]],
    ) -> None:
        """Against the PyTorch path in float64, which `_at_points` has measured too."""
        if not sweep.tensors:
            return
        tensors = self._patterns(sweep, dtype)
        count = len(next(iter(tensors.values())))
        if count == 0:
            return
        parameters = {n: torch.full((count,), v).double() for n, v in sweep.parameters.items()}
        given = {**tensors, **parameters}
        op = self.subject.op
        with self.subject.leaves(op._torch_forward, op._torch_backward):
            truth = self._evaluate(sweep.key, given, sweep.numbers, torch.float64)
        near = self._near_roots(sweep.key, given, sweep.numbers)
        own = self._own(sweep, given)
        for backend, leaves in [*backends.items(), (NATIVE, contextlib.nullcontext)]:
            if backend == NATIVE and own is None:
                continue
            with leaves():
                if backend == NATIVE and own is not None:
                    results = [self._of_own(own[1], given, getattr(torch, dtype))]
                else:
                    results = [
                        self._evaluate(sweep.key, given, sweep.numbers, getattr(torch, dtype))
                    ]
                if backend == CPU and dtype != "float32":
                    results.append(self._looked_up(sweep, tensors, getattr(torch, dtype)))
            for entry, value in (item for got in results for item in got.items()):
                zero = torch.zeros(count, dtype=torch.float64)
                self._judge(
                    backend, dtype, entry, given, value, truth[entry], zero, near[entry], sweep
                )

    def _looked_up(
        self, sweep: Sweep, tensors: Mapping[str, Tensor], dtype: torch.dtype
    ) -> dict[Entry, Tensor]:
        """`_evaluate` among so many elements that functions are looked up."""
        count = len(next(iter(tensors.values())))
        times = -(-LOOKED_UP // count)
        given = {name: values.repeat(times) for name, values in tensors.items()}
        given |= {name: torch.tensor([value]) for name, value in sweep.parameters.items()}
        found = self._evaluate(sweep.key, given, sweep.numbers, dtype)
        return {
            entry: value[:count]
            for entry, value in found.items()
            if value.shape == given[next(iter(tensors))].shape  # not those summed up
        }

    def _patterns(self, sweep: Sweep, dtype: str) -> dict[str, Tensor]:
        own = getattr(torch, dtype)
        generator = torch.Generator().manual_seed(0)
        found: dict[str, Tensor] = {}
        inside: Tensor | None = None
        for name in sweep.tensors:
            if dtype == "float32":
                bits = torch.randint(
                    -(2**31), 2**31, (SWEPT[self.job.level],), generator=generator
                ).to(torch.int32)
            elif len(sweep.tensors) == 1:
                bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
            else:
                bits = torch.randint(-(2**15), 2**15, (1 << 16,), generator=generator)
                bits = bits.to(torch.int16)
            values = bits.view(own).double()
            found[name] = values
            fits = values.isfinite()
            if len(sweep.tensors) > 1:
                fits &= (values == 0) | ((values.abs() >= 2.0**-40) & (values.abs() <= 2.0**40))
            if name in sweep.domain:
                low, high, low_in, high_in = sweep.domain[name]
                fits &= (values >= low) if low_in else (values > low)
                fits &= (values <= high) if high_in else (values < high)
            inside = fits if inside is None else inside & fits
        assert inside is not None
        return {name: values[inside] for name, values in found.items()}


def error_in_ulp(got: Tensor, high: Tensor, low: Tensor, dtype: str) -> Tensor:
    """|got - (high + low)| in units in the last place of `dtype` at the truth."""
    bits, least = PRECISION[dtype]
    _, exponent = torch.frexp(high)
    exponent = torch.where(high == 0, least, exponent)
    spacing = torch.ldexp(torch.ones_like(high), (exponent - bits).clamp(min=least).to(torch.int32))
    # In two steps: the quotient of subnormal numbers may not be one.
    return ((got - high) / spacing - low / spacing).abs()


def _column(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _maximum(values: Tensor, where: Tensor) -> float:
    picked = values[where]
    return float(picked.nan_to_num(math.inf).max()) if picked.numel() else 0.0


def _quantile(values: Tensor) -> float:
    if not values.numel():
        return 0.0
    ordered = values.nan_to_num(math.inf).sort().values
    return float(ordered[min(len(ordered) - 1, int(0.999 * len(ordered)))])


def _worst(
    given: Mapping[str, Tensor], high: Tensor, got: Tensor, ulps: Tensor, where: Tensor
) -> list[Worst]:
    """The points of the largest errors, worst first."""
    index = where.nonzero().flatten()
    order = ulps.nan_to_num(math.inf)[index].argsort(descending=True)[:KEPT]
    return [
        Worst(
            tuple((name, float(values[at])) for name, values in given.items()),
            float(high[at]),
            float(got[at]),
            float(ulps[at]),
        )
        for at in index[order].tolist()
    ]


def _quantity(entry: Entry) -> Quantity:
    kinds: tuple[Quantity, ...] = ("value", "gradient", "second derivative")
    return kinds[len(entry) - 1]


def _title(entry: Entry) -> str:
    if len(entry) == 1:
        return entry[0]
    power = "" if len(entry) == 2 else "2"
    return f"d{power} {entry[0]} / " + " ".join(f"d {leaf}" for leaf in entry[1:])


def main(arguments: Sequence[str]) -> None:
    found, into = arguments
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with open(found, "rb") as file:
        job: Job = pickle.load(file)
    measure = Measure(job)
    measure.all()
    own = sorted({found[0] for found in measure.own.values() if found is not None})
    result = {"findings": measure.found, "limits": measure.limits, "own": own}
    with open(into, "w", encoding="utf-8") as out:
        json.dump(result | {"not_run": measure.not_run}, out)


if __name__ == "__main__":
    main(sys.argv[1:])
