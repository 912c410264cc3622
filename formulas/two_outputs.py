"""Several outputs."""

from autofn import formula


@formula
def two_outputs(x):
    """Two outputs of one tensor: x**2 and 3 * x (an example)."""
    return x**2, 3 * x
