"""A Program in simulated float32: every operation exact, its result rounded once.

What a machine with correctly rounded functions would compute, so the same on all machines.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import mpmath
from mpmath import mp
from sympy import Expr

from autofn.ops import OPS
from autofn.program import Node, Program

LARGEST = 3.4028234663852886e38

VANISHED = mp.mpf(2) ** -400
"""A factor below it makes 0 of anything, in the operations that multiply by one."""


def rounded(value: Any) -> float:
    """The nearest number of float32; infinite beyond the largest."""
    try:
        number = float(value)
    except (TypeError, OverflowError):
        return math.nan  # complex: outside of the real range
    if not math.isfinite(number) or abs(number) > LARGEST * (1 + 2.0**-26):
        return number if math.isnan(number) else math.copysign(math.inf, number)
    return float(struct.unpack("f", struct.pack("f", max(-LARGEST, min(LARGEST, number))))[0])


def simulated(program: Program, values: Mapping[str, float]) -> list[float | None]:
    """Each output at a point; None for one without a value."""
    found: list[Any] = []
    with mp.workprec(120):
        for node in program.nodes:
            found.append(_node(node, [found[arg] for arg in node.args], values))
    return [None if each.node is None else found[each.node] for each in program.outputs]


def _node(node: Node, args: list[Any], values: Mapping[str, float]) -> Any:
    if node.op == "input":
        return rounded(values[node.input or ""])
    if node.op in ("constant", "constant_rest"):
        whole = _constant(node.constant)
        if node.op == "constant":
            return whole if isinstance(whole, bool) else rounded(whole)
        return rounded(whole - rounded(whole))
    if OPS[node.op].boolean:
        return bool(OPS[node.op].exact(*args))
    if node.op in ("max", "min", "relu", "clamp") and any(map(math.isnan, args)):
        return math.nan
    if node.op == "select":
        return args[1] if args[0] else args[2]
    exact = [mp.mpf(arg) for arg in args]
    if node.op == "div" and exact[1] == 0:
        sign = math.copysign(1.0, args[0]) * math.copysign(1.0, args[1])
        return math.nan if args[0] == 0 or math.isnan(args[0]) else sign * math.inf
    if node.op == "sum_rest":
        whole = exact[0] + exact[1]
        return rounded(whole - mp.mpf(rounded(whole)))
    if node.op == "product_rest":
        whole = exact[0] * exact[1]
        return rounded(whole - mp.mpf(rounded(whole)))
    try:
        if node.op.startswith("times_") and OPS[node.op].exact(mp.one, *exact[1:]) < VANISHED:
            return 0.0 * args[0] if math.isfinite(args[0]) else 0.0
        value = OPS[node.op].exact(*exact, *(() if node.n is None else (node.n,)))
    except (ZeroDivisionError, ValueError, OverflowError, TypeError, mpmath.libmp.NoConvergence):
        return math.nan
    return rounded(value)


def _constant(constant: Expr | None) -> Any:
    if constant is None or constant.is_Boolean:
        return bool(constant)
    return mp.mpf(str(constant.evalf(30))) if constant.is_finite else mp.mpf(float(constant))
