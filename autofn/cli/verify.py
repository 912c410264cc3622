"""`autofn verify`: the verification of packages that exist, or of formulas as generated now."""

from __future__ import annotations

import contextlib

import click
from click.core import ParameterSource

from autofn.cli.console import Watch, show_error, show_report, summary
from autofn.cli.gen import FAILED, gravest
from autofn.cli.sources import jobs_option, output_option, resolve, timeout_option


@click.command()
@click.argument("files", nargs=-1, metavar="FILE|NAME...")
@output_option
@click.option("--full", is_flag=True, help="Every check at every hard point: the certificate.")
@jobs_option("Files")
@timeout_option
@click.option("-q", "--quiet", is_flag=True, help="Print failures only.")
@click.pass_context
def verify(
    context: click.Context,
    files: tuple[str, ...],
    output: str,
    full: bool,
    jobs: int,
    timeout: float,
    quiet: bool,
) -> int:
    """Verify generated packages against their formulas.

    The package in DIR is verified as it stands, edits included; a formula that has none there is
    generated for the purpose, unless DIR was given. Exit code 3 if a verification failed.
    """
    sources, errors = resolve(files, None, None, ())
    from autofn import isolate, pipeline  # noqa: F401  (imported once, before processes fork)
    from autofn.cli.actions import Verified, Verify

    codes: set[int] = set()
    for error in errors:
        show_error(error)
        codes.add(error.exit_code)
    fresh = context.get_parameter_source("output") is ParameterSource.DEFAULT
    action = Verify(output, "full" if full else "quick", fresh)
    with Watch(len(sources), quiet=quiet) as watch:
        outcomes = isolate.run(sources, action, workers=jobs, timeout=timeout, watch=watch)
        with contextlib.closing(outcomes):
            for outcome in outcomes:
                watch.clear()
                if outcome.error is not None:
                    show_error(outcome.error)
                    codes.add(outcome.error.exit_code)
                    continue
                verified: Verified = outcome.value
                report = verified.report
                if not report.ok:
                    codes.add(FAILED)
                if not (quiet and report.ok):
                    title = f"{report.name} ({verified.what}): {summary(report)}"
                    show_report(report, title=title, failures_only=quiet)
    return gravest(codes)
