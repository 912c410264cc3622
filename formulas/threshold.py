"""Activation."""

from sympy import Piecewise

from autofn import formula


@formula
def threshold(x, threshold: float, value: float):
    """Threshold: x where it exceeds the threshold, else the value (torch.nn.Threshold)."""
    return Piecewise((x, x > threshold), (value, True))
