"""Functions of kernels alone, opaque to SymPy, and the numbers they share."""

from __future__ import annotations

import sympy
from sympy import Function

HUGE = sympy.Float("4e18", 17)
"""A number of any dtype's arithmetic, and so is its square."""


class choose(Function):  # type: ignore[misc]
    """choose(u, below, above): below where u < 0, else above. Opaque: powers do not enter it."""

    nargs = (3,)
    is_real = True


class decay(Function):  # type: ignore[misc]
    """exp(-|u|). Opaque: its powers stay powers of it."""

    nargs = (1,)
    is_real = True
    is_positive = True


class inverse(Function):  # type: ignore[misc]
    """1 / u, of which powers are taken afterwards: 1 / u**2 overflows in the denominator."""

    nargs = (1,)
    is_real = True


class offset(Function):  # type: ignore[misc]
    """x - high - low, in this order: exact where high is near x, up to the rounding of low."""

    nargs = (3,)
    is_real = True


class polynomial(Function):  # type: ignore[misc]
    """polynomial(cut, t, c0, ..., cn) = c0*t**n + ... + cn; the first `cut` for double only."""

    is_real = True
