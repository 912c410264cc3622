"""The nursery from inside: `python -m autofn.verify.forking SOCKET MODULE...`."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn


@dataclass(frozen=True)
class _Born:
    """A child: `alive` is read to its end when the child has ended, `control` when it is to."""

    process: int
    alive: int
    control: socket.socket

    def end(self) -> None:
        """Ends it with all that it has started, and tells how it ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process, signal.SIGKILL)
        _, status = os.waitpid(self.process, 0)
        with contextlib.suppress(OSError):
            self.control.send(str(os.waitstatus_to_exitcode(status)).encode())
        self.close()

    def close(self) -> None:
        os.close(self.alive)
        self.control.close()


def main() -> None:
    # Whoever opened the nursery ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    _, inherited, *modules = sys.argv
    requests = socket.socket(fileno=int(inherited))
    born: list[_Born] = []
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(requests, selectors.EVENT_READ)
            while _serve(requests, selector, born, modules):
                pass
    finally:
        for child in born:
            child.end()


def _serve(
    requests: socket.socket,
    selector: selectors.BaseSelector,
    born: list[_Born],
    modules: Sequence[str],
) -> bool:
    """Does what is to be done next; whether anybody is left who could ask for more."""
    for key, _ in selector.select():
        child: _Born | None = key.data
        if child is None:
            message, given, _, _ = socket.recv_fds(requests, 1, 5)
            if not message:
                return False
            _import(modules)
            if given:
                child = _fork(given, [requests, *born])
                born.append(child)
                selector.register(child.alive, selectors.EVENT_READ, child)
                selector.register(child.control, selectors.EVENT_READ, child)
        elif child in born:
            born.remove(child)
            selector.unregister(child.alive)
            selector.unregister(child.control)
            child.end()
    return True


def _import(modules: Sequence[str]) -> None:
    for module in modules:
        with contextlib.suppress(Exception):  # the child's own attempt tells
            importlib.import_module(module)
    signal.signal(signal.SIGTERM, _stop)


def _stop(*_: Any) -> NoReturn:
    sys.exit(1)


def _fork(given: list[int], others: list[socket.socket | _Born]) -> _Born:
    request, *streams, control = given
    alive, theirs = os.pipe()
    process = os.fork()
    if process == 0:
        _run(request, streams, [*others, _Born(0, alive, socket.socket(fileno=control))])
    with contextlib.suppress(OSError):  # whichever of both is first
        os.setpgid(process, process)
    for descriptor in (request, theirs, *streams):
        os.close(descriptor)
    return _Born(process, alive, socket.socket(fileno=control))


def _run(request: int, streams: list[int], others: list[socket.socket | _Born]) -> NoReturn:
    """What a child does; `others` are of the nursery's."""
    code = 1
    try:
        os.setpgid(0, 0)
        for other in others:
            other.close()
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with open(request, encoding="utf-8") as file:
            wanted = json.load(file)
        os.environ.clear()
        os.environ.update(wanted["variables"])
        os.chdir(wanted["folder"])
        tempfile.tempdir = None
        importlib.import_module(wanted["module"]).main(wanted["arguments"])
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    with contextlib.suppress(SystemExit):
        main()
    os._exit(0)  # taking torch apart takes a second
