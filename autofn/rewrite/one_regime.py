"""Pieces that are the same function, each exact where the others are not: one of them alone.

What a formula is derived to has such regimes, log(u) here and log1p(u - 1) there, and its author
may have written others that are no regimes. Which they are, points tell.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterable, Iterator

import sympy
from mpmath import mp
from sympy import Abs, Basic, Expr, Piecewise, Rational, S

from autofn import functions as heads
from autofn import trees
from autofn.program import Program, Result
from autofn.rewrite.formats import EXACT
from autofn.rewrite.truth import Point, exact

VALUES = (0.0, 1.0, -0.7, 0.35, 2.3, -2.9, 0.8, 5.1, -4.4)
"""Of each input, in all combinations or as many as `TRIED`: with labels, 0 and 1, among them."""

TRIED, ENOUGH = 400, 4
"""So many points are tried, and so many of a piece are to show that it is the last one."""

SAME = Rational(1, 2**100)
"""How far pieces may be from each other."""

SMALL = Rational(1, 2**24)
"""What is less is in doubt, in double too: what it is the difference of may have lost digits."""

LITTLE = Rational(1, 2**10)
"""Of what expm1(x) is part of, which is -1 in quick double to the last digit but a few."""

Lowered = Callable[[list[Result]], Program]


def in_one_regime(expr: Expr, lowered: Lowered) -> Expr:
    """The expression with the last piece in place of all, where those are the same function."""
    inputs = lowered([Result("out", expr)]).inputs
    points = _points([each.name for each in inputs])

    def at_points(value: Basic, where: Iterable[Point]) -> Iterator[object]:
        program = lowered([Result("out", value)])
        return (exact(program, point)[0] for point in where)

    def is_last(value: Expr, last: Expr, where: list[Point]) -> bool:
        alike = 0
        for one, other in zip(at_points(value, where), at_points(last, where), strict=True):
            if not (isinstance(other, mp.mpf) and mp.isfinite(other)):
                continue  # no number comes of it there, as is seen
            with mp.workprec(EXACT):
                if not isinstance(one, mp.mpf) or abs(one - other) > abs(other) * float(SAME):
                    return False
            alike += 1
            if alike == ENOUGH:
                break
        return alike > 0

    @functools.cache
    def visit(node: Basic) -> Basic:
        made = trees.rebuilt(node, [visit(arg) for arg in node.args])
        return alone(made) if isinstance(made, Piecewise) else made

    def alone(pieces: Piecewise) -> Expr:
        last, otherwise = pieces.args[-1]
        if otherwise != S.true:
            return pieces
        left = points
        for value, condition in pieces.args[:-1]:
            holds = [found is True for found in at_points(condition, left)]
            if not is_last(value, last, list(itertools.compress(left, holds))):
                return pieces
            left = [point for point, mine in zip(left, holds, strict=True) if not mine]
        return last

    found = visit(expr)
    assert isinstance(found, Expr)
    return found


def of_size(expr: Expr) -> Expr:
    """The expression, NaN where it is small, or what it divides by or takes a logarithm of is."""
    inner = sorted(filter(None, map(_difference, trees.nodes(expr))), key=sympy.default_sort_key)
    small = (Abs(each) < (LITTLE if each.has(heads.expm1) else SMALL) for each in inner)
    doubtful = sympy.Or(Abs(expr) < SMALL, *small, evaluate=False)
    return Piecewise((S.NaN, doubtful), (expr, True), evaluate=False)


def _difference(node: Basic) -> Expr | None:
    """1 + y*expm1(x), of a logarithm or as a divisor, which may have lost what exp(x) has."""
    if isinstance(node, heads.log1p) and not isinstance(node.args[0], sympy.exp):
        return 1 + node.args[0]
    is_divisor = isinstance(node, sympy.Pow) and node.exp.is_negative and node.base.is_Add
    return node.base if is_divisor and node.base.has(heads.expm1) else None


def _points(names: list[str]) -> list[Point]:
    """The same for the same names, in all processes."""
    chance = random.Random(0)
    if len(VALUES) ** len(names) <= TRIED:
        chosen = list(itertools.product(VALUES, repeat=len(names)))
        chance.shuffle(chosen)
    else:
        chosen = [tuple(chance.choice(VALUES) for _ in names) for _ in range(TRIED)]
    return [dict(zip(names, each, strict=True)) for each in chosen]
