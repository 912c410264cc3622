"""Searches remembered between processes: a search is paid for once.

In the user's cache, one file per search, named after everything that decides it: what is asked,
this package's sources and the SymPy version. A file that cannot be read or written is no error.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import sympy

from autofn import cache

T = TypeVar("T")


def remembered(question: str, answer: Callable[[], T]) -> T:
    """The answer to a question, from an earlier process where there is one."""
    found = recalled(question)
    if found is not None:
        old: T = found[0]
        return old
    new, path = answer(), _path(question)
    if path is not None:
        with contextlib.suppress(OSError, pickle.PicklingError):
            cache.put(path, pickle.dumps(new))
    return new


def recalled(question: str) -> tuple[Any] | None:
    """The answer from an earlier process, if there is one."""
    path = _path(question)
    if path is None:
        return None
    with contextlib.suppress(Exception):  # whatever a damaged file makes of unpickling
        return (pickle.loads(path.read_bytes()),)
    return None


def _path(question: str) -> Path | None:
    folder = cache.own_folder("search")
    if folder is None:
        return None
    key = hashlib.sha256(f"{_sources()}\n{question}".encode()).hexdigest()
    return folder / f"{key}.pickle"


@functools.cache
def _sources() -> str:
    """A digest of all that `plan` is made of: what the outcome of a search depends on."""
    here = Path(__file__).resolve().parent
    digest = hashlib.sha256(sympy.__version__.encode())
    for path in sorted(here.glob("*.py")) + [
        here.parent / f"{name}.py"
        for name in (
            "compact derive functions model names ops plan precise program recognise saving trees"
        ).split()
    ]:
        digest.update(path.read_bytes())
    return digest.hexdigest()
