"""Regimes near zero: their polynomials in derivatives and for kernels."""

import math

import mpmath
import pytest
import sympy
from sympy import Expr

from autofn import Learnable, formula
from autofn import functions as heads
from autofn.passes import FIRST_ORDER
from autofn.plan import plan
from autofn.rewrite.formats import DOUBLE, SINGLE
from autofn.rewrite.near_zero import for_kernels, with_regimes
from autofn.rewrite.simulate import simulated


@pytest.mark.parametrize("turned", [False, True])
def test_regimes_in_a_sum_and_its_mirror(turned: bool) -> None:
    """p*(x - y) where the border is written p*(y - x), beside x - y, keeps its value."""
    x, y, p = sympy.symbols("x y p", real=True)
    u = p * (y - x) if turned else p * (x - y)
    value: Expr = sympy.Float("0.1", 30)
    for k in range(2, 10):
        value = value * p * (x - y) + sympy.Float(1, 30) / k
    node = sympy.Piecewise(
        ((x - y) * value, sympy.Abs(u) < sympy.Rational(1, 4)),
        (sympy.log(1 + p * (x - y)) / p, True),
        evaluate=False,
    )
    at = {x: 0.75, y: 0.5, p: 0.375}
    for expr in (node, node.diff(p), node.diff(x, p)):
        for made in (with_regimes(expr), for_kernels(expr)):
            got, want = (float(each.subs(at)) for each in (made, expr))
            assert got == pytest.approx(want, rel=1e-12)


def test_a_factor_does_not_hide_the_limit_of_a_sum() -> None:
    """m*(coth(m*x) - 1/(m*x)): multiplied out, m*coth(m*x) alone has a limit, and 1/x has none."""
    b, m, t = sympy.symbols("b m t", real=True)
    u = b * m / t
    made = with_regimes(m * (1 / sympy.tanh(u) - 1 / u))
    at = {b: sympy.Float("1e-9", 30), m: 2, t: 1}
    assert float(made.subs(at)) == pytest.approx(4e-9 / 3, rel=1e-9)


def test_a_multiple_of_a_function_of_a_quotient_has_a_regime() -> None:
    """The gradient of c**2*(1 - exp(-(x/c)**2))/2 by c, and a variance with a triple pole in a."""
    a, c, t, x = sympy.symbols("a c t x", real=True)
    welsch = -c * heads.expm1(-((x / c) ** 2)) - x**2 * sympy.exp(-((x / c) ** 2)) / c
    made = with_regimes(welsch)
    assert float(made.subs({x: 1e-6, c: 3.0})) == pytest.approx(1e-24 / 54, rel=1e-9)
    terms = t - heads.times_exp(1 / a, -2 * a * t) / 2 + 2 * heads.times_exp(1 / a, -a * t)
    made = with_regimes((terms - 3 / (2 * a)) / a**2)
    assert float(made.subs({a: 0, t: 0.5})) == pytest.approx(0.125 / 3)


def test_logarithms_of_what_is_1_at_zero_keep_their_digits() -> None:
    @formula
    def hyperbolic(x):  # type: ignore[no-untyped-def]
        return sympy.log(sympy.sinh(x) / x)

    @formula
    def wave(x):  # type: ignore[no-untyped-def]
        return sympy.log(sympy.sin(x) / x)

    for op, sine in ((hyperbolic, mpmath.sinh), (wave, mpmath.sin)):
        (variant,) = plan(op.definition, search=FIRST_ORDER).variants
        kernel = variant.kernels["forward"]
        for at in (1e-12, 1e-6, -1e-3, 0.02, 0.6, 1.4):
            with mpmath.workdps(60):
                want = mpmath.log(sine(mpmath.mpf(at)) / at)
            for form, program, most in ((SINGLE, kernel, 1e-6), (DOUBLE, kernel.wide, 4e-15)):
                (got,) = simulated(program or kernel, {"x": at}, form)
                assert abs(got - want) <= most * abs(want), (op.definition.name, at)


def test_stability_functions_keep_their_digits_near_neutral_air() -> None:
    """Paulson's, of wind and of heat: singular at z = 1/16, so that their series end before."""

    @formula
    def wind(z):  # type: ignore[no-untyped-def]
        x = (1 - 16 * z) ** sympy.Rational(1, 4)
        sums = 2 * sympy.log((1 + x) / 2) + sympy.log((1 + x**2) / 2)
        return sums - 2 * sympy.atan(x) + sympy.pi / 2

    @formula
    def heat(z):  # type: ignore[no-untyped-def]
        return 2 * sympy.log((1 + sympy.sqrt(1 - 16 * z)) / 2)

    for op in (wind, heat):
        (variant,) = plan(op.definition, search=(), passes=("forward",)).variants
        (written,) = op.definition.variants[0].outputs
        (z,) = written.free_symbols
        for at in (2.0**-60, -(2.0**-20), 2.0**-8, -(2.0**-7)):
            want = written.subs(z, sympy.Float(at, 60)).evalf(40)
            for form, most in ((SINGLE, 1e-6), (DOUBLE, 4e-15)):
                (got,) = simulated(variant.kernels["forward"], {"z": at}, form)
                assert abs(float(got) - float(want)) <= most * abs(float(want)), (at, form)


def test_a_logarithm_less_its_argument_over_what_vanishes() -> None:
    """The velocity in a halo of dark matter (Navarro, Frenk and White), of which 1 - log(1 + w)/w
    is half the gradient."""

    @formula
    def velocity(x, c: float = 10.0):  # type: ignore[no-untyped-def]
        return sympy.sqrt((sympy.log(1 + c * x) - c * x / (1 + c * x)) / x)

    (variant,) = plan(velocity.definition, search=(), passes=FIRST_ORDER).variants
    for at in (2.0**-130, 2.0**-60, 2.0**-10, 3.0):
        with mpmath.workdps(200):
            x, c = mpmath.mpf(at), 10
            root = mpmath.sqrt((mpmath.log(1 + c * x) - c * x / (1 + c * x)) / x)
            by = c**2 / (1 + c * x) ** 2 - root**2 / x
            want = by / (2 * root)
        got = simulated(variant.kernels["backward"], {"x": at, "c": 10.0, "grad": 1.0}, DOUBLE)[-1]
        assert abs(got - want) <= 1e-9 * abs(want), at


def test_derivatives_by_a_scale_do_not_cancel_with_its_inverse() -> None:
    """Debye's form factor 2*(exp(-x) + x - 1)/x**2, x = (q*r)**2, q not negative."""

    @formula(domain={"q": sympy.Interval(0, sympy.oo)})
    def polymer(q, r: Learnable = 2.0):  # type: ignore[no-untyped-def]
        x = (q * r) ** 2
        return 2 * (sympy.exp(-x) + x - 1) / x**2

    (variant,) = plan(polymer.definition, search=FIRST_ORDER).variants
    kernel = variant.kernels["backward"]
    for q, r in ((2.0**-40, 0.25), (2.0**-17, 0.25), (0.125, 2.0), (0.75, 1.0)):
        with mpmath.workdps(120):
            x = (mpmath.mpf(q) * r) ** 2
            slope = -2 * mpmath.expm1(-x) / x**2 - 4 * (mpmath.expm1(-x) + x) / x**3
            want = slope * 2 * q * q * r
        for form, program, most in ((SINGLE, kernel, 1e-6), (DOUBLE, kernel.wide, 4e-15)):
            got = simulated(program or kernel, {"q": q, "r": r, "grad": 1.0}, form)[-1]
            assert abs(got - want) <= most * abs(want), (q, r)


def test_a_polynomial_in_another_variable_is_left_as_it_is() -> None:
    """Its digits cancel in powers of t, and its coefficients are no numbers."""

    @formula
    def isometric(phi, e: float = 0.0818):  # type: ignore[no-untyped-def]
        return sympy.atanh(sympy.sin(phi)) - e * sympy.atanh(e * sympy.sin(phi))

    (variant,) = plan(isometric.definition, search=(), passes=FIRST_ORDER).variants
    sine, cosine, e = math.sin(0.75), math.cos(0.75), 0.0818
    value = math.atanh(sine) - e * math.atanh(e * sine)
    slope = 1 / cosine - e**2 * cosine / (1 - (e * sine) ** 2)
    for name, truth in (("forward", value), ("backward", slope)):
        got = simulated(variant.kernels[name], {"phi": 0.75, "e": e, "grad": 1.0, "out": value})
        assert got == [pytest.approx(truth, rel=1e-6)]
