"""`autofn gen`: generate, verify and write packages, or compare them with what is there."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from autofn import project
from autofn.cli.console import Watch, say, show_drift, show_error, show_report, summary
from autofn.cli.sources import (
    expression_options,
    jobs_option,
    output_option,
    resolve,
    timeout_option,
    usual_output,
)
from autofn.errors import AutofnError, DriftError, FormulaError, VerificationError
from autofn.verify.job import DTYPES

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from autofn.cli.actions import Extras, Generated, Target
    from autofn.install import Drift
    from autofn.isolate import Outcome
    from autofn.reading import Input
    from autofn.records import Kept, Record
    from autofn.source import Source
    from autofn.verify.report import Report

FAILED = 3

_GRAVEST = (70, 2, FAILED, DriftError.exit_code, 0)
"""Of several exit codes, the first of these is the run's."""


def gravest(codes: set[int]) -> int:
    """The exit code of a run in which several things happened."""
    return next((code for code in _GRAVEST if code in codes), 0)


@click.command()
@click.argument("files", nargs=-1, metavar="FILE...")
@output_option
@click.option("--check", is_flag=True, help="Write nothing; show what differs and exit with 1.")
@click.option("--watch", is_flag=True, help="Generate again whenever a file is saved.")
@click.option(
    "--with-tests/--without-tests",
    "tests",
    default=None,
    help="Tests of its own in each package (default: where there are some, or the project's).",
)
@click.option("--no-verify", is_flag=True, help="Write without verifying (does not need torch).")
@jobs_option("Files")
@click.option(
    "--target",
    type=click.Choice(["python", "cpp"]),
    help="cpp adds a LibTorch header and its kernels' source; python leaves them out. "
    "Without it, as the package is.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Replace packages made from another source file; do again what is done.",
)
@timeout_option
@expression_options
@click.option("-q", "--quiet", is_flag=True, help="Print errors and differences only.")
def gen(
    files: tuple[str, ...],
    output: str,
    check: bool,
    watch: bool,
    tests: bool | None,
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
    stands alone: the good ones are written, the bad ones reported. What has not changed since the
    last time, nor any file that it read, is not done again.

    With --watch, a saved file gives its packages within seconds, after quick checks of the
    PyTorch path; the whole verification follows, and takes a package back that fails it.

    \b
    Exit codes: 0 fine, 1 differences under --check, 2 usage or formula error,
    3 a verification failed (that package is not written).
    """
    found = project.find()
    if tests is None and found is not None:
        tests = found.tests
    from autofn.cli.actions import Extras

    wanted = Extras(output, tests, target, found.dtypes if found else DTYPES)
    if watch:
        if check or expr is not None:
            raise click.UsageError(f"--watch and {'--check' if check else '--expr'} do not mix")
        from autofn.cli.watch import watching

        return watching(files, output, wanted, verify=not no_verify, force=force, timeout=timeout)
    from autofn import records

    sources, errors = resolve(files, expr, name, params)
    run = Run(output, check, not no_verify and not check, force, quiet, len(sources) == 1, wanted)
    for error in errors:
        run.fail(error)
    before = {
        each: records.NONE if force else records.recall(each, output, wanted.dtypes)
        for each in sources
    }
    rest = [source for source in sources if not run.unchanged(source, before[source])]
    if rest:
        _generate(run, rest, before, jobs, timeout)
    code = run.exit_code()
    if not files and expr is None and not quiet and code in (0, DriftError.exit_code):
        _tell_left(output, run.names)
    return code


def _tell_left(output: str, names: Container[str]) -> None:
    """Packages in the project's folder whose formula is gone; a user may want them all the same."""
    from autofn.install import packages

    for name in packages(output):
        if name.casefold() not in names:
            say(
                f"{output}/{name}: no formula of the project gives it; remove it, or name its "
                "source in [tool.autofn]",
                "yellow",
            )


def _generate(
    run: Run, sources: list[Source], before: dict[Source, Record], jobs: int, timeout: float
) -> None:
    from autofn.verify import nursery

    kept = [formula for source in sources for formula in before[source].formulas]
    known = {each.digest: each.verified for each in kept if each.verified}
    done = False
    try:
        with Watch(len(sources), quiet=run.quiet) as run.watch, nursery.opened(run.verify):
            nursery.prepare()
            from autofn import isolate, pipeline  # noqa: F401  (once, before processes fork)
            from autofn.cli.actions import Generate

            action = Generate("quick" if run.verify else None, run.extras, known)
            outcomes = isolate.run(sources, action, workers=jobs, timeout=timeout, watch=run.watch)
            with contextlib.closing(outcomes):
                for outcome in outcomes:
                    try:
                        run.take(outcome)
                    except AutofnError as error:
                        run.fail(error, outcome)
        done = True
    finally:
        run.keep(done)


@dataclass
class Run:
    """A run of `gen`: how it treats each formula, and what has happened so far."""

    output: str
    check: bool
    verify: bool
    force: bool
    quiet: bool
    tables: bool
    extras: Extras
    watch: Watch | None = None
    codes: set[int] = field(default_factory=set)
    names: dict[str, tuple[str, Source]] = field(default_factory=dict)
    good: dict[Source, list[Kept]] = field(default_factory=dict)
    inputs: dict[Source, tuple[Input, ...] | None] = field(default_factory=dict)

    def unchanged(self, source: Source, record: Record) -> bool:
        """Whether nothing is to be done for a source, which is then told."""
        if not record.current:
            return False
        if self.verify and not all(each.verified for each in record.formulas):
            return False
        if not all(self.extras.kept(each.name) for each in record.formulas):
            return False
        taken = {each.name.casefold() for each in record.formulas} & set(self.names)
        if taken:  # loading tells where
            return False
        for each in record.formulas:
            self.names[each.name.casefold()] = (each.name, source)
            if self.quiet:
                continue
            if self.check:
                say(f"{self.output}/{each.name}: up to date")
            else:
                say(f"{self.output}/{each.name}: unchanged; {_verified(each.verified)}")
        return bool(record.formulas) or getattr(source, "optional", False)

    def take(self, outcome: Outcome) -> None:
        """Installs, compares or reports one formula; raises what is wrong with it."""
        self.inputs.setdefault(outcome.source, outcome.inputs)
        if outcome.error is not None:
            raise outcome.error
        generated: Generated = outcome.value
        self._check_name(outcome)
        self.clear()
        if self.check:
            good = self._compare(generated, outcome)
        elif generated.report is None or generated.report.ok:
            good = self._install(generated)
        else:
            good = self.refuse(generated, generated.report)
        if not good:
            self.inputs[outcome.source] = None
            return
        from autofn.records import Kept

        found = generated.before
        if generated.report is not None:
            found = summary(generated.report, self.extras.dtypes)
        kept = Kept(outcome.name, generated.digest, found)
        self.good.setdefault(outcome.source, []).append(kept)
        if self.inputs[outcome.source] is not None:
            # Formulas of one file may read further files.
            self.inputs[outcome.source] = outcome.inputs

    def fail(self, error: AutofnError, outcome: Outcome | None = None) -> None:
        self.clear()
        show_error(error)
        self.codes.add(error.exit_code)
        if outcome is not None:
            self.inputs[outcome.source] = None

    def keep(self, done: bool) -> None:
        """Records what was written; that it is all of a source, only where the run was `done`."""
        from autofn.records import Record, keep

        for source, formulas in self.good.items():
            inputs = self.inputs[source] if done else None
            keep(source, self.output, Record(inputs, tuple(formulas)), self.extras.dtypes)

    def exit_code(self) -> int:
        if not self.names and not self.codes:
            self.fail(
                FormulaError(
                    "no formula was found",
                    remedy="put @formula (from autofn import formula) above a function",
                )
            )
        return gravest(self.codes)

    def clear(self) -> None:
        if self.watch is not None:
            self.watch.clear()

    def _check_name(self, outcome: Outcome) -> None:
        # Folders of some file systems do not tell A from a.
        entry = (outcome.name, outcome.source)
        _, first = self.names.setdefault(outcome.name.casefold(), entry)
        if first is not outcome.source:
            raise clash(outcome, first)

    def _install(self, generated: Generated) -> bool:
        from autofn.install import install

        installed = install(generated.package, self.output, force=self.force)
        if self.quiet:
            return True
        changed = f"{len(installed.written)} files written" if installed.written else "unchanged"
        if installed.removed:
            changed += f", {len(installed.removed)} removed"
        verified = _verified(generated.before)
        if generated.report is not None:
            if self.tables:
                show_report(generated.report)
            verified = f"verified: {summary(generated.report, self.extras.dtypes)}"
        say(f"{installed.folder}: {changed}; {verified}")
        return True

    def _compare(self, generated: Generated, outcome: Outcome) -> bool:
        from autofn.install import check

        drifts = check(generated.package, self.output)
        if drifts:
            self.codes.add(DriftError.exit_code)
        elif not self.quiet:
            say(f"{self.output}/{generated.package.name}: up to date")
        hashes = [drift for drift in drifts if drift.kind == "hash"]
        for drift in drifts:
            if drift.kind != "hash":
                show_drift(drift)
        if hashes:
            say(f"{len(hashes)} files differ in the formula's hash only", "yellow")
        if drifts:
            show_error(drifted(outcome, self.output, drifts))
        return not drifts

    def refuse(self, generated: Generated, report: Report) -> bool:
        self.codes.add(FAILED)
        show_report(report, failures_only=not self.tables)
        show_error(refused(report))
        return False


def _verified(before: str | None) -> str:
    return f"verified before: {before}" if before else "not verified"


def clash(outcome: Outcome, first: Source) -> FormulaError:
    """The error of a formula whose name another source's has already."""
    return FormulaError(
        f"two formulas are named {outcome.name!r}: the one of {first.where.file} was taken",
        where=outcome.source.where,
        remedy="rename one of them, or generate them into different folders (-o DIR)",
    )


def drifted(outcome: Outcome, output: str, drifts: Sequence[Drift]) -> DriftError:
    """The error of a package that is not what its formula gives, after its differences."""
    from autofn.install import OTHER_SOURCE

    file = click.format_filename(outcome.source.where.file)
    kinds = {drift.kind for drift in drifts}
    again = f"autofn gen {file}" if output == usual_output() else f"autofn gen {file} -o {output}"
    if outcome.source.where.text is not None:  # by --expr
        again = "the same command without --check"
    remedy = f"{again} writes it; commit both"
    if "source" in kinds:
        why, remedy = "it was generated from another file", OTHER_SOURCE
    elif "version" in kinds:
        why = "another version generated it"
    elif "" in {drift.path for drift in drifts}:
        why = "it was never generated"
    elif "hash" in kinds:
        why = "the formula was changed"
    else:
        why = "it was edited by hand"
        remedy = f"{again} puts it right, and the edit is lost: what is to stay goes into {file}"
    return DriftError(
        f"{output}/{drifts[0].package} is not what {file} gives: {why}", remedy=remedy
    )


def refused(report: Report) -> VerificationError:
    """The error of a package that failed its verification."""
    return VerificationError(
        f"{report.name} failed its verification and was not written",
        remedy="look at the failed rows: the formula may be undefined at the point shown "
        "(give it a domain), or autofn is wrong (please report it)",
    )
