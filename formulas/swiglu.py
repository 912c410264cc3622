"""Gated activation."""

from sympy import exp

from autofn import formula


@formula
def swiglu(gate, x):
    """SwiGLU: silu(gate) * x (arXiv:2002.05202)."""
    return gate / (1 + exp(-gate)) * x
