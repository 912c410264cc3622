"""Formula files run in processes of their own.

A formula file is a program: it may loop for ever, in C too, kill its process or use all memory.
Each runs in a child process with a time limit per stage; the parent gets what the child makes of
each formula, or an error, in the order of the sources whatever the number of workers. A file whose
process dies at one formula is run again for those after it, so that each formula stands alone.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from autofn import aside
from autofn.aside import no_interrupt
from autofn.errors import AutofnError, FormulaError, InternalError, Location
from autofn.load import opened
from autofn.model import Definition
from autofn.reading import Input, Reading
from autofn.source import ExprSource, FileSource, Source

GENERATION_LIMIT = 300.0
"""Seconds for deriving and emitting one formula."""

VERIFICATION_LIMIT = 3600.0
"""Seconds for verifying one formula; verification has limits of its own."""

EXPRESSION_LIMIT = 10.0
"""Seconds for parsing `--expr`: what is not hostile takes none."""

_TICK = 0.1


Stage = Callable[[str, "float | None"], None]


class Action(Protocol):
    """What the child does with a traced formula; both it and its result can be pickled.

    `stage(doing, seconds)` begins a stage with a time limit of its own; `stage(doing, None)` only
    says what it is doing now. Both may be called from any thread.
    """

    def __call__(self, definition: Definition, stage: Stage) -> Any: ...


@dataclass(frozen=True)
class Outcome:
    """What became of one formula, or, where `name` is empty, of a whole source.

    `inputs` are the files that the source had read by then, as far as its process could tell.
    """

    source: Source
    name: str
    value: Any = None
    error: AutofnError | None = None
    inputs: tuple[Input, ...] = ()


@dataclass(frozen=True)
class Progress:
    """A running child: what it does with which formula, and for how long."""

    label: str
    doing: str
    seconds: float


def run(
    sources: Sequence[Source],
    action: Action,
    *,
    workers: int = 1,
    timeout: float = 60.0,
    watch: Callable[[int, Sequence[Progress]], None] | None = None,
) -> Generator[Outcome, None, None]:
    """Run `action` on every formula of `sources`, each source in a process of its own.

    timeout: seconds for loading a file, and for tracing each of its formulas.
    watch: called several times a second with the number of sources done and what is running.

    Close the iterator (`contextlib.closing`) to kill all children at once.
    """
    with tempfile.TemporaryDirectory(prefix="autofn-", ignore_cleanup_errors=True) as scratch:
        pool = _Pool(list(sources), action, max(1, workers), timeout, watch, Path(scratch))
        try:
            yield from pool.outcomes()
        finally:
            pool.kill()


# --- the parent ----------------------------------------------------------------------------


@dataclass
class _Child:
    """A running process, and what it last said of itself."""

    index: int
    source: Source
    process: Any
    pipe: Connection
    scratch: Path
    doing: str
    limit: float
    since: float
    formulas: list[tuple[str, Location]] = field(default_factory=list)
    inputs: tuple[Input, ...] = ()
    current: int | None = None
    done: bool = False

    @property
    def deadline(self) -> float:
        return self.since + self.limit

    @property
    def formula(self) -> tuple[str, Location]:
        return ("", self.source.where) if self.current is None else self.formulas[self.current]

    def kill(self) -> None:
        # Its group holds what it started itself, compilers say.
        for end in (os.killpg, os.kill) if hasattr(os, "killpg") else ():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.pipe.close()


class _Pool:
    def __init__(
        self,
        sources: list[Source],
        action: Action,
        workers: int,
        timeout: float,
        watch: Callable[[int, Sequence[Progress]], None] | None,
        scratch: Path,
    ) -> None:
        self.sources = sources
        self.action = action
        self.workers = workers
        self.timeout = timeout
        self.watch = watch
        self.scratch = scratch
        self.waiting = [(index, 0) for index in range(len(sources))]
        self.running: list[_Child] = []
        self.ready: list[list[Outcome]] = [[] for _ in sources]
        self.finished: set[int] = set()
        self.started = 0
        # fork shares what is imported already, and is safe while this process has one thread.
        method = "fork" if sys.platform == "linux" else "spawn"
        self.context: Any = multiprocessing.get_context(method)

    def outcomes(self) -> Iterator[Outcome]:
        for index in range(len(self.sources)):
            while self.ready[index] or index not in self.finished:
                if self.ready[index]:
                    yield self.ready[index].pop(0)
                else:
                    self._step()

    def kill(self) -> None:
        for child in self.running:
            child.kill()
        self.running.clear()

    def _step(self) -> None:
        """Start what may start, then wait for a message, an end or a deadline."""
        while self.waiting and len(self.running) < self.workers:
            self.running.append(self._start(*self.waiting.pop(0)))
        patience = max(0.0, min(child.deadline for child in self.running) - time.monotonic())
        if self.watch:
            patience = min(patience, _TICK)
        wait([child.pipe for child in self.running], patience)
        for child in list(self.running):
            self._listen(child)
            if not child.done and time.monotonic() >= child.deadline:
                self._overdue(child)
            if child.done:
                child.kill()
                self.running.remove(child)
        if self.watch:
            now = time.monotonic()
            self.watch(
                len(self.finished),
                [
                    Progress(c.formula[0] or c.source.label, c.doing, now - c.since)
                    for c in self.running
                ],
            )

    def _start(self, index: int, first: int) -> _Child:
        receiver, sender = self.context.Pipe(duplex=False)
        self.started += 1
        scratch = self.scratch / str(self.started)
        scratch.mkdir()
        source, timeout = self.sources[index], self.timeout
        if isinstance(source, ExprSource):
            timeout = min(timeout, EXPRESSION_LIMIT)
        alone = min(self.workers, len(self.sources)) == 1
        arguments = (sender, source, first, self.action, timeout, str(scratch), alone)
        process = self.context.Process(target=_work, args=arguments, daemon=False)
        with no_interrupt():
            process.start()
        sender.close()
        return _Child(
            index, source, process, receiver, scratch, "loading", timeout, time.monotonic()
        )

    def _listen(self, child: _Child) -> None:
        while not child.done:
            try:
                if not child.pipe.poll():
                    return
                kind, *rest = child.pipe.recv()
            except Exception:  # closed, or garbled by the file itself
                self._dead(child)
                return
            if kind == "stage":
                child.current, child.doing, limit = rest
                if limit is not None:
                    child.limit, child.since = limit, time.monotonic()
            elif kind == "formulas":
                child.formulas = rest[0]
            elif kind == "inputs":
                child.inputs = rest[0]
            elif kind == "outcome":
                self._append(child, *rest)
            elif kind == "end":
                child.done = True
                self.finished.add(child.index)

    def _overdue(self, child: _Child) -> None:
        place = _place(child, ask=True)
        remedy = "look for an endless loop; --timeout gives it longer"
        if child.doing != "loading":
            remedy = "simplify the formula, or report it if it is simple"
        what = f"{child.doing} took longer than {child.limit:g} s"
        error = FormulaError(what, where=place, remedy=remedy)
        error.kind = "time"
        self._give_up(child, error)

    def _dead(self, child: _Child) -> None:
        child.process.join(5)
        code = child.process.exitcode
        if code is not None and code < 0:
            try:
                how = f"was killed by {signal.Signals(-code).name}"
            except ValueError:
                how = f"was killed by signal {-code}"
        else:
            how = f"ended itself with exit code {code}"
        error = FormulaError(
            f"the process {how} while {child.doing}",
            where=_place(child, ask=False),
            remedy="look for endless recursion, os._exit, or more data than memory holds",
        )
        error.kind = "process"
        self._give_up(child, error)

    def _give_up(self, child: _Child, error: AutofnError) -> None:
        """This formula has failed with its process; those after it get a new one."""
        child.done = True
        self._append(child, child.formula[0], None, error)
        if child.current is not None and child.current + 1 < len(child.formulas):
            self.waiting.insert(0, (child.index, child.current + 1))
        else:
            self.finished.add(child.index)

    def _append(self, child: _Child, name: str, value: Any, error: AutofnError | None) -> None:
        self.ready[child.index].append(Outcome(child.source, name, value, error, child.inputs))


def _place(child: _Child, *, ask: bool) -> Location:
    """The line of the formula file that a child is at, or died at, as faulthandler saw it."""
    if not isinstance(child.source, FileSource):
        return child.formula[1]
    trace = child.scratch / "trace"
    if ask and hasattr(signal, "SIGUSR1"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.process.pid, signal.SIGUSR1)
        until = time.monotonic() + 0.5
        while time.monotonic() < until and not _lines(trace, child.source.path):
            time.sleep(0.01)
    lines = _lines(trace, child.source.path)
    return Location(child.source.path, lines[0]) if lines else child.formula[1]


def _lines(trace: Path, path: str) -> list[int]:
    """Lines of the file in a dump of faulthandler's, innermost first."""
    try:
        text = trace.read_text(errors="replace")
    except OSError:
        return []
    written = path.encode("ascii", "backslashreplace").decode()
    return [int(n) for n in re.findall(rf'File "{re.escape(written)}", line (\d+)', text)]


# --- the child -----------------------------------------------------------------------------


def _work(
    pipe: Connection,
    source: Source,
    first: int,
    action: Action,
    timeout: float,
    scratch: str,
    alone: bool,
) -> None:
    """alone: whether no other child runs beside this one, which then may use all processors."""
    _isolate(scratch)
    if alone:
        aside.permit()
    guard = _Guard(timeout)
    reading = Reading()
    lock = threading.Lock()

    def send(*message: Any) -> None:
        with lock:
            pipe.send(message)

    def stage(current: int | None, doing: str, seconds: float | None) -> None:
        if seconds is not None:
            guard.set(seconds)
        send("stage", current, doing, seconds)

    def outcome(name: str, value: Any = None, error: AutofnError | None = None) -> None:
        send("inputs", reading.inputs())
        send("outcome", name, value, error)

    ours = list(sys.path)
    try:
        with contextlib.ExitStack() as stack:
            with _memory_limit(), reading.listening():
                formulas = stack.enter_context(opened(source))
            send("inputs", reading.inputs())
            send("formulas", [(formula.name, formula.where) for formula in formulas])
            for index in range(first, len(formulas)):
                formula = formulas[index]
                stage(index, "loading", timeout)
                try:
                    with _memory_limit(), reading.listening():
                        definition = formula.definition
                    stage(index, "generating", GENERATION_LIMIT)
                    with _search_path(ours):
                        value = action(definition, functools.partial(stage, index))
                    outcome(formula.name, value)
                except BaseException as error:
                    outcome(formula.name, error=_as_error(error, formula.name, formula.where))
    except BaseException as error:
        outcome("", error=_as_error(error, source.label, source.where))
    send("end")


def _as_error(error: BaseException, name: str, where: Location) -> AutofnError:
    if isinstance(error, AutofnError):
        return error
    if isinstance(error, KeyboardInterrupt):  # SIGINT is ignored: the formula's own
        return FormulaError(f"{name} raises KeyboardInterrupt", where=where, remedy="remove it")
    if isinstance(error, RecursionError | MemoryError):
        return FormulaError(
            f"{name} is too large or too deeply nested",
            where=where,
            remedy="split it into several formulas",
        )
    trace = "".join(traceback.format_exception(error))
    text = f"internal error in {name}: {type(error).__name__}: {error}"
    return InternalError(text, where=where, trace=trace)


def _isolate(scratch: str) -> None:
    """Temporary files, signals and crash reports of this process are its own."""
    for variable in ("TMPDIR", "TEMP", "TMP"):
        os.environ[variable] = scratch
    tempfile.tempdir = scratch
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
    # Kept open for as long as the process lives.
    trace = open(os.path.join(scratch, "trace"), "w")  # noqa: SIM115
    faulthandler.enable(trace, all_threads=False)
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, trace, all_threads=False)


@contextlib.contextmanager
def _search_path(entries: list[str]) -> Iterator[None]:
    """`sys.path` for autofn's own imports: the formula file may lie beside a queue.py."""
    theirs = list(sys.path)
    sys.path[:] = entries
    try:
        yield
    finally:
        sys.path[:] = theirs


class _Guard:
    """Ends this process some time after its limit, should the parent have died."""

    def __init__(self, seconds: float) -> None:
        if hasattr(signal, "SIGALRM"):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        self.set(seconds)

    def set(self, seconds: float) -> None:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, seconds + 30)


@contextlib.contextmanager
def _memory_limit() -> Iterator[None]:
    """Half of the machine's memory for the user's code: MemoryError, not a dead machine."""
    try:
        import resource

        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        before = resource.getrlimit(resource.RLIMIT_DATA)
        limit = total // 2
        if before[0] != resource.RLIM_INFINITY:
            limit = min(limit, before[0])
        resource.setrlimit(resource.RLIMIT_DATA, (limit, before[1]))
    except (ImportError, AttributeError, ValueError, OSError):
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
