"""Activation."""

from sympy import exp, log

from autofn import formula


@formula
def softplus(x):
    """Softplus: log(1 + exp(x)) (Dugas et al., NIPS 2000)."""
    return log(1 + exp(x))
