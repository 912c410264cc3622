"""What a feature is tried on: a generated package with one of its leaves, and its reference."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from autofn.load import load_file
from autofn.model import REQUIRED, TENSORS, Definition, Kind, Variant
from autofn.names import camel_case
from autofn.pipeline import generate
from autofn.resources import library
from citizen.reference import reference

KERNEL, PYTORCH = "kernel", "PyTorch"
LEAVES = (PYTORCH, KERNEL)

OUTSIDE = Path(__file__).with_name("formulas.py")

# Where a formula is defined, or far from overflow.
RANGE = {"lennard_jones": (1.0, 1.5), "logit": (0.05, 0.95), "bessel_basis": (0.3, 4.0),
         "hill": (0.2, 2.0), "polar": (0.3, 2.0)}  # fmt: skip


def shapes(n: int, m: int) -> tuple[tuple[int, ...], ...]:
    """Of a formula's tensors in turn: they broadcast. Channels lie along dimensions of m."""
    return ((n, m, m), (m, 1), (n, 1, m), (m,))


def many(returned: Any) -> tuple[Tensor, ...]:
    return (returned,) if isinstance(returned, Tensor) else tuple(returned)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def close(got: Any, want: Any, rtol: float = 1e-8) -> None:
    """Equal up to rounding: relative to each value, and a tenth as much of the largest."""
    if not isinstance(want, Tensor):
        got, want = tuple(got), tuple(want)
        assert len(got) == len(want), f"{len(got)} results, expected {len(want)}"
        for one, other in zip(got, want, strict=True):
            close(one, other, rtol)
        return
    assert isinstance(got, Tensor), f"{got} is no tensor"
    want = want.detach()
    size = max(1e-3, want.abs().max().item()) if want.numel() else 0.0
    torch.testing.assert_close(got.detach(), want.to(got.dtype), rtol=rtol, atol=rtol * size / 10)


@dataclass(frozen=True)
class Subject:
    """A package under test; `inputs` are float64 tensors in signature order."""

    definition: Definition
    variant: Variant
    package: ModuleType
    leaf: str
    inputs: tuple[Tensor, ...]
    keywords: dict[str, Any]
    reference: Callable[..., Any]

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def tensor_names(self) -> tuple[str, ...]:
        return tuple(leaf.name for leaf in self.definition.differentiable)

    @property
    def parameters(self) -> tuple[int, ...]:
        """Places of the learnable parameters among the inputs."""
        leaves = self.definition.differentiable
        return tuple(k for k, leaf in enumerate(leaves) if leaf.kind not in TENSORS)

    @property
    def own(self) -> bool:
        return self.definition.own_gradient

    @property
    def native(self) -> bool:
        return self.leaf == KERNEL

    @property
    def ops(self) -> ModuleType:
        """The module `op` of the package."""
        return sys.modules[f"{self.package.__name__}.op"]

    @property
    def runtime(self) -> ModuleType:
        return sys.modules[f"{self.package.__name__}._runtime"]

    @property
    def function(self) -> Callable[..., Any]:
        return getattr(self.package, self.name)

    def op(self, *tensors: Tensor) -> Any:
        """The generated function of the tensors; everything else is as in `keywords`."""
        return self.function(**dict(zip(self.tensor_names, tensors, strict=True)), **self.keywords)

    def leaves(self, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
        """The inputs, requiring gradients."""
        return tuple(t.to(dtype, copy=True).requires_grad_() for t in self.inputs)

    def module(self, **options: Any) -> torch.nn.Module:
        """The nn.Module, with parameters of the values in `inputs` where they have memory."""
        channels = any(p.kind is Kind.PER_CHANNEL for p in self.definition.parameters)
        given = {"dtype": torch.float64, **({"num_channels": 4} if channels else {})}
        made = getattr(self.package, camel_case(self.name))(**given, **self.keywords, **options)
        with torch.no_grad():
            for k in self.parameters:
                getattr(made, self.tensor_names[k]).copy_(self.inputs[k])
        return made

    def module_inputs(self) -> tuple[Tensor, ...]:
        return tuple(t for k, t in enumerate(self.inputs) if k not in self.parameters)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Within it the package computes with this leaf, in graphs of torch.compile too."""
        runtime = self.runtime
        kept = runtime.BACKEND, dict(runtime._LOADED), runtime.IN_GRAPHS
        runtime.BACKEND, runtime.IN_GRAPHS = ("native", True) if self.native else ("torch", False)
        runtime._LOADED.clear()
        try:
            runtime.kernels("cpu")
            yield
        finally:
            runtime.BACKEND, _, runtime.IN_GRAPHS = kept
            runtime._LOADED.clear()
            runtime._LOADED.update(kept[1])

    @contextlib.contextmanager
    def counted(self) -> Iterator[list[str]]:
        """Within it, the list grows by the name of every kernel or PyTorch leaf that is called."""
        calls: list[str] = []

        def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any) -> Any:
                calls.append(name)
                return function(*args)

            return call

        holder = self.runtime._LOADED["cpu"] if self.native else self.ops
        names = vars(holder) if self.native else ("_torch_forward", "_torch_backward")
        kept = {name: getattr(holder, name) for name in names}
        counters = {name: counting(name, function) for name, function in kept.items()}
        if self.native:
            self.runtime._LOADED["cpu"] = SimpleNamespace(**counters)
        else:
            vars(holder).update(counters)
        try:
            yield calls
        finally:
            if self.native:
                self.runtime._LOADED["cpu"] = holder
            else:
                vars(holder).update(kept)


def subject(definition: Definition, module: str, leaf: str) -> Subject:
    """The package that is imported as `module`."""
    variant = next(v for v in definition.variants if _is_default(v, definition))
    numbers, keywords = {}, {}
    for p in definition.parameters:
        if not p.differentiable and p.default is REQUIRED:
            keywords[p.name] = 0.75
    for each in definition.numbers:
        default = each.parameter.default
        assert each.symbol is not None
        numbers[each.symbol] = keywords[each.name] if default is REQUIRED else default
    if definition.options.reduction:
        keywords["reduction"] = "none"
    return Subject(
        definition,
        variant,
        importlib.import_module(module),
        leaf,
        sized(definition),
        keywords,
        reference(definition, variant, numbers),
    )


def _is_default(variant: Variant, definition: Definition) -> bool:
    """Whether it is the variant of a call without choices, and with all tensors given."""
    return all(
        value is True if definition.leaf(name).kind is Kind.OPTIONAL
        else value == definition.leaf(name).parameter.default
        for name, value in variant.key
    )  # fmt: skip


def sized(definition: Definition, n: int = 2, m: int = 4) -> tuple[Tensor, ...]:
    """A formula's float64 inputs, see `shapes`: the same in every run, at no kink."""
    generator = torch.Generator().manual_seed(1)
    low, high = RANGE.get(definition.name, (-2.5, 2.5))
    found, tensors = [], 0
    for leaf in definition.differentiable:
        if leaf.kind in TENSORS:
            values = torch.rand(shapes(n, m)[tensors % 4], generator=generator, dtype=torch.float64)
            values, tensors = low + (high - low) * values, tensors + 1
        else:
            size = m if leaf.kind is Kind.PER_CHANNEL else 1
            values = 0.5 + torch.rand(size, generator=generator, dtype=torch.float64)
        found.append(values)
    return tuple(found)


# --- which packages there are ----------------------------------------------------------------


def definitions() -> dict[str, Definition]:
    """Those of the library, then those outside."""
    files = [path for path in sorted(library().glob("*.py")) if path.stem != "__init__"]
    found = {}
    for path in (*files, OUTSIDE):
        for formula in load_file(path):
            found[formula.definition.name] = formula.definition
    return found


def installed(definition: Definition, folder: Path) -> str:
    """The module of a formula's package; one outside the library is written below `folder`."""
    if definition.source != OUTSIDE.name:
        return f"generated.{definition.name}"
    write(dict(generate(definition).files), folder / "citizen_outside" / definition.name)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return f"citizen_outside.{definition.name}"


def write(files: dict[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        (folder / path).write_text(text, encoding="utf-8")
