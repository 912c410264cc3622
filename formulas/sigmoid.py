"""Activation."""

from sympy import exp

from autofn import formula


@formula
def sigmoid(x):
    """Logistic sigmoid: 1 / (1 + exp(-x)) (torch.nn.Sigmoid)."""
    return 1 / (1 + exp(-x))
