"""Activation."""

from sympy import Piecewise

from autofn import formula


@formula
def leaky_relu(x, alpha: float = 0.01):
    """Leaky ReLU: x where it is positive, else alpha * x (Maas et al., ICML 2013)."""
    return Piecewise((x, x > 0), (alpha * x, True))
