"""How long autofn itself takes: one formula, and the whole library.

    python benchmarks/generation.py [--verify] [--repeat N]

Each figure is the wall time of a fresh `autofn` process, median over the repeats; the library is
generated once, unverified with one worker and, with --verify, verified with two.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def seconds(*arguments: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "autofn", "gen", *arguments, "-o", f"{folder}/generated"]
        start = time.perf_counter()
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verify", action="store_true", help="the verified figures too")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    rows = [("swish, unverified", ["formulas/swish.py", "--no-verify"], options.repeat)]
    if options.verify:
        rows.append(("swish, verified", ["formulas/swish.py"], options.repeat))
    rows.append(("library, unverified, -j 1", ["formulas", "--no-verify", "-j", "1"], 1))
    if options.verify:
        rows.append(("library, verified, -j 2", ["formulas", "-j", "2"], 1))
    print(f"{platform.machine()}, Python {platform.python_version()}")
    for label, arguments, repeat in rows:
        times = [seconds(*arguments) for _ in range(repeat)]
        print(f"{label:30} {statistics.median(times):8.2f} s   (median of {repeat})", flush=True)


if __name__ == "__main__":
    main()
