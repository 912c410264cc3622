"""Activation with parameters."""

from sympy import sin

from autofn import PerChannel, formula


@formula
def snake(x, alpha: PerChannel = 1.0):
    """Snake: x + sin(alpha * x)**2 / alpha, alpha per channel (arXiv:2006.08195)."""
    return x + sin(alpha * x) ** 2 / alpha
