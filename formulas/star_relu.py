"""Activation with parameters."""

from sympy import Max

from autofn import Learnable, formula


@formula
def star_relu(x, scale: Learnable = 0.8944, bias: Learnable = -0.4472):
    """StarReLU: scale * relu(x)**2 + bias (MetaFormer baselines, arXiv:2210.13452).

    The start values are the paper's: mean 0 and variance 1 for a standard normal x.
    """
    return scale * Max(x, 0) ** 2 + bias
