"""Where the templates and the formula library lie: beside the package, or inside its wheel."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _folder(name: str) -> Path:
    inside = _HERE / name
    return inside if inside.is_dir() else _HERE.parent / name


def templates() -> Path:
    return _folder("templates")


def library() -> Path:
    """The folder of the formula library: one `<name>.py` per file."""
    return _folder("formulas")
