"""Activation."""

from sympy import Max, Min

from autofn import formula


@formula
def hard_swish(x):
    """Hard swish: x * relu6(x + 3) / 6 (MobileNetV3, arXiv:1905.02244)."""
    return x * Min(Max(x + 3, 0), 6) / 6
