"""Builds a package's CUDA kernels for this machine's CPU, under sanitizers.

The compiler reads the package's own kernels.cu; only the entry points around it are generated
here (`templates/host`). The library they end up in is loaded by the verification's worker.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autofn.backends.cuda import STORAGE
from autofn.resources import templates

FLAGS = (
    "-std=c++17 -O1 -g1 -shared -fPIC -ffp-contract=off "
    "-fsanitize=address,undefined -fno-sanitize-recover=undefined"
).split()

# What the sanitizers are to do in the worker: torch's own allocations are not ours to judge.
SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0:malloc_context_size=1:"
    "quarantine_size_mb=1:thread_local_quarantine_size_kb=16",
    "UBSAN_OPTIONS": "print_stacktrace=0",
}


@dataclass(frozen=True)
class Toolchain:
    """A C++ compiler, and what the worker preloads: the sanitizer's runtime and C++'s.

    Without the latter, the runtime does not find what it intercepts, and dies of an exception.
    """

    compiler: str
    flags: tuple[str, ...]
    runtime: tuple[str, str]


@functools.cache
def toolchain() -> Toolchain | str:
    """The compiler of this machine, $CXX before g++ and clang++, or why there is none."""
    if platform.system() != "Linux":
        return f"sanitized kernels cannot be preloaded on {platform.system()}"
    named = os.environ.get("CXX")
    candidates = [named] if named else ["g++", "clang++"]
    tried = [path for path in map(shutil.which, candidates) if path]
    if not tried:
        return f"{' and '.join(candidates)} not found"
    for compiler in tried:
        clang = "clang" in _output([compiler, "--version"])
        arch = platform.machine()
        library = f"libclang_rt.asan-{arch}.so" if clang else "libasan.so"
        asan, stdcxx = (_library(compiler, name) for name in (library, "libstdc++.so.6"))
        if asan and stdcxx:
            extra = ("-shared-libasan",) if clang else ()
            return Toolchain(compiler, (*FLAGS, *extra), (asan, stdcxx))
    return f"{tried[0]} has no address sanitizer"


def _library(compiler: str, name: str) -> str | None:
    path = _output([compiler, f"-print-file-name={name}"]).strip()
    return os.path.realpath(path) if os.path.isabs(path) and os.path.exists(path) else None


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def start_build(
    tools: Toolchain, package: Path, kernels: list[dict[str, Any]], folder: Path
) -> subprocess.Popen[str]:
    """Starts the compiler on the kernels of `package`; its output is `folder`/kernels.so."""
    source = folder / "driver.cpp"
    source.write_text(driver(package, kernels), encoding="utf-8")
    host = templates() / "host"
    command = [tools.compiler, *tools.flags, f"-I{host}", f"-I{package}", str(source)]
    return subprocess.Popen(
        [*command, "-o", str(folder / "kernels.so")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def driver(package: Path, kernels: list[dict[str, Any]]) -> str:
    """The C++ of the entry points: one per kernel and dtype."""
    text = (package / "kernels.cu").read_text(encoding="utf-8")
    namespace = re.search(r"^namespace (\w+) \{", text, re.MULTILINE)
    environment = Environment(
        loader=FileSystemLoader(templates() / "host"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("driver.cpp.j2").render(
        namespace=namespace.group(1) if namespace else "",
        kernels=[{"function": kernel["function"], "casts": _casts(kernel)} for kernel in kernels],
        dtypes=list(STORAGE.items()),
    )


def _casts(kernel: dict[str, Any]) -> list[str]:
    """The members of a kernel's struct, from the arrays of pointers and of numbers."""
    casts: list[str] = []
    pointers = numbers = 0
    for const, operands in (("const ", kernel["inputs"]), ("", kernel["outputs"])):
        for _, role in operands:
            if role == "number":
                casts.append(f"T(numbers[{numbers}])")
                numbers += 1
            else:
                element = "S" if role == "tensor" else "T"
                casts.append(f"static_cast<{const}{element}*>(pointers[{pointers}])")
                pointers += 1
    return casts


def first_error(output: str) -> str:
    """The line of a compiler's output that says what is wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    wrong = [line for line in lines if "error" in line.lower()]
    return (wrong or lines or ["the compiler failed without a message"])[0]
