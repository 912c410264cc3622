"""What running a formula file reads: itself, the modules it imports, files that it opens.

A package is a function of these files and of autofn, so as long as they are the same there is
nothing to do. What a file asks of the clock, the environment or the network is not seen.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import site
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import autofn

CHANGED = ""
"""The state of a file that was written while it was read: no state equals it."""

_MARGIN = 20_000_000
"""Nanoseconds by which the clock of a file system may be behind."""


@dataclass(frozen=True)
class Input:
    """A file that was read, and what was in it."""

    path: str
    state: str

    @property
    def current(self) -> bool:
        """Whether the file is still what it was."""
        return self.state == state(self.path)

    @property
    def own(self) -> bool:
        """Whether it is a file of the user's, and not of an installed library."""
        return not _installed(self.path)


class Reading:
    """Notes what this process reads while `listening`; one for the life of a process."""

    def __init__(self) -> None:
        self._begun = time.time_ns()
        self._found: set[str] = set()
        self._listens = False
        sys.addaudithook(self._hook)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        self._listens, before = True, set(sys.modules)
        try:
            yield
        finally:
            self._listens = False
            # A module may have been read from its bytecode.
            sources = (getattr(sys.modules[n], "__file__", None) for n in set(sys.modules) - before)
            self._found.update(source for source in sources if isinstance(source, str))

    def inputs(self) -> tuple[Input, ...]:
        """The files read so far, as they are now; `CHANGED` where they changed since."""
        found = {os.path.abspath(path) for path in self._found if not path.endswith(".pyc")}
        return tuple(Input(path, self._state(path)) for path in sorted(found) if _counts(path))

    def _state(self, path: str) -> str:
        try:
            late = os.stat(path).st_mtime_ns >= self._begun - _MARGIN
        except OSError:
            late = False
        return CHANGED if late else state(path)

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._listens or event != "open":
            return
        path, mode, flags = arguments
        if isinstance(mode, str) and set(mode) & set("wax+"):
            return
        if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR):
            return
        if isinstance(path, str | bytes):
            self._found.add(os.fsdecode(path))


def state(path: str) -> str:
    """A hash of what a file holds; size and time of an installed library's; "absent"."""
    try:
        if _installed(path):
            found = os.stat(path)
            return f"{found.st_size} {found.st_mtime_ns}"
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except (OSError, ValueError):
        return "absent"


_PATHS = sysconfig.get_paths()
_SITES = tuple(
    os.path.join(path, "")
    for path in (_PATHS["purelib"], _PATHS["platlib"], site.getusersitepackages())
)
_STANDARD = tuple(os.path.join(_PATHS[name], "") for name in ("stdlib", "platstdlib"))
_OURS = os.path.join(os.path.dirname(os.path.abspath(autofn.__file__)), "")
_SYSTEM = ("/proc/", "/sys/", "/dev/")


def _installed(path: str) -> bool:
    return path.startswith((*_SITES, *_STANDARD))


def _counts(path: str) -> bool:
    """Whether a package may depend on the file: not autofn's own, Python's or the system's."""
    if path.startswith((_OURS, *_SYSTEM)) or os.path.isdir(path):
        return False
    return path.startswith(_SITES) or not path.startswith(_STANDARD)
