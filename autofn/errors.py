"""The errors autofn shows to its users: what is wrong, where, and the remedy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Location:
    """A line of a formula file; `line` counts from 1.

    `span` is the part of the line that is meant, in characters from 0, and all of it where there
    is none. `text` is the line itself where it is of no file. A `whole` file is meant, and not its
    first line, where no line is to be shown.
    """

    file: str
    line: int
    span: tuple[int, int] | None = field(default=None, compare=False)
    text: str | None = field(default=None, compare=False)
    whole: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.text is None else self.file


class AutofnError(Exception):
    """An error that is shown without a traceback; the process exits with `exit_code`.

    `kind` is its section in docs/errors.md.
    """

    exit_code = 2
    kind = "formula"

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
        return _rebuild, (type(self), self.what, self.where, self.remedy, self.kind)

    def at(self, where: Location) -> AutofnError:
        """The same error with a place, where it has none yet."""
        if self.where:
            return self
        return _rebuild(type(self), self.what, where, self.remedy, self.kind)


def _rebuild(
    cls: type[AutofnError], what: str, where: Location | None, remedy: str | None, kind: str
) -> AutofnError:
    error = cls(what, where=where, remedy=remedy)
    error.kind = kind
    return error


@contextlib.contextmanager
def about(kind: str) -> Iterator[None]:
    """Errors raised within it, or in a function that it decorates, are of this kind.

    Not those that say more precisely what they are about.
    """
    try:
        yield
    except AutofnError as error:
        if error.kind == type(error).kind:
            error.kind = kind
        raise


class FormulaError(AutofnError):
    """The formula cannot be used as it stands."""


class UsageError(AutofnError):
    """The command line or an output folder cannot be used as it stands."""

    kind = "command"


class VerificationError(AutofnError):
    """A generated package failed its verification and was not installed."""

    exit_code = 3
    kind = "verification"


class DriftError(AutofnError):
    """A package is not what its formula gives."""

    exit_code = 1
    kind = "drift"


class InternalError(AutofnError):
    """A defect of autofn itself; `trace` is the traceback, shown under AUTOFN_DEBUG=1."""

    exit_code = 70
    kind = "internal"

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


def interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind it.

    A folder that is being removed as Ctrl-C comes makes an OSError of it, with a file closed twice.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None
