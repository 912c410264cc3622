"""Activation."""

from sympy import exp

from autofn import formula


@formula
def quick_gelu(x):
    """GELU, its sigmoid approximation: x * sigmoid(1.702 * x) (arXiv:1606.08415; OpenAI CLIP)."""
    return x / (1 + exp(-1.702 * x))
