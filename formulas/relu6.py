"""Activation."""

from sympy import Max, Min

from autofn import formula


@formula
def relu6(x):
    """ReLU6: x limited to [0, 6] (torch.nn.ReLU6)."""
    return Min(Max(x, 0), 6)
