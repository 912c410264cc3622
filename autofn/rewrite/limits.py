"""Infinite inputs: what a program makes of them, where that is not the limit.

sin(x)/x is NaN at infinity, log(1 + x)/x is inf/inf, and what a sum lost in rounding is inf - inf.
Where a limit is known and a program misses it, its result is selected there. The last resort: what
`saturate` has clamped is right already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from mpmath import mp
from sympy import Add, Expr, Float, S, oo

from autofn.model import Definition
from autofn.program import Node, Output, Program
from autofn.rewrite.saturate import NOTHING
from autofn.rewrite.simulate import EXACT, Point, exact

FAR = (("1.377e12", "1.377e22"), ("1.377e60", "1.377e90"))
"""Pairs of points that show where a function goes. At the nearer ones the digits suffice for sums
that cancel, the others are for what moves slowly."""

BESIDE = ("2.3", "5.9", "13.7", "24.1", "35.7")
"""Further points beside the first tell what oscillates, and of what is constant between steps."""

SAME = 1e-6
NEAR = 1e-3
"""Relative differences: of values on their way to a limit, and of a result that is as good."""

VANISHED = 1e-15
"""What is less, at the nearer points already, and goes on falling, goes to 0."""

Evaluation = Callable[[Program, Point], Sequence[Any]]
"""The outputs of a program at a point, as what runs it computes them."""


class Limits:
    """Programs of a formula of one tensor with their limits at its infinities.

    Run-time numbers and parameters may move a limit: with any of them programs stay as they are.
    """

    def __init__(self, definition: Definition, cotangents: Sequence[str]) -> None:
        tensors = [leaf.name for leaf in definition.tensors]
        alone = len(definition.leaves) == 1 == len(tensors) and not definition.options.domain
        self._tensor = tensors[0] if alone else None
        self._known = {*tensors, *cotangents}

    def __call__(self, program: Program, reference: Program, evaluated: Evaluation) -> Program:
        """A forward or backward program, right at infinities. reference: the same function."""
        name = self._tensor
        if name is None or name not in program.used():
            return program
        if not {each.name for each in program.inputs} <= self._known:
            return program  # in saved outputs, which have limits of their own
        sides = [_missed(program, reference, evaluated, name, sign) for sign in (-1, 1)]
        grown = _Grown(program)
        outputs = []
        for output, low, high in zip(program.outputs, *sides, strict=True):
            same = low is not None and low == high
            for limits, relation in [(low, "both")] if same else [(low, "le"), (high, "ge")]:
                if output.node is not None and limits is not None:
                    node = grown.selected(name, relation, grown.combined(limits), output.node)
                    output = replace(output, node=node)
            outputs.append(output)
        return grown.program(outputs)


_Combination = Mapping[str | None, Expr]
"""A limit per direction of which a result is the multiple; of what is not linear, that of None."""


def _missed(
    program: Program, reference: Program, evaluated: Evaluation, name: str, sign: int
) -> list[_Combination | None]:
    """Per output its limit at an infinity; None where it has none or the program meets it."""
    directions: list[str | None] = [each.name for each in program.inputs if each.name != name]
    ones = dict.fromkeys((each for each in directions if each is not None), 1.0)
    got = evaluated(program, {**ones, name: sign * math.inf})
    columns = []
    for direction in directions or [None]:
        unit = {each: float(each == direction) for each in ones}
        columns.append(_limits(reference, unit, name, sign))
    found: list[_Combination | None] = []
    for value, limits in zip(got, zip(*columns, strict=True), strict=True):
        known = [limit for limit in limits if limit is not None]
        missed = len(known) == len(limits) and _misses(value, Add(*known))
        found.append(dict(zip(directions or [None], known, strict=True)) if missed else None)
    return found


def _limits(reference: Program, others: Point, name: str, sign: int) -> list[Expr | None]:
    """Per output its limit, infinite ones included; None where it has none or it is not seen."""
    found: list[Expr | None] = [None] * len(reference.outputs)
    for near, nearer in FAR:
        with mp.workprec(EXACT):
            points = [mp.mpf(near) + mp.mpf(step) for step in ("0", *BESIDE)] + [mp.mpf(nearer)]
            rows = [exact(reference, {**others, name: sign * each}) for each in points]
        for k, values in enumerate(zip(*rows, strict=True)):
            if found[k] is None and all(isinstance(value, mp.mpf) for value in values):
                found[k] = _approached([_or_zero(value) for value in values])
    return found


def _or_zero(value: mp.mpf) -> mp.mpf:
    return mp.zero if mp.isfinite(value) and mp.mag(value) <= NOTHING else value


def _approached(values: Sequence[mp.mpf]) -> Expr | None:
    if not all(map(mp.isfinite, values)):
        return None
    near, *beside, nearer = values
    first, size = max(map(abs, (near, *beside))), abs(nearer)
    if (nearer == 0 and first < VANISHED) or (size < VANISHED and 0 < size * 1000 < first):
        return S.Zero
    if any(abs(near - each) > SAME * abs(near) for each in beside):
        # It oscillates, or grows like an exponential.
        steps = [a / b if b else mp.inf for a, b in pairwise(values)]
        grows = all(0 < step < 0.5 for step in steps) and first < VANISHED * size
    elif abs(near - nearer) <= SAME * size:
        return Float(mp.nstr(nearer, 40), 40)
    else:
        grows = size > 1.2 * abs(near) > 120 and near * nearer > 0
    return (oo if nearer > 0 else -oo) if grows else None


def _misses(value: Any, limit: Expr) -> bool:
    if not isinstance(value, mp.mpf) or mp.isnan(value):
        return True
    if limit.is_infinite or mp.isinf(value):
        return bool(value != float(limit))
    return bool(abs(_or_zero(value) - float(limit)) > NEAR * abs(float(limit)))


class _Grown:
    """A program with further nodes."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._nodes = list(program.nodes)

    def program(self, outputs: Sequence[Output]) -> Program:
        return replace(self._program, nodes=tuple(self._nodes), outputs=tuple(outputs))

    def _add(self, op: str, *args: int) -> int:
        axes = frozenset[str]().union(*(self._nodes[arg].axes for arg in args))
        self._nodes.append(Node(op, args, axes=axes))
        return len(self._nodes) - 1

    def _constant(self, value: Expr) -> int:
        self._nodes.append(Node("constant", constant=value, number=True))
        return len(self._nodes) - 1

    def _input(self, name: str) -> int:
        return next(k for k, node in enumerate(self._nodes) if node.input == name)

    def combined(self, limits: _Combination) -> int:
        """The sum of the directions times their limits; the limit where there is none."""
        total: int | None = None
        for direction, limit in limits.items():
            value = self._constant(limit)
            if direction is not None and limit != 0:
                value = self._add("mul", self._input(direction), value)
            if total is None or limit != 0:
                total = value if total is None else self._add("add", total, value)
        assert total is not None
        return total

    def selected(self, name: str, relation: str, limit: int, value: int) -> int:
        """The value, and the limit at an infinity, or at both."""
        x = self._input(name)
        if relation == "both":
            there = self._add("ge", self._add("abs", x), self._constant(oo))
        else:
            there = self._add(relation, x, self._constant(oo if relation == "ge" else -oo))
        return self._add("select", there, limit, value)
