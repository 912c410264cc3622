"""Errors over the whole number line: the package's, PyTorch's own and the form's as written."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import autofn
from autofn.bench.sketch import Sketch, forms, sketch
from autofn.certificate.job import Job as Certified
from autofn.certificate.job import Truths
from autofn.certificate.model import CPU, TORCH
from autofn.emit.identifiers import Names
from autofn.model import NUMBERS, Definition, Variant
from autofn.names import camel_case
from autofn.package import Package
from autofn.plan import Plan, VariantPlan
from autofn.report.measure import Job
from autofn.report.model import Line, Series
from autofn.report.truth import Places, Truth, error
from autofn.verify.tables import signature

LIMIT = 300.0
"""Seconds that computing may take, the build of the kernels included."""


@dataclass(frozen=True)
class Accuracy:
    """Per variant its lines; bytes kept per element; PyTorch's functions of the same values."""

    lines: tuple[tuple[Line, ...], ...]
    kept: tuple[tuple[str, float], ...]
    equals: tuple[str, ...]
    notes: tuple[str, ...]


@contextlib.contextmanager
def measuring(
    definition: Definition,
    made: Plan,
    package: Package,
    shown: Sequence[tuple[Variant, VariantPlan, Places]],
) -> Iterator[Callable[[Sequence[Truth]], Accuracy]]:
    """A process of its own computes at the places; what is yielded waits for it.

    It compares with the truth, which may be found meanwhile. Where the process fails, a note says
    so.
    """
    names = Names(made)
    base = sketch(definition, made)
    sketches = [
        _of_variant(base, definition, variant, made, planned, names)
        for variant, planned, _ in shown
    ]
    with tempfile.TemporaryDirectory(prefix="autofn_report_") as name:
        folder = Path(name) / package.name
        folder.mkdir()
        for path, text in package.files:
            (folder / path).write_text(text, encoding="utf-8")
        certified = Certified(
            folder=str(folder),
            class_name=camel_case(definition.name),
            signature=signature(definition),
            truths=tuple(_columns(definition, variant, places) for variant, _, places in shown),
            sweeps=(),
            limits=(),
            level="quick",
            backends=(TORCH, CPU),
        )
        process = _start(Path(name), Job(certified, tuple(sketches)))
        try:
            yield lambda truths: _compared(definition, truths, _computed(Path(name), process))
        finally:
            process.kill()
            process.wait()


def _compared(
    definition: Definition, truths: Sequence[Truth], computed: dict[str, Any] | str
) -> Accuracy:
    if isinstance(computed, str):
        return Accuracy(((),) * len(truths), (), (), (computed,))
    lines = [
        _lines(definition, truth, values)
        for truth, values in zip(truths, computed["values"], strict=True)
    ]
    equals = dict.fromkeys(each["own"] for each in computed["values"] if each["own"])
    return Accuracy(
        tuple(lines), tuple(computed["kept"].items()), tuple(equals), tuple(computed["not_run"])
    )


def _of_variant(
    base: Sketch,
    definition: Definition,
    variant: Variant,
    made: Plan,
    planned: VariantPlan,
    names: Names,
) -> Sketch:
    key = dict(variant.key)
    operands = tuple(o for o in base.operands if key.get(o.name, True))
    found = forms(definition, variant, made, planned, names)
    return dataclasses.replace(base, operands=operands, forms=found)


def _columns(definition: Definition, variant: Variant, places: Places) -> Truths:
    numbers = {leaf.name for leaf in definition.leaves if leaf.kind in NUMBERS}
    points = places.points
    names = points[0].keys() - numbers
    given = [leaf.name for leaf in definition.differentiable if leaf.name in names]
    return Truths(
        key=variant.key,
        dtype="float32",
        numbers={name: value for name, value in points[0].items() if name in numbers},
        points={name: [float(point[name]) for point in points] for name in given},
        high={},
        low={},
    )


def _start(folder: Path, job: Job) -> subprocess.Popen[str]:
    (folder / "job").write_bytes(pickle.dumps(job))
    paths = [os.environ.get("PYTHONPATH", ""), str(Path(autofn.__file__).parents[1])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "autofn.report.measure", "job", "result"]
    with open(folder / "said", "w", encoding="utf-8") as said:
        return subprocess.Popen(
            command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, stderr=said, text=True
        )


def _computed(folder: Path, process: subprocess.Popen[str]) -> dict[str, Any] | str:
    """What the process found, or why it found nothing."""
    try:
        process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        return f"errors were not measured: no end after {LIMIT:.0f} s"
    if process.returncode:
        said = (folder / "said").read_text(encoding="utf-8", errors="replace")
        lines = said.strip().splitlines() or ["it ended without a message"]
        return f"errors were not measured: {lines[-1]}"
    found: dict[str, Any] = json.loads((folder / "result").read_text(encoding="utf-8"))
    return found


def _lines(definition: Definition, truth: Truth, values: dict[str, Any]) -> tuple[Line, ...]:
    axis = truth.axis.name
    found: list[Line] = []
    for output in definition.output_names:
        for entry, title in (((output,), output), ((output, axis), f"∂{output}/∂{axis}")):
            series = [
                Series(values["own"] if name == "PyTorch's own" else name, errors)
                for name, entries in values["found"].items()
                if (errors := _errors(truth, entry, entries))
            ]
            found.append(Line(title, axis, tuple(series)))
    return tuple(found)


def _errors(
    truth: Truth, entry: tuple[str, ...], entries: list[Any]
) -> tuple[tuple[float, float], ...]:
    got = {tuple(name): column for name, column in entries}.get(entry)
    if got is None:
        return ()
    column = truth.columns[entry]
    errors = [
        (float(point[truth.axis.name]), error(value, true))
        for point, value, true, near in zip(
            truth.points, got, column.values, column.near, strict=True
        )
        if not near
    ]
    return tuple((x, e) for x, e in errors if not math.isnan(e))
