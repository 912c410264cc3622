"""The process that computes: `python -m autofn.report.measure JOB RESULT`.

It alone imports torch. JOB is a pickled `Job`; RESULT becomes JSON: what the package, PyTorch's own
function and the formula as written give at every point.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autofn.bench import memory, subjects
from autofn.bench.records import Setting
from autofn.bench.sketch import Sketch
from autofn.certificate.job import Entry
from autofn.certificate.job import Job as Certified
from autofn.certificate.measure import Measure
from autofn.certificate.model import CPU, NATIVE, TORCH

EAGER = "as written"


@dataclass(frozen=True)
class Job:
    """`certified` has the points of each variant, `sketches` its forms in PyTorch operations."""

    certified: Certified
    sketches: tuple[Sketch, ...]


class Values(Measure):
    """What every contender gives, in float32, entry by entry."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.certified)
        self.sketches = job.sketches
        self.values: list[dict[str, Any]] = []

    def all(self) -> None:
        backends = self._backends()
        for truths, sketch in zip(self.job.truths, self.sketches, strict=True):
            given = {name: torch.tensor(column).double() for name, column in truths.points.items()}
            found: dict[str, dict[Entry, Tensor]] = {}
            for name, leaves in backends.items():
                with leaves():
                    found[name] = self._evaluate(truths.key, given, truths.numbers, torch.float32)
            own = self._own(truths, self._ordinary(given))
            if own is not None:
                found[NATIVE] = self._of_own(own[1], given, torch.float32)
            with contextlib.suppress(Exception):  # a form that some tensor's values make raise
                found[EAGER] = self._as_written(sketch, given)
            self.values.append(
                {
                    "own": None if own is None else own[0],
                    "found": {
                        name: [[entry, value.tolist()] for entry, value in entries.items()]
                        for name, entries in found.items()
                    },
                }
            )

    def _ordinary(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Numbers by which PyTorch's functions are recognised; parameters as they are."""
        kinds, random = self.subject.signature.kinds, torch.Generator().manual_seed(0)
        return {
            name: 3 * torch.randn(512, generator=random, dtype=torch.float64)
            if kinds[name][0] in ("TENSOR", "OPTIONAL")
            else column[:1].expand(512)
            for name, column in given.items()
        }

    def _as_written(self, sketch: Sketch, given: dict[str, Tensor]) -> dict[Entry, Tensor]:
        form = next(form for form in sketch.forms if form.label == EAGER)
        function = subjects.eager_function(form, sketch)
        tensors = [
            given[o.name].float() if o.place == "tensor" else given[o.name][:1].float()
            for o in sketch.operands
        ]
        axis = tensors[0].requires_grad_()
        outputs = function(*tensors)
        outputs = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
        found: dict[Entry, Tensor] = {}
        for name, output in zip(self.subject.outputs, outputs, strict=True):
            found[name,] = output.detach().expand(axis.shape)
            if output.requires_grad:
                (gradient,) = torch.autograd.grad(
                    output, axis, torch.ones_like(output), retain_graph=True, allow_unused=True
                )
                if gradient is not None:
                    found[name, sketch.operands[0].name] = gradient
        return found


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with open(sys.argv[1], "rb") as file:
        job: Job = pickle.load(file)
    values = Values(job)
    values.all()
    kept: dict[str, float] = {}
    not_run = list(values.not_run)
    try:
        subject = subjects.load(job.sketches[0], job.certified.folder)
        kept = dict(memory.saved_for_backward(subject, Setting(4096)).bytes)
    except Exception as error:
        not_run.append(f"saved bytes: {error}")
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        json.dump({"values": values.values, "kept": kept, "not_run": not_run}, out)


__all__ = ["CPU", "EAGER", "NATIVE", "TORCH", "Job"]

if __name__ == "__main__":
    # Under its importable name, so that what was pickled is of the same class.
    from autofn.report import measure

    measure.main()
