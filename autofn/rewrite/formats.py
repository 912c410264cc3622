"""Formats of floating-point numbers, and MPFR's and mpmath's numbers rounded to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autofn import precise

EXACT = 400
"""Bits of the truth."""


@dataclass(frozen=True)
class Format:
    """Significant bits, the exponent of the least subnormal, and of the first overflow."""

    bits: int
    least: int
    top: int


SINGLE = Format(24, -149, 128)
DOUBLE = Format(53, -1074, 1024)
DOUBLE_DOUBLE = Format(98, -1074, 1024)
BFLOAT16 = Format(8, -133, 128)
FLOAT16 = Format(11, -24, 16)


def arithmetic(form: Format) -> Any:
    """Operations that are rounded to a format once."""
    return precise.context(form.bits, form.least, form.top)


def near(value: Any, form: Format) -> Any:
    """The nearest number of a format, ties to even; infinite beyond the largest. Of MPFR's."""
    return arithmetic(form).plus(value)


def rounded(value: Any, form: Format = SINGLE) -> Any:
    """`near` of mpmath's numbers."""
    return precise.wide(near(of_mpfr(value), form))


def of_mpfr(value: Any) -> Any:
    with precise.in_bits(EXACT):
        return precise.quick(value)
