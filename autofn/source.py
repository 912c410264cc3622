"""Where formulas come from: a file, or the text of an expression."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autofn.errors import Location

EXPR_SOURCE = "--expr"
"""The source of formulas that were given as text."""


@dataclass(frozen=True)
class FileSource:
    """A formula file; `only` picks one of its formulas, an `optional` one may have none."""

    path: str
    only: str | None = None
    optional: bool = False

    @property
    def label(self) -> str:
        return self.only or Path(self.path).stem

    @property
    def where(self) -> Location:
        return Location(self.path, 1, whole=True)


@dataclass(frozen=True)
class ExprSource:
    """An expression as text; `params` are run-time numbers, None for one without a default."""

    text: str
    name: str = "f"
    params: tuple[tuple[str, float | int | None], ...] = ()

    @property
    def label(self) -> str:
        return self.name

    @property
    def where(self) -> Location:
        return Location(EXPR_SOURCE, 1, (0, len(self.text)), self.text)


Source = FileSource | ExprSource
