"""Programs in exact and in simulated single-precision arithmetic.

The truth is a program evaluated with 400 bits. The simulation rounds each operation as a float32
machine would, subnormal and overflowing numbers included, and lets every function be wrong by what
its bound in the operation table allows. Nothing depends on the libraries of the machine it runs on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import mpmath
from mpmath import mp
from mpmath.libmp import mpf_pos, round_nearest
from sympy import Expr

from autofn.ops import OPS
from autofn.program import Node, Program

EXACT = 400
WORKING = 100
"""Bits: of the truth, and of an operation before it is rounded."""

BITS, LEAST, TOP = 24, -149, 128
"""Of float32: significant bits, the exponent of the least subnormal, and of the first overflow."""

WIDEST = 2000
"""Numbers beyond 2**2000 are infinite here, and below its inverse 0."""

PAST = 200
EXPONENTIAL_OF_SUM = frozenset(
    op for op in OPS if op.endswith("_of_sum") and not op.startswith(("sin", "cos", "softplus"))
)

Point = Mapping[str, float]

_FAILS = (ZeroDivisionError, ValueError, OverflowError, TypeError, mpmath.libmp.NoConvergence)


# --- exact -----------------------------------------------------------------------------------


def exact(program: Program, point: Point) -> list[Any]:
    """Each output, in arithmetic of 400 bits that knows infinities; None if absent.

    Inputs that the point lacks are 1.
    """
    found: list[Any] = []
    with mp.workprec(EXACT):
        for node in program.nodes:
            if node.op == "input":
                assert node.input is not None
                found.append(mp.mpf(point.get(node.input, 1.0)))
            elif node.op == "constant":
                found.append(_constant(node.constant))
            elif node.op.endswith("_rest") and node.op != "root_rest":
                found.append(mp.mpf(0))
            else:
                found.append(_exact(node.op, [found[arg] for arg in node.args], node.n))
    return [None if o.node is None else found[o.node] for o in program.outputs]


@lru_cache(maxsize=10_000)
def _constant(constant: Expr | None) -> Any:
    if constant is None or constant.is_Boolean:
        return bool(constant)
    with mp.workprec(EXACT):
        if not constant.is_finite:
            return mp.mpf(float(constant)) if constant.is_extended_real else mp.nan
        return mp.mpf(constant.evalf(110)._to_mpmath(EXACT))


def _exact(op: str, args: list[Any], n: int | None) -> Any:
    try:
        if op.startswith("times_"):
            # A factor that has vanished makes 0 of anything.
            factor = _bounded(OPS[op].exact(mp.mpf(1), *args[1:]))
            return mp.mpf(0) if factor == 0 else _bounded(args[0] * factor)
        return _bounded(OPS[op].exact(*args) if n is None else OPS[op].exact(*args, n))
    except _FAILS:
        return mp.nan


def _bounded(value: Any) -> Any:
    if isinstance(value, mp.mpc):
        return mp.nan
    if isinstance(value, int) and not isinstance(value, bool):
        return mp.mpf(value)
    if not isinstance(value, mp.mpf) or not mp.isfinite(value) or value == 0:
        return value
    size = mp.mag(value)
    if size > WIDEST:
        return mp.inf if value > 0 else -mp.inf
    return mp.mpf(0) if size < -WIDEST else value


# --- simulated -------------------------------------------------------------------------------


def simulated(program: Program, point: Point, seed: int = 0) -> list[Any]:
    """Each output as a float32 machine might compute it; `seed` turns the errors of functions."""
    found: list[Any] = []
    with mp.workprec(WORKING):
        for index, node in enumerate(program.nodes):
            if node.op == "input":
                assert node.input is not None
                found.append(rounded(mp.mpf(point.get(node.input, 1.0))))
            elif node.op == "constant":
                value = _constant(node.constant)
                found.append(value if isinstance(value, bool) else rounded(value))
            elif node.op == "constant_rest":
                value = _constant(node.constant)
                found.append(rounded(value - rounded(value)))
            else:
                args = [found[arg] for arg in node.args]
                if node.op in EXPONENTIAL_OF_SUM and abs(args[-2]) > PAST:
                    # They do not look at the rest there, which is NaN for what has overflowed.
                    args[-1] = mp.zero
                found.append(_simulated(node, args, _turn(index, seed)))
    return [None if o.node is None else found[o.node] for o in program.outputs]


def rounded(value: Any) -> Any:
    """The nearest float32, ties to even; infinite beyond the largest."""
    _, mantissa, exponent, count = value._mpf_
    if not mantissa:
        return value
    top = exponent + count
    if top > TOP:
        return mp.inf if value > 0 else -mp.inf
    bits = min(BITS, top - LEAST)
    if bits < 0:
        return mp.zero
    if bits == 0:
        # Between a half and one times the least subnormal: a tie goes to 0.
        up = mantissa != 1
        return (mp.ldexp(1, LEAST) if value > 0 else -mp.ldexp(1, LEAST)) if up else mp.zero
    near = mp.make_mpf(mpf_pos(value._mpf_, bits, round_nearest))
    return near if mp.mag(near) <= TOP else (mp.inf if value > 0 else -mp.inf)


def spacing(value: Any) -> Any:
    """One unit in the last place of a float32 of this size."""
    return mp.ldexp(1, max(mp.mag(value) - BITS, LEAST) if value else LEAST)


def _turn(index: int, seed: int) -> int:
    """The sign of a function's error: any fixed choice that mixes."""
    return 1 if ((index * 2654435761 + seed * 40503) >> 7) & 1 else -1


def _simulated(node: Node, args: list[Any], turn: int) -> Any:
    op = OPS[node.op]
    try:
        if node.op == "sum_rest":
            total = mp.fadd(*args, exact=True)
            return _minus_rounded(total)
        if node.op == "product_rest":
            return _minus_rounded(mp.fmul(*args, exact=True))
        if node.op == "fma":
            a, b, c = args
            return rounded(mp.fadd(mp.fmul(a, b, exact=True), c, exact=True))
        if node.op.startswith("times_"):
            # Rounded once; a factor of exactly 0 makes 0 of anything, as those functions do.
            factor = op.exact(mp.mpf(1), *args[1:])
            value = mp.zero if factor == 0 else args[0] * factor
        else:
            value = op.exact(*args) if node.n is None else op.exact(*args, node.n)
    except _FAILS:
        return mp.nan
    if isinstance(value, bool):
        return value
    if not isinstance(value, mp.mpf):
        value = mp.mpf(value) if isinstance(value, int) else mp.nan
    inexact = op.ulp > 0.5 and mp.isfinite(value) and mp.mag(value) > LEAST
    if inexact and value != rounded(value):
        value += turn * (op.ulp - 0.5) * spacing(value)
    return rounded(value)


def _minus_rounded(value: Any) -> Any:
    near = rounded(value)
    # As in a machine: what an overflowing sum lost is not a number.
    return rounded(mp.fsub(value, near, exact=True)) if mp.isfinite(near) else mp.nan


# --- errors ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Error:
    """The largest error of a program, over points and outputs.

    bad: how many results are not finite, or off by more than a million ULP, and should not be.
    ulp: the largest other error; at: where the worst of all is.
    """

    bad: int
    ulp: float
    at: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        return f"{self.bad} bad" if self.bad else f"{self.ulp:.1f} ULP"


LOST = 2.0**20
"""ULPs beyond which a result has lost its digits."""


@dataclass(frozen=True)
class Sample:
    """Points, and per point the truth of each output; None where it is not judged."""

    points: tuple[Point, ...]
    truths: tuple[tuple[Any, ...], ...]


NEAR_ROOT = (7 / 8, 9 / 8)


def sampled(program: Program, points: Iterable[Point], scaled: frozenset[str]) -> Sample:
    """The truths of a program. Near a root, where scaling the inputs turns the sign, is not judged.

    scaled: the names of the inputs that are tensors.
    """
    kept: list[Point] = []
    truths: list[tuple[Any, ...]] = []
    for point in points:
        here = exact(program, point)
        beside = [
            exact(program, {n: v * s if n in scaled else v for n, v in point.items()})
            for s in NEAR_ROOT
        ]
        kept.append(point)
        truths.append(
            tuple(
                _judged(value, [each[k] for each in beside], point) for k, value in enumerate(here)
            )
        )
    return Sample(tuple(kept), tuple(truths))


def _judged(value: Any, beside: Sequence[Any], point: Point) -> Any:
    if value is None or not mp.isfinite(value) or mp.mag(value) > TOP - 1:
        return None
    at_infinity = any(abs(v) == float("inf") for v in point.values())
    if not at_infinity and any(not mp.isfinite(v) or v * value < 0 for v in beside):
        return None
    return value


def error(program: Program, sample: Sample) -> Error:
    """The error of a program in simulated float32 against the truths of the sample."""
    bad, worst, at = 0, 0.0, None
    for seed, (point, truths) in enumerate(zip(sample.points, sample.truths, strict=True)):
        values = simulated(program, point, seed)
        for value, truth in zip(values, truths, strict=True):
            if truth is None or value is None:
                continue
            if mp.isfinite(value):
                with mp.workprec(EXACT):
                    off = float(abs(value - truth) / spacing(truth))
            else:
                off = float("inf")
            if off > LOST:
                bad += 1
                at = point if bad == 1 else at
            elif off > worst:
                worst, at = off, at if bad else point
    return Error(bad, worst, tuple(sorted(at.items())) if at is not None else ())
