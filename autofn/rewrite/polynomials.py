"""Polynomials that are a function on an interval, to the last digit of float64 and a few more.

And what is a polynomial of the first degree already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache

import sympy
from mpmath import mp
from sympy import Expr, Symbol

from autofn import trees

PRECISE = 2.0**-60
"""The largest error of a polynomial, as a part of the function's size."""

SINGLE = 2.0**-26
"""Terms that are less, beside the polynomial, are left out in single precision."""

LINEAR = 20
"""The size of an argument that is looked at as a linear function."""


def coefficients(
    at: Callable[[mp.mpf], mp.mpf],
    interval: Sequence[mp.mpf],
    size: mp.mpf,
    degrees: Sequence[int],
) -> list[mp.mpf] | None:
    """Of the polynomial that is the function on an interval, the highest first; None if none is.

    size: what its error is compared with. degrees: those tried.
    """
    at = cache(at)
    low, high = interval
    half, middle = (high - low) / 2, (high + low) / 2
    for degree in degrees:
        found = _interpolated(at, half, middle, degree + 1)
        ends = [
            middle + half * each for each in _cosines(degree + 1, mp.prec)[: 2 * degree + 2 : 2]
        ]
        if all(abs(at(x) - mp.polyval(found, x)) <= PRECISE * size for x in ends):
            return found
    return None


def _interpolated(
    at: Callable[[mp.mpf], mp.mpf], half: mp.mpf, middle: mp.mpf, count: int
) -> list[mp.mpf]:
    """The polynomial through Chebyshev's points of an interval, the highest coefficient first."""
    cosines = _cosines(count, mp.prec)
    values = [at(middle + half * cosines[2 * k + 1]) for k in range(count)]
    found = [mp.zero] * count
    for j, powers in zip(range(count), _chebyshev(1 / half, -middle / half), strict=False):
        terms = (values[k] * cosines[j * (2 * k + 1) % (4 * count)] for k in range(count))
        part = (2 if j else 1) * sum(terms, mp.zero) / count
        for power, c in enumerate(powers):
            found[power] += part * c
    return found[::-1]


@lru_cache(maxsize=64)
def _cosines(count: int, prec: int) -> list[mp.mpf]:
    """cos(k * pi / (2 * count)) in so many bits, for all k of a period."""
    with mp.workprec(prec):
        return [mp.cospi(mp.mpf(k) / (2 * count)) for k in range(4 * count)]


def _chebyshev(a: mp.mpf, b: mp.mpf) -> Iterator[list[mp.mpf]]:
    """Chebyshev's polynomials in a*x + b, each as its coefficients, the lowest first."""
    last, this = [mp.mpf(1)], [b, a]
    yield last
    while True:
        yield this
        following = [mp.zero, *(2 * a * c for c in this)]
        for power, c in enumerate(this):
            following[power] += 2 * b * c
        for power, c in enumerate(last):
            following[power] -= c
        last, this = this, following


def terms_below(part: float, coefficients: Sequence[mp.mpf], radius: mp.mpf) -> int:
    """How many of a polynomial's first terms together are less than this part of its last."""
    degree = len(coefficients) - 1
    total = mp.mpf(0)
    for k, coefficient in enumerate(coefficients):
        total += abs(coefficient) * radius ** (degree - k)
        if total > part * abs(coefficients[-1]):
            return k
    return degree


@lru_cache(maxsize=10_000)
def linear(u: Expr, x: Symbol) -> tuple[Expr, Expr] | None:
    """The slope of a linear function of x, and its value at 0."""
    if trees.size(u) > LINEAR or not u.is_polynomial(x):
        return None
    line = sympy.Poly(u, x)
    if line.degree() != 1:
        return None
    scale, shift = line.all_coeffs()
    return scale, shift
