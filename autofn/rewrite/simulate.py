"""Programs in exact and in simulated single-precision arithmetic.

The truth is a program evaluated with 400 bits. The simulation rounds each operation as a float32
machine would, subnormal and overflowing numbers included, and lets every function be wrong by what
its bound in the operation table allows. Nothing depends on the libraries of the machine it runs on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

import gmpy2
import numpy as np
from gmpy2 import mpfr
from mpmath import mp
from mpmath.libmp import NoConvergence
from sympy import Expr

from autofn import precise
from autofn.ops import DOUBLE_DOUBLE_BOUND, OPS, QUICK_DOUBLE, quick_double, quick_ulp
from autofn.program import Node, Program
from autofn.rewrite import machine
from autofn.rewrite.machine import Column

EXACT = 400
WORKING = 240
"""Bits: of the truth, and of an operation before it is rounded."""


@dataclass(frozen=True)
class Format:
    """Significant bits, the exponent of the least subnormal, and of the first overflow."""

    bits: int
    least: int
    top: int


SINGLE = Format(24, -149, 128)
DOUBLE = Format(53, -1074, 1024)
DOUBLE_DOUBLE = Format(98, -1074, 1024)
BFLOAT16 = Format(8, -133, 128)
FLOAT16 = Format(11, -24, 16)

MANY = 100_000
"""So many constants are kept, at most."""

LARGEST = 2000
"""Exponents of two beyond which arguments of functions are infinite, and 0 below its negative:
their digits cost as many bits."""

ARITHMETIC = frozenset(
    "abs add sub mul div neg square powi fma polynomial select max min relu clamp sign "
    "eq ne lt le gt ge sqrt rsqrt log root_sum floor ceil".split()
)
"""What takes an argument of any size."""

STEPWISE = frozenset({"powi", "polynomial", "fma", "sum_rest", "product_rest"})
"""What is simulated as it is computed, step by step."""

PAST = {SINGLE: 200, DOUBLE: 1500, DOUBLE_DOUBLE: 1500}
EXPONENTIAL_OF_SUM = frozenset(
    op
    for op in OPS
    if op.endswith("_of_sum") and op not in ("sin_of_sum", "cos_of_sum", "softplus_of_sum")
)

Point = Mapping[str, float]

_FAILS = (ZeroDivisionError, ValueError, OverflowError, TypeError, NoConvergence)


# --- exact -----------------------------------------------------------------------------------


def exact(program: Program, point: Point) -> list[Any]:
    """Each output, in arithmetic of 400 bits that knows infinities; None if absent.

    Inputs that the point lacks are 1.
    """
    found: list[Any] = precise.evaluated(
        EXACT, lambda number: [_or_none(each) for each in _outputs(program, point, number)]
    )
    return found


def _or_none(value: Any) -> Any:
    return value if value is None or isinstance(value, bool) else precise.wide(value)


def _outputs(program: Program, point: Point, number: precise.Make) -> list[Any]:
    found: list[Any] = []
    for node in program.nodes:
        op = node.op
        if op == "input":
            found.append(number(_given(node, point)))
        elif op == "constant":
            found.append(_constant(node, number))
        elif op.endswith("_rest") and op != "root_rest":
            found.append(number(0))
        else:
            args = [found[arg] for arg in node.args]
            try:
                plain = _PLAIN.get(op)
                value = _exact(op, args, node.n) if plain is None else plain(*args)
            except _FAILS:
                value = math.nan
            if not isinstance(value, mpfr):
                value = precise.bounded(number(value) if type(value) in (int, float) else value)
            found.append(value)
    return [None if o.node is None else found[o.node] for o in program.outputs]


_PLAIN: Mapping[str, Callable[..., Any]] = {
    name: OPS[name].exact
    for name in "abs add sub mul div neg square fma select max min relu eq ne lt le gt ge".split()
}
"""Most of what programs do, without a look at what `_exact` looks at."""


_CONSTANTS: dict[tuple[int, precise.Make], tuple[Node, Any]] = {}
"""By the node's identity: an expression takes longer to be told from others than to be added."""


def _constant(node: Node, number: precise.Make) -> Any:
    if (known := _CONSTANTS.get((id(node), number))) is not None:
        return known[1]
    if len(_CONSTANTS) > MANY:
        _CONSTANTS.clear()
    value = _value_of(node.constant)
    value = value if isinstance(value, bool) else number(value)
    _CONSTANTS[id(node), number] = node, value
    return value


@lru_cache(maxsize=10_000)
def _value_of(constant: Expr | None) -> Any:
    if constant is None or constant.is_Boolean:
        return bool(constant)
    with mp.workprec(EXACT):
        if not constant.is_finite:
            return mp.mpf(float(constant)) if constant.is_extended_real else mp.nan
        return mp.mpf(constant.evalf(110)._to_mpmath(EXACT))


def _exact(op: str, args: list[Any], n: int | None) -> Any:
    if op in ARITHMETIC:
        return _value(op, n, args)
    args = [precise.bounded(arg, LARGEST) for arg in args]
    if not op.startswith("times_"):
        return _value(op, n, args)
    # A factor that has vanished makes 0 of anything.
    value, *others = args
    factor = precise.bounded(_value(op, n, [1, *others]))
    vanishes = factor == 0 or (value == 0 and all(map(precise.is_finite, others)))
    return 0 if vanishes else value * factor


def _value(op: str, n: int | None, args: list[Any]) -> Any:
    """An operation in the working precision."""
    exactly = OPS[op].exact
    if OPS[op].cost < OPS["exp"].cost:
        return exactly(*args) if n is None else exactly(*args, n)
    if any(arg != arg for arg in args):
        return math.nan  # no two are equal: a cache of them would only grow slower
    return _function(precise.precision_of(args[-1]), op, n, tuple(args))


@lru_cache(maxsize=100_000)
def _function(precision: object, op: str, n: int | None, args: tuple[Any, ...]) -> Any:
    """Candidates, and the passes of a formula, have most of their functions in common."""
    exactly = OPS[op].exact
    return exactly(*args) if n is None else exactly(*args, n)


# --- simulated -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Columns:
    """Points, an array per input.

    seeds: which turn the errors of functions at each; None: functions are only rounded.
    """

    values: Mapping[str, np.ndarray]
    seeds: tuple[int | None, ...]

    def __len__(self) -> int:
        return len(self.seeds)

    def at(self, numbers: Sequence[int]) -> Columns:
        values = {name: column[[*numbers]] for name, column in self.values.items()}
        return Columns(values, tuple(self.seeds[k] for k in numbers))


def columns(points: Sequence[Point], seeds: Sequence[int | None]) -> Columns:
    names = dict.fromkeys(name for point in points for name in point)
    values = {name: np.array([float(p.get(name, 1.0)) for p in points]) for name in names}
    return Columns(values, tuple(seeds))


def simulated(program: Program, point: Point) -> list[Any]:
    """Each output as a float32 machine might compute it."""
    found = in_single(program, columns([point], [0]))
    return [None if column is None else _digits(column[0].item()) for column in found]


def in_single(program: Program, given: Columns) -> list[Column | None]:
    """Per output its values at all points, as a float32 machine might compute them."""
    if program.arithmetic in ("quick double", "double"):
        return _in_double(program, given)
    found = _in_floats(program, given, SINGLE, SINGLE)
    if program.arithmetic in ("quick", "single"):
        return found
    wary = program.arithmetic == "wary"
    doubts = [None if values is None else _doubts(values, wary=wary) for values in found]
    anywhere = np.any([each for each in doubts if each is not None], axis=0)
    if not np.any(anywhere):
        return found
    numbers = np.flatnonzero(anywhere)
    for values, doubt, again in zip(
        found, doubts, _in_double(program, given.at(numbers.tolist())), strict=True
    ):
        if values is not None and doubt is not None and again is not None:
            here = doubt[numbers] & ((values[numbers] != 0) | _doubts(again, wary=wary))
            values[numbers[here]] = again[here]
    return found


def is_extreme(value: Any) -> bool:
    """Whether a result's parts may be subnormal, or have overflowed."""
    return value is not None and value != 0 and abs(mp.mag(value)) >= 100


def is_in_doubt(value: Any) -> bool:
    """Whether a result of the first try is computed again in double: `doubt` of `ops`."""
    return bool(value != 0 and (not mp.isfinite(value) or mp.mag(value) <= -100))


def _doubts(values: Column, *, wary: bool) -> Column:
    """`is_in_doubt` of many.

    wary: `doubt_or_zero`. What is 0 and should not even be small is no case for that: beside it
    results have a few of their digits, and are not found out.
    """
    sizes = np.abs(values)
    small = sizes < 2.0**-64 if wary else (sizes < 2.0**-100) & (sizes != 0)
    return np.logical_or(small, ~np.isfinite(values))


def _in_double(program: Program, given: Columns) -> list[Column | None]:
    found = _in_floats(program, given, DOUBLE, SINGLE)
    with np.errstate(all="ignore"):
        return [None if values is None else machine.single(values) for values in found]


def in_form(program: Program, given: Columns, form: Format) -> list[Column | None]:
    """The same of a format, as its own programs compute it."""
    if form is SINGLE:
        return in_single(program, given)
    if program.arithmetic != "double-double":
        return _in_floats(program, given, form, form)
    with precise.in_bits(WORKING):
        rows = [_in_digits(program, given.at([k]), form) for k in range(len(given))]
    return [
        None if output.node is None else np.array([row[k] for row in rows])
        for k, output in enumerate(program.outputs)
    ]


def _in_digits(program: Program, given: Columns, form: Format) -> list[float | None]:
    """Each output at one point, in double-double numbers."""
    found: list[Any] = []
    (seed,) = given.seeds
    for index, node in enumerate(program.nodes):
        if node.op == "input":
            found.append(near(mpfr(_column(node, given).item(0), WORKING), form))
        elif node.op in ("constant", "constant_rest"):
            found.append(_constant_in(node, DOUBLE_DOUBLE))
        else:
            args = [found[arg] for arg in node.args]
            turns = (_turn(index, seed),)
            found += _simulated(node.op, node.n, args, turns, DOUBLE_DOUBLE, quick=False)
    return [None if o.node is None else float(near(found[o.node], form)) for o in program.outputs]


def _column(node: Node, given: Columns) -> Column:
    assert node.input is not None
    return given.values.get(node.input, np.ones(len(given)))


def _in_floats(
    program: Program, given: Columns, form: Format, inputs: Format
) -> list[Column | None]:
    """Each output at all points, in float32 or float64; inputs: what those are numbers of."""
    found: list[Column] = []
    # Functions in double are quick for float32 alone.
    quick = program.arithmetic in ("quick", "quick double") and inputs is SINGLE
    nearest = machine.single if form is SINGLE else machine.same
    with np.errstate(all="ignore"):
        for index, node in enumerate(program.nodes):
            if node.op == "input":
                value = _column(node, given)
                value = machine.single(value) if inputs is SINGLE else value
            elif node.op in ("constant", "constant_rest"):
                value = np.asarray(_float(_constant_in(node, form)))
            else:
                args = [found[arg] for arg in node.args]
                native = _native(node, args, form, nearest)
                value = (
                    _of_each(node, index, args, given, form, quick) if native is None else native
                )
            found.append(value)
    count = len(given)
    return [
        None if o.node is None else np.array(np.broadcast_to(found[o.node], count))
        for o in program.outputs
    ]


def _native(
    node: Node, args: list[Column], form: Format, nearest: Callable[[Column], Column]
) -> Column | None:
    """What an operation gives on arrays of floats; None where it is not computed on them."""
    if (native := machine.NATIVE.get(node.op)) is not None:
        value = native(*args)
        return value if value.dtype == bool else nearest(value)
    if node.op == "powi":
        powers: Column = machine.power(args[0], node.n or 1, nearest)
        return powers
    if node.op == "sum_rest":
        return machine.sum_rest(args[0], args[1], nearest)
    if form is SINGLE:
        if node.op == "fma":
            return machine.fma(*args)
        if node.op == "polynomial":
            return machine.polynomial(args[0], args[1 + (node.n or 0) :])
        if node.op == "product_rest":
            return machine.product_rest(*args)
    return None


def _of_each(
    node: Node, index: int, args: list[Column], given: Columns, form: Format, quick: bool
) -> Column:
    """An operation at each point by itself."""
    function = _function_of_floats(node.op, node.n, form, quick)
    each = zip(*(np.broadcast_to(arg, len(given)).tolist() for arg in args), strict=True)
    rows = zip(each, given.seeds, strict=True)
    with precise.in_bits(WORKING):
        return np.array([function(row)[_turn(index, seed)] for row, seed in rows])


@cache
def _function_of_floats(
    op: str, n: int | None, form: Format, quick: bool
) -> Callable[[tuple[float, ...]], list[float | bool]]:
    """`_simulated` by its turn; most candidates ask for most of the functions that others have."""

    @lru_cache(maxsize=20_000)
    def function(args: tuple[float, ...]) -> list[float | bool]:
        digits = [arg if isinstance(arg, bool) else mpfr(arg, WORKING) for arg in args]
        return [*map(_float, _simulated(op, n, digits, (0, 1, -1), form, quick))]

    return function


def _digits(value: float | bool) -> Any:
    return value if isinstance(value, bool) else mp.mpf(value)


def _float(value: Any) -> float | bool:
    return value if isinstance(value, bool) else float(value)


def _given(node: Node, point: Point) -> float:
    assert node.input is not None
    return point.get(node.input, 1.0)


def _constant_in(node: Node, form: Format) -> Any:
    """A constant in a format, or what it loses there."""
    with precise.in_bits(EXACT):
        value = _constant(node, precise.quick)
        if isinstance(value, bool):
            return value
        nearest = near(value, form)
        return nearest if node.op == "constant" else near(value - nearest, form)


def _looked_at(op: str, args: list[Any], form: Format) -> list[Any]:
    """The arguments as a function takes them: some do not look at what a large one lost, which is
    NaN for what has overflowed."""
    far = PAST[form]
    if (op in EXPONENTIAL_OF_SUM and abs(args[-2]) > far) or (
        op == "softplus_of_sum" and args[-2] < -far
    ):
        return [*args[:-1], mpfr(0)]
    return args


def near(value: Any, form: Format) -> Any:
    """The nearest number of a format, ties to even; infinite beyond the largest. Of MPFR's."""
    return _arithmetic(form).plus(value)


def rounded(value: Any, form: Format = SINGLE) -> Any:
    """`near` of mpmath's numbers."""
    return precise.wide(near(_of_mpfr(value), form))


def _of_mpfr(value: Any) -> Any:
    with precise.in_bits(EXACT):
        return precise.quick(value)


def _turn(index: int, seed: int | None) -> int:
    """The sign of a function's error: any fixed choice that mixes; 0 for none."""
    if seed is None:
        return 0
    return 1 if ((index * 2654435761 + seed * 40503) >> 7) & 1 else -1


def _simulated(
    name: str, n: int | None, args: list[Any], turns: Sequence[int], form: Format, quick: bool
) -> list[Any]:
    """An operation of a format's numbers, per sign of its error, in MPFR's working precision."""
    try:
        stepwise = _stepwise(name, n, args, form)
    except ZeroDivisionError:
        stepwise = mpfr("nan")
    if stepwise is not None:
        return [stepwise] * len(turns)
    args = _looked_at(name, args, form)
    if (
        name.startswith("times_sech2")
        and precise.is_finite(args[0])
        and args[0]
        and (precise.magnitude(args[0]) > form.top - 2)
    ):
        # Four times that is formed first.
        return [mpfr("inf") if args[0] > 0 else mpfr("-inf")] * len(turns)
    try:
        value, factor = precise.evaluated(WORKING, lambda number: _valued(name, n, args, number))
    except _FAILS:
        return [mpfr("nan")] * len(turns)
    if isinstance(value, bool):
        return [value] * len(turns)
    value = precise.quick(value)
    nearest = near(value, form)
    inexact = OPS[name].ulp > 0.5 and value != nearest and gmpy2.is_finite(value)
    if not inexact or (size := precise.magnitude(value)) <= form.least:
        return [nearest] * len(turns)
    off = (OPS[name].ulp - 0.5) * precise.power_of_two(max(size - form.bits, form.least))
    if form is DOUBLE_DOUBLE:
        off += DOUBLE_DOUBLE_BOUND * abs(value) * _magnified(name, value)
    elif quick and form is DOUBLE:
        off += QUICK_DOUBLE * abs(value) if quick_double(name) else 0
    elif quick:
        off += quick_ulp(name, factor) * precise.power_of_two(size - form.bits)
    return [near(value + turn * off, form) for turn in turns]


_ROUNDED_ONCE = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "neg": "minus"}
"""Operations, and what MPFR calls them."""


def _stepwise(name: str, n: int | None, args: list[Any], form: Format) -> Any:
    """An operation that is computed as a machine does; None of another."""
    if name in _ROUNDED_ONCE:
        return getattr(_arithmetic(form), _ROUNDED_ONCE[name])(*args)
    if name == "product_rest":
        return _minus_near(args, form)
    if name == "fma":
        return _arithmetic(form).fma(*args)
    if name == "polynomial":
        t, value, *rest = args
        for term in rest:
            value = _fma(value, t, term, form)
        return value
    if name == "powi":
        return machine.power(args[0], n or 1, lambda value: near(value, form))
    return None


def _fma(a: Any, b: Any, c: Any, form: Format) -> Any:
    return _arithmetic(form).fma(a, b, c)


def _arithmetic(form: Format) -> Any:
    """Operations that are rounded to a format once."""
    return precise.context(form.bits, form.least, form.top)


def _valued(name: str, n: int | None, args: list[Any], number: precise.Make) -> tuple[Any, Any]:
    """A value, and the factor of it that is a function's. A product is rounded once; a factor of
    exactly 0 makes 0 of anything, as those functions do."""
    exactly = [arg if isinstance(arg, bool) else number(arg) for arg in args]
    if not name.startswith("times_"):
        value = precise.bounded(_value(name, n, exactly))
        return value, value
    factor = precise.bounded(_value(name, n, [1, *exactly[1:]]))
    return (0 if factor == 0 else exactly[0] * factor), factor


def _magnified(op: str, value: Any) -> Any:
    """What a power makes of the error of its logarithm."""
    return 1 + abs(precise.magnitude(value)) if op in ("pow", "pow1pm1") else 1


def _minus_near(factors: list[Any], form: Format) -> Any:
    """What a product loses; as in a machine, NaN where it overflows."""
    product = factors[0] * factors[1]
    nearest = near(product, form)
    return near(product - nearest, form) if gmpy2.is_finite(nearest) else mpfr("nan")


# --- errors ----------------------------------------------------------------------------------


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
    value = _of_mpfr(truth)
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
