"""The example that prototypes an activation: its packages are current, and it runs."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pages
import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "new_activation"


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=EXAMPLE,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example's module of that name; it imports others that lie beside it."""
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    before = set(sys.modules)
    yield importlib.import_module("results")
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(EXAMPLE):
            del sys.modules[name]


def test_p_values_are_adjusted_by_holms_method(results: ModuleType) -> None:
    assert results.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert results.holm([0.9, 0.6]) == [1.0, 1.0]


def test_intervals_are_wider_than_those_of_independent_values(results: ModuleType) -> None:
    from scipy import stats

    values = [1.0, 2.0, 4.0, 3.0, 7.0]
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    each = results.estimate(values)
    assert each.mean == pytest.approx(3.4)
    assert each.half == pytest.approx((high - low) / 2 * (5 * (1 / 5 + 0.2 / 0.6)) ** 0.5)
    assert results.estimate([2.0, 2.0]).half == 0


def test_the_rate_is_chosen_by_validation_and_not_by_test(results: ModuleType) -> None:
    runs = [
        results.Run("ReLU", 0, 0.01, validation_loss=2, test_loss=1, test_accuracy=0.9),
        results.Run("ReLU", 0, 0.03, validation_loss=1, test_loss=2, test_accuracy=0.8),
    ]
    assert results.chosen(runs)["ReLU"] == [runs[1]]


def test_its_packages_are_those_of_its_formulas() -> None:
    done = run("-m", "autofn", "gen", "candidates.py", "-o", "activations", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_tiny_run(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    tiny = ("--seeds", "2", "--epochs", "1", "--jobs", "1", "-o", str(tmp_path))
    done = run("compare.py", *tiny, AUTOFN_BACKEND="torch", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    runs = json.loads((tmp_path / "results.json").read_text())["runs"]
    committed = json.loads((EXAMPLE / "results.json").read_text())["runs"]
    settings = {(r["activation"], r["seed"], r["rate"]) for r in runs}
    assert len(settings) == len(runs) == 36
    assert settings == {
        s for r in committed if (s := (r["activation"], r["seed"], r["rate"]))[1] < 2
    }
    assert all(0 <= run["test_accuracy"] <= 1 and run["test_loss"] > 0 for run in runs)
    assert (tmp_path / "results.md").read_text().count("±") == (
        EXAMPLE / "results.md"
    ).read_text().count("±")
    assert (tmp_path / "results.png").stat().st_size > 10_000


def test_its_readme_shows_its_formulas_and_its_results() -> None:
    text = (EXAMPLE / "README.md").read_text()
    (shown,) = [b for b in pages.blocks(text) if b.title == "candidates.py"]
    assert shown.text == (EXAMPLE / "candidates.py").read_text()
    results = (EXAMPLE / "results.md").read_text()
    tables = [part for part in results.split("\n\n") if part.startswith("|")]
    assert len(tables) == 2
    assert all(table.strip() in text for table in tables)
