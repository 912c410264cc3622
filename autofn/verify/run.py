"""One verification: compilers, worker and oracle side by side, their findings one report."""

from __future__ import annotations

import json
import pickle
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Literal

from autofn.model import Definition
from autofn.package import Package, write
from autofn.verify import host, nursery, nvcc
from autofn.verify.compiled import Compilation
from autofn.verify.job import Level
from autofn.verify.nursery import Nursery, Start
from autofn.verify.process import Worker
from autofn.verify.report import (
    AGREEMENT,
    ALL_CHECKS,
    BUILDS,
    CHECKS,
    CPU,
    GPU,
    HOST,
    KNOWN,
    TORCH,
    Report,
    Row,
)
from autofn.verify.tables import make_job

START = 120.0
"""Seconds in which the worker must have imported torch."""

LIMIT = {"quick": 180.0, "full": 1800.0}
"""Seconds in which the worker must be done."""

OnRow = Callable[[Row], None]


def run_checks(
    package: Package,
    definition: Definition,
    level: Level,
    dtypes: Sequence[str],
    on_row: OnRow | None,
    without: Collection[str],
) -> Report:
    """See `autofn.verify.verify_package`."""
    rows: list[Row] = []
    lock = threading.Lock()

    def found(row: Row) -> None:
        if row.check == KNOWN and row.status == "not run":
            return
        with lock:
            rows.append(row)
            if on_row is not None:
                on_row(row)

    with tempfile.TemporaryDirectory(prefix="autofn_verify_") as name:
        run = _Run(Path(name), package, definition, level, dtypes, found, without)
        try:
            run.all()
        finally:
            run.close()
    return Report(package.name, tuple(sorted(rows, key=_order)))


def _order(row: Row) -> tuple[int, int]:
    backends = [TORCH, HOST, *map(nvcc.backend, nvcc.ARCHITECTURES["full"]), CPU, GPU]
    checks = [BUILDS, *CHECKS, KNOWN, AGREEMENT]
    return (
        backends.index(row.backend) if row.backend in backends else len(backends),
        checks.index(row.check) if row.check in checks else -1,
    )


class _Run:
    """One verification: its folder, its processes, and the order in which they meet."""

    def __init__(
        self,
        folder: Path,
        package: Package,
        definition: Definition,
        level: Level,
        dtypes: Sequence[str],
        found: OnRow,
        without: Collection[str],
    ) -> None:
        self.folder = folder
        self.definition = definition
        self.level = level
        self.dtypes = dtypes
        self.found = found
        # Not in the worker's own folder, from which a formula called `queue` would be imported.
        self.package = folder / "packages" / package.name
        write(package, self.package)
        self.without = without
        self.tools = "left out" if HOST in without else host.toolchain()
        self.workers: list[Worker] = []
        self.nurseries: list[Nursery] = []
        self.compilers: list[Compilation] = []
        self.nvcc: threading.Thread | None = None
        self.closed = False

    def all(self) -> None:
        sanitized = self.tools if isinstance(self.tools, host.Toolchain) else None
        why = self.tools if isinstance(self.tools, str) else ""
        worker, native = self._workers(sanitized)
        there = GPU not in self.without and shutil.which("nvidia-smi") is not None
        gpu = self._worker(nursery.spawn, "cuda") if there else None
        build = None
        if sanitized is not None:
            build = host.start_build(sanitized, self.package, self.folder)
            self.compilers.append(build)
        self._start_nvcc()
        job = make_job(self.definition, str(self.package), self.level, self.dtypes)
        (self.folder / "job").write_bytes(pickle.dumps(job))
        if not worker.ready(START) and sanitized is not None:
            why = f"the sanitizer cannot be preloaded: {worker.last_words()}"
            worker, native = self._workers(None)
            build = None
        others = [
            threading.Thread(target=self._kernels, args=each, daemon=True)
            for each in ((CPU, native), (GPU, gpu))
        ]
        for other in others:
            other.start()
        worker.send(str(self.folder / "job"))
        library = ""
        if build is not None:
            library, why = self._built(build)
        worker.send(json.dumps(library))
        expected = [(TORCH, check) for check in (*CHECKS, KNOWN)]
        if library:
            expected += [(HOST, check) for check in (*CHECKS, AGREEMENT)]
        else:
            self._no_host(why, failed=build is not None)
        worker.rows(expected, self.found, LIMIT[self.level])
        for other in others:
            other.join()
        if self.nvcc is not None:
            self.nvcc.join()

    def close(self) -> None:
        self.closed = True
        for worker in self.workers:
            worker.close()
        for each in self.nurseries:
            each.close()
        for compiler in self.compilers:
            compiler.kill()
        if self.nvcc is not None:
            self.nvcc.join()  # it reads what its compiler says
        for compiler in self.compilers:
            compiler.close()

    def _kernels(self, backend: str, worker: Worker | None) -> None:
        """All checks of CPU or GPU kernels, in the process that runs them as users' do."""
        expected = [(backend, check) for check in (BUILDS, *CHECKS, AGREEMENT)]
        if worker is None:
            why = "left out" if backend in self.without else "no GPU here"
            missing = [(backend, ALL_CHECKS)] if backend == GPU else expected
            for _, check in missing:
                self.found(Row(backend, check, "not run", why))
            return
        worker.ready(START)
        worker.send(str(self.folder / "job"))
        worker.rows(expected, self.found, LIMIT[self.level])

    def _workers(self, tools: host.Toolchain | None) -> tuple[Worker, Worker | None]:
        """Those of the PyTorch path and of the CPU kernels, under the sanitizer of `tools`."""
        start = self._start(tools)
        return (
            self._worker(start, "torch"),
            None if CPU in self.without else self._worker(start, "native"),
        )

    def _start(self, tools: host.Toolchain | None) -> Start:
        if not nursery.POSSIBLE:
            return nursery.spawn
        found = nursery.shared(tools)
        if found is None:
            found = Nursery(tools)
            self.nurseries.append(found)
        return found.fork

    def _worker(self, start: Start, backend: Literal["torch", "native", "cuda"]) -> Worker:
        worker = Worker(self.folder, start, backend)
        self.workers.append(worker)
        return worker

    def _built(self, build: Compilation) -> tuple[str, str]:
        """The library's path, or an empty one and the compiler's message."""
        succeeded, output = build.wait()
        if succeeded:
            return str(self.folder / "kernels.so"), ""
        return "", host.first_error(output)

    def _no_host(self, why: str, *, failed: bool) -> None:
        if failed:
            self.found(Row(HOST, "compiles", "failed", why))
            why = "the kernels do not compile"
        for check in (*CHECKS, AGREEMENT):
            self.found(Row(HOST, check, "not run", why))

    def _start_nvcc(self) -> None:
        compiler = nvcc.find()
        if compiler is None:
            for row in nvcc.not_run(self.level):
                self.found(row)
            return
        compilation = nvcc.start(compiler, self.package, self.folder, self.level)
        self.compilers.append(compilation)

        def wait() -> None:
            rows = nvcc.finish(compilation, self.level)
            for row in () if self.closed else rows:
                self.found(row)

        self.nvcc = threading.Thread(target=wait, daemon=True)
        self.nvcc.start()
