"""The worker from outside: started, fed, listened to, and its death turned into rows."""

from __future__ import annotations

import json
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, cast

from autofn.verify.nursery import Start
from autofn.verify.report import Row, Status

_SIGNS = ("SUMMARY:", "runtime error:", "Sanitizer: CHECK failed")


class Worker:
    """One worker process, by `start`: at once, so that torch is imported while a job is prepared.

    `backend` is "torch" for the PyTorch path and the CUDA text, "native" for the CPU kernels,
    "cuda" for the CUDA kernels on a GPU.
    """

    def __init__(
        self, folder: Path, start: Start, backend: Literal["torch", "native", "cuda"] = "torch"
    ) -> None:
        self._errors = (folder / f"{backend}.err").open("w+", encoding="utf-8", errors="replace")
        runs = "torch" if backend == "torch" else "native"
        variables = {**os.environ, "AUTOFN_BACKEND": runs}
        self._process = start("autofn.verify.worker", [backend], variables, self._errors)
        self._messages: queue.Queue[list[str] | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def ready(self, timeout: float) -> bool:
        """Whether it came up; under a sanitizer it may not."""
        try:
            message = self._messages.get(timeout=timeout)
        except queue.Empty:
            return False
        return message is not None

    def send(self, line: str) -> None:
        """A line to the worker; a dead worker is found out by `rows`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass

    def rows(
        self,
        expected: Sequence[tuple[str, str]],
        on_row: Callable[[Row], None],
        timeout: float,
    ) -> None:
        """Passes on a row for each of `expected`: as sent, or why it never came."""
        waiting = list(expected)
        running: tuple[str, str] | None = None
        end = time.monotonic() + timeout
        late = False
        while True:
            try:
                message = self._messages.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                late = True
                self._process.kill()
                break
            if message is None:
                break
            if message[0] == "done":
                return
            if message[0] == "begin":
                running = (message[1], message[2])
            elif message[0] == "row":
                _, backend, check, status, detail = message
                running = None
                if (backend, check) in waiting:
                    waiting.remove((backend, check))
                on_row(Row(backend, check, cast(Status, status), detail))
        why = f"no result within {timeout:.0f} s" if late else self.last_words()
        failed = running or waiting[0]
        waiting.remove(failed)
        on_row(Row(*failed, "failed", why))
        for backend, check in waiting:
            on_row(Row(backend, check, "not run", f"the process ended in {failed[1]}"))

    def stop(self) -> None:
        """Ends the process, whatever it does."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.stop()
        self._listener.join()
        self._errors.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._messages.put(json.loads(line))
        self._messages.put(None)

    def last_words(self) -> str:
        """What the sanitizer, or Python, said last; waits for the process to end."""
        code = self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        told = [line for line in lines if any(sign in line for sign in _SIGNS)]
        if told:
            return _shortened(told[0])
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"the process ended with {ended}" + (f": {lines[-1]}" if lines else "")


def _shortened(line: str) -> str:
    """A sanitizer's line without the temporary folder's name."""
    return re.sub(r"(/[^\s/:]+)+/([^\s/:]+)", r"\2", line)
