"""The compiled kernels against the package's PyTorch operations: every dtype, every layout.

Large enough that each loop of a kernel is entered: whole vectors, grid strides and a tail.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from autofn.verify.checks.compare import (
    EPS,
    TINY,
    Mismatch,
    compute_dtype,
    element,
    require_close,
    short,
)
from autofn.verify.checks.context import Context, variant
from autofn.verify.job import Array, Case

SHAPE = (3, 7, 5, 3)
LARGE = (128, 7, 50, 3)
"""So many elements that CPU kernels look up functions of 16-bit tensors."""

ULPS = 64
"""Roundings in the compute type that kernels and PyTorch operations may differ by."""

LAYOUTS = (
    "dense",
    "channels_last",
    "permuted",
    "sliced",
    "misaligned",
    "expanded",
    "broadcast",
    "broadcast inside",
    "broadcast outside",
    "broadcast crosswise",
    "empty",
)
ON_CPU = (*LAYOUTS, "large")

BROADCAST = {
    "broadcast": ((), (SHAPE[1], 1, SHAPE[3])),
    "broadcast inside": ((), (SHAPE[0], SHAPE[1], 1, 1)),
    "broadcast outside": ((), SHAPE[-2:]),
    "broadcast crosswise": ((SHAPE[1], 1, SHAPE[3]), (SHAPE[0], 1, SHAPE[2], 1)),
}
"""The shapes of tensors in turn, () for SHAPE: how gradients are summed. The last keeps its own."""


def agreement(
    context: Context,
    kernels: Callable[[], AbstractContextManager[None]],
    layouts: Sequence[str] = LAYOUTS,
) -> str:
    """Outputs and gradients of the kernels equal those of the PyTorch leaf to rounding.

    Leaves are PyTorch's here, and the kernels within `kernels()`.
    """
    count = 0
    for case in context.cases("dense"):
        for layout in layouts:
            for dtype in EPS:
                if layout == "large" and dtype == compute_dtype(dtype):
                    continue
                values = _values(context, case, layout, dtype)
                where = f"{layout}{variant(case.key)}, {short(dtype)}"
                want = _run(context, values)
                with kernels():
                    got = _run(context, values)
                terms, outside = _terms(context, values)
                try:
                    try:
                        _compare(context, values, got, want, dtype, terms, outside)
                    except Mismatch:
                        # Rarely: is it so sensitive to its inputs that rounding explains it?
                        moved = _moved(context, values, want, dtype)
                        _compare(context, values, got, want, dtype, terms, outside, moved)
                except Mismatch as error:
                    raise Mismatch(f"{where}: {error}") from None
                count += 1
    return f"{count} calls"


def _values(context: Context, case: Case, layout: str, dtype: torch.dtype) -> dict[str, Any]:
    """The case's points over a shape; parameters in the compute type, as under AMP."""
    values: dict[str, Any] = {}
    out = {"empty": (*SHAPE[:-1], 0), "large": LARGE}.get(layout, SHAPE)
    given = [
        name
        for name, value in case.values.items()
        if isinstance(value, Array) and not context.is_parameter(name)
    ]
    for name, value in case.values.items():
        if not isinstance(value, Array):
            values[name] = value
            continue
        kind, dim = context.job.signature.kinds[name]
        if kind in ("LEARNABLE", "PER_CHANNEL"):
            channels = out[dim % len(out)] if -len(out) <= dim < len(out) else 1
            shape: tuple[int, ...] = (1 if kind == "LEARNABLE" else channels,)
            values[name] = _filled(value, shape, compute_dtype(dtype)).requires_grad_()
            continue
        shape = out
        if layout in BROADCAST and (name != given[-1] or len(given) == 2):
            turns = BROADCAST[layout]
            shape = turns[given.index(name) % len(turns)] or out
        values[name] = _laid(_filled(value, shape, dtype), layout).requires_grad_()
    return values


def _filled(array: Array, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor of `shape` that repeats the array's values."""
    data = torch.tensor(array.data, dtype=torch.float64)
    need = math.prod(shape)
    return data.repeat(1 + need // data.numel())[:need].to(dtype).reshape(shape)


def _laid(tensor: Tensor, layout: str) -> Tensor:
    """The same values in another memory layout."""
    if layout == "channels_last" and tensor.dim() == 4:
        return tensor.contiguous(memory_format=torch.channels_last)
    if layout == "permuted":
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "sliced":
        wide = torch.full((*tensor.shape[:-1], 2 * tensor.shape[-1] + 1), torch.nan).to(tensor)
        view = wide[..., 1::2]
        view.copy_(tensor)
        return view
    if layout == "misaligned":
        flat = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
        return flat[1:].view(tensor.shape).copy_(tensor)
    if layout == "expanded":
        return tensor[:, :1].expand(tensor.shape)
    return tensor


def _run(context: Context, values: dict[str, Any]) -> dict[str, Tensor]:
    """Outputs, and the gradients of their weighted sum."""
    outputs = context.subject.apply(values)
    names = context.given(values)
    results = {name: y.detach() for name, y in zip(context.subject.outputs, outputs, strict=True)}
    roots = [y for y in outputs if y.requires_grad]
    weights = [
        torch.linspace(0.5, 1.5, max(1, y.numel()), dtype=torch.float64)[: y.numel()]
        .to(y.dtype)
        .reshape(y.shape)
        for y in roots
    ]
    if roots:
        tensors = [values[name] for name in names]
        grads = torch.autograd.grad(roots, tensors, weights, materialize_grads=True)
        results.update({f"gradient of {n}": g for n, g in zip(names, grads, strict=True)})
    return results


def _moved(
    context: Context, values: dict[str, Any], want: dict[str, Tensor], dtype: torch.dtype
) -> dict[str, Tensor]:
    """How far each result moves when the inputs do by a few roundings of the compute type."""
    if dtype != compute_dtype(dtype):
        return {}  # inputs of 16 bits cannot move by less than their own roundings
    moved = {name: torch.zeros_like(result).double() for name, result in want.items()}
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        near = {
            name: _nudged(value, EPS[dtype], generator) if isinstance(value, Tensor) else value
            for name, value in values.items()
        }
        for name, result in _run(context, near).items():
            moved[name] = moved[name].maximum((result.double() - want[name].double()).abs())
    return moved


def _nudged(value: Tensor, eps: float, generator: torch.Generator) -> Tensor:
    sign = torch.randint(0, 2, value.shape, generator=generator).to(value) * 2 - 1
    return (value.detach() * (1 + 4 * eps * sign)).requires_grad_()


def _compare(
    context: Context,
    values: dict[str, Any],
    got: dict[str, Tensor],
    want: dict[str, Tensor],
    dtype: torch.dtype,
    terms: dict[str, Tensor],
    outside: dict[str, Tensor],
    moved: dict[str, Tensor] | None = None,
) -> None:
    for name, mine in got.items():
        theirs = want[name]
        if mine.dtype != theirs.dtype:
            raise Mismatch(f"{name}: expected {short(theirs.dtype)}, got {short(mine.dtype)}")
        size = theirs.detach().double().abs()
        scale = terms.get(name, size)
        if name in outside:
            theirs = theirs.detach().masked_fill(outside[name], math.nan)
        tolerance = ULPS * EPS[compute_dtype(dtype)] * (1 + scale) + 3 * EPS[theirs.dtype] * size
        tolerance = tolerance + 4 * TINY[theirs.dtype]
        if moved and name in moved:
            tolerance = tolerance + ULPS / 4 * moved[name]
        require_close(
            mine,
            theirs,
            tolerance,
            name,
            functools.partial(_place, context, values, name, at=theirs),
        )


def _terms(context: Context, values: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Per leaf, the sum of the absolute terms of its gradient, in the leaf's shape.

    And where one of them is of a point outside the formula's domain: what the derivative's
    expression has there, rounding decides.
    """
    subject = context.subject
    everything = subject.values(values)
    shape = subject.apply(values)[0].shape
    spread = context.spread(values, shape)
    tensors = [
        None if spread[n] is None else spread[n].detach().double().expand(shape).contiguous()
        for n in subject.names
    ]
    outputs = subject.op.forward_leaf(tensors, everything)
    ones = [torch.full_like(output, 1.5) for output in outputs]
    undefined = torch.stack([output.isnan() for output in outputs]).any(0)
    found = subject.leaf_gradients(tensors, everything, outputs, ones)
    terms: dict[str, Tensor] = {}
    outside: dict[str, Tensor] = {}
    for name in context.given(values):
        grad = found[name]
        if grad is not None:
            kind, dim = context.job.signature.kinds[name]
            like = values[name].shape, kind, dim
            terms[f"gradient of {name}"] = _summed_to(grad.abs(), *like)
            outside[f"gradient of {name}"] = _summed_to(undefined.to(grad), *like) > 0
    return terms, outside


def _summed_to(grad: Tensor, shape: Sequence[int], kind: str, dim: int) -> Tensor:
    """The sum of a full gradient over the dimensions that its input, of `shape`, lacks."""
    if tuple(grad.shape) == tuple(shape):
        return grad
    if math.prod(shape) == 1:
        return grad.sum().reshape(tuple(shape))
    if kind == "PER_CHANNEL" and len(shape) == 1:
        others = [d for d in range(grad.dim()) if d != dim % grad.dim()]
        return grad.sum(others) if others else grad
    return grad.sum_to_size(tuple(shape))


def _place(context: Context, values: dict[str, Any], name: str, index: int, *, at: Tensor) -> str:
    """Where element `index` of a result lies: the point behind it, if it is an output."""
    if name in context.subject.outputs:
        return context.place(values, at.shape, index)
    return element(at.shape, index)
