"""Compilations remembered between processes: of the same files, by the same compiler, one.

They take most of a verification's time, and most packages are verified again as they were. In the
user's cache; a file that cannot be read or written is no error. Failures are not kept.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import signal
import subprocess
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from autofn import cache

KEPT = 60
"""So many are kept, the last ones: about 50 MB."""

ENVIRONMENT = (
    "CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH LIBRARY_PATH COMPILER_PATH GCC_EXEC_PREFIX "
    "NVCC_PREPEND_FLAGS NVCC_APPEND_FLAGS NVCC_CCBIN"
).split()
"""What compilers look at beside their command."""


class Compilation:
    """A compiler at work on its output, or an earlier one's output already."""

    def __init__(
        self, command: Sequence[str], output: str, folder: Path, sources: Iterable[Path]
    ) -> None:
        """Starts the compiler in `folder`, with `-o output`, unless it is remembered.

        command: says the same wherever the folder is. sources: all that it reads, but for what
        comes with the compiler.
        """
        self._output = folder / output
        self._kept = _kept(command, output, sources)
        self._said = _recalled(self._kept, self._output)
        self._process = None
        if self._said is None:
            self._process = subprocess.Popen(
                [*command, "-o", output],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,  # so that it ends with its children
            )

    def wait(self, timeout: float | None = None) -> tuple[bool, str]:
        """Whether it succeeded, and what it said. Raises subprocess.TimeoutExpired, and ends it."""
        if self._process is None:
            return True, self._said or ""
        try:
            said, _ = self._process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.close()
            raise
        if self._process.returncode == 0:
            _keep(self._kept, self._output, said)
        return self._process.returncode == 0, said

    def kill(self) -> None:
        """Ends the compiler; `wait` or `close` must follow."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends the compiler, and waits until it has ended."""
        self.kill()
        if self._process is not None and self._process.returncode is None:
            self._process.communicate()


def _kept(command: Sequence[str], output: str, sources: Iterable[Path]) -> Path | None:
    """Where the output of all this is kept, if there is a place."""
    folder = cache.own_folder("compiled")
    if folder is None:
        return None
    digest = hashlib.sha256()
    parts = [*command, output, *map(_version, (command[0], "c++"))]
    for part in [*parts, *(f"{name}={os.environ.get(name)}" for name in ENVIRONMENT)]:
        digest.update(f"{part}\0".encode())
    for path in sorted(sources):
        text = path.read_bytes()
        digest.update(f"{path.name} {len(text)}\0".encode() + text)
    return folder / digest.hexdigest()


@functools.cache
def _version(compiler: str) -> str:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        asked = subprocess.run([compiler, "--version"], capture_output=True, timeout=30)
        return asked.stdout.decode(errors="replace")
    return ""


def _recalled(kept: Path | None, output: Path) -> str | None:
    """What the compiler said, with its output in place; None where it is not remembered."""
    if kept is None:
        return None
    with contextlib.suppress(OSError, ValueError, zlib.error):
        said, _, made = zlib.decompress(kept.read_bytes()).partition(b"\0")
        output.write_bytes(made)
        output.chmod(0o700)
        os.utime(kept)
        return said.decode()
    return None


def _keep(kept: Path | None, output: Path, said: str) -> None:
    if kept is None:
        return
    with contextlib.suppress(OSError):
        text = zlib.compress(said.encode().replace(b"\0", b"") + b"\0" + output.read_bytes(), 1)
        cache.put(kept, text)
        others = sorted(kept.parent.iterdir(), key=lambda each: each.stat().st_mtime)
        for each in others[:-KEPT]:
            each.unlink(missing_ok=True)
