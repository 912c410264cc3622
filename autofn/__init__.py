"""autofn: from a SymPy formula to a verified PyTorch op with its CUDA kernel."""

from typing import TYPE_CHECKING, Any

from autofn.errors import AutofnError, FormulaError, UsageError, VerificationError

if TYPE_CHECKING:
    from autofn.annotations import Learnable, PerChannel, Tensor
    from autofn.api import Formula, formula

__version__ = "0.1.0"

__all__ = [
    "AutofnError",
    "Formula",
    "FormulaError",
    "Learnable",
    "PerChannel",
    "Tensor",
    "UsageError",
    "VerificationError",
    "formula",
]


def __getattr__(name: str) -> Any:
    """The formula API, imported on first use: SymPy takes longer than all of `autofn --help`."""
    if name not in __all__:
        raise AttributeError(f"module 'autofn' has no attribute {name!r}")
    from autofn import annotations, api

    return getattr(annotations if hasattr(annotations, name) else api, name)
