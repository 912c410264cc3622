"""Arithmetic of float32 and float64 on arrays of float64, which are alike on any machine.

Each operation is exact and rounded once, subnormal and overflowing numbers included. For float32
what float64 gives is rounded again, which changes nothing: 53 digits are more than twice 24 and 2.
Functions are not here: no library of the machine is asked for one. Where NaN is compared, the
operations are those of Python: max(a, b) is a unless b is greater.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]
"""Of float64, or of bool."""


def single(values: Column) -> Column:
    """The nearest numbers of float32, ties to even; infinite beyond the largest."""
    return values.astype(np.float32).astype(np.float64)


def same(values: Column) -> Column:
    """As `single`, of float64."""
    return values


def _max(a: Column, b: Column) -> Column:
    return np.where(b > a, b, a)


def _min(a: Column, b: Column) -> Column:
    return np.where(b < a, b, a)


NATIVE: Mapping[str, Callable[..., Column]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    # What comes of a division by zero is not to be relied on.
    "div": lambda a, b: np.where(b == 0, np.nan, np.divide(a, b)),
    "neg": np.negative,
    "square": np.square,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "max": _max,
    "min": _min,
    "relu": lambda a: _max(a, np.float64(0)),
    "clamp": lambda x, low, high: _min(_max(x, low), high),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "select": np.where,
    "along": lambda d, v: np.where(d != 0, v, 0 * d),
}


def fma(a: Column, b: Column, c: Column) -> Column:
    """a * b + c in float32, rounded once. The product is exact in float64."""
    return single(_to_odd(*_two_sum(a * b, c)))


def polynomial(t: Column, terms: Sequence[Column]) -> Column:
    """c0 * t**n + ... + cn in float32, by `fma`."""
    value, *rest = terms
    for term in rest:
        value = fma(value, t, term)
    return value


SPLIT = 2.0**27 + 1
SAFE = (2.0**-900, 2.0**900)
"""Sizes of which products and what they lose are numbers of float64."""


def fma_in_double(a: Column, b: Column, c: Column) -> tuple[Column, Column]:
    """a * b + c in float64, rounded once, and where that is known.

    S. Boldo and G. Melquiond, Emulation of FMA and correctly rounded sums: proved algorithms using
    rounding to odd, IEEE Transactions on Computers 57 (2008).
    """
    high, low = _product(a, b)
    total, rest = _two_sum(c, low)
    value, more = _two_sum(high, total)
    last = _to_odd(*_two_sum(rest, more))
    found = value + last
    known = _is_safe(a, b, high) & (np.abs(c) < SAFE[1]) & (np.abs(found) > SAFE[0])
    return found, known


def polynomial_in_double(t: Column, terms: Sequence[Column]) -> tuple[Column, Column]:
    """`polynomial` of float64, and where it is known."""
    value, *rest = terms
    known: Column = np.ones(np.shape(t), bool)
    for term in rest:
        value, also = fma_in_double(value, t, term)
        known = known & also
    return value, known


def product_rest_in_double(a: Column, b: Column) -> tuple[Column, Column]:
    """What a * b loses in rounding to float64, and where that is known."""
    high, low = _product(a, b)
    return low, _is_safe(a, b, high)


def _product(a: Column, b: Column) -> tuple[Column, Column]:
    """A product, and what it lost (Veltkamp, Dekker), of numbers that are not too large."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, rest


def _halves(value: Column) -> tuple[Column, Column]:
    large = SPLIT * value
    high = large - (large - value)
    return high, value - high


def _is_safe(a: Column, b: Column, product: Column) -> Column:
    size = np.abs(product)
    small = np.maximum(np.abs(a), np.abs(b)) < SAFE[1]
    safe: Column = small & (((size > SAFE[0]) & (size < SAFE[1])) | (a == 0) | (b == 0))
    return safe


def _to_odd(total: Column, rest: Column) -> Column:
    """A sum to odd: no tie between coarser numbers that is none."""
    odd = np.asarray(total).view(np.int64) & 1 == 1
    toward = np.nextafter(total, np.copysign(np.inf, rest))
    return np.where((rest != 0) & np.isfinite(total) & ~odd, toward, total)


def power(value: Any, n: int, rounded: Callable[[Any], Any]) -> Any:
    """By squaring, as the helper of that name does; of numbers of any kind."""
    if n == 1:
        return value
    half = power(value, n // 2, rounded)
    square = rounded(half * half)
    return rounded(square * value) if n % 2 else square


def sum_rest(a: Column, b: Column, rounded: Callable[[Column], Column]) -> Column:
    """What a + b loses in rounding; NaN where it overflows, as in a machine."""
    total, rest = _two_sum(a, b)
    near = rounded(total)
    return np.where(np.isfinite(near), (total - near) + rest, np.nan)


def product_rest(a: Column, b: Column) -> Column:
    """What a * b loses in rounding to float32."""
    product = a * b
    near = single(product)
    return np.where(np.isfinite(near), single(product - near), np.nan)


def _two_sum(a: Column, b: Column) -> tuple[Column, Column]:
    """A sum, and what it lost (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
