"""Points at which candidates are compared: every magnitude of each tensor, and both infinities."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from mpmath import mp
from sympy import Basic, Expr, Float, Function

from autofn import trees
from autofn.model import Definition
from autofn.rewrite.near_zero import linear
from autofn.rewrite.simulate import Point

ORDINARY = (
    0.05, 0.11, 0.23, 0.37, 0.52, 0.68, 0.83, 0.97, 1.13, 1.31, 1.57, 1.83, 2.1, 2.6, 3.3,
    4.1, 5.2, 6.3, 7.7, 9.2, 11.3, 13.7, 16.9, 19.3, 24.7,
)  # fmt: skip
TAILS = (
    33.3, 47.1, 61.7, 71.3, 83.9, 87.1, 88.3, 89.1, 93.7, 100.3, 103.2, 110.9, 178.7, 431.0, 617.0,
    871.0, 1253.0, 1768.0, 2511.0,
)  # fmt: skip
MAGNITUDES = (
    0.0, 1.5e-45, 2.9e-39, 7.3e-31, 1.1e-19, 3.1e-12, 2.3e-7, 3.7e-5, 4.3e-4, 3.1e-3, 1.7e-2,
    307.3, 5231.7, 1.7e5, 2.3e7, 3.1e9, 5.3e9, 4.7e12, 9.3e12, 2.9e18, 1.3e19, 2.7e19, 3.9e21,
    5.3e25, 2.7e32, 1.8e38, 3.1e38,
)  # fmt: skip

CARRIES = (31.9, 63.3, 63.9)
"""Of one tensor: numbers that are added to these are rounded to coarser ones."""

SEVERAL = 96
"""Points where there are several tensors, of mixed magnitudes."""

UNIFORM = 32
"""Points beside those, drawn evenly from intervals of these widths."""

WIDTHS = (1.0, 4.0, 20.0, 110.0)

WITHIN = 2.0**40
"""Magnitudes of several tensors; 0 beside them."""

CANCELLING = 24
"""Points, of those, at which all tensors are nearly alike, or all but one that is small."""

LABELS = 24
"""Points beside those, at which one tensor is 0, 1 or -1."""

FAR = (-1.2e4, -2e9, 1.2e4, 2e9)
OVERFLOWING = 48
"""Points beside those, at which exp of one tensor is subnormal or about to overflow.

The others are so small that products with it are finite, or alike, so that differences vanish.
"""


def of(definition: Definition, tensors: Sequence[str]) -> list[Point]:
    """Points within the formula's domain, at the default values of its parameters, or at 1."""
    given = {name: _single(value) for name, value in defaults(definition).items()}
    return within(points(tensors, given), domains_of(definition, tensors))


def domains_of(definition: Definition, tensors: Sequence[str]) -> Mapping[str, tuple[float, float]]:
    return {
        name: (float(interval.start), float(interval.end))
        for name, interval in definition.options.domain
        if name in tensors
    }


def defaults(definition: Definition) -> dict[str, float]:
    """The default values of numbers and parameters that have one."""
    return {
        leaf.name: float(leaf.parameter.default)
        for leaf in definition.leaves
        if isinstance(leaf.parameter.default, int | float)
    }


def points(tensors: Sequence[str], given: Mapping[str, float], seed: int = 0) -> list[Point]:
    """Values of the tensors, exact in float32, and of what else is given."""
    one = [_single(v) for v in (*ORDINARY, *TAILS, *MAGNITUDES, math.inf)]
    if len(tensors) == 1:
        both = [sign * v for v in one for sign in (1.0, -1.0) if v or sign > 0]
        return [{tensors[0]: value, **given} for value in both]
    rng = Random(seed)
    pool = [v for v in one if v <= WITHIN and (v == 0 or v >= 1 / WITHIN)]
    found: list[Point] = []
    for k in range(SEVERAL):
        close = rng.choice(pool)
        values = {}
        for name in tensors:
            size = rng.choice(pool if k % 2 else [*map(_single, ORDINARY)])
            if k < CANCELLING:
                size = _single(close * (1 + rng.uniform(-1, 1) * 2.0 ** -rng.randrange(1, 12)))
                if k % 2 and len(tensors) > 2 and name == tensors[k // 2 % len(tensors)]:
                    size = _single(size * 2.0 ** -rng.randrange(8, 20))
            values[name] = rng.choice((1.0, -1.0)) * size
        found.append({**values, **given})
    for k in range(UNIFORM):
        width = WIDTHS[k % len(WIDTHS)]
        found.append({**{name: _single(rng.uniform(-width, width)) for name in tensors}, **given})
    for k in range(LABELS):
        values = {name: _signed(rng, rng.choice(pool)) for name in tensors}
        values[tensors[k % len(tensors)]] = (0.0, 1.0, -1.0)[k // len(tensors) % 3]
        found.append({**values, **given})
    for k in range(OVERFLOWING):
        alike = _signed(rng, rng.uniform(0, 2))
        values = {
            name: alike if k % 5 < 2 else _signed(rng, 10 ** -rng.uniform(4, 30))
            for name in tensors
        }
        size = rng.uniform(85, 103) if k % 2 else 10 ** rng.uniform(2, (3.4, 12)[k // 2 % 2])
        values[tensors[k % len(tensors)]] = _signed(rng, size)
        found.append({**values, **given})
    for name in tensors:
        # Its exponential overflows or vanishes, the differences of the others are 0.
        for far in FAR:
            found.append({**dict.fromkeys(tensors, 1.0), name: far, **given})
    return found


ROOTS = {False: 10, True: 4}
"""So many roots at most have points beside them: of several tensors, and of one."""

BEGINNINGS = 24
"""Points of several tensors, from which roots are looked for."""

SCALES = tuple(2.0**k for k in range(-4, 5))
BISECTIONS = 12
AWAY = {
    False: (1e-3, 1e-2, 4e-2, 0.12, 0.25),
    True: (*(0.001 + 0.003 * k for k in range(16)), 0.12, 0.18, 0.25, 0.35),
}
BESIDE = {
    one: tuple(side * (1 + sign * a) for side, sign in ((8 / 7, 1), (8 / 9, -1)) for a in away)
    for one, away in AWAY.items()
}
"""Multiples of a root: as near to it as results are judged, and farther."""


def beside_roots(
    all_points: Sequence[Point], tensors: Sequence[str], values: Callable[[Point], Sequence[Any]]
) -> list[Point]:
    """Points just outside of what counts as near a root, where the most cancels.

    values: the results at a point. Roots are looked for along the direction of each point.
    """
    one = len(tensors) == 1
    scales = ORDINARY if one else SCALES
    directions = (
        [{**all_points[0], tensors[0]: sign} for sign in (1.0, -1.0)]
        if one and all_points
        else all_points[SEVERAL : SEVERAL + BEGINNINGS]
    )
    found: list[Point] = []
    for point in directions:

        def signs(scale: float, point: Point = point) -> list[int]:
            return [_sign(value) for value in values(_scaled(point, tensors, scale))]

        for low, high in _changes([(scale, signs(scale)) for scale in scales]):
            before = signs(low)
            for _ in range(BISECTIONS):
                middle = (low + high) / 2
                low, high = (middle, high) if signs(middle) == before else (low, middle)
            found += [_scaled(point, tensors, low * beside) for beside in BESIDE[one]]
            if len(found) >= ROOTS[one] * len(BESIDE[one]):
                return found
    return found


def with_carries(all_points: Sequence[Point], tensors: Sequence[str]) -> list[Point]:
    """The points of `CARRIES`, where there is one tensor."""
    if len(tensors) != 1 or not all_points:
        return []
    sizes = [sign * _single(v) for v in CARRIES for sign in (1.0, -1.0)]
    return [{**all_points[0], tensors[0]: size} for size in sizes]


ARGUMENTS = (83.9, 87.1, 88.3, 89.1, 93.7, 100.3, 103.2, 110.9, 178.7, 431.0)
BESIDE_ZERO = (1e-5, 3e-4, 4e-3, 0.06)
"""Sizes of the arguments of functions, such as (x - a)/b, and relative distances of x from where
one is 0, at which a formula of one tensor is looked at."""

MOST = 3
"""How many such arguments."""


def of_arguments(
    all_points: Sequence[Point], tensors: Sequence[str], exprs: Sequence[Expr]
) -> list[Point]:
    """Points at which linear functions of the one tensor that functions are of have those sizes.

    exprs: the formula, in symbols that the points name.
    """
    if len(tensors) != 1 or not all_points:
        return []
    (x,), beside = tensors, all_points[0]
    lines: list[tuple[float, float]] = []
    for expr in exprs:
        for node in trees.nodes(expr):
            for u in node.args if isinstance(node, Function) else ():
                line = _line(u, x, beside)
                if line is not None and line not in lines:
                    lines.append(line)
    found: list[Point] = []
    for scale, shift in lines[:MOST]:
        sizes = [sign * size for size in ARGUMENTS for sign in (1, -1)]
        values = [(size - shift) / scale for size in sizes]
        if shift:
            root = -shift / scale
            values += [root, *(root * (1 + sign * d) for d in BESIDE_ZERO for sign in (1, -1))]
        found += [{**beside, x: _single(v)} for v in values if abs(v) < LARGEST / 2]
    return found


def _line(u: Basic, x: str, beside: Point) -> tuple[float, float] | None:
    """The slope and the start of a linear function of x other than x and -x."""
    symbols = u.free_symbols
    symbol = next((s for s in symbols if s.name == x), None)
    line = linear(u, symbol) if isinstance(u, Expr) and symbol is not None else None
    if line is None:
        return None
    given = {s: Float(beside.get(s.name, 1.0)) for s in symbols}
    numbers = [each.xreplace(given).evalf() for each in line]
    if not all(each.is_Number and each.is_finite for each in numbers):
        return None
    scale, shift = map(float, numbers)
    return None if scale == 0 or (abs(scale) == 1 and shift == 0) else (scale, shift)


LARGEST = 2.0**128
"""What no number of float32 reaches."""

FROM = slice(SEVERAL + 2, SEVERAL + UNIFORM, 5)
"""Points of several tensors, from which one is made larger."""

STEP = 32.0
"""Times as large in each step, up to the one that overflows."""


def below_overflow(
    all_points: Sequence[Point], tensors: Sequence[str], values: Callable[[Point], Sequence[Any]]
) -> list[Point]:
    """Points at which a result is just finite, so that its parts may not be.

    values: the results at a point. Each tensor in turn is made larger until a result overflows.
    """
    one = len(tensors) == 1
    starts = (
        [{**all_points[0], tensors[0]: sign} for sign in (1.0, -1.0)] if one else all_points[FROM]
    )
    widest = LARGEST / STEP if one else WITHIN
    found: list[Point] = []
    for point, name in itertools.product(starts, tensors):

        def is_finite(scale: float, point: Point = point, name: str = name) -> bool:
            return all(
                value is None or (mp.isfinite(value) and abs(value) < LARGEST)
                for value in values(_scaled(point, [name], scale))
            )

        low, high = 1.0, STEP
        while is_finite(high) and abs(point[name]) * high < widest:
            low, high = high, high * STEP
        if is_finite(high) or not is_finite(low):
            continue
        for _ in range(BISECTIONS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if is_finite(middle) else (low, middle)
        found.append(_scaled(point, [name], low))
    return found


def _sign(value: Any) -> int:
    """0 where there is none."""
    return 0 if value is None or not mp.isfinite(value) else int(mp.sign(value))


def _changes(column: Sequence[tuple[float, list[int]]]) -> Iterator[tuple[float, float]]:
    """The intervals at whose ends some result has opposite signs."""
    for (low, before), (high, after) in itertools.pairwise(column):
        if any(a * b < 0 for a, b in zip(before, after, strict=True)):
            yield low, high


def _scaled(point: Point, tensors: Sequence[str], scale: float) -> Point:
    return {name: _single(v * scale) if name in tensors else v for name, v in point.items()}


def _signed(rng: Random, size: float) -> float:
    return rng.choice((1.0, -1.0)) * _single(size)


def within(all_points: Sequence[Point], domains: Mapping[str, tuple[float, float]]) -> list[Point]:
    """The points inside the domains, ends excluded; moved into them where too few are."""
    found = inside(all_points, domains)
    if len(found) >= len(all_points) // 4:
        return found
    moved: list[Point] = []
    for point, k in zip(all_points, itertools.count()):
        new = dict(point)
        for name, (low, high) in domains.items():
            if not low < point[name] < high:
                new[name] = _single(_moved(low, high, abs(point[name]), k))
        moved.append(new)
    return inside(moved, domains)


def inside(all_points: Sequence[Point], domains: Mapping[str, tuple[float, float]]) -> list[Point]:
    return [point for point in all_points if _contains(domains, point)]


def _contains(domains: Mapping[str, tuple[float, float]], point: Point) -> bool:
    return all(low < point[name] < high for name, (low, high) in domains.items())


def _moved(low: float, high: float, size: float, k: int) -> float:
    """A point of the interval: as far from a finite end as the size says, modulo its width."""
    if math.isfinite(low) and math.isfinite(high):
        part = (size % 1.0) if size % 1.0 > 0 else (k % 31 + 0.5) / 32
        return low + (high - low) * part
    if math.isfinite(low):
        return low + size
    return high - size


def _single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])
