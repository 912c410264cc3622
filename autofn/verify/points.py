"""Points at which a formula is verified: ordinary ones, kinks, and hard ones.

Each is a pure function of the definition: leaf names to numbers, all of them exact in float32
except the numbers that are passed by value. Leaves that a variant lacks are absent.
"""

from __future__ import annotations

import functools
import itertools
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

import sympy
from mpmath import mp
from sympy import Basic, Expr, Interval, Symbol
from sympy.core.relational import Relational

from autofn.errors import FormulaError
from autofn.model import NUMBERS, TENSORS, Definition, Kind, Leaf, Variant
from autofn.verify.duals import Dual, Real, Scalar, base
from autofn.verify.interpreter import Program
from autofn.verify.oracle import Oracle, contains, ends, oracle, precision

Number = float | int
Point = dict[str, Number]

FLOAT32_MAX = 3.4028234663852886e38
WIDEST = 3.0
"""Regular points lie within this distance of zero, or of a kink, where the domain permits."""

FARTHEST = 1e4
"""Kinks and poles beyond it are of no interest."""


def parameter(leaf: Leaf, domain: Interval | None = None) -> Number:
    """The start value: the default, else 1.0 (an int: 2), or what else lies in the domain."""
    whole = leaf.kind is Kind.INT
    default = leaf.parameter.default
    given = isinstance(default, int | float) and not isinstance(default, bool)
    first: Number = default if given else 2 if whole else 1.0
    if domain is None or contains(domain, first):
        return first
    start, end = (float(each) for each in ends(domain))
    others = [1.0, 0.5, 2.0, -1.0, start + 1.0, end - 1.0, (start + end) / 2, start, end]
    for other in (math.floor(each) if whole else each for each in others if math.isfinite(each)):
        if contains(domain, other):
            return other
    return first


def float32(value: float) -> float:
    """The nearest number of single precision."""
    if abs(value) > FLOAT32_MAX:
        return math.copysign(FLOAT32_MAX, value)
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _neighbours(value: float) -> tuple[float, float]:
    """The numbers of single precision below and above a number of it."""
    if not value:
        return -(2.0**-149), 2.0**-149
    (bits,) = struct.unpack("i", struct.pack("f", value))
    smaller, larger = (struct.unpack("f", struct.pack("i", bits + step))[0] for step in (-1, 1))
    return (smaller, larger) if value > 0 else (larger, smaller)


def _short(value: float, bits: int) -> float:
    """The number rounded to so many significant bits."""
    if not value or not math.isfinite(value):
        return value
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(mantissa, bits)), exponent - bits)


# --- where a formula is not smooth ---------------------------------------------------------


@dataclass(frozen=True)
class Guard:
    """An expression that is zero (an integer, an integer up to zero) where something happens.

    At a `kink` section 1 of the contracts decides; otherwise it is a pole or the end of a range.
    """

    expr: Expr
    kind: Literal["zero", "integer", "pole"]
    kink: bool


_ARGUMENT = {  # functions with a pole or an end where the expression of their argument is zero
    "log": lambda u: u,
    "log1p": lambda u: 1 + u,
    "tan": sympy.cos,
    "sec": sympy.cos,
    "cot": sympy.sin,
    "csc": sympy.sin,
    "coth": lambda u: u,
    "csch": lambda u: u,
    "acsch": lambda u: u,
    "cbrt": lambda u: u,
    "asin": lambda u: 1 - u**2,
    "acos": lambda u: 1 - u**2,
    "atanh": lambda u: 1 - u**2,
    "acoth": lambda u: 1 - u**2,
    "asec": lambda u: 1 - u**2,
    "acsc": lambda u: 1 - u**2,
    "erfinv": lambda u: 1 - u**2,
    "acosh": lambda u: u - 1,
    "asech": lambda u: u * (1 - u),
}
_GAMMA = {"gamma": 0, "loggamma": 0, "digamma": 0, "trigamma": 0, "polygamma": 1, "factorial": 0}


def guards(expressions: Sequence[Basic]) -> tuple[Guard, ...]:
    """All guards of the expressions, in the order in which they occur."""
    found: dict[Guard, None] = {}
    for expression in expressions:
        for node in sympy.preorder_traversal(expression):
            for expr, kind, kink in _guards_of(node):
                if isinstance(expr, Expr) and expr.free_symbols:
                    found[Guard(expr, kind, kink)] = None
    return tuple(found)


_Found = tuple[Expr, Literal["zero", "integer", "pole"], bool]


def _guards_of(node: Basic) -> Iterator[_Found]:
    name, args = node.func.__name__, node.args
    if isinstance(node, Relational):
        if isinstance(node.lhs, Expr) and isinstance(node.rhs, Expr):
            yield node.lhs - node.rhs, "zero", True
    elif isinstance(node, sympy.Contains):
        for relation in node.args[1].as_relational(node.args[0]).atoms(Relational):
            yield relation.lhs - relation.rhs, "zero", True
    elif isinstance(node, sympy.Max | sympy.Min):
        for a, b in itertools.combinations(args, 2):
            yield a - b, "zero", True
    elif name in ("Abs", "sign", "Heaviside"):
        yield args[0], "zero", True
    elif name == "clamp":
        yield args[0] - args[1], "zero", True
        yield args[0] - args[2], "zero", True
    elif name in ("floor", "ceiling", "frac"):
        yield args[0], "integer", True
    elif name == "Mod":
        yield args[0] / args[1], "integer", True
    elif isinstance(node, sympy.Pow) or name == "power":
        if not (args[1].is_integer and args[1].is_nonnegative):
            yield args[0], "zero", False
    elif name == "atan2":
        yield args[0] ** 2 + args[1] ** 2, "zero", False
    elif name in _ARGUMENT:
        yield _ARGUMENT[name](args[0]), "zero", False
    elif name in _GAMMA:
        yield args[_GAMMA[name]] + int(name == "factorial"), "pole", False
    elif name in ("beta", "binomial"):
        for arg in args:
            yield arg, "pole", False


# --- the search ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stage:
    """How a stage of the search for regular points draws and what it accepts."""

    tries: int
    margin: float
    most: float
    wide: bool
    far: bool = False


_STAGES = (
    _Stage(12, 0.05, 1e3, False),
    _Stage(40, 0.02, 1e4, True),
    _Stage(60, 1e-3, 1e9, True),
    _Stage(60, 1e-3, 1e9, True, far=True),
)
_RANGES = ((-3, 3), (0, 1), (1, 3), (-1, 1), (0, 3), (-1, 0), (-3, -1), (3, 9), (-9, -3))
_FAR_RANGES = ((9, 40), (-40, -9), (40, 200), (-200, -40), (200, 1e3), (-1e3, -200), (1e3, 1e4))
_GRID = sorted(
    {k / 4 for k in range(-16, 17)}
    | {s * k for s in (1, -1) for k in (5, 6, 8, 10, 16, 20, 32, 64)}
)
_OTHER_NUMBERS: tuple[tuple[float, ...], tuple[int, ...]] = ((1.0, 0.5, 2.0, 0.25, 3.0), (2, 1, 3))

_SPREAD = tuple(math.sqrt(prime) % 1.0 for prime in (5, 2, 3, 7, 11, 13, 17, 19))
"""Irrational steps: multiples of one, modulo 1, fill an interval evenly."""

Range = tuple[float, float]


class _Search:
    """What is known of one variant: its leaves, guards and ranges."""

    def __init__(self, definition: Definition, variant: Variant):
        key = dict(variant.key)
        self.definition = definition
        self.oracle: Oracle = oracle(definition, variant)
        self.domains = dict(definition.options.domain)
        self.leaves = [
            leaf
            for leaf in definition.leaves
            if leaf.symbol is not None and key.get(leaf.name, True)
        ]
        self.active = [leaf for leaf in self.leaves if leaf.parameter.differentiable]
        self.tensors = [leaf for leaf in self.leaves if leaf.kind in TENSORS]
        symbols = {leaf.symbol for leaf in self.active}
        own = [entry for entry in variant.gradient or () if entry is not None]
        cotangents = set(definition.grads)
        self.guards = [
            guard
            for guard in guards([*variant.outputs, *own])
            if guard.expr.free_symbols & symbols and not guard.expr.free_symbols & cotangents
        ]
        self.program = Program([guard.expr for guard in self.guards], symbols)

    # Drawing.

    def start(self, rng: Random | None = None, other: int = 0) -> Point:
        """Values of parameters and numbers: defaults, or parameters near them."""
        point: Point = {}
        for leaf in self.leaves:
            if leaf in self.tensors:
                continue
            domain = self.domains.get(leaf.name)
            value = parameter(leaf, domain)
            free = not isinstance(leaf.parameter.default, int | float)
            if leaf.kind in NUMBERS:
                if free and other and domain is None:
                    choices = _OTHER_NUMBERS[leaf.kind is Kind.INT]
                    value = choices[other % len(choices)]
            elif rng is not None:
                near = value * (0.7 + 0.6 * rng.random()) if value else 0.6 * rng.random() - 0.3
                near = _short(near, 8)
                if domain is None or contains(domain, near):
                    value = near
            point[leaf.name] = value
        return point

    def ranges(self, leaf: Leaf) -> list[Range]:
        """Ranges to draw a tensor's values from, the best one first."""
        found = self.within(leaf, _RANGES)
        domain = self.domains.get(leaf.name)
        if domain is None:
            return found
        low, high = (float(each) for each in ends(domain))
        if math.isfinite(low):
            found.append((low, min(high, low + WIDEST)))
        if math.isfinite(high):
            found.append((max(low, high - WIDEST), high))
        return found

    def within(self, leaf: Leaf, ranges: Sequence[Range]) -> list[Range]:
        """What of the ranges is in a tensor's domain, where that is not too little."""
        domain = self.domains.get(leaf.name)
        if domain is None:
            return list(ranges)
        low, high = (float(each) for each in ends(domain))
        wide = min(1.0, high - low) / 4
        cut = [(max(low, a), min(high, b)) for a, b in ranges]
        return [(a, b) for a, b in cut if b - a >= wide]

    @functools.cached_property
    def beyond(self) -> dict[str, list[Range]]:
        """Per tensor, ranges on both sides of the kinks that its first range leaves out."""
        return self._around([pair for pair in self.kinks if pair[0].kind == "zero"])

    @functools.cached_property
    def ends(self) -> dict[str, list[Range]]:
        """Per tensor, ranges on both sides of poles and of where the formula begins or ends."""
        found = [
            (guard, leaf)
            for guard in self.guards
            for leaf in self.tensors
            if not guard.kink and leaf.symbol in guard.expr.free_symbols
        ]
        return self._around(found)

    def _around(self, pairs: Sequence[tuple[Guard, Leaf]]) -> dict[str, list[Range]]:
        found: dict[str, list[Range]] = {leaf.name: [] for leaf in self.tensors}
        point = {**self.start(), **{leaf.name: 0.625 for leaf in self.tensors}}
        for guard, leaf in pairs:
            low, high = self.ranges(leaf)[0]
            for root in self.roots(guard, leaf, point):
                if abs(root) <= FARTHEST and not low + 0.5 < root < high - 0.5:
                    found[leaf.name] += [(root - 1.5, root), (root, root + 1.5)]
        return found

    def draw(self, rng: Random, stage: _Stage, fixed: Point, turn: int) -> Point:
        """A candidate: evenly spread over the turns of the first stage, later at random."""
        point: Point = {}
        for i, leaf in enumerate(self.leaves):
            if leaf not in self.tensors:
                point[leaf.name] = fixed[leaf.name]
                continue
            ranges = self.ranges(leaf)
            beyond = self.beyond[leaf.name]
            share = rng.random()
            if stage.wide:
                far = self.within(leaf, _FAR_RANGES) if stage.far else []
                low, high = rng.choice(ranges + beyond + self.ends[leaf.name] + far)
            elif beyond and turn % 2:
                low, high = beyond[turn // 2 % len(beyond)]
            else:
                low, high = ranges[0]
                share = (turn // (2 if beyond else 1) + 0.5) * _SPREAD[i % len(_SPREAD)] % 1.0
            quantum = 2.0 ** min(-10, math.floor(math.log2((high - low) / 64)))
            value = low + (high - low) * share
            point[leaf.name] = float32(round(value / quantum) * quantum)
        return point

    # Judging.

    def values(self, point: Mapping[str, Number]) -> dict[Symbol, Real]:
        return {leaf.symbol: mp.mpf(point[leaf.name]) for leaf in self.leaves}

    def inside(self, point: Mapping[str, Number], margin: float = 0.0) -> bool:
        """Whether the point is in the domain, so far from its ends."""
        for leaf in self.leaves:
            domain = self.domains.get(leaf.name)
            if domain is None:
                continue
            value = point[leaf.name]
            if not contains(domain, value):
                return False
            if leaf.parameter.differentiable:
                low, high = (float(each) for each in ends(domain))
                room = margin * min(1.0, high - low)
                if min(value - low, high - value) < room:
                    return False
        return True

    def smooth(self, point: Mapping[str, Number], margin: float) -> bool:
        """Whether no guard is within the margin, by its own linear estimate."""
        with precision(30):
            at: dict[Symbol, Scalar] = dict(self.values(point))
            for i, leaf in enumerate(self.active):
                at[leaf.symbol] = Dual(1, at[leaf.symbol], {i: mp.one})
            for guard, value in zip(self.guards, self.program(at), strict=True):
                here = base(value)
                if type(value) is not Dual or not mp.isfinite(here):
                    continue
                slope = sum((abs(p) for p in value.partials.values()), mp.zero)
                if not slope > 0:
                    continue
                if guard.kind == "integer" or (guard.kind == "pole" and here < 0.5):
                    here = here - mp.nint(here)
                if abs(here) < margin * slope:
                    return False
        return True

    def regular(self, point: Mapping[str, Number], stage: _Stage) -> bool:
        if not self.inside(point, stage.margin) or not self.smooth(point, stage.margin):
            return False
        truth = self.oracle.evaluate(point, limits=False)
        if not _bounded([*truth.outputs, *itertools.chain(*truth.jacobian)], stage.most):
            return False
        ones = [1.0] * len(self.definition.output_names)
        along = [1.0] * len(self.definition.differentiable)
        again = self.oracle.second(point, ones, along, limits=False)
        return _bounded([*again.leaves, *again.cotangents], 1000 * stage.most)

    def finite32(self, point: Mapping[str, Number]) -> bool:
        """Whether outputs and gradients are finite in float32, and the point in the domain."""
        if not self.inside(point):
            return False
        truth = self.oracle.evaluate(point)
        ones = [1.0] * len(self.definition.output_names)
        found = [*truth.outputs, *itertools.chain(*truth.jacobian)]
        if self.definition.own_gradient:
            found += [each for each in self.oracle.vjp(point, ones) if each is not None]
        return _bounded(found, FLOAT32_MAX)

    # Kinks.

    @functools.cached_property
    def kinks(self) -> list[tuple[Guard, Leaf]]:
        """The kinks, each with every tensor that can reach it."""
        return [
            (guard, leaf)
            for guard in self.guards
            for leaf in self.tensors
            if guard.kink and leaf.symbol in guard.expr.free_symbols
        ]

    def shortened(self, point: Mapping[str, Number]) -> Point:
        """The point with parameters and numbers of few digits, where the domain has them."""
        short: Point = dict(point)
        for leaf in self.leaves:
            value = point[leaf.name]
            domain = self.domains.get(leaf.name)
            if leaf not in self.tensors and isinstance(value, float):
                few = _short(value, 4)
                if domain is None or contains(domain, few):
                    short[leaf.name] = few
        return short

    def hard_values(self, leaf: Leaf, sizes: Sequence[float], single: bool) -> list[float]:
        """Numbers of these sizes and both signs, or the like measured from the domain's ends."""
        low, high = -math.inf, math.inf
        domain = self.domains.get(leaf.name)
        if domain is not None:
            low, high = (float(each) for each in ends(domain))
        if math.isfinite(low) and math.isfinite(high):
            width = high - low
            found = [low + width * fraction for fraction in _FRACTIONS]
            found += [
                end for size in sizes if size < width / 2 for end in (low + size, high - size)
            ]
        elif math.isfinite(low) or math.isfinite(high):
            end, sign = (low, 1) if math.isfinite(low) else (high, -1)
            found = [end, *(end + sign * size for size in sizes)]
        else:
            found = [0.0, *(sign * size for size in sizes for sign in (1, -1))]
        found = [float32(each) for each in found]
        small, large = (0.0, math.inf) if single else (2.0**-40, 2.0**40)
        fits = [each for each in found if not each or small <= abs(each) <= large]
        return [each for each in fits if domain is None or contains(domain, each)]

    def roots(self, guard: Guard, leaf: Leaf, point: Mapping[str, Number]) -> list[float]:
        """Where along the leaf the guard is at a kink, as nearly as floats permit."""
        program = _program(guard.expr)
        with precision(30):
            values = self.values(point)

            def at(x: Scalar) -> Scalar:
                return program({**values, leaf.symbol: x})[0]

            levels = range(-2, 3) if guard.kind == "integer" else (0,)
            known = [(mp.mpf(x), base(at(mp.mpf(x)))) for x in _GRID]
            found: list[Real] = []
            for level in levels:
                found += _crossings(lambda x: base(at(x)) - level, known, level)  # noqa: B023
                tangent = at(Dual(1, mp.mpf(point[leaf.name]), {0: mp.one}))
                if type(tangent) is Dual and tangent.partials[0] and mp.isfinite(tangent.value):
                    step = (tangent.value - level) / tangent.partials[0]
                    found.append(point[leaf.name] - step)
        return sorted({float(root) for root in found if mp.isfinite(root)})

    def on_kink(self, guard: Guard, point: Mapping[str, Number]) -> bool:
        with precision(60):
            value = _program(guard.expr)(self.values(point))[0]
            if guard.kind == "integer":
                value = value - mp.nint(value)
            return bool(abs(value) < mp.mpf(10) ** -50)

    def nearly_on(self, guard: Guard, point: Mapping[str, Number]) -> bool:
        """Whether the guard is zero but for the rounding of the point to a double."""
        with precision(30):
            value = _program(guard.expr)(self.values(point))[0]
            if guard.kind == "integer":
                value = value - mp.nint(value)
            return bool(abs(value) < 1e-7)


def _crossings(
    function: Callable[[Real], Real], known: Sequence[tuple[Real, Real]], level: int
) -> Iterator[Real]:
    """Zeros of the function: those among the known points, and one per change of sign."""
    for x, y in known:
        if y == level:
            yield x
    for (low, a), (high, b) in itertools.pairwise(known):
        a, b = a - level, b - level
        if not (a * b < 0 and mp.isfinite(a) and mp.isfinite(b)):
            continue
        for _ in range(64):
            middle = (low + high) / 2
            value = function(middle)
            if value == 0:
                low = high = middle
                break
            if value * a > 0:
                low = middle
            else:
                high = middle
        yield (low + high) / 2


@functools.lru_cache(maxsize=256)
def _program(expr: Expr) -> Program:
    return Program([expr], expr.free_symbols)


def _bounded(values: Sequence[Real], most: float) -> bool:
    return all(mp.isfinite(value) and abs(value) <= most for value in values)


@functools.lru_cache(maxsize=64)
def _search(definition: Definition, variant: Variant) -> _Search:
    return _Search(definition, variant)


# --- the three kinds of points -------------------------------------------------------------


def regular_points(
    definition: Definition, variant: Variant, count: int, *, seed: int = 0
) -> list[Point]:
    """Points of moderate size off all kinks and poles, where finite differences can be trusted.

    Parameters and numbers have one value throughout, so that the points can make up a tensor;
    parameters are near their start values and another seed gives others. Fewer than `count`
    points come back where they are rare. Raises FormulaError where none is found.
    """
    search = _search(definition, variant)
    rng = Random(seed)
    fixed = search.start(rng)
    points: list[Point] = []
    for stage in _STAGES:
        for turn in range(stage.tries * max(count, 8)):
            if not points and turn % 20 == 19:
                fixed = search.start(rng, other=turn // 20)
            point = search.draw(rng, stage, fixed, turn)
            if search.regular(point, stage):
                points.append(point)
                if len(points) >= count:
                    return points
    if points:
        return points
    first = search.tensors[0].name if search.tensors else "x"
    raise FormulaError(
        f"no point was found where {definition.name} and its derivatives are finite",
        where=definition.where,
        remedy=f'state its domain=: @formula(domain={{"{first}": Interval.open(0, oo)}})',
    )


def guards_along(
    definition: Definition, variant: Variant, leaf: Leaf, point: Mapping[str, Number]
) -> list[tuple[Guard, float]]:
    """Guards with the places along a leaf where each is zero, the other leaves as in `point`."""
    search = _search(definition, variant)
    return [
        (guard, root)
        for guard in search.guards
        if leaf.symbol in guard.expr.free_symbols
        for root in search.roots(guard, leaf, point)
        if search.nearly_on(guard, {**point, leaf.name: root})
    ]


def kink_points(definition: Definition, variant: Variant) -> list[Point]:
    """Points exactly on kinks, in float32 as in float64; none where there are no such points.

    Numbers and parameters are shortened (0.1 to 0.1015625), so that a kink at such a number can
    be met exactly.
    """
    search = _search(definition, variant)
    if not search.kinks:
        return []
    points: list[Point] = []
    for regular in regular_points(definition, variant, 2):
        start = search.shortened(regular)
        for guard, leaf in search.kinks:
            roots = sorted(search.roots(guard, leaf, start), key=lambda root: (abs(root), root))
            near = [(root, float32(root)) for root in roots if abs(root) < FLOAT32_MAX]
            exact = [new for old, new in near if _same(old, new)]
            for root in exact[:8]:
                together = {each.name: root for each in search.tensors}
                for point in ({**start, leaf.name: root}, {**start, **together}):
                    if (
                        point not in points
                        and search.on_kink(guard, point)
                        and search.finite32(point)
                    ):
                        points.append(point)
    return points


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * max(1e-6, abs(a))


_SMALL = (1e-40, 2.0**-126, 2.0**-40, 1e-6, 1e-3, 0.5, 1.0, 2.0, 3.0, 5.0, 9.0, 17.0, 20.0, 50.0)
_SIZES = (*_SMALL, 88.0, 89.0, 100.0, 104.0, 1e3, 1e4, 2.0**40, 1e30, FLOAT32_MAX)
_FEWER = (2.0**-40, 1e-3, 1.0, 20.0, 100.0, 1e4)
_PARAMETERS = (1e-3, 0.5, 1.0, 2.0, 20.0)
_FRACTIONS = (0.0, 1e-6, 1e-3, 0.1, 0.5, 0.9, 1 - 1e-3, 1 - 1e-6, 1.0)


def hard_points(definition: Definition, variant: Variant) -> list[Point]:
    """Points of all sizes inside the domain at which value and gradient are finite in float32.

    Each tensor and parameter by turns, the others at regular values; two tensors in all
    combinations of fewer sizes, more of them in some. A formula of one tensor gets every
    magnitude of float32, others those within 2**-40 and 2**40. Then the float32 on either side
    of every kink.
    """
    search = _search(definition, variant)
    single = len(search.active) == 1
    candidates: list[Point] = []
    for regular in regular_points(definition, variant, 2):
        for leaf in search.active:
            sizes = _SIZES if leaf in search.tensors else _PARAMETERS
            for value in search.hard_values(leaf, sizes, single):
                candidates.append({**regular, leaf.name: value})
    for point in kink_points(definition, variant):
        for leaf in search.tensors:
            for beside in _neighbours(point[leaf.name]):
                candidates.append({**point, leaf.name: beside})
    start = regular_points(definition, variant, 1)[0]
    names = [leaf.name for leaf in search.tensors]
    if len(names) > 1:
        values = [search.hard_values(leaf, _FEWER, single) for leaf in search.tensors]
        if len(names) == 2:
            combined = list(itertools.product(*values))
        else:
            rng = Random(0)
            combined = [tuple(rng.choice(each) for each in values) for _ in range(64)]
            combined += list(zip(*values, strict=False))
        candidates += [{**start, **dict(zip(names, each, strict=True))} for each in combined]
    seen: set[tuple[Number, ...]] = set()
    points: list[Point] = []
    for candidate in candidates:
        key = tuple(candidate.values())
        if key not in seen and search.finite32(candidate):
            points.append(candidate)
        seen.add(key)
    return points
