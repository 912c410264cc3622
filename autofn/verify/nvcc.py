"""Compiles a package's kernels.cu with nvcc, where there is one, and reads what ptxas says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from autofn.verify.compiled import Compilation
from autofn.verify.host import first_error, kernel_sources
from autofn.verify.job import Level
from autofn.verify.report import Row

ARCHITECTURES: dict[Level, tuple[str, ...]] = {"draft": (), "quick": ("90",), "full": ("80", "90")}
CHECK = "compiles"
TIMEOUT = 300

FLAGS = (
    "-std=c++17 -O3 --fmad=false -Xptxas -v -Xcompiler -Wall,-Wextra -Werror all-warnings"
).split()


def backend(architecture: str) -> str:
    return f"nvcc sm_{architecture}"


def find() -> str | None:
    """nvcc on the PATH, or in $CUDA_HOME."""
    home = os.environ.get("CUDA_HOME")
    return shutil.which("nvcc") or (shutil.which(f"{home}/bin/nvcc") if home else None)


def start(nvcc: str, package: Path, folder: Path, level: Level) -> Compilation:
    """Starts one compilation for all architectures of the level. The package is in the folder."""
    targets = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in ARCHITECTURES[level]]
    source = package.relative_to(folder) / "kernels.cu"
    command = [nvcc, *FLAGS, *targets, "-fatbin", str(source)]
    return Compilation(command, "kernels.fatbin", folder, kernel_sources(package))


def not_run(level: Level) -> list[Row]:
    return [Row(backend(a), CHECK, "not run", "nvcc not found") for a in ARCHITECTURES[level]]


def finish(compilation: Compilation, level: Level) -> list[Row]:
    """One row per architecture: registers and spills, or the compiler's first error."""
    architectures = ARCHITECTURES[level]
    try:
        succeeded, output = compilation.wait(TIMEOUT)
    except subprocess.TimeoutExpired:
        detail = f"nvcc took more than {TIMEOUT} s"
        return [Row(backend(a), CHECK, "failed", detail) for a in architectures]
    if not succeeded:
        return [Row(backend(a), CHECK, "failed", first_error(output)) for a in architectures]
    return [_row(a, output) for a in architectures]


def _row(architecture: str, output: str) -> Row:
    registers: list[int] = []
    spills = stack = 0
    current = ""
    for line in output.splitlines():
        if found := re.search(r"Compiling entry function .* for 'sm_(\d+)'", line):
            current = found.group(1)
        if current != architecture:
            continue
        if found := re.search(r"Used (\d+) registers", line):
            registers.append(int(found.group(1)))
        if found := re.search(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line
        ):
            stack = max(stack, int(found.group(1)))
            spills = max(spills, int(found.group(2)), int(found.group(3)))
    detail = (
        f"{len(registers)} kernels, at most {max(registers, default=0)} registers, "
        f"{spills} bytes spilled"
    )
    if stack:
        detail += f", {stack} bytes of local memory"
    return Row(backend(architecture), CHECK, "passed", detail)
