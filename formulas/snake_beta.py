"""Activation with parameters."""

from sympy import exp, sin

from autofn import PerChannel, formula


@formula
def snake_beta(x, alpha: PerChannel = 0.0, beta: PerChannel = 0.0):
    """SnakeBeta: x + sin(x * exp(alpha))**2 / exp(beta), per channel (BigVGAN, arXiv:2206.04658).

    The log-scale form of NVIDIA/BigVGAN, whose divisor has 1e-9 added.
    """
    return x + sin(x * exp(alpha)) ** 2 / (exp(beta) + 1e-9)
