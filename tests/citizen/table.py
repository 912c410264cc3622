"""The table: which cells are run, kept from run to run, and written as docs/citizen.md."""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import inspect
import json
import textwrap
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from citizen import autograd, compiled, functional, modules, precision
from citizen.feature import FEATURES, Cell, Feature, run
from citizen.subject import KERNEL, LEAVES, PYTORCH, Subject

# What the order of the columns hangs on.
MODULES = (autograd, functional, precision, modules, compiled)

Cells = dict[str, Cell]


def key(each: Feature, subject: Subject) -> str:
    """A cell's result is kept for as long as the package, the feature and PyTorch are the same."""
    package = _of_package(Path(str(subject.package.__file__)).parent)
    return hashlib.sha256(f"{_of_feature(each)} {package} {torch.__version__}".encode()).hexdigest()


@functools.cache
def _of_feature(each: Feature) -> str:
    source = textwrap.dedent(inspect.getsource(each.check))
    return hashlib.sha256(ast.dump(ast.parse(source)).encode()).hexdigest()


@functools.cache
def _of_package(folder: Path) -> str:
    files = [path for path in sorted(folder.glob("*")) if path.is_file()]
    content = b"".join(path.name.encode() + path.read_bytes() for path in files)
    return hashlib.sha256(content).hexdigest()


def fill(
    subject: Subject,
    features: Iterable[Feature],
    folder: Path,
    *,
    fresh: bool = False,
    report: Callable[[Feature, Cell, float], None] = lambda *_: None,
) -> None:
    """Runs the cells of a subject that `folder` does not keep, or keeps as failed."""
    file = _file(subject, folder)
    for each in features:
        kept = {} if fresh else cells(subject, folder)
        if kept.get(each.name, Cell("fail")).status != "fail":
            continue
        begun = time.monotonic()
        cell = run(each, subject)
        report(each, cell, time.monotonic() - begun)
        content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        content[each.name] = {"key": key(each, subject), **dataclasses.asdict(cell)}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content, indent=1), encoding="utf-8")


def cells(subject: Subject, folder: Path) -> Cells:
    """The cells that are kept and still hold."""
    file = _file(subject, folder)
    content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {
        each.name: Cell(content[each.name]["status"], content[each.name]["detail"])
        for each in FEATURES.values()
        if each.name in content and content[each.name]["key"] == key(each, subject)
    }


def _file(subject: Subject, folder: Path) -> Path:
    return folder / f"{subject.name}-{subject.leaf}.json"


_MARKS = {"pass": "✓", "n/a": "–"}


class _Notes:
    """Texts and the number that each got."""

    def __init__(self, letter: str) -> None:
        self._letter = letter
        self._texts: dict[str, int] = {}

    def __call__(self, text: str) -> str:
        return f"{self._letter}{self._texts.setdefault(text, len(self._texts) + 1)}"

    def lines(self) -> list[str]:
        return [f"- {self._letter}{number}: {text}" for text, number in self._texts.items()]


def page(table: dict[str, dict[str, Cells]], outside: Iterable[str]) -> str:
    """docs/citizen.md: formula to leaf to cells."""
    errors, failures = _Notes("E"), _Notes("F")

    def mark(cell: Cell | None) -> str:
        if cell is None:
            return "?"
        if cell.status == "error":
            return errors(cell.detail)
        return failures(cell.detail) if cell.status == "fail" else _MARKS[cell.status]

    def both(name: str, feature: str) -> str:
        marks = [mark(table[name].get(leaf, {}).get(feature)) for leaf in LEAVES]
        one, other = marks
        if one == other or other == "–":
            return one
        return other if one == "–" else f"{one} / {other}"

    outside = set(outside)
    lines: list[str] = []
    for group in dict.fromkeys(each.group for each in FEATURES.values()):
        columns = [each.name for each in FEATURES.values() if each.group == group]
        lines += [f"## {group}", "", *(f"{k}. {name}" for k, name in enumerate(columns, 1)), ""]
        lines.append("| | " + " | ".join(str(k) for k in range(1, len(columns) + 1)) + " |")
        lines.append("|---" * (len(columns) + 1) + "|")
        for name in table:
            shown = f"{name} *" if name in outside else name
            lines.append(f"| {shown} | " + " | ".join(both(name, c) for c in columns) + " |")
        lines.append("")
    every = [c for leaves in table.values() for found in leaves.values() for c in found.values()]
    count = {s: sum(c.status == s for c in every) for s in ("pass", "error", "fail", "n/a")}
    missing = len(table) * len(LEAVES) * len(FEATURES) - len(every)
    head = f"""# Generated ops in PyTorch, formula by feature

Written by `make citizen` on PyTorch {torch.__version__}, CPU. {len(table)} formulas, those with a
star outside the library, by {len(FEATURES)} features, on the {PYTORCH} leaf and on the compiled
{KERNEL}. Of the cells {count["pass"]} pass, {count["error"]} are a documented error,
{count["fail"]} fail, {count["n/a"]} say nothing of their formula and {missing} were not run.

A cell compares with the formula as it is written, evaluated in PyTorch operations in float64 and
differentiated by autograd (`tests/citizen`). ✓: passes on both leaves; –: does not apply; En, Fn:
an error and a failure, told below; ?: not run; one / other: {PYTORCH} leaf and {KERNEL}.
"""
    notes = [*errors.lines(), *failures.lines()]
    if notes:
        lines += ["## Errors", "", *notes, ""]
    return "\n".join([head, *lines]).rstrip() + "\n"
