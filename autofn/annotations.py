"""The annotations of a formula's parameters."""

from __future__ import annotations

from autofn.errors import FormulaError


class Tensor:
    """Annotation of a tensor that takes a gradient; `Tensor | None` for an optional one."""


class Learnable:
    """Annotation of one learnable number; the default is its start value."""


class PerChannel:
    """Annotation of a learnable 1-D tensor along dimension `dim` of the output.

    `alpha: PerChannel = 0.25` runs along dimension 1, `PerChannel(dim=-1)` along the last.
    """

    def __init__(self, dim: int = 1):
        if isinstance(dim, bool) or not isinstance(dim, int):
            raise FormulaError(
                f"PerChannel(dim={dim!r}): the dimension must be an int",
                remedy="write PerChannel(dim=1) or PerChannel(dim=-1)",
            )
        self.dim = dim
