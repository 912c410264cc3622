"""What a formula's own process does for each command."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autofn.errors import UsageError
from autofn.isolate import VERIFICATION_LIMIT, Stage
from autofn.model import Definition
from autofn.package import Package
from autofn.verify.job import DTYPES

if TYPE_CHECKING:
    from autofn.certificate.model import Certificate
    from autofn.pipeline import Explanation
    from autofn.verify.job import Job, Level
    from autofn.verify.report import Report


Target = Literal["python", "cpp"]

TARGETS: dict[Target, tuple[str, ...]] = {"python": (), "cpp": ("cpp",)}
"""What a package has beside Python, by what `--target` says."""


@dataclass(frozen=True)
class Extras:
    """What packages in `root` have beside Python and its kernels; None: as each has it now.

    `dtypes`: in which they are verified.
    """

    root: str
    tests: bool | None = None
    target: Target | None = None
    dtypes: tuple[str, ...] = DTYPES

    def package(self, definition: Definition, *, search: bool = True) -> Package:
        from autofn import pipeline

        name = definition.name
        targets, tests = self._targets(name), self._tests(name)
        return pipeline.generate(definition, targets, tests=tests, search=search)

    def kept(self, name: str) -> bool:
        """Whether the package that lies there is as is wanted."""
        from autofn import install

        there = install.targets(Path(self.root) / name)
        return self._tests(name) == self._has_tests(name) and self._targets(name) == there

    def _tests(self, name: str) -> bool:
        return self._has_tests(name) if self.tests is None else self.tests

    def _targets(self, name: str) -> tuple[str, ...]:
        from autofn import install

        if self.target is None:
            return install.targets(Path(self.root) / name)
        return TARGETS[self.target]

    def _has_tests(self, name: str) -> bool:
        from autofn.emit.companion import path_of
        from autofn.install import holds

        return holds(Path(self.root) / name, path_of(name))


@dataclass(frozen=True)
class Generated:
    """A package, and its verification: of now, or summed up from before, or none."""

    package: Package
    digest: str
    report: Report | None = None
    before: str | None = None


@dataclass(frozen=True)
class Generate:
    """Generate, and verify on a level or, with None, not at all.

    `known` maps digests of packages that need not be verified again to what was found.
    """

    level: Level | None
    extras: Extras
    known: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, definition: Definition, stage: Stage) -> Generated:
        from autofn import records

        package = self.extras.package(definition)
        digest = records.digest(package)
        if digest in self.known:
            return Generated(package, digest, before=self.known[digest])
        report = None
        if self.level is not None:
            report = _verified(package, definition, self.level, self.extras.dtypes, stage)
        return Generated(package, digest, report)


@dataclass(frozen=True)
class Drafted:
    """A package, its digest, and its quick checks; None where they are known to pass."""

    package: Package
    digest: str
    job: Job | None


@dataclass(frozen=True)
class Draft:
    """Generate, and prepare quick checks of packages that are not `known`.

    With checks, a verification follows, and the search for the best kernels is left to it.
    """

    known: frozenset[str]
    checks: bool
    extras: Extras

    def __call__(self, definition: Definition, stage: Stage) -> Drafted:
        from autofn import records
        from autofn.verify.tables import make_job

        package = self.extras.package(definition, search=not self.checks)
        digest = records.digest(package)
        wanted = self.checks and digest not in self.known
        job = make_job(definition, "", "draft", self.extras.dtypes) if wanted else None
        return Drafted(package, digest, job)


@dataclass(frozen=True)
class Explain:
    """Derive, and say what was derived; with `steps`, how."""

    steps: bool = False

    def __call__(self, definition: Definition, stage: Stage) -> Explanation:
        from autofn import pipeline

        return pipeline.explain(definition, steps=self.steps)


@dataclass(frozen=True)
class Verified:
    """A verification, and what was verified."""

    report: Report
    what: str
    certificate: Certificate | None
    beyond: tuple[str, ...]


@dataclass(frozen=True)
class Verify:
    """Verify the package in `root`; with `fresh`, generate it where there is none.

    `budgets` are the project's, in ULP, for formulas that state none; `dtypes` those that are
    verified and certified.
    """

    root: str
    level: Level
    fresh: bool
    budgets: Mapping[str, float]
    dtypes: tuple[str, ...] = DTYPES

    def __call__(self, definition: Definition, stage: Stage) -> Verified:
        from autofn import install, pipeline

        folder = Path(self.root) / definition.name
        if folder.exists():
            package, what = install.read(folder), str(folder)
        elif self.fresh:
            package, what = pipeline.generate(definition), "as generated now"
        else:
            raise UsageError(
                f"{folder} does not exist",
                remedy=f"autofn gen -o {self.root} generates it",
            )
        report = _verified(package, definition, self.level, self.dtypes, stage)
        if self.level != "full" or not report.ok:
            return Verified(report, what, None, ())
        stage("certifying", VERIFICATION_LIMIT)
        from autofn.certificate.run import certify

        certificate = _within(certify(package, definition), self.dtypes)
        budget = definition.options.budget
        if budget is None:
            budget = self.budgets.get(definition.name)
        beyond = () if budget is None else certificate.beyond(budget)
        return Verified(report, what, certificate, beyond)


def _within(certificate: Certificate, dtypes: Collection[str]) -> Certificate:
    """What a certificate says of these dtypes."""
    if set(dtypes) == set(DTYPES):
        return certificate
    return dataclasses.replace(
        certificate,
        findings=tuple(each for each in certificate.findings if each.dtype in dtypes),
        limits=tuple(each for each in certificate.limits if each.dtype in dtypes),
    )


def _verified(
    package: Package, definition: Definition, level: Level, dtypes: Sequence[str], stage: Stage
) -> Report:
    from autofn.verify import verify_package
    from autofn.verify.report import telling

    stage("verifying (compiling kernels)", VERIFICATION_LIMIT)
    return verify_package(package, definition, level=level, dtypes=dtypes, on_row=telling(stage))
