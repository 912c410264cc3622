"""The truth: programs in arithmetic of 400 bits that knows infinities."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from gmpy2 import mpfr
from mpmath import mp
from mpmath.libmp import NoConvergence
from sympy import Expr

from autofn import precise
from autofn.ops import OPS, WAVES
from autofn.program import Node, Program
from autofn.rewrite.formats import EXACT

Point = Mapping[str, float]

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

_TURNS = WAVES | {"tan"}
"""What depends on the remainder by pi."""

RESTS = frozenset(("sum_rest", "product_rest", "constant_rest"))
"""What is lost in rounding."""

FAILS = (ZeroDivisionError, ValueError, OverflowError, TypeError, NoConvergence)


def exact(program: Program, point: Point) -> list[Any]:
    """Each output, in arithmetic of 400 bits that knows infinities; None if absent.

    Inputs that the point lacks are 1.
    """
    found: list[Any] = precise.evaluated(
        EXACT, lambda number: _rows(program, _columns(program, [point], number), 1)[0]
    )
    return found


def exact_at(program: Program, points: Sequence[Point]) -> list[list[Any]]:
    """`exact` at each point: operation by operation, which is quicker than point by point."""
    lost: set[int] = set()
    with precise.in_bits(EXACT):
        columns = _columns(program, points, precise.quick, lost)
    rows = _rows(program, columns, len(points))
    if lost:
        with mp.workprec(EXACT):
            columns = _columns(program, [points[k] for k in lost], precise.wide)
            for k, row in zip(lost, _rows(program, columns, len(lost)), strict=True):
                rows[k] = row
    return rows


def _rows(program: Program, columns: list[list[Any]], count: int) -> list[list[Any]]:
    """Per point each output, of the columns of all nodes."""
    outputs = [
        [None] * count if o.node is None else [*map(_widened, columns[o.node])]
        for o in program.outputs
    ]
    return [[column[k] for column in outputs] for k in range(count)]


def _widened(value: Any) -> Any:
    return value if isinstance(value, bool) else precise.wide(value)


def _columns(
    program: Program, points: Sequence[Point], number: precise.Make, lost: set[int] | None = None
) -> list[list[Any]]:
    """Per node its values at the points.

    lost: takes the points at which MPFR has no exponent for a value, which is an error else.
    """
    found: list[list[Any]] = []
    for node in program.nodes:
        if node.op in RESTS:
            column = [number(0)] * len(points)
        elif not node.args:
            if node.input:
                column = [number(_given(node, point)) for point in points]
            else:
                column = [_real(node, number)] * len(points)
            found.append(column)
            continue
        else:
            args = [found[arg] for arg in node.args]
            function = _PLAIN.get(node.op) or partial(_exact, node.op, node.n)
            column = _each(function, args, lost)
        if {*map(type, column)} != {mpfr}:
            column = [value if type(value) is mpfr else _settled(value, number) for value in column]
        found.append(column)
    return found


def _real(node: Node, number: precise.Make) -> Any:
    """A constant; NaN if it is no real number."""
    try:
        return constant(node, number)
    except FAILS:
        return number(math.nan)


def _each(function: Callable[..., Any], args: list[list[Any]], lost: set[int] | None) -> list[Any]:
    """The function's values; NaN where it has none."""
    try:
        return [*map(function, *args)]
    except (*FAILS, *precise.OUT_OF_RANGE):  # then one by one
        column = []
    for k, each in enumerate(zip(*args, strict=True)):
        try:
            value = function(*each)
        except FAILS:
            value = math.nan
        except precise.OUT_OF_RANGE:
            if lost is None:
                raise
            lost.add(k)
            value = math.nan
        column.append(value)
    return column


def _settled(value: Any, number: precise.Make) -> Any:
    return precise.bounded(number(value) if type(value) in (int, float) else value)


_PLAIN: Mapping[str, Callable[..., Any]] = {
    name: OPS[name].exact
    for name in "abs add sub mul div neg square fma select max min relu eq ne lt le gt ge".split()
}
"""Most of what programs do, without a look at what `_exact` looks at."""


_CONSTANTS: dict[tuple[int, precise.Make], tuple[Node, Any]] = {}
"""By the node's identity: an expression takes longer to be told from others than to be added."""


def constant(node: Node, number: precise.Make) -> Any:
    if (known := _CONSTANTS.get((id(node), number))) is not None:
        return known[1]
    if len(_CONSTANTS) > MANY:
        _CONSTANTS.clear()
    value = _exactly(node.constant)
    value = value if isinstance(value, bool) else number(value)
    _CONSTANTS[id(node), number] = node, value
    return value


@lru_cache(maxsize=10_000)
def _exactly(constant: Expr | None) -> Any:
    if constant is None or constant.is_Boolean:
        return bool(constant)
    with mp.workprec(EXACT):
        if not constant.is_finite:
            return mp.mpf(float(constant)) if constant.is_extended_real else mp.nan
        return mp.mpf(constant.evalf(110)._to_mpmath(EXACT))


def _exact(op: str, n: int | None, *args: Any) -> Any:
    if op in ARITHMETIC:
        return value_of(op, n, args)
    # MPFR has large numbers at no price but that of their remainder by pi.
    limited = precise.infinite_beyond if op in _TURNS else precise.bounded
    if not op.startswith("times_"):
        return value_of(op, n, [limited(arg, LARGEST) for arg in args])
    # It is only multiplied. A factor that has vanished makes 0 of anything.
    value, *others = args
    others = [limited(arg, LARGEST) for arg in others]
    factor = precise.bounded(value_of(op, n, [1, *others]))
    vanishes = factor == 0 or (value == 0 and all(map(precise.is_finite, others)))
    return 0 if vanishes else value * factor


def value_of(op: str, n: int | None, args: Sequence[Any]) -> Any:
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


def _given(node: Node, point: Point) -> float:
    assert node.input is not None
    return point.get(node.input, 1.0)
