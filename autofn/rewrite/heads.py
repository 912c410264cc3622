"""Functions that no user writes, opaque to SymPy, and the numbers they share.

Of kernels alone, but for `along`, and `polynomial`, which PyTorch's operations get as sums and
products.
"""

from __future__ import annotations

import sympy
from sympy import Expr, Function

HUGE = sympy.Float("4e18", 17)
"""A number of any dtype's arithmetic, and so is its square."""


class along(Function):  # type: ignore[misc]
    """along(d, v): v, what comes of the direction d, a tangent or cotangent; 0 where that is 0."""

    nargs = (2,)
    is_real = True


class choose(Function):  # type: ignore[misc]
    """choose(u, below, above): below where u < 0, else above. Opaque: powers do not enter it."""

    nargs = (3,)
    is_real = True


class decay(Function):  # type: ignore[misc]
    """exp(-|u|). Opaque: its powers stay powers of it."""

    nargs = (1,)
    is_real = True
    is_positive = True


class exp_within(Function):  # type: ignore[misc]
    """exp_within(n, u): exp(u), NaN where |u| > n. Opaque: its powers stay powers of it."""

    nargs = (2,)
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
    """polynomial(cut, t, c0, ..., cn) = c0*t**n + ... + cn; the first `cut` for double only.

    Opaque: t may be a product, which would enter each of its terms.
    """

    is_real = True

    def slope(self) -> Expr:
        """The derivative by t."""
        cut, t, *terms = self.args
        n = len(terms) - 1
        slopes = [c * (n - k) for k, c in enumerate(terms[:-1])]
        return polynomial(max(int(cut) - 1, 0), t, *slopes) if n > 1 else slopes[0]

    def written_out(self) -> Expr:
        """Its sums and products."""
        _, t, value, *rest = self.args
        for c in rest:
            value = value * t + c
        return value

    def _eval_evalf(self, prec: int) -> Expr:
        return self.written_out()._eval_evalf(prec)
