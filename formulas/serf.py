"""Activation."""

from sympy import erf, exp, log

from autofn import formula


@formula
def serf(x):
    """Serf: x * erf(softplus(x)) (arXiv:2108.09598)."""
    return x * erf(log(1 + exp(x)))
