"""`autofn gen`: generate, verify and write packages, or compare them with what is there."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from autofn.cli.console import Watch, say, show_drift, show_error, show_report, summary
from autofn.cli.sources import (
    expression_options,
    jobs_option,
    output_option,
    resolve,
    timeout_option,
)
from autofn.errors import AutofnError, FormulaError, VerificationError

if TYPE_CHECKING:
    from autofn.cli.actions import Generated, Target
    from autofn.isolate import Outcome
    from autofn.verify.report import Report

DRIFT = 1
FAILED = 3

_GRAVEST = (70, 2, FAILED, DRIFT, 0)
"""Of several exit codes, the first of these is the run's."""


def gravest(codes: set[int]) -> int:
    """The exit code of a run in which several things happened."""
    return next((code for code in _GRAVEST if code in codes), 0)


@click.command()
@click.argument("files", nargs=-1, metavar="FILE...")
@output_option
@click.option("--check", is_flag=True, help="Write nothing; show what differs and exit with 1.")
@click.option("--no-verify", is_flag=True, help="Write without verifying (does not need torch).")
@jobs_option("Files")
@click.option(
    "--target",
    type=click.Choice(["python", "cpp"]),
    help="cpp adds a LibTorch header and its kernels' source; python leaves them out. "
    "Without it, as the package is.",
)
@click.option("--force", is_flag=True, help="Replace packages made from another source file.")
@timeout_option
@expression_options
@click.option("-q", "--quiet", is_flag=True, help="Print errors and differences only.")
def gen(
    files: tuple[str, ...],
    output: str,
    check: bool,
    no_verify: bool,
    jobs: int,
    target: Target | None,
    force: bool,
    timeout: float,
    expr: str | None,
    name: str | None,
    params: tuple[str, ...],
    quiet: bool,
) -> int:
    """Generate one package per formula into DIR and verify it.

    FILE is a formula file, a folder of them, or a name of the library (autofn list). Each formula
    stands alone: the good ones are written, the bad ones reported.

    \b
    Exit codes: 0 fine, 1 differences under --check, 2 usage or formula error,
    3 a verification failed (that package is not written).
    """
    sources, errors = resolve(files, expr, name, params)
    from autofn import isolate, pipeline  # noqa: F401  (imported once, before processes fork)
    from autofn.cli.actions import Generate

    verified = not no_verify and not check
    action = Generate("quick" if verified else None, output, target)
    with Watch(len(sources), quiet=quiet) as watch:
        run = _Run(output, check, force, quiet, tables=len(sources) == 1, watch=watch)
        for error in errors:
            run.fail(error)
        outcomes = isolate.run(sources, action, workers=jobs, timeout=timeout, watch=watch)
        with contextlib.closing(outcomes):
            for outcome in outcomes:
                try:
                    run.take(outcome)
                except AutofnError as error:
                    run.fail(error)
    return run.exit_code()


@dataclass
class _Run:
    """A run of `gen`: how it treats each formula, and what has happened so far."""

    output: str
    check: bool
    force: bool
    quiet: bool
    tables: bool
    watch: Watch
    codes: set[int] = field(default_factory=set)
    names: dict[str, Outcome] = field(default_factory=dict)

    def take(self, outcome: Outcome) -> None:
        """Installs, compares or reports one formula; raises what is wrong with it."""
        if outcome.error is not None:
            raise outcome.error
        generated: Generated = outcome.value
        self._check_name(outcome)
        self.watch.clear()
        if self.check:
            self._compare(generated)
        elif generated.report is None or generated.report.ok:
            self._install(generated)
        else:
            self._refuse(generated.report)

    def fail(self, error: AutofnError) -> None:
        self.watch.clear()
        show_error(error)
        self.codes.add(error.exit_code)

    def exit_code(self) -> int:
        if not self.names and not self.codes:
            self.fail(
                FormulaError(
                    "no formula was found",
                    remedy="put @formula (from autofn import formula) above a function",
                )
            )
        return gravest(self.codes)

    def _check_name(self, outcome: Outcome) -> None:
        # Folders of some file systems do not tell A from a.
        first = self.names.setdefault(outcome.name.casefold(), outcome)
        if first is not outcome:
            raise FormulaError(
                f"two formulas are named {outcome.name!r}: the one of {first.source.where.file} "
                "was taken",
                where=outcome.source.where,
                remedy="rename one of them, or generate them into different folders (-o DIR)",
            )

    def _install(self, generated: Generated) -> None:
        from autofn.install import install

        installed = install(generated.package, self.output, force=self.force)
        if self.quiet:
            return
        changed = f"{len(installed.written)} files written" if installed.written else "unchanged"
        if installed.removed:
            changed += f", {len(installed.removed)} removed"
        verified = "not verified"
        if generated.report is not None:
            if self.tables:
                show_report(generated.report)
            verified = f"verified: {summary(generated.report)}"
        say(f"{installed.folder}: {changed}; {verified}")

    def _compare(self, generated: Generated) -> None:
        from autofn.install import check

        drifts = check(generated.package, self.output)
        if drifts:
            self.codes.add(DRIFT)
        elif not self.quiet:
            say(f"{self.output}/{generated.package.name}: up to date")
        for drift in drifts:
            show_drift(drift)

    def _refuse(self, report: Report) -> None:
        self.codes.add(FAILED)
        show_report(report, failures_only=not self.tables)
        show_error(
            VerificationError(
                f"{report.name} failed its verification and was not written",
                remedy="look at the failed rows: the formula may be undefined at the point shown "
                "(give it a domain), or autofn is wrong (please report it)",
            )
        )
