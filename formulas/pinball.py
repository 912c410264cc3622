"""Loss."""

from sympy import Max

from autofn import formula


@formula(reduction=True)
def pinball(input, target, quantile: float = 0.9):
    """Pinball loss, whose minimum is a quantile of the target (Koenker and Bassett, 1978)."""
    error = target - input
    return Max(quantile * error, (quantile - 1) * error)
