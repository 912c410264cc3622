"""Activation."""

from sympy import Abs

from autofn import formula


@formula
def softsign(x):
    """Softsign: x over 1 + |x| (Turian et al., 2009)."""
    return x / (1 + Abs(x))
