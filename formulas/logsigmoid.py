"""Activation."""

from sympy import exp, log

from autofn import formula


@formula
def logsigmoid(x):
    """Logarithm of the sigmoid: -log(1 + exp(-x)) (torch.nn.LogSigmoid)."""
    return -log(1 + exp(-x))
