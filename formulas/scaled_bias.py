"""First steps."""

from autofn import Tensor, formula


@formula
def scaled_bias(x, bias: Tensor | None = None, scale: float = 2.0):
    """Scale with an optional bias: scale * x + bias, or scale * x where it is None (an example)."""
    scaled = scale * x
    return scaled if bias is None else scaled + bias
