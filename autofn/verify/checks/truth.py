"""Values, gradients and second derivatives against the oracle's tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from autofn.verify.checks.compare import (
    EPS,
    TINY,
    compute_dtype,
    number,
    require_close,
)
from autofn.verify.checks.context import Context, variant
from autofn.verify.job import Table

SLACK = 32
"""Units of rounding in the compute type that a formula may lose beyond its conditioning."""


def values(context: Context) -> str:
    """Every output at every point of the tables."""
    for table in context.job.tables:
        points, numbers = _inputs(context, table)
        outputs = context.subject.op.forward_leaf(points, numbers)
        for name, got in zip(context.subject.outputs, outputs, strict=True):
            want = _truth(table.values[name])
            slopes = [
                (leaf, _truth(table.gradients[name, leaf])) for leaf in _given(context, table)
            ]
            _require(table, name, got, want, _conditioning(table, slopes))
    return _summary(context)


def gradients(context: Context) -> str:
    """d output / d leaf for every pair, at every point of the tables."""
    for table in context.job.tables:
        points, numbers = _inputs(context, table)
        outputs = context.subject.op.forward_leaf(points, numbers)
        for chosen, output in enumerate(context.subject.outputs):
            grads = [
                torch.full_like(y, 1.0 if o == chosen else 0.0) for o, y in enumerate(outputs)
            ]
            got = context.subject.leaf_gradients(points, numbers, outputs, grads)
            for leaf in _given(context, table):
                want = _truth(table.gradients[output, leaf])
                mine = got[leaf]
                if mine is None:
                    mine = torch.zeros(len(want), dtype=torch.float64)
                slopes = [
                    (other, _truth(table.seconds[output, leaf, other]))
                    for other in _given(context, table)
                    if (output, leaf, other) in table.seconds
                ]
                _require(table, f"d {output} / d {leaf}", mine, want, _conditioning(table, slopes))
    return _summary(context)


def seconds(context: Context) -> str:
    """d2 output / d leaf d leaf for every triple, through double backward, in float64."""
    tables = [t for t in context.job.tables if t.dtype == "float64" and t.seconds]
    for table in tables:
        for index, rows in _groups(context, table):
            _second(context, table, index, rows)
    return _summary(context, tables)


def _inputs(context: Context, table: Table) -> tuple[list[Tensor | None], list[Any]]:
    """The leaves' arguments: each point an element, parameters spread over the points too."""
    dtype = getattr(torch, table.dtype)
    points: list[Tensor | None] = []
    for name in context.subject.names:
        column = table.points.get(name)
        own = compute_dtype(dtype) if context.is_parameter(name) else dtype
        points.append(
            None if column is None else torch.tensor(column, dtype=torch.float64).to(own)
        )
    everything = {**table.numbers, **dict(table.key)}
    return points, [everything[name] for name in context.subject.manifest["values"]]


def _given(context: Context, table: Table) -> list[str]:
    return [name for name in context.subject.names if name in table.points]


def _truth(column: Sequence[float]) -> Tensor:
    return torch.tensor(column, dtype=torch.float64)


def _conditioning(table: Table, slopes: Sequence[tuple[str, Tensor]]) -> Tensor:
    """How much a relative error of the inputs moves the result: sum of |slope * input|.

    A formula's own first operation may round by that much: sin(30 x) at a large x, say.
    """
    count = len(next(iter(table.points.values())))
    total = torch.zeros(count, dtype=torch.float64)
    for leaf, slope in slopes:
        total += (slope * _truth(table.points[leaf])).abs().nan_to_num(0.0, 0.0)
    return total


def _require(table: Table, pair: str, got: Tensor, want: Tensor, conditioning: Tensor) -> None:
    dtype = getattr(torch, table.dtype)
    stored = want.to(got.dtype).double()
    finite = want.isfinite() & stored.isinf()  # too large for the dtype: infinity, or its maximum
    stored = torch.where(finite & (got.double().abs() >= torch.finfo(got.dtype).max), got, stored)
    rounding = EPS[compute_dtype(dtype)] * SLACK * (want.abs() + conditioning)
    # Below its normal range a library function may flush to zero, at any |input| times that.
    size = torch.stack([_truth(column).abs() for column in table.points.values()]).sum(0)
    floor = torch.finfo(compute_dtype(dtype)).tiny * (1 + size) + 4 * TINY[got.dtype]
    tolerance = rounding + 2 * EPS[got.dtype] * want.abs() + floor
    require_close(
        got.double(),
        stored.double(),
        tolerance.nan_to_num(0.0, torch.inf),
        f"{pair}{variant(table.key)}, {table.dtype}",
        lambda index: f"{table.where} point {_point(table, index)}",
    )


def _point(table: Table, index: int) -> str:
    shown = [f"{name}={number(column[index])}" for name, column in table.points.items()]
    return ", ".join(shown + [f"{name}={value!r}" for name, value in table.numbers.items()])


def _summary(context: Context, tables: Sequence[Table] | None = None) -> str:
    tables = context.job.tables if tables is None else tables
    count = sum(len(next(iter(t.points.values()), [])) for t in tables)
    return f"{count} points"


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
                y.sum(), leaves[first], create_graph=True, materialize_grads=True
            )
            for second in names:
                want = _truth(table.seconds[output, first, second])[index]
                if grad.requires_grad:
                    (got,) = torch.autograd.grad(
                        grad.sum(), leaves[second], retain_graph=True, materialize_grads=True
                    )
                else:
                    got = torch.zeros_like(leaves[second])
                _require_second(
                    context, table, index, f"d2 {output} / d {first} d {second}",
                    got, want, context.is_parameter(first) or context.is_parameter(second),
                )


def _require_second(
    context: Context,
    table: Table,
    index: list[int],
    pair: str,
    got: Tensor,
    want: Tensor,
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


