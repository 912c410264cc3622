"""One process that has imported torch, and forks the processes of verifications: from outside.

Importing torch takes seconds of a processor, a fork milliseconds. The nursery runs under the
sanitizer's runtime where there is one, and so do all of its children. It is shared by every process
that holds its socket: whoever opened it, and the formulas' processes that are forked from there.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

import autofn
from autofn.aside import no_interrupt
from autofn.verify.host import SANITIZER_OPTIONS, Toolchain, toolchain

POSSIBLE = sys.platform == "linux"
"""Whether processes that have imported torch may be forked here."""


PRELOADED = ("autofn.verify.worker", "autofn.certificate.measure")
"""What is forked; both import torch."""


class Process(Protocol):
    """What is used of `subprocess.Popen`; its streams are of text."""

    stdin: IO[str] | None
    stdout: IO[str] | None

    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class Start(Protocol):
    """Starts `main` of a module in a process of its own, in the folder of `errors`."""

    def __call__(
        self, module: str, arguments: Sequence[str], variables: Mapping[str, str], errors: IO[str]
    ) -> Process: ...


def spawn(
    module: str, arguments: Sequence[str], variables: Mapping[str, str], errors: IO[str]
) -> Process:
    """A process that imports torch itself."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env=environment(variables),
        cwd=Path(errors.name).parent,
    )


class Nursery:
    """A nursery, seen by who wants children of it; `tools`: whose sanitizer it runs under.

    It imports `modules` once it is asked to prepare, or for its first child.
    """

    def __init__(self, tools: Toolchain | None, modules: Sequence[str] = PRELOADED) -> None:
        self.tools = tools
        self._folder = tempfile.TemporaryDirectory(
            prefix="autofn_nursery_", ignore_cleanup_errors=True
        )
        self._errors = open(  # noqa: SIM115  (as long as the process lives)
            os.path.join(self._folder.name, "errors"), "w+", encoding="utf-8", errors="replace"
        )
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, no_interrupt():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "autofn.verify.forking", str(theirs.fileno()), *modules],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=environment(os.environ, tools),
                # Not a folder of the user's, where Python would look for modules.
                cwd=self._folder.name,
                pass_fds=[theirs.fileno()],
            )

    def prepare(self) -> bool:
        """Has it import its modules meanwhile. False: it has died, of its sanitizer say."""
        try:
            self._socket.send(b"\0")
        except OSError:
            return False
        return True

    def fork(
        self, module: str, arguments: Sequence[str], variables: Mapping[str, str], errors: IO[str]
    ) -> Process:
        """A child, as `Start` says. What Python and torch read when they start is not in time.

        The request is a datagram, so that processes can send theirs at once, with descriptors: of a
        file that says what is to run, the child's streams, and a socket on which the nursery tells
        how the child ended. Closed, or shut down at this end, it ends the child.
        """
        wanted = {
            "module": module,
            "arguments": list(arguments),
            "variables": dict(variables),
            "folder": str(Path(errors.name).parent),
        }
        request = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        json.dump(wanted, request)
        request.seek(0)
        their_input, our_end = os.pipe()
        our_output, their_output = os.pipe()
        control, theirs = socket.socketpair()
        streams = their_input, their_output, errors.fileno()
        with contextlib.suppress(OSError), request:  # of a dead nursery; its child is found dead
            given = [request.fileno(), *streams, theirs.fileno()]
            socket.send_fds(self._socket, [b"\1"], given)
        os.close(their_input)
        os.close(their_output)
        theirs.close()
        return _Child(self, (os.fdopen(our_end, "w"), os.fdopen(our_output)), errors, control)

    def last_words(self) -> str:
        """What it has written to its standard error."""
        return Path(self._errors.name).read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        """Ends it, and its children."""
        self._socket.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()
        self._folder.cleanup()


class _Child:
    """A child of a nursery's, with what is used of `subprocess.Popen`."""

    def __init__(
        self,
        nursery: Nursery,
        streams: tuple[IO[str], IO[str]],
        errors: IO[str],
        control: socket.socket,
    ) -> None:
        self.stdin: IO[str] | None
        self.stdout: IO[str] | None
        self.stdin, self.stdout = streams
        self._nursery = nursery
        self._errors = errors
        self._control = control
        self._code: int | None = None
        self._lock = threading.Lock()

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, or negative the signal that ended it; 1 where its nursery has died.

        timeout: seconds. Raises subprocess.TimeoutExpired.
        """
        with self._lock:
            if self._code is None:
                self._control.settimeout(timeout)
                try:
                    said = self._control.recv(16)
                except TimeoutError:
                    raise subprocess.TimeoutExpired("", timeout or 0.0) from None
                except OSError:
                    said = b""
                if not said:
                    self._errors.write(self._nursery.last_words())
                self._code = int(said) if said else 1
                self._control.close()
            return self._code


_opened: Nursery | None = None


@contextlib.contextmanager
def opened(wanted: bool = True) -> Iterator[None]:
    """Within it, all verifications of this process, and of its forks, share one nursery."""
    global _opened
    if not wanted or not POSSIBLE or _opened is not None:
        yield
        return
    tools = toolchain()
    _opened = Nursery(tools if isinstance(tools, Toolchain) else None)
    try:
        yield
    finally:
        nursery, _opened = _opened, None
        nursery.close()


def shared(tools: Toolchain | None) -> Nursery | None:
    """The one that is open, if it suits: a sanitizer does no harm to who needs none."""
    return _opened if _opened is not None and tools in (None, _opened.tools) else None


@contextlib.contextmanager
def running(
    module: str, arguments: Sequence[str], variables: Mapping[str, str], errors: IO[str]
) -> Iterator[Process]:
    """Such a process, of the nursery that is open if one is; it ends with the block."""
    start: Start = _opened.fork if _opened is not None and _opened.prepare() else spawn
    process = start(module, arguments, variables, errors)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def prepare() -> None:
    """Has the one that is open, if one is, import torch while its user is busy."""
    if _opened is not None:
        _opened.prepare()


def environment(variables: Mapping[str, str], tools: Toolchain | None = None) -> dict[str, str]:
    """The environment of a process that imports torch, under the sanitizer of `tools`."""
    found = dict(variables)
    # Not sys.path: beside a formula may lie a random.py, and it is no module of Python's.
    paths = [found.get("PYTHONPATH", ""), str(Path(autofn.__file__).parents[1])]
    found["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    found["OMP_NUM_THREADS"] = "1"
    if tools is not None:
        found.update(SANITIZER_OPTIONS)
        preloaded = found.get("LD_PRELOAD", "")
        found["LD_PRELOAD"] = " ".join([*tools.runtime, preloaded]).rstrip()
    return found
