"""Activation."""

from sympy import Piecewise

from autofn import formula


@formula
def hardshrink(x, lambd: float = 0.5):
    """Hard shrinkage: x, but zero within lambd of zero (torch.nn.Hardshrink)."""
    return Piecewise((x, x > lambd), (x, x < -lambd), (0, True))
