"""f, f' and f'' along the first tensor, by the oracle's word; kinks and singularities there."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from mpmath import mp
from sympy import Basic, Expr, Piecewise, S, Symbol

from autofn.derive import Derivation, direction, parameters_of, second_order
from autofn.errors import FormulaError
from autofn.model import TENSORS, Definition, Kind, Leaf, Variant
from autofn.passes import AXES, direction_name
from autofn.program import Input, Program, Result, lower
from autofn.recognise import recognise
from autofn.report.javascript import function
from autofn.report.model import Curve, Drawing, Mark, Points, Slider
from autofn.verify.oracle import Oracle, contains, ends, oracle
from autofn.verify.points import Guard, guards, guards_along, parameter

COUNT = 128
"""Points of a curve."""

WIDTH = 5.0
"""The range is this far to either side of 0, or of the domain's end, and wider for kinks."""

FARTHEST = 20.0
"""Kinks beyond it do not widen the range."""

CLOSE = 1e-9
"""Distance from a kink at which its sides are looked at."""


def present(definition: Definition, variant: Variant) -> list[Leaf]:
    """The leaves with a symbol that the variant has."""
    key = dict(variant.key)
    return [leaf for leaf in definition.leaves if leaf.symbol and key.get(leaf.name, True)]


def start(definition: Definition, variant: Variant) -> dict[str, float | int]:
    """Defaults of parameters and numbers; 1, or what the domain has, for tensors."""
    domains = dict(definition.options.domain)
    return {
        leaf.name: parameter(leaf, domains.get(leaf.name)) for leaf in present(definition, variant)
    }


def axis_of(definition: Definition, variant: Variant) -> Leaf:
    return next(leaf for leaf in present(definition, variant) if leaf.kind in TENSORS)


def drawings(
    definition: Definition, variant: Variant, derivation: Derivation
) -> tuple[Drawing, ...]:
    """A drawing per output."""
    axis, point = axis_of(definition, variant), start(definition, variant)
    leaves = present(definition, variant)
    sliders = [_slider(leaf, definition, point) for leaf in leaves]
    sliders = [each for each in sliders if each.name != axis.name]
    found = guards_along(definition, variant, axis, point)
    low, high = _range(definition, axis, [at for _, at in found])
    inside = [(guard, at) for guard, at in found if low <= at <= high]
    inside = [each for each in inside if _reached(*each, variant, axis, _symbols(leaves, point))]
    made = []
    for j, output in enumerate(definition.output_names):
        values = _Values(definition, variant, axis, j)
        marks = _marks(inside, values, point)
        # Last, as the curves are broken at the marks.
        curves = _curves(values, point, low, high, marks)
        script, guards = _scripts(definition, variant, derivation, axis, sliders, j)
        reach = _reach(values, point, sliders if script else [], curves, low, high)
        made.append(
            Drawing(
                output=output,
                axis=axis.name,
                low=low,
                high=high,
                curves=curves,
                marks=marks,
                sliders=tuple(sliders),
                script=script,
                guards=guards,
                reach=reach,
            )
        )
    return tuple(made)


class _Values:
    """One output and its derivatives along the axis, by the oracle."""

    def __init__(self, definition: Definition, variant: Variant, axis: Leaf, output: int) -> None:
        self._oracle: Oracle = oracle(definition, variant)
        self._axis = axis.name
        self._output = output
        self._own = definition.own_gradient
        self._index = definition.differentiable.index(axis)
        self._cotangents = [float(j == output) for j in range(len(definition.output_names))]
        self._along = [float(leaf is axis) for leaf in definition.differentiable]

    def __call__(self, point: Mapping[str, float], at: float) -> tuple[float, float, float]:
        there = {**point, self._axis: at}
        truth = self._oracle.evaluate(there)
        value = truth.outputs[self._output]
        slope = truth.jacobian[self._output][self._index]
        if self._own:
            slope = self._oracle.vjp(there, self._cotangents)[self._index]
        second = self._oracle.second(there, self._cotangents, self._along, limits=False)
        bend = second.leaves[self._index]
        return tuple(_float(each) for each in (value, slope or 0, bend))  # type: ignore[return-value]


def _float(value: object) -> float:
    number = float(mp.mpf(value))
    return math.copysign(math.inf, number) if abs(number) > 1e300 else number


def _range(definition: Definition, axis: Leaf, roots: Sequence[float]) -> tuple[float, float]:
    low, high = -WIDTH, WIDTH
    domain = dict(definition.options.domain).get(axis.name)
    if domain is not None:
        first, last = (float(end) for end in ends(domain))
        if math.isfinite(first) and math.isfinite(last):
            low, high = first, last
        elif math.isfinite(first):
            low, high = first, first + WIDTH
        elif math.isfinite(last):
            low, high = last - WIDTH, last
    near = [root for root in roots if abs(root) <= FARTHEST]
    if domain is None and near:
        low, high = min(low, min(near) - 1.5), max(high, max(near) + 1.5)
    return low, high


def _symbols(leaves: Iterable[Leaf], point: Mapping[str, float]) -> dict[Symbol, float]:
    return {leaf.symbol: point[leaf.name] for leaf in leaves if leaf.symbol}


def _reached(
    guard: Guard, at: float, variant: Variant, axis: Leaf, point: Mapping[Symbol, float]
) -> bool:
    """Whether a singularity is of the piece that is selected there; a kink is of all pieces."""
    assert axis.symbol is not None
    there = {**point, axis.symbol: at}

    def selected(*pieces: tuple[Expr, Basic]) -> Expr:
        return next((value for value, when in pieces if when.subs(there) == S.true), S.NaN)

    given = [*variant.outputs, *(entry for entry in variant.gradient or () if entry is not None)]
    return guard.kink or guard in guards([each.replace(Piecewise, selected) for each in given])


def _marks(
    found: Iterable[tuple[Guard, float]], values: _Values, point: Mapping[str, float]
) -> tuple[Mark, ...]:
    marks: dict[float, Mark] = {}
    for guard, at in sorted(found, key=lambda pair: pair[1]):
        if any(abs(at - other) < 1e-7 for other in marks):
            continue
        step = CLOSE * max(1.0, abs(at))
        below, here, above = (values(point, at + s * step) for s in (-1, 0, 1))
        if what := _what(guard, below, here, above):
            marks[at] = Mark(at, what, guard.expr, here[0], here[1], below[1], above[1])
    return tuple(marks.values())


def _what(
    guard: Guard, below: Sequence[float], here: Sequence[float], above: Sequence[float]
) -> str:
    """What is at a guard's zero, from f, f' and f'' on both sides; nothing where all agree."""
    if any(map(math.isnan, (below[0], above[0]))):
        return "end of the range" if math.isnan(below[0]) != math.isnan(above[0]) else ""
    # A pole's value grows as its distance shrinks; so does a slope without a bound.
    if max(abs(below[0]), abs(above[0])) > 1e-2 / CLOSE:
        return "pole"
    if _differs(below[0], above[0]):
        return "jump"
    if max(abs(below[1]), abs(above[1])) > 1e3:
        return "vertical tangent" if math.isinf(here[1]) else "slope without a bound"
    if _differs(below[1], above[1]):
        return "kink"
    if _differs(here[1], below[1]):
        return "gradient differs at this point only"
    if _differs(below[2], above[2]):
        return "kink of the gradient"
    return "" if guard.kink or guard.kind == "pole" else "removable singularity, its limit taken"


def _differs(a: float, b: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) != math.isnan(b)
    return a != b and not abs(a - b) <= 1e-5 * (1 + abs(a) + abs(b))


def _curves(
    values: _Values, point: Mapping[str, float], low: float, high: float, marks: Sequence[Mark]
) -> tuple[Curve, ...]:
    width = high - low
    places = {low + width * k / COUNT for k in range(COUNT + 1)}
    steps = {mark.at: 1e-7 * max(1.0, abs(mark.at)) for mark in marks}
    for at, step in steps.items():
        places = {x for x in places if abs(x - at) > step} | {at - step, at, at + step}
    rows = [(x, values(point, x)) for x in sorted(places) if low <= x <= high]
    labels = (("f", "value"), ("f′", "gradient"), ("f″", "second derivative"))
    return tuple(
        Curve(title, label, _broken([(x, row[k]) for x, row in rows], steps))
        for k, (title, label) in enumerate(labels)
    )


def _broken(points: list[tuple[float, float]], marks: Mapping[float, float]) -> Points:
    """The points with a gap at marks where the curve jumps."""
    found = list(points)
    for k in range(1, len(points) - 1):
        at = points[k][0]
        if at in marks and _differs(round(points[k - 1][1], 4), round(points[k + 1][1], 4)):
            found[k] = (at, math.nan)
    return tuple(found)


def _reach(
    values: _Values,
    point: Mapping[str, float],
    sliders: Sequence[Slider],
    curves: Sequence[Curve],
    low: float,
    high: float,
) -> tuple[tuple[float, float], ...]:
    """The values worth showing, with every slider at its start and at its ends."""
    columns: list[list[float]] = [[y for _, y in curve.points] for curve in curves]
    places = [low + (high - low) * (k + 0.5) / 8 for k in range(8)]
    own = [central(column) for column in columns]
    for slider, end in itertools.product(sliders[:4], (0, 1)):
        there = {**point, slider.name: (slider.low, slider.high)[end]}
        rows = [values(there, x) for x in places]
        for k, column in enumerate(columns):
            # No slider makes the start hard to see.
            room = 1.5 * (own[k][1] - own[k][0])
            within = (own[k][0] - room, own[k][1] + room)
            column += [row[k] for row in rows if within[0] <= row[k] <= within[1]]
    return tuple(central(column) for column in columns)


def central(values: Sequence[float]) -> tuple[float, float]:
    """The range of the values but for those that shoot off near a pole, with some room."""
    finite = sorted(v for v in values if math.isfinite(v))
    if not finite:
        return -1.0, 1.0
    low, high = finite[0], finite[-1]
    count = len(finite)
    first, last = finite[count // 10], finite[-1 - count // 10]
    room = 3 * (last - first) or abs(last) or 1.0
    low, high = max(low, first - room), min(high, last + room)
    pad = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    return low - pad, high + pad


# --- sliders -----------------------------------------------------------------------------------

_KINDS = {
    Kind.TENSOR: "tensor",
    Kind.OPTIONAL: "optional tensor",
    Kind.LEARNABLE: "learnable",
    Kind.PER_CHANNEL: "per channel",
    Kind.FLOAT: "number",
    Kind.INT: "integer",
}


def _slider(leaf: Leaf, definition: Definition, point: Mapping[str, float]) -> Slider:
    value = point[leaf.name]
    whole = leaf.kind is Kind.INT
    if leaf.kind in TENSORS:
        low, high = min(-3.0, value), max(3.0, value)
    elif value == 0:
        low, high = -2.0, 2.0
    elif whole:
        low, high = (0 if value > 0 else value - 4), value + 4
    else:
        low, high = sorted((value / 10, value * 3))
    domain = dict(definition.options.domain).get(leaf.name)
    if domain is not None:
        first, last = (float(end) for end in ends(domain))
        low, high = max(low, first), min(high, last)
        room = (high - low) / 100
        # An end that the domain leaves out.
        low = low if contains(domain, low) else low + room
        high = high if contains(domain, high) else high - room
    return Slider(leaf.name, _KINDS[leaf.kind], value, low, high, 1 if whole else 0)


def _scripts(
    definition: Definition,
    variant: Variant,
    derivation: Derivation,
    axis: Leaf,
    sliders: Sequence[Slider],
    output: int,
) -> tuple[str, str]:
    """f, f' and f'', and what is zero at kinks, in JavaScript; empty where there is no text."""
    names = {each.name: f"p[{k}]" for k, each in enumerate(sliders)} | {axis.name: "x"}
    cotangents = [f"cotangent {j}" for j in range(len(derivation.grads))]
    names |= {name: str(int(j == output)) for j, name in enumerate(cotangents)}
    names[direction_name(axis.name)] = "1"
    program = _program(definition, variant, derivation, axis, output, cotangents)
    try:
        text = function(program, names, ["f", "slope", "bend"])
    except FormulaError:
        return "", ""
    return text, _guards(definition, variant, names)


def _program(
    definition: Definition,
    variant: Variant,
    derivation: Derivation,
    axis: Leaf,
    output: int,
    cotangents: Sequence[str],
) -> Program:
    leaves = present(definition, variant)
    inputs = [(leaf.symbol, Input(leaf.name, AXES.get(leaf.kind, frozenset()))) for leaf in leaves]
    inputs += [
        (symbol, Input(name, frozenset()))
        for symbol, name in zip(derivation.grads, cotangents, strict=True)
    ]
    symbol = axis.symbol
    assert symbol is not None
    along = direction(symbol)
    inputs.append((along, Input(direction_name(axis.name), frozenset())))
    index = derivation.variables.index(symbol)
    slope = derivation.vjp[index]
    bends: list[Expr] = []
    if slope is not None:
        terms = second_order((slope,), (symbol,), (along,), parameters_of(definition))
        bends = [term.expr for term in terms]
    results = [Result("f", derivation.forward[output]), Result("slope", slope)]
    results.append(Result("bend", bends[0] if bends else None))
    fixed = {leaf.symbol for leaf in definition.numbers if leaf.symbol}
    return lower(inputs, results, frozenset(fixed))


def _guards(definition: Definition, variant: Variant, names: Mapping[str, str]) -> str:
    leaves = present(definition, variant)
    inputs = [(leaf.symbol, Input(leaf.name, frozenset())) for leaf in leaves]
    symbols: set[Symbol] = {leaf.symbol for leaf in leaves if leaf.symbol}
    texts = []
    own = [entry for entry in variant.gradient or () if entry is not None]
    for guard in guards([*variant.outputs, *own]):
        if guard.kind != "zero" or not guard.kink or not guard.expr.free_symbols <= symbols:
            continue
        try:
            results = [Result("zero", recognise(guard.expr))]
            texts.append(function(lower(inputs, results), names, ["zero"]))
        except (FormulaError, KeyError):
            continue
    return f"[{', '.join(texts)}]"
