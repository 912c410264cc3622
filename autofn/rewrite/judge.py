"""How wrong programs are in simulated arithmetic: their largest error over a sample of points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from mpmath import mp

from autofn import precise
from autofn.program import Program
from autofn.rewrite.formats import EXACT, SINGLE, Format, of_mpfr, rounded
from autofn.rewrite.machine import Column
from autofn.rewrite.simulate import Columns, columns, in_form, in_single
from autofn.rewrite.truth import Point, exact


@dataclass(frozen=True)
class Error:
    """The largest error of a program, over points and outputs.

    bad: how many results are not finite, or off by more than a million ULP, and should not be.
    ulp: the largest other error; at: where the worst of all is, the point of this number.
    whole: whether all points were looked at; else the error is at least this.
    """

    bad: int
    ulp: float
    at: tuple[tuple[str, float], ...] = ()
    number: int | None = None
    whole: bool = True

    def __str__(self) -> str:
        least = "" if self.whole else "at least "
        return least + (f"{self.bad} bad" if self.bad else f"{self.ulp:.1f} ULP")


ORDINARY = (0.01, 100.0)
"""Sizes of numbers at which a result is 0 because of its terms, not of what has vanished."""

LEAST = 5e-324
"""The least float."""

LOST = 2.0**20
"""ULPs beyond which a result has lost its digits."""


@dataclass(frozen=True)
class Sample:
    """Points, and per point the truth of each output; None where it is not judged."""

    points: tuple[Point, ...]
    truths: tuple[tuple[Any, ...], ...]

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


def sampled(
    program: Program, points: Iterable[Point], scaled: frozenset[str], form: Format = SINGLE
) -> Sample:
    """The truths of a program. Near a root, where scaling the inputs turns the sign, is not judged.

    scaled: the names of the inputs that are tensors. form: what the results are to be.
    """
    kept: list[Point] = []
    truths: list[tuple[Any, ...]] = []
    for point in points:
        here = exact(program, point)
        scales = (
            NEAR_ROOT if any(value is not None and mp.isfinite(value) for value in here) else ()
        )
        beside = [
            exact(program, {n: v * s if n in scaled else v for n, v in point.items()})
            for s in scales
        ]
        kept.append(point)
        truths.append(
            tuple(
                _judged(value, [each[k] for each in beside], point, form)
                for k, value in enumerate(here)
            )
        )
    return Sample(tuple(kept), tuple(truths))


def _judged(value: Any, beside: Sequence[Any], point: Point, form: Format) -> Any:
    if value is None or not mp.isfinite(value) or not mp.isfinite(rounded(value, form)):
        return None
    at_infinity = any(abs(v) == float("inf") for v in point.values())
    if not at_infinity and any(v * value < 0 for v in beside):
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
    bad, worst, number = 0, 0.0, None
    order = range(len(sample.points)) if order is None else order
    for numbers in _batches(order) if best else [order]:
        for index, row in zip(numbers, _errors(program, sample, numbers, form, mild), strict=True):
            for off in row:
                if off > LOST:
                    bad += 1
                    number = index if bad == 1 else number
                elif off > worst:
                    worst, number = off, number if bad else index
            if best and (bad > best.bad or (bad == best.bad and worst > HOPELESS * best.ulp)):
                return Error(bad, worst, _at(sample, number), number, whole=False)
    return Error(bad, worst, _at(sample, number), number)


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
    numbers = range(len(sample.points))
    rows = _errors(program, sample, numbers, SINGLE, mild)
    order = sorted(numbers, key=lambda k: -max(rows[k], default=0.0))
    every = [off for row in rows for off in row]
    bad, ulp = sum(off > LOST for off in every), max((o for o in every if o <= LOST), default=0.0)
    number = order[0] if order else None
    return Error(bad, ulp, _at(sample, number), number), [sample.points[k] for k in order[:many]]


def not_finite(program: Program, sample: Sample) -> int:
    """How many results are NaN or infinite, and should not be."""
    rows = _errors(program, sample, range(len(sample.points)), SINGLE, mild=False)
    return sum(off == math.inf for row in rows for off in row)


def _errors(
    program: Program, sample: Sample, numbers: Sequence[int], form: Format, mild: bool
) -> list[list[float]]:
    """Per point of these, those of its outputs that are judged."""
    if not numbers:
        return []
    given = sample.mild if mild else sample.columns
    chosen = [*numbers]
    given = given.at(chosen)
    found = in_form(program, given, form)
    names = [each.name for each in program.inputs if each.name in given.values]
    sizes = np.abs([given.values[name] for name in names])
    ordinary = np.all((ORDINARY[0] < sizes) & (sizes < ORDINARY[1]), axis=0)
    rows: list[list[float]] = [[] for _ in chosen]
    for values, column in zip(found, sample.split, strict=True):
        if values is None:
            continue
        truths = column[:, chosen]
        off = _off(values, truths, form)
        # Terms that cancel to the last digit: what is left of them is none to be counted.
        off[np.all(truths == 0, axis=0) & ordinary & np.isfinite(values)] = 0.0
        for row, each, judged in zip(rows, off.tolist(), ~np.isnan(truths[0]), strict=True):
            if judged:
                row.append(each)
    return rows


def is_within(program: Program, sample: Sample, limits: Sequence[tuple[Format, float]]) -> bool:
    """Whether each output is nowhere off by more than its limit, in units of its format."""
    found = in_single(program, sample.columns)
    return all(
        bool(np.all(_is_beyond(truths[0], form) | (_off(values, truths, form) <= limit)))
        for values, truths, (form, limit) in zip(found, sample.split, limits, strict=True)
        if values is not None
    )


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
