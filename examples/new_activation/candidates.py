"""Three candidates for a new activation, as a paper would write them."""

from sympy import asinh, exp, sqrt

from autofn import Learnable, formula


@formula
def root_gate(x):
    """Root gate: x * (1 + x / sqrt(1 + x**2)) / 2, the shape of GELU without an exponential."""
    return x * (1 + x / sqrt(1 + x**2)) / 2


@formula
def log_gate(x):
    """Log gate: asinh(x) * sigmoid(x), a SiLU that grows as log(x)."""
    return asinh(x) / (1 + exp(-x))


@formula
def leaky_silu(x, leak: Learnable = 0.0):
    """Leaky SiLU: x * (leak + (1 - leak) * sigmoid(x)), its leak learnt, SiLU at first."""
    return x * (leak + (1 - leak) / (1 + exp(-x)))
