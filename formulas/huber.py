"""Loss."""

from sympy import Abs, Piecewise

from autofn import formula


@formula(reduction=True)
def huber(input, target, delta: float = 1.0):
    """Huber loss: half the squared error up to delta, linear beyond (Huber, 1964)."""
    error = input - target
    return Piecewise(
        (error**2 / 2, Abs(error) <= delta),
        (delta * (Abs(error) - delta / 2), True),
    )
