"""`autofn plot`: f, f' and f'' as a picture."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from autofn.cli.console import Watch, say, show_error
from autofn.cli.gen import gravest
from autofn.cli.sources import expression_options, resolve, timeout_option

if TYPE_CHECKING:
    from autofn.report.model import Drawing


@click.command()
@click.argument("files", nargs=-1, metavar="NAME|FILE...")
@click.option(
    "-o", "output", default="plot.png", show_default=True, metavar="FILE",
    help="The picture: PNG, SVG or PDF, by its ending.",
)  # fmt: skip
@expression_options
@timeout_option
def plot(
    files: tuple[str, ...],
    output: str,
    expr: str | None,
    name: str | None,
    params: tuple[str, ...],
    timeout: float,
) -> int:
    """Draw formulas with their first and second derivatives, kinks marked.

    Along the first tensor, by mpmath; all else stands at its default, other tensors at 1. A row
    per formula, output and variant. Needs matplotlib.
    """
    from autofn.report import picture

    picture.require()
    sources, errors = resolve(files, expr, name, params)
    from autofn import isolate

    codes: set[int] = set()
    for error in errors:
        show_error(error)
        codes.add(error.exit_code)
    found: list[tuple[str, Drawing]] = []
    with Watch(len(sources), quiet=False) as watch:
        outcomes = isolate.run(sources, picture.Draw(), timeout=timeout, watch=watch)
        with contextlib.closing(outcomes):
            for outcome in outcomes:
                watch.clear()
                if outcome.error is not None:
                    show_error(outcome.error)
                    codes.add(outcome.error.exit_code)
                else:
                    found += outcome.value
    if found:
        picture.save(picture.figure(found), output)
        say(f"wrote {output}")
    return gravest(codes)
