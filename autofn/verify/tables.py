"""The job of one verification: the calls to make, and points with their truth from the oracle."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from mpmath import mp
from sympy import Expr, Pow

from autofn.model import NUMBERS, Definition, Kind, Leaf, Variant
from autofn.names import camel_case
from autofn.trees import nodes
from autofn.verify.cases import make_cases
from autofn.verify.interpreter import Program
from autofn.verify.job import (
    COTANGENT,
    DIRECTION,
    DTYPES,
    Argument,
    Entry,
    Job,
    Level,
    Signature,
    Table,
    Where,
)
from autofn.verify.oracle import Truth, contains, oracle, precision
from autofn.verify.points import Point, hard_points, kink_points, regular_points

REGULAR = {"draft": 4, "quick": 12, "full": 64}
"""Regular points per variant."""

HARD = {"draft": 0, "quick": 48, "full": 4000}
"""Hard points per variant and dtype, at most; a draft has no time to look for them."""

NUDGE_ROUNDINGS = 4
"""Roundings of the arithmetic by which a point is moved to see how its truth moves."""

PATTERNS = 3
"""In so many ways every operation of the formula is off by as much."""

REACH = {"draft": 2.0**40, "quick": 2.0**40, "full": math.inf}
"""The largest leaf of a hard point. Beyond, x**3 overflows where the formula itself need not."""

RANGE = {"float64": (2.0**-1022, 1.79e308), "float32": (2.0**-126, 3.4e38)}
"""Smallest and largest normal numbers of the arithmetic."""


DRAFTED = ("dense", "broadcast")
"""The cases of a draft."""


def make_job(
    definition: Definition, folder: str, level: Level, dtypes: Sequence[str] = DTYPES
) -> Job:
    """Everything that the worker needs to check the package that lies in `folder`.

    dtypes: those that have tables; float64 has them always, as second order is checked in it.
    """
    wanted = [each for each in DTYPES if each == "float64" or each in dtypes]
    wanted = wanted[: 2 if level == "draft" else None]
    cases = [
        case
        for variant in definition.variants
        for case in make_cases(definition, variant, regular_points(definition, variant, 24))
        if level != "draft" or case.name in DRAFTED
    ]
    tables = [
        table
        for variant in definition.variants
        for table in _tables(definition, variant, level, wanted)
    ]
    return Job(
        folder=folder,
        class_name=camel_case(definition.name),
        signature=signature(definition),
        cases=tuple(cases),
        tables=tuple(tables),
        level=level,
    )


def signature(definition: Definition) -> Signature:
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
    kinds = {leaf.name: (leaf.kind.name, leaf.parameter.dim) for leaf in definition.differentiable}
    return Signature(tuple(arguments), kinds, definition.own_gradient)


def _tables(
    definition: Definition, variant: Variant, level: Level, dtypes: Sequence[str]
) -> list[Table]:
    truths = Truths(definition, variant)
    regular = regular_points(definition, variant, REGULAR[level], seed=1)
    tensors = [leaf.name for leaf in definition.differentiable]
    hard = [
        point
        for point in (hard_points(definition, variant) if HARD[level] else ())
        if all(abs(point[name]) <= REACH[level] for name in tensors if name in point)
    ]
    found: list[tuple[Where, Sequence[Point]]] = [
        ("regular", regular),
        ("kink", kink_points(definition, variant)),
        ("hard", _spread(hard, HARD[level])),
    ]
    tables: list[Table] = []
    for where, points in found:
        for dtype in dtypes:
            for group in _by_numbers(definition, points):
                exact = _exact(definition, group, dtype)
                if exact:
                    tables.append(_table(truths, where, dtype, exact))
    return tables


BESIDE = 2.0**-10
"""How far to the sides of a kink its conditioning is looked at, and the most that it may be."""

SLACK = 32
"""Roundings of the arithmetic, relative to inputs, results and 1, that a result may be off by."""


def reference(
    definition: Definition, variant: Variant, count: int
) -> tuple[Table, dict[Entry, float]]:
    """Regular points, exact in every dtype, and how many roundings each entry may be off by.

    Raises FormulaError where none is found.
    """
    points = regular_points(definition, variant, count, seed=2)
    exact = _exact(definition, points, "bfloat16")
    table = _table(Truths(definition, variant), "regular", "float32", exact)
    units: dict[Entry, float] = {}
    for entry, column in table.truth.items():
        near = [
            SLACK * (1 + abs(value) + sum(abs(points[k]) for points in table.points.values()))
            + SLACK / 4 * wobble * 2.0**23
            for k, (value, wobble) in enumerate(zip(column, table.wobble[entry], strict=True))
        ]
        units[entry] = max(filter(math.isfinite, near), default=SLACK)
    return table, units


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
    """The points with every leaf rounded to its dtype, less those that this moves out of range."""
    kinds = {leaf.name: leaf for leaf in definition.leaves}
    domains = dict(definition.options.domain)
    found: dict[tuple[object, ...], Point] = {}
    for point in points:
        exact = {name: _rounded(kinds[name], value, dtype) for name, value in point.items()}
        if all(
            math.isfinite(value) and (name not in domains or contains(domains[name], value))
            for name, value in exact.items()
        ):
            found.setdefault(tuple(exact.values()), exact)
    return list(found.values())


def _rounded(leaf: Leaf, value: float | int, dtype: str) -> float | int:
    if leaf.kind in NUMBERS:
        return value
    if leaf.kind in (Kind.LEARNABLE, Kind.PER_CHANNEL) and dtype != "float64":
        dtype = "float32"
    # Adding 0 turns -0 into 0: which side of atan2's cut it is on is no matter of the formula.
    return round_to(float(value), dtype) + 0.0


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


def _table(truths: Truths, where: Where, dtype: str, points: Sequence[Point]) -> Table:
    """The truth at the points, and how far it moves with the rounding of a computation."""
    definition, variant = truths.definition, truths.variant
    given, outputs = truths.given, definition.output_names
    first = [truths.first(point) for point in points]
    around = [(truths.beside if where == "kink" else truths.around)(p, dtype) for p in points]
    # At 0, moving by relative steps does not move: the convention decides there too.
    smooth = [
        truths.across(point) if where == "kink" or 0.0 in point.values() else None
        for point in points
    ]
    entries: list[Entry] = [*outputs, *((output, leaf) for output in outputs for leaf in given)]
    columns = {entry: j for j, entry in enumerate(entries)}

    def column(name: Entry, rows: Sequence[Sequence[float] | None]) -> list[float]:
        return [math.nan if row is None else row[columns[name]] for row in rows]

    numbers = {leaf.name for leaf in definition.numbers}
    return Table(
        where=where,
        key=variant.key,
        dtype=dtype,
        numbers={name: value for name, value in points[0].items() if name in numbers},
        points={name: [float(point[name]) for point in points] for name in given},
        truth={name: column(name, first) for name in columns},
        wobble={name: column(name, around) for name in columns},
        smooth={name: column(name, smooth) for name in columns},
        strained=[where != "regular" and truths.strained(point, dtype) for point in points],
        seconds=truths.seconds(points) if where == "regular" and dtype == "float64" else {},
    )


class Truths:
    """The oracle's answers for one variant, each point asked once.

    A row is the outputs, then d output / d leaf (or what the user's own gradient says) for every
    output and given leaf. What is not finite is NaN: not known.
    """

    def __init__(self, definition: Definition, variant: Variant) -> None:
        self.definition = definition
        self.variant = variant
        key = dict(variant.key)
        self.names = [leaf.name for leaf in definition.differentiable]
        self.given = [name for name in self.names if key.get(name, True)]
        self._oracle = oracle(definition, variant)
        self._rows: dict[tuple[object, ...], list[float]] = {}
        self._parts = [
            node for node in nodes(*variant.outputs) if isinstance(node, Expr) and node.args
        ]
        self._values = Program(self._parts)

    def first(self, point: Mapping[str, Any]) -> list[float]:
        key = tuple(point.values())
        if key not in self._rows:
            self._rows[key] = self._row(point)
        return self._rows[key]

    def _row(self, point: Mapping[str, Any], truth: Truth | None = None) -> list[float]:
        truth = truth or self._oracle.evaluate(point)
        row = list(truth.outputs)
        count = len(truth.outputs)
        for j in range(count):
            entries: Sequence[Any] = truth.jacobian[j]
            if self.definition.own_gradient:
                found = self._oracle.vjp(point, [COTANGENT * (i == j) for i in range(count)])
                entries = [None if entry is None else entry / COTANGENT for entry in found]
            row += [
                0.0 if entry is None else entry
                for name, entry in zip(self.names, entries, strict=True)
                if name in self.given
            ]
        return [value if math.isfinite(value) else math.nan for value in map(float, row)]

    def around(self, point: Point, dtype: str) -> list[float]:
        """How far each entry moves when leaves or operations are off by a few roundings.

        This is the conditioning at the point, and of the formula as written: large next to a kink
        or a root of its own subexpressions, where rounding decides, and where it cancels. Without
        bound at a pole, which entries are half as large on all sides of: 1/(1 + x + y) where
        1 + x + y is less than what it loses.
        """
        here = self.first(point)
        step = NUDGE_ROUNDINGS * (2.0**-53 if dtype == "float64" else 2.0**-24)
        moved = [0.0] * len(here)
        beside = [0.0] * len(here)
        for signs in _signs(len(self.given)):
            near: dict[str, Any] = dict(point)
            for name, sign in zip(self.given, signs, strict=True):
                near[name] = point[name] * (1 + sign * step)
            for k, (a, b) in enumerate(zip(here, self.first(near), strict=True)):
                moved[k] = max(moved[k], abs(a - b) if math.isfinite(b) else math.inf)
                beside[k] = max(beside[k], abs(b))
        for k, (a, b) in enumerate(zip(here, beside, strict=True)):
            if abs(a) > 2 * b > 0:
                moved[k] = math.inf
        if not self.definition.own_gradient:
            for seed in range(PATTERNS):
                row = self._row(point, self._oracle.rounded(point, step, seed))
                for k, (a, b) in enumerate(zip(here, row, strict=True)):
                    # Not finite: a limit, which the formula as written does not have.
                    moved[k] = max(moved[k], abs(a - b) if math.isfinite(b) else 0.0)
        return moved

    def beside(self, point: Point, dtype: str) -> list[float]:
        """What `around` says on the sides of a kink, where it is no matter of the convention.

        Of each entry no more than a small part of itself: less than the steps that conventions
        decide.
        """
        here = self.first(point)
        found = [0.0] * len(here)
        for signs in _signs(len(self.given))[:2]:
            near: dict[str, Any] = dict(point)
            for name, sign in zip(self.given, signs, strict=True):
                near[name] = point[name] + sign * BESIDE * (abs(point[name]) or 1.0)
            for k, moved in enumerate(self.around(near, dtype)):
                found[k] = max(found[k], min(moved, BESIDE * abs(here[k])))
        return found

    def across(self, point: Point) -> list[float]:
        """The entries where they are continuous after all, though the formula has a kink there.

        Max(x, 0) + log(1 + exp(-Abs(x))) has one as written and none as a function.
        """
        sides = []
        with precision(60):
            for signs in _signs(len(self.given)):
                near: dict[str, Any] = dict(point)
                for name, sign in zip(self.given, signs, strict=True):
                    near[name] = mp.mpf(point[name]) + sign * mp.mpf(10) ** -25
                sides.append(self._row(near))
        return [
            found[0] if max(found) - min(found) <= 1e-14 * (1 + abs(found[0])) else math.nan
            for found in zip(*sides, strict=True)
        ]

    def strained(self, point: Point, dtype: str) -> bool:
        """Whether the formula as written cannot be computed there in the dtype's arithmetic.

        A subexpression overflows, or underflows, or is a root of 0, whose derivative is infinite.
        A result may be right all the same: it is reported, and not failed, where it is not.
        """
        least, most = RANGE["float64" if dtype == "float64" else "float32"]
        found = self._values({symbol: mp.mpf(point[symbol.name]) for symbol in self._values.slots})
        values = dict(zip(self._parts, found, strict=True))
        for node, value in values.items():
            size = abs(value)
            if not (size == 0 or least <= size <= most):
                return True
            if isinstance(node, Pow) and not node.exp.is_Integer and values.get(node.base) == 0:
                return True
        return False

    def seconds(self, points: Sequence[Point]) -> dict[tuple[str, str, str], list[float]]:
        """d2 output / d leaf d leaf, as double backward must return them."""
        outputs = self.definition.output_names
        found: dict[tuple[str, str, str], list[float]] = {
            (output, a, b): [] for output in outputs for a in self.given for b in self.given
        }
        for point, (j, output), a in itertools.product(points, enumerate(outputs), self.given):
            along = [DIRECTION * (name == a) for name in self.names]
            cotangents = [COTANGENT * (k == j) for k in range(len(outputs))]
            again = self._oracle.second(point, cotangents, along)
            for b, entry in zip(self.names, again.leaves, strict=True):
                if b in self.given:
                    value = float(entry) / (COTANGENT * DIRECTION)
                    found[output, a, b].append(value if math.isfinite(value) else math.nan)
        return found


_SLANTED = (1.0, -0.75, 0.5, -1.25, 0.875, -0.625, 1.125, -0.375) * 8


def _signs(count: int) -> list[list[float]]:
    """Directions in which to move so many leaves: all corners of few, some of many."""
    if count <= 2:
        return [list(signs) for signs in itertools.product((1.0, -1.0), repeat=count)]
    up, down = [1.0] * count, [-1.0] * count
    slanted = list(_SLANTED[:count])
    mixed = [1.0 if k % 2 else -1.0 for k in range(count)]
    return [up, down, slanted, mixed, [-each for each in mixed]]
