"""Activation."""

from sympy import tanh

from autofn import formula


@formula
def lisht(x):
    """LiSHT: x * tanh(x) (arXiv:1901.05894)."""
    return x * tanh(x)
