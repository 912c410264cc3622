"""Values and derivatives where a formula as it is written is 0/0, infinite or NaN."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import pytest
import sympy
from derivations import NUMBER, best, derived, program_of, single, x, y
from mpmath import mp
from sympy import Expr, Min, Rational, exp, log, tanh

from autofn import Formula, Learnable, formula
from autofn import functions as heads
from autofn.derive import Differentiator
from autofn.model import Definition
from autofn.plan import plan
from autofn.recognise import recognise
from autofn.rewrite import near_zero
from autofn.rewrite.formats import DOUBLE, SINGLE
from autofn.rewrite.rule import U, V
from autofn.rewrite.simulate import simulated
from autofn.rewrite.truth import exact

QUOTIENTS = (
    x * (y / (exp(x) - 1) + 2 / (1 - exp(-x))),
    log(1 + x) / x,
    (exp(x) - 1 - x) / x**2,
    x**3 / (exp(x) - 1),
    sympy.atan(x) / x,
    sympy.sinh(x) ** 2 / x,
    y * (sympy.sqrt(1 + x) - 1) / x,
    log(1 + exp(x)) - log(2) + y * x,
)


@pytest.mark.parametrize("expr", QUOTIENTS, ids=str)
def test_a_quotient_has_its_limit_at_zero(expr: Expr) -> None:
    found = near_zero.with_regimes(recognise(expr))
    with mp.workdps(150):
        for at in ("1e-30", "-1e-9", "0.1", "-0.2", "0.24"):
            point = {x: sympy.Float(at, 150), y: sympy.Float("0.7", 150)}
            truth = mp.mpf(str(expr.xreplace(point).evalf(50)))
            got = mp.mpf(str(found.xreplace(point).doit().evalf(50)))
            assert abs(got - truth) <= mp.mpf(2) ** -58 * abs(truth), at
    at_zero = found.xreplace({x: sympy.S.Zero, y: sympy.S.One}).doit()
    assert abs(at_zero - sympy.limit(expr.xreplace({y: sympy.S.One}), x, 0)) < 1e-15


def test_a_sum_may_begin_with_a_high_power() -> None:
    """Tang and Toennies' damping: x**7/5040 is left, near 0."""
    expr = 1 - exp(-x) * sum(x**k / sympy.factorial(k) for k in range(7))
    found = near_zero.with_regimes(expr)
    small = sympy.Float("1e-9", 150)
    got = found.xreplace({x: small}).doit()
    assert abs(got * 5040 / small**7 - 1 + 7 * small / 8) < 1e-17


def test_limits_of_several_outputs_share_what_they_can() -> None:
    @formula
    def student(x, mu, s, nu: float = 4.0):  # type: ignore[no-untyped-def]
        return s + (nu + 1) / 2 * log(1 + ((x - mu) * exp(-s)) ** 2 / nu)

    variant = derived(student.definition)
    nodes = variant.kernels["backward"].nodes
    assert any(node.constant == sympy.oo for node in nodes)
    assert len(set(nodes)) == len(nodes)


def test_functions_of_a_length_have_values_and_derivatives_at_the_origin() -> None:
    """With those of a scaled length: polynomials in its square, which SymPy differentiates."""
    length = sympy.sqrt(x**2 + y**2)
    for expr, value, bend in (
        (sympy.sin(length) / length, 1, Rational(-1, 3)),
        ((1 - sympy.cos(length)) / length**2, Rational(1, 2), Rational(-1, 12)),
        (length / sympy.sin(length), 1, Rational(1, 3)),
        (sympy.tanh(NUMBER * length) / length, NUMBER, -2 * NUMBER**3 / 3),
    ):
        found = near_zero.with_regimes(recognise(expr, frozenset({NUMBER})))
        d = Differentiator([x, y])
        settled = {x: 0, y: 0, NUMBER: Rational(3, 2)}
        got = [
            each.xreplace(settled).doit().evalf()
            for each in (found, d(found, x), d(d(found, x), x))
        ]
        want = [sympy.sympify(each).xreplace(settled) for each in (value, 0, bend)]
        assert all(abs(a - b) < 1e-14 for a, b in zip(got, want, strict=True)), (expr, got)


def test_what_interest_and_exponents_of_0_leave() -> None:
    @formula
    def annuity(r, n: float = 20.0):  # type: ignore[no-untyped-def]
        return r / (1 - (1 + r) ** (-n))

    @formula(domain={"c": sympy.Interval.open(0, sympy.oo)})
    def utility(c, g: Learnable = 2.0):  # type: ignore[no-untyped-def]
        return (c ** (1 - g) - 1) / (1 - g)

    (variant,) = plan(annuity.definition, search=()).variants
    for r in (0.0, 1e-30, 1e-9):
        at = {"r": r, "n": 20.0, "grad": 1.0, "_d_r": 1.0}
        kernels = (variant.kernels[name] for name in ("forward", "backward", "double_backward"))
        values = [simulated(each, at)[-1] for each in kernels]
        assert [float(v) for v in values] == pytest.approx([1 / 20, 21 / 40, 133 / 40], rel=1e-5)
    variant = derived(utility.definition)
    at = {"c": 2.0, "g": 1.0, "grad": 1.0}
    assert simulated(variant.kernels["forward"], at)[0] == pytest.approx(math.log(2), rel=1e-6)
    by_c, by_g = simulated(variant.kernels["backward"], at)
    assert (by_c, by_g) == pytest.approx((0.5, -(math.log(2) ** 2) / 2), rel=1e-6)


def _at(definition: Definition, given: dict[str, float]) -> list[float]:
    """The value, then the gradients, of kernels in simulated float32."""
    variant = derived(definition)
    passes = (variant.kernels[name] for name in ("forward", "backward"))
    return [float(v) for each in passes for v in simulated(each, {**given, "grad": 1.0})]


def test_limits_where_a_parameter_is_0_or_infinite_or_the_same_as_another() -> None:
    @formula
    def damped(x, a):  # type: ignore[no-untyped-def]
        return sympy.tanh(a * x) / a

    @formula
    def entropy(x, xi: float = 0.1):  # type: ignore[no-untyped-def]
        return log(1 + xi * x) / xi

    @formula
    def extreme(x, xi: Learnable = 0.1):  # type: ignore[no-untyped-def]
        return (1 + xi * x) ** (-1 / xi)

    @formula
    def richards(x, nu: float = 0.5):  # type: ignore[no-untyped-def]
        return (1 + nu * exp(-x)) ** (-1 / nu)

    @formula
    def interest(x, n: float = 12.0):  # type: ignore[no-untyped-def]
        return (1 + x / n) ** n

    @formula
    def yeo_johnson(x, p: float = 1.0):  # type: ignore[no-untyped-def]
        return ((1 + x) ** p - 1) / p

    @formula
    def absorbed(x, p, q: float = 1.0):  # type: ignore[no-untyped-def]
        return p * (exp(-q * x) - exp(-p * x)) / (p - q)

    @formula
    def eliminated(x, p: float = 1.0, q: float = 0.2):  # type: ignore[no-untyped-def]
        return p * (exp(-q * x) - exp(-p * x)) / (p - q)

    @formula
    def apart(x, y):  # type: ignore[no-untyped-def]
        return sympy.sinh(x - y) / (x - y)

    e = math.exp(-0.5)
    r = math.exp(-e)
    for made, given, wanted in (
        (damped, {"a": 0.0}, (0.5, 1, 0)),
        (entropy, {"xi": 0.0}, (0.5, 1)),
        (entropy, {"xi": 1e-9}, (0.5, 1)),
        (extreme, {"xi": 0.0}, (e, -e, e / 8)),
        (richards, {"nu": 0.0}, (r, r * e)),
        (richards, {"nu": 1e-9}, (r, r * e)),
        (interest, {"n": math.inf}, (1 / e, 1 / e)),
        (interest, {"n": 1e9}, (1 / e, 1 / e)),
        (yeo_johnson, {"p": 0.0}, (math.log(1.5), 2 / 3)),
        (absorbed, {"p": 1.0, "q": 1.0}, (e / 2, e / 2, e / 2 - e / 8)),
        (eliminated, {"p": 1.0, "q": 1.0}, (e / 2, e / 2)),
        (apart, {"y": 0.5}, (1, 0, 0)),
    ):
        found = _at(made.definition, {"x": 0.5, **given})
        assert found == pytest.approx(wanted, rel=1e-6, abs=1e-7), (made.definition.name, given)


def test_branches_that_users_write_are_no_regimes() -> None:
    """Not of a power whose base has them, nor where a positive function of |x| decides.

    And one that begins as a rule's difference of exponentials is not that difference.
    """
    hinge = sympy.Piecewise((x / 2, x > 2), (sympy.Abs(x), True))
    for expr in (
        (1 + NUMBER * hinge) ** (2 / NUMBER),
        heads.pow1pm1(hinge, NUMBER) / NUMBER,
    ):
        assert near_zero.with_regimes(expr) == expr
    limited = log(1 + x) / x
    chosen = sympy.Piecewise((y, exp(-sympy.Abs(x)) < Rational(1, 2)), (limited, True))
    found = near_zero.with_regimes(recognise(chosen)).xreplace({x: sympy.S.Zero})
    assert abs(found.doit() - 1) < 1e-15
    near = exp(x) * (exp(NUMBER * x) - 1)
    alike = sympy.Piecewise((near, sympy.Abs(NUMBER * x) < 1), (x, True)) / NUMBER
    found = recognise(alike, frozenset({NUMBER})).xreplace(
        {x: sympy.Integer(3), NUMBER: Rational(1, 2)}
    )
    assert found.doit() == 6


def test_a_sum_over_what_each_of_its_terms_has_as_a_factor() -> None:
    """A root-raised cosine at 0, without the roots of its other divisor."""
    a = 1 + NUMBER
    expr = (sympy.sin(x * (2 - a)) + 4 * NUMBER * x * sympy.cos(a * x)) / (
        x * (1 - (NUMBER * x) ** 2)
    )
    found = near_zero.with_regimes(recognise(expr, frozenset({NUMBER})))
    slope = Differentiator([x])(found, x)
    got = [
        exact(program_of(each.xreplace({x: U, NUMBER: V})), {"U": 0.0, "V": 0.25})[0]
        for each in (found, slope)
    ]
    assert got == [1.75, 0]
    assert not near_zero.with_regimes((1 + sympy.sin(NUMBER * x)) / x).has(sympy.Piecewise)


def test_a_pole_is_no_limit() -> None:
    for expr in (sympy.cos(x) / x, exp(x) / x**2, log(x) / x):
        assert not near_zero.with_regimes(expr).has(sympy.Piecewise)


def test_limits_at_infinity() -> None:
    @formula
    def slow(x):  # type: ignore[no-untyped-def]
        return sympy.asinh(x) / (1 + sympy.Abs(x))

    @formula
    def wave(x):  # type: ignore[no-untyped-def]
        return x * sympy.cos(x)

    @formula
    def stretched(x, a: float = 2.0):  # type: ignore[no-untyped-def]
        return sympy.asinh(a * x) / (1 + sympy.Abs(x))

    @formula
    def bell(x, y, n: float = 2.0):  # type: ignore[no-untyped-def]
        return exp(-((x * y) ** 2)) * sympy.cos(x) / (1 + x**2) ** n

    @formula
    def student(x, nu: Learnable = 3.0):  # type: ignore[no-untyped-def]
        return x * (1 + x**2 / nu) ** (-(nu + 1) / 2)

    @formula
    def away(x, y, a: float = 1.0):  # type: ignore[no-untyped-def]
        return 3 * x + y + sympy.sin(a * x * y)

    @formula
    def one_sided(x, a: float = 1.0):  # type: ignore[no-untyped-def]
        return exp(x) * (2 + a * x**2 + sympy.cos(a * x))

    given = {"y": 0.7, "a": 2.0, "n": 2.0, "nu": 3.0}
    for made, above, below in (
        (slow, 0, 0),
        (wave, None, None),
        (stretched, 0, 0),
        (bell, 0, 0),
        (student, 0, 0),
        (away, mp.inf, -mp.inf),
        (one_sided, mp.inf, 0),
    ):
        variant = derived(made.definition)
        for sign, limit in ((1, above), (-1, below)):
            point = {**given, "x": sign * mp.inf}
            (value,) = exact(variant.forward, point)
            (kernel,) = simulated(variant.kernels["forward"], point)
            for got in (value, kernel):
                found = 0 if abs(got) < 1e-70 else got
                assert mp.isnan(got) if limit is None else found == limit, made.definition.name


def test_limits_that_numbers_decide() -> None:
    """In PyTorch's operations, too, where a limit is missed at default values."""

    @formula
    def robust(x, a: float = 1.5):  # type: ignore[no-untyped-def]
        return ((x**2 + 1) ** (a / 2) - 1) / a

    variant = derived(robust.definition)
    for a, limit in ((1.5, mp.inf), (-1.0, 0), (3.0, mp.inf)):
        for sign in (1, -1):
            point = {"a": a, "out": 1.0, "x": sign * mp.inf}
            (value,) = exact(variant.vjp, point)
            (kernel,) = simulated(variant.kernels["backward"], point)
            assert value == kernel == sign * limit


def test_limits_at_the_open_end_of_a_domain() -> None:
    @formula(domain={"r": sympy.Interval.open(0, sympy.oo)})
    def pair(r, b: float = 2.0):  # type: ignore[no-untyped-def]
        return 6 * exp(-b * r) - sympy.Rational(11, 10) / r**6

    variant = derived(pair.definition)
    kernel = variant.kernels["backward"]
    at = {"r": mp.inf, "b": 2.0, "grad": 1.0}
    for form, program in ((SINGLE, kernel), (DOUBLE, kernel.wide or kernel)):
        assert simulated(program, at, form) == [0]


def test_second_derivatives_whose_parts_overflow_first() -> None:
    @formula(domain={"x": sympy.Interval.open(0, sympy.oo)})
    def power(x, a: float = 0.3):  # type: ignore[no-untyped-def]
        return (x**a - 1) / a

    (variant,) = plan(power.definition).variants
    at = {"x": single(2.00645e-23), "a": single(0.3), "grad": 1.0, "_d_x": 1.0}
    assert all(map(mp.isfinite, simulated(variant.kernels["double_backward"], at)))


@formula
def mean_difference(a, b, c, d):  # type: ignore[no-untyped-def]
    return 2 * ((a - d) - (b - c)) / log((a - d) / (b - c))


@formula
def duhamel(x, y, k: float = 1.5):  # type: ignore[no-untyped-def]
    return k * (exp(-k * x) - exp(-k * y)) / (y - x)


@formula
def share(x):  # type: ignore[no-untyped-def]
    return x * log(x) / (1 - x)


@formula
def chord(x, y):  # type: ignore[no-untyped-def]
    return (sympy.cos(x) - sympy.cos(y)) / (x - y) * exp(x)


@formula(domain={"x": sympy.Interval(0, sympy.oo), "y": sympy.Interval(0, sympy.oo)})
def roots(x, y):  # type: ignore[no-untyped-def]
    return y * (sympy.sqrt(3 * x) - sympy.sqrt(3 * y)) / (y - x)


@formula(domain={"t": sympy.Interval(0, sympy.oo)})
def absorbed(t, ka, ke, v: float = 30.0):  # type: ignore[no-untyped-def]
    return 100 * ka / (v * (ka - ke)) * (exp(-ke * t) - exp(-ka * t))


EQUAL = {
    absorbed: [({"t": 2.0, "ka": 0.5, "ke": 0.5, "v": 30.0}, mp.exp(-1) * 100 / 30)],
    roots: [({"x": 2.0, "y": 2.0}, -mp.sqrt(1.5))],
    mean_difference: [
        ({"a": 90.0, "b": 70.0, "c": 30.0, "d": 50.0}, 80),
        ({"a": 30.0, "b": 50.0, "c": 70.0, "d": 50.0}, -40),
    ],
    duhamel: [
        ({"x": 0.7, "y": 0.7, "k": 1.5}, 1.5**2 * mp.exp(-1.5 * 0.7)),
        ({"x": -60.0, "y": 80.0, "k": 1.0}, mp.exp(60) / 140),
    ],
    share: [({"x": 1.0}, -1)],
    chord: [({"x": 0.7, "y": 0.7}, -mp.sin(0.7) * mp.exp(0.7))],
}


@pytest.mark.parametrize("made", EQUAL, ids=lambda made: made.definition.name)
def test_difference_quotients_have_values_where_both_are_equal(made: Formula) -> None:
    """At any multiple, of differences in several tensors, and in derivatives."""
    variant = derived(made.definition)
    for at, value in EQUAL[made]:
        (got,) = simulated(variant.kernels["forward"], at)
        assert abs(got - value) <= 1e-6 * abs(value)
        slopes = simulated(variant.kernels["backward"], {"grad": 1.0, "out": 1.0, **at})
        assert all(mp.isfinite(slope) for slope in slopes)


def test_quotients_of_exponentials_less_1_do_not_overflow() -> None:
    """Nor do their gradients cancel far from 0."""

    @formula
    def fixation(s, n: float = 1000.0):  # type: ignore[no-untyped-def]
        return (1 - exp(-2 * s)) / (1 - exp(-4 * n * s))

    variant = derived(fixation.definition)
    forward, backward = variant.kernels["forward"], variant.kernels["backward"]
    for s, n in ((5.0, 1000.0), (-1.0, 1000.0), (1e-5, 1000.0), (-200.0, 0.5), (3.0, -1.0)):
        with mp.workdps(60):
            x, k = mp.mpf(s), 4 * mp.mpf(n)
            value = (1 - mp.exp(-2 * x)) / (1 - mp.exp(-k * x))
            slope = 2 * mp.exp(-2 * x) - k * mp.exp(-k * x) * value
            slope /= 1 - mp.exp(-k * x)
        for form, program in ((SINGLE, forward), (DOUBLE, forward.wide or forward)):
            (got,) = simulated(program, {"s": s, "n": n}, form)
            assert abs(got - value) <= 1e-6 * abs(value) + 1e-40
        (got,) = simulated(backward, {"s": s, "n": n, "grad": 1.0})
        assert abs(got - slope) <= 1e-6 * abs(slope) + 1e-40


def test_a_pole_within_an_extremum_is_no_error() -> None:
    @formula
    def weighting(x, g: float = 5.0):  # type: ignore[no-untyped-def]
        return Min(exp(x), g) / exp(x)

    variant = derived(weighting.definition)
    (value,) = simulated(variant.kernels["forward"], {"x": 3.0, "g": 5.0})
    assert float(value) == pytest.approx(5 * math.exp(-3))


def test_a_tensor_is_clamped_far_from_what_other_inputs_may_be() -> None:
    @formula
    def gate(x, beta: float = 1.0):  # type: ignore[no-untyped-def]
        return x / (1 + exp(-beta * x))

    variant = derived(gate.definition)
    at = {"x": -1e20, "beta": 1e-20}
    (value,) = simulated(variant.forward, at)
    assert float(value) == pytest.approx(-1e20 / (1 + math.e))
    assert simulated(variant.forward, {"x": -math.inf, "beta": 1.0}) == [0]


@formula
def slerp(x, y, k: float = 0.3):  # type: ignore[no-untyped-def]
    return sympy.sin(k * x) / sympy.sin(x) * y + (exp(k * x) - 1) / (exp(x) - 1)


@formula
def censored(x, y):  # type: ignore[no-untyped-def]
    return -log((1 + sympy.erf((y - x) / sympy.sqrt(2))) / 2)


@formula
def decay(x, y, k: float = 1.5):  # type: ignore[no-untyped-def]
    return log(k / 2 * exp(k * y) * sympy.erfc(x) / (1 + exp(-y)))


@formula
def between(x, y):  # type: ignore[no-untyped-def]
    return -log(1 / (1 + exp(-x)) - 1 / (1 + exp(-y)))


@formula
def opacity(x, y, k: float = 20.0):  # type: ignore[no-untyped-def]
    density = 1 / (1 + exp(-k * x))
    return (density - 1 / (1 + exp(-k * y))) / density


@formula
def current(x, k: float = 0.3):  # type: ignore[no-untyped-def]
    return exp(k * x) - exp(-(1 - k) * x)


@formula
def chain(x, k: float = 50.0):  # type: ignore[no-untyped-def]
    return (1 / (1 - x) ** 2 - 1 + x) / k


@formula
def brillouin(x, k: float = 2.0):  # type: ignore[no-untyped-def]
    wide, narrow = (2 * k + 1) / (2 * k), 1 / (2 * k)
    return wide * sympy.coth(wide * x) - narrow * sympy.coth(narrow * x)


@formula
def written_out(x, j: float = 2.5):  # type: ignore[no-untyped-def]
    a = (2 * j + 1) / (2 * j)
    narrow = sympy.cosh(x / (2 * j)) / sympy.sinh(x / (2 * j))
    return a * sympy.cosh(a * x) / sympy.sinh(a * x) - narrow / (2 * j)


@formula
def bose(x, k: float = 2.0):  # type: ignore[no-untyped-def]
    return 1 / (exp(k * x) - 1) - 1 / (k * x)


VANISHING = {
    brillouin: ({"x": 0.0, "k": 2.0}, {"x": 1e-9, "k": 2.0}, {"x": 60.0, "k": 2.0}),
    written_out: ({"x": 1e-12, "j": 2.5}, {"x": 1e27, "j": 2.5}),
    bose: ({"x": 0.0, "k": 2.0}, {"x": 1e-9, "k": 2.0}),
    slerp: ({"x": 0.0, "y": 0.7, "k": 0.3},),
    censored: ({"x": 60.0, "y": 0.7}, {"x": 7e9, "y": 0.7}),
    decay: ({"x": 37.0, "y": -41.0, "k": 1.5},),
    between: ({"x": -240.0, "y": -241.0}, {"x": 240.0, "y": 239.5}),
    opacity: ({"x": -51.0, "y": -52.0, "k": 20.0},),
    current: ({"x": 3e-20, "k": 0.3},),
    chain: ({"x": 3e-20, "k": 50.0},),
}


@pytest.mark.parametrize("made", VANISHING, ids=lambda made: made.definition.name)
def test_quotients_and_logarithms_of_what_vanishes_have_values(made: Formula) -> None:
    """At 0, where an exponential or erfc underflows, and where both of two sigmoids do."""
    # The square of 1 - x is left to the search.
    variant = best(made.definition) if made is chain else derived(made.definition)
    for at in VANISHING[made]:
        (reference,) = exact(variant.forward, {**at, "x": at["x"] or 1e-60})
        for name in ("forward", "backward"):
            values = simulated(variant.kernels[name], {"grad": 1.0, **at})  # type: ignore[index]
            assert all(abs(value) < 2e20 for value in values), name
        (value,) = simulated(variant.kernels["forward"], at)
        assert abs(value - reference) <= 1e-6 * abs(reference) + 1e-55


def test_second_derivatives_that_have_vanished_are_0() -> None:
    """Where their parts are 0 times infinity, in all arithmetics and for PyTorch's operations."""

    @formula
    def gompertz(x, k: Learnable = 0.75):  # type: ignore[no-untyped-def]
        return x * sympy.erf(k * exp(k * x))

    @formula
    def double(x):  # type: ignore[no-untyped-def]
        return x / (1 - x * exp(-(x + exp(x))))

    @formula
    def stages(x, n: float = 4.0):  # type: ignore[no-untyped-def]
        return 1 / sympy.sqrt(1 + (x**2) ** n)

    @formula
    def gate(x, y, k: float = 2.0):  # type: ignore[no-untyped-def]
        weight = heads.sigmoid(y) ** k
        return sympy.sqrt(1 - weight**2) * x

    for made in (gompertz, double, stages, gate):
        (variant,) = plan(made.definition, search=("double_backward",)).variants
        name = "y" if made is gate else "x"
        plain = (variant.forward, variant.vjp, variant.double_vjp)
        computed = [
            replace(each, arithmetic="double" if decision.fails_as_derived else "single")
            for each, decision in zip(plain, variant.decisions, strict=True)
        ]
        for program in (*variant.kernels.values(), *computed):
            beside = {each.name: 0.7 for each in program.inputs if each.name not in ("k", "n")}
            for far in (-1e37, -5e22, -3e10, -2e3, 2e3, 3e10, 5e22, 1e37):
                values = simulated(program, {"k": 0.75, "n": 4.0, **beside, name: far})
                assert not any(mp.isnan(value) for value in values), (made.definition.name, far)


def test_a_factor_that_vanishes_is_not_held_beside_one_that_grows() -> None:
    """x/(exp(x) + 2) is as good as 0 far out; times exp(x) it is x, and was 0."""

    @formula
    def gate(x):  # type: ignore[no-untyped-def]
        return x * exp(x) / (exp(x) + 2)

    variant = derived(gate.definition)
    for program in (variant.forward, variant.kernels["forward"]):
        for at in (100.0, 871.0, 1105.0, 3e9):
            (got,) = exact(program, {"x": at})
            assert abs(got - at) <= 1e-12 * at, at
    # What is computed of it is another form, which is found by a search.
    in_double = replace(best(gate.definition).forward, arithmetic="double")
    assert [simulated(in_double, {"x": at})[0] for at in (720.0, 3e9)] == [720.0, 3e9]


def test_a_slope_is_0_at_a_pole_where_the_rest_is_0_about_it() -> None:
    """Of an inverse gamma curve at black, which is 0 up to a threshold."""

    @formula
    def curve(x):  # type: ignore[no-untyped-def]
        u = x**0.0127
        return (sympy.Max(u - 0.8359375, 0) / (18.8515625 - 18.6875 * u)) ** 6.277

    variant = derived(curve.definition)
    for program in (variant.vjp, variant.kernels["backward"]):
        got = [simulated(program, {"x": at, "grad": 1.0})[0] for at in (0.0, 1e-9, 1)]
        assert got[:2] == [0, 0] and got[2] > 0
        assert mp.isnan(simulated(program, {"x": math.nan, "grad": 1.0})[0])


def test_what_has_no_value_stays_nan() -> None:
    @formula
    def wave(x, y):  # type: ignore[no-untyped-def]
        return sympy.sqrt(x**3 * tanh(x * y))

    variant = derived(wave.definition)
    for program in (variant.forward, variant.kernels["forward"]):
        for far in (20.0, 3e5, 1e20):
            (value,) = simulated(program, {"x": far, "y": -0.7})
            assert mp.isnan(value)


def test_smooth_where_a_sign_turns() -> None:
    @formula
    def symlog(x):  # type: ignore[no-untyped-def]
        return sympy.sign(x) * log(1 + sympy.Abs(x))

    variant = derived(symlog.definition)
    for program in (variant.vjp, variant.kernels["backward"]):
        assert exact(program, {"x": 0.0}) == [1]


def test_logarithms_times_what_vanishes_with_them() -> None:
    @formula
    def divergence(p, q):  # type: ignore[no-untyped-def]
        return p * (log(p) - log(q)) + (1 - p) * log(1 - p)

    variant = derived(divergence.definition)
    for program in (variant.forward, variant.kernels["forward"]):
        for p, q, value in ((0, 0.5, 0), (0, 0, 0), (1, 0.5, math.log(2))):
            (got,) = exact(program, {"p": p, "q": q})
            assert abs(got - value) < 1e-15
        for p, q in ((mp.nan, 0.5), (0, mp.nan), (0.5, -1), (-0.1, 0.5)):
            assert mp.isnan(exact(program, {"p": p, "q": q})[0])
    # Its argument is 0 where the factor is, though it is written otherwise.
    lost = x - (1 - x) / y
    assert recognise((1 - x) * log(1 - lost)) == heads.xlog1py(1 - x, -lost)
    assert not recognise((1 - x) * log(2 - x)).has(heads.xlogy, heads.xlog1py)


def test_a_limit_hides_no_nan() -> None:
    @formula
    def cauchy(x, y, s: Learnable = 1.0):  # type: ignore[no-untyped-def]
        return 1 / (1 + ((x - y) / s) ** 2)

    variant = derived(cauchy.definition)
    backward = variant.kernels["backward"]
    at = {"x": mp.inf, "y": 2.0, "s": 1.5}
    assert not any(map(mp.isnan, simulated(backward, at)))
    for name in at:
        assert all(map(mp.isnan, simulated(backward, {**at, name: mp.nan})))


def test_a_robust_loss_has_its_limit_where_it_is_a_square() -> None:
    @formula
    def robust(x, alpha: float = 1.0):  # type: ignore[no-untyped-def]
        b = sympy.Abs(alpha - 2)
        return b / alpha * ((x**2 / b + 1) ** (alpha / 2) - 1)

    variant = derived(robust.definition)
    for number, alpha, want in ((3.0, 2.0, 4.5), (0.5, 2.0, 0.125), (0.0, 2.0, 0.0)):
        at = {"x": number, "alpha": alpha}
        assert simulated(variant.kernels["forward"], at) == [pytest.approx(want, rel=1e-6)]
        slopes = simulated(variant.kernels["backward"], {"grad": 1.0, **at})
        assert slopes == [pytest.approx(number, rel=1e-6)]


def test_slopes_are_0_where_an_exponential_vanishes_beside_a_pole() -> None:
    @formula
    def microfacets(c, m: float = 0.5):  # type: ignore[no-untyped-def]
        return exp((c**2 - 1) / (m**2 * c**2)) / (m**2 * c**4)

    @formula
    def extreme(c, a: float = 2.0):  # type: ignore[no-untyped-def]
        return a * c ** (-1 - a) * exp(-(c**-a))

    for made in (microfacets, extreme):
        variant = best(made.definition)
        at = {"grad": 1.0, "m": 0.5, "a": 2.0}
        for c in (1e-30, 1e-4, 0.01):
            assert simulated(variant.kernels["backward"], {**at, "c": c}) == [0.0]


def test_second_slopes_of_a_heat_capacity_vanish_in_the_cold() -> None:
    @formula
    def heat_capacity(t, tau: float = 100.0):  # type: ignore[no-untyped-def]
        x = tau / t
        return x**2 * exp(x) / (exp(x) - 1) ** 2

    (variant,) = plan(heat_capacity.definition, search=()).variants
    for t in (0.01, 0.1, 1.0):
        at = {"d_t": 1.0, "grad": 1.0, "t": t, "tau": 100.0}
        _, by_t = simulated(variant.double_vjp, at)
        assert abs(by_t) < 1e-20


def test_shares_of_nothing_have_no_divergence() -> None:
    @formula
    def jensen_shannon(p, q):  # type: ignore[no-untyped-def]
        m = (p + q) / 2
        return (p * log(p / m) + q * log(q / m)) / 2

    variant = derived(jensen_shannon.definition)
    forward, backward = (variant.kernels[each] for each in ("forward", "backward"))
    assert simulated(forward, {"p": 0.0, "q": 0.0}) == [0.0]
    assert simulated(backward, {"grad": 1.0, "p": 0.0, "q": 0.0}) == [0.0, 0.0]
    at = {"p": 0.25, "q": 0.75}
    want = (0.25 * math.log(0.5) + 0.75 * math.log(1.5)) / 2
    assert simulated(forward, at) == [pytest.approx(want, rel=1e-6)]
    slopes = simulated(backward, {"grad": 1.0, **at})
    assert slopes == [pytest.approx(math.log(each) / 2, rel=1e-6) for each in (0.5, 1.5)]


def test_what_a_sum_lost_is_nothing_at_infinity() -> None:
    @formula
    def preference(a, b, c, k: float = 0.1):  # type: ignore[no-untyped-def]
        return log(1 + exp(-k * (a - b - c)))

    variant = derived(preference.definition)
    at = {"a": 0.5, "b": math.inf, "c": -3.0, "k": 0.1}
    assert simulated(variant.kernels["forward"], at) == [math.inf]
    assert simulated(variant.kernels["forward"], {**at, "a": math.inf, "b": 1.0}) == [0.0]


def test_a_power_mean_has_its_limit_where_the_exponent_vanishes() -> None:
    @formula
    def substitution(x, y, n: Learnable = 0.5, share: float = 0.3):  # type: ignore[no-untyped-def]
        return (share * x**n + (1 - share) * y**n) ** (1 / n)

    variant = best(substitution.definition)
    names = ("x", "y", "n", "share")
    for point in ((2.0, 3.0, 1e-12, 0.25), (2.0, 3.0, -1e-4, 0.25), (0.2, 7.0, 0.1, 0.5)):
        point = tuple(struct.unpack("f", struct.pack("f", each))[0] for each in point)
        at = dict(zip(names, point, strict=True))

        def written(x, y, n, share=at["share"]):  # type: ignore[no-untyped-def]
            return (share * x**n + (1 - share) * y**n) ** (1 / n)

        with mp.workdps(100):
            wanted = [
                mp.diff(written, point[:3], order) for order in ((1, 0, 0), (0, 1, 0), (0, 0, 1))
            ]
            value = written(*map(mp.mpf, point[:3]))
        assert simulated(variant.kernels["forward"], at) == [pytest.approx(float(value), rel=1e-6)]
        found = simulated(variant.kernels["backward"], {"grad": 1.0, **at})
        assert found == [pytest.approx(float(each), rel=3e-6) for each in wanted]
    # The product of its powers at 0.
    at = {"x": 2.0, "y": 3.0, "n": 0.0, "share": 0.25}
    limit = 2**0.25 * 3**0.75
    assert simulated(variant.kernels["forward"], at) == [pytest.approx(limit, rel=1e-6)]
    by_x, by_y, by_n = simulated(variant.kernels["backward"], {"grad": 1.0, **at})
    assert by_x == pytest.approx(0.125 * limit, rel=1e-6)
    assert by_y == pytest.approx(0.25 * limit, rel=1e-6)
    # Half the variance of the logarithms.
    assert by_n == pytest.approx(limit * 0.25 * 0.75 / 2 * math.log(1.5) ** 2, rel=1e-5)


def test_a_limit_holds_from_where_the_parts_overflow_in_double() -> None:
    made = Formula.from_expr(x / (1 - x * exp(-(x + exp(x)))), name="colu").definition
    variant = derived(made)
    backward = variant.kernels["backward"]
    for far in (-1253.0, -3e6, -4e28, -math.inf):
        assert simulated(backward, {"x": far, "grad": 1.0}) == [0]


@formula
def isotherm(x, y):  # type: ignore[no-untyped-def]
    return x / (1 + x**y) ** (1 / y)


@formula
def phase_function(x, y):  # type: ignore[no-untyped-def]
    return (1 - y**2) / (1 + y**2 - 2 * x * y) ** 1.5


@formula
def power_of_losses(x, y):  # type: ignore[no-untyped-def]
    b = sympy.Abs(y - 2)
    return b / y * ((x**2 / b + 1) ** (y / 2) - 1)


def test_what_vanishes_far_out_does_not_hide_what_is_infinite_or_no_number() -> None:
    """Both are 0 for large y, and NaN where their parts overflow; but not beside a large x."""
    at = {"grad": 1.0, "x": 7308.0, "y": 13304.0}
    assert mp.isnan(simulated(derived(phase_function.definition).forward, at)[0])
    _, slope = simulated(derived(power_of_losses.definition).vjp, at)
    assert not mp.isfinite(slope)


@formula
def focal_root(x, y):  # type: ignore[no-untyped-def]
    return sympy.sqrt(1 - x) * (-y * sympy.log(x) - (1 - y) * sympy.log(1 - x))


@formula
def exponential_basis(x):  # type: ignore[no-untyped-def]
    return sympy.exp(-20 * (sympy.exp(-x) - sympy.Rational(1, 2)) ** 2)


@formula
def ageing(x, y, z):  # type: ignore[no-untyped-def]
    return sympy.exp(-z * (sympy.exp(x * y) - 1))


@pytest.mark.parametrize(
    ("made", "point"), [(exponential_basis, (-7e5,)), (ageing, (-1.1e12, -2.8, 2.0))]
)
def test_second_derivatives_of_what_has_vanished_are_0(
    made: Formula, point: tuple[float, ...]
) -> None:
    """An exponential of one times powers of that, which are infinite."""
    (variant,) = plan(made.definition, search=()).variants
    for program in (variant.kernels["double_backward"], variant.double_vjp):
        at = {
            **{each.name: 1.0 for each in program.inputs},
            **dict(zip("xyz", point, strict=False)),
        }
        assert set(simulated(program, at)) == {0}


def test_slopes_of_powers_times_their_base_at_0() -> None:
    variant = derived(isotherm.definition)
    slope, _ = simulated(variant.vjp, {"grad": 1.0, "x": 0.0, "y": 0.5})
    assert slope == 1


def test_products_with_logarithms_in_a_sum_vanish_with_their_factor() -> None:
    made = derived(focal_root.definition)
    for program in (made.forward, made.kernels["forward"]):
        assert simulated(program, {"x": 1.0, "y": 0.3}) == [0]


def test_limits_that_depend_on_a_parameter() -> None:
    @formula
    def screened(r, k: Learnable = 0.8):  # type: ignore[no-untyped-def]
        return exp(-k * r) / r

    variant = derived(screened.definition)
    forward = variant.kernels["forward"]
    for sign in (1, -1):
        (far,) = simulated(forward, {"r": -sign * math.inf, "k": sign * 0.8})
        (near,) = simulated(forward, {"r": sign * math.inf, "k": sign * 0.8})
        assert far == -sign * mp.inf and near == 0
    assert mp.isnan(simulated(forward, {"r": mp.nan, "k": 0.8})[0])


@formula
def twice_exponential(x, a: float = 1.0, b: float = 5.0):  # type: ignore[no-untyped-def]
    return exp(-x / b) - exp(-x / a)


@formula
def log_volume(x, mu: Learnable = 1.0, nu: Learnable = 1.0):  # type: ignore[no-untyped-def]
    return -mu * log(x) + nu / 2 * log(x) ** 2


@pytest.mark.parametrize(
    ("made", "at", "far", "limit"),
    [
        (twice_exponential, {"a": 1.0, "b": 5.0}, -math.inf, -math.inf),
        (twice_exponential, {"a": 1.0, "b": 5.0}, math.inf, 0.0),
        (twice_exponential, {"a": 3.0, "b": 0.5}, -math.inf, math.inf),
        (log_volume, {"mu": 1.0, "nu": 1.0}, math.inf, math.inf),
        (log_volume, {"mu": 1.0, "nu": -2.0}, math.inf, -math.inf),
    ],
)
def test_terms_of_which_one_outgrows_the_others_have_its_limit(
    made: Formula, at: dict[str, float], far: float, limit: float
) -> None:
    """Exponentials of one tensor, powers of its logarithm: not infinity less infinity."""
    kernel = derived(made.definition).kernels["forward"]
    of_16_bits = replace(kernel, arithmetic=kernel.arithmetic16)
    for program in (kernel, of_16_bits):
        assert simulated(program, {"x": far, **at}) == [limit]
