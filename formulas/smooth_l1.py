"""Loss."""

from sympy import Abs, Piecewise

from autofn import formula


@formula(reduction=True)
def smooth_l1(input, target, beta: float = 1.0):
    """Smooth L1 loss: the absolute error, quadratic below beta (Fast R-CNN, arXiv:1504.08083)."""
    error = input - target
    return Piecewise(
        (error**2 / (2 * beta), Abs(error) < beta),
        (Abs(error) - beta / 2, True),
    )
