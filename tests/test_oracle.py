"""The oracle against closed forms and mpmath's own differences, and the points it is asked at."""

from __future__ import annotations

import importlib.util
import math
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import mpmath
import pytest
import sympy as sp
from mpmath import mp
from sympy import (
    Abs,
    Function,
    Heaviside,
    Interval,
    Max,
    Min,
    Piecewise,
    Rational,
    cbrt,
    cos,
    erf,
    exp,
    floor,
    log,
    oo,
    pi,
    sin,
    sqrt,
    tanh,
)

from autofn import Formula, FormulaError, Learnable, Tensor, UsageError, formula
from autofn import functions as heads
from autofn.api import collect_formulas
from autofn.model import Definition
from autofn.resources import library
from autofn.verify.oracle import evaluate, oracle, second, to_floats, vjp
from autofn.verify.points import (
    FLOAT32_MAX,
    float32,
    hard_points,
    kink_points,
    parameter,
    regular_points,
)
from autofn.verify.tables import Truths

x, y = sp.symbols("x y", real=True)


def definition(expr: Any, **options: Any) -> Definition:
    return Formula.from_expr(expr).definition if not options else _with(expr, options)


def _with(expr: Any, options: dict[str, Any]) -> Definition:
    def f(x: Tensor) -> Any:
        return expr.xreplace({sp.Symbol("x", real=True): x})

    f.__annotations__ = {"x": Tensor}
    return formula(**options)(f).definition


def truth(expr: Any, **point: float) -> tuple[float, list[float]]:
    """Value and gradient of one expression, as floats."""
    d = definition(expr)
    (value,), (row,) = evaluate(d, d.variants[0], point).floats()
    return value, list(row)


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-15)


# --- values and derivatives ----------------------------------------------------------------

M = mpmath
CLOSED = {  # expression: the same in mpmath, and where
    "exp": (exp(x), M.exp, 0.7),
    "log": (log(x), M.log, 0.7),
    "sqrt": (sqrt(x), M.sqrt, 0.7),
    "sin": (sin(x), M.sin, 0.7),
    "cos": (cos(x), M.cos, 0.7),
    "tan": (sp.tan(x), M.tan, 0.7),
    "sec": (sp.sec(x), M.sec, 0.7),
    "csc": (sp.csc(x), M.csc, 0.7),
    "cot": (sp.cot(x), M.cot, 0.7),
    "asin": (sp.asin(x), M.asin, 0.7),
    "acos": (sp.acos(x), M.acos, 0.7),
    "atan": (sp.atan(x), M.atan, -0.7),
    "asec": (sp.asec(x), M.asec, 1.7),
    "acsc": (sp.acsc(x), M.acsc, -1.7),
    "acot": (sp.acot(x), M.acot, -0.7),
    "sinh": (sp.sinh(x), M.sinh, 0.7),
    "cosh": (sp.cosh(x), M.cosh, 0.7),
    "tanh": (tanh(x), M.tanh, 0.7),
    "sech": (sp.sech(x), M.sech, 0.7),
    "csch": (sp.csch(x), M.csch, -0.7),
    "coth": (sp.coth(x), M.coth, 0.7),
    "asinh": (sp.asinh(x), M.asinh, 0.7),
    "acosh": (sp.acosh(x), M.acosh, 1.7),
    "atanh": (sp.atanh(x), M.atanh, 0.7),
    "asech": (sp.asech(x), M.asech, 0.7),
    "acsch": (sp.acsch(x), M.acsch, -0.7),
    "acoth": (sp.acoth(x), M.acoth, -1.7),
    "erf": (erf(x), M.erf, 0.7),
    "erfc": (sp.erfc(x), M.erfc, 0.7),
    "erfinv": (sp.erfinv(x), M.erfinv, 0.3),
    "gamma": (sp.gamma(x), M.gamma, -0.7),
    "loggamma": (sp.loggamma(x), lambda t: M.log(abs(M.gamma(t))), -0.7),
    "digamma": (sp.digamma(x), lambda t: M.psi(0, t), 0.7),
    "polygamma": (sp.polygamma(2, x), lambda t: M.psi(2, t), 0.7),
    "factorial": (sp.factorial(x), M.factorial, 0.7),
    "beta": (sp.beta(x, 2.5), lambda t: M.beta(t, 2.5), 0.7),
    "binomial": (sp.binomial(5, x), lambda t: M.binomial(5, t), 0.7),
    "sinc": (sp.sinc(x), M.sinc, 0.7),
    "heads.sinc": (heads.sinc(x), M.sinc, 0.7),
    "power": (x**1.7, lambda t: t ** M.mpf(1.7), 0.7),
    "own power": (x**x, lambda t: t**t, 0.7),
    "base": (Rational(3, 2) ** x, lambda t: M.mpf(1.5) ** t, 0.7),
    "cube root": (cbrt(x), lambda t: -M.cbrt(-t), -0.7),
    "x**(5/3)": (x ** Rational(5, 3), lambda t: -(M.cbrt(-t) ** 5), -0.7),
    "x**(-2/3)": (x ** Rational(-2, 3), lambda t: M.cbrt(-t) ** -2, -0.7),
    "atan2": (sp.atan2(x, x**2 - 1), lambda t: M.atan2(t, t**2 - 1), 0.7),
    "sigmoid": (heads.sigmoid(x), lambda t: 1 / (1 + M.exp(-t)), 0.7),
    "softplus": (heads.softplus(x), lambda t: M.log(1 + M.exp(t)), -0.7),
    "logsigmoid": (heads.logsigmoid(x), lambda t: -M.log(1 + M.exp(-t)), 0.7),
    "silu": (heads.silu(x), lambda t: t / (1 + M.exp(-t)), 0.7),
    "gelu": (heads.gelu(x), lambda t: t * M.ncdf(t), 0.7),
    "normcdf": (heads.normcdf(x), M.ncdf, 0.7),
    "expm1": (heads.expm1(x), M.expm1, 0.7),
    "log1p": (heads.log1p(x), M.log1p, 0.7),
    "clamp": (heads.clamp(x, 0, 1) ** 3, lambda t: t**3, 0.7),
    "frac": (sp.frac(x) ** 2, lambda t: (t - 2) ** 2, 2.7),
    "Mod": (sp.Mod(x, 2) ** 2, lambda t: (t + 4) ** 2, -2.7),
    "bessel": (sp.besselj(0, x), lambda t: M.besselj(0, t), 0.7),
}


@pytest.mark.parametrize("name", CLOSED)
def test_values_and_derivatives(name: str) -> None:
    expr, reference, at = CLOSED[name]
    d = definition(expr)
    found = evaluate(d, d.variants[0], {"x": at})
    again = second(d, d.variants[0], {"x": at}, [1.0], [1.0])
    with mp.workdps(60):
        t = mp.mpf(at)
        expected = [reference(t), mp.diff(reference, t), mp.diff(reference, t, 2)]
    values = (found.outputs[0], found.jacobian[0][0], again.leaves[0])
    assert all(map(same, to_floats(values), to_floats(expected)))
    assert again.cotangents[0] == found.jacobian[0][0]
    assert found.source == "direct"


def test_every_branch_of_conditions() -> None:
    inside = sp.And(x > 0, sp.Or(x < 1, sp.Ne(y, 2)))
    f = Piecewise(
        (x, inside),
        (2 * x, sp.ITE(y > 0, x > -1, x < -2)),
        (3 * x, sp.Xor(x < -1, y > 5)),
        (Piecewise((4 * x, sp.Eq(y, -1)), (5 * x, True)), True),
    )
    slopes = {(2.0, 3.0): 1, (2.0, 2.0): 2, (-1.5, -3.0): 3, (-1.5, 7.0): 5, (0.0, -1.0): 4}
    for (a, b), slope in slopes.items():
        assert truth(f, x=a, y=b) == (slope * a, [slope, 0.0])


def test_contains_is_a_condition() -> None:
    f = Piecewise((x, sp.Contains(x, Interval(0, 1))), (2 * x, True))
    assert [truth(f, x=at)[1] for at in (-1.0, 0.0, 1.0, 1.5)] == [[2.0], [1.0], [1.0], [2.0]]


def test_second_order_against_differences() -> None:
    f = exp(x * y) / (1 + y**2) + tanh(x - y) * y**x
    d = definition(f)
    v = d.variants[0]
    with mp.workdps(60):
        point = {"x": mp.mpf("0.3"), "y": mp.mpf("1.4")}
        along, step = [mp.mpf("0.7"), mp.mpf("-1.3")], mp.mpf(10) ** -12
        found = second(d, v, point, [2.0], along)
        for i, name in enumerate(("x", "y")):
            up, down = (vjp(d, v, {**point, name: point[name] + s}, [2.0]) for s in (step, -step))
            slope = sum(a * (u - w) / (2 * step) for a, u, w in zip(along, up, down, strict=True))
            assert abs(slope - found.leaves[i]) < 1e-20


# --- kinks ---------------------------------------------------------------------------------

KINKS = [
    (Abs(x), {"x": 0.0}, [0.0]),
    (sp.sign(x) * x, {"x": 0.0}, [0.0]),
    (Max(x, 0), {"x": 0.0}, [0.0]),
    (Min(Max(x, 0), 6), {"x": 6.0}, [0.0]),
    (Max(x, y), {"x": 1.0, "y": 1.0}, [0.5, 0.5]),
    (Min(x, y, 2 * x - 1), {"x": 1.0, "y": 1.0}, [1.0, 1 / 3]),
    (Max(x, y, 0), {"x": 2.0, "y": 2.0}, [0.5, 0.5]),
    (Max(x, y, 0), {"x": 0.0, "y": 0.0}, [0.0, 0.0]),
    (Max(x, floor(y)), {"x": 1.0, "y": 1.5}, [0.0, 0.0]),
    # Locally constant, but no constant: the tie is one of two tensors.
    (Max(x, Piecewise((0, y < 1), (y - 1, True))), {"x": 0.0, "y": 0.5}, [0.5, 0.0]),
    (heads.clamp(x, -1, 1), {"x": 1.0}, [1.0]),
    (heads.clamp(x, -1, 1), {"x": -1.0}, [1.0]),
    (heads.clamp(x, -1, 1), {"x": 1.5}, [0.0]),
    (heads.relu(x), {"x": 0.0}, [0.0]),
    (floor(x) * y, {"x": 2.0, "y": 3.0}, [0.0, 2.0]),
    (sp.frac(x), {"x": 2.0}, [1.0]),
    (sp.Mod(x, 2), {"x": 2.0}, [1.0]),
    (Piecewise((x, x > 0), (3 * x, True)), {"x": 0.0}, [3.0]),
    (Piecewise((x, x >= 0), (3 * x, True)), {"x": 0.0}, [1.0]),
    (x**y, {"x": 0.0, "y": 0.0}, [0.0, 0.0]),
    (x**y, {"x": 0.0, "y": 2.0}, [0.0, 0.0]),
    (x**y, {"x": 0.0, "y": 1.0}, [1.0, 0.0]),
    (Abs(x) * sqrt(Abs(x)), {"x": 0.0}, [0.0]),
]


@pytest.mark.parametrize(("expr", "point", "gradient"), KINKS, ids=lambda each: str(each))
def test_kinks(expr: Any, point: dict[str, float], gradient: list[float]) -> None:
    _, found = truth(expr, **point)
    assert all(map(same, found, gradient))


def test_second_order_follows_the_same_conventions() -> None:
    d = definition(Max(x, 0) ** 2 + Abs(x) * x)
    assert to_floats(second(d, d.variants[0], {"x": 0.0}, [1.0], [1.0]).leaves) == (0.0,)
    d = definition(Max(x, y) ** 2)
    found = second(d, d.variants[0], {"x": 1.0, "y": 1.0}, [1.0], [1.0, 0.0])
    assert to_floats(found.leaves) == (0.5, 0.5)


def test_kinks_that_are_none_of_the_function() -> None:
    d = definition(Max(x, 0) + log(1 + exp(-Abs(x))))
    o = oracle(d, d.variants[0])
    assert o.evaluate({"x": 0.0}).jacobian[0][0] == 0
    assert to_floats(o.approached({"x": 0.0}).jacobian[0]) == (0.5,)
    d = definition(Abs(x))
    approached = oracle(d, d.variants[0]).approached({"x": 0.0})
    assert abs(approached.outputs[0]) < 1e-50
    assert math.isnan(approached.jacobian[0][0])


def test_heaviside_at_zero() -> None:
    values = [truth(f, x=0.0)[0] for f in (Heaviside(x), Heaviside(x, 0), Heaviside(x, 1))]
    assert values == [0.5, 0.0, 1.0]
    assert truth(Heaviside(x) + x, x=0.0) == (0.5, [1.0])


def test_nan_in_nan_out() -> None:
    for f in (Max(x, 0), Abs(x), heads.clamp(x, 0, 1), sp.sign(x), Heaviside(x), x**2):
        assert math.isnan(truth(f, x=math.nan)[0])
    assert truth(Piecewise((x, x > 0), (7, True)), x=math.nan)[0] == 7.0


def test_what_differs_from_one_in_no_digit() -> None:
    """1 + erf(-60) is 1e-1566; the logarithm tells what became of it."""
    assert truth(log(1 + erf(x)), x=-60.0)[0] == pytest.approx(-3604.6669, abs=1e-4)
    assert truth(log(3 - 3 * tanh(x)), x=5000.0) == (log(6.0) - 10000.0, [-2.0])
    assert truth(log(x + 1 - x - 1 / (1 + exp(-x))), x=9000.0) == (-9000.0, [-1.0])


# --- limits --------------------------------------------------------------------------------

LIMITS = [
    (sin(x) / x, {"x": 0.0}, 1.0, [0.0], [-1 / 3]),
    ((exp(x) - 1) / x, {"x": 0.0}, 1.0, [0.5], [1 / 3]),
    (log(1 + x) / x, {"x": 0.0}, 1.0, [-0.5], [2 / 3]),
    (sin(x - 1) / (x - 1), {"x": 1.0}, 1.0, [0.0], [-1 / 3]),
    ((1 - cos(x)) / x**2, {"x": 0.0}, 0.5, [0.0], [-1 / 12]),
    (1 / (1 + 1 / x**2), {"x": 0.0}, 0.0, [0.0], [2.0]),
    (exp(-1 / x**2), {"x": 0.0}, 0.0, [0.0], [0.0]),
    (sin(x * y) ** 2 / y, {"x": 1.5, "y": 0.0}, 0.0, [0.0, 2.25], [3.0, 3.0]),
    (sin(x * y) / (x * y), {"x": 0.0, "y": 0.0}, 1.0, [0.0, 0.0], [0.0, 0.0]),
    (heads.sinc(x), {"x": 0.0}, 1.0, [0.0], [-1 / 3]),
]


@pytest.mark.parametrize(
    ("expr", "point", "value", "gradient", "curvature"), LIMITS, ids=lambda each: str(each)
)
def test_removable_singularities(
    expr: Any,
    point: dict[str, float],
    value: float,
    gradient: list[float],
    curvature: list[float],
) -> None:
    d = definition(expr)
    v = d.variants[0]
    found = evaluate(d, v, point)
    again = second(d, v, point, [1.0], [1.0] * len(gradient))
    assert same(*to_floats([found.outputs[0], mp.mpf(value)]))
    assert all(abs(a - b) < 1e-20 for a, b in zip(found.jacobian[0], gradient, strict=True))
    assert all(abs(a - b) < 1e-15 for a, b in zip(again.leaves, curvature, strict=True))
    assert found.source == ("direct" if expr.func is heads.sinc else "limit")


def test_singularities_that_are_not_removable() -> None:
    for f in (1 / x, Abs(x) / x, sp.atan(1 / x), sin(1 / x)):
        assert math.isnan(truth(f, x=0.0)[0])
    assert math.isnan(truth(x * y / (x**2 + y**2), x=0.0, y=0.0)[0])
    assert truth(1 / x**2, x=0.0)[0] == math.inf
    assert truth(cbrt(x), x=0.0) == (0.0, [math.inf])


def test_one_side_suffices_where_the_other_is_undefined() -> None:
    d = definition(x * log(x))
    found = evaluate(d, d.variants[0], {"x": 0.0})
    assert found.floats() == ((0.0,), ((-math.inf,),))
    assert found.source == "one-sided"
    # At the end of the domain that is stated, whatever is beyond it.
    d = definition(Abs(x) / x, domain={"x": Interval(0, oo)})
    assert to_floats(evaluate(d, d.variants[0], {"x": 0.0}).outputs) == (1.0,)


def test_limits_at_infinity() -> None:
    swish = x / (1 + exp(-x))
    assert truth(swish, x=math.inf) == (math.inf, [1.0])
    assert truth(swish, x=-math.inf) == (0.0, [0.0])
    assert truth(sin(x) / x, x=math.inf) == (0.0, [0.0])
    assert truth(x / sqrt(1 + x**2), x=-math.inf) == (-1.0, [0.0])
    assert truth(tanh(x), x=math.inf) == (1.0, [0.0])
    assert math.isnan(truth(sin(x), x=math.inf)[0])
    # With a period that powers of ten are multiples of, and with a growing amplitude.
    assert math.isnan(truth(cos(sp.pi * x / 5), x=math.inf)[0])
    assert math.isnan(truth(x * sin(2 * x), x=math.inf)[0])
    assert truth(2 * x + sin(x), x=-math.inf)[0] == -math.inf


@pytest.mark.parametrize("kinked", [Abs, lambda u: sp.Max(u, 1)])
def test_slopes_of_kinks_at_infinity_have_limits(kinked: Any) -> None:
    """Where the argument of |u| or Max is undefined as written: 0 times infinity and more."""

    @formula
    def f(x, y):  # type: ignore[no-untyped-def]
        return x**3 / (1 + kinked(y * x + x**2))

    d = f.definition
    (value,), (row,) = evaluate(d, d.variants[0], {"x": math.inf, "y": 0.0}).floats()
    assert value == math.inf
    assert [*row] == [1.0, -1.0]


def test_undefined_points_are_nan() -> None:
    for f in (log(x), sqrt(x), x**0.3, x ** Rational(1, 5), sp.acosh(x)):
        value, gradient = truth(f, x=-2.0)
        assert math.isnan(value)
        assert math.isnan(gradient[0])


# --- precision -----------------------------------------------------------------------------


@pytest.mark.parametrize("at", [5.0, 40.0, 300.0, 360.0])
def test_total_cancellation(at: float) -> None:
    with mp.workdps(700):
        sech2 = 1 / mp.cosh(at) ** 2
        slope = -2 * sech2 * mp.tanh(at)
    value, (gradient,) = truth(1 - tanh(x) ** 2, x=at)
    assert value == float(sech2)
    assert gradient == float(slope)
    assert truth(log(1 + exp(-x)), x=at)[0] == float(mp.log1p(mp.exp(-at)))


def test_exact_zeros_among_rounded_numbers() -> None:
    assert truth(sin(pi * x), x=3.0)[0] == 0.0
    assert truth(sin(x) ** 2 + cos(x) ** 2 - 1, x=0.3) == (0.0, [0.0])


def test_astronomical_numbers() -> None:
    assert truth(exp(exp(x)), x=1e30)[0] == math.inf
    assert truth(exp(-exp(x)), x=1e30) == (0.0, [0.0])
    assert truth(exp(x) / (1 + exp(x)), x=FLOAT32_MAX) == (1.0, [0.0])
    assert truth(tanh(exp(x)) * x, x=1e38)[0] == 1e38
    assert truth(x ** (x**5), x=1e300)[0] == math.inf


def test_precision_is_left_as_it_was() -> None:
    before = mp.prec
    truth(sin(x) / x, x=0.0)
    assert mp.prec == before
    with mp.workdps(5):
        assert truth(exp(x) / 3, x=1.1)[0] == pytest.approx(math.exp(1.1) / 3, rel=1e-15)


def test_points_may_be_exact() -> None:
    with mp.workdps(40):
        at = mp.mpf(1) / 3
        d = definition(x**2)
        found = evaluate(d, d.variants[0], {"x": at}).outputs[0]
        assert abs(found - at**2) < mp.mpf(10) ** -39


# --- definitions ---------------------------------------------------------------------------


def test_rounding_shows_where_a_formula_cancels() -> None:
    made = definition(x * y + (1 - y) * x)  # x, by way of x * y
    at = oracle(made, made.variants[0])

    def moved(point: dict[str, float]) -> float:
        exact = at.evaluate(point)
        found = [at.rounded(point, 2.0**-53, seed) for seed in range(3)]
        return max(abs(float(each.outputs[0] - exact.outputs[0])) for each in found)

    assert moved({"x": 1.0, "y": 0.5}) < 1e-15
    assert 1e-8 < moved({"x": 1.0, "y": 1e9}) < 1e-6


def test_nothing_is_known_at_a_pole() -> None:
    """1 + x + y is all rounding there; a root of the whole is none, nor is a steep place."""

    def moved(expr: Any, point: dict[str, float]) -> float:
        made = definition(expr)
        return Truths(made, made.variants[0]).around(point, "float32")[0]

    assert moved(1 / (1 + x + y), {"x": 2.0**-40, "y": -1.0}) == math.inf
    assert moved(1 / (1 + x + y), {"x": 0.5, "y": -1.0}) < 1e-5
    assert moved(1 + x + y, {"x": 2.0**-40, "y": -1.0}) < 1e-5
    assert moved(x**20 / (1 + x + y), {"x": 0.5, "y": -1.0}) < 1e-9


def test_several_outputs_and_numbers() -> None:
    @formula
    def f(x, alpha: Learnable = 0.5, n: int = 2):
        return {"a": alpha * x**n, "b": exp(alpha)}

    d = f.definition
    v = d.variants[0]
    found = evaluate(d, v, {"x": -3.0, "alpha": 2.0, "n": 3})
    assert found.jacobian[0] == (54, -27)
    assert found.jacobian[1][0] == 0
    assert evaluate(d, v, {"x": -3.0}).outputs[0] == 4.5
    assert vjp(d, v, {"x": -3.0, "alpha": 2.0, "n": 3}, [1.0, 0.0]) == (54, -27)
    with pytest.raises(UsageError, match="no number for 'x'"):
        evaluate(d, v, {})
    with pytest.raises(UsageError, match="2 cotangents"):
        vjp(d, v, {"x": 1.0}, [1.0])


def test_absent_optional_tensor_has_no_gradient() -> None:
    @formula
    def f(x, bias: Tensor | None = None):
        return 2 * x if bias is None else 2 * x + bias

    d = f.definition
    given = {dict(v.key)["bias"]: v for v in d.variants}
    assert vjp(d, given[False], {"x": 1.0}, [3.0]) == (6, None)
    assert vjp(d, given[True], {"x": 1.0, "bias": 1.0}, [3.0]) == (6, 3)


def test_own_gradient() -> None:
    @formula
    def spike(x, y, alpha: float = 2.0):
        return Heaviside(x - 1) * y

    @spike.gradient
    def _(grad, x, y):
        return grad * y / (1 + x**2), None

    d = spike.definition
    v = d.variants[0]
    point = {"x": 2.0, "y": 3.0}
    assert evaluate(d, v, point).jacobian[0] == (0, 1)
    gradients = vjp(d, v, point, [5.0])
    assert gradients[1] is None
    assert gradients[0] == 3
    found = second(d, v, point, [5.0], [1.0, 1.0])
    expected = (-5 * 3 * 2 * 2 / 25, 5 / 5, 3 / 5)
    assert all(map(same, to_floats(found.leaves + found.cotangents), expected))


def test_own_gradient_of_several_outputs() -> None:
    @formula
    def f(x):
        return x, x**2

    @f.gradient
    def _(grad, x):
        return grad[0] + Piecewise((grad[1], Abs(x) <= 1), (0, True))

    d = f.definition
    assert vjp(d, d.variants[0], {"x": 1.0}, [2.0, 3.0]) == (5,)
    assert vjp(d, d.variants[0], {"x": 1.5}, [2.0, 3.0]) == (2,)


def test_what_cannot_be_evaluated() -> None:
    unknown = Function("unknown", real=True)
    d = definition(unknown(x))
    with pytest.raises(FormulaError, match="unknown is not a function") as caught:
        oracle(d, d.variants[0])
    assert caught.value.where == d.where

    class sigmoid(Function):
        """Not the one of autofn.functions."""

        is_real = True

    d = definition(sigmoid(x))
    with pytest.raises(FormulaError, match="sigmoid is not a function"):
        oracle(d, d.variants[0])


# --- points --------------------------------------------------------------------------------


def _regular(expr: Any, count: int = 12, **options: Any) -> list[float]:
    d = definition(expr, **options)
    return [float(point["x"]) for point in regular_points(d, d.variants[0], count)]


def test_regular_points_keep_off_kinks() -> None:
    points = _regular(Abs(x - 1) + Max(x, 0) + floor(x / 2))
    assert len(points) == 12
    for kink in (0.0, 1.0, 2.0, -2.0):
        assert min(abs(point - kink) for point in points) > 0.04
    assert min(points) < -1.5
    assert max(points) > 1.5


def test_regular_points_lie_on_both_sides_of_every_kink() -> None:
    points = _regular(Min(Max(x, -9), 6))
    assert min(points) < -9
    assert max(points) > 6
    assert any(-9 < point < 6 for point in points)


@pytest.mark.parametrize(
    ("expr", "low", "high"),
    [
        (log(x), 0, math.inf),
        (sqrt(x) * sp.acos(x), 0, 1),
        (sp.acosh(x), 1, math.inf),
        (log(x / (1 - x)), 0, 1),
        (log(x - 100), 100, math.inf),
    ],
)
def test_regular_points_find_a_natural_domain(expr: Any, low: float, high: float) -> None:
    points = _regular(expr)
    assert len(points) == 12
    assert all(low < point < high for point in points)


def test_regular_points_stay_inside_a_stated_domain() -> None:
    points = _regular(x**2, domain={"x": Interval.open(5, 6)})
    assert len(set(points)) == 12
    assert all(5 < point < 6 for point in points)
    assert all(point > 40 for point in _regular(x**2, domain={"x": Interval(40, oo)}))


def test_regular_points_are_far_out_where_results_are_huge_nearer() -> None:
    """An exponential integrate-and-fire neuron, of millivolts."""
    points = _regular(-(x + 65) + 2 * exp((x + 50) / 2))
    assert points
    assert all(point < -9 for point in points)


def test_no_regular_point() -> None:
    with pytest.raises(FormulaError, match=r"no point was found") as caught:
        _regular(log(x) + log(-x))
    assert "domain" in str(caught.value.remedy)


def test_parameters_are_near_their_start_values() -> None:
    @formula
    def f(x, alpha: Learnable = 0.25, beta: float = 0.5, n: int = 3, *, scale: float):
        return alpha * x**n + beta * scale

    d = f.definition
    points = regular_points(d, d.variants[0], 5)
    assert {(p["beta"], p["n"], p["scale"]) for p in points} == {(0.5, 3, 1.0)}
    assert len({p["alpha"] for p in points}) == 1
    assert 0.1 < points[0]["alpha"] < 0.4
    assert [parameter(leaf) for leaf in d.leaves] == [1.0, 0.25, 0.5, 3, 1.0]
    assert parameter(d.leaf("scale"), Interval.open(2, 4)) == 3.0
    other = regular_points(d, d.variants[0], 5, seed=1)
    assert other[0]["alpha"] != points[0]["alpha"]


def test_kink_points_are_exact() -> None:
    d = definition(Abs(x) + Max(x, 3) + Min(x, -3))
    points = [point["x"] for point in kink_points(d, d.variants[0])]
    assert sorted(points) == [-3.0, 0.0, 3.0]
    d = definition(Max(x, y))
    points = kink_points(d, d.variants[0])
    assert points
    assert all(point["x"] == point["y"] for point in points)
    # Not representable; smooth.
    d = definition(Max(x, Rational(1, 3)))
    assert kink_points(d, d.variants[0]) == []
    d = definition(exp(x))
    assert kink_points(d, d.variants[0]) == []


def test_kinks_at_numbers() -> None:
    @formula
    def f(x, threshold: float = 0.1):
        return Piecewise((x - threshold, x > threshold), (0, True))

    d = f.definition
    (point,) = kink_points(d, d.variants[0])
    assert point["x"] == point["threshold"] == 0.1015625


def test_hard_points_are_finite_in_float32() -> None:
    d = definition(exp(x) / x)
    points = [point["x"] for point in hard_points(d, d.variants[0])]
    assert 88.0 in points
    assert not {0.0, 104.0, 1000.0} & set(points)
    assert min(points) == -FLOAT32_MAX
    d = definition(Abs(x - 1))
    points = [point["x"] for point in hard_points(d, d.variants[0])]
    assert {1.0, 1 - 2.0**-24, 1 + 2.0**-23} <= set(points)
    d = definition(log(x) + y)
    assert all(p["x"] > 0 and abs(p["y"]) <= 2.0**40 for p in hard_points(d, d.variants[0]))


def test_float32() -> None:
    assert float32(0.1) == struct.unpack("f", struct.pack("f", 0.1))[0]
    assert float32(1e300) == FLOAT32_MAX


def _formulas() -> list[Any]:
    found: list[Any] = []
    for path in sorted(Path(library()).glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"library_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        with collect_formulas() as made:
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
        found += made
    return found


def test_the_library_has_points() -> None:
    for each in _formulas():
        d = each.definition
        for variant in d.variants:
            points = regular_points(d, variant, 4)
            assert len(points) == 4, d.name
            for point in [*points, *kink_points(d, variant)]:
                assert evaluate(d, variant, point).finite, (d.name, point)
                tensors = [point[leaf.name] for leaf in d.tensors if leaf.name in point]
                assert all(float32(value) == value for value in tensors), (d.name, point)


SCRIPT = """
import sympy as sp
from autofn import Formula
from autofn.verify.points import hard_points, kink_points, regular_points
x, y = sp.symbols("x y", real=True)
f = sp.Max(x, y, 1) * sp.log(x) + sp.Piecewise((x, sp.And(x > y, y > 2)), (y, True))
d = Formula.from_expr(f).definition
for points in (regular_points(d, d.variants[0], 9), kink_points(d, d.variants[0])):
    print(points)
print(hard_points(d, d.variants[0]))
"""


def test_points_depend_on_nothing_but_the_definition() -> None:
    root = str(Path(__file__).resolve().parent.parent)
    found = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "17")
    }
    assert len(found) == 1


def test_what_repeats_itself_at_whole_numbers_has_no_limit() -> None:
    @formula
    def noise_ratio(t):
        return -2 * log(sp.tan(sp.pi * t / 2))

    d = noise_ratio.definition
    truth = evaluate(d, d.variants[0], {"t": math.inf})
    assert all(mp.isnan(each) for each in truth.outputs)
