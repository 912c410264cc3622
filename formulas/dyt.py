"""Activation with parameters."""

from sympy import tanh

from autofn import Learnable, PerChannel, formula


@formula
def dyt(
    x,
    alpha: Learnable = 0.5,
    gamma: PerChannel(dim=-1) = 1.0,
    beta: PerChannel(dim=-1) = 0.0,
):
    """DyT: gamma * tanh(alpha * x) + beta in place of a normalisation (arXiv:2503.10622)."""
    return gamma * tanh(alpha * x) + beta
