"""Activation."""

from sympy import Piecewise

from autofn import formula


@formula
def softshrink(x, lambd: float = 0.5):
    """Soft shrinkage: x moved by lambd towards zero, zero within lambd (torch.nn.Softshrink)."""
    return Piecewise((x - lambd, x > lambd), (x + lambd, x < -lambd), (0, True))
