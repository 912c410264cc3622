"""What the runs say: choice of the rate, differences in pairs, a table and a plot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from training import ACTIVATIONS, BASELINES, CANDIDATES, HELD_OUT, Run

LEVEL = 0.05


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, half its confidence interval, and p of its being 0."""

    mean: float
    half: float
    p: float


def chosen(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Of each activation and seed the run whose rate had the least validation loss, by seed."""
    best: dict[tuple[str, int], Run] = {}
    for run in runs:
        key = run.activation, run.seed
        if key not in best or run.validation_loss < best[key].validation_loss:
            best[key] = run
    return {
        name: [run for key, run in sorted(best.items()) if key[0] == name] for name in ACTIVATIONS
    }


def estimate(values: Sequence[float] | NDArray[np.float64]) -> Estimate:
    """Over splits of one data set, which are not independent.

    The variance of the mean is that of Nadeau and Bengio (Machine Learning 52, 2003): 1/n is
    1/n + test/training, since training sets of different seeds share most of their data.
    """
    sample = np.asarray(values, dtype=float)
    training = 1 - 2 * HELD_OUT
    error = float(sample.std(ddof=1)) * (1 / len(sample) + HELD_OUT / training) ** 0.5
    half = float(stats.t.ppf(1 - LEVEL / 2, len(sample) - 1)) * error
    mean = float(sample.mean())
    p = 1.0 if error == 0 else 2 * float(stats.t.sf(abs(mean) / error, len(sample) - 1))
    return Estimate(mean, half, p)


def differences(best: Mapping[str, Sequence[Run]]) -> dict[tuple[str, str], Estimate]:
    """Test accuracy in percent, candidate less baseline, in pairs of one seed."""
    accuracy = {
        name: np.array([100 * run.test_accuracy for run in runs]) for name, runs in best.items()
    }
    return {
        (candidate, baseline): estimate(accuracy[candidate] - accuracy[baseline])
        for candidate in CANDIDATES
        for baseline in BASELINES
    }


def holm(p: Sequence[float]) -> list[float]:
    """p values of a family of tests, adjusted by Holm's method."""
    adjusted, least = [0.0] * len(p), 0.0
    for rank, index in enumerate(np.argsort(p)):
        least = max(least, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = least
    return adjusted


def table(best: Mapping[str, Sequence[Run]]) -> str:
    """Both tables in Markdown."""
    lines = [
        "| activation | test accuracy, % | test cross-entropy | rates chosen |",
        "|---|---:|---:|---|",
    ]
    for name, runs in best.items():
        accuracy = estimate([100 * run.test_accuracy for run in runs])
        loss = estimate([run.test_loss for run in runs])
        rates = sorted({run.rate for run in runs})
        counts = ", ".join(f"{rate:g}: {sum(r.rate == rate for r in runs)}" for rate in rates)
        lines.append(
            f"| {name} | {accuracy.mean:.2f} ± {accuracy.half:.2f} "
            f"| {loss.mean:.3f} ± {loss.half:.3f} | {counts} |"
        )
    found = differences(best)
    lines += [
        "",
        "| candidate | baseline | difference in accuracy, points | p | p, Holm |",
        "|---|---|---:|---:|---:|",
    ]
    for ((candidate, baseline), each), p in zip(
        found.items(), holm([e.p for e in found.values()]), strict=True
    ):
        lines.append(
            f"| {candidate} | {baseline} | {each.mean:+.2f} ± {each.half:.2f} "
            f"| {_p(each.p)} | {_p(p)} |"
        )
    return "\n".join(lines) + "\n"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def plot(best: Mapping[str, Sequence[Run]], path: Path) -> None:
    """The functions, their derivatives, the accuracies and the differences."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, ((functions, slopes), (accuracies, pairs)) = plt.subplots(
        2, 2, figsize=(10, 8), layout="constrained"
    )
    x = torch.linspace(-5, 3, 401, requires_grad=True)
    for index, (name, activation) in enumerate(ACTIVATIONS.items()):
        colour, style = f"C{index}", "-" if name in CANDIDATES else "--"
        y = activation()(x)
        (slope,) = torch.autograd.grad(y.sum(), x)
        functions.plot(x.detach(), y.detach(), style, color=colour, label=name)
        slopes.plot(x.detach(), slope, style, color=colour)
        values = [100 * run.test_accuracy for run in best[name]]
        each = estimate(values)
        place = np.linspace(index - 0.25, index - 0.1, len(values))
        accuracies.plot(place, values, ".", color=colour, alpha=0.4)
        accuracies.errorbar([index], [each.mean], [each.half], fmt="o", color=colour, capsize=4)
    functions.set_title("f (leaky_silu is SiLU before it is trained)")
    functions.legend()
    slopes.set_title("f'")
    accuracies.set_title("test accuracy, %: each seed, mean and 95 % interval")
    accuracies.set_xticks(range(len(ACTIVATIONS)), list(ACTIVATIONS), rotation=20)
    found = differences(best)
    for index, each in enumerate(found.values()):
        pairs.errorbar([each.mean], [-index], xerr=[each.half], fmt="o", color="C0", capsize=4)
    pairs.axvline(0, color="grey", linewidth=1)
    pairs.set_yticks([-i for i in range(len(found))], [f"{a} - {b}" for a, b in found])
    pairs.set_title("difference in pairs, points, 95 % interval")
    for axes in (functions, slopes, accuracies, pairs):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
