"""Activation."""

from sympy import sin

from autofn import formula


@formula
def sine(x, omega: float = 30.0):
    """Sine activation: sin(omega * x) (SIREN, arXiv:2006.09661)."""
    return sin(omega * x)
