"""Arithmetic and functions of dual numbers over mpmath, with the conventions at kinks.

A scalar is an mpf or a `Dual` over scalars, so that duals over duals give second derivatives. Every
function has its mathematical value and its derivative in terms of other functions of scalars. NaN
stands for what is undefined: a pole, a result that is not real.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from mpmath import mp

isnan: Callable[[Any], bool] = mp.isnan

Real = Any
"""An mpf. mpmath has no types of its own."""

Scalar = Any
"""An mpf, or a `Dual` over scalars."""

BITS = 1100
"""exp of more than 2 ** BITS is infinite; every double is well below."""


class Dual:
    """value + sum of partials * epsilon; the partials that are absent are zero.

    Components are scalars of a lower level: an mpf in level 1, mpf or Dual in level 2. What is of
    a lower level is a constant to a higher one.
    """

    __slots__ = ("level", "partials", "value")

    def __init__(self, level: int, value: Scalar, partials: dict[int, Scalar]):
        self.level = level
        self.value = value
        self.partials = partials


class Watch:
    """Whether rounding may have decided anything since it was last reset.

    Set where a sum of terms that are not zero is zero, a function is at a zero, pole or jump of
    its own, or a relation is at a tie: more digits might give something else altogether, as in
    1 - tanh(300) at 100 digits.
    """

    lost = False


def perturbed(x: Scalar, size: Real, seed: int) -> Scalar:
    """x as rounding might leave it: its value and each partial off by up to `size` of itself."""
    if type(x) is not Dual:
        # In [-1, 1] and at least 1/2 from 0, scattered by a multiplicative hash.
        scattered = (seed * 2654435761 % 2**32) / 2**31 - 1
        return x + x * size * (scattered + math.copysign(1, scattered)) / 2
    partials = {k: perturbed(p, size, seed + 7 * k + 1) for k, p in x.partials.items()}
    return Dual(x.level, perturbed(x.value, size, seed), partials)


def base(x: Scalar) -> Real:
    """The number itself, without its derivatives."""
    while type(x) is Dual:
        x = x.value
    return x


def partial(x: Scalar, index: int) -> Scalar:
    found = x.partials.get(index) if type(x) is Dual else None
    return mp.zero if found is None else found


def level_of(x: Scalar) -> int:
    """How deep the duals are nested: 0 for an mpf."""
    return x.level if type(x) is Dual else 0


def add(a: Scalar, b: Scalar) -> Scalar:
    one, two = level_of(a), level_of(b)
    if one == 0 and two == 0:
        total = a + b
        if not total and a:
            Watch.lost = True
        return total
    if one < two:
        a, b, one, two = b, a, two, one
    if one > two:
        return Dual(one, add(a.value, b), a.partials)
    partials = dict(a.partials)
    for index, p in b.partials.items():
        known = partials.get(index)
        partials[index] = p if known is None else add(known, p)
    return Dual(one, add(a.value, b.value), partials)


def mul(a: Scalar, b: Scalar) -> Scalar:
    one, two = level_of(a), level_of(b)
    if one == 0 and two == 0:
        return a * b
    if one < two:
        a, b, one, two = b, a, two, one
    if one > two:
        return Dual(one, mul(a.value, b), {k: mul(p, b) for k, p in a.partials.items()})
    u, v = a.value, b.value
    partials = {k: mul(p, v) for k, p in a.partials.items()}
    for index, p in b.partials.items():
        term, known = mul(u, p), partials.get(index)
        partials[index] = term if known is None else add(known, term)
    return Dual(one, mul(u, v), partials)


def neg(x: Scalar) -> Scalar:
    if type(x) is Dual:
        return Dual(x.level, neg(x.value), {k: neg(p) for k, p in x.partials.items()})
    return -x


def sub(a: Scalar, b: Scalar) -> Scalar:
    return add(a, neg(b))


def div(a: Scalar, b: Scalar) -> Scalar:
    return mul(a, reciprocal(b))


Unary = Callable[[Scalar], Scalar]


def _unary(value: Callable[[Real], Real], derivative: Callable[[Scalar, Scalar], Scalar]) -> Unary:
    """A function of scalars from its value and its derivative in terms of x and f(x)."""

    def function(x: Scalar) -> Scalar:
        if type(x) is not Dual:
            return value(x)
        y = function(x.value)
        slope = derivative(x.value, y)
        return Dual(x.level, y, {k: mul(slope, p) for k, p in x.partials.items()})

    return function


def _real(value: Callable[..., Real]) -> Callable[..., Real]:
    """The function with NaN where it has a pole or is not real."""

    def function(*args: Real) -> Real:
        if any(isnan(arg) for arg in args):
            return mp.nan
        try:
            result = value(*args)
        except (ValueError, ZeroDivisionError, OverflowError):
            return mp.nan
        return result if type(result) is mp.mpf else mp.nan

    return function


def magnitude(x: Real) -> int:
    """The binary exponent of a finite number; negative for zero, infinities and NaN."""
    _, mantissa, exponent, bits = x._mpf_
    return int(exponent + bits) if mantissa else -1


def _number(value: Any) -> Real:
    return mp.mpf(value)


# --- elementary functions ------------------------------------------------------------------


def _reciprocal(x: Real) -> Real:
    return 1 / x if x else mp.nan


def _exp(x: Real) -> Real:
    if magnitude(x) > BITS:
        return mp.inf if x > 0 else mp.zero
    return mp.exp(x)


def _log(x: Real) -> Real:
    if x < 0:
        return mp.nan
    if x == 1:
        Watch.lost = True
    return mp.log(x)


def _expm1(x: Real) -> Real:
    return _exp(x) - 1 if magnitude(x) > BITS else mp.expm1(x)


def _log1p(x: Real) -> Real:
    if x == -1:
        Watch.lost = True
    return mp.log1p(x) if x >= -1 else mp.nan


def _hyperbolic(plain: Callable[[Real], Real], odd: bool) -> Callable[[Real], Real]:
    def value(x: Real) -> Real:
        if magnitude(x) > BITS:
            return -mp.inf if odd and x < 0 else mp.inf
        return plain(x)

    return value


def _tanh(x: Real) -> Real:
    if magnitude(x) > BITS:
        return mp.sign(x)
    return mp.tanh(x)


def _periodic(plain: Callable[[Real], Real]) -> Callable[[Real], Real]:
    """Without the reduction of an argument of astronomical size."""
    return _real(lambda x: mp.nan if magnitude(x) > 4 * BITS else plain(x))


def _edge(plain: Callable[[Real], Real]) -> Callable[[Real], Real]:
    """A function with a zero or an end of its range at |x| = 1, which rounding may have made."""
    plain = _real(plain)

    def value(x: Real) -> Real:
        if x in (1, -1):
            Watch.lost = True
        return plain(x)

    return value


def _erf(x: Real) -> Real:
    return mp.sign(x) if magnitude(x) > BITS // 4 else mp.erf(x)


def _erfc(x: Real) -> Real:
    if magnitude(x) > BITS // 4:
        return _number(0 if x > 0 else 2)
    return mp.erfc(x)


def _at_pole(x: Real) -> bool:
    """Whether gamma and its relatives have a pole at x."""
    pole = bool(mp.isint(x) and x <= 0)
    if pole:
        Watch.lost = True
    return pole


def _gamma(x: Real) -> Real:
    if _at_pole(x):
        return mp.nan
    if magnitude(x) > BITS:
        return mp.inf if x > 0 else mp.nan
    return mp.gamma(x)


def _loggamma(x: Real) -> Real:
    if _at_pole(x) or mp.isinf(x):
        return mp.inf
    return mp.re(mp.loggamma(x))


def _one_over_root(x: Scalar) -> Scalar:
    return pow_rational(x, -1, 2)


def _square(x: Scalar) -> Scalar:
    return mul(x, x)


reciprocal: Unary = _unary(_reciprocal, lambda x, y: neg(_square(y)))
exp: Unary = _unary(_exp, lambda x, y: y)
log: Unary = _unary(_log, lambda x, y: reciprocal(x))
expm1: Unary = _unary(_real(_expm1), lambda x, y: exp(x))
log1p: Unary = _unary(_real(_log1p), lambda x, y: reciprocal(add(mp.one, x)))

sin: Unary = _unary(_periodic(mp.sin), lambda x, y: cos(x))
cos: Unary = _unary(_periodic(mp.cos), lambda x, y: neg(sin(x)))
tan: Unary = _unary(_periodic(mp.tan), lambda x, y: _square(reciprocal(cos(x))))
cot: Unary = _unary(_periodic(mp.cot), lambda x, y: neg(_square(reciprocal(sin(x)))))
asin: Unary = _unary(
    _edge(mp.asin), lambda x, y: _one_over_root(mul(sub(mp.one, x), add(mp.one, x)))
)
acos: Unary = _unary(
    _edge(mp.acos), lambda x, y: neg(_one_over_root(mul(sub(mp.one, x), add(mp.one, x))))
)
atan: Unary = _unary(mp.atan, lambda x, y: reciprocal(add(mp.one, _square(x))))
acot: Unary = _unary(_real(mp.acot), lambda x, y: neg(reciprocal(add(mp.one, _square(x)))))

sinh: Unary = _unary(_hyperbolic(mp.sinh, True), lambda x, y: cosh(x))
cosh: Unary = _unary(_hyperbolic(mp.cosh, False), lambda x, y: sinh(x))
tanh: Unary = _unary(_tanh, lambda x, y: _square(reciprocal(cosh(x))))
coth: Unary = _unary(
    lambda x: _reciprocal(_tanh(x)), lambda x, y: neg(_square(reciprocal(sinh(x))))
)
asinh: Unary = _unary(mp.asinh, lambda x, y: _one_over_root(add(mp.one, _square(x))))
acosh: Unary = _unary(
    _edge(mp.acosh),
    lambda x, y: mul(_one_over_root(sub(x, mp.one)), _one_over_root(add(x, mp.one))),
)
atanh: Unary = _unary(
    _edge(lambda x: mp.nan if abs(x) == 1 else mp.atanh(x)),
    lambda x, y: reciprocal(mul(sub(mp.one, x), add(mp.one, x))),
)


def _erf_slope(x: Scalar, y: Scalar) -> Scalar:
    return mul(2 / mp.sqrt(mp.pi), exp(neg(_square(x))))


erf: Unary = _unary(_erf, _erf_slope)
erfc: Unary = _unary(_erfc, lambda x, y: neg(_erf_slope(x, y)))
erfinv: Unary = _unary(_edge(mp.erfinv), lambda x, y: mul(mp.sqrt(mp.pi) / 2, exp(_square(y))))

gamma: Unary = _unary(_real(_gamma), lambda x, y: mul(y, polygamma(mp.zero, x)))
loggamma: Unary = _unary(_real(_loggamma), lambda x, y: polygamma(mp.zero, x))
_rgamma: Unary = _unary(_real(mp.rgamma), lambda x, y: neg(mul(y, polygamma(mp.zero, x))))


def _psi(order: int, x: Real) -> Real:
    if _at_pole(x):
        return mp.nan
    if mp.mag(x) > mp.prec:  # mpmath makes an integer of it, which may have too many digits
        first = mp.log(x) if order == 0 else (-1) ** (order + 1) * mp.factorial(order - 1)
        return first / x**order
    if x > -20:
        return mp.psi(order, x)
    # mpmath steps down from 0 one by one. d/du cot(u) = -(1 + cot(u)**2), order times over.
    cot, powers = mp.cospi(x) / mp.sinpi(x), [0, 1]
    for _ in range(order):
        slopes = [n * c for n, c in enumerate(powers)][1:]
        powers = [-(a + b) for a, b in zip([*slopes, 0, 0], [0, 0, *slopes], strict=True)]
    reflected = mp.psi(order, 1 - x) * (-1) ** order
    return reflected - mp.pi ** (order + 1) * mp.polyval(powers[::-1], cot)


@functools.cache
def _polygamma(order: int) -> Unary:
    value = _real(lambda x: _psi(order, x))
    return _unary(value, lambda x, y: _polygamma(order + 1)(x))


def polygamma(order: Scalar, x: Scalar) -> Scalar:
    n = base(order)
    return _polygamma(int(n))(x) if mp.isint(n) and n >= 0 else mp.nan


def _over(function: Unary) -> Unary:
    return lambda x: function(reciprocal(x))


asec, acsc, acoth, asech = _over(acos), _over(asin), _over(atanh), _over(acosh)


def acsch(x: Scalar) -> Scalar:
    return asinh(reciprocal(x))


def sqrt(x: Scalar) -> Scalar:
    return pow_rational(x, 1, 2)


def cbrt(x: Scalar) -> Scalar:
    return pow_rational(x, 1, 3)


def sinc(x: Scalar) -> Scalar:
    if base(x):
        return div(sin(x), x)
    # Exact at 0, as are the derivatives that are ever taken.
    square = _square(x)
    series = mp.one
    for n in (42, 20, 6):
        series = sub(mp.one, mul(series, mul(square, mp.one / n)))
    return series


def spherical_bessel(order: Scalar, x: Scalar) -> Scalar:
    """j_n(x), from its recurrence upwards; its power series where x is 0."""
    n = int(base(order))
    if not base(x):
        start = mp.one
        for k in range(1, 2 * n + 2, 2):
            start /= k
        square = _square(x)
        series = mp.one
        for k in (3, 2, 1):
            factor = mp.mpf(1) / (2 * k * (2 * n + 2 * k + 1))
            series = sub(mp.one, mul(series, mul(square, factor)))
        return mul(mul(start, pow_rational(x, n, 1)), series)
    previous, current = div(cos(x), x), sinc(x)
    for k in range(n):
        previous, current = current, sub(div(mul(_number(2 * k + 1), current), x), previous)
    return current


def sigmoid(x: Scalar) -> Scalar:
    return reciprocal(add(mp.one, exp(neg(x))))


def softplus(x: Scalar) -> Scalar:
    if base(x) > 0:
        return add(x, log1p(exp(neg(x))))
    return log1p(exp(x))


def logsigmoid(x: Scalar) -> Scalar:
    return neg(softplus(neg(x)))


def normcdf(x: Scalar) -> Scalar:
    return mul(mp.one / 2, erfc(mul(neg(x), mp.sqrt(2) / 2)))


def logcosh(x: Scalar) -> Scalar:
    return log(cosh(x))


def factorial(x: Scalar) -> Scalar:
    return gamma(add(x, mp.one))


def beta(a: Scalar, b: Scalar | None = None) -> Scalar:
    b = a if b is None else b
    return mul(mul(gamma(a), gamma(b)), _rgamma(add(a, b)))


def binomial(n: Scalar, k: Scalar) -> Scalar:
    below = mul(_rgamma(add(k, mp.one)), _rgamma(add(sub(n, k), mp.one)))
    return mul(gamma(add(n, mp.one)), below)


_atan2 = _real(mp.atan2)


def atan2(y: Scalar, x: Scalar) -> Scalar:
    level = max(level_of(y), level_of(x))
    if level == 0:
        return _atan2(y, x)
    u, v = component(y, level), component(x, level)
    below = reciprocal(add(_square(u), _square(v)))
    return chain(level, atan2(u, v), (y, mul(v, below)), (x, neg(mul(u, below))))


def component(x: Scalar, level: int) -> Scalar:
    return x.value if level_of(x) == level else x


def chain(level: int, value: Scalar, *terms: tuple[Scalar, Scalar | None]) -> Scalar:
    """The dual of `value` whose derivative in each argument is the slope beside it."""
    partials: dict[int, Scalar] = {}
    for x, slope in terms:
        if level_of(x) != level or slope is None:
            continue
        for index, p in x.partials.items():
            term, known = mul(slope, p), partials.get(index)
            partials[index] = term if known is None else add(known, term)
    return Dual(level, value, partials) if partials else value


# --- powers --------------------------------------------------------------------------------


def _root(x: Real, p: int, q: int) -> Real:
    if q == 1:
        if abs(p) * abs(magnitude(x)) >> BITS:
            return _log_power(x, _number(p))
        return x**p if p > 0 else _reciprocal(x**-p)
    if x < 0 and q != 3:
        return mp.nan
    if q == 2:
        return _root(mp.sqrt(x), p, 1)
    if q == 3:
        return _root(mp.cbrt(x) if x >= 0 else -mp.cbrt(-x), p, 1)
    return _log_power(x, _number(p) / q)


def pow_rational(x: Scalar, p: int, q: int) -> Scalar:
    """x ** (p/q) in lowest terms, real for negative x if q is 1 or 3."""
    if p == 0:
        return mp.one
    if p == 1 and q == 1:
        return x
    if type(x) is not Dual:
        return _root(x, p, q)
    slope = mul(_number(p) / q, pow_rational(x.value, p - q, q))
    return Dual(
        x.level,
        pow_rational(x.value, p, q),
        {k: mul(slope, each) for k, each in x.partials.items()},
    )


def _log_power(x: Real, y: Real) -> Real:
    """x ** y of any size; y is an integer if x is negative."""
    if not x:
        return mp.zero if y > 0 else mp.one if y == 0 else mp.nan
    size = y * mp.log(abs(x)) if y else mp.zero
    odd = x < 0 and mp.isint(y) and int(y) & 1
    return -_exp(size) if odd else _exp(size)


def _power(x: Real, y: Real) -> Real:
    if isnan(x) or isnan(y):
        return mp.nan
    if mp.isint(y) and magnitude(y) < 64:
        return mp.one if not y else _root(x, int(y), 1)
    if x < 0 and not mp.isint(y):
        return mp.nan
    return _log_power(x, y)


def power(x: Scalar, y: Scalar) -> Scalar:
    """x ** y for an exponent that is no rational constant."""
    level = max(level_of(x), level_of(y))
    if level == 0:
        return _power(x, y)
    u, v = component(x, level), component(y, level)
    value = power(u, v)
    in_base = in_exponent = None
    if level_of(x) == level and (base(u) or base(v)):
        in_base = mul(v, power(u, sub(v, mp.one)))
    if level_of(y) == level and not (base(u) == 0 and base(v) >= 0):
        in_exponent = mul(value, log(u))
    return chain(level, value, (x, in_base), (y, in_exponent))


# --- kinks ---------------------------------------------------------------------------------


def absolute(x: Scalar) -> Scalar:
    at = base(x)
    if at > 0:
        return x
    if at < 0:
        return neg(x)
    return at if at == 0 else mul(x, mp.nan)  # its slopes are NaN as well, not absent


def sign(x: Scalar) -> Scalar:
    return mp.sign(base(x))


def floor(x: Scalar) -> Scalar:
    at = base(x)
    whole = mp.floor(at)
    if whole == at:
        Watch.lost = True
    return whole


def ceiling(x: Scalar) -> Scalar:
    return -floor(-base(x))


def frac(x: Scalar) -> Scalar:
    return sub(x, floor(x))


def modulo(x: Scalar, y: Scalar) -> Scalar:
    return sub(x, mul(y, floor(div(x, y))))


def heaviside(x: Scalar, at_zero: Scalar = None) -> Scalar:
    at = base(x)
    if at > 0 or at < 0:
        return mp.one if at > 0 else mp.zero
    if at == 0:
        return mp.one / 2 if at_zero is None else base(at_zero)
    return mp.nan


def clamp(x: Scalar, low: Scalar, high: Scalar) -> Scalar:
    at, least, most = base(x), base(low), base(high)
    if isnan(at) or isnan(least) or isnan(most):
        return mul(mul(mul(x, low), high), mp.nan)
    if at > most or least > most:
        return high
    return low if at < least else x


def relu(x: Scalar) -> Scalar:
    at = base(x)
    return mp.zero if at <= 0 else x


FUNCTIONS: dict[str, Callable[..., Scalar]] = {
    "Abs": absolute,
    "Cbrt": cbrt,
    "Heaviside": heaviside,
    "Mod": modulo,
    "Sqrt": sqrt,
    "acos": acos,
    "acosh": acosh,
    "acot": acot,
    "acoth": acoth,
    "acsc": acsc,
    "acsch": acsch,
    "asec": asec,
    "asech": asech,
    "asin": asin,
    "asinh": asinh,
    "atan": atan,
    "atan2": atan2,
    "atanh": atanh,
    "beta": beta,
    "binomial": binomial,
    "cbrt": cbrt,
    "ceiling": ceiling,
    "clamp": clamp,
    "cos": cos,
    "cosh": cosh,
    "cot": cot,
    "coth": coth,
    "csc": lambda x: reciprocal(sin(x)),
    "csch": lambda x: reciprocal(sinh(x)),
    "digamma": lambda x: polygamma(mp.zero, x),
    "erf": erf,
    "erf2": lambda x, y: sub(erf(y), erf(x)),
    "erfc": erfc,
    "erfinv": erfinv,
    "exp": exp,
    "exp2": lambda x: exp(mul(x, mp.log(2))),
    "expm1": expm1,
    "factorial": factorial,
    "floor": floor,
    "fma": lambda x, y, z: add(mul(x, y), z),
    "frac": frac,
    "gamma": gamma,
    "gelu": lambda x: mul(x, normcdf(x)),
    "hypot": lambda x, y: sqrt(add(_square(x), _square(y))),
    "log": log,
    "log10": lambda x: mul(log(x), 1 / mp.log(10)),
    "log1p": log1p,
    "log2": lambda x: mul(log(x), 1 / mp.log(2)),
    "logcosh": logcosh,
    "loggamma": loggamma,
    "logsigmoid": logsigmoid,
    "normcdf": normcdf,
    "polygamma": polygamma,
    "power": power,
    "relu": relu,
    "sec": lambda x: reciprocal(cos(x)),
    "sech": lambda x: reciprocal(cosh(x)),
    "sech2": lambda x: _square(reciprocal(cosh(x))),
    "sigmoid": sigmoid,
    "sign": sign,
    "silu": lambda x: mul(x, sigmoid(x)),
    "sin": sin,
    "sinc": sinc,
    "sinh": sinh,
    "softplus": softplus,
    "spherical_bessel": spherical_bessel,
    "tan": tan,
    "tanh": tanh,
    "trigamma": lambda x: polygamma(mp.one, x),
    "UnevaluatedExpr": lambda x: x,
}
"""By the name of the SymPy class, the function of scalars."""
