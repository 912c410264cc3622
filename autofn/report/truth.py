"""Numbers of float32 over the whole line, what is true there, and errors in ULP of float32."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mpmath import mp

from autofn.certificate.sample import truth_at
from autofn.model import Definition, Leaf, Variant
from autofn.report.curves import axis_of, start
from autofn.verify.oracle import contains, precision
from autofn.verify.points import FLOAT32_MAX, float32

COUNT = 480
"""Numbers of both signs together."""

Entry = tuple[str, ...]


@dataclass(frozen=True)
class Column:
    """The truth of an output, (output,), or of its gradient, (output, leaf), at every point.

    near: the truth changes its sign close by, so that no error relative to it can be small.
    """

    values: tuple[Any, ...]
    near: tuple[bool, ...]


@dataclass(frozen=True)
class Places:
    """Points along the axis, in order; all else stands at its start."""

    axis: Leaf
    points: tuple[dict[str, float | int], ...]


@dataclass(frozen=True)
class Truth(Places):
    """What is true at the points."""

    columns: dict[Entry, Column]


_SCALE = ((-149.0, 0.0), (-20.0, 0.2), (8.0, 0.8), (128.0, 1.0))
"""Binary logarithms and their places on the axis: the numbers that occur most have most room."""


def place(number: float) -> float:
    """Where a number lies on the number line, from -1 to 1."""
    if number == 0:
        return 0.0
    return math.copysign(_between(_SCALE, math.log2(abs(number))), number)


def _between(scale: Sequence[tuple[float, float]], value: float) -> float:
    pairs = list(itertools.pairwise(scale))
    (a, at_a), (b, at_b) = next((pair for pair in pairs if value <= pair[1][0]), pairs[-1])
    return at_a + (value - a) / (b - a) * (at_b - at_a)


def places(definition: Definition, variant: Variant) -> Places:
    """The numbers of the line that a report looks at."""
    axis = axis_of(definition, variant)
    fixed = {
        name: float32(value) if isinstance(value, float) else value
        for name, value in start(definition, variant).items()
    }
    points = tuple({**fixed, axis.name: x} for x in _numbers(definition, axis))
    return Places(axis, points)


def truth(definition: Definition, variant: Variant, there: Places) -> Truth:
    """By mpmath, from the formula as written."""
    axis = there.axis
    found = [truth_at(definition, variant, point) for point in there.points]
    entries: list[Entry] = [(name,) for name in definition.output_names]
    entries += [(name, axis.name) for name in definition.output_names]
    columns = {entry: _column([each.get(entry, mp.zero) for each in found]) for entry in entries}
    return Truth(axis, there.points, columns)


def _numbers(definition: Definition, axis: Leaf) -> list[float]:
    """Evenly by their places; of every size that there is, for a formula of one tensor."""
    least, most = (0.0, 1.0) if len(definition.tensors) == 1 else (place(2.0**-40), place(2.0**40))
    half = COUNT // 2
    back = [(at, power) for power, at in _SCALE]
    places = [least + (most - least) * (k + 0.5) / half for k in range(half)]
    sizes = [float32(2.0 ** _between(back, each)) for each in places]
    domain = dict(definition.options.domain).get(axis.name)
    numbers = [-size for size in reversed(sizes)] + sizes
    return [x for x in numbers if domain is None or contains(domain, x)]


def _column(values: Sequence[Any]) -> Column:
    signs = [0 if not mp.isfinite(v) else int(mp.sign(v)) for v in values]
    near = [
        len({sign for sign in signs[max(0, k - 1) : k + 2] if sign}) > 1 for k in range(len(signs))
    ]
    return Column(tuple(values), tuple(near))


def error(got: float | None, true: Any) -> float:
    """In units in the last place of the truth; infinite where only the truth is finite.

    NaN: the truth is not a number that float32 has.
    """
    if not mp.isfinite(true) or abs(true) > FLOAT32_MAX:
        return math.nan
    if got is None:
        got = 0.0
    if not math.isfinite(got):
        # What rounds to the largest number may round past it.
        return 0.0 if abs(true) > FLOAT32_MAX * (1 - 2.0**-20) and got == got else math.inf
    with precision(40):
        exponent = mp.frexp(true)[1] if true else -1000
        return float(abs(mp.mpf(got) - true) / mp.mpf(2) ** max(exponent - 24, -149))
