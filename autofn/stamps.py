"""Which files were saved: their time, size and identity, looked at from time to time.

Looking is enough for the few files of formulas, and sees every editor's way of saving, those that
write another file and rename it included, on every file system.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping

Stamp = tuple[int, int, int] | None

INTERVAL = 0.1
"""Seconds between looks."""

_SETTLED = 0.05
"""Seconds in which nothing changes once a save is over."""

_RETURNS = 0.5
"""Seconds in which a file that is being saved by renaming comes back."""


class Stamps:
    """The files that are watched, as they were when their changes were last taken."""

    def __init__(self) -> None:
        self._known: dict[str, Stamp] = {}

    def watch(self, paths: Iterable[str], since: Mapping[str, Stamp] | None = None) -> None:
        """Watch these, each since it was taken last, or since it was as `since` says, or now."""
        known = {**(since or {}), **self._known}
        self._known = {path: known[path] if path in known else stamp(path) for path in paths}

    def changed(self) -> frozenset[str]:
        """Files that are not as they were: another look, not yet taken."""
        return frozenset(path for path, known in self._known.items() if stamp(path) != known)

    def taken(self) -> frozenset[str]:
        """The files that changed, once they have been saved to the end."""
        begun, before = time.monotonic(), {path: stamp(path) for path in self._known}
        while True:
            time.sleep(_SETTLED)
            now = {path: stamp(path) for path in self._known}
            waits = any(now[path] is None and self._known[path] is not None for path in now)
            if now == before and not (waits and time.monotonic() - begun < _RETURNS):
                break
            before = now
        found = frozenset(path for path in now if now[path] != self._known[path])
        self._known = now
        return found


def stamp(path: str) -> Stamp:
    """A file or folder as it is now, None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
