"""What a verification found: one row per backend and check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Status = Literal["passed", "failed", "not run"]

TORCH = "PyTorch"
HOST = "CUDA kernel on host"
CPU = "CPU kernel"
GPU = "CUDA kernel on GPU"

LOADS = "package loads"

CHECKS = (
    "values",
    "gradients",
    "second derivatives",
    "gradcheck",
    "gradgradcheck",
    "forward mode",
    "vmap",
    "shapes and dtypes",
    "needed gradients only",
    "incoming gradients",
    "determinism",
)
"""The checks of every backend that computes."""

BUILDS = "builds"

ALL_CHECKS = "all checks"
"""In place of a backend's checks where it is not here."""

AGREEMENT = "agreement with PyTorch"
"""The check that compares a kernel with the PyTorch path."""


KNOWN = "PyTorch's own function"
"""The check against a function of PyTorch that the formula equals; no row where it equals none."""


@dataclass(frozen=True)
class Row:
    """The outcome of one check of one backend.

    A failure's `detail` names the input-output pair, the worst point, what was expected and what
    came; that of a check that did not run says why.
    """

    backend: str
    check: str
    status: Status
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """All rows of one package's verification."""

    name: str
    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed; a check that did not run is no failure."""
        return not any(row.status == "failed" for row in self.rows)

    @property
    def failures(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.status == "failed")


def telling(stage: Callable[[str, float | None], None]) -> Callable[[Row], None]:
    """Tells how far a verification is: the last check that ran, not one that cannot run here."""

    def on_row(row: Row) -> None:
        if row.status != "not run":
            stage(f"verifying (so far: {row.backend}, {row.check})", None)

    return on_row
