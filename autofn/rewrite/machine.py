"""Arithmetic of float32 and float64 on Python's floats, which are float64 on any machine.

Each operation is exact and rounded once, subnormal and overflowing numbers included. For float32
what float64 gives is rounded again, which changes nothing: 53 digits are more than twice 24 and 2.
Functions are not here: no library of the machine is asked for one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from autofn.ops import OPS

Value = float | bool

Native = Callable[..., Value]

_SAME = (
    "add sub mul div neg square abs max min clamp lt le gt ge eq ne and or not select along".split()
)

NATIVE: dict[str, Native] = {
    **{name: OPS[name].exact for name in _SAME},
    "relu": lambda a: max(a, 0.0),
    "sqrt": math.sqrt,
}
"""What takes floats as it takes numbers of any precision. A division by zero raises."""


def single(value: float) -> float:
    """The nearest number of float32, ties to even; infinite beyond the largest."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def same(value: float) -> float:
    """As `single`, of float64."""
    return value


def fma(a: float, b: float, c: float) -> float:
    """a * b + c in float32, rounded once. The product is exact in float64."""
    product = a * b
    total, rest = _two_sum(product, c)
    if rest and math.isfinite(total) and not _is_odd(total):
        # To odd: no tie between numbers of float32 that is none.
        total = math.nextafter(total, math.copysign(math.inf, rest))
    return single(total)


def polynomial(t: float, terms: Sequence[float]) -> float:
    """c0 * t**n + ... + cn in float32, by `fma`."""
    value, *rest = terms
    for term in rest:
        value = fma(value, t, term)
    return value


def power(value: Any, n: int, rounded: Callable[[Any], Any]) -> Any:
    """By squaring, as the helper of that name does; of numbers of any kind."""
    if n == 1:
        return value
    half = power(value, n // 2, rounded)
    square = rounded(half * half)
    return rounded(square * value) if n % 2 else square


def sum_rest(a: float, b: float, rounded: Callable[[float], float]) -> float:
    """What a + b loses in rounding; NaN where it overflows, as in a machine."""
    total, rest = _two_sum(a, b)
    near = rounded(total)
    return (total - near) + rest if math.isfinite(near) else math.nan


def product_rest(a: float, b: float) -> float:
    """What a * b loses in rounding to float32."""
    product = a * b
    near = single(product)
    return single(product - near) if math.isfinite(near) else math.nan


def _two_sum(a: float, b: float) -> tuple[float, float]:
    """A sum, and what it lost (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _is_odd(value: float) -> bool:
    return bool(struct.unpack("q", struct.pack("d", value))[0] & 1)
