"""Searches remembered between processes: a search is paid for once.

In the user's cache, one file per search, named after everything that decides it: what is asked,
this package's sources and the SymPy version. A file that cannot be read or written is no error.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import sympy

T = TypeVar("T")


def remembered(question: str, answer: Callable[[], T]) -> T:
    """The answer to a question, from an earlier process where there is one."""
    key = hashlib.sha256(f"{_sources()}\n{question}".encode()).hexdigest()
    path = _folder() / f"{key}.pickle"
    with contextlib.suppress(Exception):  # whatever a damaged file makes of unpickling
        found: T = pickle.loads(path.read_bytes())
        return found
    new = answer()
    with contextlib.suppress(OSError, pickle.PicklingError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(pickle.dumps(new))
        os.replace(file.name, path)
    return new


def _folder() -> Path:
    if chosen := os.environ.get("AUTOFN_CACHE_DIR"):
        return Path(chosen) / "search"
    import platformdirs

    return platformdirs.user_cache_path("autofn", appauthor=False) / "search"


@functools.cache
def _sources() -> str:
    """A digest of what the outcome of a search depends on."""
    here = Path(__file__).resolve().parent
    digest = hashlib.sha256(sympy.__version__.encode())
    for path in sorted(here.glob("*.py")) + [
        here.parent / name for name in ("program.py", "ops.py", "functions.py", "compact.py")
    ]:
        digest.update(path.read_bytes())
    return digest.hexdigest()
