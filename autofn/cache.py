"""The user's cache: where packages keep built libraries, and autofn its locks and records."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def folder(name: str) -> Path | None:
    """The folder `name` of the cache, made where it is missing; None where it cannot be written.

    $AUTOFN_CACHE_DIR, as for the packages' libraries, or else the user's cache of the system.
    """
    import platformdirs

    named = os.environ.get("AUTOFN_CACHE_DIR")
    root = Path(named) if named else platformdirs.user_cache_path("autofn", appauthor=False)
    found = root / name
    try:
        # The libraries' folder is beside it, which no one else may write to.
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        found.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None
    return found if os.access(found, os.W_OK) else None


def own_folder(name: str) -> Path | None:
    """The same for what is executed or unpickled: None, too, where it is another user's."""
    found = folder(name)
    if found is None or (hasattr(os, "getuid") and found.stat().st_uid != os.getuid()):
        return None
    return found


def put(path: Path, content: bytes) -> None:
    """Writes a file of the cache, which appears as a whole: other processes may be reading it.

    Raises OSError.
    """
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix="new-", delete=False) as file:
        file.write(content)
    os.replace(file.name, path)
