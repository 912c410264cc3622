"""Loss."""

from sympy import sqrt

from autofn import formula


@formula(reduction=True)
def charbonnier(input, target, epsilon: float = 1e-3):
    """Charbonnier loss: sqrt(error**2 + epsilon**2) (Charbonnier et al., ICIP 1994)."""
    return sqrt((input - target) ** 2 + epsilon**2)
