"""`autofn gen --watch`: a package soon after each save, its verification behind."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from autofn import install, isolate, pipeline, records  # noqa: F401  (before processes fork)
from autofn.cli.actions import Draft, Drafted, Generate
from autofn.cli.console import Watch, say, show_error, show_report
from autofn.cli.gen import Run, clash, gravest
from autofn.cli.sources import named, resolve
from autofn.errors import AutofnError, UsageError, VerificationError, interrupted
from autofn.reading import CHANGED
from autofn.stamps import INTERVAL, Stamps, stamp

if TYPE_CHECKING:
    from autofn.cli.actions import Extras, Generated
    from autofn.isolate import Outcome, Progress
    from autofn.package import Package
    from autofn.reading import Input
    from autofn.source import Source
    from autofn.stamps import Stamp
    from autofn.verify.draft import Checker
    from autofn.verify.report import Report


def watching(
    files: Sequence[str], output: str, extras: Extras, *, verify: bool, force: bool, timeout: float
) -> int:
    """Generates until Ctrl-C ends it."""
    files = named(files)
    sources, errors = resolve(files, None, None, ())
    for error in errors:
        show_error(error)
    if not sources:
        return gravest({error.exit_code for error in errors})
    with contextlib.ExitStack() as stack:
        checker = None
        if verify:
            from autofn.verify import nursery
            from autofn.verify.draft import Checker

            stack.enter_context(nursery.opened())
            checker = Checker()
            stack.callback(checker.close)
        watcher = _Watcher(files, output, extras, checker, force, timeout)
        stack.callback(
            signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, watcher.interrupt)
        )
        try:
            watcher.run(sources)
        except BaseException as error:
            if not interrupted(error):
                raise
            watcher.end()
    return 0


class _Changed(Exception):
    """A file was saved: what is being done is out of date."""


@dataclass
class _Known:
    """What is known of a source: what it read, and whether it was of use."""

    inputs: tuple[Input, ...] = ()
    failed: bool = False

    @property
    def current(self) -> bool:
        return not self.failed and all(each.current for each in self.inputs)


@dataclass
class _Watcher:
    """`drafts` are what lies there unverified, and `before` holds what lay there."""

    files: Sequence[str]
    output: str
    extras: Extras
    checker: Checker | None
    force: bool
    timeout: float
    stamps: Stamps = field(default_factory=Stamps)
    known: dict[Source, _Known] = field(default_factory=dict)
    stale: dict[Source, None] = field(default_factory=dict)
    unverified: dict[Source, None] = field(default_factory=dict)
    owners: dict[str, Source] = field(default_factory=dict)
    before: dict[str, Package | None] = field(default_factory=dict)
    drafts: dict[str, Package] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    interrupted: bool = False
    progress: Watch = field(default_factory=lambda: Watch(1, quiet=False))

    def run(self, sources: Sequence[Source]) -> None:
        say(f"watching {', '.join(map(_shown, sources))}; Ctrl-C ends")
        self._begin(sources)
        while True:
            try:
                self._watch()
                while self.stale:
                    self._draft(next(iter(self.stale)))
                for source in list(self.unverified):
                    self._verify(source)
                self._wait()
            except _Changed:
                self._take()

    def interrupt(self, *_: object) -> None:
        """Ctrl-C. It is kept in mind, since an exception in a finaliser is lost."""
        self.interrupted = True
        raise KeyboardInterrupt

    def _check_interrupt(self) -> None:
        if self.interrupted:
            raise KeyboardInterrupt

    def end(self) -> None:
        say("ended")
        for name in self.before:
            say(f"{self.output}/{name} is not verified: autofn gen verifies it", "yellow")

    # --- what changes ----------------------------------------------------------------------

    def _begin(self, sources: Sequence[Source]) -> None:
        for source in sources:
            record = records.recall(source, self.output, self.extras.dtypes)
            done = all(each.verified for each in record.formulas) or self.checker is None
            if record.current and record.formulas and done and not self.force:
                self.known[source] = _Known(record.inputs or ())
                for each in record.formulas:
                    self.owners[each.name.casefold()] = source
                    say(f"{self.output}/{each.name}: unchanged")
            else:
                self.known[source] = _Known()
                self.stale[source] = None

    def _watch(self, since: Mapping[str, Stamp] | None = None) -> None:
        paths = {os.path.abspath(file) for file in self.files}
        for source in self.known:
            paths |= self._read_by(source)
        self.stamps.watch(sorted(paths), since)

    def _read_by(self, source: Source) -> set[str]:
        """The files whose change concerns a source."""
        known, path = self.known[source], os.path.abspath(source.where.file)
        paths = {path} | {each.path for each in known.inputs if each.own}
        # A module that it did not find may come to lie beside it.
        return paths | {os.path.dirname(path)} if known.failed else paths

    def _take(self) -> None:
        """What was saved makes sources stale, new or gone."""
        changed = self.stamps.taken()
        sources, _ = resolve(self.files, None, None, ())
        for source in set(self.known) - set(sources):
            say(f"{_shown(source)} is gone; its packages stay", "yellow")
            for each in (self.known, self.stale, self.unverified):
                each.pop(source, None)
        for source in sources:
            new = source not in self.known
            if new:
                self.known[source] = _Known()
            elif not changed & self._read_by(source) or self.known[source].current:
                continue
            self.stale[source] = None

    def _tick(self, done: int, running: Sequence[Progress]) -> None:
        self.progress(done, running)
        self._check_interrupt()
        if self.stamps.changed():
            raise _Changed

    def _wait(self) -> None:
        while not self.stamps.changed():
            self._check_interrupt()
            time.sleep(INTERVAL)
        raise _Changed

    # --- what is done ----------------------------------------------------------------------

    def _draft(self, source: Source) -> None:
        """The packages of a source, after quick checks."""
        begun = time.monotonic()
        record = records.recall(source, self.output, self.extras.dtypes)
        kept = () if self.force else record.formulas
        known = frozenset(each.digest for each in kept if each.verified)
        action = Draft(known, self.checker is not None, self.extras)
        found, folder = _Known(), os.path.dirname(os.path.abspath(source.where.file))
        since = {folder: stamp(folder)}
        self.told.clear()
        self.unverified.pop(source, None)
        with Watch(1, quiet=False) as self.progress:
            outcomes = isolate.run([source], action, timeout=self.timeout, watch=self._tick)
            with contextlib.closing(outcomes):
                for outcome in outcomes:
                    found.inputs = outcome.inputs
                    self.progress.clear()
                    try:
                        self._take_draft(outcome, begun)
                    except AutofnError as error:
                        found.failed = True
                        self.told.add(str(error))
                        show_error(error)
        late = any(not each.current for each in found.inputs if each.state != CHANGED)
        if found.failed:
            found.inputs = tuple({*found.inputs, *self.known[source].inputs})
        self.known[source] = found
        self._watch(since)
        if not late:
            del self.stale[source]

    def _take_draft(self, outcome: Outcome, begun: float) -> None:
        if outcome.error is not None:
            raise outcome.error
        drafted: Drafted = outcome.value
        first = self.owners.setdefault(outcome.name.casefold(), outcome.source)
        if first != outcome.source and first in self.known:
            raise clash(outcome, first)
        self.owners[outcome.name.casefold()] = outcome.source
        name = drafted.package.name
        checks = "verified before" if self.checker else "not verified"
        if drafted.job is not None and self.checker is not None:
            report = self.checker.check(drafted.package, drafted.job)
            if not report.ok:
                show_report(report, failures_only=True)
                raise VerificationError(
                    f"{name} failed its quick checks and was not written",
                    remedy="look at the failed rows; the version before is as it was",
                )
            checks = "quick checks passed"
        if name not in self.before and drafted.job is not None:
            self.before[name] = self._present(name)
        installed = install.install(drafted.package, self.output, force=self.force)
        if drafted.job is not None:
            self.drafts[name] = drafted.package
            self.unverified[outcome.source] = None
        else:
            self.before.pop(name, None)
        seconds = f"in {time.monotonic() - begun:.1f} s"
        changed = f"{len(installed.written)} files written" if installed.written else "unchanged"
        say(f"{installed.folder}: {changed} {seconds}; {checks}")

    def _present(self, name: str) -> Package | None:
        try:
            return install.read(os.path.join(self.output, name))
        except UsageError:
            return None

    def _verify(self, source: Source) -> None:
        """The verification of what was drafted; it takes back what fails it."""
        options = (self.output, False, True, True, False, False, self.extras)
        run = _Behind(*options, before=self.before, drafts=self.drafts)
        with Watch(1, quiet=False) as self.progress:
            run.watch = self.progress
            outcomes = isolate.run(
                [source], Generate("quick", self.extras), timeout=self.timeout, watch=self._tick
            )
            with contextlib.closing(outcomes):
                for outcome in outcomes:
                    try:
                        run.take(outcome)
                    except AutofnError as error:
                        self.progress.clear()
                        if str(error) not in self.told:
                            show_error(error)
                    else:
                        self.before.pop(outcome.name, None)
        run.keep(not self.known[source].failed)
        del self.unverified[source]


@dataclass
class _Behind(Run):
    """A run over what lies there already."""

    before: dict[str, Package | None] = field(default_factory=dict)
    drafts: dict[str, Package] = field(default_factory=dict)

    def refuse(self, generated: Generated, report: Report) -> bool:
        show_report(report, failures_only=True)
        before = self.before.get(report.name)
        draft = self.drafts.get(report.name, generated.package)
        install.withdraw(draft, self.output, before)
        there = "the version before is back" if before else "it was removed"
        show_error(
            VerificationError(
                f"{report.name} failed its verification: {there}",
                remedy="look at the failed rows: the formula may be undefined at the point shown "
                "(give it a domain), or autofn is wrong (please report it)",
            )
        )
        return False


def _shown(source: Source) -> str:
    return click.format_filename(source.where.file)
