"""What a rule is: an identity in wildcards, and what speaks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import sympy
from sympy import Add, Expr, Symbol, exp

from autofn.functions import times_exp

U = Symbol("U", real=True)
V = Symbol("V", real=True)
C = Symbol("C", positive=True)


class minus(sympy.Function):  # type: ignore[misc]
    """U - V, multiplied out where that is no longer: of b*(x + 1) and b*x it is b.

    Of x/a and y/a it is (x - y)/a, which does not cancel.
    """

    nargs = (2,)
    is_real = True

    @classmethod
    def eval(cls, u: Expr, v: Expr) -> Expr | None:
        if {u, v} == {U, V}:
            return None
        if isinstance(u, Add) and v in u.args:
            return u - v
        whole = {each: each.args[0] * exp(each.args[1]) for each in (u - v).atoms(times_exp)}
        out = sympy.expand_mul((u - v).xreplace(whole))
        common = sympy.factor_terms(out) if isinstance(out, Add) else out
        if sympy.fraction(common)[1].free_symbols:
            return common
        return min(out, u - v, key=lambda each: len(Add.make_args(each)))


class plus(sympy.Function):  # type: ignore[misc]
    """U + V with their common factor taken out: of a*x and b*x it is x*(a + b)."""

    nargs = (2,)
    is_real = True

    @classmethod
    def eval(cls, u: Expr, v: Expr) -> Expr | None:
        return None if U in (u, v) else sympy.factor_terms(u + v)


class ratio(sympy.Function):  # type: ignore[misc]
    """U / V in lowest terms: of k*x and x that is k."""

    nargs = (2,)
    is_real = True

    @classmethod
    def eval(cls, u: Expr, v: Expr) -> Expr | None:
        return None if {u, v} == {U, V} else sympy.cancel(u / v)


Bindings = Mapping[Symbol, Expr]
"""What wildcards stand for."""

Condition = Callable[[Bindings, frozenset[Symbol]], bool]
"""Whether a match counts, from what the wildcards stand for and the symbols of parameters."""


@dataclass(frozen=True)
class Rule:
    """An identity. `hazard`: where the pattern fails in float32; empty for a change of name.

    alone: found in sums of which no other term depends on this; with those it might cancel.
    """

    name: str
    pattern: Expr
    replacement: Expr
    why: str
    source: str
    hazard: Mapping[Symbol, float]
    where: Condition | None = None
    alone: Symbol | None = None
