"""Loss."""

from sympy import cosh, log

from autofn import formula


@formula(reduction=True)
def log_cosh(input, target):
    """Log-cosh loss: log(cosh(error)) (folklore)."""
    return log(cosh(input - target))
