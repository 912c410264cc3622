"""Values, gradients and second derivatives against the oracle's tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from autofn.verify.checks.compare import (
    EPS,
    TINY,
    compute_dtype,
    number,
    off_by,
    require_close,
)
from autofn.verify.checks.context import Context, variant
from autofn.verify.job import COTANGENT, DIRECTION, Entry, Table

SLACK = 32
"""Roundings of the arithmetic, relative to the result and to 1, that a result may be off by."""


def values(context: Context) -> str:
    """Every output at every point of the tables."""
    off: list[str] = []
    for table in context.job.tables:
        points, numbers = _inputs(context, table)
        outputs = context.subject.op.forward_leaf(points, numbers)
        for name, got in zip(context.subject.outputs, outputs, strict=True):
            off += _require(table, name, name, got)
    return _summary(context.job.tables, off)


def gradients(context: Context) -> str:
    """d output / d leaf for every pair, at every point of the tables."""
    off: list[str] = []
    for table in context.job.tables:
        points, numbers = _inputs(context, table)
        outputs = context.subject.op.forward_leaf(points, numbers)
        for chosen, output in enumerate(context.subject.outputs):
            grads = [torch.full_like(y, COTANGENT * (o == chosen)) for o, y in enumerate(outputs)]
            got = context.subject.leaf_gradients(points, numbers, outputs, grads)
            for leaf in _given(context, table):
                mine = got[leaf]
                if mine is None:
                    mine = torch.zeros(outputs[0].shape, dtype=torch.float64)
                pair = f"d {output} / d {leaf}"
                off += _require(table, pair, (output, leaf), mine / COTANGENT)
    return _summary(context.job.tables, off)


def seconds(context: Context) -> str:
    """d2 output / d leaf d leaf for every triple, through double backward, in float64."""
    tables = [t for t in context.job.tables if t.dtype == "float64" and t.seconds]
    for table in tables:
        for index, rows in _groups(context, table):
            _second(context, table, index, rows)
    return _summary(tables)


def _inputs(context: Context, table: Table) -> tuple[list[Tensor | None], list[Any]]:
    """The leaves' arguments: each point an element, parameters spread over the points too."""
    dtype = getattr(torch, table.dtype)
    points: list[Tensor | None] = []
    for name in context.subject.names:
        column = table.points.get(name)
        own = compute_dtype(dtype) if context.is_parameter(name) else dtype
        points.append(None if column is None else torch.tensor(column, dtype=torch.float64).to(own))
    everything = {**table.numbers, **dict(table.key)}
    return points, [everything[name] for name in context.subject.manifest["values"]]


def _given(context: Context, table: Table) -> list[str]:
    return [name for name in context.subject.names if name in table.points]


def _truth(column: Sequence[float]) -> Tensor:
    return torch.tensor(column, dtype=torch.float64)


def _require(table: Table, pair: str, entry: Entry, got: Tensor) -> list[str]:
    """Raises Mismatch where `got` is further from the truth than rounding explains.

    Returns the strained points where it is, described.
    """
    dtype = getattr(torch, table.dtype)
    want = _truth(table.truth[entry])
    smooth = _truth(table.smooth[entry])
    nearer = (got.double() - smooth).abs() < (got.double() - want).abs()
    want = torch.where(nearer, smooth, want)
    stored = want.to(got.dtype).double()
    scale = 1 + want.abs()
    if isinstance(entry, str):  # a value may be the small difference of numbers like its inputs
        scale = scale + torch.stack([_truth(c).abs() for c in table.points.values()]).sum(0)
    tolerance = SLACK * EPS[compute_dtype(dtype)] * scale
    tolerance = tolerance + SLACK / 4 * _truth(table.wobble[entry])
    tolerance = tolerance + 2 * EPS[got.dtype] * want.abs() + 4 * TINY[got.dtype]
    # Too large for the dtype: infinity, or its largest number; of either sign, or any number, where
    # roundings of the inputs decide that.
    mine, largest = got.double(), torch.finfo(got.dtype).max
    most = (mine.abs() >= largest) & ((mine.sign() == want.sign()) | (tolerance >= want.abs()))
    huge = want.isfinite() & stored.isinf() & (most | ((mine - want).abs() <= tolerance))
    huge |= mine.isinf() & (want.abs() + tolerance >= largest)
    stored = torch.where(huge, mine, stored)
    strained = torch.tensor(table.strained)
    off = strained & off_by(got, stored, tolerance)
    require_close(
        mine,
        torch.where(strained, math.nan, stored),
        tolerance,
        f"{pair}{variant(table.key)}, {table.dtype}",
        lambda index: f"{table.where} point {_point(table, index)}",
    )
    return [
        f"{pair}, {table.dtype}, {_point(table, index)}: expected {number(stored[index])}, "
        f"got {number(got[index])}"
        for index in off.nonzero().flatten().tolist()
    ]


def _point(table: Table, index: int) -> str:
    shown = [f"{name}={number(column[index])}" for name, column in table.points.items()]
    return ", ".join(shown + [f"{name}={value!r}" for name, value in table.numbers.items()])


def _summary(tables: Sequence[Table], off: Sequence[str] = ()) -> str:
    points = f"{sum(len(next(iter(t.points.values()), [])) for t in tables)} points"
    if not off:
        return points
    return f"{points}; {len(off)} off where the formula as written over- or underflows: {off[0]}"


# --- second derivatives: through the Function, whose learnable scalars are one number ------------


def _groups(context: Context, table: Table) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Points that share their parameters' values, and those points as the Function takes them.

    Points run along the last dimension; a parameter is one number there.
    """
    shared = [name for name in table.points if context.is_parameter(name)]
    groups: dict[tuple[float, ...], list[int]] = {}
    for at in range(len(next(iter(table.points.values())))):
        groups.setdefault(tuple(table.points[name][at] for name in shared), []).append(at)
    for index in groups.values():
        rows: dict[str, Tensor] = {}
        for name, column in table.points.items():
            picked = [column[index[0]]] if name in shared else [column[i] for i in index]
            rows[name] = _truth(picked)
        yield index, rows


def _second(context: Context, table: Table, index: list[int], rows: dict[str, Tensor]) -> None:
    subject = context.subject
    leaves = {name: row.requires_grad_() for name, row in rows.items()}
    absent = {name: None for name in subject.names if name not in leaves}
    call = {**table.numbers, **dict(table.key), **absent, **leaves}
    names = _given(context, table)
    outputs = subject.apply(call)
    for output, y in zip(subject.outputs, outputs, strict=True):
        for first in names:
            if not y.requires_grad:
                continue
            (grad,) = torch.autograd.grad(
                y,
                leaves[first],
                torch.full_like(y, COTANGENT),
                create_graph=True,
                materialize_grads=True,
            )
            for second in names:
                want = _truth(table.seconds[output, first, second])[index]
                if grad.requires_grad:
                    (got,) = torch.autograd.grad(
                        grad,
                        leaves[second],
                        torch.full_like(grad, DIRECTION),
                        retain_graph=True,
                        materialize_grads=True,
                    )
                else:
                    got = torch.zeros_like(leaves[second])
                _require_second(
                    table,
                    index,
                    f"d2 {output} / d {first} d {second}",
                    got / (COTANGENT * DIRECTION),
                    want,
                    summed=context.is_parameter(first) or context.is_parameter(second),
                )


def _require_second(
    table: Table,
    index: list[int],
    pair: str,
    got: Tensor,
    want: Tensor,
    *,
    summed: bool,
) -> None:
    scale = want.abs()
    if summed and got.numel() == 1:
        scale, want = scale.sum().reshape(1), want.sum().reshape(1)
        if not bool(want.isfinite()):
            return
    require_close(
        got,
        want,
        1e-9 * scale + 1e-9,
        f"{pair}{variant(table.key)}",
        lambda i: f"{table.where} point {_point(table, index[i])}",
    )
