"""The job of one verification: the calls to make, and points with their truth from the oracle."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from autofn.api import camel_case
from autofn.model import NUMBERS, Definition, Kind, Leaf, Variant
from autofn.verify.cases import make_cases
from autofn.verify.job import Argument, Job, Level, Signature, Table, Where
from autofn.verify.oracle import oracle
from autofn.verify.points import Point, hard_points, kink_points, regular_points

REGULAR = {"quick": 12, "full": 64}
"""Regular points per variant."""

HARD = {"quick": 48, "full": 4000}
"""Hard points per variant and dtype, at most."""

DTYPES = ("float64", "float32", "bfloat16", "float16")


def make_job(definition: Definition, folder: str, level: Level) -> Job:
    """Everything that the worker needs to check the package that lies in `folder`."""
    cases = [
        case
        for variant in definition.variants
        for case in make_cases(definition, variant, regular_points(definition, variant, 24))
    ]
    tables = [
        table for variant in definition.variants for table in _tables(definition, variant, level)
    ]
    return Job(
        folder=folder,
        class_name=camel_case(definition.name),
        signature=_signature(definition),
        cases=tuple(cases),
        tables=tuple(tables),
        level=level,
    )


def _signature(definition: Definition) -> Signature:
    arguments = [
        Argument(
            parameter.name,
            parameter.type_name,
            tuple(
                (leaf.parameter.name, leaf.name)
                for leaf in definition.leaves
                if leaf.path.startswith(f"{parameter.name}.")
            ),
        )
        for parameter in definition.parameters
    ]
    kinds = {
        leaf.name: (leaf.kind.name, leaf.parameter.dim) for leaf in definition.differentiable
    }
    return Signature(tuple(arguments), kinds, definition.own_gradient)


def _tables(definition: Definition, variant: Variant, level: Level) -> list[Table]:
    regular = regular_points(definition, variant, REGULAR[level], seed=1)
    hard = hard_points(definition, variant)
    found: list[tuple[Where, Sequence[Point]]] = [
        ("regular", regular),
        ("kink", kink_points(definition, variant)),
        ("hard", _spread(hard, HARD[level])),
    ]
    tables: list[Table] = []
    for where, points in found:
        for dtype in DTYPES:
            for group in _by_numbers(definition, points):
                exact = _exact(definition, group, dtype)
                if exact:
                    tables.append(_table(definition, variant, where, dtype, exact))
    return tables


def _spread(points: Sequence[Point], most: int) -> list[Point]:
    """At most so many of the points, evenly over them all."""
    if len(points) <= most:
        return list(points)
    return [points[k * len(points) // most] for k in range(most)]


def _by_numbers(definition: Definition, points: Sequence[Point]) -> list[list[Point]]:
    """The points in groups of equal numbers, which are arguments of a whole call."""
    names = [leaf.name for leaf in definition.numbers]
    groups: dict[tuple[object, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(tuple(point.get(name) for name in names), []).append(point)
    return list(groups.values())


def _exact(definition: Definition, points: Sequence[Point], dtype: str) -> list[Point]:
    """The points with every leaf rounded to its dtype, without those that this makes infinite."""
    kinds = {leaf.name: leaf for leaf in definition.leaves}
    found: dict[tuple[object, ...], Point] = {}
    for point in points:
        exact = {name: _rounded(kinds[name], value, dtype) for name, value in point.items()}
        if all(math.isfinite(value) for value in exact.values()):
            found.setdefault(tuple(exact.values()), exact)
    return list(found.values())


def _rounded(leaf: Leaf, value: float | int, dtype: str) -> float | int:
    if leaf.kind in NUMBERS:
        return value
    if leaf.kind in (Kind.LEARNABLE, Kind.PER_CHANNEL) and dtype != "float64":
        dtype = "float32"
    return round_to(float(value), dtype)


def round_to(value: float, dtype: str) -> float:
    """The nearest number of the dtype, infinity beyond its largest."""
    if dtype == "float64" or not math.isfinite(value):
        return value
    if dtype == "bfloat16":
        # To the nearest of 8 significant bits; below float32's normal range by its spacing.
        exponent = max(math.frexp(value)[1] - 8, -133) if value else 0
        found = math.ldexp(round(math.ldexp(value, -exponent)), exponent)
        return found if abs(found) < 2.0**128 else math.copysign(math.inf, value)
    code = {"float32": "f", "float16": "e"}[dtype]
    try:
        return float(struct.unpack(code, struct.pack(code, value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _table(
    definition: Definition, variant: Variant, where: Where, dtype: str, points: Sequence[Point]
) -> Table:
    """The truth at the points: what the outputs are, and what backward must return."""
    judge = oracle(definition, variant)
    key = dict(variant.key)
    names = [leaf.name for leaf in definition.differentiable]
    given = [name for name in names if key.get(name, True)]
    outputs = definition.output_names
    values: dict[str, list[float]] = {name: [] for name in outputs}
    gradients: dict[tuple[str, str], list[float]] = {
        (output, leaf): [] for output in outputs for leaf in given
    }
    seconds: dict[tuple[str, str, str], list[float]] = {}
    if where == "regular":
        seconds = {
            (output, a, b): [] for output in outputs for a in given for b in given
        }
    for point in points:
        truth = judge.evaluate(point)
        for name, value in zip(outputs, truth.outputs, strict=True):
            values[name].append(float(value))
        for j, output in enumerate(outputs):
            row: Sequence[object] = truth.jacobian[j]
            if definition.own_gradient:
                row = judge.vjp(point, [float(i == j) for i in range(len(outputs))])
            for name, entry in zip(names, row, strict=True):
                if name in given:
                    gradients[output, name].append(0.0 if entry is None else float(entry))  # type: ignore[arg-type]
            if seconds:
                for i, a in enumerate(names):
                    if a in given:
                        along = [float(k == i) for k in range(len(names))]
                        cotangents = [float(k == j) for k in range(len(outputs))]
                        again = judge.second(point, cotangents, along)
                        for b, entry in zip(names, again.leaves, strict=True):
                            if b in given:
                                seconds[output, a, b].append(float(entry))
    numbers = {leaf.name for leaf in definition.numbers}
    return Table(
        where=where,
        key=variant.key,
        dtype=dtype,
        numbers={name: points[0][name] for name in points[0] if name in numbers},
        points={name: [float(point[name]) for point in points] for name in given},
        values=values,
        gradients=gradients,
        seconds=seconds,
    )
