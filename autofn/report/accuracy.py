"""Errors over the whole number line: the package's, PyTorch's own and the form's as written."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import autofn
from autofn.bench.sketch import Sketch, forms, sketch
from autofn.certificate.job import Job as Certified
from autofn.certificate.job import Truths
from autofn.emit.identifiers import Names
from autofn.model import NUMBERS, Definition, Variant
from autofn.names import camel_case
from autofn.package import Package
from autofn.plan import Plan, VariantPlan
from autofn.report.measure import Job
from autofn.report.model import Line, Series
from autofn.report.truth import Truth, error
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


def accuracy(
    definition: Definition,
    made: Plan,
    package: Package,
    measured: Sequence[tuple[Variant, VariantPlan, Truth]],
) -> Accuracy:
    """Computed in a process of its own; where that fails, a note says so."""
    names = Names(made)
    base = sketch(definition, made)
    sketches = [
        _of_variant(base, definition, variant, made, planned, names)
        for variant, planned, _ in measured
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
            truths=tuple(_columns(definition, variant, truth) for variant, _, truth in measured),
            sweeps=(),
            limits=(),
            level="quick",
        )
        computed = _computed(Path(name), Job(certified, tuple(sketches)))
    if isinstance(computed, str):
        return Accuracy(((),) * len(measured), (), (), (computed,))
    lines = [
        _lines(definition, truth, values)
        for (_, _, truth), values in zip(measured, computed["values"], strict=True)
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


def _columns(definition: Definition, variant: Variant, truth: Truth) -> Truths:
    numbers = {leaf.name for leaf in definition.leaves if leaf.kind in NUMBERS}
    names = truth.points[0].keys() - numbers
    given = [leaf.name for leaf in definition.differentiable if leaf.name in names]
    return Truths(
        key=variant.key,
        dtype="float32",
        numbers={name: value for name, value in truth.points[0].items() if name in numbers},
        points={name: [float(point[name]) for point in truth.points] for name in given},
        high={},
        low={},
    )


def _computed(folder: Path, job: Job) -> dict[str, Any] | str:
    """What the process found, or why it found nothing."""
    (folder / "job").write_bytes(pickle.dumps(job))
    paths = [os.environ.get("PYTHONPATH", ""), str(Path(autofn.__file__).parents[1])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "autofn.report.measure", "job", "result"]
    try:
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return f"errors were not measured: no end after {LIMIT:.0f} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it ended without a message"]
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
