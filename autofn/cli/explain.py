"""`autofn explain`: more about an error, from the documentation that is installed with autofn."""

from __future__ import annotations

import re
from pathlib import Path

import click

from autofn.errors import UsageError
from autofn.resources import documents
from autofn.suggest import close


@click.command()
@click.argument("kind")
def explain(kind: str) -> None:
    """Say more about the errors of a KIND: what they mean, with examples."""
    found = sections(documents() / "errors.md")
    if kind not in found:
        meant = close(kind, found)
        raise UsageError(
            f"{kind!r} is no kind of errors",
            remedy=f"did you mean {meant}?" if meant else f"kinds are: {', '.join(found)}",
        )
    click.echo(found[kind])


def sections(path: Path) -> dict[str, str]:
    """The sections of a page by their headings of second order, which are anchors."""
    parts = re.split(r"(?m)^## +(.+?) *$", path.read_text(encoding="utf-8"))
    return {
        name: f"{name}\n{'=' * len(name)}\n{text.rstrip()}"
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }
