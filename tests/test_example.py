"""The example that prototypes an activation: its packages are current, and it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
