"""Recognition of heads, and derivatives with PyTorch's conventions at kinks."""

from __future__ import annotations

import pytest
import sympy
from sympy import Abs, Expr, Heaviside, Max, Min, Piecewise, cosh, erf, exp, log, sin, sqrt, tanh

from autofn import Formula, FormulaError, formula
from autofn import functions as heads
from autofn.derive import Differentiator, derive, pushed_forward, second_order
from autofn.functions import clamp, normcdf, sigmoid, sinc, softplus
from autofn.plan import plan
from autofn.recognise import recognise

x, y, z = sympy.symbols("x y z", real=True)
a = sympy.Symbol("a", real=True)
n = sympy.Symbol("n", integer=True)


@pytest.mark.parametrize(
    ("written", "head"),
    [
        (1 / (1 + exp(-x)), sigmoid(x)),
        (exp(x) / (1 + exp(x)), sigmoid(x)),
        (x / (1 + exp(-a * x)), x * sigmoid(a * x)),
        (exp(-x) / (1 + exp(-x)) ** 2, sigmoid(x) * sigmoid(-x)),
        (1 - 1 / (1 + exp(-x)), sigmoid(-x)),
        (3 / (2 + 2 * exp(x)), sympy.Rational(3, 2) * sigmoid(-x)),
        (log(1 + exp(x)), softplus(x)),
        (log(1 / (1 + exp(-x))), -softplus(-x)),
        (log(1 - 1 / (1 + exp(-x))), -softplus(x)),
        (Max(x, 0) + log(1 + exp(-Abs(x))), softplus(x)),
        ((1 + tanh(x)) / 2, sigmoid(2 * x)),
        (x * (1 + erf(x / sqrt(2))) / 2, x * normcdf(x)),
        (sympy.erfc(-x / sqrt(2)) / 2, normcdf(x)),
        (exp(x) - 1, heads.expm1(x)),
        (a * (exp(x / a) - 1), a * heads.expm1(x / a)),
        (log(1 + x), heads.log1p(x)),
        (log(cosh(x - y)), heads.logcosh(x - y)),
        (sin(a * x) / x, a * sinc(a * x)),
        (sin(a * x) ** 2 / a, x * sin(a * x) * sinc(a * x)),
        ((exp(a * x) - 1) / x, a * heads.phi(1, a * x)),
        (x / (exp(x) - 1), x / heads.expm1(x)),
        (y * x / (exp(y * x) - 1), 1 / heads.phi(1, y * x)),
        ((1 / (1 + exp(-x))) ** a, exp(-a * softplus(-x))),
        (x**a, heads.power(x, a)),
        (2**x, exp(x * log(2))),
        (x ** sympy.Rational(1, 3), heads.cbrt(x)),
    ],
)
def test_recognised(written: Expr, head: Expr) -> None:
    assert recognise(written) == head


def test_decimal_numbers_are_fractions_where_these_are_short() -> None:
    @formula
    def written(x):
        return (1.0 + x**2.0) ** 0.5 + 0.1 * x + 0.044715 * x**0.3

    (variant,) = written.definition.variants
    (found,) = variant.outputs
    expected = sqrt(1 + x**2) + x / 10 + sympy.Float(0.044715) * x ** sympy.Float(0.3)
    assert found == expected

    @formula
    def with_kink(x):
        return Max(x, 0.1) + Abs(x - 0.5)

    (variant,) = with_kink.definition.variants
    assert variant.outputs == (Max(x, sympy.Float(0.1)) + Abs(x - sympy.Rational(1, 2)),)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (1 + 2 * exp(x), heads.softplus(x + log(2))),
        (2 + exp(x), heads.softplus(x - log(2)) + log(2)),
        (1 + exp(x) + exp(-x), heads.softplus(heads.logcosh(x) + log(2))),
        (1 + exp(x) + exp(y), heads.softplus(heads.logaddexp(x, y))),
        (2 * exp(x) + 3 * sympy.cosh(y), heads.logaddexp(
            x + log(2), heads.logcosh(y) + log(3)
        )),
    ],
)  # fmt: skip
def test_log_of_a_sum_of_exponentials(written: Expr, found: Expr) -> None:
    assert recognise(log(written)) == found


def test_log_of_a_sum_that_may_be_negative_stays() -> None:
    assert recognise(log(1 - 2 * exp(x) + y)) == heads.log1p(y - 2 * exp(x))
    near, far = recognise(log(x + exp(y))).args
    assert near == (log(x + sympy.Min(2**31, exp(y))), exp(y) < 2**30)
    assert far == (y + heads.log1p(heads.times_exp(x, -y)), True)


def gradient(expr: Expr, at: dict[sympy.Symbol, float], by: sympy.Symbol = x) -> float:
    d = Differentiator([x, y, z], scales=[z])
    return float(d(recognise(expr), by).xreplace(at).doit().evalf())


@pytest.mark.parametrize(
    ("expr", "at", "by", "expected"),
    [
        (Max(x, 0), {x: 0}, x, 0),  # relu'(0)
        (Max(x, 0), {x: 1}, x, 1),
        (Abs(x), {x: 0}, x, 0),
        (Min(Max(x, 0), 6), {x: 6}, x, 0),  # relu6
        (Min(Max(x, -1), 1), {x: -1}, x, 0),  # hardtanh
        (clamp(x, -1, 1), {x: -1}, x, 1),  # the closed interval
        (clamp(x, -1, 1), {x: 1}, x, 1),
        (clamp(x, -1, 1), {x: 2}, x, 0),
        (Max(x, y), {x: 2, y: 2}, x, 0.5),
        (Max(x, y), {x: 2, y: 2}, y, 0.5),
        (Max(x, y, z), {x: 2, y: 2, z: 2}, z, 1 / 3),
        (Max(x, y, z), {x: 2, y: 2, z: 1}, x, 0.5),
        (Max(x, y, z), {x: 2, y: 2, z: 1}, z, 0),
        (Max(x, y, 2), {x: 2, y: 1}, x, 0),
        (Min(x, y), {x: 2, y: 2}, x, 0.5),
        (Max(x, sympy.floor(y)), {x: 2, y: 2.5}, x, 0),  # floor has no gradient
        (Max(x, a), {x: 2, a: 2}, x, 0),  # nor has a number
        (Piecewise((x, x > 0), (3 * x, True)), {x: 0}, x, 3),
        (Piecewise((x, x >= 0), (3 * x, True)), {x: 0}, x, 1),
        (Heaviside(x), {x: 0}, x, 0),
        (sympy.sign(x) * x, {x: -2}, x, -1),
        (sympy.floor(x) * x, {x: 2.5}, x, 2),
        (sympy.frac(x), {x: 2.5}, x, 1),
        (x**n, {x: 0, n: 0}, x, 0),  # as torch.pow
        (x**n, {x: -2, n: 3}, x, 12),
        (x**y, {x: 0, y: 2}, y, 0),
        ((x / y) ** a, {x: 0, y: 2, a: sympy.S.Half}, y, 0),  # not 0 * inf
        (sqrt(x / y**2), {x: 0, y: 2}, y, 0),
        ((x / y) ** y, {x: 2, y: 2}, y, -1),
        ((z * x) ** a, {x: 0, z: 2, a: sympy.S.Half}, z, 0),  # z is a scale
        (sqrt(z * x), {x: 0, z: 2}, z, 0),
        (Max(x, 0) + Min(0, exp(x) - 1), {x: 0}, x, 1),  # CELU is smooth there
        (Max(x, 0) - x * y + log(1 + exp(-Abs(x))), {x: 0, y: 0.25}, x, 0.25),
    ],
)
def test_gradient(
    expr: Expr, at: dict[sympy.Symbol, float], by: sympy.Symbol, expected: float
) -> None:
    assert gradient(expr, at, by) == pytest.approx(expected, abs=1e-15)


def test_no_delta_and_no_derivative_survive() -> None:
    everything = [Heaviside(x), sympy.sign(x), Abs(x), sympy.floor(x), Max(x, y), Abs(x) ** 3]
    d = Differentiator([x, y])
    for expr in everything:
        second = d(d(recognise(expr), x), x)
        assert not second.has(sympy.DiracDelta, sympy.Derivative, sympy.Subs)


def test_unsupported_function_is_named_with_its_line_and_the_nearest() -> None:
    @formula
    def wave(x):  # type: ignore[no-untyped-def]
        scaled = 2 * x
        return sympy.besselj(0, scaled)

    with pytest.raises(FormulaError, match="besselj") as error:
        derive(wave.definition, wave.definition.variants[0])
    assert error.value.where is not None
    assert error.value.where.line == wave.where.line + 2
    assert "nearest" in (error.value.remedy or "")


def test_gradient_that_is_not_linear_has_no_forward_mode() -> None:
    @formula
    def clipped(x):  # type: ignore[no-untyped-def]
        return x

    @clipped.gradient
    def _(grad, x):  # type: ignore[no-untyped-def]
        return Min(Max(grad, -1), 1)

    assert derive(clipped.definition, clipped.definition.variants[0]).jvp is None


def test_deep_composition_stays_small() -> None:
    def body(value: Expr) -> Expr:
        for _ in range(8):
            value = value / (1 + exp(-value)) + sin(value)
        return value

    from autofn.plan import plan

    made = plan(Formula.from_expr(body(x), "deep").definition, search=())
    assert made.variants[0].forward.operations < 60
    assert made.variants[0].vjp.operations < 250


def test_arguments_of_functions_stay_as_written_and_are_computed_once() -> None:
    from autofn.plan import plan

    inner = x + x**3 / 10
    made = plan(Formula.from_expr(y * sigmoid(inner), "gate").definition, search=()).variants[0]
    assert sum(node.op == "sigmoid" for node in made.vjp.nodes) == 2  # at inner and at -inner
    assert sum(node.op == "powi" for node in made.vjp.nodes) == 1


@pytest.mark.slow  # test_deep_composition_stays_small is its sibling
def test_large_shared_parts_take_no_time() -> None:
    from autofn.plan import plan

    left, right = x, y
    for _ in range(8):
        left, right = sigmoid(left * right) + right, tanh(left - right) * left
    made = plan(Formula.from_expr(left, "deep").definition, search=()).variants[0]
    assert made.forward.operations < 60
    assert made.double_vjp.operations < 1500


def test_constants_are_folded_and_signs_are_not_doubled() -> None:
    from autofn.plan import plan

    expr = sympy.erf((x - y) / sqrt(2)) * (x**2 + y**2) ** (1 / a)
    made = plan(Formula.from_expr(expr, "f", {"a": 2.0}).definition, search=()).variants[0]
    for program in (made.forward, made.vjp, made.double_vjp):
        nodes = program.nodes
        for node in nodes:
            if node.op in ("add", "sub", "mul", "neg"):
                assert not all(nodes[arg].op == "constant" for arg in node.args)
            if node.op == "neg":
                assert nodes[node.args[0]].op != "neg"


@pytest.mark.parametrize(
    ("expr", "what"),
    [
        (sympy.Float("1e400") * x, "beyond the largest float64"),
        (10**400 * x, "beyond the largest float64"),
        (sympy.asin(2) * x, "not real"),
    ],
)
def test_numbers_that_no_package_can_hold(expr: Expr, what: str) -> None:
    made = Formula.from_expr(expr, "f").definition
    with pytest.raises(FormulaError, match=what):
        derive(made, made.variants[0])


def test_numbers_are_judged_as_a_whole() -> None:
    made = Formula.from_expr(x * log(sympy.Integer(10) ** 400), "f").definition
    assert derive(made, made.variants[0]).vjp


def test_differences_stay_together() -> None:
    """x - y in a denominator that has no factors: x**2 - 2*x*y + y**2 would cancel."""
    y, s = sympy.symbols("y s", real=True)
    d = (x - y) ** 2
    written = Formula.from_expr(d / (2 * s**2 + d), name="cauchy", params={"s": 1.0})
    derivation = derive(written.definition, written.definition.variants[0])
    for entry in derivation.vjp:
        assert entry is not None and entry.has(x - y) and not entry.has(x * y)


def test_a_derivative_that_loses_nothing_has_no_series() -> None:
    """x - tanh(x) has one near 0, its derivative tanh(x)**2 has none."""

    @formula
    def shrink(x):  # type: ignore[no-untyped-def]
        return x - tanh(x)

    (variant,) = plan(shrink.definition, search=()).variants
    assert variant.derivation.forward[0].has(sympy.Piecewise)
    (gradient,) = variant.derivation.vjp
    assert gradient is not None and not gradient.has(sympy.Piecewise)


def test_mixed_second_derivatives_are_derived_once() -> None:
    """d2/dxdy stands for d2/dydx, but not in a gradient of the user's own."""
    gx, gy = 2 * x * y**3, 3 * x**2 * y**2
    directions = s, t = sympy.symbols("s t", real=True)
    terms = second_order((gx, gy), (x, y), directions, variables=(x, y))
    found = {(each.output, each.direction): each.expr for each in terms}
    assert found == {
        (0, 0): 2 * s * y**3,
        (0, 1): 6 * t * x * y**2,
        (1, 0): 6 * s * x * y**2,
        (1, 1): 6 * t * x**2 * y,
    }
    own = second_order((5 * x * y, gy), (x, y), directions)
    mixed = {each.expr for each in own if each.output != each.direction}
    assert mixed == {5 * s * x, 6 * t * x * y**2}
    pushed = pushed_forward((None, gy), (x, y), directions, variables=(x, y))
    assert [(each.output, each.direction) for each in pushed] == [(1, 0), (1, 1)]
