"""Forms of a program, and polynomials in place of one, are the same function."""

from __future__ import annotations

import pytest
import sympy
from derivations import single, x, y
from mpmath import mp
from sympy import Expr, Symbol, exp, log, tanh

from autofn import formula
from autofn import functions as heads
from autofn.plan import plan
from autofn.program import ELEMENT, Input, Result, lower
from autofn.rewrite import candidates, far_out, near_root
from autofn.rewrite.formats import EXACT
from autofn.rewrite.simulate import simulated
from autofn.rewrite.truth import exact


def float32_spacing(value: mp.mpf) -> mp.mpf:
    return mp.ldexp(1, max(mp.mag(value) - 24, -149))


GROWING = sympy.sqrt(3 + 2 * x**2)


ROOTED_FRACTION = 1 / (x + GROWING) - x * (1 + 2 * x / GROWING) / (x + GROWING) ** 2


EXPRESSIONS = [
    x * heads.sigmoid(x),
    y * heads.sigmoid(x) * (1 + x * heads.sigmoid(-x)),
    x * tanh(heads.softplus(x)),
    x * heads.log1p(heads.sigmoid(x)),
    x * sympy.erf(heads.softplus(x)),
    y * heads.sech2(x),
    x**2 / (1 + x**2),
    y / (1 + sympy.Abs(x)) ** 2,
    heads.softplus(x) - x * y,
    x * tanh(exp(x)),
    heads.sigmoid(2 * x) * heads.sigmoid(-3 * x),
    1 / sympy.cosh(x),
    y * tanh(x / y),
    1 / (1 + (x * y) ** 2),
    x * heads.sinc(x * y) + heads.spherical_bessel(1, x * y),
    (1 / (4 * (5 + x**2) ** 2) + sympy.Rational(1, 7) + x**2) / y,
    exp(17.625 / (243.125 + x) - 17.625 * x / (243.125 + x) ** 2),
    ROOTED_FRACTION,
    heads.sigmoid(x) - y * heads.sigmoid(-x),
    1 + y**2 * (heads.phi(1, x * y) - heads.phi(2, x * y)),
    y * heads.phi(2, x * y) / heads.phi(1, x * y) + 1 / heads.phi(1, -x * y),
    sympy.sin(2 * x) + y * sympy.cos(x),
    y * (x * heads.normcdf(x / y) + y * exp(-((x / y) ** 2) / 2) / sympy.sqrt(2 * sympy.pi)),
]


FORMS = [name for name, _ in candidates.FORMS]


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_the_same_function(name: str) -> None:
    form = dict(candidates.FORMS)[name]
    inputs = [(s, Input(s.name, frozenset({ELEMENT}))) for s in (x, y)]
    changed = 0
    for expr in EXPRESSIONS:
        new = form(expr, frozenset({x}))
        changed += new != expr
        before = lower(inputs, [Result("y", expr)], for_kernels=True)
        after = lower(inputs, [Result("y", new)], for_kernels=True)
        for at in (-1e12, -300.0, -70.5, -3.3, -0.4, 0.0, 0.3, 2.1, 60.5, 200.0, 1e12):
            (old,) = exact(before, {"x": at, "y": 0.7})
            (got,) = exact(after, {"x": at, "y": 0.7})
            with mp.workprec(EXACT):
                close = mp.mpf(2) ** -54 * abs(old) + mp.mpf(10) ** -400
                assert abs(got - old) <= close, (expr, at)
    assert changed


def test_sums_of_fractions_are_one_without_what_cancels() -> None:
    decimal = 17.62 / (243.12 + x) - 17.62 * x / (243.12 + x) ** 2
    one = dict(candidates.FORMS)["over one denominator"](decimal, frozenset({x}))
    assert one == sympy.Float("4283.7744", 40) / (243.12 + x) ** 2
    long = sympy.Float(0.39894228040143268)
    one = dict(candidates.FORMS)["over one denominator"](long / x - 1 / (x + 1), frozenset({x}))
    assert float(one.xreplace({x: sympy.S.One})) == 0.39894228040143268 - 0.5
    one = dict(candidates.FORMS)["over one denominator"](ROOTED_FRACTION, frozenset({x}))
    assert one == 3 / (GROWING * (x + GROWING) ** 2)


def test_one_fraction_leaves_squared_differences() -> None:
    """The gradient by z of a divergence of two normal distributions, (1 + (x - y)**2)/(2*z**2)."""
    z = Symbol("z", positive=True)
    expr = 1 / z - (1 + (x - y) ** 2) / z**3
    one = dict(candidates.FORMS)["over one denominator"](expr, frozenset({x, y, z}))
    assert one != expr
    assert one.has((x - y) ** 2)
    assert not one.has(x**2)


def test_a_normal_form_leaves_squared_differences() -> None:
    """Multiplied out, they cancel: those of a Student-t likelihood."""
    s = Symbol("s", real=True)
    form = dict(candidates.FORMS)["exponential normal form"]
    expr = (x - y) / (4 + (x - y) ** 2 * exp(-2 * s))
    found = form(expr, frozenset({x, y, s}))
    assert found != expr
    assert found.has((x - y) ** 2)
    assert not found.has(x**2)


ROOTED = (
    x * tanh(x) - sympy.Rational(7, 10),
    x * exp(-(x**2)) - x**3 / 9,
    y**2 * (heads.sigmoid(x) + x * heads.sigmoid(x) * heads.sigmoid(-x)),
    log(3 + x**2) - 2,
    log(x / (1 - x)),
)


@pytest.mark.parametrize("expr", ROOTED, ids=str)
def test_polynomials_about_roots_are_the_function(expr: Expr) -> None:
    inputs = [(s, Input(s.name, frozenset({ELEMENT}))) for s in (x, y)]
    before = lower(inputs, [Result("y", expr)], for_kernels=True)
    for reach in (sympy.Rational(1, 4), sympy.Rational(1, 2)):
        branches = near_root.about_roots(expr, frozenset({x}), reach)
        assert branches
        for beside, where in branches:
            after = lower(inputs, [Result("y", beside)], for_kernels=True)
            radius = float(where.rhs)
            root = float(sum(where.lhs.args[0].args[1:]))  # of offset(x, high, low)
            for part in (-0.99, -0.4, -1e-3, 1e-6, 0.2, 0.99):
                point = {"x": single(root + part * radius), "y": 0.7}
                (old,), (got,) = exact(before, point), exact(after, point)
                (rounded,) = simulated(after, point)
                with mp.workprec(EXACT):
                    assert abs(got - old) <= mp.mpf(2) ** -54 * abs(old), (reach, part)
                    assert abs(rounded - old) <= 4 * float32_spacing(old), (reach, part)


def test_functions_without_a_root_or_with_many_have_no_polynomials() -> None:
    for expr in (sympy.cosh(x), exp(-(x**2)) * sympy.cos(x), y * x**2, x * y + exp(x)):
        assert not near_root.about_roots(expr, frozenset({x}), sympy.Rational(1, 4))


FAR_OUT = (
    y * (1 + x**2) ** sympy.Rational(-3, 2),
    sympy.atan(x) + sympy.pi / 2 + x / (1 + x**2),
    heads.sigmoid(x) * (1 + x * heads.sigmoid(-x)),
    x**2 * sympy.tanh(heads.softplus(x)),
)


@pytest.mark.parametrize("expr", FAR_OUT, ids=str)
@pytest.mark.parametrize("edge", candidates.EDGES)
def test_polynomials_far_out_are_the_function(expr: Expr, edge: int) -> None:
    inputs = [(s, Input(s.name, frozenset({ELEMENT}))) for s in (x, y)]
    before = lower(inputs, [Result("y", expr)], for_kernels=True)
    branches = far_out.far_out(expr, frozenset({x}), edge)
    assert branches or edge < 64
    for value, where in branches:
        after = lower(inputs, [Result("y", value)], for_kernels=True)
        for size in (1.01, 1.7, 30.0, 1e5, 1e12):
            for sign in (1, -1):
                if not where.xreplace({x: sympy.Float(sign * size * edge)}):
                    continue
                point = {"x": single(sign * size * edge), "y": 0.7}
                (old,), (got,) = exact(before, point), exact(after, point)
                (rounded,) = simulated(after, point)
                with mp.workprec(EXACT):
                    assert abs(got - old) <= mp.mpf(2) ** -54 * abs(old), (size, sign)
                    assert abs(rounded - old) <= 4 * float32_spacing(old), (size, sign)


def test_functions_that_are_no_powers_far_out_have_no_polynomials_there() -> None:
    for expr in (sympy.cosh(x), log(1 + x**2), x * sympy.cos(x), x * y + exp(x)):
        assert not far_out.far_out(expr, frozenset({x}), 64)


def test_a_fraction_with_a_root_is_one_fraction() -> None:
    """In the second derivative of t / (2 + t), 2 - t; its terms 1, 2 and -3 cancel far out."""

    @formula
    def saturating(x, k: float = 3.0):  # type: ignore[no-untyped-def]
        return exp(k * x) / (2 + exp(k * x))

    (variant,) = plan(saturating.definition).variants
    for at in (-9.0, 0.5, 1.0, 3.0, 8.9, 14.0):
        point = {"x": at, "k": 3.0, "grad": 1.0, "_d_x": 1.0}
        program = variant.kernels["double_backward"]
        names = [output.name for output in program.outputs]
        found = dict(zip(names, simulated(program, point), strict=True))
        with mp.workprec(200):
            t = mp.exp(3 * mp.mpf(at))
            want = 18 * t * (2 - t) / (2 + t) ** 3
        assert abs(found["x"] - want) <= 1e-5 * abs(want), at
