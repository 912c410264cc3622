"""First steps."""

import sympy

from autofn import formula


@formula
def exp(x):
    """Exponential: its own derivative, so the output is what backward needs (torch.exp)."""
    return sympy.exp(x)
