"""Trains every activation with every rate and seed; writes results.json, results.md, results.png.

python compare.py [--seeds 20] [--epochs 30] [--jobs 2] [-o DIR]
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import matplotlib
import sklearn
import torch
from results import chosen, plot, table
from training import ACTIVATIONS, RATES, Run, train

HERE = Path(__file__).resolve().parent


Task = tuple[str, int, float, int]
"""Activation, seed, learning rate, epochs."""


def _one(task: Task) -> Run:
    torch.set_num_threads(1)
    return train(*task)


def _all(tasks: list[Task], jobs: int) -> Iterator[Run]:
    """The runs of all tasks, in order."""
    # The first runs build what kernels there are to build, once.
    first = tasks if jobs == 1 else tasks[: len(ACTIVATIONS) * len(RATES)]
    yield from map(_one, first)
    if tasks[len(first) :]:
        with multiprocessing.get_context("spawn").Pool(jobs) as pool:
            yield from pool.imap(_one, tasks[len(first) :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("-o", dest="folder", type=Path, default=HERE)
    given = parser.parse_args()
    if given.seeds < 2:
        parser.error("an error bar needs two seeds")

    tasks: list[Task] = [
        (name, seed, rate, given.epochs)
        for seed in range(given.seeds)
        for name in ACTIVATIONS
        for rate in RATES
    ]
    begun = time.monotonic()
    runs = []
    for run in _all(tasks, given.jobs):
        runs.append(run)
        if len(runs) % 60 == 0:
            print(f"{len(runs)} of {len(tasks)} runs, {time.monotonic() - begun:.0f} s", flush=True)

    about = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "scikit-learn": sklearn.__version__,
        "matplotlib": matplotlib.__version__,
        "backend": os.environ.get("AUTOFN_BACKEND", "unset"),
        "seeds": str(given.seeds),
        "epochs": str(given.epochs),
        "seconds": f"{time.monotonic() - begun:.0f}",
    }
    best = chosen(runs)
    given.folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"about": about, "runs": [asdict(run) for run in runs]}, indent=1)
    (given.folder / "results.json").write_text(text + "\n", encoding="utf-8")
    facts = "\n".join(f"- {key}: {value}" for key, value in about.items())
    report = f"# Results\n\nWritten by `python compare.py`.\n\n{facts}\n\n{table(best)}"
    (given.folder / "results.md").write_text(report, encoding="utf-8")
    plot(best, given.folder / "results.png")
    print(report)


if __name__ == "__main__":
    main()
