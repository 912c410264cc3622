"""Activation."""

from sympy import Max, Min, exp

from autofn import formula


@formula
def celu(x, alpha: float = 1.0):
    """CELU: max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)) (arXiv:1704.07483)."""
    return Max(x, 0) + Min(0, alpha * (exp(x / alpha) - 1))
