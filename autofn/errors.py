"""The errors autofn shows to its users: what is wrong, where, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Location:
    """A line of a formula file; `line` counts from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class AutofnError(Exception):
    """An error that is shown without a traceback; the process exits with `exit_code`."""

    exit_code = 2

    def __init__(self, what: str, *, where: Location | None = None, remedy: str | None = None):
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f"\n  remedy: {self.remedy}" if self.remedy else ""
        return f"{place}{self.what}{remedy}"

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross the process boundary of a formula file's worker.
        return _rebuild, (type(self), self.what, self.where, self.remedy)

    def at(self, where: Location) -> AutofnError:
        """The same error with a place, where it has none yet."""
        return self if self.where else type(self)(self.what, where=where, remedy=self.remedy)


def _rebuild(
    kind: type[AutofnError], what: str, where: Location | None, remedy: str | None
) -> AutofnError:
    return kind(what, where=where, remedy=remedy)


class FormulaError(AutofnError):
    """The formula cannot be used as it stands."""


class UsageError(AutofnError):
    """The command line or an output folder cannot be used as it stands."""


class VerificationError(AutofnError):
    """A generated package failed its verification and was not installed."""

    exit_code = 3


class InternalError(AutofnError):
    """A defect of autofn itself; `trace` is the traceback, shown under AUTOFN_DEBUG=1."""

    exit_code = 70

    def __init__(
        self,
        what: str,
        *,
        where: Location | None = None,
        remedy: str | None = "please report it; AUTOFN_DEBUG=1 shows the traceback",
        trace: str = "",
    ):
        super().__init__(what, where=where, remedy=remedy)
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_internal, (self.what, self.where, self.remedy, self.trace)


def _rebuild_internal(
    what: str, where: Location | None, remedy: str | None, trace: str
) -> InternalError:
    return InternalError(what, where=where, remedy=remedy, trace=trace)
