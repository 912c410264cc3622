"""Runs what a Markdown page shows: its fenced blocks, in order, in a folder of its own.

| block | what happens |
|---|---|
| `python title="NAME"`, `toml title="NAME"` | written to the file NAME |
| `toml` | parsed |
| `python` | executed; the blocks of a page share one namespace |
| `sh` | run by bash, which stops at the first command that fails |
| `console` | each `$ ` line is run, and must print the lines below it |
| `text title="Output"` | is what the block before it printed on stdout |
| any with `title="Not run in tests: REASON"` | nothing |

Printed lines are compared with white space normalised, and `...` stands for anything. `autofn gen`
does not verify here: verification has tests of its own, and takes seconds for each formula.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import textwrap
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
NOT_RUN = "Not run in tests: "
RUNNABLE = ("python", "sh", "console", "toml")

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?P<rest>[^\n`]*)\n(?P<text>.*?)^(?P=indent)``` *$",
    re.MULTILINE | re.DOTALL,
)
_TITLE = re.compile(r'title="([^"]*)"')

_COMMANDS = {
    # A link would not find the virtual environment.
    "python": 'exec "PYTHON" "$@"',
    "autofn": """\
if [ "${1:-}" = gen ]; then set -- "$@" --no-verify; fi
exec "PYTHON" -m autofn "$@"
""",
}


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is that of its first line in the page."""

    language: str
    title: str
    text: str
    line: int

    @property
    def runs(self) -> bool:
        return self.language in RUNNABLE and not self.title.startswith(NOT_RUN)


class PageError(Exception):
    """A block that fails, or prints something else than the page says."""


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page that name a language."""
    found = []
    for match in _FENCE.finditer(text):
        title = _TITLE.search(match["rest"])
        line = text.count("\n", 0, match.start("text")) + 1
        body = textwrap.dedent(match["text"])
        found.append(Block(match["language"], title[1] if title else "", body, line))
    return found


def run(page: Path, folder: Path) -> None:
    """Runs the page's blocks in `folder`. Raises PageError."""
    _enter(folder)
    namespace: dict[str, Any] = {"__name__": "__page__"}
    printed: str | None = None
    for block in blocks(page.read_text(encoding="utf-8")):
        where = f"{page.name}:{block.line}"
        if block.language == "text" and block.title == "Output":
            if printed is None:
                raise PageError(f"{where}: no block before it has printed anything")
            _compare(block.text, printed, where)
        elif block.runs:
            printed = _run_block(block, page, namespace, where)
    _check_imports(folder)


def child(page: Path, folder: Path, log: Path) -> None:
    """`run` in a process of its own; what goes wrong stands in `log`, and the exit code is 1."""
    with log.open("w") as stream:
        # Of commands too, and of what imports print.
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        try:
            run(page, folder)
        except BaseException:
            stream.write(traceback.format_exc())
            stream.flush()
            os._exit(1)


def _enter(folder: Path) -> None:
    bin_folder = folder / ".bin"
    bin_folder.mkdir()
    for name, text in _COMMANDS.items():
        command = bin_folder / name
        command.write_text("#!/usr/bin/env bash\n" + text.replace("PYTHON", sys.executable))
        command.chmod(0o755)
    os.environ["PATH"] = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ["MPLBACKEND"] = "agg"
    # As in conftest.py: threads wait for one another on a machine that has other work.
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    os.chdir(folder)
    sys.path.insert(0, str(folder))


def _run_block(block: Block, page: Path, namespace: dict[str, Any], where: str) -> str:
    if block.language in ("python", "toml") and block.title:
        path = Path(block.title)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        return ""
    if block.language == "python":
        # Padded, so that line numbers, and what inspect reads, are the page's.
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
        with contextlib.redirect_stdout(io.StringIO()) as stdout:
            exec(code, namespace)
        return stdout.getvalue()
    if block.language == "sh":
        return _shell(block.text, where)
    if block.language == "console":
        return _console(block.text, where)
    if sys.version_info >= (3, 11):  # tomllib's first
        import tomllib

        tomllib.loads(block.text)
    return ""


def _shell(text: str, where: str) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text], capture_output=True, text=True, timeout=300
    )
    if done.returncode:
        raise PageError(f"{where}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _console(text: str, where: str) -> str:
    printed = ""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        done = subprocess.run(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        # A page may show an error: then it says what is printed.
        if done.returncode and not expected.strip():
            raise PageError(f"{where}: {command}: exit code {done.returncode}\n{done.stdout}")
        _compare(expected, done.stdout, f"{where}: {command}")
        printed += done.stdout
    return printed


def _compare(expected: str, printed: str, where: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if not doctest.OutputChecker().check_output(expected, printed, flags):
        raise PageError(f"{where}: the page says\n{expected}\nand what is printed is\n{printed}")


def _check_imports(folder: Path) -> None:
    """What a page imports of `generated`, it has generated: the repository has one too."""
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.startswith("generated.") and file and not Path(file).is_relative_to(folder):
            raise PageError(f"{name} is that of {file}: the page does not generate it")
