"""What a formula's own process does for each command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autofn.errors import UsageError
from autofn.isolate import VERIFICATION_LIMIT, Stage
from autofn.model import Definition
from autofn.package import Package

if TYPE_CHECKING:
    from autofn.certificate.model import Certificate
    from autofn.pipeline import Explanation
    from autofn.verify.job import Level
    from autofn.verify.report import Report, Row


@dataclass(frozen=True)
class Generated:
    """A package, and its verification if it was asked for."""

    package: Package
    report: Report | None


@dataclass(frozen=True)
class Generate:
    """Generate, and verify on a level or, with None, not at all."""

    level: Level | None

    def __call__(self, definition: Definition, stage: Stage) -> Generated:
        from autofn import pipeline

        package = pipeline.generate(definition)
        report = _verified(package, definition, self.level, stage) if self.level else None
        return Generated(package, report)


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
    """Verify the package in `root`; with `fresh`, generate it where there is none."""

    root: str
    level: Level
    fresh: bool

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
        report = _verified(package, definition, self.level, stage)
        if self.level != "full" or not report.ok:
            return Verified(report, what, None, ())
        stage("certifying", VERIFICATION_LIMIT)
        from autofn.certificate.run import certify

        certificate = certify(package, definition)
        budget = definition.options.budget
        beyond = () if budget is None else certificate.beyond(budget)
        return Verified(report, what, certificate, beyond)


def _verified(package: Package, definition: Definition, level: Level, stage: Stage) -> Report:
    from autofn.verify import verify_package

    stage("verifying", VERIFICATION_LIMIT)

    def on_row(row: Row) -> None:
        stage(f"verifying: {row.backend}, {row.check}", None)

    return verify_package(package, definition, level=level, on_row=on_row)
