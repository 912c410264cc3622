"""A project of the user's: `[tool.autofn]` in the pyproject.toml above the working directory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autofn.errors import Location, UsageError, about
from autofn.suggest import close
from autofn.verify.job import DTYPES

FILE = "pyproject.toml"
TABLE = "tool.autofn"


@dataclass(frozen=True)
class Project:
    """What the table says; paths are relative to the working directory.

    `sources` are what commands take where no FILE is given, `output` the default of -o,
    `architectures` and `isa` what `autofn build` builds for, `budgets` ULP per formula for
    `verify --full`, of formulas that state none; `tests` whether packages get tests of their own,
    `dtypes` what they are verified and measured in.
    """

    root: Path
    sources: tuple[str, ...] = ("formulas",)
    output: str = "generated"
    architectures: tuple[str, ...] = ()
    isa: tuple[str, ...] = ("native",)
    budgets: Mapping[str, float] = field(default_factory=dict)
    tests: bool | None = None
    dtypes: tuple[str, ...] = DTYPES


@about("project")
def find(start: Path | None = None) -> Project | None:
    """The project that a folder lies in, the working directory say; None where there is none.

    Raises UsageError, with file and line, where the table is wrong.
    """
    start = Path.cwd() if start is None else start
    for folder in (start, *start.parents):
        try:
            text = (folder / FILE).read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            continue
        # TOML has more ways to write a key, all of which have both words.
        if "autofn" in text and "tool" in text:
            table = table_of(text, Path(_shown(folder / FILE)))
            if table is not None:
                return _project(folder, table, text)
    return None


@about("project")
def table_of(text: str, path: Path) -> dict[str, Any] | None:
    """The table in the text of a pyproject.toml, None where there is none.

    Raises UsageError where it is no TOML.
    """
    import tomlkit
    from tomlkit.exceptions import ParseError, TOMLKitError

    try:
        content: dict[str, Any] = tomlkit.parse(text).unwrap()
    except ParseError as error:
        raise UsageError(
            f"{error}", where=Location(str(path), error.line), remedy="correct the line"
        ) from None
    except TOMLKitError as error:
        raise UsageError(
            f"{error}", where=Location(str(path), 1), remedy="correct the file"
        ) from None
    tool = content.get("tool")
    table = tool.get("autofn") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(
            f"{TABLE} is {table!r}, not a table",
            where=Location(str(path), line_of(text, "autofn")),
            remedy=f"write [{TABLE}] and a setting per line below it",
        )
    return table


def _project(root: Path, table: dict[str, Any], text: str) -> Project:
    path = _shown(root / FILE)

    def wrong(key: str, what: str, remedy: str) -> UsageError:
        return UsageError(what, where=Location(path, line_of(text, key)), remedy=remedy)

    found: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _SETTINGS:
            nearest = close(key, _SETTINGS)
            meant = f"did you mean {nearest}? " if nearest else ""
            remedy = f"{meant}settings are: {', '.join(_SETTINGS)}"
            raise wrong(key, f"{key!r} is no setting of [{TABLE}]", remedy)
        read, expected, example = _SETTINGS[key]
        try:
            found[key] = read(value)
        except (TypeError, ValueError) as error:
            what = f"{key} = {_brief(value)} is not {expected}"
            raise wrong(str(error) or key, what, f"write {example}") from None
    if "sources" in found:
        found["sources"] = tuple(_shown(root / each) for each in found["sources"])
    else:
        found["sources"] = (_shown(root / "formulas"),)
    found["output"] = _shown(root / found.get("output", "generated"))
    return Project(root, **found)


# --- settings: each raises ValueError, of the key to point at where that is not the setting's own


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError
    return tuple(map(_text, value))


def _words(value: Any) -> tuple[str, ...]:
    """Strings; whole numbers are written without quotes as well: 90."""
    numbers = isinstance(value, list) and [
        str(each) if type(each) is int else each for each in value
    ]
    return _texts(numbers)


def _dtypes(value: Any) -> tuple[str, ...]:
    """In the order of DTYPES."""
    named = _texts(value)
    if not set(named) <= set(DTYPES):
        raise ValueError
    return tuple(each for each in DTYPES if each in named)


def _budgets(value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        raise ValueError
    for name, budget in value.items():
        if type(budget) not in (int, float) or not 0.5 <= budget < float("inf"):
            raise ValueError(name)
    return {name: float(budget) for name, budget in value.items()}


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


_SETTINGS: Mapping[str, tuple[Callable[[Any], Any], str, str]] = {
    "sources": (_texts, "a list of files and folders", 'sources = ["formulas"]'),
    "output": (_text, "a folder", 'output = "generated"'),
    "dtypes": (
        _dtypes,
        f"a list of dtypes, {', '.join(DTYPES)}",
        'dtypes = ["float32", "bfloat16"]',
    ),
    "architectures": (_words, "a list of CUDA architectures", 'architectures = ["80", "90"]'),
    "isa": (_words, "a list of instruction sets", 'isa = ["x86-64-v3", "x86-64-v4"]'),
    "tests": (_truth, "true or false", "tests = true"),
    "budgets": (_budgets, "a table of errors in ULP, 0.5 or more", "budgets = { swish = 4.0 }"),
}


def line_of(text: str, key: str) -> int:
    """The line that sets a key of the table, or that begins the table, or 1."""
    table, first = "", 1
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line)
        if header:
            table = re.sub(r"[\s\"']", "", header[1])
            if table == TABLE:
                first = number
        inside = f"{table}." if table else ""
        for part in re.finditer(r"([\w.\"' -]+?)\s*=", line):
            name = inside + re.sub(r"[\s\"']", "", part[1])
            if name.startswith("tool") and "autofn" in name and name.split(".")[-1] == key:
                return number
        if header and table.startswith(f"{TABLE}.") and table.split(".")[-1] == key:
            return number
    return first


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _shown(path: Path) -> str:
    """Relative to the working directory, as people write it."""
    try:
        return os.path.relpath(path)
    except ValueError:  # another drive
        return str(path)
