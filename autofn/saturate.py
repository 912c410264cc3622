"""Infinite inputs: what is constant far out is computed there with a finite input.

x * sigmoid(x) is 0 at minus infinity, and inf * 0 is NaN. Where a program gives NaN at an infinite
tensor and is constant long before, the tensor is clamped on that side. Done last, so that no
derivative sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mpmath
import sympy
from mpmath import mp
from sympy import Dummy, Expr, Symbol, oo

from autofn import functions as heads
from autofn import trees
from autofn.normal_form import HUGE
from autofn.ops import OPS
from autofn.program import Program

FAR = (4e18, 3e20, 3e25)
"""Where a program must have the same value to be constant from the first on."""

SAME = mp.mpf(2) ** -56
WIDEST = 2000
"""Numbers beyond 2**2000 are infinite here, and below its inverse 0."""


def outputs_at(program: Program, name: str, value: float, others: Mapping[str, float]) -> list[Any]:
    """Each output where the input `name` is `value`, and what `others` lacks is 1; None if absent.

    In arithmetic of 400 bits that knows infinities.
    """
    found: list[Any] = []
    with mp.workprec(400):
        for node in program.nodes:
            if node.op == "input":
                assert node.input is not None
                found.append(mp.mpf(value if node.input == name else others.get(node.input, 1.0)))
            elif node.op == "constant":
                found.append(_constant(node.constant))
            elif node.op == "constant_rest":
                found.append(mp.mpf(0))
            else:
                found.append(_value(node.op, [found[arg] for arg in node.args], node.n))
    return [None if o.node is None else found[o.node] for o in program.outputs]


def _constant(constant: Expr | None) -> Any:
    if constant is None or constant.is_Boolean:
        return bool(constant)
    return mp.mpf(str(constant.evalf(20))) if constant.is_finite else mp.mpf(float(constant))


def _value(op: str, args: list[Any], n: int | None) -> Any:
    if op.endswith("_rest") and op != "root_rest":
        return mp.mpf(0)
    try:
        if op.startswith("times_"):
            # A factor that has vanished makes 0 of anything.
            factor = _bounded(OPS[op].exact(mp.mpf(1), *args[1:]))
            return mp.mpf(0) if factor == 0 else _bounded(args[0] * factor)
        return _bounded(OPS[op].exact(*args) if n is None else OPS[op].exact(*args, n))
    except (ZeroDivisionError, ValueError, OverflowError, TypeError, mpmath.libmp.NoConvergence):
        return mp.nan


def _bounded(value: Any) -> Any:
    if not isinstance(value, mp.mpf) or not mp.isfinite(value) or value == 0:
        return value
    size = mp.mag(value)
    if size > WIDEST:
        return mp.inf if value > 0 else -mp.inf
    return mp.mpf(0) if size < -WIDEST else value


def is_nan(value: Any) -> bool:
    return isinstance(value, mp.mpf) and bool(mp.isnan(value))


def constant_sides(
    program: Program, name: str, others: Mapping[str, float]
) -> list[tuple[bool, bool]]:
    """Per output, whether it is constant far below zero in the input `name`, and far above."""
    sides = []
    for sign in (-1, 1):
        columns = zip(*(outputs_at(program, name, sign * far, others) for far in FAR), strict=True)
        sides.append([_is_constant(values) for values in columns])
    return list(zip(*sides, strict=True))


def _is_constant(values: tuple[Any, ...]) -> bool:
    if not all(isinstance(each, mp.mpf) and mp.isfinite(each) for each in values):
        return False
    return bool(max(values) - min(values) <= SAME * max(map(abs, values)))


SATURATING = (heads.sigmoid, heads.normcdf, heads.sech2, sympy.tanh, sympy.erf, sympy.erfc)


def clamped(expr: Expr, x: Symbol, low: bool, high: bool, *, within: bool = False) -> Expr:
    """The expression with x clamped on the sides asked for.

    within: on both sides in the arguments of functions that are constant there anyway, so that
    expressions that are clamped on different sides share them.
    """
    if not (low or high):
        return expr
    if within and not (low and high):
        both = heads.clamp(x, -HUGE, HUGE)
        hidden = {node: Dummy(f"f{k}", real=True) for k, node in enumerate(_saturated(expr, x))}
        inner = {dummy: node.xreplace({x: both}) for node, dummy in hidden.items()}
        return clamped(expr.xreplace(hidden), x, low, high).xreplace(inner)
    return expr.xreplace({x: heads.clamp(x, -HUGE if low else -oo, HUGE if high else oo)})


def _saturated(expr: Expr, x: Symbol) -> list[Expr]:
    """The functions in an expression whose argument, a polynomial of x, is large far out."""
    return [
        node
        for node in trees.nodes(expr)
        if isinstance(node, SATURATING) and x in node.free_symbols and node.args[0].is_polynomial(x)
    ]
