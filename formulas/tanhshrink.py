"""Activation."""

from sympy import tanh

from autofn import formula


@formula
def tanhshrink(x):
    """Tanh shrink: x - tanh(x) (torch.nn.Tanhshrink)."""
    return x - tanh(x)
