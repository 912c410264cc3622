"""Regimes far out: powers of x times polynomials in 1/x.

Where atan(x) + pi/2 + x/(1 + x**2) vanishes like 1/x**3, far below zero, its terms have lost all
digits; where x*tanh(log(1 + sigmoid(x))) is as good as 0.6*x, parts of its derivative overflow. On
either side a function of one tensor may be x**k times a polynomial in 1/x from some x on: what is
algebraic there, and what differs from that by vanishing exponentials.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import sympy
from mpmath import mp
from sympy import Abs, Expr, Float, Symbol

from autofn.rewrite.heads import inverse, polynomial
from autofn.rewrite.near_root import Branch, function_of, functions_in
from autofn.rewrite.polynomials import SINGLE, coefficients, terms_below

DEGREES = (0, 2, 5, 8, 11, 14, 17, 20, 24)
"""Of the polynomials in 1/x, or in its square."""

MOST = 12
"""The highest power of x, or of 1/x, that is looked for."""

LEAST = 2.0**-70
"""The least 1/x at which a function is evaluated."""

ENOUGH = 2.0**-40
"""How near to a power of two the ratio of values is there."""


def far_out(expr: Expr, tensors: frozenset[Symbol], edge: int) -> list[Branch]:
    """Equal expressions beyond an edge on either side, each with where it holds.

    Only of a product of a function of one tensor and others that lack that tensor.
    """
    for x, others, own in functions_in(expr, tensors):
        sides = {sign: _side(own, sign, edge) for sign in (1, -1)}
        found = {sign: others * _of(side, x) for sign, side in sides.items() if side is not None}
        if len(found) == 2 and found[1] == found[-1]:
            return [(found[1], Abs(x) > edge)]
        return [
            (value, sympy.Gt(x, edge) if sign > 0 else sympy.Lt(x, -edge))
            for sign, value in found.items()
        ]
    return []


_Side = tuple[int, int, int, tuple[Float, ...]]


def _of(side: _Side, x: Symbol) -> Expr:
    power, step, cut, found = side
    leading = x**power if power >= 0 else inverse(x) ** -power
    if len(found) == 1:
        return found[0] * leading
    return leading * polynomial(cut, inverse(x) ** step, *found)


@lru_cache(maxsize=256)
def _side(own: Expr, sign: int, edge: int) -> _Side | None:
    """The power of x, the step between powers of 1/x, terms to leave out in single precision, and
    the coefficients, the highest power first; None where the function is not of this kind.
    """
    with mp.workprec(400):
        value = function_of(own)
        try:
            return _fitted(value, sign, edge)
        except (ZeroDivisionError, ValueError, TypeError, OverflowError):
            return None


def _fitted(value: Callable[[mp.mpf], mp.mpf], sign: int, edge: int) -> _Side | None:
    least = mp.mpf(LEAST)
    ratio = abs(value(sign / least) / value(sign / (2 * least)))
    power = int(mp.nint(mp.log(ratio, 2)))
    if abs(power) > MOST or abs(ratio / mp.mpf(2) ** power - 1) > ENOUGH:
        return None

    def quotient(t: mp.mpf) -> mp.mpf:
        t = sign * max(abs(t), least)
        return value(1 / t) * t**power

    end = mp.mpf(1) / edge
    size = abs(quotient(least))
    squares, step = [least**2, end**2], 2
    found = coefficients(lambda z: quotient(mp.sqrt(abs(z))), squares, size, DEGREES)
    if found is None:
        step = 1
        found = coefficients(quotient, sorted((sign * least, sign * end)), size, DEGREES)
    if found is None:
        return None
    cut = terms_below(SINGLE, found, end**step)
    return power, step, cut, tuple(Float(mp.nstr(each, 20), 20) for each in found)
