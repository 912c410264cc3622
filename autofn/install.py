"""Writing a generated package into its folder, and comparing it with what is there.

An installation is all or nothing: the new files are written beside the folder first, then moved
into it one by one with a backup of each, which an error moves back. Ctrl-C waits for the end.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from autofn import cache
from autofn.errors import UsageError, about
from autofn.package import MANIFEST, MARKER, Package

LOCK_TIMEOUT = 60.0
"""Seconds to wait for another process that writes the same package."""


_TEMPORARY = ".autofn"

_HASH = re.compile(rb"(?<=sha256)\W+[0-9a-f]{64}")
"""How the names of temporary folders end."""


@dataclass(frozen=True)
class Installed:
    """What an installation changed: paths inside the package folder."""

    folder: Path
    written: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class Drift:
    """One difference between a package and its folder.

    `detail` is a unified diff of an edited file, else a sentence. A `version` drift stands for
    all others of its package: it was made by another autofn or SymPy. A file of kind `hash` is of
    another formula, and has nothing that tells but the formula's hash. A `source` drift stands for
    all others too: it is another file's.
    """

    package: str
    path: str
    kind: Literal["missing", "edited", "hash", "stale", "version", "source"]
    detail: str


@dataclass(frozen=True)
class _Plan:
    """Files to write and to remove, and the files of the folder they replace."""

    folder: Path
    write: tuple[tuple[str, bytes], ...]
    remove: tuple[str, ...]


@about("output")
def install(package: Package, root: str | os.PathLike[str], *, force: bool = False) -> Installed:
    """Write the package into `root/<name>`; files that would not change are not touched.

    force: replace a package that was made from another source file.

    Raises UsageError where the folder cannot be written, holds a hand-written file of the
    package's, or belongs to another source file; what was there is then as it was, as it is after
    any other exception.
    """
    root = Path(root)
    with _explained(root / package.name, "written"), _locked(root / package.name):
        folder = _folder(package.name, root)
        _check_source(package, folder, force)
        plan = _planned(package, folder)
        if plan.write or plan.remove:
            with _undivided():
                _apply(plan)
    return Installed(root / package.name, tuple(path for path, _ in plan.write), plan.remove)


@about("output")
def withdraw(package: Package, root: str | os.PathLike[str], before: Package | None) -> None:
    """Undo an installation: `before` lies there again, or nothing; edited files stay.

    Raises UsageError as `install` does.
    """
    if before is not None:
        install(before, root, force=True)
        return
    folder = Path(root) / package.name
    with _explained(folder, "written"), _locked(folder):
        mine = tuple(path for path, text in package.files if _bytes(folder / path) == text.encode())
        with _undivided():
            _apply(_Plan(folder, (), mine))
        with contextlib.suppress(OSError):  # not empty
            folder.rmdir()


@about("output")
def check(package: Package, root: str | os.PathLike[str]) -> list[Drift]:
    """The differences between the package and `root/<name>`, byte for byte; writes nothing."""
    root = Path(root)
    with _explained(root / package.name, "read"):
        return _differences(package, root / package.name)


def _differences(package: Package, folder: Path) -> list[Drift]:
    name = package.name
    if not folder.is_dir():
        return [Drift(name, "", "missing", f"{folder} does not exist")]
    manifest = _manifest(folder)
    drifts: list[Drift] = []
    for path, text in package.files:
        present = _bytes(folder / path)
        if present is None:
            drifts.append(Drift(name, path, "missing", f"{folder / path} does not exist"))
        elif present != text.encode():
            if _HASH.sub(b"", present) == _HASH.sub(b"", text.encode()):
                only = f"{folder / path} differs in the formula's hash only"
                drifts.append(Drift(name, path, "hash", only))
                continue
            drifts.append(Drift(name, path, "edited", _diff(folder / path, present, text)))
    drifts += [
        Drift(name, path, "stale", f"{folder / path} is generated no longer")
        for path in _stale(package, folder, manifest)
    ]
    other = _other_source(package, folder)
    if drifts and other:
        return [Drift(name, MANIFEST, "source", other)]
    versions = _versions(package, manifest)
    if drifts and versions:
        return [Drift(name, MANIFEST, "version", versions)]
    return drifts


def targets(folder: Path) -> tuple[str, ...]:
    """What the package in a folder has beside Python, none where there is no package."""
    found = (_manifest(folder) or {}).get("targets")
    return ("cpp",) if isinstance(found, list) and "cpp" in found else ()


@about("output")
def read(folder: str | os.PathLike[str]) -> Package:
    """The generated package in a folder, by its manifest.

    Raises UsageError where there is none, or one of its files is missing.
    """
    folder = Path(folder)
    with _explained(folder, "read"):
        return _read(folder)


def packages(root: str | os.PathLike[str]) -> list[str]:
    """The names of the generated packages in a folder."""
    return sorted(path.parent.name for path in Path(root).glob(f"*/{MANIFEST}"))


def holds(folder: Path, path: str) -> bool:
    """Whether the generated package in a folder has such a file, by its manifest."""
    try:
        return path in _listed(_manifest(folder))
    except OSError:
        return False


def _read(folder: Path) -> Package:
    manifest = _manifest(folder)
    if manifest is None:
        raise UsageError(f"{folder} holds no generated package", remedy=f"autofn gen {folder.name}")
    files: list[tuple[str, str]] = []
    for path in dict.fromkeys([*_listed(manifest), MANIFEST]):
        data = _bytes(folder / path)
        if data is None:
            raise UsageError(f"{folder / path} is missing", remedy=f"autofn gen {folder.name}")
        try:
            files.append((path, data.decode()))
        except UnicodeDecodeError:
            raise UsageError(
                f"{folder / path} is not UTF-8 text", remedy=f"autofn gen {folder.name}"
            ) from None
    return Package(folder.name, str(manifest.get("source", "")), tuple(files))


# --- what is there -------------------------------------------------------------------------


def _bytes(path: Path) -> bytes | None:
    """The contents of a plain file, None where there is none."""
    try:
        return path.read_bytes() if path.is_file() else None
    except NotADirectoryError:
        return None


def _manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest, None where there is none of autofn's."""
    data = _bytes(folder / MANIFEST)
    if data is None:
        return None
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return manifest if isinstance(manifest, dict) and "format" in manifest else None


def _listed(manifest: dict[str, Any] | None) -> tuple[str, ...]:
    """The files of a manifest that lie in its own folder: it may have been edited."""
    files = (manifest or {}).get("files", [])
    if not isinstance(files, list):
        return ()
    paths = [PurePosixPath(each) for each in files if isinstance(each, str) and "\0" not in each]
    return tuple(
        str(path)
        for path in paths
        if path.parts
        and not path.is_absolute()
        and ".." not in path.parts
        and "\\" not in str(path)
    )


def _generated(data: bytes) -> bool:
    return MARKER.encode() in data.split(b"\n", 1)[0]


def _stale(package: Package, folder: Path, manifest: dict[str, Any] | None) -> tuple[str, ...]:
    """Generated files that the old manifest has and the package has no longer."""
    new = {path for path, _ in package.files}
    stale = []
    for path in _listed(manifest):
        if path not in new and not _through_link(folder, path):
            data = _bytes(folder / path)
            if data is not None and _generated(data):
                stale.append(path)
    return tuple(stale)


def _through_link(folder: Path, path: str) -> Path | None:
    """The first symbolic link on the way from the folder to a file in it."""
    place = folder
    for part in PurePosixPath(path).parts:
        place = place / part
        if place.is_symlink():
            return place
    return None


def _made_from(folder: Path, package: Package) -> str | None:
    """The source file of the package in the folder, by its manifest or else its first lines."""
    manifest = _manifest(folder)
    if manifest is not None and isinstance(manifest.get("source"), str):
        return str(manifest["source"])
    for path, _ in package.files:
        data = _bytes(folder / path)
        first = (data or b"").split(b"\n", 1)[0].decode(errors="replace")
        found = re.search(rf"{MARKER} from (.+?) \(format", first)
        if found:
            return found[1]
    return None


def _versions(package: Package, manifest: dict[str, Any] | None) -> str | None:
    """A sentence, where other versions made the package in the folder."""
    if manifest is None:
        return None
    new = json.loads(package.text(MANIFEST))
    names = {"format": "format", "autofn": "autofn", "sympy": "SymPy"}
    other = [
        f"{shown} {manifest.get(key)} (here: {new.get(key)})"
        for key, shown in names.items()
        if manifest.get(key) != new.get(key)
    ]
    if not other:
        return None
    return (
        f"{package.name} was generated with {', '.join(other)}; the texts cannot be compared. "
        "Install those versions, or generate it again"
    )


def _diff(path: Path, present: bytes, text: str) -> str:
    if present.replace(b"\r\n", b"\n") == text.encode():
        return f"{path} differs in its line endings only: git's autocrlf, most likely"
    lines = difflib.unified_diff(
        present.decode(errors="replace").splitlines(keepends=True),
        text.splitlines(keepends=True),
        f"{path}",
        f"{path} (generated)",
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


# --- what may be done ----------------------------------------------------------------------


def _folder(name: str, root: Path) -> Path:
    """The package's folder, links resolved; it need not exist yet."""
    for place in (*reversed(root.parents), root, root / name):
        if place.is_symlink() and not place.exists():
            raise UsageError(
                f"{place} is a broken symbolic link", remedy="remove it, or choose another -o DIR"
            )
        if place.exists() and not place.is_dir():
            raise UsageError(
                f"{place} is a file, not a folder", remedy="move it away, or choose another -o DIR"
            )
    return (root / name).resolve()


OTHER_SOURCE = "rename the formula, choose another -o DIR, or replace it with --force"
"""What to do about a package that another file's formula gave."""


def _other_source(package: Package, folder: Path) -> str | None:
    """A sentence, where another file's formula made the package in the folder."""
    source = _made_from(folder, package)
    if source is None or source == package.source:
        return None
    return f"{folder} was generated from {source}, not from {package.source}"


def _check_source(package: Package, folder: Path, force: bool) -> None:
    other = _other_source(package, folder)
    if other is not None and not force:
        raise UsageError(other, remedy=OTHER_SOURCE)


def _planned(package: Package, folder: Path) -> _Plan:
    write = []
    for path, text in package.files:
        place, data = folder / path, text.encode()
        link = _through_link(folder, path)
        if link is not None:
            raise UsageError(
                f"{link} is a symbolic link, which autofn does not write through",
                remedy="remove it, or choose another -o DIR",
            )
        if place.is_dir():
            raise UsageError(f"{place} is a folder", remedy="move it away")
        present = _bytes(place)
        if present == data:
            continue
        if present is not None and not _ours(path, present, folder):
            raise UsageError(
                f"{place} was not generated by autofn and is not overwritten",
                remedy="move it away, rename the formula, or choose another -o DIR",
            )
        write.append((path, data))
    return _Plan(folder, tuple(write), _stale(package, folder, _manifest(folder)))


def _ours(path: str, present: bytes, folder: Path) -> bool:
    return _manifest(folder) is not None if path == MANIFEST else _generated(present)


# --- doing it ------------------------------------------------------------------------------


def _apply(plan: _Plan) -> None:
    folder = plan.folder
    made: list[Path] = []
    try:
        for parent in (*reversed(folder.parent.parents), folder.parent):
            if not parent.exists():
                parent.mkdir(exist_ok=True)
                made.append(parent)
        with _sibling(folder) as temporary:
            new = temporary / "new"
            for path, data in plan.write:
                place = new / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)
            if folder.exists():
                _exchange(plan, new, temporary / "old")
            else:
                os.replace(new, folder)
    except BaseException:
        for parent in reversed(made):
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


@contextlib.contextmanager
def _sibling(folder: Path) -> Iterator[Path]:
    """A temporary folder on the same file system, gone afterwards."""
    temporary = Path(
        tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=_TEMPORARY, dir=folder.parent)
    )
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _exchange(plan: _Plan, new: Path, old: Path) -> None:
    """Move new files in and stale ones out; on any error move everything back."""
    undo: list[tuple[Path, Path | None]] = []
    folders: list[Path] = []
    try:
        for path, _ in plan.write:
            place, backup = plan.folder / path, old / path
            for parent in reversed(PurePosixPath(path).parents):
                if not (plan.folder / parent).exists():
                    (plan.folder / parent).mkdir()
                    folders.append(plan.folder / parent)
            if place.exists():
                backup.parent.mkdir(parents=True, exist_ok=True)
                _copy(place, backup)
                shutil.copymode(place, new / path)
                undo.append((place, backup))
            else:
                undo.append((place, None))
            os.replace(new / path, place)
        for path in plan.remove:
            place, backup = plan.folder / path, old / path
            backup.parent.mkdir(parents=True, exist_ok=True)
            _copy(place, backup)
            undo.append((place, backup))
            os.unlink(place)
    except BaseException:
        for place, saved in reversed(undo):
            if saved is None:
                place.unlink(missing_ok=True)
            else:
                os.replace(saved, place)
        for empty in reversed(folders):
            with contextlib.suppress(OSError):
                empty.rmdir()
        raise
    for path in plan.remove:
        for parent in list(PurePosixPath(path).parents)[:-1]:
            with contextlib.suppress(OSError):  # not empty
                (plan.folder / parent).rmdir()


def _copy(place: Path, backup: Path) -> None:
    """A second name for the file, where the file system has those, so that its inode comes back."""
    try:
        os.link(place, backup)
    except OSError:
        shutil.copy2(place, backup)


@contextlib.contextmanager
def _undivided() -> Iterator[None]:
    """Ctrl-C waits until the files are in place, or all is undone: a few milliseconds."""
    pending: list[int] = []
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for each in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(each)
            if handler is not None:
                before[each] = handler
                signal.signal(each, lambda number, frame: pending.append(number))
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        for number in pending[:1]:
            signal.raise_signal(number)


@contextlib.contextmanager
def _explained(folder: Path, verb: Literal["read", "written"]) -> Iterator[None]:
    """What the operating system refuses, with a remedy."""
    try:
        yield
    except OSError as error:
        named = error.filename
        place = Path(os.fsdecode(named)) if isinstance(named, str | bytes) else folder
        if any(part.endswith(_TEMPORARY) for part in place.parts):
            place = folder
        reason = error.strerror or str(error)
        remedy = "choose another -o DIR"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "free some space; what was there before is as it was"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            remedy = f"let it be {verb}, or choose another -o DIR"
        raise UsageError(f"{place} cannot be {verb}: {reason}", remedy=remedy) from None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer per folder. The lock lies in the user's cache: nothing of it is left behind."""
    import filelock

    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:20]
    lock = filelock.FileLock(_lock_folder() / f"{name}.lock", timeout=LOCK_TIMEOUT)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise UsageError(
            f"another autofn has been writing {folder} for {LOCK_TIMEOUT:g} s",
            remedy="wait for it, or end it",
        ) from None
    try:
        yield
    finally:
        lock.release()


def _lock_folder() -> Path:
    folder = cache.folder("locks")
    if folder is None:
        user = os.getuid() if hasattr(os, "getuid") else 0
        folder = Path(tempfile.gettempdir()) / f"autofn-locks-{user}"
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder
