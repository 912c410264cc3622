"""Sines of pi*x/y, by x less a whole number of y.

pi*x/y has as many digits of x/y as are left after its turns; x less a multiple of y has them all.
What has another summand, or another irrational factor, stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import sympy
from sympy import Add, Expr, Integer, Mul, Symbol, pi

from autofn import functions as heads
from autofn import trees

_OF_TURNS: Mapping[type, type] = {
    sympy.sin: heads.sinpi,
    sympy.cos: heads.cospi,
    heads.sinc: heads.sincpi,
    heads.spherical_bessel: heads.spherical_bessel_pi,
}


def in_half_turns(
    expr: Expr, tensors: frozenset[Symbol], *, by_powers_of_two: bool = False
) -> Expr:
    """The expression with sines of pi*x/y, of a tensor, as functions of x and y.

    by_powers_of_two: where y is one, so that n*y is exact without a remainder, which PyTorch has
    at five times the time of a sine.
    """
    found: dict[Expr, Expr] = {}
    for node in trees.nodes(expr):
        if node.func not in (*_OF_TURNS, sympy.tan):
            continue
        *order, u = node.args
        if trees.symbols(u).isdisjoint(tensors) or (parts := _quotient(u)) is None:
            continue
        if by_powers_of_two and not _is_power_of_two(parts[1]):
            continue
        if isinstance(node, sympy.tan):
            found[node] = heads.sinpi(*parts) / heads.cospi(*parts)
        else:
            found[node] = _OF_TURNS[node.func](*order, *parts)
    return trees.replaced(expr, found) if found else expr


def _quotient(u: Expr) -> tuple[Expr, Expr] | None:
    """x and y of pi*x/y: y one symbol or a whole number, times the power of two in u.

    Such are exact; and twice x might overflow.
    """
    terms = [_over_pi(term) for term in Add.make_args(u)]
    known = [term for term in terms if term is not None]
    if len(known) < len(terms):
        return None
    if len(known) > 1:
        whole = Integer(sympy.ilcm(*(coefficient.q for coefficient, _ in known)))
        return Add(*(whole * coefficient * rest for coefficient, rest in known)), whole
    coefficient, rest = known[0]
    twos = Integer(2) ** (_twos(coefficient.p) - _twos(coefficient.q))
    coefficient /= twos
    below = [
        factor.base
        for factor in Mul.make_args(rest)
        if factor.is_Pow and factor.exp == -1 and factor.base.is_Symbol
    ]
    if not below:
        return coefficient.p * rest, coefficient.q / twos
    y = min(below, key=sympy.default_sort_key)
    return coefficient * rest * y, y / twos


def _is_power_of_two(y: Expr) -> bool:
    return bool(y.is_Rational) and {abs(y.p), y.q} <= {1 << _twos(y.p), 1 << _twos(y.q)}


def _twos(number: int) -> int:
    """How often two is in a whole number."""
    return (number & -number).bit_length() - 1


def _over_pi(term: Expr) -> tuple[sympy.Rational, Expr] | None:
    """A term over pi, as a rational number and the rest; None where another number is in it."""
    factors = list(Mul.make_args(term))
    if pi not in factors:
        return None
    factors.remove(pi)
    numbers = [factor for factor in factors if not factor.free_symbols]
    if not all(number.is_Rational for number in numbers):
        return None
    content, rest = Mul(*(each for each in factors if each not in numbers)).primitive()
    return content * Mul(*numbers), rest
