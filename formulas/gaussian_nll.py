"""Loss."""

from sympy import exp

from autofn import formula


@formula(reduction=True)
def gaussian_nll(input, target, log_var):
    """Gaussian negative log-likelihood with a predicted log-variance (arXiv:1703.04977)."""
    return (exp(-log_var) * (input - target) ** 2 + log_var) / 2
