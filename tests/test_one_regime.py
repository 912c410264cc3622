"""Pieces that are one function are told from those that are not."""

from __future__ import annotations

import math

import pytest
import sympy
from sympy import Abs, Eq, Expr, Max, Piecewise, Symbol, exp, log

from autofn import functions as heads
from autofn.program import ELEMENT, Input, Program, Result, lower
from autofn.rewrite.one_regime import SMALL, in_one_regime, of_size
from autofn.rewrite.simulate import simulated

x, y = sympy.symbols("x y", real=True)


def lowered(results: list[Result]) -> Program:
    elements = [(s, Input(s.name, frozenset({ELEMENT}))) for s in (x, y)]
    return lower(elements, results, for_kernels=True)


def pieces(*branches: tuple[Expr, sympy.Basic]) -> Expr:
    return Piecewise(*branches, evaluate=False)


def test_regimes_are_one_function() -> None:
    far, near = log(1 + exp(-x)) + x, log(1 + exp(x))
    assert in_one_regime(pieces((far, x > 0), (near, True)), lowered) == near
    inside = y * (2 + pieces((far, x > 0), (near, True))) ** 2
    assert in_one_regime(inside, lowered) == y * (2 + near) ** 2
    nested = pieces((pieces((near, y > 0), (far, True)), x > 0), (near, True))
    assert in_one_regime(nested, lowered) == near


def test_a_regime_at_single_numbers_is_tried_there() -> None:
    mixed = log(heads.sigmoid(-x) + y * (heads.sigmoid(x) - heads.sigmoid(-x)))
    at_one = pieces((-log(1 + exp(-x)), Eq(y, 1)), (mixed, True))
    assert in_one_regime(at_one, lowered) == mixed
    wrong = pieces((-log(1 + exp(-2 * x)), Eq(y, 1)), (mixed, True))
    assert in_one_regime(wrong, lowered) == wrong


@pytest.mark.parametrize(
    "expr",
    [
        pieces((x, x > 0), (exp(x) - 1, True)),
        pieces((x**2 / 2, Abs(x) < 1), (Abs(x) - sympy.Rational(1, 2), True)),
        pieces((x, x > 0), (x + sympy.Rational(1, 10**20), True)),
        pieces((log(y), x > 100), (log(y), x > 0), (sympy.S.NaN, True)),
        Max(x, y),
    ],
)
def test_what_an_author_wrote_stays(expr: Expr) -> None:
    assert in_one_regime(expr, lowered) == expr


@pytest.mark.parametrize(
    ("expr", "at", "beside"),
    [
        (heads.log1p(y * (exp(x) - 1)), -20.0, -10.0),
        (heads.log1p(y * heads.expm1(x)), -8.0, -6.0),
        (y / (1 + y * heads.expm1(x)), -8.0, -6.0),
    ],
)
def test_what_a_logarithm_or_a_quotient_is_of_is_not_small(
    expr: Expr, at: float, beside: float
) -> None:
    program = lowered([Result("out", of_size(expr))])
    (lost,), (kept,) = (simulated(program, {"x": each, "y": 1.0}) for each in (at, beside))
    assert math.isnan(lost) and math.isfinite(kept)


def test_what_is_small_is_no_number() -> None:
    program = lowered([Result("out", of_size(x * y))])
    for at, is_number in (
        (1.0, True),
        (float(SMALL), True),
        (-1e-7, True),
        (1e-8, False),
        (0, False),
    ):
        (found,) = simulated(program, {"x": at, "y": 1.0})
        assert (found == found) is is_number, at


def test_names_do_not_matter() -> None:
    """Points are the same in every process."""
    z = Symbol("z", real=True)
    expr = pieces((exp(x), x > 0), (1 / exp(-x), True))
    others = [(s, Input(s.name, frozenset({ELEMENT}))) for s in (x, y, z)]
    more = in_one_regime(expr, lambda results: lower(others, results, for_kernels=True))
    assert more == in_one_regime(expr, lowered) == 1 / exp(-x)
