"""Formulas in notebooks: their looks, compile, show and plot; the example notebook runs."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from sympy import Abs, Piecewise, Symbol, exp, log, tanh

from autofn import Formula, FormulaError, Tensor, VerificationError, formula
from autofn.notebook import Op
from autofn.verify.report import Report, Row

EXAMPLE = Path(__file__).resolve().parent.parent / "docs" / "notebook.ipynb"


@formula
def bent(x, beta: float = 1.0):
    """Bent."""
    return x * tanh(log(1 + exp(beta * x)))


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytorch_path: None) -> None:
    monkeypatch.setenv("AUTOFN_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def op(_cache: None) -> Op:
    return bent.compile()


def test_a_compiled_formula_is_an_op(op: Op) -> None:
    x = torch.linspace(-3, 3, 7, dtype=torch.float64, requires_grad=True)
    y = op(x, beta=0.5)
    assert torch.allclose(y, x * torch.tanh(torch.nn.functional.softplus(0.5 * x)))
    assert torch.autograd.gradcheck(lambda x: op.Function.apply(x, 0.5), (x,))
    module = op.Module(beta=0.5)
    assert isinstance(module, torch.nn.Module) and torch.equal(module(x), y)
    assert repr(op) == "<autofn op bent>"


def test_the_op_lies_in_the_cache_once(op: Op, tmp_path: Path) -> None:
    assert op.folder.is_relative_to(tmp_path / "cache" / "formulas")
    again = bent.compile()
    assert again.Module is op.Module
    other = Formula.from_expr(Symbol("x", real=True) ** 2, name="bent").compile()
    assert other.folder != op.folder and other(torch.tensor(3.0)) == 9


def test_what_verification_finds_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Report("bent", (Row("PyTorch", "values", "failed", "out at x=1"),))
    monkeypatch.setattr("autofn.verify.verify_package", lambda *args: wrong)
    with pytest.raises(VerificationError, match="values: out at x=1"):
        bent.compile(verify=True)


def test_a_formula_is_typeset_with_its_gradient() -> None:
    text = bent._repr_latex_()
    assert text is not None and text.startswith("$$\\begin{aligned}")
    assert text.count("{") == text.count("}")
    assert r"\operatorname{bent}\left(x, \beta\right) &=" in text
    assert r"\frac{\partial \operatorname{bent}}{\partial x} &=" in text


def test_variants_own_gradients_and_several_outputs_are_typeset() -> None:
    @formula
    def many(x, bias: Tensor | None = None):
        moved = x if bias is None else x + bias
        return {"one_way": Abs(moved), "other": x}

    text = many._repr_latex_()
    assert text is not None and r"\text{bias is None:}" in text
    assert r"\operatorname{one\_way}" in text and r"\mathrm{grad}_{bias}" in text


def test_a_formula_that_is_none_is_shown_plainly() -> None:
    @formula
    def broken(x):
        return "no expression"

    assert broken._repr_latex_() is None
    with pytest.raises(FormulaError):
        broken.compile()


def test_show_is_what_the_command_prints() -> None:
    shown = bent.show()
    assert "Saved for backward\n  x (input, one value per element)" in str(shown)
    table = shown._repr_html_()
    assert table.count("<tr>") == len(shown.explanation.sections)
    x = Symbol("x", real=True)
    less = Formula.from_expr(Piecewise((x, x < 1), (1, True)), name="less").show()._repr_html_()
    assert "x &lt; 1" in less and "x < 1" not in less


def test_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = bent.plot()
    assert picture._repr_png_().startswith(b"\x89PNG")
    picture.save(tmp_path / "bent.svg")
    assert "<svg" in (tmp_path / "bent.svg").read_text(encoding="utf-8")
    assert len(picture.figure.axes) == 3


# --- the example -------------------------------------------------------------------------------


def said(output: Any) -> str:
    """What an output says in words: no picture, no timing."""
    data = output.get("data", {})
    text = data.get("text/latex") or data.get("text/plain") or output.get("text", "")
    return "a picture" if "image/png" in data else str(text)


def test_the_example_gives_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("nbclient", "nbformat", "ipykernel", "matplotlib"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"no {module}")
    import nbformat
    from nbclient import NotebookClient

    root = str(EXAMPLE.parent.parent)
    paths = filter(None, (root, os.environ.get("PYTHONPATH")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    kept = nbformat.read(EXAMPLE, as_version=4)
    run = nbformat.read(EXAMPLE, as_version=4)
    NotebookClient(run, timeout=300, kernel_name="python3").execute()
    for before, after in zip(kept.cells, run.cells, strict=True):
        if before.cell_type == "code":
            outputs = [each for each in after.outputs if each.output_type != "stream"]
            assert [said(each) for each in before.outputs] == [said(each) for each in outputs]
    assert EXAMPLE.stat().st_size < 100_000
