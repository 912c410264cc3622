"""Activation."""

from sympy import Max

from autofn import formula


@formula
def relu_squared(x):
    """Squared ReLU: relu(x)**2 (Primer, arXiv:2109.08668)."""
    return Max(x, 0) ** 2
