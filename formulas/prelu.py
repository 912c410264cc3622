"""Activation with parameters."""

from sympy import Piecewise

from autofn import PerChannel, formula


@formula
def prelu(x, weight: PerChannel = 0.25):
    """PReLU: leaky ReLU with a learnable slope per channel (arXiv:1502.01852)."""
    return Piecewise((x, x > 0), (weight * x, True))
