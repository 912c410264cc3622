"""Functions in a machine's extended precision, where that decides what they are rounded to.

A result is taken where both ends of what a function may be round to the same number: it is then
that of MPFR's, on any machine. What is not decided is left to MPFR, as everything is where long
double has no 64 bits. What may be a number of the format exactly is not decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from autofn import precise
from autofn.rewrite.formats import SINGLE, Format
from autofn.rewrite.machine import Column

PI = (math.pi, 1.2246467991473532e-16)
"""In two floats."""

BOUND = np.longdouble(2) ** -58
"""How wrong a function is at most, relatively: over ten times what libraries say."""

AVAILABLE = np.finfo(np.longdouble).nmant >= 63


def _sigmoid(u: Column) -> Column:
    return 1 / (1 + np.exp(-u))


def _power_in_parts(x: Column, y: Column, x_rest: Column, y_rest: Column) -> Column:
    more = y * np.log1p(_rest_of(x, x_rest) / x) + _rest_of(y, y_rest) * np.log(x)
    return np.where((x > 0) & np.isfinite(x), np.power(x, y) * np.exp(more), np.nan)


def _rest_of(x: Column, rest: Column) -> Column:
    return np.where(np.abs(rest) < np.abs(x), rest, 0)


def _exp_of_sum(a: Column, b: Column) -> Column:
    # The sum would lose as many digits as it is large. b is what it lost before.
    return np.where(np.abs(b) < 1, np.exp(a) * np.exp(b), np.nan)


def _sigmoid_of_sum(a: Column, b: Column) -> Column:
    return 1 / (1 + _exp_of_sum(-a, -b))


DIGITS = 70
"""Bits to which the rule for the error function's tail is exact."""

STRIDE = 32
"""Squares of multiples of one 32nd are exact."""

NEAREST, FARTHEST = 0.05, 100.0
"""Arguments of the error function's tail: below, what the pole has takes digits."""


def _wide(value: Any) -> Any:
    """A number of MPFR's."""
    first = float(value)
    return np.longdouble(first) + np.longdouble(float(value - first))


@cache
def _trapezoidal() -> tuple[Any, Column, Column]:
    """`precise.trapezoidal`, in this precision."""
    with precise.in_bits(2 * DIGITS):
        step, terms = precise.trapezoidal(DIGITS)
        squares, weights = zip(*terms, strict=True)
        return _wide(step), np.array([*map(_wide, squares)]), np.array([*map(_wide, weights)])


def _erfc_times(x: Column, rest: Column, by: int) -> Column:
    """erfc((x + rest)/sqrt(by)), by one rule for all arguments (see `precise`)."""
    sign = np.where(x < 0, -1, 1).astype(np.longdouble)
    x, rest = np.abs(x), sign * rest
    coarse = np.round(x * STRIDE) / STRIDE
    fine = (x - coarse) + rest
    gauss = np.exp(-coarse * coarse / by) * np.exp(-fine * (2 * coarse + fine) / by)
    z = (x + rest) / np.sqrt(np.longdouble(by))
    square, pi = z * z, np.longdouble(PI[0]) + np.longdouble(PI[1])
    step, squares, weights = _trapezoidal()
    total = np.sum(weights / (squares + square[:, None]), axis=1) + 1 / (2 * square)
    pole = np.where(z * step < pi, 2 / np.expm1(2 * pi * z / step), 0)
    tail = 2 * step * z * gauss / pi * total - pole
    known = (z > NEAREST) & (z < FARTHEST) & (np.abs(rest) < 1)
    return np.where(known, np.where(sign < 0, 2 - tail, tail), np.nan)


TERMS = 20
"""Of the error function's series about 0, which alternate, to 2**-64 of it up to `NEAR`."""

NEAR = 0.5


def _erf(x: Column) -> Column:
    above = 1 - _erfc_times(np.abs(x), np.zeros_like(x), 1)
    return np.where(np.abs(x) > NEAR, np.copysign(above, x), _erf_near_0(x))


def _erf_near_0(x: Column) -> Column:
    square = -x * x
    total = np.zeros_like(x)
    for n in reversed(range(TERMS)):
        total = total * square / (n + 1) + 1 / np.longdouble(2 * n + 1)
    root = np.sqrt(np.longdouble(PI[0]) + np.longdouble(PI[1]))
    return np.asarray(2 / root * x * total)


def _normcdf(a: Column, b: Column | None = None) -> Column:
    rest = np.zeros_like(a) if b is None else b
    near = (1 + _erf_near_0((a + rest) / np.sqrt(np.longdouble(2)))) / 2
    return np.where(np.abs(a) < 2 * NEAREST, near, _erfc_times(-a, -rest, 2) / 2)


def _lower(u: Column, rest: Column | None = None) -> Column:
    # From 0 on it is 1, and what it is multiplied with exact.
    low = np.exp(u) if rest is None else _exp_of_sum(u, rest)
    return np.where(u < 0, low, np.nan)


LARGE = 1e37
"""Of a factor of sech2: four times that is formed first, and may overflow."""


def _times_sech2(v: Column, a: Column, b: Column | None = None) -> Column:
    growing = np.exp(a) if b is None else _exp_of_sum(a, b)
    return np.where(np.abs(v) < LARGE, v / np.square((growing + 1 / growing) / 2), np.nan)


def _high(x: Column) -> Column:
    """Half of its digits, so that products of halves are exact."""
    split = x * np.longdouble(2.0**38 + 1)
    return np.asarray(split - (split - x))


def _times_exp_product(v: Column, a: Column, b: Column) -> Column:
    product, high, other = a * b, _high(a), _high(b)
    lost = (high * other - product) + high * (b - other) + (a - high) * other
    return v * _exp_of_sum(product, lost + (a - high) * (b - other))


NOTHING = 1e-20
"""What MPFR's digits of the sum of two exponentials may be too few for, if that is about 1."""


def _logaddexp(a: Column, b: Column) -> Column:
    larger = np.maximum(a, b)
    value = larger + np.log1p(np.exp(-np.abs(a - b)))
    kept = 8 * np.abs(value) > np.maximum(np.abs(larger), NOTHING)  # nothing has cancelled
    return np.where(kept, value, np.nan)


VALUES: Mapping[str, Callable[..., Column]] = {
    "exp": np.exp,
    "times_exp": lambda v, u: v * np.exp(u),
    "decay": lambda u: np.exp(-u),
    "exp_of_sum": _exp_of_sum,
    "times_exp_of_sum": lambda v, a, b: v * _exp_of_sum(a, b),
    "decay_of_sum": lambda a, b: _exp_of_sum(-a, b),
    "times_exp_product": _times_exp_product,
    "times_lower": lambda v, u: v * _lower(u),
    "times_lower_of_sum": lambda v, a, b: v * _lower(a, b),
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "xlogy": lambda v, u: np.where(v != 0, v * np.log(u), np.nan),
    "xlog1py": lambda v, u: np.where(v != 0, v * np.log1p(u), np.nan),
    "pow": lambda base, exponent: np.where(base > 0, np.power(base, exponent), np.nan),
    "pow_in_parts": _power_in_parts,
    "logaddexp": _logaddexp,
    "softplus": lambda u: np.maximum(u, 0) + np.log1p(np.exp(-np.abs(u))),
    "sigmoid": _sigmoid,
    "sigmoid_minus": lambda u: _sigmoid(-u),
    "times_sigmoid": lambda v, u: v * _sigmoid(u),
    "times_sigmoid_minus": lambda v, u: v * _sigmoid(-u),
    "sigmoid_of_sum": _sigmoid_of_sum,
    "sigmoid_minus_of_sum": lambda a, b: _sigmoid_of_sum(-a, -b),
    "times_sigmoid_of_sum": lambda v, a, b: v * _sigmoid_of_sum(a, b),
    "times_sigmoid_minus_of_sum": lambda v, a, b: v * _sigmoid_of_sum(-a, -b),
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "sech2": lambda u: 1 / np.square(np.cosh(u)),
    "times_sech2": _times_sech2,
    "times_sech2_of_sum": _times_sech2,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "atan": np.arctan,
    "erf": _erf,
    "erfc": lambda x: _erfc_times(x, np.zeros_like(x), 1),
    "erfc_of_sum": lambda a, b: _erfc_times(a, b, 1),
    "normcdf": _normcdf,
    "normcdf_of_sum": _normcdf,
    "times_normcdf": lambda v, x: v * _normcdf(x),
    "times_normcdf_of_sum": lambda v, a, b: v * _normcdf(a, b),
}


def off_by(
    op: str, args: list[Column], turns: Column, form: Format, ulp: float, relative: float
) -> tuple[Column, Column] | None:
    """A function's results, wrong by what they may be, and which are decided; None of others.

    turns: the signs of the errors, 0 for none. ulp, relative: how large they are.
    """
    if op not in VALUES or not AVAILABLE:
        return None
    wide = [arg.astype(np.longdouble) for arg in args]
    finite = np.all(np.isfinite(wide), axis=0)
    value = VALUES[op](*wide)
    size = np.frexp(value)[1]
    off = np.ldexp(np.longdouble(ulp), np.maximum(size - form.bits, form.least))
    off = turns * np.where(size > form.least, off + np.longdouble(relative) * np.abs(value), 0)
    doubt = np.abs(value) * BOUND
    low, high = value - doubt, value + doubt
    found = _rounded(low + off, form)
    nearest = _rounded(value, form)
    alike = (found == _rounded(high + off, form)) & ((nearest < low) | (high < nearest))
    # Of what is exactly 0 or infinite here, nothing is left in the format, or it is too large.
    beyond = finite & ((value == 0) | np.isinf(value))
    # A function of NaN, whatever it is to be multiplied with.
    lost = np.isnan(wide[1 if op.startswith("times_") else 0]) & (op not in ("pow", "pow_in_parts"))
    return np.where(beyond, value.astype(np.float64), found), alike | beyond | lost


def _rounded(values: Column, form: Format) -> Column:
    return values.astype(np.float32 if form is SINGLE else np.float64).astype(np.float64)
