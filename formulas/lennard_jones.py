"""Physics."""

from sympy import Interval, oo

from autofn import Learnable, formula


@formula(domain={"x": Interval.open(0, oo)})
def lennard_jones(x, epsilon: Learnable = 1.0, sigma: Learnable = 1.0):
    """Lennard-Jones potential at distance x: well depth epsilon, zero at sigma (Jones, 1924)."""
    return 4 * epsilon * ((sigma / x) ** 12 - (sigma / x) ** 6)
