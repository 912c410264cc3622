"""First steps."""

from autofn import formula


@formula
def quadratic(x, y):
    """Quadratic form of two tensors: 10 * (x + y)**2, multiplied out (an example)."""
    return 10 * (x**2 + y**2 + 2 * x * y)
