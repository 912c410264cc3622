"""The checks of CUDA kernels on a GPU, with the CPU in the GPU's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sympy
import torch

from autofn import formula
from autofn.load import load_file
from autofn.package import write
from autofn.pipeline import generate
from autofn.verify.checks import agreement
from autofn.verify.checks.compare import Mismatch
from autofn.verify.checks.context import Context
from autofn.verify.leaves import DeviceLeaves
from autofn.verify.report import GPU
from autofn.verify.subject import Subject
from autofn.verify.tables import make_job
from autofn.verify.worker import BY_NAME, with_leaves

ROOT = Path(__file__).resolve().parent.parent


class Rows:
    """What a worker sends."""

    def __init__(self) -> None:
        self.results: dict[str, str] = {}

    def send(self, *message: Any) -> None:
        if message[0] == "row":
            _, _, check, status, detail = message
            self.results[check] = f"{status}: {detail}" if status == "failed" else status


@pytest.fixture(name="context")
def dyt() -> Context:
    (formula,) = load_file(ROOT / "formulas" / "dyt.py")
    job = make_job(formula.definition, str(ROOT / "generated" / "dyt"), "quick")
    return Context(Subject(job), job)


def test_checks_run_on_the_device_leaves(context: Context) -> None:
    leaves = DeviceLeaves(context.subject.op, device="cpu")
    rows = Rows()
    with_leaves(rows, GPU, context, leaves)
    assert set(rows.results) >= set(BY_NAME)
    assert set(rows.results.values()) <= {"passed", "not run"}
    assert rows.results["values"] == rows.results["second derivatives"] == "passed"


@pytest.mark.parametrize(
    ("leaf", "check"), [("forward", "values"), ("double_backward", "second derivatives")]
)
def test_a_wrong_leaf_is_found(context: Context, leaf: str, check: str) -> None:
    leaves = DeviceLeaves(context.subject.op, device="cpu")
    right = getattr(leaves, leaf)
    wrong = lambda *args: tuple(None if t is None else 1.001 * t for t in right(*args))  # noqa: E731
    setattr(leaves, leaf, wrong)
    with (
        context.subject.leaves(leaves.forward, leaves.backward, leaves.double_backward),
        pytest.raises(Mismatch),
    ):
        BY_NAME[check](context)


def test_tensors_keep_their_place_in_memory(context: Context) -> None:
    leaves = DeviceLeaves(context.subject.op, device="cpu")
    inside = torch.arange(64.0)[3:63].reshape(6, 10).t()[:, ::2]
    (copy,) = leaves._moved([inside])
    assert copy is not None
    assert copy.stride() == inside.stride() == (1, 20)
    assert copy.storage_offset() == 3
    assert torch.equal(copy, inside)


@formula
def ratio_nll(x, y):
    """Undefined where x < y, and its gradient's expression not."""
    return sympy.log(x - y)


def test_nothing_is_asked_of_gradients_outside_the_domain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Compiled kernels would be asked instead of what stands in for them here.
    monkeypatch.setenv("AUTOFN_BACKEND", "torch")
    write(generate(ratio_nll.definition, search=False), tmp_path / "ratio_nll")
    job = make_job(ratio_nll.definition, str(tmp_path / "ratio_nll"), "quick")
    context = Context(Subject(job), job)
    leaves = DeviceLeaves(context.subject.op, device="cpu")

    def backward(needs: Any, grads: Any, saved: Any, values: Any, likes: Any) -> Any:
        """NaN by a rounding there, or all is a thousandth greater here."""
        x, y = saved
        grad = torch.where(x > y, factor * grads[0], torch.nan)
        return leaves.backward(needs, (grad,), saved, values, likes)

    for factor in (1.0, 1.001):
        kernels = lambda: context.subject.leaves(leaves.forward, backward, None)  # noqa: E731
        if factor == 1.0:
            agreement.agreement(context, kernels)
        else:
            with pytest.raises(Mismatch, match="gradient of x"):
                agreement.agreement(context, kernels)
