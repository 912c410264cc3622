"""Activation."""

from sympy import Piecewise, exp

from autofn import formula

ALPHA = 1.6732632423543772
SCALE = 1.0507009873554805


@formula
def selu(x):
    """SELU: ELU with the alpha and scale that keep mean 0 and variance 1 (arXiv:1706.02515)."""
    return SCALE * Piecewise((x, x > 0), (ALPHA * (exp(x) - 1), True))
