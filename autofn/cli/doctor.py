"""`autofn doctor`: what this machine has for compiled kernels, and what it lacks."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING

import click

from autofn.cli.console import say, show_table

if TYPE_CHECKING:
    from autofn.doctor import Diagnosis

LACKING = 1


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(as_json: bool) -> int:
    """Say what this machine has for compiled kernels, and what it lacks.

    A tiny op is built and loaded. Exit code 0 if the CPU's kernels work, 1 if they do not.
    """
    from autofn.doctor import examine

    found = examine()
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=2, ensure_ascii=False))
    else:
        _show(found)
    return 0 if found.ok else LACKING


def _show(found: Diagnosis) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    styles = {"ok": "green", "missing": "yellow"}
    frame = box.SIMPLE_HEAD if sys.stdout.isatty() else None
    table = Table(box=frame, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for each in found.findings:
        detail = Text(each.detail)
        if each.remedy:
            detail.append(f"; remedy: {each.remedy}", "cyan")
        table.add_row(Text(each.name), Text(each.status, styles[each.status]), detail)
    show_table(table)
    say(
        "CPU kernels work" if found.ok else "CPU kernels do not work: ops run in PyTorch operations"
    )
