"""Gated activation."""

from sympy import pi, sqrt, tanh

from autofn import formula


@formula
def geglu(gate, x):
    """GEGLU: gelu(gate) * x, with the tanh approximation of GELU (arXiv:2002.05202)."""
    gelu = gate * (1 + tanh(sqrt(2 / pi) * (gate + 0.044715 * gate**3))) / 2
    return gelu * x
