"""How long the first use of an op takes: building its CPU library, and loading it later.

    python benchmarks/first_use.py [--name swish] [--repeat 3] [--all]

Each figure is taken in a process of its own, around the package's `_runtime.kernels("cpu")`, after
torch was imported: cold with an empty AUTOFN_CACHE_DIR, later with what the first one left there.
--all builds the libraries of the whole library from cold with two workers; its figure has the
start of the two processes in it.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

BARS = {"cold": 4.0, "later": 0.05, "all": 240.0}
"""Seconds."""

SCRIPT = """
import importlib, sys, time
import torch
total = 0.0
for name in sys.argv[1:]:
    package = importlib.import_module(f"generated.{name}")
    runtime = importlib.import_module(f"generated.{name}._runtime")
    begun = time.perf_counter()
    runtime.kernels("cpu")
    total += time.perf_counter() - begun
print(total)
"""


def started(names: Sequence[str], cache: str) -> subprocess.Popen[str]:
    """A process that builds or loads the CPU libraries of packages, and prints the seconds."""
    environment = {key: value for key, value in os.environ.items() if key != "AUTOFN_BACKEND"}
    environment["AUTOFN_CACHE_DIR"] = cache
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *names],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def seconds(process: subprocess.Popen[str]) -> float:
    """What the process printed. Ends this one with its message where it failed."""
    output, errors = process.communicate()
    if process.returncode:
        lines = errors.strip().splitlines() or [f"exit code {process.returncode}"]
        raise SystemExit(f"error: the library was not built: {lines[-1]}")
    return float(output.split()[-1])


def one(name: str, repeat: int) -> tuple[list[float], list[float]]:
    """Seconds of cold builds and of later loads."""
    cold, later = [], []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as cache:
            os.chmod(cache, 0o700)
            cold.append(seconds(started([name], cache)))
            later.append(seconds(started([name], cache)))
    return cold, later


def whole(names: Sequence[str], workers: int) -> float:
    """Seconds for the libraries of all packages, each worker building its share."""
    with tempfile.TemporaryDirectory() as cache:
        os.chmod(cache, 0o700)
        begun = time.perf_counter()
        shares = [names[worker::workers] for worker in range(workers)]
        for process in [started(share, cache) for share in shares]:
            seconds(process)
        return time.perf_counter() - begun


def line(label: str, values: Sequence[float], bar: float, note: str) -> str:
    median = statistics.median(values)
    met = "met" if median <= bar else "MISSED"
    return f"{label:44} {median:8.3f} s   bar {bar:g} s: {met}   ({note})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--name", default="swish", help="the op that is built alone")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--all", action="store_true", help="the whole library too")
    options = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    cold, later = one(options.name, options.repeat)
    note = f"median of {options.repeat}"
    print(line(f"{options.name}: build from cold", cold, BARS["cold"], note), flush=True)
    print(line(f"{options.name}: load in a later process", later, BARS["later"], note), flush=True)
    if options.all:
        names = sorted(path.parent.name for path in (ROOT / "generated").glob("*/manifest.json"))
        took = whole(names, 2)
        label = f"{len(names)} libraries from cold, two workers"
        print(line(label, [took], BARS["all"], "once"), flush=True)


if __name__ == "__main__":
    main()
