"""Activation."""

from sympy import exp, log

from autofn import formula


@formula
def logish(x):
    """Logish: x * log(1 + sigmoid(x)) (Zhu et al., Neurocomputing 458, 2021)."""
    return x * log(1 + 1 / (1 + exp(-x)))
