"""Activation."""

from sympy import Max, Min

from autofn import formula


@formula
def hardtanh(x):
    """Hard tanh: x limited to [-1, 1] (torch.nn.Hardtanh)."""
    return Min(Max(x, -1), 1)
