"""Features: functions of a subject that pass, say which documented error was raised, or fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from citizen.subject import Subject

Check = Callable[[Subject], "str | None"]


class NotApplicable(Exception):
    """The feature says nothing of this formula: it has no parameters, say."""


@dataclass(frozen=True)
class Feature:
    """`check` returns None where all is well, or the documented error that it has seen.

    slow: it compiles, which takes seconds.
    """

    group: str
    name: str
    check: Check
    slow: bool = False


@dataclass(frozen=True)
class Cell:
    """What became of a feature: "pass", "error" (a documented one), "fail" or "n/a"; and why."""

    status: str
    detail: str = ""


FEATURES: dict[str, Feature] = {}


def feature(group: str, name: str, *, slow: bool = False) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        assert name not in FEATURES
        FEATURES[name] = Feature(group, name, check, slow)
        return check

    return register


def raised(kind: type[Exception], says: str, call: Callable[[], object]) -> str:
    """The error that a call has to raise, with a text that is documented."""
    try:
        call()
    except kind as error:
        if says not in str(error):
            raise
        return f"{type(error).__name__}: {says}"
    raise AssertionError(f"no error, instead of: {says}")


def run(each: Feature, subject: Subject) -> Cell:
    """One cell of the table. Whatever is raised and not documented is a failure."""
    if each.slow:
        torch._dynamo.reset()
    try:
        with subject.active():
            error = each.check(subject)
    except NotApplicable as why:
        return Cell("n/a", str(why))
    except Exception as problem:
        text = " ".join(str(problem).split())
        return Cell("fail", f"{type(problem).__name__}: {text}"[:400])
    return Cell("pass") if error is None else Cell("error", error)
