"""Activation."""

import sympy

from autofn import formula


@formula
def tanh(x):
    """Hyperbolic tangent (torch.nn.Tanh)."""
    return sympy.tanh(x)
