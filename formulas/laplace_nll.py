"""Loss."""

from sympy import Abs, exp

from autofn import formula


@formula(reduction=True)
def laplace_nll(input, target, log_scale):
    """Laplace negative log-likelihood with a predicted log-scale (folklore)."""
    return Abs(input - target) * exp(-log_scale) + log_scale
