"""Activation."""

from sympy import erf, sqrt

from autofn import formula


@formula
def gelu(x):
    """GELU: x times the standard normal distribution function of x (arXiv:1606.08415)."""
    return x * (1 + erf(x / sqrt(2))) / 2
