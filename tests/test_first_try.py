"""What CPU kernels try first: cheaper programs that give no number where they may be wrong."""

from __future__ import annotations

import importlib
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import pytest
import torch
from mpmath import mp
from sympy import Expr, Symbol, exp, log, tanh

from autofn import formula
from autofn.functions import sigmoid, softplus
from autofn.passes import FIRST_ORDER
from autofn.plan import kernels, plan
from autofn.program import Input, Node, Output, Program, Result, lower
from autofn.rewrite.heads import exp_within
from autofn.rewrite.normal_form import direct_form
from autofn.rewrite.simulate import simulated
from generated.mish import mish
from generated.swish import swish

x, y = Symbol("x", real=True), Symbol("y", real=True)

compiled = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "c++", "clang++"))), reason="no C++ compiler"
)

NONE: frozenset[Symbol] = frozenset()


# --- the form ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(
    "expr",
    [
        x * sigmoid(x),
        sigmoid(x) * sigmoid(-x),
        (1 + x * sigmoid(-x)) * sigmoid(x) * y,
        x * tanh(softplus(x)),
        sigmoid(2 * x) + exp(-x) / (1 + y**2),
    ],
)
def test_direct_forms_are_equal(expr: Expr, sign: int) -> None:
    formed = direct_form(expr, NONE, sign)
    assert formed.has(exp_within) and not formed.has(sigmoid)
    program = lower(
        [(s, Input(s.name, frozenset())) for s in (x, y)], [Result("out", formed)], for_kernels=True
    )
    for at in (-7.3, -0.4, 0.0, 0.9, 12.1):
        with mp.workprec(200):
            want = float(expr.xreplace({x: mp.mpf(at), y: mp.mpf(0.7)}))
        assert float(simulated(program, {"x": at, "y": 0.7})[0]) == pytest.approx(want, rel=2e-6)
    assert math.isnan(simulated(program, {"x": 45.0, "y": 0.7})[0])


def test_differences_of_exponentials_stay() -> None:
    """exp(x) - 1 has no digits near 0."""
    assert direct_form((exp(x) - 1) / (exp(x) + 1) * y, NONE, -1).has(exp)


def test_a_decimal_fraction_is_a_multiple_of_itself() -> None:
    formed = direct_form(x * sigmoid(1.702 * x), NONE, -1)
    assert formed == x / (1 + exp_within(44, -1.702 * x))


def test_no_denominator_overflows() -> None:
    """Which would make 0 of x*exp(x)*exp(x) / (1 + exp(x))**2 for a small x, not NaN."""
    formed = direct_form(sigmoid(x) ** 2 * y, NONE, 1)
    assert formed == y * exp_within(30, x) ** 2 / (1 + exp_within(30, x)) ** 2
    assert direct_form(sigmoid(x) ** 8, NONE, 1) == sigmoid(x) ** 8


# --- the simulation ------------------------------------------------------------------------------


def test_what_is_not_finite_is_taken_from_the_other() -> None:
    def made(op: str, n: int | None) -> Program:
        nodes = (Node("input", input="x"), Node(op, (0,), n))
        return Program((Input("x", frozenset()),), nodes, (Output("out", 1),))

    program, first = made("square", None), made("exp_within", 21)
    both = Program(program.inputs, program.nodes, program.outputs, first=first)
    assert float(simulated(both, {"x": 1.0})[0]) == pytest.approx(math.e)
    assert simulated(both, {"x": 22.0}) == [484]


# --- the choice ----------------------------------------------------------------------------------


@formula
def gated(x, y):
    """A gate: every exponential is one of x."""
    return x * y / (1 + exp(-x))


@formula
def powered(x):
    """Its denominator overflows long before its exponential does."""
    return exp(x) / (1 + exp(x)) ** 7


def test_a_first_try_is_cheaper_and_only_where_there_is_something_to_save() -> None:
    found = {k.pass_name: program for k, program in kernels(plan(gated.definition))}
    for name in ("forward", "backward"):
        first = found[name].first
        assert first is not None and first.cost < found[name].cost
        assert [each.name for each in first.outputs] == [each.name for each in found[name].outputs]

    @formula
    def plain(x):  # type: ignore[no-untyped-def]
        return log(1 + x**2)

    assert all(program.first is None for _, program in kernels(plan(plain.definition)))


def test_a_first_try_is_not_finite_or_right() -> None:
    """Where a power overflows, a quotient would be 0 and is not."""
    for _, program in kernels(plan(powered.definition)):
        if program.first is None:
            continue
        for k in range(-200, 201):
            point = {"x": k / 3, "grad": 1.0, "_d_x": 1.0}
            for got, want in zip(
                simulated(program, point), simulated(_alone(program), point), strict=True
            ):
                assert float(got) == pytest.approx(float(want), rel=1e-5, abs=1e-38), k


@formula
def mixed(x, y):
    """A soft label's logarithm, in four regimes."""
    p = 1 / (1 + exp(-x))
    return -log(y * p + (1 - y) * (1 - p))


def test_what_is_computed_in_double_is_tried_in_double() -> None:
    made = plan(mixed.definition, passes=FIRST_ORDER)
    program = next(each for k, each in kernels(made) if k.pass_name == "backward")
    assert program.is_in_double
    assert program.first is not None
    assert program.first.is_in_double and program.first.cost < 0.6 * program.cost
    for at in (-3e4, -50.0, -20.5, -1.0, -1e-9, 0.0, 0.3, 1.0, 19.5, 31.0, 1e5):
        point = {"x": at, "y": 1.0, "grad": 1.0}
        pairs = zip(simulated(program, point), simulated(_alone(program), point), strict=True)
        for got, want in pairs:
            assert float(got) == pytest.approx(float(want), rel=3e-7, abs=1e-38), at


def test_16_bit_types_in_another_arithmetic_do_not_try_it() -> None:
    made = plan(mixed.definition, passes=FIRST_ORDER)
    program = next(each for k, each in kernels(made) if k.pass_name == "backward")
    assert program.tries_first
    assert not replace(program, arithmetic="rescued").tries_first
    assert not replace(program, arithmetic="single").tries_first


def _alone(program: Program) -> Program:
    return Program(program.inputs, program.nodes, program.outputs, program.arithmetic)


# --- at run time ---------------------------------------------------------------------------------


@pytest.fixture(params=[swish, mish], ids=["swish", "mish"])
def function(request: pytest.FixtureRequest, native: Callable[[str], ModuleType]):  # type: ignore[no-untyped-def]
    name = request.param.__name__
    return getattr(native(name), name)


@compiled
def test_results_do_not_depend_on_their_neighbours(function) -> None:  # type: ignore[no-untyped-def]
    """A block is computed again for the sake of one element: others stay as they are."""
    ordinary = torch.linspace(-9, 9, 511)
    for odd in (100.0, -100.0, math.inf, -math.inf, math.nan):
        both = torch.cat([torch.tensor([odd]), ordinary])
        leaf, alone = both.clone().requires_grad_(), ordinary.clone().requires_grad_()
        got, want = function(leaf), function(alone)
        torch.testing.assert_close(got[1:], want, rtol=0, atol=0)
        got.backward(torch.ones(512))
        want.backward(torch.ones(511))
        assert leaf.grad is not None and alone.grad is not None
        torch.testing.assert_close(leaf.grad[1:], alone.grad, rtol=0, atol=0)


@compiled
def test_beyond_it_results_are_those_of_the_whole_range(function) -> None:  # type: ignore[no-untyped-def]
    name = function.__name__
    maths = importlib.import_module(f"generated.{name}.maths")
    values = (1.0,) if name == "swish" else ()
    given = torch.linspace(-104, 104, 4001)
    want = maths.forward(given.double(), *values)
    got = function(given)
    spacing = 2.0**-149 + want.abs() * 2.0**-21
    assert bool(((got.double() - want).abs() <= spacing).all())


@formula
def offset(x, b: float = -0.25):
    """Its argument is exact but beside powers of two."""
    return x * tanh(log(1 + exp(b + x)))


def test_a_digit_that_a_sum_loses_is_missed() -> None:
    (forward,) = (p for k, p in kernels(plan(offset.definition)) if k.pass_name == "forward")
    for at in (-7.97, -15.758685, -15.95):
        point = {"x": torch.tensor(at).item(), "b": -0.25}
        with mp.workprec(200):
            p = mp.exp(mp.mpf(point["x"]) - 0.25)
            want = float(point["x"] * mp.tanh(mp.log(1 + p)))
        assert float(simulated(forward, point)[0]) == pytest.approx(want, rel=4 * 2.0**-23)
