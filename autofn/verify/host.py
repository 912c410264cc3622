"""Builds a package's CUDA kernels for this machine's CPU, under sanitizers.

The compiler reads the package's own kernels.cu; what CUDA provides, and the entry points, are in
`templates/host`. The library they end up in is loaded by the verification's worker.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from autofn.resources import templates
from autofn.verify.compiled import Compilation

# C++20 defines left shifts into the sign, the way that compilers have always had them.
# Blocks of few threads, so that small tensors take several. Compiling takes most of the time of a
# verification: hence -O0, calls for the checks of addresses, and none that these make twice.
FLAGS = (
    "-std=c++20 -O0 -g1 -shared -fPIC -ffp-contract=off -DAUTOFN_THREADS=32 "
    "-fsanitize=address,undefined -fno-sanitize-recover=undefined "
    "-fno-sanitize=null,object-size,vptr,return,pointer-overflow"
).split()

PLAIN = frozenset(flag for flag in FLAGS if not flag.startswith(("-O", "-g", "-fsan", "-fno-san")))

# Of g++ alone; clang++ does not know it.
GCC_FLAGS = ("--param=asan-instrumentation-with-call-threshold=0",)

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
            extra = ("-shared-libasan",) if clang else GCC_FLAGS
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


def start_build(tools: Toolchain, package: Path, folder: Path) -> Compilation:
    """Starts the compiler on the kernels of `package`; its output is `folder`/kernels.so.

    The package lies in the folder.
    """
    host = templates() / "host"
    within = package.relative_to(folder)
    command = [
        tools.compiler, *tools.flags, f"-I{host}", f"-I{within}", str(host / "driver.cpp")
    ]  # fmt: skip
    sources = [*kernel_sources(package), *(each for each in host.rglob("*") if each.is_file())]
    return Compilation(command, "kernels.so", folder, sources)


def kernel_sources(package: Path) -> list[Path]:
    """The files of a package that the CUDA kernels are made of."""
    return [each for each in package.iterdir() if each.suffix in (".h", ".cu", ".cuh")]


def build_plainly(package: Path, library: Path) -> Path | str:
    """The same without sanitizers, optimised, in `library`; or why it was not built."""
    tools = toolchain()
    if isinstance(tools, str):
        return tools
    kept = [flag for flag in tools.flags if flag in PLAIN]
    host = templates() / "host"
    done = subprocess.run(
        [tools.compiler, *kept, "-O1", f"-I{host}", f"-I{package}", str(host / "driver.cpp"),
         "-o", str(library)],
        capture_output=True,
        text=True,
    )  # fmt: skip
    return first_error(done.stderr) if done.returncode else library


def first_error(output: str) -> str:
    """The line of a compiler's output that says what is wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    wrong = [line for line in lines if "error" in line.lower()]
    return (wrong or lines or ["the compiler failed without a message"])[0]
