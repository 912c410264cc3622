"""What autograd expects of a Function beyond right numbers."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from autofn.verify.checks.compare import EPS, Mismatch, NotRun, element, require_close, short
from autofn.verify.checks.context import Context, in_case
from autofn.verify.job import Case
from autofn.verify.leaves import broadcast_shape


def shapes_and_dtypes(context: Context) -> str:
    """Outputs of the result type; raw gradients of each input's own shape and dtype."""
    count = 0
    for case in context.cases():
        for dtype, parameters in _dtypes():
            try:
                values = context.values(case, dtype, parameters)
                _own_shapes(context, values, dtype)
            except Exception as error:
                raise in_case(case, error) from None
            count += 1
        try:
            _mixed(context, case)
        except Exception as error:
            raise in_case(case, error) from None
    return f"{count} calls"


def needed_subsets(context: Context) -> str:
    """For subsets of inputs that need a gradient: theirs unchanged, None for the others."""
    if len(context.subject.names) == 1:
        raise NotRun("there is one input")
    count = 0
    for case in context.cases("dense", "broadcast"):
        values = context.values(case, requires_grad=False)
        names = context.given(values)
        full = _raw(context, values, names)
        for needed in _subsets(names):
            try:
                got = _raw(context, values, needed)
                for name in names:
                    _same_or_none(context, values, name, got[name], full[name], name in needed)
            except Exception as error:
                which = ", ".join(needed)
                raise in_case(case, Mismatch(f"gradient for {which} only: {error}")) from None
            count += 1
    return f"{count} subsets"


def incoming_gradients(context: Context) -> str:
    """Expanded (stride 0), transposed and absent incoming gradients."""
    count = 0
    for case in context.cases("dense", "broadcast", "transposed", "sliced", "0-dim", "empty"):
        values = context.values(case)
        names = context.given(values)
        tensors = [values[name] for name in names]
        try:
            outputs = context.subject.apply(values)
            for chosen in _incoming(len(outputs)):
                for kind in ("expanded", "transposed"):
                    _incoming_gradient(context, outputs, chosen, kind, tensors, names)
                    count += 1
        except Exception as error:
            raise in_case(case, error) from None
    return f"{count} gradients"


def determinism(context: Context) -> str:
    """Two calls give the same bits, and leave their inputs as they were."""
    count = 0
    for case in context.cases():
        for dtype in EPS:
            values = context.values(case, dtype)
            names = context.given(values)
            before = {name: values[name].detach().clone() for name in names}
            one, two = (_everything(context, values, names) for _ in range(2))
            for name, first, second in zip(_labels(context, names), one, two, strict=True):
                if not torch.equal(first.nan_to_num(0.5), second.nan_to_num(0.5)):
                    raise in_case(case, Mismatch(f"{name} in {short(dtype)}: two calls differ"))
            for name in names:
                if not torch.equal(values[name], before[name]):
                    raise in_case(case, Mismatch(f"{name} was written to"))
            count += 1
    return f"{count} calls"


def _dtypes() -> list[tuple[torch.dtype, torch.dtype]]:
    pairs = [(dtype, dtype) for dtype in EPS]
    return [*pairs, (torch.bfloat16, torch.float32), (torch.float32, torch.float64)]


def _own_shapes(context: Context, values: dict[str, Any], dtype: torch.dtype) -> None:
    names = context.given(values)
    outputs = context.subject.apply(values)
    spread = context.spread(values, outputs[0].shape)
    shape = broadcast_shape([value.shape for value in spread.values() if _is(value)])
    for name, output in zip(context.subject.outputs, outputs, strict=True):
        if output.dtype != dtype or output.shape != shape:
            raise Mismatch(
                f"{name}: expected {short(dtype)} {tuple(shape)}, "
                f"got {short(output.dtype)} {tuple(output.shape)}"
            )
    for name, gradient in _raw(context, values, names).items():
        _like(name, gradient, values[name])


def _mixed(context: Context, case: Case) -> None:
    """Tensors of two dtypes promote; each gradient keeps its own."""
    values = context.values(case, torch.float32)
    tensors = [name for name in context.given(values) if not context.is_parameter(name)]
    if len(tensors) < 2:
        return
    first = tensors[0]
    values[first] = values[first].detach().to(torch.bfloat16).requires_grad_()
    outputs = context.subject.apply(values)
    want = torch.result_type(values[first], values[tensors[1]])
    if outputs[0].dtype != want:
        raise Mismatch(
            f"{first} in bfloat16, {tensors[1]} in float32: expected {short(want)}, "
            f"got {short(outputs[0].dtype)}"
        )
    for name, gradient in _raw(context, values, context.given(values)).items():
        _like(name, gradient, values[name])


def _like(name: str, gradient: Any, value: Tensor) -> None:
    if gradient is None:
        return
    if gradient.shape != value.shape or gradient.dtype != value.dtype:
        raise Mismatch(
            f"backward's gradient of {name}: expected {short(value.dtype)} "
            f"{tuple(value.shape)}, got {short(gradient.dtype)} {tuple(gradient.shape)}"
        )


def _raw(context: Context, values: dict[str, Any], needed: Sequence[str]) -> dict[str, Any]:
    """What backward itself returns, before the engine repairs shapes and dtypes."""
    fresh = {
        name: value.detach().requires_grad_(name in needed) if _is(value) else value
        for name, value in values.items()
    }
    outputs = context.subject.apply(fresh)
    node = next((output.grad_fn for output in outputs if output.grad_fn is not None), None)
    names = context.given(values)
    if node is None:
        return dict.fromkeys(names)
    with torch.no_grad():
        returned = context.subject.function.backward(
            node, *(torch.ones_like(output) for output in outputs)
        )
    returned = returned if isinstance(returned, tuple) else (returned,)
    order = [argument.name for argument in context.job.signature.arguments]
    gradients = dict(zip(order, returned, strict=False))
    return {name: gradients[name] for name in names}


def _same_or_none(
    context: Context, values: dict[str, Any], name: str, got: Any, want: Any, needed: bool
) -> None:
    if not needed:
        if got is not None:
            raise Mismatch(f"{name}: expected None, got a gradient")
        return
    if want is None or got is None:
        if got is not want:
            raise Mismatch(f"{name}: expected a gradient, got None")
        return
    require_close(
        got,
        want,
        1e-13 * (1 + want.abs()),
        f"gradient of {name}",
        functools.partial(element, want.shape),
    )


def _subsets(names: Sequence[str]) -> list[tuple[str, ...]]:
    """All proper subsets of few inputs; of many, each alone and all but each."""
    if len(names) <= 3:
        sizes = range(1, len(names))
        return [each for size in sizes for each in itertools.combinations(names, size)]
    alone = [(name,) for name in names]
    return alone + [tuple(n for n in names if n != name) for name in names]


def _incoming(outputs: int) -> list[tuple[int, ...]]:
    every = tuple(range(outputs))
    return [every] if outputs == 1 else [every, *((o,) for o in every)]


def _incoming_gradient(
    context: Context,
    outputs: Sequence[Tensor],
    chosen: Sequence[int],
    kind: str,
    tensors: Sequence[Tensor],
    names: Sequence[str],
) -> None:
    """The same as dense gradients give; outputs that are not chosen have no gradient at all."""
    picked = [outputs[o] for o in chosen if outputs[o].requires_grad]
    if not picked:
        return
    if kind == "expanded":
        odd = [torch.tensor(0.75, dtype=y.dtype).expand(y.shape) for y in picked]
    else:
        odd = [
            torch.linspace(-1, 1, y.numel(), dtype=y.dtype)
            .reshape(y.shape[::-1])
            .permute(tuple(reversed(range(y.dim()))))
            for y in picked
        ]
    dense = [grad.clone(memory_format=torch.contiguous_format) for grad in odd]
    got, want = (
        torch.autograd.grad(
            picked, tensors, grads, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        for grads in (odd, dense)
    )
    for name, mine, theirs in zip(names, got, want, strict=True):
        require_close(
            mine,
            theirs,
            1e-12 * (1 + theirs.abs()),
            f"gradient of {name}, {kind} incoming",
            functools.partial(element, theirs.shape),
        )


def _everything(context: Context, values: dict[str, Any], names: Sequence[str]) -> list[Tensor]:
    """All outputs, then all gradients of their sum."""
    outputs = context.subject.apply(values)
    tensors = [values[name] for name in names]
    total = [output for output in outputs if output.requires_grad]
    if not total:
        return [*outputs, *(torch.zeros_like(tensor) for tensor in tensors)]
    grads = torch.autograd.grad(
        total, tensors, [torch.ones_like(y) for y in total], materialize_grads=True
    )
    return [*outputs, *grads]


def _labels(context: Context, names: Sequence[str]) -> list[str]:
    return [*context.subject.outputs, *(f"the gradient of {name}" for name in names)]


def _is(value: Any) -> bool:
    return isinstance(value, Tensor)
