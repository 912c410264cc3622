"""`autofn doctor`: what it finds, and how it ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import click.testing
import pytest

from autofn import doctor
from autofn.cli import cli

NAMES = [
    "torch",
    "backend",
    "compiler",
    "instruction sets",
    "vector math",
    "GPU",
    "nvcc",
    "cache",
    "trial",
]

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "c++", "clang++"))), reason="no C++ compiler"
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AUTOFN_BACKEND", "AUTOFN_DEBUG", "CXX", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AUTOFN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def call(*arguments: str) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, ["doctor", *arguments])
    assert "Traceback" not in result.output
    return result


def findings() -> tuple[int, dict[str, dict[str, Any]]]:
    result = call("--json")
    found = json.loads(result.output)
    assert found["ok"] == (result.exit_code == 0)
    return result.exit_code, {each["name"]: each for each in found["findings"]}


@needs_compiler
def test_a_machine_whose_cpu_path_works(cache: Path) -> None:
    (cache / "op-0").mkdir(parents=True, mode=0o700)
    cache.chmod(0o700)
    (cache / "op-0" / "cpu.so").write_bytes(b"0" * 2**20)
    code, found = findings()
    assert code == 0, found
    assert list(found) == NAMES
    for name in ("torch", "backend", "compiler", "cache", "trial"):
        assert found[name]["status"] == "ok"
    assert f"{cache}, mode 0700, of " in found["cache"]["detail"]
    assert "1 libraries, 1.0 MiB" in found["cache"]["detail"]
    assert " ms" in found["trial"]["detail"]


@needs_compiler
def test_its_lines() -> None:
    result = call()
    assert result.exit_code == 0
    *lines, last = result.output.splitlines()
    assert len(lines) == len(NAMES)
    for line, name in zip(lines, NAMES, strict=True):
        assert line.startswith(name)
        assert " ok " in line or " missing " in line
    assert last == "CPU kernels work"


def test_a_machine_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, found = findings()
    assert code == 1
    for name in ("compiler", "trial"):
        assert found[name]["status"] == "missing"
        assert "install g++" in found[name]["detail"]
    assert "CPU kernels do not work" in call().output


@needs_compiler
def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CPU", "#error it is broken\n")
    code, found = findings()
    assert code == 1
    assert found["compiler"]["status"] == "ok"
    assert found["trial"]["status"] == "missing"
    assert "it is broken" in found["trial"]["detail"]


def test_a_cache_that_is_refused(cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    code, found = findings()
    assert code == 1
    assert found["cache"]["status"] == "missing"
    assert "chmod go-w" in found["cache"]["detail"]


def test_a_backend_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFN_BACKEND", "fast")
    code, found = findings()
    assert code == 1
    assert "AUTOFN_BACKEND=fast" in found["backend"]["detail"]
