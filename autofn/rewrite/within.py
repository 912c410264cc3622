"""What is known within a branch: what is chosen by its condition there, and bounds not reached.

A rule's branches may choose by the same condition again, in what their derivatives are made of; and
bounds in them, Min(u, 41) where u <= 40, mark what is done, and would be in the derivatives' way.
"""

from __future__ import annotations

from functools import lru_cache

from sympy import Basic, Expr, Float, Integer, Max, Min, Piecewise, Rational
from sympy.core.relational import GreaterThan, Relational, StrictGreaterThan

from autofn import functions as heads
from autofn import trees

NO_PART_OF_1 = Rational(1, 2**100)
"""A bound that marks what a rule has done with a positive u, which is beside 1."""

LEAST = Float(2.0**-1022)
"""One that marks what a rule has done with a u >= 0 where that is not 0."""

LEAST_NUMBER = Integer(2**104 - 2**128)
"""One that marks what a rule has done with any u: float32's least number."""

MARKS = (NO_PART_OF_1, LEAST, LEAST_NUMBER)

Known = frozenset[Basic]
"""Conditions that hold."""


def known_in(node: Piecewise) -> list[Known]:
    """What holds in each branch: its condition, and none of those before it."""
    conditions = [where for _, where in node.args]
    return [
        frozenset(
            (where, *(each.negated for each in conditions[:k] if isinstance(each, Relational)))
        )
        for k, where in enumerate(conditions)
    ]


def settled(expr: Basic) -> Basic:
    """The expression without branches, within others, that are never or always chosen."""
    return _within(expr, frozenset(), False)


def chosen(expr: Expr, known: Known) -> Expr:
    """The expression where that holds."""
    return _within(expr, known, False)


def unbounded(expr: Expr, known: Known) -> Expr:
    """The expression where that holds, without the bounds that it keeps."""
    return _within(expr, known, True)


def without_marks(expr: Expr) -> Expr:
    """The expression for reading: bounds say nothing there that only mark what is done."""
    marks = {
        node: Max(*(each for each in node.args if each not in MARKS))
        for node in trees.nodes(expr)
        if isinstance(node, Max) and any(each in MARKS for each in node.args)
    }
    return trees.replaced(expr, marks) if marks else expr


@lru_cache(maxsize=100_000)
def _within(expr: Basic, known: Known, bounds: bool) -> Basic:
    if not expr.args:
        return expr
    if isinstance(expr, Relational) or (
        isinstance(expr, heads.power) and isinstance(expr.args[0], Piecewise)
    ):
        return expr  # one power for both branches
    if isinstance(expr, Piecewise):
        return _chosen(expr, known, bounds)
    if bounds and isinstance(expr, Min | Max) and len(expr.args) == 2 and expr.args[0].is_number:
        bound, u = expr.args
        if bound in MARKS:
            return _within(u, known, bounds)
        kept = u < bound if isinstance(expr, Min) else u > bound
        if any(_implies(each, kept) for each in known):
            return _within(u, known, bounds)
    return trees.rebuilt(expr, [_within(arg, known, bounds) for arg in expr.args])


def _chosen(node: Piecewise, known: Known, bounds: bool) -> Expr:
    left = []
    for (value, where), here in zip(node.args, known_in(node), strict=True):
        if any(_excludes(each, where) for each in known):
            continue
        always = where == True or any(_implies(each, where) for each in known)  # noqa: E712
        left.append((_within(value, known | here, bounds), where))
        if always:
            break
    if len(left) == 1:
        return left[0][0]
    return node if tuple(left) == node.args else Piecewise(*left, evaluate=False)


def _implies(known: Basic, other: Basic) -> bool:
    """Whether a condition is another, or says that what is less than a number is less than one."""
    if known == other:
        return True
    one, two = _as_less(known), _as_less(other)
    if one is None or two is None:
        return False
    return bool(one[0] == two[0] and one[1] < two[1])


def _excludes(known: Basic, other: Basic) -> bool:
    return isinstance(other, Relational) and known == other.negated


def _as_less(condition: Basic) -> tuple[Expr, Expr] | None:
    """u and the number that it is less than, or at most."""
    if not isinstance(condition, Relational) or condition.rel_op not in ("<", "<=", ">", ">="):
        return None
    u, at = condition.args
    if at.is_Rational is not True:
        return None
    return (-u, -at) if isinstance(condition, GreaterThan | StrictGreaterThan) else (u, at)
