"""Activation with parameters."""

from sympy import exp

from autofn import Learnable, formula


@formula
def swish_beta(x, beta: Learnable = 1.0):
    """Swish with a learnable slope: x * sigmoid(beta * x) (arXiv:1710.05941)."""
    return x / (1 + exp(-beta * x))
