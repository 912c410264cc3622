"""Activation."""

from sympy import tanh

from autofn import formula


@formula
def softcap(x, cap: float = 50.0):
    """Soft cap of logits: cap * tanh(x / cap) (Gemma 2, arXiv:2408.00118)."""
    return cap * tanh(x / cap)
