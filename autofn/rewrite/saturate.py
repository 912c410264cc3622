"""Infinite inputs: what is constant far out is computed there with a finite input.

x * sigmoid(x) is 0 at minus infinity, and inf * 0 is NaN; exp(-x**2)*x**2 is 0 where x**2
overflows. Where a program is constant long before, the tensor is clamped on that side. Done last,
so that no derivative sees it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import sympy
from mpmath import mp
from sympy import Dummy, Expr, Integer, Symbol, oo

from autofn import functions as heads
from autofn import trees
from autofn.model import Definition
from autofn.program import Program, Result
from autofn.rewrite.heads import HUGE
from autofn.rewrite.sample import defaults
from autofn.rewrite.simulate import exact, simulated

NEAR = (Integer(16), Integer(64), Integer(1024))
"""From one of these on, exponentials of exponentials of an input, sums of exponentials with others,
or exponentials have vanished in any dtype; the input's powers have not overflowed there."""

FAR = (4e18, 3e20, 3e25)
"""Where a program must have the same value to be constant from the first on."""

SAME = mp.mpf(2) ** -56
NOTHING = -1080
"""Numbers below two to this are 0 in any dtype."""

LARGE = (1e9, 1e13, 1.3e19, 3.4e38)
"""Where powers overflow in single precision, squares, and multiples."""


class Finite:
    """Programs that give no NaN at an infinite tensor where the expression is constant far out.

    Nor, in single precision, where an intermediate result overflows.
    """

    def __init__(self, definition: Definition) -> None:
        domains = dict(definition.options.domain)
        self._tensors = [
            (leaf.name, leaf.symbol)
            for leaf in definition.tensors
            if leaf.symbol is not None and leaf.name not in domains
        ]
        self._defaults = defaults(definition)
        # A run-time number may stretch the input.
        self._levels = (*NEAR, HUGE) if len(definition.leaves) == 1 else (HUGE,)

    def __call__(
        self, lowered: Callable[[list[Result]], Program], results: list[Result]
    ) -> Program:
        return lowered(self.results(lowered, results))

    def results(
        self, lowered: Callable[[list[Result]], Program], results: list[Result]
    ) -> list[Result]:
        """The results, clamped where their program asks for it."""
        for name, x in self._tensors:
            program = lowered(results)
            if not self._fails(program, name):
                continue
            columns = [self._sides(program, name, level) for level in self._levels]
            sides = [
                tuple(
                    next((v for v, at in zip(self._levels, each, strict=True) if at[k]), None)
                    for k in (0, 1)
                )
                for each in zip(*columns, strict=True)
            ]
            # All outputs, so that they go on sharing what they are made of.
            within = next((low for low, high in sides if low is not None and low == high), None)
            results = [
                each
                if each.expr is None
                else dataclasses.replace(each, expr=clamped(each.expr, x, low, high, within=within))
                for each, (low, high) in zip(results, sides, strict=True)
            ]
        return results

    def _fails(self, program: Program, name: str) -> bool:
        for sign in (-1, 1):
            at_infinity = exact(program, {**self._defaults, name: sign * math.inf})
            if any(isinstance(value, mp.mpf) and mp.isnan(value) for value in at_infinity):
                return True
            for far in LARGE:
                point = {**self._defaults, name: sign * far}
                pairs = zip(exact(program, point), simulated(program, point), strict=True)
                if any(_is_number(truth) and not _is_number(value) for truth, value in pairs):
                    return True
        return False

    def _sides(self, program: Program, name: str, level: Expr) -> list[tuple[bool, bool]]:
        """Per output, whether it is constant beyond the level, below zero and above."""
        far = (float(level), *FAR)
        sides = []
        for sign in (-1, 1):
            values = (exact(program, {**self._defaults, name: sign * each}) for each in far)
            sides.append([_is_constant(column) for column in zip(*values, strict=True)])
        return list(zip(*sides, strict=True))


def _is_number(value: Any) -> bool:
    """Whether it is finite, and in single precision."""
    return isinstance(value, mp.mpf) and bool(mp.isfinite(value)) and bool(mp.mag(value) < 128)


def _is_constant(values: tuple[Any, ...]) -> bool:
    if not all(isinstance(each, mp.mpf) and mp.isfinite(each) for each in values):
        return False
    values = tuple(each if mp.mag(each) > NOTHING else mp.zero for each in values)
    return bool(max(values) - min(values) <= SAME * max(map(abs, values)))


LARGE_ARGUMENT = 100
"""Operations beyond which an argument is not looked at."""

SATURATING = (heads.sigmoid, heads.normcdf, heads.sech2, sympy.tanh, sympy.erf, sympy.erfc)


def clamped(
    expr: Expr, x: Symbol, low: Expr | None, high: Expr | None, *, within: Expr | None = None
) -> Expr:
    """The expression with x clamped on the sides asked for, at plus or minus a level.

    within: on both sides in the arguments of functions that are constant there anyway, so that
    expressions that are clamped on different sides share them.
    """
    if low is None and high is None:
        return expr
    if within is not None and (low is None or high is None):
        both = heads.clamp(x, -within, within)
        hidden = {node: Dummy(f"f{k}", real=True) for k, node in enumerate(_saturated(expr, x))}
        inner = {dummy: trees.replaced(node, {x: both}) for node, dummy in hidden.items()}
        return trees.replaced(clamped(trees.replaced(expr, hidden), x, low, high), inner)
    bounds = (-oo if low is None else -low, oo if high is None else high)
    return trees.replaced(expr, {x: heads.clamp(x, *bounds)})


def _saturated(expr: Expr, x: Symbol) -> list[Expr]:
    """The functions in an expression whose argument, a polynomial of x, is large far out."""
    return [
        node
        for node in trees.nodes(expr)
        if isinstance(node, SATURATING)
        and x in trees.symbols(node)
        and trees.size(node) <= LARGE_ARGUMENT
        and node.args[0].is_polynomial(x)
    ]
