"""Gradient of one's own."""

from sympy import Max, Min, exp

from autofn import formula


@formula
def trunc_exp(x):
    """Exponential whose gradient is that of x limited to [-15, 15] (torch-ngp, nerfstudio)."""
    return exp(x)


@trunc_exp.gradient
def _(grad, x):
    return grad * exp(Min(Max(x, -15), 15))
