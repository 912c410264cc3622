"""`python -m citizen [FORMULA...]`: fills the table and writes docs/citizen.md.

Interrupted or run in parts it goes on where it was: cells are kept in build/citizen.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "citizen"

# Before PyTorch reads them: one core, and libraries that a later run finds.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(KEPT / "inductor"))
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import warnings  # noqa: E402

import click  # noqa: E402
import torch  # noqa: E402

from citizen.feature import FEATURES, Cell, Feature  # noqa: E402
from citizen.subject import (  # noqa: E402
    LEAVES,
    OUTSIDE,
    Subject,
    definitions,
    installed,
    subject,
)
from citizen.table import cells, fill, page  # noqa: E402


@click.command()
@click.argument("formulas", nargs=-1)
@click.option("--leaf", type=click.Choice(LEAVES), help="One leaf only.")
@click.option("--feature", "only", multiple=True, help="Features whose name contains this.")
@click.option("--eager", is_flag=True, help="Nothing that compiles.")
@click.option("--fresh", is_flag=True, help="Also what an earlier run has found to pass.")
def main(
    formulas: tuple[str, ...], leaf: str | None, only: tuple[str, ...], eager: bool, fresh: bool
) -> None:
    """Formula by feature, on both leaves; exit code 1 where a cell fails."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Attempted to insert a get_attr Node")
    known = definitions()
    if unknown := set(formulas) - set(known):
        raise click.UsageError(f"no such formula: {', '.join(sorted(unknown))}")
    chosen = [
        each
        for each in sorted(FEATURES.values(), key=lambda each: each.slow)
        if not (eager and each.slow) and (not only or any(part in each.name for part in only))
    ]
    failed = 0

    def report(made: Subject, each: Feature, cell: Cell, seconds: float) -> None:
        nonlocal failed
        failed += cell.status == "fail"
        if cell.status == "fail" or seconds > 20:
            what = f"{made.name} [{made.leaf}] {each.name}"
            click.echo(f"{what}: {cell.status} {cell.detail} {seconds:.1f} s")

    subjects = {}
    for name, definition in known.items():
        module = installed(definition, KEPT / "packages")
        subjects[name] = [subject(definition, module, each) for each in LEAVES]
    for slow in (False, True):
        features = [each for each in chosen if each.slow is slow]
        for name in formulas or known:
            for made in subjects[name]:
                if leaf in (None, made.leaf):
                    fill(made, features, KEPT, fresh=fresh, report=functools.partial(report, made))
    table = {name: {s.leaf: cells(s, KEPT) for s in each} for name, each in subjects.items()}
    outside = [name for name, each in known.items() if each.source == OUTSIDE.name]
    (ROOT / "docs" / "citizen.md").write_text(page(table, outside), encoding="utf-8")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
