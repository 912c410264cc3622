"""Libraries built ahead of time into `lib/` beside a package, by the package's own build."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType, ModuleType

from autofn.errors import UsageError
from autofn.isolate import Progress
from autofn.package import MANIFEST

LIBRARIES = "lib"

_MODULES = ("_runtime.py", "_build.py", "_fake.py")
_MARK = b"autofn-sources:"
_TICK = 0.2
"""Seconds between two reports of progress."""


@dataclass(frozen=True)
class Job:
    """A library to be built: of "cpu" for an instruction set, of "cuda" for an architecture."""

    package: Path
    device: str
    target: str

    @property
    def label(self) -> str:
        return f"{self.package.name} {self.device}-{self.target}"


@dataclass(frozen=True)
class Built:
    """What became of a job: a library, or why there is none and all that the compiler said."""

    job: Job
    path: Path
    seconds: float
    size: int = 0
    failure: str = ""
    output: str = ""


def packages(folder: Path) -> list[Path]:
    """The generated package in a folder, or those in its subfolders.

    Raises UsageError where there is none, or one that has no build of its own.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder", remedy="autofn gen writes a package")
    inside = [folder, *sorted(folder.iterdir())]
    found = [each for each in inside if (each / MANIFEST).is_file()]
    if not found:
        raise UsageError(f"{folder} holds no generated package", remedy="autofn gen writes one")
    found = found[:1] if found[0] == folder else found
    for each in found:
        if not all((each / module).is_file() for module in _MODULES):
            raise UsageError(
                f"{each} has no kernels: another autofn generated it",
                remedy="generate it again: autofn gen",
            )
    return found


def runtime(package: Path) -> ModuleType:
    """The `_runtime` of a generated package. Raises UsageError where it cannot be used."""
    try:
        found = module(package, "_runtime")
        found.namespace()
    except Exception as error:
        raise UsageError(
            f"{package} cannot be used: {error}", remedy="generate it again: autofn gen"
        ) from error
    return found


def module(package: Path, name: str) -> ModuleType:
    """A module of a generated package, imported without the package's op.

    Its parent has a name of its own: packages may share theirs.
    """
    path = str(package.resolve())
    parent = f"_autofn_{hashlib.sha256(os.fsencode(path)).hexdigest()[:20]}"
    if parent not in sys.modules:
        made = ModuleType(parent)
        made.__path__ = [path]
        sys.modules[parent] = made
    return importlib.import_module(f"{parent}.{name}")


def build(job: Job) -> Built:
    """Builds a library into the package's `lib/`, in place of those of older sources."""
    begun = time.monotonic()
    maker = runtime(job.package)
    suffix = f"{job.device}-{job.target}.so"
    path = job.package / LIBRARIES / f"{maker.namespace()}.{suffix}"
    try:
        path.parent.mkdir(exist_ok=True)
        maker.build(job.device, job.target, path.absolute())  # compilers run in the package
        _remove_older(path, suffix)
    except (OSError, RuntimeError) as error:
        failure, _, output = str(error).partition("\n")
        return Built(job, path, time.monotonic() - begun, failure=failure, output=output)
    return Built(job, path, time.monotonic() - begun, size=path.stat().st_size)


def _remove_older(path: Path, suffix: str) -> None:
    for other in path.parent.glob(f"*.{suffix}"):
        if other != path and _MARK in other.read_bytes():
            other.unlink()


def build_all(
    jobs: Sequence[Job],
    *,
    workers: int = 1,
    watch: Callable[[int, Sequence[Progress]], None] | None = None,
) -> Generator[Built, None, None]:
    """The jobs' results as they come, `workers` at a time, each built in a process of its own.

    When the iterator is closed or interrupted, compilers end and temporary files go.
    """
    waiting = deque(jobs)
    running: dict[Connection, _Running] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                started = _start(waiting.popleft())
                running[started.reader] = started
            for reader in wait(list(running), timeout=_TICK):
                assert isinstance(reader, Connection)
                yield _result(running.pop(reader))
            if watch:
                done = len(jobs) - len(waiting) - len(running)
                watch(done, [each.progress for each in running.values()])
    finally:
        for each in running.values():
            each.process.terminate()
        for each in running.values():
            each.process.join()


@dataclass(frozen=True)
class _Running:
    job: Job
    process: BaseProcess
    reader: Connection
    begun: float

    @property
    def progress(self) -> Progress:
        return Progress(self.job.label, "compiling", time.monotonic() - self.begun)


def _start(job: Job) -> _Running:
    # A fork has torch already.
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(job, writer), daemon=True)
    process.start()
    writer.close()
    return _Running(job, process, reader, time.monotonic())


def _work(job: Job, writer: Connection) -> None:
    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    # Ctrl-C reaches the whole group; the parent decides, and its SIGTERM unwinds.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end)
    with contextlib.suppress(BrokenPipeError):
        writer.send(build(job))


def _result(ended: _Running) -> Built:
    try:
        found = ended.reader.recv()
    except EOFError:
        ended.process.join()
        seconds = time.monotonic() - ended.begun
        failure = f"the build ended with exit code {ended.process.exitcode}"
        return Built(ended.job, ended.job.package / LIBRARIES, seconds, failure=failure)
    ended.process.join()
    assert isinstance(found, Built)
    return found
