"""Several outputs."""

from autofn import formula


@formula
def quadratic_terms(x, y):
    """Quadratic form of two tensors with its terms as named outputs (an example)."""
    xx = x**2
    yy = y**2
    xy = x * y
    return {"z": 10 * (xx + yy + 2 * xy), "xx": xx, "yy": yy, "xy": xy}
