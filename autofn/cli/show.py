"""`autofn show`: what autofn makes of a formula."""

from __future__ import annotations

import contextlib

import click

from autofn.cli.console import Watch, say, show_error
from autofn.cli.gen import gravest
from autofn.cli.sources import expression_options, resolve, timeout_option


@click.command()
@click.argument("files", nargs=-1, metavar="FILE|NAME...")
@expression_options
@timeout_option
@click.option("--steps", is_flag=True, help="With each rule applied, and the kernels' candidates.")
def show(
    files: tuple[str, ...],
    expr: str | None,
    name: str | None,
    params: tuple[str, ...],
    timeout: float,
    steps: bool,
) -> int:
    """Show formulas with their derivatives, saved tensors and operation counts."""
    sources, errors = resolve(files, expr, name, params)
    from autofn import isolate, pipeline  # noqa: F401  (imported once, before processes fork)
    from autofn.cli.actions import Explain

    codes: set[int] = set()
    for error in errors:
        show_error(error)
        codes.add(error.exit_code)
    with Watch(len(sources), quiet=False) as watch:
        outcomes = isolate.run(sources, Explain(steps), timeout=timeout, watch=watch)
        with contextlib.closing(outcomes):
            for outcome in outcomes:
                watch.clear()
                if outcome.error is not None:
                    show_error(outcome.error)
                    codes.add(outcome.error.exit_code)
                    continue
                say(outcome.name, "bold underline")
                for title, text in outcome.value.sections:
                    say(title, "bold")
                    for line in text.splitlines():
                        say(f"  {line}")
                say("")
    return gravest(codes)
