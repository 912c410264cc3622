"""Activation."""

from sympy import exp, log, tanh

from autofn import formula


@formula
def mish(x):
    """Mish: x * tanh(softplus(x)) (arXiv:1908.08681)."""
    return x * tanh(log(1 + exp(x)))
