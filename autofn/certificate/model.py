"""What a certificate says, and the bars that it is compared with."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

Quantity = Literal["value", "gradient", "second derivative"]

TORCH, CPU, NATIVE = "PyTorch path", "CPU kernel", "PyTorch's own"
HOST, GPU = "CUDA kernel on host", "CUDA kernel on GPU"

BARS: dict[tuple[Quantity, str], float] = {
    ("value", "float32"): 4.0,
    ("gradient", "float32"): 8.0,
    ("value", "float64"): 8.0,
    ("gradient", "float64"): 8.0,
    ("value", "bfloat16"): 0.51,
    ("gradient", "bfloat16"): 0.51,
    ("value", "float16"): 0.51,
    ("gradient", "float16"): 0.51,
    ("second derivative", "float32"): 64.0,
    ("second derivative", "float64"): 64.0,
}
"""The largest error away from roots, in ULP of the result's dtype."""

LIMITS = "limits at infinity"


@dataclass(frozen=True)
class Worst:
    """A point, what is true there (correctly rounded to float64) and what was computed."""

    point: tuple[tuple[str, float], ...]
    truth: float
    got: float
    ulp: float


@dataclass(frozen=True)
class Finding:
    """One quantity of one backend in one dtype, over `points` points away from roots.

    entry: an output's name, or "d out / d x", "d2 out / d x d y". `p999`: the error that 99.9 % of
    the points stay within. `bad`: points where the result is not finite and the truth is.
    `near_roots`: the largest error at the points near a root, which no bar applies to.
    """

    backend: str
    dtype: str
    quantity: Quantity
    entry: str
    points: int
    max_ulp: float
    p999: float
    worst: Worst | None
    bad: int
    bad_at: Worst | None
    near_roots: float

    @property
    def bar(self) -> float:
        return BARS[self.quantity, self.dtype]

    @property
    def ok(self) -> bool:
        return self.bad == 0 and self.max_ulp <= self.bar


@dataclass(frozen=True)
class Limit:
    """A limit at infinity of a formula of one tensor: what is true and what was computed."""

    backend: str
    dtype: str
    entry: str
    at: float
    truth: float
    got: float

    @property
    def ok(self) -> bool:
        return self.got == self.truth or (
            math.isfinite(self.truth) and abs(self.got - self.truth) <= 1e-2 * abs(self.truth)
        )


@dataclass(frozen=True)
class Certificate:
    """All findings of one package.

    `not_run` says what could not be measured, and why. `own`: PyTorch's functions that the formula
    equals, which are measured beside it.
    """

    name: str
    findings: tuple[Finding, ...]
    limits: tuple[Limit, ...]
    not_run: tuple[str, ...]
    own: tuple[str, ...]

    def beyond(self, budget: float) -> tuple[str, ...]:
        """What is past the formula's own budget, or not finite: of kernels, where there are any."""
        kernels = any(each.backend == CPU for each in self.findings)
        return tuple(
            f"{f.backend}, {f.entry}: "
            + (f"{f.bad} not finite, {shown(f.bad_at)}" if f.bad else "")
            + (f"{ulps(f.max_ulp)} ULP, {shown(f.worst)}" if not f.bad else "")
            for f in self.findings
            if f.backend == (CPU if kernels else TORCH)
            and f.dtype == "float32"
            and f.quantity != "second derivative"
            and (f.bad or f.max_ulp > budget)
        )

    @property
    def misses(self) -> tuple[str, ...]:
        """What misses its bar, a line each; PyTorch's own op is only compared with."""
        found = [
            f"{f.backend}, {f.dtype}, {f.entry}: "
            + (f"{f.bad} not finite, {shown(f.bad_at)}" if f.bad else "")
            + (" and " if f.bad and f.max_ulp > f.bar else "")
            + (
                f"{ulps(f.max_ulp)} ULP, bar {f.bar:g}, {shown(f.worst)}"
                if f.max_ulp > f.bar
                else ""
            )
            for f in self.findings
            if f.backend != NATIVE and not f.ok
        ]
        found += [
            f"{each.backend}, {each.dtype}, {each.entry} at {each.at}: {each.got:.6g}, "
            f"not {each.truth:.6g}"
            for each in self.limits
            if each.backend != NATIVE and not each.ok
        ]
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """Plain data, for the certificate's file."""
        return {
            "format": 1,
            "name": self.name,
            "findings": [{**asdict(f), "ok": f.ok} for f in self.findings],
            "limits": [{**asdict(each), "ok": each.ok} for each in self.limits],
            "not run": list(self.not_run),
            "equals": list(self.own),
            "misses": list(self.misses),
        }


def ulps(error: float) -> str:
    """An error as it is told: 3.48, or 2.1e+06."""
    return f"{error:.2f}" if error < 1e4 else f"{error:.1e}"


def shown(worst: Worst | None) -> str:
    """A point as it is told: x=-1.5: got 0.25, true 0.5."""
    if worst is None:
        return ""
    where = ", ".join(f"{name}={value:.9g}" for name, value in worst.point)
    return f"at {where}: {worst.got:.9g}, true {worst.truth:.9g}"
