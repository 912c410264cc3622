"""Generated ops over 2 and 4 processes, against one: DTensor, DDP, FSDP2."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from autofn.load import load_file
from autofn.pipeline import generate

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="PyTorch without gloo",
)

BLEND = """
from typing import Literal

from sympy import exp, sin, tanh

from autofn import Learnable, PerChannel, Tensor, formula


@formula
def blend(
    x,
    y,
    bias: Tensor | None = None,
    scale: Learnable = 2.0,
    shift: PerChannel(dim=-1) = 0.5,
    *,
    gain: float = 1.0,
    mode: Literal["soft", "hard"] = "soft",
):
    gate = 1 / (1 + exp(-scale * x)) if mode == "soft" else tanh(scale * x)
    value = gain * gate * y + shift
    return {"value": value if bias is None else value + bias * sin(x), "gate": gate}
"""

EXACT = ("output", "gradient 0")
"""What is elementwise in every case: the same bits wherever an element is computed."""


@pytest.mark.slow
def test_many_processes_give_what_one_gives(tmp_path: Path) -> None:
    """Values, gradients and second derivatives; with kernels, elementwise ones to the last bit.

    Parameter gradients are sums, whose order changes with the shards: where each is exact, as those
    of prelu are here, they are the same too.
    """
    leaves = ["torch"]
    if any(map(shutil.which, ("g++", "c++", "clang++"))):
        leaves.append("native")
    found = compared(tmp_path, leaves)
    assert {(each["world"], each["leaf"]) for each in found} == {
        (world, leaf) for world in (2, 4) for leaf in leaves
    }
    assert {"DDP", "FSDP2", "FSDP2 and tensor parallel", "compile", "third order"} <= {
        each["case"] for each in found
    }
    wrong = [each for each in found if each["error"] > 1e-5]
    assert not wrong, wrong[:10]
    exact = [each for each in found if is_exact(each)]
    assert len(exact) > 200
    different = [each for each in exact if not each["same"]]
    assert not different, different[:10]


def is_exact(each: dict) -> bool:
    if each["case"].startswith("prelu"):
        return True
    return each["leaf"] == "native" and each["quantity"].startswith(EXACT)


def compared(folder: Path, leaves: list[str]) -> list[dict]:
    (folder / "blend.py").write_text(BLEND, encoding="utf-8")
    (made,) = load_file(folder / "blend.py")
    (folder / "blend").mkdir()
    for path, text in generate(made.definition).files:
        (folder / "blend" / path).write_text(text, encoding="utf-8")
    worker = Path(__file__).parent / "distributed_worker.py"
    done = subprocess.run(
        [sys.executable, worker, folder, *leaves],
        env={**os.environ, "AUTOFN_BACKEND": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    errors = "\n".join(each.read_text(encoding="utf-8") for each in folder.glob("error*.txt"))
    assert done.returncode == 0, errors or done.stderr
    return [
        each
        for path in sorted(folder.glob("world*.json"))
        for each in json.loads(path.read_text(encoding="utf-8"))
    ]
