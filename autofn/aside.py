"""Work done in forks of this process while it goes on.

Only where a process has said that it may: a fork of one with threads may hang for ever.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, TypeVar

T = TypeVar("T")

_forks = False


@contextlib.contextmanager
def no_interrupt() -> Iterator[None]:
    """Ctrl-C waits, so that it cannot strike a child that does not ignore it yet."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def permit() -> None:
    """Lets this process fork: it has one thread, and processors that nobody else was promised."""
    global _forks
    _forks = sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1


def aside(task: Callable[[], T]) -> Callable[[], T]:
    """Begins a task, and gives what waits for its result, which can be pickled.

    Without permission it is done when it is asked for; so it is where its fork gives nothing:
    what it raises is raised here, and what kills it kills this process, which others watch.
    """
    if not _forks:
        return task
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    # What is left until this process ends itself, should nobody watch it any more.
    guard = signal.getitimer(signal.ITIMER_REAL)[0]
    process = context.Process(target=_work, args=(task, sender, guard), daemon=True)
    process.start()
    sender.close()

    def result() -> T:
        try:
            found: T = receiver.recv()
        except EOFError:
            return task()
        finally:
            receiver.close()
            process.join()
        return found

    return result


def _work(task: Callable[[], Any], sender: Connection, guard: float) -> None:
    global _forks
    _forks = False
    signal.setitimer(signal.ITIMER_REAL, guard)
    try:
        sender.send(task())
    except BaseException:  # it is raised where the result is asked for
        os._exit(1)
