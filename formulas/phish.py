"""Activation."""

from sympy import erf, sqrt, tanh

from autofn import formula


@formula
def phish(x):
    """Phish: x * tanh(gelu(x)) (Naveen, 2022, doi:10.36227/techrxiv.17283824)."""
    gelu = x * (1 + erf(x / sqrt(2))) / 2
    return x * tanh(gelu)
