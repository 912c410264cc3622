"""Activation."""

from sympy import pi, sqrt, tanh

from autofn import formula


@formula
def gelu_tanh(x):
    """GELU, its tanh approximation with a cubic argument (arXiv:1606.08415)."""
    return x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2
