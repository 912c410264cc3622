"""Derivations, and what tests of them share."""

from __future__ import annotations

import functools
import struct

import mpmath
import sympy
from mpmath import mp
from sympy import Expr, Symbol

from autofn import functions as heads
from autofn.model import Definition
from autofn.passes import FIRST_ORDER
from autofn.plan import VariantPlan, plan
from autofn.program import ELEMENT, Input, Program, Result, lower
from autofn.rewrite.rule import C, U, V, minus, plus, ratio

VALUES = (0.31, 0.87, 1.7, 2.9, -0.45, -1.9)
x, y = sympy.symbols("x y", real=True)


def value(expr: Expr, at: dict[Symbol, Expr]) -> mpmath.mpf | None:
    """At numbers; None where it has none there."""
    number = expr.xreplace(at).doit().evalf(30)
    if not number.is_Number or not number.is_real or not number.is_finite:
        return None
    return mp.mpf(str(number))


def program_of(expr: Expr) -> Program:
    # An exponent that is known at run time is a head by the time programs are made, and U - V and
    # U / V those of what they stand for.
    expr = expr.replace(minus, lambda u, v: u - v).replace(ratio, lambda u, v: u / v)
    expr = expr.replace(plus, lambda u, v: u + v)
    powers = {p: heads.power(*p.args) for p in expr.atoms(sympy.Pow) if not p.exp.is_number}
    fixed = (V, C) if expr.has(C) and expr.has(V) else ()
    axes = {s: frozenset[str]() if s in fixed else frozenset({ELEMENT}) for s in (U, V, C)}
    inputs = [(s, Input(s.name, axes[s])) for s in (U, V, C)]
    return lower(inputs, [Result("y", expr.xreplace(powers))])


NUMBER = Symbol("c", real=True)
"""Known at run time."""


def single(number: float) -> float:
    """The nearest float32."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


@functools.cache
def derived(definition: Definition) -> VariantPlan:
    """The programs of first order as rules, regimes and limits make them, without a search."""
    (variant,) = plan(definition, search=(), passes=FIRST_ORDER).variants
    return variant


@functools.cache
def best(definition: Definition) -> VariantPlan:
    """The programs of first order, the best that a search finds."""
    (variant,) = plan(definition, search=FIRST_ORDER, passes=FIRST_ORDER).variants
    return variant
