"""Quotients whose parts vanish together: values there, and that nothing else is changed."""

from __future__ import annotations

import pytest
import sympy
from mpmath import mp
from sympy import Expr, Piecewise, Symbol, cos, exp, log, pi, sin, tanh

from autofn import Learnable, formula
from autofn import functions as heads
from autofn.compact import compact
from autofn.passes import FIRST_ORDER
from autofn.plan import plan
from autofn.recognise import recognise
from autofn.rewrite.formats import DOUBLE, SINGLE
from autofn.rewrite.near_zero import with_regimes, without_series
from autofn.rewrite.simulate import simulated
from autofn.rewrite.truth import exact

a, b, c, n, x, y, z, rho = sympy.symbols("a b c n x y z rho", real=True)
p, q = sympy.symbols("p q", positive=True)
third, two = sympy.Rational(1, 3), sympy.Integer(2)

CASES: dict[str, tuple[Expr, dict[Symbol, Expr]]] = {
    "heat exchanger": ((1 - exp(-n * (1 - c))) / (1 - c * exp(-n * (1 - c))), {c: 1, n: two}),
    "dipole": ((cos(a * cos(x)) - cos(a)) / sin(x), {x: 0, a: two}),
    "raised cosine": (
        sin(pi * x) / (pi * x) * cos(pi * b * x) / (1 - (2 * b * x) ** 2),
        {x: two, b: sympy.Rational(1, 4)},
    ),
    "raised cosine, left": (
        sin(pi * x) / (pi * x) * cos(pi * b * x) / (1 - (2 * b * x) ** 2),
        {x: -two, b: sympy.Rational(1, 4)},
    ),
    "volatility": (
        z / log((sympy.sqrt(1 - 2 * rho * z + z**2) + z - rho) / (1 - rho)),
        {z: 0, rho: -third},
    ),
    "volatility of a product": (
        a * x / log((sympy.sqrt(1 - 2 * rho * a * x + (a * x) ** 2) + a * x - rho) / (1 - rho)),
        {x: 0, a: two, rho: third},
    ),
    "ruin": ((1 - p**a) / (1 - p**n), {p: 1, a: 3, n: 10}),
    "powers": ((p**a - q**a) / (p - q), {p: two, q: two, a: third}),
    "beats": ((cos(a * x) - cos(b * x)) / (b**2 - a**2), {a: two, b: two, x: third}),
    "beats, turned": ((cos(a * x) - cos(b * x)) / (b**2 - a**2), {a: two, b: -two, x: third}),
    "slope of tanh": ((tanh(x) - tanh(y)) / (x - y), {x: third, y: third}),
    "slope of sinh": ((sympy.sinh(x) - sympy.sinh(y)) / (x - y), {x: third, y: third}),
    "slope of another": ((x - y) / (tanh(x) - tanh(y)), {x: third, y: third}),
    "waves": ((cos(x) - cos(y)) / (sin(x) - sin(y)), {x: third, y: third}),
    "power of another": ((p**a - q**a) / (p**b - q**b), {p: two, q: two, a: third, b: two}),
    "quantiles": ((p**a - (1 - p) ** a) / a, {p: third, a: 0}),
    "two exponentials": ((a - b) * x / (exp(a * x) - exp(b * x)), {a: 1, b: 1, x: third}),
    "points close together": (cos(10 * pi * x) / (1 - 400 * x**2), {x: sympy.Rational(1, 20)}),
    "window": (sin(b * x) / (x * (1 - (b * x) ** 2 / pi**2)), {x: pi / 2, b: two}),
    "roots": ((sympy.sqrt(p + 1) - sympy.sqrt(q + 1)) / log(p / q), {p: two, q: two}),
}


def made(expr: Expr) -> Expr:
    return with_regimes(compact(recognise(expr)))


def value(expr: Expr, at: dict[Symbol, Expr]) -> float:
    """At rational numbers, so that conditions are decided."""
    return float(expr.subs({s: sympy.nsimplify(v) for s, v in at.items()}).evalf(30))


@pytest.mark.parametrize(("expr", "at"), CASES.values(), ids=CASES)
def test_the_value_where_both_are_zero(expr: Expr, at: dict[Symbol, Expr]) -> None:
    tiny = sympy.Rational(1, 10**12)
    beside = [{**at, s: v + tiny} for s, v in at.items()]
    wants = [each for each in (expr.subs(near).evalf(60) for near in beside) if each.is_finite]
    assert wants
    for want in wants:
        assert value(made(expr), at) == pytest.approx(float(want), rel=1e-9, abs=1e-11)


@pytest.mark.parametrize(("expr", "at"), CASES.values(), ids=CASES)
def test_nothing_changes_elsewhere(expr: Expr, at: dict[Symbol, Expr]) -> None:
    found = made(expr)
    for k in (1, 3, 8, 30):
        shifted = {s: v + sympy.Rational(k + i, 37) for i, (s, v) in enumerate(at.items())}
        want = expr.subs(shifted).evalf(30)
        if want.is_real:
            assert value(found, shifted) == pytest.approx(float(want), rel=1e-13)


ROOT = sympy.sqrt(z**2 - 2 * rho * z + 1)


@pytest.mark.parametrize(
    "expr",
    [
        sin(x) / (1 - cos(x * y)),  # a pole
        (x - y) / (x**2 + sin(y)),  # 0/0 at a point, not along a line
        (z - rho + ROOT) / (1 - rho),  # of z < 1 alone
        sin(sympy.sqrt(a - 2) * (z - rho + ROOT)) / (1 - rho),
        (z - 10 * rho + sympy.sqrt(z**2 - 20 * rho * z + 100)) / (1 - rho),
        sympy.Rational(1, 10**34)
        * (x + 2 * a)
        / (exp((x - a) / p) - 1),  # a pole, and a small factor
        (sympy.gamma(p) - sympy.gamma(q)) / (p - q),  # no rule
    ],
    ids=str,
)
def test_what_is_left_alone(expr: Expr) -> None:
    found = made(expr)
    at = {s: sympy.Rational(k, 7) for k, s in enumerate((p, q, x, y), 1)}
    assert not found.has(Piecewise, heads.sinc, heads.phi)
    at |= {z: sympy.Integer(12), a: sympy.Integer(3), rho: sympy.Rational(9, 10)}
    assert value(found, at) == pytest.approx(float(expr.subs(at).evalf()), rel=1e-13)


def test_it_is_read_without_its_regimes() -> None:
    expr, _ = CASES["heat exchanger"]
    assert made(expr).has(Piecewise)
    assert not without_series(made(expr)).has(Piecewise)
    own = Piecewise((tanh(x), sympy.Abs(x) < 1), (x**2, True), evaluate=False)
    assert without_series(own) == own


@formula
def exchanger(n, c):  # type: ignore[no-untyped-def]
    return (1 - exp(-n * (1 - c))) / (1 - c * exp(-n * (1 - c)))


@formula
def beats(t, a: Learnable = 1.0, b: Learnable = 2.0):  # type: ignore[no-untyped-def]
    return (cos(a * t) - cos(b * t)) / (b**2 - a**2)


@pytest.mark.parametrize(
    ("op", "at"),
    [(exchanger, {"n": 1.5, "c": 1.0}), (beats, {"t": 0.75, "a": 2.0, "b": 2.0})],
    ids=["exchanger", "beats"],
)
def test_kernels_have_the_values_and_gradients(op, at) -> None:  # type: ignore[no-untyped-def]
    """Of all precisions, and of parameters as of tensors."""
    (variant,) = plan(op.definition, search=FIRST_ORDER if op is beats else ()).variants
    at = {**at, "grad": 1.0, "_d_n": 1.0, "_d_c": 1.0, "_d_t": 1.0, "_d_a": 1.0, "_d_b": 1.0}
    for name, kernel in variant.kernels.items():
        truths = exact(kernel, at)
        assert all(map(mp.isfinite, truths))
        for form, program, digits in ((SINGLE, kernel, 1e-6), (DOUBLE, kernel.wide, 1e-13)):
            for got, want in zip(simulated(program or kernel, at, form), truths, strict=True):
                assert abs(got - want) <= digits * max(abs(want), 1), (name, form)


@formula
def tweedie(y, mu, k: float = 1.5):  # type: ignore[no-untyped-def]
    terms = y ** (2 - k) / ((1 - k) * (2 - k)) - y * mu ** (1 - k) / (1 - k)
    return 2 * (terms + mu ** (2 - k) / (2 - k))


@formula
def alpha(y, mu, k: float = 0.5):  # type: ignore[no-untyped-def]
    return (y**k * mu ** (1 - k) - k * y - (1 - k) * mu) / (k * (k - 1))


@formula
def tsallis(y, k: float = 1.5):  # type: ignore[no-untyped-def]
    return (y - y**k) / (k - 1)


LIMITS = [
    (tweedie, 1, lambda y, m: 2 * (y * mp.log(y / m) - y + m)),
    (tweedie, 2, lambda y, m: 2 * (y / m - mp.log(y / m) - 1)),
    (alpha, 0, lambda y, m: m * mp.log(m / y) - m + y),
    (alpha, 1, lambda y, m: y * mp.log(y / m) - y + m),
    (tsallis, 1, lambda y: -y * mp.log(y)),
]


@pytest.mark.parametrize(
    ("op", "k", "limit"), LIMITS, ids=[f"{op.definition.name} {k}" for op, k, _ in LIMITS]
)
def test_powers_over_poles_in_their_exponents(op, k, limit) -> None:  # type: ignore[no-untyped-def]
    """Deviances and divergences have their limits, and digits beside them; of y = 0 as well."""
    (variant,) = plan(op.definition, search=(), passes=FIRST_ORDER).variants
    names = [leaf.name for leaf in op.definition.tensors]
    point = [0.75, 2.5][: len(names)]
    slopes = [
        mp.diff(limit, point, tuple(int(j == i) for j in range(len(point))))
        for i in range(len(point))
    ]
    for step in (0.0, 1e-9, -1e-9):
        at = {**dict(zip(names, point, strict=True)), "k": k + step}
        (value,) = simulated(variant.kernels["forward"], at)
        assert value == pytest.approx(float(limit(*point)), rel=1e-6)
        found = simulated(variant.kernels["backward"], {"grad": 1.0, **at})
        assert found == [pytest.approx(float(each), rel=1e-6) for each in slopes]
    if k == 1:
        at = {**at, "k": 1.0, "y": 0.0}
        nothing = 2.5 * (2 if op is tweedie else 1) if "mu" in names else 0
        assert simulated(variant.kernels["forward"], at) == [nothing]
