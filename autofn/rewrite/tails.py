"""Tails of the normal distribution, of erf and of their integrals: replacements in branches."""

from __future__ import annotations

import sympy
from sympy import Expr, Float, Integer, Max, Min, Piecewise, erf, erfc, exp, log, pi, sqrt

from autofn.functions import log1p, normcdf
from autofn.rewrite.heads import polynomial

_TAIL = tuple(Float(c, 20) for c in (
    "-2489571632.9918900921", "347869882.22486405246", "-27408590.109301008230",
    "1806034.2324706345172", "-121611.28600893691922", "9198.6960294199357024",
    "-816.19306566374779923", "88.249986740554344517", "-12.333333320230925421",
    "2.4999999999949185798", "-0.99999999999999967238",
))  # fmt: skip
"""log(normcdf(-u)) + u**2/2 + log(u) + log(2*pi)/2, over 1/u**2, as a polynomial in that, the
highest power first: fitted at Chebyshev's points for u over 8, to 3e-16."""


_TAIL_CUT = 4
"""Its terms that are below the last digit of single precision."""


def log_normcdf(u: Expr) -> Expr:
    z = u**-2
    tail = polynomial(_TAIL_CUT, z, *_TAIL)
    far = -(u**2) / 2 - log(-u) - log(2 * pi) / 2 + z * tail
    below = log(erfc(Min(-u / sqrt(2), _TAIL_FROM))) - log(2)
    return Piecewise((far, u < -8), (below, u < 0), (log1p(-normcdf(-u)), True), evaluate=False)


def log_erfc(u: Expr) -> Expr:
    far, _ = log_normcdf(-sqrt(2) * u).args[0]
    some = log(erfc(Min(u, _TAIL_FROM + 1)))
    return Piecewise(
        (far + log(2), u > _TAIL_FROM), (some, 4 * u > 1), (log1p(-erf(u)), True), evaluate=False
    )


def erf_less_erf(u: Expr, v: Expr) -> Expr:
    some = erf(_marked(u)) - erf(_marked(v))
    above = 2 * _apart(-sqrt(2) * v, -sqrt(2) * u)
    below = 2 * _apart(sqrt(2) * u, sqrt(2) * v)
    half = sympy.Rational(1, 2)
    return Piecewise(
        (above, (u > half) & (v > half)),
        (below, (u < -half) & (v < -half)),
        (some, True),
        evaluate=False,
    )


def normcdf_less_normcdf(u: Expr, v: Expr) -> Expr:
    return Piecewise((_apart(-v, -u), (u > 0) & (v > 0)), (_apart(u, v), True), evaluate=False)


def _apart(u: Expr, v: Expr) -> Expr:
    return normcdf(_marked(u)) - normcdf(_marked(v))


def _marked(u: Expr) -> Expr:
    """An argument of erf or normcdf that is done, by a bound at which they are constant."""
    marked: Expr = Max(u, -40)
    return marked


_INTEGRAL = tuple(Float(c, 20) for c in (
    "2661691152.821792401", "-373233306.8865315799", "29593161.450881590547",
    "-1970341.5985767838622", "134692.90253860628184", "-10392.732649579837265",
    "944.99264235364952789", "-104.9999859293524168", "14.999999986094884447",
    "-2.999999999994607041", "0.99999999999999965229",
))  # fmt: skip
"""(1 - u*normcdf(-u)/density(u))*u**2 as a polynomial in 1/u**2, fitted like `_TAIL`."""


def integral_of_normcdf(u: Expr) -> Expr:
    """u*normcdf(u) + the normal density of u, whose terms cancel far below 0."""
    far = exp(-(u**2) / 2) / sqrt(2 * pi) * u**-2 * polynomial(_TAIL_CUT, u**-2, *_INTEGRAL)
    return Piecewise((far, u < -8), (plain_integral(u), True), evaluate=False)


def log_integral_of_normcdf(u: Expr) -> Expr:
    tail = polynomial(_TAIL_CUT, u**-2, *_INTEGRAL)
    far = -(u**2) / 2 - 2 * log(-u) - log(2 * pi) / 2 + log(tail)
    # Marked as done by a bound, here and below not where it turns: Max has no gradient there.
    return Piecewise((far, u < -8), (log(plain_integral(Max(u, -9))), True), evaluate=False)


def plain_integral(u: Expr) -> Expr:
    return u * normcdf(u) + exp(-(u**2) / 2) / sqrt(2 * pi)


_TAIL_FROM = Integer(6)
"""An argument of erfc that does not get beyond is that of no tail."""


def scaled_erfc(u: Expr) -> Expr:
    """exp(u**2)*erfc(u)."""
    z = u**-2 / 2
    far = (1 - z * polynomial(_TAIL_CUT, z, *_INTEGRAL)) / (sqrt(pi) * u)
    near = exp(u**2) * erfc(_marked(u))
    return Piecewise((far, u > _TAIL_FROM), (near, True), evaluate=False)


def scaled_normcdf(u: Expr) -> Expr:
    """exp(u**2/2)*normcdf(u)."""
    z = u**-2
    far = (z * polynomial(_TAIL_CUT, z, *_INTEGRAL) - 1) / (sqrt(2 * pi) * u)
    near = exp(u**2 / 2) * normcdf(-_marked(-u))
    return Piecewise((far, u < -8), (near, True), evaluate=False)
