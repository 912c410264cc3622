"""Activation."""

from sympy import Interval, log

from autofn import formula


@formula(domain={"x": Interval.open(0, 1)})
def logit(x):
    """Logit: log(x / (1 - x)), the inverse of the sigmoid on (0, 1) (torch.logit)."""
    return log(x / (1 - x))
