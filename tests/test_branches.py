"""Functions that exclude each other are computed once, and what is computed is the same."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import sympy
from sympy import And, Expr, Or, Piecewise, Symbol, exp, log

from autofn import functions as heads
from autofn.program import ELEMENT, Input, Program, Result, lower
from autofn.rewrite.branches import merged
from autofn.rewrite.simulate import columns, in_single

x, y, a = sympy.symbols("x y a", real=True)
SIZES = (0.0, 0.5, 1.0, 3.0, 40.0, float("inf"))
POINTS = [{"x": s * u, "y": t * v, "a": 0.7} for u in SIZES for v in SIZES for s in (1.0, -1.0)
          for t in (1.0, -1.0)] + [{"x": float("nan"), "y": 1.0, "a": 0.7}]  # fmt: skip


def program(*exprs: Expr) -> Program:
    elements = [(s, Input(s.name, frozenset({ELEMENT}))) for s in (x, y)]
    inputs: list[tuple[Symbol, Input]] = [*elements, (a, Input("a", frozenset()))]
    results = [Result(f"out{k}", expr) for k, expr in enumerate(exprs)]
    return lower(inputs, results, for_kernels=True)


def pieces(*branches: tuple[Expr, sympy.Basic]) -> Expr:
    return Piecewise(*branches, evaluate=False)


def ops(made: Program) -> Counter[str]:
    return Counter(node.op for node in made.nodes)


EXCLUSIVE = {
    "two sides": (pieces((exp(-x), x > 0), (exp(x), True)), {"exp": 1}),
    "of other terms": (pieces((y * exp(-x), x > 0), (1 + x * exp(y), True)), {"times_exp": 1}),
    "three branches": (
        pieces((log(x), x > 3), (log(y), x > 1), (2 * log(x * y + 4), True)),
        {"log": 1},
    ),
    "a branch within a branch": (
        pieces((pieces((exp(x), y > 0), (exp(y), True)), x < 0), (exp(-x), True)),
        {"exp": 1},
    ),
    "ranges without a common number": (
        pieces((exp(x), x < 0), (1, True)) + pieces((exp(-x), x > 0), (1, True)),
        {"exp": 1},
    ),
    "conditions of several": (
        pieces((exp(x), And(x < 0, y > 0)), (exp(y), x < 0), (1, True))
        + pieces((1, Or(x < 0, y > 0)), (exp(-x), True)),
        {"exp": 1},
    ),
    "functions of functions": (
        pieces((log(1 + y * exp(x)), x < 0), (log(1 + y * exp(-x)) + x, True)),
        {"log": 1, "times_exp": 1},
    ),
}


@pytest.mark.parametrize("name", EXCLUSIVE)
def test_of_functions_that_exclude_each_other_one_is_computed(name: str) -> None:
    expr, left = EXCLUSIVE[name]
    before = program(expr)
    after = merged(before)
    found = ops(after)
    assert {op: found[op] for op in left} == left, found
    assert after.cost < before.cost
    values = [in_single(each, columns(POINTS, [None] * len(POINTS))) for each in (before, after)]
    for was, now in zip(*values, strict=True):
        assert was is not None and now is not None
        assert np.array_equal(was, now, equal_nan=True)


TOGETHER = {
    "both are needed": exp(x) + exp(y),
    "one is needed anyway": exp(y) + pieces((exp(x), x > 0), (exp(y), True)),
    "where ranges touch": pieces((exp(x), x <= 0), (1, True)) + pieces((exp(y), x >= 0), (1, True)),
    "as the condition": pieces((exp(x), exp(y) > 2), (1, True)),
    "in outputs of their own": (pieces((exp(x), x > 0), (1, True)), exp(y)),
    "of parameters, which are computed once": pieces(
        (x * heads.softplus(a), x > 0), (heads.softplus(-a), True)
    ),
    "roots and quotients": pieces((1 / (x + 2), x > 0), (1 / y, True)),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_others_stay(name: str) -> None:
    exprs = TOGETHER[name]
    before = program(*exprs) if isinstance(exprs, tuple) else program(exprs)
    assert merged(before) is before
