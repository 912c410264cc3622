"""Quick checks of a package's PyTorch path, in a process that has torch imported already.

For `gen --watch`: whoever saves a formula wants to use it at once. What these checks do not see,
the verification that follows does.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from autofn.aside import no_interrupt
from autofn.package import Package, write
from autofn.verify.job import Job
from autofn.verify.report import LOADS, TORCH, Report, Row

CHECKS = ("values", "gradients", "second derivatives", "gradcheck", "vmap", "shapes and dtypes")
"""Those of `report.CHECKS` that a draft is put through."""

LIMIT = 60.0
"""Seconds for all of them."""

_START = 120.0
"""Seconds in which the process must have imported torch."""


class Checker:
    """The warm process. It is started again where a package killed it or took too long."""

    def __init__(self) -> None:
        # Not forked: torch is not to be imported here, where formulas' processes are forked from.
        self._context = multiprocessing.get_context("spawn")
        self._start()

    def _start(self) -> None:
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
        with no_interrupt():
            self._process.start()
        theirs.close()

    def check(self, package: Package, job: Job) -> Report:
        """The rows of a draft's checks; a crash and a time-out are failures."""
        with tempfile.TemporaryDirectory(prefix="autofn_draft_") as name:
            folder = Path(name) / package.name
            write(package, folder)
            try:
                return Report(package.name, tuple(self._rows(replace(job, folder=str(folder)))))
            except BaseException:
                self.close()
                self._start()
                raise

    def _rows(self, job: Job) -> list[Row]:
        rows: list[Row] = []
        running = LOADS
        try:
            self._pipe.send(job)
            end = time.monotonic() + _START + LIMIT
            while self._pipe.poll(max(0.0, end - time.monotonic())):
                kind, *rest = self._pipe.recv()
                if kind == "begin":
                    running = rest[1]
                elif kind == "row":
                    rows.append(Row(*rest))
                elif kind == "ready":
                    end = time.monotonic() + LIMIT
                else:
                    return rows
            why = f"no result within {LIMIT:.0f} s"
        except (EOFError, OSError):
            self._process.join(5)
            why = f"the process ended with exit code {self._process.exitcode}"
        self.close()
        self._start()
        return [*rows, Row(TORCH, running, "failed", why)]

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


class _Channel:
    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def send(self, *message: Any) -> None:
        self._pipe.send(message)


def _serve(pipe: Connection) -> None:
    """Checks one job after another, until nobody is there to send any."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
    # Before a package's runtime reads it.
    os.environ["AUTOFN_BACKEND"] = "torch"
    import warnings

    import torch

    from autofn.verify import worker
    from autofn.verify.checks.context import Context
    from autofn.verify.subject import Subject

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sys.dont_write_bytecode = True
    channel = _Channel(pipe)
    while True:
        try:
            job: Any = pipe.recv()
        except EOFError:
            return
        channel.send("ready")
        torch.manual_seed(0)
        kept = set(sys.modules)
        try:
            context = Context(Subject(job), job)
        except Exception as error:
            channel.send("row", TORCH, LOADS, "failed", f"{type(error).__name__}: {error}")
        else:
            for name in CHECKS:
                worker.run(channel, TORCH, name, functools.partial(worker.BY_NAME[name], context))
        channel.send("done")
        # The next package may have the same name.
        for name in set(sys.modules) - kept:
            if name.startswith("autofn_under_test"):
                del sys.modules[name]
