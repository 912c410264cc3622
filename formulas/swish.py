"""Activation."""

from sympy import exp

from autofn import formula


@formula
def swish(x, beta: float = 1.0):
    """Swish: x * sigmoid(beta * x) (arXiv:1710.05941)."""
    return x / (1 + exp(-beta * x))
