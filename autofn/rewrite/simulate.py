"""Programs in exact and in simulated single-precision arithmetic.

The truth is a program evaluated with 400 bits. The simulation rounds each operation as a float32
machine would, subnormal and overflowing numbers included, and lets every function be wrong by what
its bound in the operation table allows. Nothing depends on the libraries of the machine it runs on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import mpmath
from mpmath import mp
from mpmath.libmp import fnan, mpf_add, mpf_div, mpf_mul, mpf_neg, mpf_pos, mpf_sub, round_nearest
from sympy import Expr

from autofn.ops import DOUBLE_DOUBLE_BOUND, OPS, QUICK_DOUBLE, quick_double, quick_ulp
from autofn.program import Node, Program
from autofn.rewrite import machine

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

WIDEST = 2**600
"""Exponents of two beyond which a number is infinite here, and 0 below its negative: exp(1e25) is
a number, of which multiples, powers and inverses are looked at."""

MANY = 100_000
"""So many constants are kept, at most."""

LARGEST = 2000
"""The same for arguments of functions: their digits cost as many bits."""

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

_FAILS = (ZeroDivisionError, ValueError, OverflowError, TypeError, mpmath.libmp.NoConvergence)


# --- exact -----------------------------------------------------------------------------------


def exact(program: Program, point: Point) -> list[Any]:
    """Each output, in arithmetic of 400 bits that knows infinities; None if absent.

    Inputs that the point lacks are 1.
    """
    found: list[Any] = []
    with mp.workprec(EXACT):
        for node in program.nodes:
            op = node.op
            if op == "input":
                found.append(mp.mpf(_given(node, point)))
            elif op == "constant":
                found.append(_exact_constant(node))
            elif op.endswith("_rest") and op != "root_rest":
                found.append(mp.zero)
            elif (quick := _QUICK.get(op)) is not None:
                # Most are these, and what they give is far from the widest.
                try:
                    raw = quick(*(found[arg]._mpf_ for arg in node.args), EXACT, round_nearest)
                    found.append(_bounded(mp.make_mpf(raw)))
                except _FAILS:
                    found.append(mp.nan)
            else:
                found.append(_exact(op, [found[arg] for arg in node.args], node.n))
    return [None if o.node is None else found[o.node] for o in program.outputs]


_QUICK: Mapping[str, Callable[..., Any]] = {
    "add": mpf_add,
    "sub": mpf_sub,
    "mul": mpf_mul,
    "div": mpf_div,
    "neg": mpf_neg,
    "square": lambda a, *how: mpf_mul(a, a, *how),
}
"""What mpmath's operators come to, without them."""

_CONSTANTS: dict[int, tuple[Node, Any]] = {}
"""By the node's identity: an expression takes longer to be told from others than to be added."""


def _exact_constant(node: Node) -> Any:
    if (known := _CONSTANTS.get(id(node))) is not None:
        return known[1]
    if len(_CONSTANTS) > MANY:
        _CONSTANTS.clear()
    value = _constant(node.constant)
    _CONSTANTS[id(node)] = node, value
    return value


@lru_cache(maxsize=10_000)
def _constant(constant: Expr | None) -> Any:
    if constant is None or constant.is_Boolean:
        return bool(constant)
    with mp.workprec(EXACT):
        if not constant.is_finite:
            return mp.mpf(float(constant)) if constant.is_extended_real else mp.nan
        return mp.mpf(constant.evalf(110)._to_mpmath(EXACT))


def _exact(op: str, args: list[Any], n: int | None) -> Any:
    try:
        if op.startswith("times_"):
            # A factor that has vanished makes 0 of anything.
            bounded = [_bounded(arg, LARGEST) for arg in args[1:]]
            factor = _bounded(_value(op, n, mp.mpf(1), *bounded))
            vanishes = factor == 0 or (args[0] == 0 and all(map(mp.isfinite, args)))
            return mp.mpf(0) if vanishes else _bounded(args[0] * factor)
        if op not in ARITHMETIC:
            args = [_bounded(arg, LARGEST) for arg in args]
        return _bounded(_value(op, n, *args))
    except _FAILS:
        return mp.nan


def _value(op: str, n: int | None, *args: Any) -> Any:
    """An operation in the working precision."""
    if OPS[op].cost < OPS["exp"].cost:
        return OPS[op].exact(*args) if n is None else OPS[op].exact(*args, n)
    if any(isinstance(arg, mp.mpf) and arg._mpf_ == fnan for arg in args):
        return mp.nan  # no two are equal: a cache of them would only grow slower
    return _function(mp.prec, op, n, args)


@lru_cache(maxsize=100_000)
def _function(precision: int, op: str, n: int | None, args: tuple[Any, ...]) -> Any:
    """Candidates, and the passes of a formula, have most of their functions in common."""
    return OPS[op].exact(*args) if n is None else OPS[op].exact(*args, n)


def _bounded(value: Any, widest: int = WIDEST) -> Any:
    if not isinstance(value, mp.mpf):
        if isinstance(value, mp.mpc):
            return mp.nan
        return mp.mpf(value) if isinstance(value, int) and not isinstance(value, bool) else value
    negative, mantissa, exponent, count = value._mpf_
    if not mantissa or -widest <= exponent + count <= widest:
        return value
    if exponent + count < 0:
        return mp.zero
    return -mp.inf if negative else mp.inf


# --- simulated -------------------------------------------------------------------------------


def simulated(program: Program, point: Point, seed: int | None = 0) -> list[Any]:
    """Each output as a float32 machine might compute it; `seed` turns the errors of functions.

    None: they are only rounded.
    """
    if program.arithmetic in ("quick double", "double"):
        return _in_double(program, point, seed)
    found = _in_format(program, point, seed, SINGLE)
    wary = program.arithmetic == "wary"
    doubts = [is_in_doubt(value, wary=wary) for value in found]
    if program.arithmetic in ("quick", "single") or not any(doubts):
        return found
    again = _in_double(program, point, seed)
    return [
        w if doubt and (v != 0 or is_in_doubt(w, wary=wary)) else v
        for v, w, doubt in zip(found, again, doubts, strict=True)
    ]


def is_extreme(value: Any) -> bool:
    """Whether a result's parts may be subnormal, or have overflowed."""
    return value is not None and value != 0 and abs(mp.mag(value)) >= 100


def is_in_doubt(value: Any, *, wary: bool = False) -> bool:
    """Whether a result of the first try is computed again in double: `doubt` of `ops`.

    wary: `doubt_or_zero`. What is 0 and should not even be small is no case for that: beside it
    results have a few of their digits, and are not found out.
    """
    if value is None or value == 0:
        return wary and value is not None
    return not mp.isfinite(value) or bool(mp.mag(value) <= (-64 if wary else -100))


def _in_double(program: Program, point: Point, seed: int | None) -> list[Any]:
    found = _in_format(program, point, seed, DOUBLE)
    return [value if value is None else rounded(value) for value in found]


def _in_format(
    program: Program, point: Point, seed: int | None, form: Format, given: Format = SINGLE
) -> list[Any]:
    """given: what the inputs are numbers of. Functions in double are quick for float32 alone."""
    quick = program.arithmetic in ("quick", "quick double") and given is SINGLE
    of_format = _in_digits if form is DOUBLE_DOUBLE else _in_floats
    with mp.workprec(WORKING):
        return of_format(program, point, seed, form, given, quick)


def _in_digits(
    program: Program, point: Point, seed: int | None, form: Format, given: Format, quick: bool
) -> list[Any]:
    """Each output, of numbers of any precision that are rounded."""
    found: list[Any] = []
    for index, node in enumerate(program.nodes):
        if node.op == "input":
            found.append(rounded(mp.mpf(_given(node, point)), given))
        elif node.op in ("constant", "constant_rest"):
            found.append(_constant_in(node, form))
        else:
            args = _looked_at(node.op, [found[arg] for arg in node.args], form)
            found.append(_simulated(node.op, node.n, args, _turn(index, seed), form, quick))
    return [None if o.node is None else found[o.node] for o in program.outputs]


def _in_floats(
    program: Program, point: Point, seed: int | None, form: Format, given: Format, quick: bool
) -> list[Any]:
    """The same of float32 and float64, on floats where an operation is no function."""
    found: list[machine.Value] = []
    nearest = machine.single if form is SINGLE else machine.same
    for index, node in enumerate(program.nodes):
        value: machine.Value
        if node.op == "input":
            value = _given(node, point)
            value = machine.single(value) if given is SINGLE else value
        elif node.op in ("constant", "constant_rest"):
            value = _float(_constant_in(node, form))
        else:
            args = [found[arg] for arg in node.args]
            computed = _native(node, args, form, nearest)
            if computed is None:
                turn = _turn(index, seed)
                computed = _function_of_floats(node.op, node.n, tuple(args), turn, form, quick)
            value = computed
        found.append(value)
    return [None if o.node is None else _digits(found[o.node]) for o in program.outputs]


def _digits(value: machine.Value) -> Any:
    return value if isinstance(value, bool) else mp.mpf(value)


@lru_cache(maxsize=200_000)
def _function_of_floats(
    op: str, n: int | None, args: tuple[machine.Value, ...], turn: int, form: Format, quick: bool
) -> machine.Value:
    """`_simulated`; most candidates ask for most of the functions that others have asked for."""
    exactly = [_digits(arg) for arg in args]
    return _float(_simulated(op, n, _looked_at(op, exactly, form), turn, form, quick))


def _native(
    node: Node,
    args: list[Any],
    form: Format,
    nearest: Callable[[float], float],
) -> machine.Value | None:
    """What an operation gives on floats; None where it is not computed on them."""
    try:
        if (native := machine.NATIVE.get(node.op)) is not None:
            value = native(*args)
            return value if isinstance(value, bool) else nearest(value)
        if node.op == "powi":
            return float(machine.power(args[0], node.n or 1, nearest))
        if node.op == "sum_rest":
            return machine.sum_rest(args[0], args[1], nearest)
        if form is SINGLE:
            if node.op == "fma":
                return machine.fma(*args)
            if node.op == "polynomial":
                return machine.polynomial(args[0], args[1 + (node.n or 0) :])
            if node.op == "product_rest":
                return machine.product_rest(*args)
    except (ZeroDivisionError, ValueError, OverflowError):
        return math.nan
    return None


def _given(node: Node, point: Point) -> float:
    assert node.input is not None
    return point.get(node.input, 1.0)


def _constant_in(node: Node, form: Format) -> Any:
    """A constant in a format, or what it loses there."""
    value = _exact_constant(node)
    if isinstance(value, bool):
        return value
    near = rounded(value, form)
    return near if node.op == "constant" else rounded(value - near, form)


def _looked_at(op: str, args: list[Any], form: Format) -> list[Any]:
    """The arguments as a function takes them: some do not look at what a large one lost, which is
    NaN for what has overflowed."""
    far = PAST[form]
    if (op in EXPONENTIAL_OF_SUM and abs(args[-2]) > far) or (
        op == "softplus_of_sum" and args[-2] < -far
    ):
        return [*args[:-1], mp.zero]
    return args


def _float(value: Any) -> machine.Value:
    return value if isinstance(value, bool) else float(value)


def rounded(value: Any, form: Format = SINGLE) -> Any:
    """The nearest number of a format, ties to even; infinite beyond the largest."""
    _, mantissa, exponent, count = value._mpf_
    if not mantissa:
        return value
    top = exponent + count
    if top > form.top:
        return mp.inf if value > 0 else -mp.inf
    bits = min(form.bits, top - form.least)
    if count <= bits:
        return value
    if bits < 0:
        return mp.zero
    if bits == 0:
        # Between a half and one times the least subnormal: a tie goes to 0.
        up = mantissa != 1
        least = mp.ldexp(1, form.least)
        return (least if value > 0 else -least) if up else mp.zero
    near = mp.make_mpf(mpf_pos(value._mpf_, bits, round_nearest))
    over = top == form.top and mp.mag(near) > top
    return (mp.inf if value > 0 else -mp.inf) if over else near


def spacing(value: Any, form: Format = SINGLE) -> Any:
    """One unit in the last place of a number of this size."""
    return mp.ldexp(1, max(mp.mag(value) - form.bits, form.least) if value else form.least)


def _turn(index: int, seed: int | None) -> int:
    """The sign of a function's error: any fixed choice that mixes; 0 for none."""
    if seed is None:
        return 0
    return 1 if ((index * 2654435761 + seed * 40503) >> 7) & 1 else -1


def _simulated(
    name: str, n: int | None, args: list[Any], turn: int, form: Format, quick: bool
) -> Any:
    op = OPS[name]
    try:
        if name == "product_rest":
            return _minus_rounded(mp.fmul(*args, exact=True), form)
        if name == "fma":
            a, b, c = args
            return rounded(mp.fadd(mp.fmul(a, b, exact=True), c, exact=True), form)
        if name == "polynomial":
            return _polynomial(args, form)
        if name == "powi":
            return machine.power(args[0], n or 1, lambda value: rounded(value, form))
        if name.startswith("times_sech2") and mp.mag(args[0]) > form.top - 2:
            return mp.inf if args[0] > 0 else -mp.inf  # four times that is formed first
        if name.startswith("times_"):
            # Rounded once; a factor of exactly 0 makes 0 of anything, as those functions do.
            factor = _value(name, n, mp.mpf(1), *args[1:])
            value = mp.zero if factor == 0 else args[0] * factor
        else:
            value = factor = _value(name, n, *args)
    except _FAILS:
        return mp.nan
    if isinstance(value, bool):
        return value
    if not isinstance(value, mp.mpf):
        value = mp.mpf(value) if isinstance(value, int) else mp.nan
    inexact = op.ulp > 0.5 and mp.isfinite(value) and mp.mag(value) > form.least
    if inexact and value != rounded(value, form):
        value += turn * (op.ulp - 0.5) * spacing(value, form)
        if form is DOUBLE_DOUBLE:
            value += turn * DOUBLE_DOUBLE_BOUND * value * _magnified(name, value)
        elif quick and form is DOUBLE:
            value += turn * QUICK_DOUBLE * value if quick_double(name) else 0
        elif quick:
            value += turn * quick_ulp(name, factor) * mp.ldexp(1, mp.mag(value) - form.bits)
    return rounded(value, form)


def _magnified(op: str, value: Any) -> Any:
    """What a power makes of the error of its logarithm."""
    return 1 + abs(mp.mag(value)) if op in ("pow", "pow1pm1") else 1


def _polynomial(args: list[Any], form: Format) -> Any:
    """In double and beyond; in single precision, with fewer terms, it is `machine`'s."""
    t, value, *rest = args
    for term in rest:
        value = rounded(mp.fadd(mp.fmul(value, t, exact=True), term, exact=True), form)
    return value


def _minus_rounded(value: Any, form: Format) -> Any:
    near = rounded(value, form)
    # As in a machine: what an overflowing product lost is not a number.
    return rounded(mp.fsub(value, near, exact=True), form) if mp.isfinite(near) else mp.nan


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

LOST = 2.0**20
"""ULPs beyond which a result has lost its digits."""


@dataclass(frozen=True)
class Sample:
    """Points, and per point the truth of each output; None where it is not judged."""

    points: tuple[Point, ...]
    truths: tuple[tuple[Any, ...], ...]


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


def error(
    program: Program,
    sample: Sample,
    order: Iterable[int] | None = None,
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
    for index in range(len(sample.points)) if order is None else order:
        for off in _errors(program, sample, index, form, mild=mild):
            if off > LOST:
                bad += 1
                number = index if bad == 1 else number
            elif off > worst:
                worst, number = off, number if bad else index
        if best and (bad > best.bad or (bad == best.bad and worst > HOPELESS * best.ulp)):
            return Error(bad, worst, _at(sample, number), number, whole=False)
    return Error(bad, worst, _at(sample, number), number)


def worst(
    program: Program, sample: Sample, many: int, *, mild: bool = False
) -> tuple[Error, list[Point]]:
    """The error of a program, and so many points where it is largest."""
    rows = [list(_errors(program, sample, k, SINGLE, mild=mild)) for k in range(len(sample.points))]
    order = sorted(range(len(rows)), key=lambda k: -max(rows[k], default=0.0))
    every = [off for row in rows for off in row]
    bad, ulp = sum(off > LOST for off in every), max((o for o in every if o <= LOST), default=0.0)
    number = order[0] if order else None
    return Error(bad, ulp, _at(sample, number), number), [sample.points[k] for k in order[:many]]


def _errors(
    program: Program, sample: Sample, index: int, form: Format, *, mild: bool = False
) -> Iterator[float]:
    """Of the outputs at a point."""
    if form is SINGLE:
        values = simulated(program, sample.points[index], None if mild else index)
    elif program.arithmetic == "double-double":
        seed = None if mild else index
        found = _in_format(program, sample.points[index], seed, DOUBLE_DOUBLE, form)
        values = [value if value is None else rounded(value, form) for value in found]
    else:
        values = _in_format(program, sample.points[index], None if mild else index, form, form)
    point = sample.points[index]
    sizes = [abs(point[each.name]) for each in program.inputs if each.name in point]
    ordinary = all(ORDINARY[0] < size < ORDINARY[1] for size in sizes)
    for value, truth in zip(values, sample.truths[index], strict=True):
        if truth is not None and value is not None:
            # Terms that cancel to the last digit: what is left of them is none to be counted.
            yield (
                0.0 if truth == 0 and ordinary and mp.isfinite(value) else _off(value, truth, form)
            )


def is_within(program: Program, sample: Sample, limits: Sequence[tuple[Format, float]]) -> bool:
    """Whether each output is nowhere off by more than its limit, in units of its format."""
    return all(
        value is None
        or truth is None
        or not mp.isfinite(rounded(truth, form))
        or _off(value, truth, form) <= limit
        for index, point in enumerate(sample.points)
        for value, truth, (form, limit) in zip(
            simulated(program, point, index), sample.truths[index], limits, strict=True
        )
    )


def _off(value: Any, truth: Any, form: Format = SINGLE) -> float:
    if not mp.isfinite(value):
        return float("inf")
    with mp.workprec(EXACT):
        return float(abs(value - truth) / spacing(truth, form))


def _at(sample: Sample, number: int | None) -> tuple[tuple[str, float], ...]:
    return () if number is None else tuple(sorted(sample.points[number].items()))
