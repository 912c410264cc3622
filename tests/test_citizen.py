"""A sample of the table docs/citizen.md, and proof that its cells can turn red."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from citizen import table  # noqa: F401 (its imports register the features)
from citizen.feature import FEATURES, Cell, run
from citizen.subject import KERNEL, OUTSIDE, PYTORCH, Subject, subject, write

from autofn.load import load_file
from autofn.model import Definition
from autofn.pipeline import generate
from autofn.resources import library

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "c++", "clang++"))), reason="no C++ compiler"
)

Load = Callable[..., Subject]
Edit = tuple[str, str, str]
"""A file of the package, a text in it, and what it becomes."""


def definition_of(name: str) -> Definition:
    file = library() / f"{name}.py"
    found = load_file(file if file.exists() else OUTSIDE)
    return next(each.definition for each in found if each.definition.name == name)


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Subjects on packages generated for the test, with edits of their text."""
    monkeypatch.syspath_prepend(str(tmp_path))
    parent = f"citizen_{tmp_path.name}"

    def loaded(name: str, leaf: str, *edits: Edit) -> Subject:
        definition = definition_of(name)
        files = dict(generate(definition).files)
        for file, old, new in edits:
            assert old in files[file], f"{file} has no {old!r} any more"
            files[file] = files[file].replace(old, new)
        write(files, tmp_path / parent / name)
        return subject(definition, f"{parent}.{name}", leaf)

    yield loaded
    for module in [each for each in sys.modules if each.partition(".")[0] == parent]:
        del sys.modules[module]
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


def cells(made: Subject, *, slow: bool) -> dict[str, Cell]:
    return {each.name: run(each, made) for each in FEATURES.values() if each.slow is slow}


def red(found: dict[str, Cell]) -> dict[str, str]:
    return {name: cell.detail for name, cell in found.items() if cell.status == "fail"}


EAGER = [
    ("swish", PYTORCH),
    ("huber", PYTORCH),
    ("gate", PYTORCH),
    ("surrogate", PYTORCH),
    pytest.param("dyt", KERNEL, marks=needs_compiler),
    pytest.param("quadratic_terms", KERNEL, marks=needs_compiler),
]


@pytest.mark.parametrize(("name", "leaf"), EAGER)
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
def test_eager_features(name: str, leaf: str, load: Load) -> None:
    found = cells(load(name, leaf), slow=False)
    assert red(found) == {}
    assert sum(cell.status == "pass" for cell in found.values()) > 40


@needs_compiler
@pytest.mark.parametrize(("name", "leaf"), [("mish", PYTORCH), ("dyt", KERNEL)])
def test_compiled_features(name: str, leaf: str, load: Load) -> None:
    found = cells(load(name, leaf), slow=True)
    assert red(found) == {}
    assert [each for each, cell in found.items() if cell.status == "error"] == [
        "double backward through a graph"
    ]


# --- sabotage ----------------------------------------------------------------------------------


def test_a_wrong_second_order_turns_cells_red(load: Load) -> None:
    edit = ("maths.py", "grad_grad = v2 * (v1 + 1)", "grad_grad = v2 * (v1 + 1.001)")
    made = load("swish", PYTORCH, edit)
    of = {name: run(FEATURES[name], made) for name in
          ("gradients", "forward_ad", "double backward", "triple backward",
           "gradient penalty", "jacrev of jacrev", "grad of vmap")}  # fmt: skip
    assert list(red(of)) == ["double backward", "triple backward", "gradient penalty",
                             "jacrev of jacrev", "grad of vmap"]  # fmt: skip


def test_a_dropped_batch_dimension_turns_cells_red(load: Load) -> None:
    """Gradients of a parameter summed over the batch, where they are asked per sample."""
    edit = ("_tensors.py", "else ((size, *(1,)", "else ((1, *(1,)")
    made = load("dyt", PYTORCH, edit)
    of = {name: run(FEATURES[name], made) for name in
          ("gradients", "vmap", "vmap of grad", "functional_call", "jacrev")}  # fmt: skip
    assert list(red(of)) == ["vmap of grad", "functional_call", "jacrev"]


def test_a_lost_in_dim_turns_cells_red(load: Load) -> None:
    edit = ("_tensors.py", "else t.movedim(bdim, 0)", "else t")
    of = {name: run(FEATURES[name], load("dyt", PYTORCH, edit)) for name in ("vmap",)}
    assert list(red(of)) == ["vmap"]


def test_a_stale_saved_tensor_turns_cells_red(load: Load) -> None:
    """A tensor kept on ctx: autograd does not see that it was changed in between."""
    edits = (
        ("op.py", "save_for_backward(x)\n        ctx.save_for", "kept = x\n        ctx.save_for"),
        ("op.py", "x, = ctx.saved_tensors\n        if ops", "x = ctx.kept\n        if ops"),
    )
    made = load("swish", PYTORCH, *edits)
    of = {name: run(FEATURES[name], made) for name in
          ("gradients", "double backward", "changed saved tensors")}  # fmt: skip
    assert list(red(of)) == ["changed saved tensors"]


def test_a_derivative_in_place_of_an_own_gradient_turns_cells_red(load: Load) -> None:
    edit = ("op.py", "outputs = _in_graph(", "outputs = SurrogateFunction.forward(")
    made = load("surrogate", PYTORCH, edit)
    of = {name: run(FEATURES[name], made) for name in ("gradients", "forward and backward")}
    assert list(red(of)) == ["forward and backward"]


# --- torch.compile and imports -------------------------------------------------------------------


def test_importing_packages_leaves_the_compiler_alone() -> None:
    """Its import takes two seconds; an own gradient asks for it when something is compiled."""
    names = sorted(path.parent.name for path in (library().parent / "generated").glob("*/op.py"))
    assert "spike" in names
    code = f"import importlib, sys\nfor n in {names}: importlib.import_module('generated.' + n)\n"
    code += "assert 'torch._dynamo' not in sys.modules and 'sympy' not in sys.modules"
    env = {**os.environ, "PYTHONPATH": str(library().parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("value", "chosen"),
    [("", False), ("kernels", True), ("mish,swish", True), ("mish", False), ("swish_beta", False)],
)
def test_which_packages_are_kernels_in_graphs(
    value: str, chosen: bool, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOFN_COMPILE", value)
    assert load("swish", PYTORCH).runtime.IN_GRAPHS is chosen
