"""What `gen` did before: which package came from which inputs, and what its verification found.

A record is a file in the user's cache, one per source and output folder, so that packages say
nothing of the machine they were made on. It counts only while autofn, its environment and every
input are the same and the package lies where it was written, byte for byte.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autofn import cache, install, resources
from autofn.errors import AutofnError
from autofn.package import Package
from autofn.reading import CHANGED, Input
from autofn.verify.job import DTYPES

if TYPE_CHECKING:
    from autofn.source import Source

_AGE = 90 * 86400
"""Seconds after which a record that nobody asked for goes."""


@dataclass(frozen=True)
class Kept:
    """A formula's package as it was written; `verified` sums its verification up, if it had one."""

    name: str
    digest: str
    verified: str | None


@dataclass(frozen=True)
class Record:
    """What became of one source. Without `inputs`, it is not known to be all of it."""

    inputs: tuple[Input, ...] | None
    formulas: tuple[Kept, ...]

    @property
    def current(self) -> bool:
        """Whether the source would give the same formulas again."""
        return self.inputs is not None and all(each.current for each in self.inputs)


NONE = Record(None, ())


def recall(source: Source, output: str, dtypes: Sequence[str] = DTYPES) -> Record:
    """The record of a source, with those formulas only whose package lies there untouched.

    dtypes: those that were verified.
    """
    path = _path(source, output, dtypes)
    if path is None:
        return NONE
    try:
        data = json.loads(path.read_bytes())
        if data["tool"] != tool():
            return NONE
        kept = tuple(Kept(**each) for each in data["formulas"])
        inputs = data["inputs"]
        found = None if inputs is None else tuple(Input(**each) for each in inputs)
    except (OSError, ValueError, KeyError, TypeError):
        return NONE
    with contextlib.suppress(OSError):
        os.utime(path)
    present = tuple(each for each in kept if _lies(each, output))
    return Record(found if present == kept else None, present)


def keep(source: Source, output: str, record: Record, dtypes: Sequence[str] = DTYPES) -> None:
    """Writes the record of a source; where there is no cache, nothing."""
    path = _path(source, output, dtypes)
    if path is None:
        return
    inputs = record.inputs
    if inputs is not None and any(each.state == CHANGED for each in inputs):
        inputs = None
    data = {
        "tool": tool(),
        "inputs": None if inputs is None else [asdict(each) for each in inputs],
        "formulas": [asdict(each) for each in record.formulas],
    }
    with contextlib.suppress(OSError):
        _sweep(path.parent)
        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(data), encoding="utf-8")
        os.replace(beside, path)


def digest(package: Package) -> str:
    """A hash over the names and texts of a package's files."""
    return _hash(part for path, text in package.files for part in (path.encode(), text.encode()))


@functools.cache
def tool() -> str:
    """A hash over all that packages and verifications depend on besides the formula."""
    roots = (Path(__file__).parent, resources.templates())
    parts = [
        part
        for root in roots
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
        for part in (path.relative_to(root).as_posix().encode(), path.read_bytes())
    ]
    versions = [importlib.metadata.version(name) for name in ("sympy", "mpmath")]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        versions.append(importlib.metadata.version("torch"))
    compilers = (os.environ.get("CXX"), "g++", "clang++", "nvcc")
    tools = [str(name and shutil.which(name)) for name in compilers]
    return _hash([*parts, sys.version.encode(), repr((versions, tools)).encode()])


def _lies(kept: Kept, output: str) -> bool:
    try:
        package = install.read(Path(output) / kept.name)
    except AutofnError:
        return False
    return digest(package) == kept.digest


def _path(source: Source, output: str, dtypes: Sequence[str]) -> Path | None:
    folder = cache.folder("records")
    if folder is None:
        return None
    # A file by where it is, an expression by what it is.
    place = getattr(source, "path", None)
    parts = [os.path.realpath(place) if place else "", repr(source) if not place else ""]
    parts += [str(getattr(source, "only", None)), os.path.realpath(output), *dtypes]
    return folder / f"{_hash(map(os.fsencode, parts))[:32]}.json"


def _hash(parts: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()


def _sweep(folder: Path) -> None:
    """Removes records that have not been asked for in a long time."""
    oldest = time.time() - _AGE
    for path in folder.iterdir():
        if path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)
