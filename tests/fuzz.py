"""Many random formulas: `python tests/fuzz.py [COUNT] [--seed N] [--jobs N]`, or `make fuzz`.

Prints each formula whose package disagrees with mpmath, and exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
os.environ.setdefault("AUTOFN_BACKEND", "torch")


def draws(seed: int, count: int) -> list[str]:
    """Expressions, as `sympy.srepr` writes them."""
    import sympy
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded
    from random_formulas import expressions, is_formula

    found: dict[str, None] = {}

    @seeded(seed)
    @settings(
        max_examples=3 * count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(expressions())
    def draw(expr: sympy.Expr) -> None:
        if len(found) < count and is_formula(expr):
            found[sympy.srepr(expr)] = None

    draw()
    return list(found)


def outcome(text: str) -> tuple[str, str, float]:
    """The formula, what is wrong with it, and the seconds that it took."""
    import sympy
    import torch
    from random_formulas import check

    torch.set_num_threads(1)
    names = {name: getattr(sympy, name) for name in dir(sympy)}
    from autofn import functions

    names |= {name: getattr(functions, name) for name in dir(functions)}
    names["ExprCondPair"] = sympy.functions.elementary.piecewise.ExprCondPair
    expr = eval(text, {"__builtins__": {}}, names)  # our own srepr, of our own draws
    start = time.monotonic()
    try:
        # Most need no search, which takes longest. It tells what is to be computed in float64.
        wrong = check(expr, search=False) and check(expr)
    except Exception:
        wrong = traceback.format_exc()
    return str(expr), wrong, time.monotonic() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    formulas = draws(options.seed, options.count)
    failures = 0
    slowest = ("", 0.0)
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.jobs, maxtasksperchild=50) as pool:
        for k, (text, wrong, seconds) in enumerate(pool.imap_unordered(outcome, formulas), 1):
            if seconds > slowest[1]:
                slowest = text, seconds
            if wrong:
                failures += 1
                print(f"{text}\n    {wrong}", flush=True)
            if k % 100 == 0:
                print(f"{k} formulas, {failures} wrong", flush=True)
    print(f"{len(formulas)} formulas, {failures} wrong; slowest {slowest[1]:.0f} s: {slowest[0]}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
