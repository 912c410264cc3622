"""Activation."""

from sympy import sqrt

from autofn import formula


@formula
def squareplus(x, b: float = 4.0):
    """Squareplus: half of x + sqrt(x**2 + b) (arXiv:2112.11687)."""
    return (x + sqrt(x**2 + b)) / 2
