"""How long autofn itself takes: one formula, and the whole library.

    python benchmarks/generation.py [--verify] [--repeat N]
    python benchmarks/generation.py --search

Each figure is the wall time of a fresh `autofn` process, median over the repeats; the library is
generated once, unverified with one worker and, with --verify, verified with two. With --search,
what is paid once per formula: the processor time of planning one in a fresh process that remembers
no search.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def seconds(*arguments: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "autofn", "gen", *arguments, "-o", f"{folder}/generated"]
        start = time.perf_counter()
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        return time.perf_counter() - start


PLANNING = """
import sys, time
from autofn.load import load_file
from autofn.plan import plan
for formula in load_file(sys.argv[1]):
    start = time.process_time()
    plan(formula.definition)
    print(formula.definition.name, time.process_time() - start)
"""


def searches() -> dict[str, float]:
    """Seconds of the processor per formula of the library, import of SymPy not counted."""
    found: dict[str, float] = {}
    for path in sorted((ROOT / "formulas").glob("*.py")):
        with tempfile.TemporaryDirectory() as cache:
            given = {**os.environ, "AUTOFN_CACHE_DIR": cache, "XDG_CACHE_HOME": cache}
            command = [sys.executable, "-c", PLANNING, str(path)]
            text = subprocess.run(
                command, cwd=ROOT, env=given, check=True, capture_output=True, text=True
            ).stdout
        for line in text.splitlines():
            name, time_taken = line.split()
            found[name] = float(time_taken)
    return found


def print_searches() -> None:
    found = searches()
    print(f"{len(found)} formulas, median {statistics.median(found.values()):.2f} s; longest:")
    for name in sorted(found, key=found.__getitem__, reverse=True)[:8]:
        print(f"{name:30} {found[name]:8.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verify", action="store_true", help="the verified figures too")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--search", action="store_true", help="the searches instead")
    options = parser.parse_args()
    if options.search:
        print_searches()
        return
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
