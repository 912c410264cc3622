"""PyTorch's own function, where the formula equals one: one more reference for its gradients."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import torch
from torch import Tensor

from autofn.verify.checks.compare import NotRun, point, require_close
from autofn.verify.checks.context import Context, variant
from autofn.verify.job import COTANGENT, Table
from autofn.verify.known import Function, recognised

FEWEST = 16
"""Points with a finite value from which on a function is recognised."""

MODERATE = 2.0**-4, 8.0
"""Magnitudes of the inputs that are looked at."""

RTOL = 1e-9


def pytorch_function(context: Context) -> str:
    """Finds the function by values in float64, then compares its gradients."""
    subject = context.subject
    if len(subject.outputs) != 1:
        raise NotRun("the formula has several outputs")
    found: list[str] = []
    for key in {table.key: None for table in context.job.tables}:
        tables = [t for t in context.job.tables if t.key == key and t.dtype == "float64"]
        if not tables:
            continue
        inputs, numbers = _inputs(context, tables)
        if not inputs:
            continue
        (values,) = subject.op.forward_leaf(_places(context, inputs), numbers)
        good = values.isfinite()
        if int(good.sum()) < FEWEST:
            continue
        kinds = context.job.signature.kinds
        tensors = {n: v[good] for n, v in inputs.items() if kinds[n][0] in ("TENSOR", "OPTIONAL")}
        own = recognised(values[good], tuple(tensors.values()))
        if own is None:
            continue
        given = {name: column[good] for name, column in inputs.items()}
        if not context.job.signature.own_gradient:
            _compare(context, given, numbers, own, tables[0])
        found.append(f"{_label(context, tables[0])}equals {own[0]}")
    if not found:
        raise NotRun("it equals none that is known")
    return "; ".join(dict.fromkeys(found))


def _inputs(context: Context, tables: list[Table]) -> tuple[dict[str, Tensor], list[Any]]:
    columns: dict[str, list[float]] = {}
    names = [name for name in context.subject.names if name in tables[0].points]
    for table in tables:
        for name in names:
            columns.setdefault(name, []).extend(table.points[name])
    given = {n: torch.tensor(column, dtype=torch.float64) for n, column in columns.items()}
    kinds = context.job.signature.kinds
    tensors = [v for n, v in given.items() if kinds[n][0] in ("TENSOR", "OPTIONAL")]
    if not tensors:
        return {}, []
    size = torch.stack([each.abs() for each in tensors]).amax(0)
    picked = (size > MODERATE[0]) & (size < MODERATE[1])
    everything = {**tables[0].numbers, **dict(tables[0].key)}
    numbers = [everything[name] for name in context.subject.manifest["values"]]
    return {name: column[picked] for name, column in given.items()}, numbers


def _places(context: Context, given: dict[str, Tensor]) -> list[Tensor | None]:
    return [given.get(name) for name in context.subject.names]


def _compare(
    context: Context,
    given: dict[str, Tensor],
    numbers: list[Any],
    own: tuple[str, Function],
    table: Table,
) -> None:
    """The gradients by tensors; where PyTorch has none, as by a loss's target, nothing."""
    subject, kinds = context.subject, context.job.signature.kinds
    places = _places(context, given)
    outputs = subject.op.forward_leaf(places, numbers)
    cotangent = torch.full_like(outputs[0], COTANGENT)
    mine = subject.leaf_gradients(places, numbers, outputs, [cotangent])
    tensors = [name for name in given if kinds[name][0] in ("TENSOR", "OPTIONAL")]
    for name in tensors:
        with contextlib.suppress(RuntimeError):
            inputs = [given[each].clone().requires_grad_(each == name) for each in tensors]
            (theirs,) = torch.autograd.grad(own[1](*inputs), inputs[tensors.index(name)], cotangent)
            got = mine[name]
            assert got is not None
            pair = f"d {subject.outputs[0]} / d {name} of {own[0]}{variant(table.key)}"
            require_close(
                got,
                theirs,
                RTOL * (1 + theirs.abs()),
                pair,
                functools.partial(point, {n: given[n] for n in tensors}, shape=got.shape),
            )


def _label(context: Context, table: Table) -> str:
    """At which values of numbers, parameters and choices."""
    kinds = context.job.signature.kinds
    parameters = {
        name: column[0]
        for name, column in table.points.items()
        if kinds[name][0] in ("LEARNABLE", "PER_CHANNEL")
    }
    settings = {**parameters, **table.numbers, **dict(table.key)}
    if not settings:
        return ""
    return "at " + ", ".join(f"{name} = {value}" for name, value in settings.items()) + " it "
