"""Activation."""

from sympy import exp, tanh

from autofn import formula


@formula
def tanh_exp(x):
    """TanhExp, also known as TeLU: x * tanh(exp(x)) (arXiv:2003.09855; arXiv:2412.20269)."""
    return x * tanh(exp(x))
