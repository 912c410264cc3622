"""Activation."""

from sympy import Piecewise, exp

from autofn import formula


@formula
def elu(x, alpha: float = 1.0):
    """ELU: x where it is positive, else alpha * (exp(x) - 1) (arXiv:1511.07289)."""
    return Piecewise((x, x > 0), (alpha * (exp(x) - 1), True))
