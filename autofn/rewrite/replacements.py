"""What rules put in the place of a pattern, where it takes branches, series or bounds."""

from __future__ import annotations

from collections.abc import Sequence

import sympy
from sympy import (
    Abs,
    Add,
    And,
    Eq,
    Expr,
    Float,
    Integer,
    Max,
    Min,
    Piecewise,
    Rational,
    S,
    acos,
    exp,
    log,
    sign,
    sinh,
    sqrt,
    tanh,
)
from sympy.core.relational import Relational

from autofn.functions import (
    expm1,
    log1mexp,
    log1p,
    log1pmx,
    logcosh,
    loggamma,
    mean_any_root,
    phi,
    pow1pm1,
    power,
    sigmoid,
    softplus,
    softplus_rise,
    xlogy,
)
from autofn.rewrite.heads import polynomial
from autofn.rewrite.rule import minus, ratio
from autofn.rewrite.within import LEAST, NO_PART_OF_1

_NOTHING = Integer(2000)
"""Whose negative's exponential is 0 in any dtype, as is the derivative of that."""


def raw(head: type, *args: Expr) -> Expr:
    """A pattern that SymPy would rewrite."""
    return head(*args, evaluate=False)


_STIRLING = tuple(map(sympy.Rational, (
    "-174611/125400", "43867/244188", "-3617/122400", "1/156", "-691/360360", "1/1188",
    "-1/1680", "1/1260", "-1/360", "1/12",
)))  # fmt: skip
"""What Stirling's formula lacks, times u: a polynomial in 1/u**2, the highest power first."""


_STIRLING_FROM, _STIRLING_CUT = 16, 8
"""Where these terms do for all digits, and how many are below the last of single precision."""


def _rising(factors: int) -> list[int]:
    """u*(u + 1)*... by powers of u, the highest first."""
    found = [1]
    for k in range(factors):
        found = [a + k * b for a, b in zip([*found, 0], [0, *found], strict=True)]
    return found


def loggamma_less_loggamma(u: Expr, v: Expr) -> Expr:
    """By Stirling's formula, of which little cancels; below where it holds, by that 16 higher."""
    step = minus(u, v)

    def difference(low: Expr) -> Expr:
        high = low + step
        rests = [polynomial(_STIRLING_CUT, t**-2, *_STIRLING) / t for t in (high, low)]
        powers = low * log1pmx(step / low) - log1p(step / low) / 2 + step * log(high)
        return powers + rests[0] - rests[1]

    factors = [*map(Integer, _rising(_STIRLING_FROM))]
    rising = [polynomial(0, t, *factors) for t in (u, v)]
    near = difference(v + _STIRLING_FROM) - log(rising[0] / rising[1])
    # Marked as done by its bound.
    below = loggamma(u) - loggamma(Min(v, 0))
    return Piecewise(
        (difference(v), v > _STIRLING_FROM), (near, v > 0), (below, True), evaluate=False
    )


def log_of_number_and_exp(u: Expr, v: Expr) -> Expr:
    # No branch has its kink, or its pole, where it is taken.
    far, low = u + log1p(v * exp(-Max(u, 0))), exp(Min(u, 2))
    some = Piecewise((v, v > 0), (1, True), evaluate=False)
    near = log(some) + log1p(low / some)
    return Piecewise((far, u > 1), (near, v > 0), (log(v + low), True), evaluate=False)


def log_of_times_sinh(v: Expr, u: Expr, n: Expr = S.One) -> Expr:
    """log(v * sinh(u)**n)"""
    far = n * Abs(u) + log(v * sign(u) ** Abs(n) / 2**n)
    most = _EXP_FROM + 1
    near = log(v * sinh(Max(Min(u, most), -most)) ** n)
    return Piecewise((far, Abs(u) > _EXP_FROM), (near, True), evaluate=False)


def log_of_times_expm1(v: Expr, u: Expr, n: Expr = S.One) -> Expr:
    """log(v * expm1(u)**n)"""
    near = log(v * expm1(Min(u, _EXP_FROM + 1)) ** n)
    return Piecewise((n * u + log(v), u > _EXP_FROM), (near, True), evaluate=False)


def log1mexp_of_exp(u: Expr) -> Expr:
    """log(1 - exp(-exp(u)))"""
    # Marked as done by its bounds.
    near = u + log(phi(Integer(1), -exp(Min(u, 1))))
    return Piecewise((near, u < 0), (log1mexp(-exp(Max(u, -1))), True), evaluate=False)


def log_of_times_phi(v: Expr, u: Expr, n: Expr = S.One) -> Expr:
    """log(v * phi(1, u)**n)"""
    near = log(v * phi(Integer(1), Min(u, _EXP_FROM + 1)) ** n)
    return Piecewise((n * (u - log(u)) + log(v), u > _EXP_FROM), (near, True), evaluate=False)


def log_of_phi(u: Expr) -> Expr:
    """log(phi(1, u)), of which phi(1, u) - 1 is u*phi(2, u)."""
    near, some = log1p(u * phi(Integer(2), u)), log(phi(Integer(1), Min(u, _EXP_FROM + 1)))
    return Piecewise(
        (near, Abs(u) < 1), (u - log(u), u > _EXP_FROM), (-log(-u), u < -_EXP_FROM), (some, True),
        evaluate=False,
    )  # fmt: skip


def log_with_exp(u: Expr, v: Expr, c: Expr) -> Expr:
    """log(c + v*exp(u)) of a v of either sign, which may be small where exp(u) is large."""
    near, is_near = log(c + Min(v * exp(u), 2 * _HUGE)), v * exp(u) < _HUGE
    far = u + log(v) + log1p(c * exp(-u) / v)
    if sympy.expand_mul(c + v) != 1:
        return Piecewise((near, is_near), (far, True), evaluate=False)
    beside = log1p(v * expm1(u))
    return Piecewise((beside, Abs(u) < 1), (near, is_near), (far, True), evaluate=False)


def power_with_exp(u: Expr, v: Expr, c: Expr, n: Expr) -> Expr:
    """(c + v*exp(u))**n of a number c"""
    near = (c + Min(v * exp(u), 2 * _HUGE * Abs(c))) ** n
    far = v**n * exp(n * u) * (1 + n * c * exp(-u) / v)
    return Piecewise((near, v * exp(u) < _HUGE * Abs(c)), (far, True), evaluate=False)


_HUGE = Integer(2) ** 30
"""The square of its inverse is nothing in double, its square and cube finite in single precision.
"""


def log_of_odds(u: Expr, v: Expr) -> Expr:
    """log(1 + expm1(u)/expm1(v)) of positive u and v."""
    return softplus(u - v + log1mexp(-u) - log1mexp(-v))


def log_of_power(u: Expr, v: Expr) -> Expr:
    # 0**0 is 1, and has no gradient in torch.pow.
    given = sympy.Or(sympy.Ne(u, 0), sympy.Ne(v, 0))
    return Piecewise((xlogy(v, Abs(u)), given), (0, True), evaluate=False)


def lesser_power(u: Expr, n: Expr, v: Expr = S.One) -> tuple[Expr, Relational]:
    """power(u/v, n), or its inverse, whichever is at most 1; and whether it is the former.

    One power, not that of either branch: its argument is chosen. It marks what is done, too.
    """
    small = sympy.Le(n * (Abs(u) - Abs(v)), 0)
    over = u if v == 1 else ratio(u, v)
    return power(Piecewise((over, small), (1 / over, True), evaluate=False), n), small


def power_over_powers(u: Expr, v: Expr, n: Expr) -> Expr:
    """power(u, n)/(power(u, n) + power(v, n))"""
    t, small = lesser_power(u, n, v)
    return Piecewise((t / (1 + t), small), (1 / (1 + t), True), evaluate=False)


def power_over_sum(u: Expr, n: Expr, c: Expr) -> Expr:
    """power(u, n)/(c + power(u, n))"""
    t, small = lesser_power(u, n)
    return Piecewise((t / (c + t), small), (1 / (1 + c * t), True), evaluate=False)


def over_power(u: Expr, n: Expr, c: Expr) -> Expr:
    """1/(c + power(u, n))"""
    t, small = lesser_power(u, n)
    return Piecewise((1 / (c + t), small), (t / (1 + c * t), True), evaluate=False)


def log_with_power(u: Expr, n: Expr, c: Expr) -> Expr:
    """log(c + power(u, n))"""
    t, small = lesser_power(u, n)
    far = log(1 + c * t) + n * log(Abs(u))
    return Piecewise((log(c + t), small), (far, True), evaluate=False)


def log_of_sides(u: Expr, v: Expr) -> Expr:
    # One side alone has vanished where it is all there is: its factor is 1, the other's 0.
    this = log1p((1 - v) * expm1(Min(-u, _FAR))) - softplus(-u)
    that = log1p(v * expm1(Min(u, _FAR))) - softplus(u)
    above = log(v + (1 - v) * exp(Min(-u, 1))) - softplus(-u)
    below = log(1 - v + v * exp(Min(u, 1))) - softplus(u)
    return Piecewise(
        (this, sympy.Eq(v, 1) & (u < 0)), (that, sympy.Eq(v, 0) & (u > 0)), (above, u > 0),
        (below, True), evaluate=False,
    )  # fmt: skip


_FAR = Integer(80)
"""Whose exponential is finite in single precision: the other side's weight, as good as infinite."""


_EXP_FROM = Integer(40)
"""Beyond it exp(-u) is nothing beside 1: expm1 is exp, sinh half of it, phi_1 exp(u)/u."""


def exp_less_exp(u: Expr, v: Expr) -> Expr:
    """exp(u) - exp(v) in two regimes."""
    # The first of the two exponents is marked as done, by what no exponential sees.
    far = exp(Max(u, -_NOTHING)) - exp(v)
    near = exp(v) * expm1(minus(u, v))
    return Piecewise((near, Abs(minus(u, v)) < 1), (far, True), evaluate=False)


def expm1_over_expm1(u: Expr, v: Expr) -> Expr:
    # Marked as done by their signs, which make no multiple of u and v, nor exp(u) - 1 again.
    below = expm1(-Abs(v))
    far = Piecewise(
        (expm1(u) / below, v < 0),
        (exp(u - v) * expm1(-Abs(u)) / below, u > 0),
        (-exp(-v) * expm1(u) / below, True),
        evaluate=False,
    )
    near = ratio(u, v) * phi(Integer(1), u) / phi(Integer(1), v)
    return Piecewise((near, (Abs(u) < 1) & (Abs(v) < 1)), (far, True), evaluate=False)


def over_expm1(u: Expr, v: Expr, c: Expr, *, times: bool) -> Expr:
    """(c + v*exp(u))/(exp(u) - 1), times u if so: from whichever of v and -c it goes to."""
    if times:
        # Not 1/phi_1(u), in whose derivative the square overflows.
        above = v * u + (c + v) * exp(-u) / phi(S.One, -u)
        below = (c + v) * exp(u) / phi(S.One, u) - c * u
    else:
        above, below = v + (c + v) / expm1(u), -c - (c + v) / expm1(-u)
    return Piecewise((above, u > 0), (below, True), evaluate=False)


def power_mean(parts: Sequence[tuple[Expr, Expr, Expr]], n: Expr, times: Expr, far: Expr) -> Expr:
    """exp(times*log(sum of w*x**(k*n))/n), of weights w that add up to 1; far: where n is large.

    parts: w, x and k each. As n goes to 0 it goes to the product of all x**(times*k*w).
    """
    logs = [(w, k * log(x)) for w, x, k in parts]
    mean = Add(*(w * u * phi(S.One, n * u) for w, u in logs))
    near = exp(times * mean / phi(S.One, log1p(n * mean)))
    is_near = And(Abs(n) < Rational(1, 8), *(x > 0 for _, x, _ in parts), evaluate=False)
    return Piecewise((near, is_near), (far, True), evaluate=False)


def less_root_of_squares(u: Expr, v: Expr, rest: Expr) -> Expr:
    """u + v - sqrt(u**2 + v**2 + rest), by what the larger loses: u - sqrt(u**2 + w) <= 0."""
    by_u = v - 2 * mean_any_root(-u, v**2 + rest)
    by_v = u - 2 * mean_any_root(-v, u**2 + rest)
    return Piecewise((by_u, u > v), (by_v, True), evaluate=False)


def less_root_of_difference(u: Expr, v: Expr, mean: type[Expr], rest: Expr) -> Expr:
    """u + v - root of u - v, as twice the lesser and what the root is more than |u - v|.

    mean: of w and rest, half of w and the root.
    """
    above, below = 2 * v - 2 * mean(v - u, rest), 2 * u - 2 * mean(u - v, rest)
    return Piecewise((above, u > v), (below, True), evaluate=False)


def less_root_of_its_square(s: Expr, root: Expr, more: Expr) -> Expr:
    """s - root, where s**2 is the square of the root and more."""
    # Marked as done by bounds, not where it turns: they have no gradient there.
    above, below = more / (Max(s, -1) + root), Min(s, 1) - root
    return Piecewise((above, s >= 0), (below, True), evaluate=False)


def times_pow1pm1(u: Expr, v: Expr, exponent: Expr) -> Expr:
    """v*((1 + u/v)**exponent - 1), v >= 0."""
    # Marked as done by its bound.
    beside = v * pow1pm1(u / Max(v, LEAST), exponent)
    at_zero = power(u, exponent) * power(v, 1 - exponent)
    return Piecewise((at_zero, Eq(v, 0)), (beside, True), evaluate=False)


def tanh_less_logcosh(u: Expr) -> Expr:
    # Marked as done by its bounds.
    some, twice = Max(Min(u, 2), -2), 2 * Abs(u)
    far = log(2) - softplus(-twice) - twice * sigmoid(-twice)
    return Piecewise((far, Abs(u) > 1), (some * tanh(some) - logcosh(some), True), evaluate=False)


def log1p_less_share(u: Expr, v: Expr) -> Expr:
    """log(1 + u/v) - u/(u + v), which is the half of (u/v)**2 near 0."""
    share = u / (u + v)
    # Marked as done by its bound.
    far = log1p(Max(u / v, S.Half)) - share
    return Piecewise((-log1pmx(-share), u / v < 1), (far, True), evaluate=False)


def excess_over_log(u: Expr, v: Expr, squared: bool, weight: Expr, far: Expr) -> Expr:
    """weight*(w - 1 - log(w)), which is half of (w - 1)**2 near 1, of w = u/v or its square."""
    above = minus(u, v) / v
    # By this and not its square, which may vanish or overflow.
    is_near = Abs(above) < (S.Half / 2 if squared else S.Half)
    near = -weight * log1pmx(above * (2 + above) if squared else above)
    return Piecewise((near, is_near), (far, True), evaluate=False)


def quotient_less_log(u: Expr, v: Expr) -> Expr:
    far = Max(u / v, NO_PART_OF_1) - log(u / v) - 1
    return excess_over_log(u, v, False, S.One, far)


def softplus_less_softplus(u: Expr, v: Expr) -> Expr:
    # Marked in the same way.
    far = softplus(Max(u, -_NOTHING)) - softplus(v)
    near = softplus_rise(v, minus(u, v))
    return Piecewise((near, Abs(minus(u, v)) < 1), (far, True), evaluate=False)


def mean_root_over(u: Expr, v: Expr, factor: Expr) -> Expr:
    near = v / (4 * mean_any_root(-u, v * factor))
    # Marked as done by its bound.
    far = mean_any_root(Max(u, 0), v * factor) / factor
    return Piecewise((near, u <= 0), (far, True), evaluate=False)


def acos_over_its_sine(u: Expr) -> Expr:
    # The series of asin(s)/s in z = s**2, 1/32 at most.
    z = (1 - u) * (1 + u)
    terms = range(_SERIES, -1, -1)
    near = polynomial(
        _SERIES - 4,
        z,
        *(Float(sympy.binomial(2 * n, n) / Integer(4) ** n / (2 * n + 1), 20) for n in terms),
    )
    far = acos(u) / (sqrt(1 - u) * sqrt(1 + u))
    return Piecewise((near, (64 * u > 63) & (u <= 1)), (far, True), evaluate=False)


_SERIES = 10
"""The highest power of z: the next term is 2**-62 of the sum, and from the sixth on 2**-34."""


def of_exps(u: Expr, v: Expr) -> Expr:
    # From the greater, as phi_1 of a large number overflows.
    above, below = exp(u) * phi(Integer(1), v - u), exp(v) * phi(Integer(1), u - v)
    return Piecewise((above, u > v), (below, True), evaluate=False)


def logarithmic_mean(u: Expr, v: Expr, apart: Expr) -> Expr:
    """(u - v) / apart, from what is farther from 0. apart: log(u) - log(v)."""
    above, below = u * phi(Integer(1), -apart), v * phi(Integer(1), apart)
    return Piecewise((above, Abs(u) > Abs(v)), (below, True), evaluate=False)
