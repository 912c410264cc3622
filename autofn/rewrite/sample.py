"""Points at which candidates are compared: every magnitude of each tensor, and both infinities."""

from __future__ import annotations

import functools
import itertools
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from mpmath import mp
from sympy import Add, Basic, Expr, Function, Pow

from autofn import functions as heads
from autofn import trees
from autofn.model import Definition
from autofn.rewrite.truth import Point

Argument = Callable[[Point], Any]
"""The value of an expression at a point."""

HasSize = Callable[[Any], bool]
"""Whether a result is of a size."""

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

BELOW_BORDERS = (0.4997, 0.9993, 1.4993, 1.9993)
"""Of one tensor: where functions of operations (exp(x) - 1 - x, say) leave their series near 0."""

POWERS = tuple(10.0 ** (sign * 42 / n) for n in range(2, 7) for sign in (1, -1))
"""Of one tensor: whose n-th powers, or the reciprocals of those, are subnormal with few digits."""

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

FAR = tuple(sign * size for size in (17.3, 61.7, 100.3, 1.2e4, 2e9) for sign in (-1.0, 1.0))
FARTHER = 3.7e11
"""One of several tensors, in second derivatives: its square has a square that overflows."""

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
        one += map(_single, POWERS)
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
            found.append({**dict.fromkeys(tensors, 1.0), name: _single(far), **given})
    return found


def one_at_a_time(names: Sequence[str]) -> list[Mapping[str, float]]:
    """Each of several names at 1, the others at 0."""
    if len(names) == 1:
        return []
    return [{name: float(name == one) for name in names} for one in names]


def half(all_points: Sequence[Point]) -> list[Point]:
    """Every second pair: points of ordinary and of all magnitudes take turns."""
    return [point for k, point in enumerate(all_points) if k % 4 < 2]


def farther(all_points: Sequence[Point], tensors: Sequence[str]) -> list[Point]:
    """Points where one tensor is huge."""
    ones = dict.fromkeys(tensors, 1.0)
    return [{**all_points[0], **ones, name: _single(FARTHER)} for name in tensors]


BEYOND_SQUARES = tuple(1.37 * 2.0 ** (sign * n) for sign in (1, -1) for n in (66, 97))
"""Whose squares overflow, or vanish, in single precision."""

BEYOND_FOURTHS = tuple(1.37 * 2.0 ** (sign * n) for sign in (1, -1) for n in (34, 37, 39))
"""Whose fourth powers do."""


def beyond_powers(
    all_points: Sequence[Point], tensors: Sequence[str], sizes: Sequence[float]
) -> list[Point]:
    """Points of several tensors where one is so huge that its powers overflow.

    Or where all are so tiny that those vanish.
    """
    if len(tensors) == 1:
        return []
    starts = [{**all_points[0], **dict.fromkeys(tensors, 1.0)}, *all_points[FROM]]
    found: list[Point] = []
    for start, name, size, sign in itertools.product(starts, tensors, sizes, (1, -1)):
        others = {} if size > 1 else {each: _single(start[each] * size) for each in tensors}
        found.append({**start, **others, name: _single(sign * size)})
    return found


def in_turn(all_points: Sequence[Point], settings: Sequence[Mapping[str, float]]) -> list[Point]:
    """The points with one setting each: pairs take turns, as every second point may be taken."""
    n = len(settings)
    return [{**point, **settings[k // 2 % n]} for k, point in enumerate(all_points) if n]


CLOSER = 44
"""Points of a second look: of one tensor on either side."""

CLOSEST, FARTHEST = 0.004, 40.0
AROUND = 24
"""Points beside each bad one, within an eighth of it."""


def closer(all_points: Sequence[Point], tensors: Sequence[str]) -> list[Point]:
    """More ordinary points."""
    if len(tensors) == 1:
        beside, (x,) = all_points[0], tensors
        ratio = FARTHEST / CLOSEST
        sizes = [_single(CLOSEST * ratio ** ((k + 0.37) / CLOSER)) for k in range(CLOSER)]
        return [{**beside, x: sign * size} for size in sizes for sign in (1.0, -1.0)]
    given = {name: v for name, v in all_points[0].items() if name not in tensors}
    return points(tensors, given, seed=1)[: SEVERAL + UNIFORM]


BINADES = tuple(1.4375 * 2.0**k for k in range(-132, 128, 5))
"""Sizes of numbers as 16-bit types are looked at: all magnitudes of theirs are."""


BESIDE_BORDERS = (0.002, 0.006, 0.012, 0.02, 0.03, 0.045, 0.07)
"""How far from a border between regimes, relatively, regimes are looked at."""

BORDERS = 4
"""Of so many borders."""


def beside_borders(
    all_points: Sequence[Point], tensors: Sequence[str], borders: Sequence[Argument]
) -> list[Point]:
    """Points on both sides of where one of these is 0, where there is one tensor."""
    if len(tensors) != 1 or not all_points:
        return []
    (x,), beside, found = tensors, all_points[0], set()
    grid = sorted(sign * size for size in ORDINARY for sign in (1.0, -1.0))
    for border in borders:

        def value(at: float, border: Argument = border) -> Any:
            return border({**beside, x: at})

        for (low, below), (high, above) in itertools.pairwise([(at, value(at)) for at in grid]):
            if mp.isfinite(below) and mp.isfinite(above) and below * above < 0:
                found.add(_crossing(value, low, high, 0.0, 2 * BISECTIONS))
    near = sorted(found, key=abs)[:BORDERS]
    steps = [1 + sign * step for step in BESIDE_BORDERS for sign in (1, -1)]
    return [{**beside, x: _single(at * step)} for at in near for step in steps]


def around(given: Sequence[Point], tensors: Sequence[str]) -> list[Point]:
    """Points beside each of these."""
    rng = Random(2)
    return [
        {**point, **{name: _single(point[name] * (1 + rng.uniform(-1, 1) / 8)) for name in tensors}}
        for point in given
        for _ in range(AROUND)
        if all(abs(point[name]) < LARGEST / 2 for name in tensors)
    ]


ROOTS, ROOTS_OF_SEVERAL, ROOTS_OF_EACH = 4, 10, 4
"""So many roots at most have points beside them: of one tensor, and of several, that are scaled
together or one at a time."""

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


SCALED = (1 / 4, 7 / 8, 9 / 8, 4)
"""Multiples of all tensors, between which a function of x/y does not change its sign."""

CLOSE = tuple(1 + sign * step for step in (1e-3, 1e-2, 5e-2) for sign in (1, -1))
"""Multiples of one tensor beside a root of such a function."""


def beside_roots(
    all_points: Sequence[Point], tensors: Sequence[str], values: Callable[[Point], Sequence[Any]]
) -> list[Point]:
    """Points just outside of what counts as near a root, where the most cancels.

    values: the results at a point. Roots are looked for along the direction of each point, and in
    that of one tensor after the other: a function of x/y has none in the direction of both.
    """
    if len(tensors) == 1:
        starts: list[Point]
        starts = [{**point, tensors[0]: sign} for point in all_points[:1] for sign in (1.0, -1.0)]
        return _beside(_roots(starts, [tensors], values, ORDINARY, ROOTS), BESIDE[True])
    starts = list(all_points[SEVERAL : SEVERAL + BEGINNINGS])
    alone = [[name] for name in tensors]
    found = _beside(_roots(starts, [tensors], values, SCALES, ROOTS_OF_SEVERAL), BESIDE[False])
    for root in _roots(starts, alone, values, SCALES, ROOTS_OF_EACH):
        (at,) = _beside([root], [1])
        signs = {tuple(map(_sign, values(_scaled(at, tensors, scale)))) for scale in SCALED}
        if len(signs) == 1:  # Nothing is near it, so that results are judged beside it.
            found += _beside([root], CLOSE)
    return found


_Root = tuple[Point, Sequence[str], float]
"""A point, the tensors that are scaled there, and the factor at which a result changes its sign."""


def _roots(
    starts: Sequence[Point],
    moved: Sequence[Sequence[str]],
    values: Callable[[Point], Sequence[Any]],
    scales: Sequence[float],
    most: int,
) -> list[_Root]:
    """Roots between these scales of each start; `moved`: which tensors are scaled, in turn."""
    found: list[_Root] = []
    for start, tensors in zip(starts, itertools.cycle(moved), strict=False):

        def signs(
            scale: float, start: Point = start, tensors: Sequence[str] = tensors
        ) -> list[int]:
            return [_sign(value) for value in values(_scaled(start, tensors, scale))]

        for low, high in _changes([(scale, signs(scale)) for scale in scales]):
            before = signs(low)
            for _ in range(BISECTIONS):
                middle = (low + high) / 2
                low, high = (middle, high) if signs(middle) == before else (low, middle)
            found.append((start, tensors, low))
            if len(found) >= most:
                return found
    return found


def _beside(roots: Sequence[_Root], multiples: Sequence[float]) -> list[Point]:
    return [
        _scaled(start, tensors, at * each) for start, tensors, at in roots for each in multiples
    ]


def at_sizes(
    all_points: Sequence[Point], tensors: Sequence[str], sizes: Sequence[float]
) -> list[Point]:
    """Points of these sizes, where there is one tensor."""
    if len(tensors) != 1 or not all_points:
        return []
    both = [sign * _single(v) for v in sizes for sign in (1.0, -1.0)]
    return [{**all_points[0], tensors[0]: size} for size in both]


RUNGS = (*(1.12**k for k in range(42)), *(0.9953 * 2.0**k for k in range(1, 7)))
"""From 1 to 104: where powers of exponentials overflow, one after the other. And just below powers
of two, where adding a round number costs a digit."""


def on_a_ladder(all_points: Sequence[Point], tensors: Sequence[str]) -> list[Point]:
    """Points where one tensor takes ever larger values."""
    starts = (all_points[STARTS] or all_points)[:2]
    return [
        {**start, name: _single(sign * rung)}
        for start in starts
        for name in tensors
        for rung in RUNGS
        for sign in (1.0, -1.0)
    ]


ARGUMENTS = (83.9, 87.1, 88.3, 89.1, 93.7, 100.3, 103.2, 110.9, 178.7, 431.0)
FEW_ARGUMENTS = (87.7, 91.3, 178.7)
BESIDE_ZERO = (1e-5, 3e-4, 4e-3, 0.06)
"""Sizes of the arguments of functions, such as (x - a)/b or a/x, of one tensor and of several, and
relative distances of a tensor from where one is 0, at which a formula is looked at."""

MOST = 3
"""How many such arguments."""

STARTS = slice(SEVERAL + 3, SEVERAL + UNIFORM, 12)
"""Points of several tensors, from which arguments are made that large, or 0."""

STRETCHES = tuple(sign * 2.0**k for sign in (-1, 1) for k in range(-6, 13, 2))
"""By what one tensor is multiplied there."""

TURNS = 2
"""How often an argument of one tensor takes each size, at most."""

EXACTLY = 34
"""Bisections that find a number of float32 where there is one: (x + 40)/10 is 0 at -40."""


def arguments_of(exprs: Sequence[Expr], tensors: Sequence[str]) -> list[Expr]:
    """What functions, quotients and roots are of, other than a tensor or its negative.

    And sums that are squared, and those of several tensors: those that change sign together with
    all inputs are nowhere near a root, however much cancels.
    """
    found: dict[Expr, None] = {}
    for expr in exprs:
        for node in trees.nodes(expr):
            taken: tuple[Basic, ...] = ()
            if isinstance(node, heads.log1p | heads.xlog1py) and len(tensors) == 1:
                # Of several, what is beside that is hardly ever given: labels are from 0 to 1.
                taken = (node.args[-1], 1 + node.args[-1])
            elif isinstance(node, Function):
                taken = node.args
            elif isinstance(node, Pow) and not (node.exp.is_Integer and node.exp.is_positive):
                taken = (node.base, node.exp)
            elif isinstance(node, Pow) and node.exp.is_even and isinstance(node.base, Add):
                taken = (node.base,)
            elif isinstance(node, Add):
                names = {s.name for s in trees.symbols(node)}
                taken = (node,) if len(names.intersection(tensors)) > 1 else ()
            for u in taken:
                if isinstance(u, Expr) and not u.could_extract_minus_sign():
                    found[u] = None
                elif isinstance(u, Expr):
                    found[-u] = None
    of_tensors = [u for u in found if {s.name for s in trees.symbols(u)} & {*tensors}]
    return [u for u in of_tensors if not u.is_Symbol][:MOST]


def of_arguments(
    all_points: Sequence[Point], tensors: Sequence[str], arguments: Sequence[Argument]
) -> list[Point]:
    """Points at which arguments have the sizes of `ARGUMENTS`, or are 0 or nearly.

    Looked for between ordinary numbers of the one tensor; of several, along one of them.
    """
    if not all_points:
        return []
    if len(tensors) == 1:
        grid = sorted({point[tensors[0]] for point in points(tensors, {})} - {math.inf, -math.inf})
        lines = [(all_points[0], tensors[0], grid)]
        sizes: tuple[float, ...] = ARGUMENTS
    else:
        lines = [
            (point, name, sorted(point[name] * by for by in STRETCHES))
            for point, name in zip(all_points[STARTS], itertools.cycle(tensors), strict=False)
        ]
        sizes = FEW_ARGUMENTS
    found: list[Point] = []
    for argument, (point, name, grid) in itertools.product(arguments, lines):

        def value(at: float, argument: Argument = argument, point: Point = point,
                  name: str = name) -> Any:  # fmt: skip
            return argument({**point, name: at})

        column = [(at, value(at)) for at in grid]
        column = [(at, v) for at, v in column if v is not None and mp.isfinite(v)]
        for size in (0.0, *sizes, *(-size for size in sizes)):
            crossings = [
                (low, high)
                for (low, below), (high, above) in itertools.pairwise(column)
                if below != above and (below - size) * (above - size) <= 0
            ]
            for low, high in crossings[:TURNS]:
                at = _crossing(value, low, high, size, BISECTIONS if size else EXACTLY)
                steps = () if size else BESIDE_ZERO
                near = [at, *(at * (1 + sign * step) for step in steps for sign in (1, -1))]
                found += [
                    {**point, name: _single(v)} for v in dict.fromkeys(near) if abs(v) < LARGEST / 2
                ]
    return found


def _crossing(
    value: Callable[[float], Any], low: float, high: float, size: float, steps: int
) -> float:
    """A number of float32 between two, at which a function takes a value, or beside which."""
    below = value(low) < size
    first, last = _place(low), _place(high)
    for _ in range(steps):
        middle = (first + last) // 2
        here = value(_at_place(middle))
        if here == size:
            return _at_place(middle)
        if middle == first:
            break
        first, last = (middle, last) if (here < size) == below else (first, middle)
    return _at_place(first)


def _place(value: float) -> int:
    """The number of a float32 among all, 0 that of 0."""
    bits = int(struct.unpack("I", struct.pack("f", abs(value)))[0])
    return -bits if value < 0 else bits


def _at_place(place: int) -> float:
    size = float(struct.unpack("f", struct.pack("I", abs(place)))[0])
    return -size if place < 0 else size


LARGEST = 2.0**128
"""What no number of float32 reaches."""

FROM = slice(SEVERAL, SEVERAL + 6, 5)
"""Points of several tensors, from which one is made larger, and smaller, on either side."""

STEP = 32.0
"""Times as large in each step, up to the one that overflows."""

LARGE = 2.0**24
"""Times as large: another tensor, where one has made a result vanish."""

SMALLEST = 2.0**-128, 2.0**-142
"""Subnormal numbers of float32 that have most of their digits, and few."""


def beside_extremes(
    all_points: Sequence[Point],
    tensors: Sequence[str],
    values: Callable[[Point], Sequence[Any]],
    sizes: Sequence[HasSize],
) -> list[Point]:
    """Points at which a result is just finite, or nearly vanishes, so that its parts may not.

    values: the results at a point. Each tensor in turn is made larger, and smaller, until results
    are no more of one of the sizes: one by one, or the first of those that cease in the same step.
    """
    one = len(tensors) == 1
    starts = [{**all_points[0], tensors[0]: 1.0}] if one else all_points[FROM]
    widest = LARGEST / STEP if one else WITHIN
    found: list[Point] = []
    for start, name, sign, step in itertools.product(
        starts, tensors, (1.0, -1.0), (STEP, 1 / STEP)
    ):
        point = {**start, name: sign * start[name]}
        scales = [1.0]
        while 1 / widest < abs(point[name]) * scales[-1] < widest:
            scales.append(scales[-1] * step)
        column = [(scale, values(_scaled(point, [name], scale))) for scale in scales]
        for has_size in sizes:
            for low, high, results in _cease(column, has_size):
                for _ in range(BISECTIONS):
                    middle = math.sqrt(low * high)
                    there = values(_scaled(point, [name], middle))
                    holds = all(there[k] is None or has_size(there[k]) for k in results)
                    low, high = (middle, high) if holds else (low, middle)
                extreme = _scaled(point, [name], low)
                found.append(extreme)
                if has_size in SIZES[1:]:
                    # What has vanished there has not beside a large factor.
                    found += [_scaled(extreme, [n], LARGE) for n in tensors if n != name]
    return found


BELOW = (0.97, 0.995)


def below_the_largest(
    all_points: Sequence[Point], truths: Sequence[Sequence[Any]], tensors: Sequence[str]
) -> list[Point]:
    """Points beside those where a result is about float32's largest number, and bfloat16 has none.

    Its parts may overflow where the result does not, in bfloat16 either.
    """
    return [
        _scaled(point, tensors, scale)
        for point, values in zip(all_points, truths, strict=True)
        if any(value is not None and abs(value) > LARGEST * BELOW[1] for value in values)
        for scale in BELOW
    ]


def _cease(
    column: Sequence[tuple[float, Sequence[Any]]], has_size: HasSize
) -> list[tuple[float, float, list[int]]]:
    """Between which scales which results are no more of a size that they begin with."""
    ceasing: dict[int, list[int]] = {}
    for k, results in enumerate(zip(*(values for _, values in column), strict=True)):
        holding = [value is None or has_size(value) for value in results]
        if holding[0] and not all(holding):
            ceasing.setdefault(holding.index(False), []).append(k)
    return [(column[at - 1][0], column[at][0], results) for at, results in ceasing.items()]


def _is_below(most: float, value: Any) -> bool:
    return bool(mp.isfinite(value) and abs(value) < most)


def _is_above(least: float, value: Any) -> bool:
    return bool(value == 0 or abs(value) > least)


SIZES: tuple[HasSize, ...] = (
    functools.partial(_is_below, LARGEST),
    *(functools.partial(_is_above, least) for least in SMALLEST),
)

FAR_SIZES: tuple[HasSize, ...] = (
    *(functools.partial(_is_below, most) for most in (2.0**500, 2.0**950)),
    *(functools.partial(_is_above, least) for least in (2.0**-500, 2.0**-950)),
)
"""Of float64, where exponentials magnify more."""


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
