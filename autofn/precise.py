"""Numbers of any precision, of two kinds: MPFR's are quick, mpmath's are without bounds.

MPFR's have exponents below 2**30, and lack some functions. The functions here take both kinds and
give what they got; they are those of mpmath, poles and branches included. `evaluated` is for
whoever has a formula in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

import gmpy2
import mpmath
from gmpy2 import mpfr
from mpmath import mp
from mpmath.libmp import from_man_exp

Number = Any
"""Either kind."""

Make = Callable[[Any], Number]
"""From a float, or a number of mpmath's, to one of a kind."""

WIDEST = 2**600
"""Exponents of two beyond which mpmath's numbers are infinite, and 0 below its negative: exp(1e25)
is a number, of which multiples, powers and inverses are looked at."""

OUT_OF_RANGE = (gmpy2.OverflowResultError, gmpy2.UnderflowResultError)
"""What MPFR has no exponent for."""

IN_RANGE = 2**29
"""Exponents of two that MPFR has by far."""


@cache
def context(precision: int, least: int | None = None, top: int | None = None) -> Any:
    """MPFR's numbers of so many bits; least, top: the exponents of the least number and of the
    first overflow, with subnormal numbers between."""
    subnormal = least is not None
    return gmpy2.context(
        precision=precision,
        emax=gmpy2.get_emax_max() if top is None else top,
        emin=gmpy2.get_emin_min() if least is None else least + 1,
        subnormalize=subnormal,
        trap_divzero=True,
        trap_overflow=not subnormal,
        trap_underflow=not subnormal,
    )


@contextmanager
def in_bits(precision: int) -> Iterator[None]:
    """MPFR's operators with results of so many bits; within another such context, too."""
    before = gmpy2.get_context()
    gmpy2.set_context(context(precision))
    try:
        yield
    finally:
        gmpy2.set_context(before)


def evaluated(precision: int, compute: Callable[[Make], Any]) -> Any:
    """What is computed from numbers that the argument makes: of MPFR's, if all are in range."""
    before = gmpy2.get_context()
    gmpy2.set_context(context(precision))
    try:
        return compute(quick)
    except OUT_OF_RANGE:
        pass
    finally:
        gmpy2.set_context(before)
    with mp.workprec(precision):
        return compute(wide)


def quick(value: Any) -> Any:
    """The number of MPFR's kind, exactly if the context has that many bits."""
    if isinstance(value, mpfr):
        return value
    if not isinstance(value, mp.mpf):
        return mpfr(value)
    sign, mantissa, exponent, count = value._mpf_
    if not mantissa:
        return mpfr(0) if value == 0 else mpfr(float(value))
    if abs(exponent + count) > IN_RANGE:
        large = mpfr("-inf" if sign else "inf")
        return large if exponent > 0 else mpfr(0)
    return mpfr(-mantissa if sign else mantissa) * power_of_two(exponent)


def wide(value: Any) -> Any:
    """The number of mpmath's kind."""
    if isinstance(value, mp.mpf):
        return value
    if not isinstance(value, mpfr):
        return mp.mpf(value)
    if not gmpy2.is_finite(value):
        return mp.mpf(float(value))
    mantissa, exponent = value.as_mantissa_exp()
    return mp.make_mpf(from_man_exp(mantissa, int(exponent)))


def bounded(value: Any, widest: int = WIDEST) -> Any:
    """A number of a kind, of what an operation gives; NaN where that is complex."""
    if isinstance(value, mpfr | bool):
        return value
    if not isinstance(value, mp.mpf):
        return mp.nan if isinstance(value, mp.mpc) else value
    sign, mantissa, exponent, count = value._mpf_
    if not mantissa or -widest <= exponent + count <= widest:
        return value
    if exponent + count < 0:
        return mp.zero
    return -mp.inf if sign else mp.inf


def infinite_beyond(value: Any, widest: int) -> Any:
    """A number of either kind, infinite from that power of two on."""
    if isinstance(value, mpfr) and gmpy2.is_finite(value) and value and magnitude(value) > widest:
        return mpfr("inf") if value > 0 else mpfr("-inf")
    return bounded(value, widest)


def is_finite(value: Any) -> bool:
    return bool(gmpy2.is_finite(value) if isinstance(value, mpfr) else mp.isfinite(value))


def magnitude(value: Any) -> int:
    """The exponent of two beyond a number of MPFR's that is neither 0 nor infinite."""
    return int(gmpy2.get_exp(value))


def power_of_two(exponent: int) -> Any:
    one = mpfr(1)
    return gmpy2.mul_2exp(one, exponent) if exponent >= 0 else gmpy2.div_2exp(one, -exponent)


def precision_of(value: Any) -> tuple[bool, int]:
    """A number's kind, and what is computed with it in bits."""
    quickly = isinstance(value, mpfr)
    return quickly, gmpy2.get_context().precision if quickly else mp.prec


# --- functions ---------------------------------------------------------------------------------


def _either(name: str, quickly: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """mpmath's function of that name, in MPFR's if there is one."""
    slowly = getattr(mpmath, name)
    if quickly is None:
        return by_mpmath(slowly)

    def function(*args: Any) -> Any:
        return quickly(*args) if isinstance(args[0], mpfr) else slowly(*args)

    return function


def by_mpmath(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of mpmath's numbers, for either."""

    @wraps(function)
    def converted(*args: Any) -> Any:
        if not any(isinstance(arg, mpfr) for arg in args):
            return function(*args)
        with mp.workprec(gmpy2.get_context().precision):
            value = function(*(wide(a) if isinstance(a, mpfr) else a for a in args))
            return quick(mp.nan if isinstance(value, mp.mpc) else mp.mpf(value))

    return converted


def _at(pole: float, quickly: Callable[[Any], Any], value: float) -> Callable[[Any], Any]:
    """MPFR's function, which takes what is infinite at a pole for a division by zero."""
    return lambda x: mpfr(value) if x == pole else quickly(x)


SLOW = (2.0, 50.0)
"""Where MPFR's erfc takes up to fifty times as long as the sum here."""

GUARD = 20
"""More bits, for what that sum loses."""


def _erfc(x: Any) -> Any:
    """erfc, by the trapezoidal rule for its integral over exp(-t**2)/(t**2 + x**2).

    C. Chiarella and A. Reichel, On the evaluation of integrals related to the error function,
    Mathematics of Computation 22 (1968); what the rule misses at the pole is added exactly.
    """
    if not SLOW[0] < x < SLOW[1]:
        return gmpy2.erfc(x)
    precision = gmpy2.get_context().precision
    with in_bits(precision + GUARD):
        step, terms = trapezoidal(precision + GUARD)
        square = x * x
        total = sum((weight / (t + square) for t, weight in terms), 1 / (2 * square))
        value = 2 * step * x * gmpy2.exp(-square) / gmpy2.const_pi() * total
        if x * step < gmpy2.const_pi():
            value -= 2 / gmpy2.expm1(2 * gmpy2.const_pi() * x / step)
    return +value


@cache
def trapezoidal(precision: int) -> tuple[Any, list[tuple[Any, Any]]]:
    """A step that is exact to so many bits, and of each point after 0 its square and its weight."""
    last = gmpy2.sqrt(precision * gmpy2.const_log2())
    step = gmpy2.const_pi() / last
    squares = [(k * step) ** 2 for k in range(1, int(last / step) + 2)]
    return step, [(square, gmpy2.exp(-square)) for square in squares]


_QUICK: Mapping[str, Callable[..., Any]] = {
    **{
        name: getattr(gmpy2, name)
        for name in "sqrt exp expm1 sinh cosh tanh sech asinh acosh sin cos tan asin acos atan "
        "erf gamma cbrt".split()
    },
    "erfc": _erfc,
    "floor": lambda x: gmpy2.rint_floor(x) if gmpy2.is_finite(x) else x,
    "ceil": lambda x: gmpy2.rint_ceil(x) if gmpy2.is_finite(x) else x,
    "log": _at(0, gmpy2.log, -float("inf")),
    "log1p": _at(-1, gmpy2.log1p, -float("inf")),
    "sign": lambda x: x if gmpy2.is_nan(x) else mpfr(gmpy2.sign(x)),
    "atan2": lambda y, x: gmpy2.atan2(y + 0, x + 0),  # without -0
    "ncdf": lambda x: _erfc(-x / gmpy2.sqrt(mpfr(2))) / 2,
}

sqrt, cbrt, exp, expm1, log, log1p, sign, floor, ceil = (
    _either(name, _QUICK[name]) for name in "sqrt cbrt exp expm1 log log1p sign floor ceil".split()
)
sin, cos, tan, asin, acos, atan, atan2, sinh, cosh, tanh, sech, asinh, acosh = (
    _either(name, _QUICK[name])
    for name in "sin cos tan asin acos atan atan2 sinh cosh tanh sech asinh acosh".split()
)
erf, erfc, ncdf, gamma = (_either(name, _QUICK[name]) for name in "erf erfc ncdf gamma".split())
atanh, sinc = (_either(name) for name in ("atanh", "sinc"))


def isinf(x: Any) -> bool:
    return bool(gmpy2.is_infinite(x) if isinstance(x, mpfr) else mp.isinf(x))


def power(x: Any, y: Any) -> Any:
    """x**y; NaN where a logarithm of x has to do and is none, and at poles without a sign."""
    whole = y == floor(y) and not isinf(y)
    if x == 0 and y < 0 and not whole:
        return x + math.inf
    if (x == 0 and y < 0) or (isinf(x) and y == 0) or (x < 0 and not whole):
        return x * math.nan
    if x == 1:
        return x + 0 * y
    return x**y


def polyval(coefficients: Any, x: Any) -> Any:
    """Horner's scheme, the constant last."""
    value = coefficients[0]
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value
