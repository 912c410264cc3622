"""Loss."""

from sympy import exp, log

from autofn import formula


@formula(reduction=True)
def focal(input, target, alpha: float = 0.25, gamma: float = 2.0):
    """Focal loss: cross-entropy of sigmoid(input), easy cases weighted down (arXiv:1708.02002)."""
    p = 1 / (1 + exp(-input))
    positive = -alpha * target * (1 - p) ** gamma * log(p)
    negative = -(1 - alpha) * (1 - target) * p**gamma * log(1 - p)
    return positive + negative
