"""One certificate: points and their truth, a process that measures, its worst points looked at."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpmath import mp

from autofn.certificate.model import CPU, GPU, TORCH, Certificate, Finding, Limit, Worst
from autofn.certificate.sample import make_job, truth_at
from autofn.errors import VerificationError
from autofn.model import Definition, Variant
from autofn.package import Package, write
from autofn.verify import nursery
from autofn.verify.oracle import precision

LIMIT = 1800.0
"""Seconds that measuring may take."""

SPACING = {
    "float64": (53, -1074),
    "float32": (24, -149),
    "bfloat16": (8, -133),
    "float16": (11, -24),
}


def certify(
    package: Package,
    definition: Definition,
    level: str = "full",
    *,
    backends: Collection[str] = (TORCH, CPU, GPU),
) -> Certificate:
    """Measures a package as generated, in a temporary folder and in a process of its own.

    level: "quick" for few points. backends: what is measured, of a GPU's kernels where there is
    one, and also "CUDA kernel on host", their text built for this machine. Raises
    VerificationError where the process dies.
    """
    with tempfile.TemporaryDirectory(prefix="autofn_certify_") as name:
        folder = Path(name) / package.name
        write(package, folder)
        job, result = Path(name) / "job", Path(name) / "result"
        job.write_bytes(pickle.dumps(make_job(definition, str(folder), level, backends)))
        measured = _measured(job, result)
    findings = [_confirmed(definition, each) for each in measured["findings"]]
    return Certificate(
        name=definition.name,
        findings=tuple(_merged(findings)),
        limits=tuple(Limit(**each) for each in measured["limits"]),
        not_run=tuple(measured["not_run"]),
        own=tuple(measured["own"]),
    )


def _measured(job: Path, result: Path) -> dict[str, Any]:
    variables = {**os.environ, "AUTOFN_BACKEND": "native"}
    with job.with_suffix(".err").open("w+", encoding="utf-8", errors="replace") as errors:
        arguments = "autofn.certificate.measure", [str(job), str(result)], variables, errors
        with nursery.running(*arguments) as process:
            code = process.wait(LIMIT)
        if code:
            errors.seek(0)
            lines = errors.read().strip().splitlines() or ["it ended without a message"]
            raise VerificationError(f"measuring failed: {lines[-1]}")
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


def _confirmed(definition: Definition, raw: Mapping[str, Any]) -> tuple[Finding, bool]:
    """A finding whose worst points mpmath has seen, and whether it is of a sweep.

    Sweeps are measured against the float64 form; where that is wrong itself, the error is not the
    result's.
    """
    candidates = [_worst(each) for each in raw["candidates"]]
    variant = next(v for v in definition.variants if list(map(list, v.key)) == raw["key"])
    entry = tuple(raw["entry_key"])
    sweep = raw["source"] == "sweep"
    if sweep and len(entry) < 3:
        candidates = [
            _looked_at(definition, variant, entry, raw["dtype"], raw["numbers"], each)
            for each in candidates
        ]
    worst = max(candidates, key=lambda each: each.ulp, default=None)
    finding = Finding(
        backend=raw["backend"],
        dtype=raw["dtype"],
        quantity=raw["quantity"],
        entry=raw["entry"],
        points=raw["points"],
        max_ulp=worst.ulp if worst is not None else 0.0,
        p999=min(raw["p999"], worst.ulp) if worst is not None else 0.0,
        worst=worst,
        bad=raw["bad"],
        bad_at=None if raw["bad_at"] is None else _worst(raw["bad_at"]),
        near_roots=raw["near_roots"],
    )
    return finding, sweep


def _worst(raw: Mapping[str, Any]) -> Worst:
    point = tuple((name, value) for name, value in raw["point"])
    return Worst(point, raw["truth"], raw["got"], raw["ulp"])


def _looked_at(
    definition: Definition,
    variant: Variant,
    entry: tuple[str, ...],
    dtype: str,
    numbers: Mapping[str, Any],
    worst: Worst,
) -> Worst:
    truth = truth_at(definition, variant, {**numbers, **dict(worst.point)}).get(entry)
    if truth is None or not mp.isfinite(truth):
        return worst
    bits, least = SPACING[dtype]
    with precision(60):
        exponent = mp.frexp(truth)[1] if truth else -10000
        ulp = float(abs(mp.mpf(worst.got) - truth) / mp.mpf(2) ** max(exponent - bits, least))
    return Worst(worst.point, float(truth), worst.got, ulp)


def _merged(findings: Sequence[tuple[Finding, bool]]) -> list[Finding]:
    """One finding per backend, dtype and entry: of points, of a sweep, and of several variants."""

    def group(each: tuple[Finding, bool]) -> tuple[str, ...]:
        return each[0].backend, each[0].dtype, each[0].quantity, each[0].entry

    merged: list[Finding] = []
    for _, members in itertools.groupby(sorted(findings, key=group), key=group):
        found = [finding for finding, _ in members]
        worst = max(found, key=lambda each: each.max_ulp)
        bad = max(found, key=lambda each: each.bad)
        merged.append(
            Finding(
                worst.backend,
                worst.dtype,
                worst.quantity,
                worst.entry,
                sum(each.points for each in found),
                worst.max_ulp,
                max(found, key=lambda each: each.points).p999,
                worst.worst,
                sum(each.bad for each in found),
                bad.bad_at,
                max(each.near_roots for each in found),
            )
        )
    return merged
