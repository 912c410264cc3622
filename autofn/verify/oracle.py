"""The independent truth: the user's own expressions, interpreted in arbitrary precision.

Values and derivatives come from mpmath and forward-mode dual numbers over the tree that the user
wrote; nothing of the derivation, its rewrites or its heads' derivatives is used. The conventions
at kinks are in the interpreter itself:

- abs'(0) = 0; sign, floor, ceiling and Heaviside have no gradient; frac and Mod have their slope;
- Max and Min: 0 at a tie with something without a gradient, else k tied arguments share 1/k;
- a Piecewise takes the branch that its conditions select, and a relation with NaN is false (but
  NaN is unequal to everything, as in IEEE 754);
- `clamp` passes the gradient on its closed interval;
- base ** exponent: the derivative in the exponent is 0 where base = 0 and exponent >= 0, that in
  the base is 0 where both are 0; x ** (p/3) is real for negative x, other fractional powers NaN.

A point is evaluated at 50 and 100 digits, and at more until both agree. Where the expression as
written is undefined (0/0, oo - oo, a pole, an infinite input), the limit is taken if there is one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import sympy
from mpmath import mp
from sympy import Interval, Symbol

from autofn.errors import FormulaError, UsageError
from autofn.model import Definition, Kind, Variant
from autofn.verify.duals import (
    Dual,
    Real,
    Scalar,
    Watch,
    add,
    base,
    component,
    isnan,
    level_of,
    magnitude,
    mul,
    partial,
)
from autofn.verify.interpreter import Program

START = 50
"""Decimal digits of the first evaluation."""

SURE = 800
"""Digits to which an evaluation goes on that lost everything to a cancellation."""

MOST = 1600
"""Digits at which what is still not settled is given up: NaN."""

AGREE = 25
"""Digits to which two precisions must agree."""

Source = Literal["direct", "limit", "one-sided", "none"]
"""How a result was found; "none" where some of it has no value."""


@dataclass(frozen=True)
class Truth:
    """Outputs at a point and their derivatives in the differentiable leaves.

    `jacobian[j][i]` is d output j / d leaf i, in the order of `Definition.differentiable`; NaN
    where it does not exist. A user's own gradient plays no part in it.
    """

    outputs: tuple[Real, ...]
    jacobian: tuple[tuple[Real, ...], ...]
    source: Source

    @property
    def finite(self) -> bool:
        return all(map(mp.isfinite, self.outputs)) and all(
            mp.isfinite(entry) for row in self.jacobian for entry in row
        )

    def floats(self) -> tuple[tuple[float, ...], tuple[tuple[float, ...], ...]]:
        """Outputs and jacobian, each entry correctly rounded."""
        return to_floats(self.outputs), tuple(to_floats(row) for row in self.jacobian)


@dataclass(frozen=True)
class Second:
    """The gradient of `sum(d * g for d, g in zip(directions, vjp))`.

    `leaves` are its derivatives in the differentiable leaves, `cotangents` those in the
    cotangents: for the derivative itself, the latter are the JVP along `directions`.
    """

    leaves: tuple[Real, ...]
    cotangents: tuple[Real, ...]
    source: Source

    @property
    def finite(self) -> bool:
        return all(map(mp.isfinite, self.leaves + self.cotangents))


def to_floats(values: Iterable[Real]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def evaluate(definition: Definition, variant: Variant, point: Mapping[str, Any]) -> Truth:
    """Outputs and first derivatives of the variant at `point`, leaf names to numbers.

    Numbers and learnable parameters that the point lacks have their default.
    """
    return oracle(definition, variant).evaluate(point)


def vjp(
    definition: Definition,
    variant: Variant,
    point: Mapping[str, Any],
    cotangents: Sequence[Any],
) -> tuple[Real | None, ...]:
    """The gradient that backward must return, per differentiable leaf.

    It is the user's own where there is one, None where that is None or where the variant lacks
    the tensor.
    """
    return oracle(definition, variant).vjp(point, cotangents)


def second(
    definition: Definition,
    variant: Variant,
    point: Mapping[str, Any],
    cotangents: Sequence[Any],
    directions: Sequence[Any],
) -> Second:
    """What double backward must return for the cotangents `directions` of the gradients."""
    return oracle(definition, variant).second(point, cotangents, directions)


# --- precision and limits ------------------------------------------------------------------

Values = dict[Symbol, Real]
_Pair = tuple[Values, Values]
Components = Callable[[Values], list[Real]]


@contextmanager
def precision(digits: int) -> Iterator[None]:
    """mpmath's precision for the time of the block."""
    before = mp.prec
    mp.dps = digits
    try:
        yield
    finally:
        mp.prec = before


def _close(a: Real, b: Real, digits: int) -> bool:
    """Agreement to so many digits; infinities and NaNs agree with themselves."""
    if a == b or (isnan(a) and isnan(b)):
        return True
    if not a or not b or not mp.isfinite(a) or not mp.isfinite(b):
        return False
    return magnitude(a - b) <= max(magnitude(a), magnitude(b)) - digits * 10 // 3


def _negligible(x: Real) -> bool:
    """Whether x is 0 to a double, by a margin."""
    return not x or (bool(mp.isfinite(x)) and magnitude(x) < -1130)


def _settled(components: Components, values: Values, start: int = START) -> list[Real]:
    """The components at a precision that suffices; NaN where none does."""

    def run(digits: int) -> tuple[list[Real], bool]:
        with precision(digits):
            Watch.lost = False
            return components(values), Watch.lost

    digits = start
    before, _ = run(digits)
    while True:
        digits *= 2
        after, lost = run(digits)
        same = True
        for k, (a, b) in enumerate(zip(before, after, strict=True)):
            with precision(digits):
                close = _close(a, b, AGREE)
            if not close and _negligible(a) and _negligible(b):
                after[k] = mp.zero
            elif not close and digits >= MOST:
                after[k] = mp.nan
            else:
                same = same and close
        if (same and (not lost or digits >= SURE)) or digits >= MOST:
            return after
        if same:
            digits = max(digits, SURE // 2)
        before = after


_STEPS = tuple(mp.mpf(10) ** -power for power in (60, 80))
_FAR = tuple(
    tuple(
        tuple(
            mp.make_mpf(sympy.Float(start + step, 150)._mpf_)
            for start, step in zip(starts, steps, strict=True)
        )
        for steps in ((".377", ".8263"), ("3.941", "5.4387"))
    )
    for starts in ((f"1{'0' * 60}", f"1{'0' * 90}"), ("1234567", "23456789"))
)
"""Ways out to infinity: two at a time, at the same distances, tell what oscillates; of no two
steps the difference is a period such as 1."""

_SLANTED = (1.0, 0.7548776662466927, 0.5698402909980532, 0.4301597090019468)


def _approached(near: Real, nearer: Real) -> Real | None:
    """The limit of a quantity known at two steps; NaN: it has none, None: it is undefined."""
    if isnan(near) and isnan(nearer):
        return None
    if isnan(near) or isnan(nearer):
        return mp.nan
    if _close(near, nearer, 20):
        return nearer
    if mp.isinf(near) or mp.isinf(nearer):
        return mp.nan
    a, b = abs(near), abs(nearer)
    if a < 1e-9 and b * 1000 < a:
        return mp.zero
    if a > 100 and b * 5 > a * 6 and (near > 0) == (nearer > 0):
        return mp.inf if nearer > 0 else -mp.inf
    return mp.nan


def _agreed(found: Sequence[Real]) -> Real:
    """What all of them approach, or NaN."""
    if not found or any(isnan(each) for each in found):
        return mp.nan
    least, most = min(found), max(found)
    if not mp.isfinite(least) or not mp.isfinite(most):
        return least if least == most else mp.nan
    if not _close(least, most, 20) and max(abs(least), abs(most)) > mp.mpf(10) ** -25:
        return mp.nan
    return (least + most) / 2


class Oracle:
    """The truth of one variant; its expressions are compiled once."""

    def __init__(self, definition: Definition, variant: Variant):
        self.definition = definition
        self.variant = variant
        key = dict(variant.key)
        self._leaves = [
            leaf
            for leaf in definition.leaves
            if leaf.symbol is not None and key.get(leaf.name, True)
        ]
        self._domains = dict(definition.options.domain)
        self._active = [
            (i, leaf.symbol)
            for i, leaf in enumerate(definition.differentiable)
            if leaf.symbol is not None and leaf in self._leaves
        ]
        symbols = [symbol for _, symbol in self._active]
        self._own: Program | None = None
        try:
            self._outputs = Program(variant.outputs, symbols)
            if variant.gradient is not None:
                entries = [entry for entry in variant.gradient if entry is not None]
                self._own = Program(entries, [*symbols, *definition.grads])
        except FormulaError as error:
            raise error.at(definition.where) from None

    def evaluate(self, point: Mapping[str, Any], *, limits: bool = True) -> Truth:
        """Outputs and first derivatives; see `evaluate`. Without limits, NaN in their place."""
        return self._truth(*self._complete(self._first, self._values(point), limits))

    def approached(self, point: Mapping[str, Any]) -> Truth:
        """The limits of outputs and first derivatives, whatever they are at the point itself.

        At a kink of the expression that is none of the function, such as x = 0 in
        Max(x, 0) + log(1 + exp(-Abs(x))), that is the derivative; at a real one, NaN.
        """
        values = self._values(point)
        width = len(self.definition.differentiable)
        every = range(len(self.variant.outputs) * (1 + width))
        limits = self._limits(self._first, values, every)
        return self._truth([limits[k][0] for k in every], "limit")

    def _truth(self, flat: Sequence[Real], source: Source) -> Truth:
        count, width = len(self.variant.outputs), len(self.definition.differentiable)
        rows = [
            tuple(flat[count + j * width : count + (j + 1) * width])
            if not isnan(flat[j])
            else (mp.nan,) * width
            for j in range(count)
        ]
        return Truth(tuple(flat[:count]), tuple(rows), source)

    def rounded(self, point: Mapping[str, Any], size: float, seed: int) -> Truth:
        """Outputs and first derivatives where every operation of the formula is off by `size`."""
        self._rounding.size, self._rounding.seed = mp.mpf(size), seed
        with precision(START):
            return self._truth(self._first(self._values(point), self._rounding), "direct")

    @functools.cached_property
    def _rounding(self) -> Program:
        symbols = [symbol for _, symbol in self._active]
        return Program(self.variant.outputs, symbols, rounded=True)

    def vjp(self, point: Mapping[str, Any], cotangents: Sequence[Any]) -> tuple[Real | None, ...]:
        """The expected gradients; see `vjp`."""
        values = self._values(point)
        weights = self._exact(cotangents, len(self.variant.outputs), "cotangents")
        function = self._vjp if self._own is None else self._vjp_own
        flat, _ = self._derived(functools.partial(function, weights=weights), values)
        return tuple(
            value if has else None for value, has in zip(flat, self._has_gradient(), strict=True)
        )

    def second(
        self,
        point: Mapping[str, Any],
        cotangents: Sequence[Any],
        directions: Sequence[Any],
        *,
        limits: bool = True,
    ) -> Second:
        """The gradient of the gradients; see `second`. Without limits, NaN in their place."""
        values = self._values(point)
        weights = self._exact(cotangents, len(self.variant.outputs), "cotangents")
        width = len(self.definition.differentiable)
        along = self._exact(directions, width, "directions")
        function = self._second if self._own is None else self._second_own
        flat, source = self._derived(
            functools.partial(function, weights=weights, along=along), values, limits
        )
        return Second(tuple(flat[:width]), tuple(flat[width:]), source)

    def _derived(
        self, components: Components, values: Values, limits: bool = True
    ) -> tuple[list[Real], Source]:
        """Components that follow the outputs, unless the derivative is the user's own.

        Where an output has no value, nor have its derivatives, whatever their formula gives.
        """
        flat, source = self._complete(components, values, limits)
        if self._own is None:
            count = len(self.variant.outputs)
            undefined = any(isnan(value) for value in flat[:count])
            flat = [mp.nan if undefined else value for value in flat[count:]]
        return flat, source

    def _has_gradient(self) -> list[bool]:
        given = {i for i, _ in self._active}
        own = self.variant.gradient
        return [
            i in given and (own is None or own[i] is not None)
            for i in range(len(self.definition.differentiable))
        ]

    # What follows computes flat lists of components at the current precision.

    def _first(self, values: Values, program: Program | None = None) -> list[Real]:
        at: dict[Symbol, Scalar] = dict(values)
        for index, symbol in self._active:
            at[symbol] = Dual(1, values[symbol], {index: mp.one})
        outputs = (program or self._outputs)(at)
        width = range(len(self.definition.differentiable))
        return [base(output) for output in outputs] + [
            partial(output, i) for output in outputs for i in width
        ]

    def _vjp(self, values: Values, weights: Sequence[Real]) -> list[Real]:
        count, width = len(weights), len(self.definition.differentiable)
        flat = self._first(values)
        return flat[:count] + [
            _sum(weights[j] * flat[count + j * width + i] for j in range(count))
            for i in range(width)
        ]

    def _vjp_own(self, values: Values, weights: Sequence[Real]) -> list[Real]:
        grads = dict(zip(self.definition.grads, weights, strict=True))
        return [base(entry) for entry in self._own_entries({**values, **grads})]

    def _second(self, values: Values, weights: Sequence[Real], along: Sequence[Real]) -> list[Real]:
        at: dict[Symbol, Scalar] = dict(values)
        for index, symbol in self._active:
            value = values[symbol]
            if along[index]:
                value = Dual(1, value, {0: along[index]})
            at[symbol] = Dual(2, value, {index: mp.one})
        outputs = self._outputs(at)
        gradients = [
            _sum(
                weight * partial(partial(output, i) if level_of(output) == 2 else mp.zero, 0)
                for weight, output in zip(weights, outputs, strict=True)
            )
            for i in range(len(along))
        ]
        tangents = [partial(component(output, 2), 0) for output in outputs]
        return [base(output) for output in outputs] + gradients + tangents

    def _second_own(
        self, values: Values, weights: Sequence[Real], along: Sequence[Real]
    ) -> list[Real]:
        at: dict[Symbol, Scalar] = dict(values)
        for index, symbol in self._active:
            at[symbol] = Dual(1, values[symbol], {index: mp.one})
        width = len(along)
        for j, (symbol, weight) in enumerate(zip(self.definition.grads, weights, strict=True)):
            at[symbol] = Dual(1, weight, {width + j: mp.one})
        total: Scalar = mp.zero
        for direction, entry in zip(along, self._own_entries(at), strict=True):
            total = add(total, mul(direction, entry))
        return [partial(total, i) for i in range(width + len(weights))]

    def _own_entries(self, values: Mapping[Symbol, Scalar]) -> list[Scalar]:
        """The user's own gradients, zero in place of None."""
        entries = iter(self._own(values) if self._own else ())
        return [
            mp.zero if entry is None else next(entries) for entry in self.variant.gradient or ()
        ]

    # Points and limits.

    def _values(self, point: Mapping[str, Any]) -> Values:
        values: Values = {}
        for leaf in self._leaves:
            value = point.get(leaf.name, leaf.parameter.default)
            if isinstance(value, bool) or not isinstance(value, int | float | mp.mpf):
                raise UsageError(
                    f"the point has no number for {leaf.name!r} of {self.definition.name}",
                    remedy="give one per tensor and per number without a default",
                )
            values[leaf.symbol] = _exactly(value)
        return values

    def _exact(self, given: Sequence[Any], count: int, what: str) -> list[Real]:
        if len(given) != count:
            raise UsageError(f"{self.definition.name} has {count} {what}, not {len(given)}")
        return [mp.zero if value is None else _exactly(value) for value in given]

    def _complete(
        self, components: Components, values: Values, take_limits: bool = True
    ) -> tuple[list[Real], Source]:
        """The components, with their limits where they are undefined as written."""
        found = _settled(components, values)
        missing = [k for k, value in enumerate(found) if isnan(value)]
        if not missing:
            return found, "direct"
        if not take_limits or any(isnan(value) for value in values.values()):
            return found, "none"
        one_sided = False
        for k, (limit, sides) in self._limits(components, values, missing).items():
            found[k] = limit
            one_sided = one_sided or sides < 2
        if any(isnan(value) for value in found):
            return found, "none"
        return found, "one-sided" if one_sided else "limit"

    def _limits(
        self, components: Components, values: Values, missing: Sequence[int]
    ) -> dict[int, tuple[Real, int]]:
        """Per missing component its limit, and from how many sides of a line it was approached.

        All lines and sides on which it is defined must agree.
        """
        found: dict[int, list[Real]] = {k: [] for k in missing}
        most = dict.fromkeys(missing, 0)
        infinite = [symbol for symbol, value in values.items() if mp.isinf(value)]
        for line in self._towards(values, infinite) if infinite else self._lines(values):
            sides = [self._side(components, near, nearer, missing) for near, nearer in line]
            for n, k in enumerate(missing):
                seen = [side[n] for side in sides if side[n] is not None]
                if not infinite:
                    found[k].extend(seen)
                    most[k] = max(most[k], len(seen))
                elif seen and not any(not isnan(each) for each in found[k]):
                    found[k], most[k] = seen, 2
        with precision(START * 4):
            return {k: (_agreed(found[k]), most[k]) for k in missing}

    @staticmethod
    def _side(
        components: Components, near: Values, nearer: Values, missing: Sequence[int]
    ) -> list[Real | None]:
        with precision(150):
            glance = components(nearer)
        if all(isnan(glance[k]) for k in missing):
            return [None] * len(missing)
        one = _settled(components, near, 200)
        two = _settled(components, nearer, 200)
        with precision(200):
            return [_approached(one[k], two[k]) for k in missing]

    def _towards(self, values: Values, infinite: Sequence[Symbol]) -> list[list[_Pair]]:
        """Approaches to an infinite input, the better ones first."""
        if len(infinite) > 1:
            return []
        symbol = infinite[0]
        with precision(400):
            direction = mp.sign(values[symbol])
            return [
                [
                    ({**values, symbol: direction * near}, {**values, symbol: direction * nearer})
                    for near, nearer in way
                ]
                for way in _FAR
            ]

    def _lines(self, values: Values) -> list[list[_Pair]]:
        """Per line through the point, per side inside the domain, two points, the second nearer.

        The lines are the axes and two that are in no special position.
        """
        movable = [
            leaf.symbol
            for leaf in self._leaves
            if leaf.kind is not Kind.INT and leaf.symbol in self._used
        ]
        slopes = [{symbol: 1.0} for symbol in movable]
        if len(movable) > 1:
            slopes.append({s: _SLANTED[i % 4] for i, s in enumerate(movable)})
            slopes.append({s: _SLANTED[i % 4] * (-1) ** i for i, s in enumerate(movable)})
        lines = []
        with precision(400):
            for line in slopes:
                sides = []
                for side in (1, -1):
                    near, nearer = (_moved(values, line, side * step) for step in _STEPS)
                    if self._inside(nearer):
                        sides.append((near, nearer))
                lines.append(sides)
        return lines

    @functools.cached_property
    def _used(self) -> frozenset[Symbol]:
        own = self._own.slots if self._own else {}
        return frozenset(self._outputs.slots) | frozenset(own)

    def _inside(self, values: Values) -> bool:
        return all(
            contains(self._domains[leaf.name], values[leaf.symbol])
            for leaf in self._leaves
            if leaf.name in self._domains
        )


@functools.cache
def ends(interval: Interval) -> tuple[Real, Real]:
    """The interval's ends, to many digits."""
    with precision(START):
        start, end = (Program([bound])({})[0] for bound in (interval.start, interval.end))
    return start, end


def contains(interval: Interval, value: Any) -> bool:
    """Whether the number lies in the interval."""
    start, end = ends(interval)
    above = value > start or (value == start and not interval.left_open)
    below = value < end or (value == end and not interval.right_open)
    return bool(above and below)


def _moved(values: Values, slopes: Mapping[Symbol, float], step: Real) -> Values:
    moved = {s: values[s] + slope * step * (abs(values[s]) or 1) for s, slope in slopes.items()}
    return {**values, **moved}


def _sum(terms: Iterable[Real]) -> Real:
    return functools.reduce(add, terms, mp.zero)


def _exactly(value: Any) -> Real:
    if isinstance(value, mp.mpf):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return mp.mpf(value)
    numerator, denominator = value.as_integer_ratio()
    bits = max(53, int(numerator).bit_length())
    with precision(bits // 3 + 10):
        return mp.mpf(numerator) / denominator


@functools.lru_cache(maxsize=64)
def oracle(definition: Definition, variant: Variant) -> Oracle:
    """The oracle of a variant, compiled once."""
    return Oracle(definition, variant)
