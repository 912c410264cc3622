"""How wrong programs are in simulated arithmetic: their largest error over a sample of points."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from mpmath import mp

from autofn import precise
from autofn.program import Program
from autofn.rewrite.formats import EXACT, SINGLE, Format, of_mpfr, rounded
from autofn.rewrite.machine import Column
from autofn.rewrite.simulate import Columns, columns, in_form, in_single
from autofn.rewrite.truth import Point, exact_at


@dataclass(frozen=True)
class Error:
    """The largest error of a program, over points and outputs.

    bad: how many results are not finite, or off by more than a million ULP, and should not be.
    ulp: the largest other error; at: where the worst of all is, the point of this number.
    many: how many results are off by more than `MUCH`, those near roots among them.
    whole: whether all points were looked at; else the error is at least this.
    """

    bad: int
    ulp: float
    at: tuple[tuple[str, float], ...] = ()
    number: int | None = None
    whole: bool = True
    many: int = 0

    def __str__(self) -> str:
        least = "" if self.whole else "at least "
        return least + (f"{self.bad} bad" if self.bad else f"{self.ulp:.1f} ULP")


ORDINARY = (0.01, 100.0)
"""Sizes of numbers at which a result is 0 because of its terms, not of what has vanished."""

LEAST = 5e-324
"""The least float."""

LOST = 2.0**20
"""ULPs beyond which a result has lost its digits."""

MUCH = 64.0
"""ULPs that no bar is above."""


@dataclass(frozen=True)
class Sample:
    """Points, and per point the truth of each output; None where it is not judged.

    Nor is it near a root, where scaling the tensors turns its sign. program: whose the truths are,
    and scaled: the names of its tensors. Whether a root is near is only asked where it matters.
    """

    points: tuple[Point, ...]
    truths: tuple[tuple[Any, ...], ...]
    program: Program | None = None
    scaled: frozenset[str] = frozenset()
    _roots: dict[int, tuple[bool, ...]] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )

    def is_near_root(self, number: int, output: int) -> bool:
        """Whether an output changes its sign when the tensors of a point, by number, are scaled."""
        if self.program is None:
            return False
        if number not in self._roots:
            point = self.points[number]
            if any(math.isinf(value) for value in point.values()):
                near = [False] * len(self.truths[number])
            else:
                beside = self._beside(point, [self.scaled])
                near = [
                    value is not None and any(each[k] * value < 0 for each in beside)
                    for k, value in enumerate(self.truths[number])
                ]
                near = [near[k] or self._is_root(number, k) for k in range(len(near))]
            self._roots[number] = tuple(near)
        return self._roots[number][output]

    def _is_root(self, number: int, output: int) -> bool:
        """Whether an output is 0, to all digits, and changes its sign when one tensor is scaled.

        A function of x/y has its roots so, and no digits there in any arithmetic.
        """
        value = self.truths[number][output]
        if value is None or mp.mag(value) > -NOTHING:
            return False
        beside = self._beside(self.points[number], [[name] for name in sorted(self.scaled)])
        return any(
            each[output] * other[output] < 0 and mp.mag(value) < mp.mag(each[output]) - NOTHING
            for each, other in itertools.pairwise(beside)
        )

    def _beside(self, point: Point, scaled: Sequence[Collection[str]]) -> list[list[Any]]:
        """The truths where these tensors are a little smaller and larger, one lot after another."""
        assert self.program is not None
        return exact_at(
            self.program,
            [
                {n: v * s if n in names else v for n, v in point.items()}
                for names in scaled
                for s in NEAR_ROOT
            ],
        )

    @cached_property
    def lost(self) -> tuple[Columns, Column]:
        """Points with one tensor that is NaN, and which outputs are NaN there."""
        if self.program is None or not self.points:
            return columns((), ()), np.zeros((0, 0), bool)
        names = sorted(self.scaled & {each.name for each in self.program.inputs})
        points = [{**self.points[0], name: math.nan} for name in names]
        found = exact_at(self.program, points)
        are_nan = [[value is not None and bool(mp.isnan(value)) for value in row] for row in found]
        return columns(points, [None] * len(points)), np.array(are_nan)

    @cached_property
    def columns(self) -> Columns:
        """The points, the errors of functions turned by their numbers."""
        return columns(self.points, range(len(self.points)))

    @cached_property
    def mild(self) -> Columns:
        """The points, where functions are only rounded."""
        return columns(self.points, [None] * len(self.points))

    @cached_property
    def split(self) -> tuple[Column, ...]:
        """Per output the truths, each in two floats, NaN where there is none."""
        return tuple(
            np.array([_split(truth) for truth in column]).T
            for column in zip(*self.truths, strict=True)
        )


def _split(truth: Any) -> tuple[float, float]:
    if truth is None:
        return math.nan, math.nan
    value = of_mpfr(truth)
    first = float(value)
    with precise.in_bits(EXACT):
        rest = float(value - first)
    # What no float is as small as is told from 0.
    return first, rest or math.copysign(LEAST, value) if value and not first else rest


NEAR_ROOT = (7 / 8, 9 / 8)

NOTHING = 200
"""So many bits less than beside it is nothing: what truths are computed with has rounded."""


def sampled(
    program: Program, points: Iterable[Point], scaled: frozenset[str], form: Format = SINGLE
) -> Sample:
    """The truths of a program. What is not finite is not judged.

    scaled: the names of the inputs that are tensors. form: what the results are to be.
    """
    kept = tuple(points)
    truths = tuple(tuple(_judged(value, form) for value in row) for row in exact_at(program, kept))
    return Sample(kept, truths, program, scaled)


def _judged(value: Any, form: Format) -> Any:
    if value is None or not mp.isfinite(value) or not mp.isfinite(rounded(value, form)):
        return None
    return value


HOPELESS = 2.0
"""How many times the error of the best a candidate's must be to be looked at no further."""

BATCHES = (8, 56)
"""So many points are looked at before it is asked whether there is hope."""


def error(
    program: Program,
    sample: Sample,
    order: Sequence[int] | None = None,
    best: Error | None = None,
    form: Format = SINGLE,
    *,
    mild: bool = False,
) -> Error:
    """The error of a program in simulated float32 against the truths of the sample.

    order: of the points, by number. best: where the error is clearly worse, the rest is left out.
    form: DOUBLE for what float64 makes of it. mild: functions are only rounded.
    """
    bad, many, worst, number = 0, 0, 0.0, None
    order = range(len(sample.points)) if order is None else order
    for numbers in _batches(order) if best else [order]:
        off = _off_by(program, sample, numbers, form, mild)
        many += int((off > MUCH).sum())
        for index, row in zip(numbers, off.T.tolist(), strict=True):
            for output, each in enumerate(row):
                if each <= worst or sample.is_near_root(index, output):
                    continue
                if each > LOST:
                    bad += 1
                    number = index if bad == 1 else number
                else:
                    worst, number = each, number if bad else index
            if best and (bad > best.bad or (bad == best.bad and worst > HOPELESS * best.ulp)):
                return Error(bad, worst, _at(sample, number), number, whole=False)
    return Error(bad, worst, _at(sample, number), number, many=many)


def _batches(order: Sequence[int]) -> Iterator[Sequence[int]]:
    start = 0
    for size in (*BATCHES, len(order)):
        if batch := order[start : start + size]:
            yield batch
        start += size


def worst(
    program: Program, sample: Sample, many: int, *, mild: bool = False
) -> tuple[Error, list[Point]]:
    """The error of a program, and so many points where it is largest."""
    off = _off_by(program, sample, range(len(sample.points)), SINGLE, mild)
    _without_roots(off, sample, off > LOST)
    roots = True
    while roots:
        order = np.argsort(-off.max(axis=0, initial=0.0), kind="stable").tolist()
        ordinary = np.where(off > LOST, 0.0, off)
        largest = ordinary == (ulp := float(ordinary.max(initial=0.0)))
        largest[:, order[:many]] = True
        roots = _without_roots(off, sample, largest)
    number = order[0] if order else None
    found = Error(int((off > LOST).sum()), ulp, _at(sample, number), number)
    return found, [sample.points[k] for k in order[:many]]


def _without_roots(off: Column, sample: Sample, where: Column) -> bool:
    """Whether there were results near roots among these, which are no longer off."""
    found = [
        (k, n) for k, n in np.argwhere(where & (off > 0)).tolist() if sample.is_near_root(n, k)
    ]
    for each in found:
        off[each] = 0.0
    return bool(found)


def not_finite(program: Program, sample: Sample) -> int:
    """How many results are NaN or infinite, and should not be."""
    off = _off_by(program, sample, range(len(sample.points)), SINGLE, mild=False)
    infinite = np.argwhere(off == math.inf).tolist()
    return sum(not sample.is_near_root(number, output) for output, number in infinite)


def hides_nan(program: Program, sample: Sample, form: Format = SINGLE) -> bool:
    """Whether a tensor that is NaN does not show in a result that should be."""
    given, are_nan = sample.lost
    if not are_nan.any():
        return False
    found = in_form(program, given, form)
    return any(
        values is not None and bool(np.any(are_nan[:, k] & ~np.isnan(values)))
        for k, values in enumerate(found)
    )


def _off_by(
    program: Program, sample: Sample, numbers: Sequence[int], form: Format, mild: bool
) -> Column:
    """How far each output is off at each of these points; 0 where it is not judged."""
    chosen = [*numbers]
    off = np.zeros((len(program.outputs), len(chosen)))
    if not chosen:
        return off
    given = (sample.mild if mild else sample.columns).at(chosen)
    found = in_form(program, given, form)
    names = [each.name for each in program.inputs if each.name in given.values]
    sizes = np.abs([given.values[name] for name in names])
    ordinary = np.all((ORDINARY[0] < sizes) & (sizes < ORDINARY[1]), axis=0)
    for k, (values, column) in enumerate(zip(found, sample.split, strict=True)):
        if values is None:
            continue
        truths = column[:, chosen]
        off[k] = np.where(np.isnan(truths[0]), 0.0, _off(values, truths, form))
        # Terms that cancel to the last digit: what is left of them is none to be counted.
        off[k, np.all(truths == 0, axis=0) & ordinary & np.isfinite(values)] = 0.0
    return off


def is_within(program: Program, sample: Sample, limits: Sequence[tuple[Format, float]]) -> bool:
    """Whether each output is nowhere off by more than its limit, in units of its format."""
    found = in_single(program, sample.columns)
    for k, (values, truths, (form, limit)) in enumerate(
        zip(found, sample.split, limits, strict=True)
    ):
        if values is None:
            continue
        beyond = ~_is_beyond(truths[0], form) & (_off(values, truths, form) > limit)
        if not all(sample.is_near_root(number, k) for number in np.flatnonzero(beyond).tolist()):
            return False
    return True


def _is_beyond(values: Column, form: Format) -> Column:
    """What the format rounds to infinity; and NaN."""
    return ~(np.abs(values) < 2.0**form.top * (1 - 2.0 ** -(form.bits + 1)))


def _off(values: Column, truths: Column, form: Format) -> Column:
    """How far from the truths, in units of the last place of the format."""
    first, rest = truths
    with np.errstate(all="ignore"):
        parts, sizes = np.frexp(first)
        below = (np.abs(parts) == 0.5) & (first * rest < 0)  # not quite a power of two
        units = np.maximum(np.where(first == 0, form.least, sizes - below - form.bits), form.least)
        off = np.ldexp(np.abs((values - first) - rest), -units)
    return np.where(np.isfinite(values), off, np.inf)


def _at(sample: Sample, number: int | None) -> tuple[tuple[str, float], ...]:
    return () if number is None else tuple(sorted(sample.points[number].items()))


def is_extreme(value: Any) -> bool:
    """Whether a result's parts may be subnormal, or have overflowed."""
    return value is not None and value != 0 and abs(mp.mag(value)) >= 100


def is_in_doubt(value: Any) -> bool:
    """Whether a result of the first try is computed again in double: `doubt` of `ops`."""
    return bool(value != 0 and (not mp.isfinite(value) or mp.mag(value) <= -100))
