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
from citizen.subject import KERNEL, OUTSIDE, PYTORCH, Subject, many, subject, write
from torch._subclasses import FakeTensorMode

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
        files = dict(generate(definition, search=False).files)  # no feature depends on it
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
@pytest.mark.parametrize(
    ("name", "leaf"), [pytest.param("mish", PYTORCH, marks=pytest.mark.slow), ("dyt", KERNEL)]
)
def test_compiled_features(name: str, leaf: str, load: Load) -> None:
    found = cells(load(name, leaf), slow=True)
    assert red(found) == {}
    assert [each for each, cell in found.items() if cell.status == "error"] == [
        "double backward through a graph",
        "dual tensors into a graph",
    ]


# --- sabotage ----------------------------------------------------------------------------------


def test_a_wrong_second_order_turns_cells_red(load: Load) -> None:
    off = "return grad_grad, None if grad_x is None else 1.001 * grad_x"
    made = load("swish", PYTORCH, ("maths.py", "return grad_grad, grad_x", off))
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


def _layouts(t: torch.Tensor) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    permuted = t.permute(2, 0, 3, 1)
    return {
        "dense": (t, t),
        "transposed": (t.transpose(1, 2), t.transpose(1, 2)),
        "channels last": (t.contiguous(memory_format=torch.channels_last), t),
        "sliced": (t[..., ::2], t[..., 1::2]),
        "mixed": (t, t.transpose(0, 1).contiguous().transpose(0, 1)),
        "broadcast": (t, t[:1, :, :1]),
        "crossed": (permuted[:1], permuted[:, :1]),
        "lower rank": (t[0, 0], t),
        "0-dim": (t[0, 0, 0, 0], permuted),
        "empty": (t[:0], t[:1]),
    }


@needs_compiler
def test_fake_outputs_lie_as_those_of_kernels(load: Load) -> None:
    """Shapes, strides and dtypes of outputs, gradients and second order, in every layout."""
    made = load("quadratic", KERNEL)
    with made.active():
        runtime = made.runtime
        ops = getattr(torch.ops, runtime.namespace())
        for label, (x, y) in _layouts(torch.randn(2, 5, 6, 4)).items():
            shape = torch.broadcast_shapes(x.shape, y.shape)
            grad = torch.ones((), dtype=x.dtype).expand(shape)
            likes = [code for t in (x, y) for code in (t.dim(), 6, *t.shape)]
            for op, args in (
                (ops.forward, (x, y, 15)),
                (ops.backward, (grad, x, y, 3, likes)),
                (ops.backward, (grad, x, y, 2, likes)),
            ):
                mode = FakeTensorMode()
                given = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
                with mode:
                    fake = many(op(*given))
                for one, other in zip(fake, many(op(*args)), strict=True):
                    found, wanted = ((t.shape, t.dtype, significant(t)) for t in (one, other))
                    assert found == wanted, (label, op)


def significant(t: torch.Tensor) -> list[int]:
    """Strides, of dimensions along which there is a step."""
    return [s for s, size in zip(t.stride(), t.shape, strict=True) if size > 1 and t.numel()]
