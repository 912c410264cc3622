"""Gated activation."""

from sympy import exp

from autofn import formula


@formula
def glu(x, gate):
    """Gated linear unit: x * sigmoid(gate) (arXiv:1612.08083)."""
    return x / (1 + exp(-gate))
