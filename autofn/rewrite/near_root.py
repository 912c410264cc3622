"""Regimes near roots: polynomials about the roots of a function of one tensor.

Where a derivative such as that of x*sigmoid(x) turns its sign its terms cancel, and what each
of them is wrong by is left. About a root x0 it becomes (x - x0) times a polynomial in x - x0, with
x0 in two parts so that the difference is as exact as x is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import sympy
from mpmath import mp
from sympy import Abs, Basic, Expr, Float, Integer, Piecewise, Rational, Symbol

from autofn import functions as heads
from autofn import trees
from autofn.compact import LIMIT
from autofn.program import Input, Result, lower
from autofn.rewrite.heads import offset, polynomial
from autofn.rewrite.near_zero import T, of_one, without_series
from autofn.rewrite.polynomials import SINGLE, coefficients, terms_below
from autofn.rewrite.truth import exact

LEAST, MOST, RATIO = 0.05, 40.0, 1.3
"""Roots are looked for between these magnitudes, at steps of this ratio."""

ROOTS = 2
"""A function with more of them oscillates, and stays as it is."""

Branch = tuple[Expr, Basic]

DEGREES = (7, 10, 14, 18, 22, 26, 30)


def about_roots(expr: Expr, tensors: frozenset[Symbol], part: Rational) -> list[Branch]:
    """Equal expressions about its roots, each with where it holds: within a part of their distance
    from zero.

    Only of a product of a function of one tensor and others that lack that tensor.
    """
    for x, others, own in functions_in(expr, tensors):
        if x.is_Symbol and (regimes := _regimes(own, part)):
            return [
                (others * beside * polynomial(cut, beside**step, *found), Abs(beside) < radius)
                for cut, step, root, radius, found in regimes
                for beside in [offset(x, *root)]
            ]
    return []


def functions_in(expr: Expr, tensors: frozenset[Symbol]) -> Iterator[tuple[Expr, Expr, Expr]]:
    """Each tensor x with the two factors of a product: one that lacks x, and a function of x alone,
    in `T`; or of a linear function of x in its place. Of an input that is clamped the input itself,
    of what has a series near zero the function.
    """
    expr = without_series(expr)
    if trees.size(expr) > LIMIT or expr.has(Piecewise, sympy.Min, sympy.Max):
        return
    free = expr.xreplace({each: each.args[0] for each in expr.atoms(heads.clamp)})
    common = sympy.factor_terms(free)
    for x in sorted(tensors & trees.symbols(common), key=lambda symbol: symbol.name):
        others, own = common.as_independent(x, as_Add=False)
        if own.free_symbols == {x}:
            yield x, others, own.xreplace({x: T})
        elif own.free_symbols & tensors == {x}:
            for factor, in_t, u in of_one(own, x):
                yield u, others * factor, in_t


def function_of(own: Expr) -> Callable[[mp.mpf], mp.mpf]:
    """A function of `T`; ValueError where it has no finite value."""
    program = lower([(T, Input("t", frozenset()))], [Result("y", own)])

    def at(t: mp.mpf) -> mp.mpf:
        (value,) = exact(program, {"t": t})
        if not mp.isfinite(value):
            raise ValueError
        return value

    return at


_Regime = tuple[int, int, tuple[Expr, Expr], Expr, list[Float]]


@lru_cache(maxsize=256)
def _regimes(own: Expr, part: Rational) -> list[_Regime]:
    """Per root: terms to leave out in single precision, 2 for a polynomial in squares, else 1, the
    root, the radius, coefficients.
    """
    with mp.workprec(400):
        try:
            roots = _roots(own)
            found = [_fitted(own, root, part) for root in roots]
        except (ZeroDivisionError, ValueError, TypeError):
            return []
    return [each for each in found if each is not None] if None not in found else []


@lru_cache(maxsize=256)
def _roots(own: Expr) -> list[mp.mpf]:
    """The simple roots away from zero; none where there are too many."""
    value = function_of(own)
    count = int(mp.log(MOST / LEAST) / mp.log(RATIO)) + 1
    steps = [mp.mpf(LEAST) * mp.mpf(RATIO) ** k for k in range(count)]
    found = []
    for sign in (1, -1):
        column = [_or_zero(value, sign * step) for step in steps]
        for k in range(count - 1):
            if column[k] * column[k + 1] < 0:
                found.append(_refined(value, sign * steps[k], sign * steps[k + 1]))
    return found if len(found) <= ROOTS else []


def _or_zero(value: Callable[[mp.mpf], mp.mpf], at: mp.mpf) -> mp.mpf:
    """The value, or 0 where there is none."""
    try:
        return value(at)
    except ValueError:
        return mp.zero


def _refined(value: Callable[[mp.mpf], mp.mpf], low: mp.mpf, high: mp.mpf) -> mp.mpf:
    below = value(low)
    for _ in range(8):
        middle = (low + high) / 2
        low, high = (middle, high) if value(middle) * below > 0 else (low, middle)
    found = mp.findroot(value, (low, high), solver="secant", tol=mp.mpf(10) ** -100)
    if abs(found - low) > 2 * abs(high - low):  # it ran away
        raise ValueError
    return found


def _fitted(own: Expr, root: mp.mpf, part: Rational) -> _Regime | None:
    value = function_of(own)
    slope = value(root + mp.mpf(2) ** -60) * mp.mpf(2) ** 60
    radius = _short(abs(root) * part.p / part.q, 4)

    def quotient(t: mp.mpf) -> mp.mpf:
        return value(root + t) / t if abs(t) > mp.mpf(2) ** -60 else slope

    here, there = quotient(radius / 3), quotient(-radius / 3)
    step = 2 if abs(here - there) < mp.mpf(2) ** -100 * abs(here) else 1

    def at(z: mp.mpf) -> mp.mpf:
        return quotient(z if step == 1 else mp.sqrt(z))

    interval = [-radius, radius] if step == 1 else [mp.zero, radius**2]
    found = coefficients(at, interval, abs(slope), DEGREES)
    if found is None:
        return None
    high = _short(root, 24)
    low = root - high
    if abs(low) < mp.mpf(2) ** -100 * abs(root):
        low = mp.zero
    return (
        terms_below(SINGLE, found, radius**step),
        step,
        (_exact(high), Float(mp.nstr(low, 20), 20) if low else Integer(0)),
        _exact(radius),
        [Float(mp.nstr(coefficient, 20), 20) for coefficient in found],
    )


def _short(value: mp.mpf, bits: int) -> mp.mpf:
    """A number of so many bits."""
    scale = mp.ldexp(1, bits - int(mp.mag(value)))
    return mp.nint(value * scale) / scale


def _exact(value: mp.mpf) -> Rational:
    exponent = 80
    return Rational(int(mp.nint(mp.ldexp(value, exponent))), 2**exponent)
