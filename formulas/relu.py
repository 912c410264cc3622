"""Activation."""

from sympy import Max

from autofn import formula


@formula
def relu(x):
    """Rectified linear unit: x where it is positive, else 0 (torch.nn.ReLU)."""
    return Max(x, 0)
