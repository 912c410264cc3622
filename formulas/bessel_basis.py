"""Physics."""

from sympy import pi, sin, sqrt

from autofn import PerChannel, formula


@formula
def bessel_basis(x, n: PerChannel(dim=-1) = 1.0, cutoff: float = 5.0):
    """Radial Bessel basis: sqrt(2 / cutoff) * sin(n * pi * x / cutoff) / x (arXiv:2003.03123)."""
    return sqrt(2 / cutoff) * sin(n * pi * x / cutoff) / x
