"""Where templates, formula library and documents lie: beside the package, or in its wheel."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _folder(name: str) -> Path:
    inside = _HERE / name
    return inside if inside.is_dir() else _HERE.parent / name


def templates() -> Path:
    return _folder("templates")


def documents() -> Path:
    """The folder of the documentation, or of what of it commands show."""
    return _folder("docs")


def library() -> Path:
    """The folder of the formula library: one `<name>.py` per file."""
    return _folder("formulas")
