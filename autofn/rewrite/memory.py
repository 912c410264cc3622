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
from typing import TypeVar

import sympy

from autofn import cache

T = TypeVar("T")


def remembered(question: str, answer: Callable[[], T], *, keep: bool = True) -> T:
    """The answer to a question, from an earlier process where there is one.

    keep: whether a new answer is one for later.
    """
    path = _path(question)
    if path is None:
        return answer()
    with contextlib.suppress(Exception):  # whatever a damaged file makes of unpickling
        old: T = pickle.loads(path.read_bytes())
        return old
    new = answer()
    if keep:
        with contextlib.suppress(OSError, pickle.PicklingError):
            cache.put(path, pickle.dumps(new))
    return new


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
    for path in sorted(here.rglob("*.py")) + [
        here.parent / f"{name}.py"
        for name in (
            "compact derive functions model names ops passes plan precise program recognise saving "
            "trees"
        ).split()
    ]:
        digest.update(path.read_bytes())
    return digest.hexdigest()
