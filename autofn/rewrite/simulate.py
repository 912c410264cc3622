"""Programs in simulated float32 and float64 arithmetic.

The simulation rounds each operation as a machine would, subnormal and overflowing numbers included,
and lets every function be wrong by what its bound in the operation table allows. Nothing depends on
the libraries of the machine it runs on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import gmpy2
import numpy as np
from gmpy2 import mpfr
from mpmath import mp

from autofn import precise
from autofn.ops import (
    DOUBLE_DOUBLE_BOUND,
    OPS,
    QUICK_DOUBLE,
    WAVES,
    quick_double,
    quick_ulp,
)
from autofn.program import Node, Program
from autofn.rewrite import extended, machine
from autofn.rewrite.formats import DOUBLE, DOUBLE_DOUBLE, EXACT, SINGLE, Format, arithmetic, near
from autofn.rewrite.machine import Column
from autofn.rewrite.truth import FAILS, Point, constant, value_of

WORKING = 240
"""Bits of an operation before it is rounded."""

STEPWISE = frozenset({"powi", "polynomial", "fma", "sum_rest", "product_rest"})
"""What is simulated as it is computed, step by step."""

VANISHING = frozenset(
    f"{op}_of_sum" for op in ("sinc", "sincpi", "spherical_bessel", "spherical_bessel_pi")
)
"""What is 0 where its argument is infinite."""

NOTHING_LEFT = 1e30
"""What an exponent is below where no power of its size, infinite or not, makes up for its
exponential."""

PAST = {SINGLE: 200, DOUBLE: 1500, DOUBLE_DOUBLE: 1500}
EXPONENTIAL_OF_SUM = frozenset(
    op
    for op in OPS
    if op.endswith("_of_sum") and op not in WAVES | {"softplus_of_sum", "exp_within_of_sum"}
)


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


def simulated(program: Program, point: Point, form: Format = SINGLE) -> list[Any]:
    """Each output as a machine might compute it, in float32 or, by its own program, in float64."""
    (row,) = simulated_at(program, [point], form)
    return row


def simulated_at(
    program: Program, points: Sequence[Point], form: Format = SINGLE
) -> list[list[Any]]:
    """`simulated` at each point, which is quicker than point by point."""
    found = in_form(program, columns(points, [0] * len(points)), form)
    return [
        [None if column is None else _digits(column[k].item()) for column in found]
        for k in range(len(points))
    ]


def in_single(program: Program, given: Columns) -> list[Column | None]:
    """Per output its values at all points, as a float32 machine might compute them."""
    if program.tries_first:
        assert program.first is not None
        tried = in_single(program.first, given)
        found = in_single(replace(program, first=None), given)
        return [
            a if a is None or b is None else np.where(np.isfinite(a), a, b)
            for a, b in zip(tried, found, strict=True)
        ]
    if program.is_in_double or program.arithmetic == "double-double":
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
    """An operation whose results MPFR knows, at each point by itself where need be."""
    turns = _turns(index, given.seeds)
    args = [np.broadcast_to(arg, len(given)) for arg in args]
    found, known = _quickly(node.op, args, turns, form, quick)
    if known.all():
        return found
    function = _function_of_floats(node.op, node.n, form, quick)
    left = np.flatnonzero(~known)
    each = zip(*(arg[left].tolist() for arg in args), strict=True)
    with precise.in_bits(WORKING):
        rows = [function(row)[turn] for row, turn in zip(each, turns[left].tolist(), strict=True)]
    if len(rows) == len(given):
        return np.array(rows)
    found[left] = rows
    return found


def _quickly(
    op: str, args: list[Column], turns: Column, form: Format, quick: bool
) -> tuple[Column, Column]:
    """The results that are known without MPFR, and where they are."""
    if form is DOUBLE and op == "product_rest":
        return machine.product_rest_in_double(*args)
    if form is DOUBLE and op == "fma":
        return machine.fma_in_double(*args)
    if form is DOUBLE and op == "polynomial":
        return machine.polynomial_in_double(args[0], args[1:])
    if not quick or form is DOUBLE:
        relative = QUICK_DOUBLE if quick and quick_double(op) else 0.0
        found = extended.off_by(op, args, turns, form, OPS[op].ulp - 0.5, relative)
        if found is not None:
            return found
    return np.empty(len(turns)), np.zeros(len(turns), bool)


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


def _constant_in(node: Node, form: Format) -> Any:
    """A constant in a format, or what it loses there."""
    with precise.in_bits(EXACT):
        value = constant(node, precise.quick)
        if isinstance(value, bool):
            return value
        nearest = near(value, form)
        return nearest if node.op == "constant" else near(value - nearest, form)


def _looked_at(op: str, args: list[Any], form: Format) -> list[Any]:
    """The arguments as a function takes them: some do not look at what a large one lost, which is
    NaN for what has overflowed."""
    far = PAST[form]
    if (op in EXPONENTIAL_OF_SUM and abs(args[-2]) > far) or (
        (op == "softplus_of_sum" and (args[-2] < -far or not precise.is_finite(args[-2])))
        or (op in VANISHING and not precise.is_finite(args[0]))
    ):
        return [*args[:-1], mpfr(0)]
    if op in ("times_exp", "times_exp_of_sum") and args[1] < -NOTHING_LEFT:
        return [args[0] if precise.is_finite(args[0]) else mpfr(0), *args[1:]]
    return args


def _turns(index: int, seeds: Sequence[int | None]) -> Column:
    """The signs of a function's errors: any fixed choice that mixes; 0 for none."""
    return np.array([_turn(index, seed) for seed in seeds])


def _turn(index: int, seed: int | None) -> int:
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
    except FAILS:
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
        return getattr(arithmetic(form), _ROUNDED_ONCE[name])(*args)
    if name == "product_rest":
        return _minus_near(args, form)
    if name == "fma":
        return arithmetic(form).fma(*args)
    if name == "polynomial":
        t, value, *rest = args
        for term in rest:
            value = arithmetic(form).fma(value, t, term)
        return value
    if name == "powi":
        return machine.power(args[0], n or 1, lambda value: near(value, form))
    return None


def _valued(name: str, n: int | None, args: list[Any], number: precise.Make) -> tuple[Any, Any]:
    """A value, and the factor of it that is a function's. A product is rounded once; a factor of
    exactly 0 makes 0 of anything, as those functions do."""
    exactly = [arg if isinstance(arg, bool) else number(arg) for arg in args]
    if not name.startswith("times_"):
        value = precise.bounded(value_of(name, n, exactly))
        return value, value
    factor = precise.bounded(value_of(name, n, [1, *exactly[1:]]))
    return (0 if factor == 0 else exactly[0] * factor), factor


def _magnified(op: str, value: Any) -> Any:
    """What a power makes of the error of its logarithm."""
    return 1 + abs(precise.magnitude(value)) if op in ("pow", "pow1pm1") else 1


def _minus_near(factors: list[Any], form: Format) -> Any:
    """What a product loses; as in a machine, NaN where it overflows."""
    product = factors[0] * factors[1]
    nearest = near(product, form)
    return near(product - nearest, form) if gmpy2.is_finite(nearest) else mpfr("nan")
