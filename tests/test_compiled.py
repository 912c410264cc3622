"""Compilations are remembered: what is the same is compiled once, what differs again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from autofn.verify import compiled
from autofn.verify.compiled import Compilation

COMPILER = """#!/bin/sh
[ "$1" = --version ] && echo "fake $VERSION" && exit
echo ran >> "$LOG"
echo "remark: $2"
[ -n "$SLOW" ] && sleep 60
[ -n "$FAILS" ] && exit 1
cat "$1" > "$4"
"""


class Compiler:
    """A compiler that copies a source, and counts how often it ran."""

    def __init__(self, folder: Path) -> None:
        self.path, self.log = folder / "compiler", folder / "log"
        self.path.write_text(COMPILER)
        self.path.chmod(0o755)
        self.folder = folder / "made"

    def start(self, text: str = "text", flag: str = "-O0") -> Compilation:
        self.folder.mkdir(exist_ok=True)
        source = self.folder / "kernels.cu"
        source.write_text(text)
        return Compilation(
            [str(self.path), "kernels.cu", flag], "kernels.so", self.folder, [source]
        )

    def run(self, text: str = "text", flag: str = "-O0") -> tuple[bool, str, str]:
        made = self.folder / "kernels.so"
        made.unlink(missing_ok=True)
        succeeded, said = self.start(text, flag).wait()
        return succeeded, said, made.read_text() if made.exists() else ""

    @property
    def runs(self) -> int:
        return len(self.log.read_text().split()) if self.log.exists() else 0


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    compiled._version.cache_clear()
    monkeypatch.setenv("AUTOFN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    return Compiler(tmp_path)


def kept(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache" / "compiled").iterdir())


def test_the_same_is_compiled_once(compiler: Compiler, tmp_path: Path) -> None:
    first = compiler.run()
    assert first == (True, "remark: -O0\n", "text")
    compiler.folder = tmp_path / "elsewhere"
    assert compiler.run() == first
    assert compiler.runs == 1
    assert (compiler.folder / "kernels.so").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "cache" / "compiled").stat().st_mode & 0o777 == 0o700


def test_what_differs_is_compiled_again(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler.run()
    assert compiler.run("other")[2] == "other"
    compiler.run(flag="-O1")
    monkeypatch.setenv("CPATH", "/elsewhere")
    compiler.run()
    monkeypatch.setenv("VERSION", "2")
    compiled._version.cache_clear()
    compiler.run()
    assert compiler.runs == 5


def test_failures_are_not_kept(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("FAILS", "1")
        assert compiler.run() == (False, "remark: -O0\n", "")
    assert compiler.run()[0]
    assert compiler.runs == 2


def test_an_interrupted_compilation_is_not_kept(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOW", "1")
    with pytest.raises(subprocess.TimeoutExpired):
        compiler.start().wait(0.1)
    interrupted = compiler.start()
    interrupted.kill()
    assert not interrupted.wait()[0]
    assert kept(tmp_path) == []


def test_a_damaged_file_is_no_error(compiler: Compiler, tmp_path: Path) -> None:
    compiler.run()
    (path,) = kept(tmp_path)
    path.write_bytes(b"damaged")
    assert compiler.run() == (True, "remark: -O0\n", "text")
    assert compiler.run()[0]
    assert compiler.runs == 2


def test_without_a_cache_everything_is_compiled(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("AUTOFN_CACHE_DIR", str(tmp_path / "file"))
    assert compiler.run() == compiler.run()
    assert compiler.runs == 2


def test_the_last_ones_are_kept(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "KEPT", 2)
    compiler.run("a")
    for each in kept(tmp_path):
        os.utime(each, (1, 1))
    compiler.run("b")
    (old,) = (each for each in kept(tmp_path) if each.stat().st_mtime > 1)
    os.utime(old, (2, 2))
    compiler.run("a")  # is used, and so the last one
    compiler.run("c")
    assert compiler.runs == 3
    compiler.run("a")
    assert compiler.runs == 3
    compiler.run("b")
    assert compiler.runs == 4
