"""`autofn list`: the formula library, read without executing it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import click

from autofn.resources import library


@dataclass(frozen=True)
class Entry:
    """A formula of the library: its group is the first line of its file's docstring."""

    name: str
    group: str
    summary: str
    path: Path


@lru_cache(maxsize=1)
def entries(folder: Path) -> tuple[Entry, ...]:
    """All formulas of a folder, by file name."""
    found: list[Entry] = []
    for path in sorted(folder.glob("*.py")):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        group = _first_line(tree).rstrip(".")
        found += [
            Entry(node.name, group, _first_line(node), path)
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and any(map(_is_formula, node.decorator_list))
        ]
    return tuple(found)


def _is_formula(decorator: ast.expr) -> bool:
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    if isinstance(decorator, ast.Attribute):
        return decorator.attr == "formula"
    return isinstance(decorator, ast.Name) and decorator.id == "formula"


def _first_line(node: ast.Module | ast.FunctionDef) -> str:
    return (ast.get_docstring(node) or "").partition("\n")[0]


@click.command("list")
def list_library() -> None:
    """List the formulas of the library."""
    from rich.table import Table
    from rich.text import Text

    from autofn.cli.console import show_table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    ordered = sorted(entries(library()), key=lambda entry: (entry.group.lower(), entry.name))
    group = None
    for entry in ordered:
        if entry.group != group:
            if group is not None:
                table.add_row()
            table.add_row(Text(entry.group, "bold"))
            group = entry.group
        table.add_row(Text(f"  {entry.name}"), Text(entry.summary))
    show_table(table)
