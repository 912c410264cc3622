"""Which values are saved, which axes values have, and what programs and kernels come of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sympy
from mpmath import mp
from sympy import Abs, Max, Symbol, exp, log, sin, sqrt, tanh

from autofn import FormulaError, Learnable, PerChannel, formula
from autofn.model import Definition
from autofn.passes import FIRST_ORDER
from autofn.plan import Plan, kernels, plan
from autofn.program import CHANNEL, ELEMENT, Program
from autofn.rewrite.simulate import simulated
from autofn.rewrite.truth import exact

# mypy: disable-error-code="no-untyped-def"


@formula
def decay(x):
    return exp(-x)


@formula
def twice_as_fast(x):
    return exp(-2 * x)


@formula
def squash(x):
    return tanh(x)


@formula(save="output")
def squash_from_output(x):
    return tanh(x)


@formula(save="output")
def gate_from_output(x):
    return 1 / (1 + exp(-x))


@formula
def scaled(x, y, alpha: Learnable = 0.5, gamma: PerChannel = 1.0, beta: float = 2.0):
    return gamma * x * tanh(alpha * x) + beta * y


def made(definition: Definition) -> Plan:
    return plan(definition)


def test_an_output_takes_the_place_of_an_input_where_nothing_is_lost() -> None:
    assert made(decay.definition).saved == ("out",)
    assert made(squash.definition).saved == ("x",)
    # Twice a subnormal number of 16 bits is not what twice the exact one rounds to.
    assert made(twice_as_fast.definition).saved == ("x",)


@pytest.mark.parametrize("each", [squash_from_output, gate_from_output])
def test_save_output_trades_accuracy(each) -> None:
    assert made(each.definition).saved == ("out",)


def test_save_output_is_refused_where_it_cannot_be() -> None:
    @formula(save="output")
    def mixed(x):
        return x * tanh(x)

    with pytest.raises(FormulaError, match="no form of the gradient of"):
        plan(mixed.definition)


def test_each_gradient_needs_only_its_own_values() -> None:
    needed = dict(made(scaled.definition).saved_for)
    assert needed["y"] == frozenset()
    assert needed["x"] == {"x", "alpha", "gamma"}
    assert needed["gamma"] == {"x", "alpha"}


def axes_of(program: Program, name: str) -> frozenset[str]:
    return next(each.axes for each in program.inputs if each.name == name)


def test_axes_follow_broadcasting() -> None:
    (variant,) = made(scaled.definition).variants
    assert axes_of(variant.forward, "x") == {ELEMENT}
    assert axes_of(variant.forward, "gamma") == {CHANNEL}
    assert axes_of(variant.forward, "alpha") == frozenset()
    last = variant.forward.nodes[-1]
    assert last.axes == {ELEMENT, CHANNEL}
    # The transpose of broadcasting: every gradient is summed to its input's axes.
    assert {output.name: output.like for output in variant.vjp.outputs} == {
        name: name for name in ("x", "y", "alpha", "gamma")
    }
    numbers = [each.name for each in variant.forward.inputs if each.number]
    assert numbers == ["beta"]


def test_common_subexpressions_are_computed_once() -> None:
    @formula
    def twice(x):
        return exp(x) * (1 + exp(x)) + exp(x) ** 3

    (variant,) = made(twice.definition).variants
    assert sum(node.op == "exp" for node in variant.forward.nodes) <= 3
    assert len(set(variant.vjp.nodes)) == len(variant.vjp.nodes)


def test_kernels_take_what_their_maths_needs() -> None:
    found = {kernel.function: kernel for kernel, _ in kernels(made(scaled.definition))}
    backward = found["scaled_backward"]
    assert [(o.name, o.role) for o in backward.inputs] == [
        ("grad", "tensor"),
        ("x", "tensor"),
        ("alpha", "parameter"),
        ("gamma", "parameter"),
        ("beta", "number"),
    ]
    assert [o.role for o in backward.outputs] == ["tensor", "tensor", "parameter", "parameter"]


def test_16_bit_types_do_with_less_than_float32_where_their_range_allows() -> None:
    @formula
    def cancelling(x, y, s):
        return exp(-s) * (x - y) ** 2 + s

    @formula
    def oscillating(x, omega: float = 30.0):
        return sin(omega * x)

    found = {
        kernel.function: program
        for each in (cancelling, oscillating)
        for kernel, program in kernels(made(each.definition))
    }
    # Digits to spare; but exp(-s) times a square may overflow before a sum makes it smaller.
    cheaper = found["cancelling_forward"]
    assert cheaper.arithmetic == "quick double"
    assert cheaper.arithmetic16 in ("quick", "single", "rescued")
    # omega * x overflows in bfloat16 too.
    assert found["oscillating_forward"].arithmetic != "single"
    assert found["oscillating_forward"].arithmetic16 == found["oscillating_forward"].arithmetic


def test_terms_of_a_summed_gradient_do_with_what_16_bits_need() -> None:
    @formula
    def sloped(x, beta: Learnable = 1.0):
        return x / (1 + exp(-beta * x))

    found = {k.pass_name: p for k, p in kernels(made(sloped.definition))}
    assert found["backward"].arithmetic16 == "quick"


def test_a_gradient_that_is_none_has_no_kernel() -> None:
    @formula
    def stopped(x):
        return Max(x, 0)

    @stopped.gradient
    def _(grad, x):
        return None

    assert [kernel.pass_name for kernel, _ in kernels(made(stopped.definition))] == ["forward"]


def test_what_is_nearly_constant_is_not_clamped_where_the_rest_cancels() -> None:
    """It is 1 to 90 bits beyond -64, and its derivative what it lacks of 1."""

    @formula
    def odds(x):
        return x * exp(-x) / (1 + x * exp(-x))

    (variant,) = made(odds.definition).variants
    with mp.workprec(400):
        far = mp.mpf(-100)
        truth = mp.exp(-far) * (1 - far) / (1 + far * mp.exp(-far)) ** 2
        for program in (variant.vjp, variant.kernels["backward"]):
            (value,) = exact(program, {"x": -100.0})
            assert abs(value / truth - 1) < 1e-15


def test_gradients_that_are_clamped_differently_share_exponentials() -> None:
    """A gradient that is constant far out is of a clamped tensor; the other one is not."""

    @formula
    def weighted(x, t):
        return t * (1 / (1 + exp(-x))) ** 2 * log(1 + exp(x)) + (1 - t) * log(1 + exp(-x))

    (variant,) = made(weighted.definition).variants
    program = variant.kernels["backward"]
    assert any(node.op == "clamp" for node in program.nodes)
    softplus = [node for node in program.nodes if node.op == "softplus"]
    assert all(program.nodes[arg].op in ("input", "neg") for node in softplus for arg in node.args)


def test_a_zero_branch_hides_what_it_is_multiplied_with() -> None:
    """inf * 0 must not become NaN: the product goes into the branches."""

    @formula
    def gated(x, y):
        return exp(y) * Max(x, 0)

    (variant,) = made(gated.definition).variants
    selects = [node for node in variant.vjp.nodes if node.op == "select"]
    assert selects
    for select in selects:
        otherwise = variant.vjp.nodes[select.args[2]]
        assert otherwise.op == "constant"


@formula
def log_share(x, y, r: Learnable = 2.0):
    return y * log(x / (x + r))


def test_a_limit_brings_no_input_into_a_gradient() -> None:
    """That of y is selected at infinite x; y itself is not saved for it."""
    (variant,) = made(log_share.definition).variants
    for program in (variant.vjp, variant.kernels["backward"]):
        (of_y,) = (output.node for output in program.outputs if output.like == "y")
        needed = {of_y}
        for k in range(of_y, -1, -1):
            needed.update(program.nodes[k].args if k in needed else ())
        assert "y" not in {program.nodes[k].input for k in needed}


def test_what_cancels_by_the_sign_of_an_input_is_gone() -> None:
    """The gradient of a Matern kernel, of which no digits would be left near 0."""
    x = Symbol("x", real=True)

    @formula
    def matern(x):
        return (1 + sqrt(3) * Abs(x)) * exp(-sqrt(3) * Abs(x))

    (variant,) = made(matern.definition).variants
    (gradient,) = variant.derivation.vjp
    assert gradient == -3 * Symbol("_grad", real=True) * x * exp(-sqrt(3) * Abs(x))


def test_what_cancels_by_the_sign_of_a_sum_is_gone() -> None:
    """The gradient of a rational function whose numerator has what is absolute below."""
    x, b, grad = (Symbol(name, real=True) for name in ("x", "b", "_grad"))

    @formula
    def rational(x, b: Learnable = 0.5):
        return (2 + b * x + x**2) / (1 + Abs(b * x + x**2))

    (variant,) = made(rational.definition).variants
    gradient = variant.derivation.vjp[0]
    inner = b * x + x**2
    expected = grad * (b + 2 * x) * (1 - 2 * sympy.sign(inner)) / (1 + Abs(inner)) ** 2
    at = {x: sympy.Rational(7, 10), b: -sympy.Rational(3, 10)}
    assert sympy.expand(gradient.subs(at) - expected.subs(at)) == 0
    assert isinstance(gradient, sympy.Mul)


def test_what_cancels_by_the_signs_of_a_difference_and_its_terms_is_gone() -> None:
    """A relative error's gradient by p is 0 where t is, and else of the sign of p - t."""
    p, t, grad = (Symbol(name, real=True) for name in ("p", "t", "_grad"))

    @formula
    def relative(p, t):
        return Abs(p - t) / (Abs(p) + Abs(t))

    (variant,) = made(relative.definition).variants
    sides = sympy.sign(p - t) * (t * sympy.sign(p) + Abs(t))
    assert variant.derivation.vjp[0] == grad * sides / (Abs(p) + Abs(t)) ** 2


def test_each_result_is_looked_at_where_it_is_about_to_vanish() -> None:
    """Of a potential's gradients that by b vanishes at 30, and that by r at 5e5: r**7 overflows."""

    @formula(domain={"r": sympy.Interval.open(0, sympy.oo)})
    def potential(r, b: Learnable = 3.0):
        return exp(-b * r) - 10 / r**6

    (variant,) = made(potential.definition).variants
    at = {"grad": 1.0, "r": 4e5, "b": 3.0}
    by_r, _ = simulated(variant.kernels["backward"], at)
    assert by_r == pytest.approx(60 / 4e5**7, rel=1e-5)


def test_a_share_of_powers_has_a_gradient_by_its_exponent_far_out() -> None:
    """x**n/(k**n + x**n), of which terms with log(x) cancel."""

    @formula(domain={"x": sympy.Interval.open(0, sympy.oo)})
    def share(x, k: Learnable = 1.0, n: Learnable = 2.0):
        return x**n / (k**n + x**n)

    (variant,) = made(share.definition).variants
    at = {"grad": 1.0, "x": 2.0**30, "k": 2.0, "n": 2.0}
    *_, by_n = simulated(variant.kernels["backward"], at)
    assert by_n == pytest.approx(2.0**-58 * 29 * math.log(2), rel=1e-5)


@pytest.mark.parametrize("x", [-650.0, -712.0, -800.0, -1000.0, -1100.0])
def test_what_overflows_in_double_too_vanishes(x: float) -> None:
    """CoLU: parts of its gradient, exp(x) far below zero, are infinite from -709 on."""

    @formula
    def colu(x):
        return x / (1 - x * exp(-(x + exp(x))))

    (variant,) = plan(colu.definition, search=("backward",)).variants
    (value,) = simulated(variant.kernels["backward"], {"grad": 1.0, "x": x})
    assert value == 0


def test_a_cotangent_of_zero_adds_nothing_where_its_slope_overflows() -> None:
    """The gradient of the second output alone, and its derivatives, where exp(x) is infinite."""

    @formula
    def growth(x, y):
        return y * exp(x), x * y

    (variant,) = plan(growth.definition, search=()).variants
    at = {"grad_out0": 0.0, "grad_out1": 2.0, "x": 1000.0, "y": 3.0}
    assert simulated(variant.kernels["backward"], at) == [6, 2000]
    double = variant.kernels["double_backward"]
    found = zip(double.outputs, simulated(double, at | {"_d_x": 1.0, "_d_y": 0.0}), strict=True)
    got = {output.name: value for output, value in found}
    assert got["x"] == 0 and got["y"] == 2


def test_the_gradient_of_each_output_is_looked_at_alone() -> None:
    """exp(-z**2/2) of a large z: nothing beside the other output's part, but not without it."""

    @formula
    def bell(x, y):
        z = x - y
        return z**2, exp(-(z**2) / 2)

    (variant,) = plan(bell.definition, search=("backward",)).variants
    backward = variant.kernels["backward"]
    at = {"grad_out0": 0.0, "grad_out1": 1.0, "x": 0.12160826474428177, "y": -10.383938789367676}
    for got, true in zip(simulated(backward, at), exact(backward, at), strict=True):
        assert abs(got - true) <= 8 * mp.mpf(2) ** (mp.mag(true) - 24)


def test_a_limit_that_another_tensor_decides_is_no_constant() -> None:
    """Of deep water's waves the frequency's slope by k: not that of k = 1."""

    @formula(domain={name: sympy.Interval.open(0, sympy.oo) for name in "kh"})
    def wave(k, h, g: float = 9.81):
        return sqrt((g * k + k**3 / 9) * tanh(k * h))

    (variant,) = plan(wave.definition, search=("backward",)).variants
    at = {"grad": 1.0, "k": 4.0, "h": math.inf, "g": 9.81}
    by_k, by_h = simulated(variant.kernels["backward"], at)
    assert by_k == pytest.approx((9.81 + 16 / 3) / 2 / math.sqrt(39.24 + 64 / 9), rel=1e-6)
    assert by_h == 0


def test_what_is_tried_again_in_double_is_not_taken_for_0_before() -> None:
    """A gate's rate, where exp(-x/10) overflows in single precision alone and n is not 0."""

    @formula
    def rate(v, n):
        opens = (v + 55) / (1 - exp(-(v + 55) / 10)) / 100
        return opens * (1 - n) - n * exp(-(v + 65) / 80) / 8

    (variant,) = plan(rate.definition, search=("forward",)).variants
    (value,) = simulated(variant.kernels["forward"], {"v": -1000.0, "n": 0.3})
    assert value == pytest.approx(-0.3 * math.exp(935 / 80) / 8, rel=1e-6)


def test_a_factor_that_two_shared_products_have_counts_twice() -> None:
    """Its sigmoid comes last in a product of kernels, taken out of those that have it: once."""

    @formula
    def poly_focal(x, y, gamma: float = 2.0):  # type: ignore[no-untyped-def]
        p = 1 / (1 + sympy.exp(-x))
        right = y * p + (1 - y) * (1 - p)
        return (1 - right) ** (gamma + 1) - (1 - right) ** gamma * sympy.log(right)

    (variant,) = plan(poly_focal.definition, search=()).variants
    double = variant.kernels["double_backward"]
    names = [output.name for output in double.outputs]
    for x, y, want in (
        (-3.0, 0.0, 0.0017515184),
        (1.0, 0.0, 0.4763487271),
        (1.0, 1.0, 0.192725293),
    ):
        point = {"x": x, "y": y, "gamma": 2.0, "grad": 1.0, "_d_x": 1.0, "_d_y": 0.0}
        assert simulated(double, point)[names.index("x")] == pytest.approx(want, rel=1e-5)


def test_a_first_try_is_in_doubt_where_a_logarithm_is_of_little() -> None:
    """Of 1 + y*(exp(x) - 1), which at the label 1 has as many digits as exp(x) beside 1."""

    @formula
    def poly_loss(x, y):  # type: ignore[no-untyped-def]
        p = 1 / (1 + sympy.exp(-x))
        right = y * p + (1 - y) * (1 - p)
        return 1 - right - sympy.log(right)

    (variant,) = plan(poly_loss.definition, search=FIRST_ORDER).variants
    for x in (-36.0, -30.0, -24.0):
        (got,) = simulated(variant.kernels["forward"], {"x": x, "y": 1.0})
        assert got == pytest.approx(1 - x)


def test_powers_are_told_what_base_and_exponent_lost() -> None:
    """At 2e6 the exponent's last digit is 29 of the result's; the base near 0 has lost some."""

    @formula
    def beta_model(r, b: float = 0.66):
        return (1 + r**2) ** (-3 * b / 2)

    @formula
    def kumaraswamy(x, a: float = 2.3, b: float = 3.1):
        return 1 - (1 - x**a) ** b

    numbers = {name: float(np.float32(value)) for name, value in (("a", 2.3), ("b", 3.1))}
    single = {"b": float(np.float32(0.66))}
    for made_of, points, given in (
        (beta_model, (2.3e6, 1e6, 40.0), single),
        (kumaraswamy, (0.97, 0.999, 0.5), numbers),
    ):
        (variant,) = plan(made_of.definition, search=FIRST_ORDER).variants
        backward = variant.kernels["backward"]
        for x in points:
            name = made_of.definition.tensors[0].name
            at = {"grad": 1.0, name: float(np.float32(x)), **given}
            (got,) = simulated(backward, at)
            assert got == pytest.approx(float(exact(backward, at)[0]), rel=4e-7)
