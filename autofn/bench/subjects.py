"""The contenders of one formula: the generated op, its rivals, and the limit.

All compute the same on the same tensors, with gradients for every tensor and parameter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from autofn.bench.measure import Statement
from autofn.bench.native import BASELINE as BASELINE_OPERATOR
from autofn.bench.native import NATIVE as OPERATORS
from autofn.bench.records import COMPILE, EAGER, GENERATED, NATIVE, Mode, Setting
from autofn.bench.sketch import Form, Operand, Sketch
from autofn.errors import UsageError
from autofn.package import imported

NOISE = 0.05
"""Standard deviation of a parameter's values about its start value."""


@dataclass(frozen=True)
class Subject:
    """A formula's sketch and the public function of its package, loaded from its folder."""

    sketch: Sketch
    function: Callable[..., Any]
    module: ModuleType


@dataclass(frozen=True)
class Data:
    """Tensors by operand, and a dense random cotangent for each output.

    `plain` are the same tensors, in the same memory, without gradients.
    """

    tensors: dict[str, Tensor]
    plain: dict[str, Tensor]
    cotangents: tuple[Tensor, ...]
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Contender:
    """Something that computes the formula: `function` of the operands in order.

    keywords: operands given by name; extra: what else a call names, as Python text.
    """

    name: str
    form: str
    function: Callable[..., Any]
    keywords: tuple[str, ...] = ()
    extra: Mapping[str, Any] | None = None


# --- the package ---------------------------------------------------------------------------


def load(sketch: Sketch, folder: str) -> Subject:
    """The package in a folder. Raises UsageError where it was made from another formula."""
    place = Path(folder)
    try:
        digest = json.loads((place / "manifest.json").read_text(encoding="utf-8"))["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(
            f"{place} holds no generated package", remedy="autofn gen writes it"
        ) from None
    if digest != sketch.digest:
        raise UsageError(
            f"{place} was generated from another formula than the one given",
            remedy="autofn gen writes it anew; name the formula file and -o its folder",
        )
    module = imported(place, "autofn_under_bench")
    return Subject(sketch, getattr(module, sketch.function), module)


# --- the data ------------------------------------------------------------------------------


def shape_of(size: int, operands: Sequence[Operand]) -> tuple[int, ...]:
    """A shape of about `size` elements in which channels lie as the parameters want them.

    (size,) without channels, (rows, up to 1024) where they are the last dimension, else images
    of up to 64 channels and 32 x 32 pixels.
    """
    dims = {operand.dim for operand in operands if operand.place == "channel"}
    bits = max(0, size.bit_length() - 1)
    if not dims:
        return (size,)
    if dims == {-1}:
        channels = min(1024, 1 << bits // 2)
        return (max(1, size // channels), channels)
    channels = min(64, 1 << bits // 3)
    side = min(32, 1 << max(0, (bits - channels.bit_length() + 1) // 2 - 1))
    batch = max(1, size // (channels * side * side))
    ones = (1,) * (max(*(max(dim + 1, -dim) for dim in dims), 4) - 4)
    return (*ones, batch, channels, side, side)


def data_for(sketch: Sketch, setting: Setting) -> Data:
    """Random operands in a setting, the same in every run on a device."""
    device = torch.device(setting.device)
    generator = torch.Generator(device).manual_seed(0)
    shape = shape_of(setting.size, sketch.operands)
    dtype = getattr(torch, setting.dtype)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, device=device)

    plain: dict[str, Tensor] = {}
    for operand in sketch.operands:
        size = _size(operand, shape)
        values = operand.start + NOISE * normal(*size) if operand.place != "tensor" else None
        values = _inside(operand, normal(*size)) if values is None else values
        # Parameters have the tensors' dtype, so that eager computes in that dtype too.
        plain[operand.name] = values.to(dtype)
    tensors = {name: value.detach().requires_grad_() for name, value in plain.items()}
    cotangents = tuple(normal(*shape).to(dtype) for _ in range(sketch.outputs))
    return Data(tensors, plain, cotangents, shape)


def _size(operand: Operand, shape: tuple[int, ...]) -> tuple[int, ...]:
    if operand.place == "tensor":
        return shape
    if operand.place == "scalar":
        return (1,)
    inside = -len(shape) <= operand.dim < len(shape)
    return (shape[operand.dim] if inside else 1,)


def _inside(operand: Operand, values: Tensor) -> Tensor:
    """Normal numbers, moved into the operand's domain."""
    low, high = operand.low, operand.high
    if low is not None and high is not None:
        return low + (high - low) * (0.05 + 0.9 * torch.sigmoid(values))
    if low is not None:
        return low + 0.5 + values.abs()
    return values if high is None else high - 0.5 - values.abs()


# --- the contenders ------------------------------------------------------------------------


def generated(subject: Subject) -> Contender:
    sketch = subject.sketch
    extra = {
        setter.argument: getattr(subject.module, setter.type_name)(**dict(setter.fields))
        if setter.type_name
        else setter.value
        for setter in sketch.setters
    }
    keywords = tuple(o.name for o in sketch.operands if o.keyword_only)
    return Contender(GENERATED, "", subject.function, keywords, extra)


def eager(sketch: Sketch) -> Iterator[Contender]:
    """The formula in PyTorch operations, differentiated by autograd, in each of its forms."""
    for form in sketch.forms:
        yield Contender(EAGER, form.label, eager_function(form, sketch))


def native(sketch: Sketch) -> Iterator[Contender]:
    if sketch.name in OPERATORS:
        yield Contender(NATIVE, *OPERATORS[sketch.name])


def compiled(contender: Contender) -> Contender:
    """An eager form under torch.compile; it is compiled at its first call."""
    function = torch.compile(contender.function, fullgraph=True, dynamic=False)
    return Contender(COMPILE, contender.form, function)


def eager_function(form: Form, sketch: Sketch) -> Callable[..., Any]:
    """A form as a function of the operands."""
    namespace: dict[str, Any] = {"torch": torch, "F": F, "math": math, "scalar": _scalar}
    exec(compile(form.text, f"<{sketch.name}, {form.label}>", "exec"), namespace)
    numbers = sketch.numbers
    formula = namespace["formula"]
    if form.own_gradient:
        return _with_gradient(formula, namespace["gradient"], numbers)
    if not numbers:
        return formula  # type: ignore[no-any-return]
    # As defaults, so that a call costs what one of the user's own functions would.
    formula.__defaults__ = tuple(numbers)
    return formula  # type: ignore[no-any-return]


def _scalar(value: Any, like: Tensor) -> Tensor:
    """A number as a 0-dim tensor, as generated text needs it here and there."""
    if isinstance(value, Tensor):
        return value
    return torch.full((), value, dtype=like.dtype, device=like.device)


def _with_gradient(
    formula: Callable[..., Any], gradient: Callable[..., Any], numbers: tuple[float, ...]
) -> Callable[..., Any]:
    """The autograd.Function that a user would write for a gradient of one's own."""

    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *operands: Tensor) -> Any:
            ctx.save_for_backward(*operands)
            return formula(*operands, *numbers)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            operands = ctx.saved_tensors
            found = gradient(*grads, *operands, *numbers)
            found = found if isinstance(found, tuple) else (found,)
            return tuple(
                g.sum_to_size(t.shape) if isinstance(g, Tensor) else None
                for g, t in zip(found, operands, strict=True)
            )

    return Own.apply


# --- what is timed -------------------------------------------------------------------------


def statement(contender: Contender, sketch: Sketch, data: Data, mode: Mode) -> Statement:
    """A contender's call in a mode."""
    tensors = data.plain if mode in ("plain", "no_grad", "forward") else data.tensors
    names: dict[str, Any] = {
        "f": contender.function,
        "grad": torch.autograd.grad,
        "no_grad": torch.no_grad,
        "inputs": tuple(data.tensors.values()),
        "cotangents": data.cotangents,
    }
    arguments: list[str] = []
    for number, operand in enumerate(sketch.operands):
        names[f"a{number}"] = tensors[operand.name]
        keyword = f"{operand.argument}=" if operand.name in contender.keywords else ""
        arguments.append(f"{keyword}a{number}")
    for number, (argument, value) in enumerate((contender.extra or {}).items()):
        names[f"b{number}"] = value
        arguments.append(f"{argument}=b{number}")
    return _in_mode(f"f({', '.join(arguments)})", names, mode)


def baseline(data: Data, mode: Mode) -> Statement:
    """F.silu on the first tensor."""
    tensors = data.plain if mode in ("plain", "no_grad") else data.tensors
    first = next(iter(data.tensors))
    names: dict[str, Any] = {
        "f": BASELINE_OPERATOR[1],
        "grad": torch.autograd.grad,
        "no_grad": torch.no_grad,
        "inputs": (data.tensors[first],),
        "cotangents": data.cotangents[:1],
        "a0": tensors[first],
    }
    return _in_mode("f(a0)", names, mode)


def _in_mode(call: str, names: dict[str, Any], mode: Mode) -> Statement:
    gradient = "grad({}, inputs, cotangents, allow_unused=True)"
    if mode == "backward":
        return Statement(gradient.format("y"), f"y = {call}", names, repeatable=False)
    if mode == "forward+backward":
        return Statement(gradient.format(call), "pass", names)
    if mode == "no_grad":
        return Statement(f"with no_grad():\n    {call}", "pass", names)
    return Statement(call, "pass", names)


def values(contender: Contender, sketch: Sketch, data: Data, mode: Mode) -> tuple[Any, ...]:
    """What the contender computes in a mode: gradients, or outputs where it computes none."""
    gradients = mode in ("backward", "forward+backward")
    shown = statement(contender, sketch, data, "forward+backward" if gradients else "forward")
    with torch.set_grad_enabled(mode != "forward"):
        found = eval(shown.text, dict(shown.names))
    return (found,) if isinstance(found, Tensor) else tuple(found)


def differs(mine: Sequence[Any], theirs: Sequence[Any]) -> bool:
    """Whether two contenders compute different things in float32, beyond rounding.

    A few elements may differ: at kinks, and where a form as written over- or underflows.
    """
    if len(mine) != len(theirs):
        return True
    for a, b in zip(mine, theirs, strict=True):
        if a is None or b is None:
            continue  # the gradient of what has none: zero or None
        if a.shape != b.shape:
            return True
        scale = b.abs() + b[b.isfinite()].abs().mean()
        agrees = ((a - b).abs() <= 1e-3 * scale) | (a == b)
        if (~agrees).float().mean() > 0.01:
            return True
    return False


# --- the limit -----------------------------------------------------------------------------


def moved(sketch: Sketch, data: Data) -> tuple[int, int]:
    """Bytes that forward and backward must move.

    Forward reads each input and writes each output once. Backward reads the cotangents and what
    is saved, and writes a gradient for each input.
    """
    inputs = {name: tensor.nbytes for name, tensor in data.plain.items()}
    output = data.cotangents[0].nbytes
    outputs = output * sketch.outputs
    saved = sum(inputs.get(name, output) for name in sketch.saved)
    return sum(inputs.values()) + outputs, outputs + saved + sum(inputs.values())


def limit(sketch: Sketch, data: Data, mode: Mode) -> Statement:
    """Copies of as many bytes, half of them read and half written, one copy for each pass.

    Both read the same memory, as backward reads inputs again, so that the copies touch about as
    much of it as the op.
    """
    passes = zip(("forward", "backward"), moved(sketch, data), strict=True)
    like = data.cotangents[0]
    sizes = {
        label: max(1, count // 2 // like.element_size()) for label, count in passes if label in mode
    }
    # Written to: pages of zeros may all be one page of memory.
    source = torch.ones(max(sizes.values()), dtype=like.dtype, device=like.device)
    names: dict[str, Any] = {}
    for label, size in sizes.items():
        names[f"{label}_from"] = source[:size]
        names[f"{label}_to"] = torch.ones_like(source[:size])
    copies = [f"{label}_to.copy_({label}_from)" for label in sizes]
    return Statement("\n".join(copies), "pass", names)
