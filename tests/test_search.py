"""The search among candidates, and what programs are computed in."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import sympy
from derivations import best, single, x, y
from mpmath import mp
from sympy import Expr, Piecewise, S, Symbol, exp, log, tanh

from autofn import Formula, Learnable, formula
from autofn import functions as heads
from autofn.explain import explain
from autofn.load import load_file
from autofn.plan import plan
from autofn.program import ELEMENT, Input, Program, Result, lower
from autofn.recognise import recognise
from autofn.rewrite import near_zero, sample
from autofn.rewrite.closer import Closer
from autofn.rewrite.formats import DOUBLE
from autofn.rewrite.judge import Error, Sample, error, hides_nan, sampled
from autofn.rewrite.memory import remembered
from autofn.rewrite.search import Candidate, choose
from autofn.rewrite.simulate import simulated
from autofn.rewrite.steps import stages
from autofn.rewrite.truth import Point, exact

ROOT = Path(__file__).resolve().parent.parent


def candidate(name: str, expr: Expr) -> Candidate:
    inputs = [(x, Input("x", frozenset({ELEMENT})))]
    return Candidate(name, lower(inputs, [Result("y", expr)], for_kernels=True))


def decided(
    pass_name: str, *candidates: Candidate, at: tuple[float, ...], allowed: float | None = None
) -> tuple[str, Error | None]:
    points = [{"x": single(v)} for v in at]
    sample = sampled(candidates[0].program, points, frozenset({"x"}))
    _, decision = choose(pass_name, candidates, sample, allowed=allowed)
    best = decision.candidates[decision.chosen]
    return best.name, best.error


def chosen(pass_name: str, *candidates: Candidate, at: tuple[float, ...] = (90.0,)) -> str:
    return decided(pass_name, *candidates, at=(1e-6, 1e-3, 0.3, 2.0, 30.0, *at))[0]


def test_the_cheapest_within_the_budget_is_chosen() -> None:
    exact_one = candidate("exact", heads.expm1(x) / (1 + x**2))
    cheap = candidate("cheap", x * heads.phi(1, x) / (1 + x**2))
    cancels = candidate("cancels", (exp(x) - 1) / (1 + x**2))
    long = candidate("long", heads.expm1(x) / (1 + x * x))
    assert chosen("backward", exact_one, cancels, at=()) == "exact"
    assert chosen("backward", exact_one, cheap, cancels, at=()) == "exact"
    assert chosen("backward", long, cancels, at=()) == "long"


def test_no_candidate_that_is_not_finite_beats_one_that_is() -> None:
    overflows = candidate("overflows", exp(x) / (1 + exp(x)))
    stable = candidate("stable", heads.sigmoid(x))
    assert chosen("forward", stable, overflows) == "stable"


def test_what_overflows_or_is_subnormal_on_the_way_is_computed_again_in_double() -> None:
    overflows = candidate("overflows", heads.expm1(x) / (1 + x**2))
    tail = candidate("tail", x * tanh(sympy.exp(x)))
    assert chosen("forward", overflows, at=(90.0, 93.0)) == "overflows, again in double"
    assert chosen("forward", tail, at=(-20.0, -101.3)) == "tail, again in double"
    _, error = decided("forward", tail, at=(-20.0, -101.3))
    assert error is not None and error.bad == 0 and error.ulp < 3


def test_what_cancels_is_computed_in_double_unless_the_formula_allows_for_it() -> None:
    cancels = candidate("cancels", (exp(x) - 1) / (1 + x**2))
    name, error = decided("forward", cancels, at=(0.01, 0.3))
    assert name == "cancels, quickly in double" and error is not None and error.ulp < 1
    name, error = decided("forward", cancels, at=(1e-6, 0.3))
    assert name == "cancels, in double" and error is not None and error.ulp < 1
    name, error = decided("forward", cancels, at=(0.01, 0.3), allowed=1000.0)
    assert name == "cancels" and error is not None and error.ulp > 6


def test_what_takes_long_to_make_up_for_roundings_is_computed_in_double() -> None:
    a, b, c, d = sympy.symbols("a b c d")

    def kernel(expr: Expr) -> Program:
        return (
            plan(Formula.from_expr(expr, name="f").definition, search=["forward"])
            .variants[0]
            .kernels["forward"]
        )

    two_products = kernel(a * b + c * d)
    assert two_products.arithmetic == "double" and two_products.operations == 3
    assert kernel(a**2 + b**2).arithmetic == "single"


def test_candidates_show_a_tensor_that_is_nan() -> None:
    """exp(-u) by its branches, each with the other's constant, hides it."""
    x = Symbol("x", real=True)
    inputs = [(x, Input("x", frozenset({ELEMENT})))]
    results = [Result("out", Piecewise((exp(-x), x > 0), (S.One, x <= 0), (S.One, S.true)))]
    program = lower(inputs, results, frozenset())
    honest = lower(inputs, [Result("out", exp(-heads.relu(x)))], frozenset())
    sample = sampled(honest, [{"x": 0.5}, {"x": -0.5}], frozenset({"x"}))
    assert hides_nan(program, sample) and not hides_nan(honest, sample)
    given = [Candidate("branches", program), Candidate("relu", honest)]
    chosen, decision = choose("forward", given, sample)
    assert chosen == honest and len(decision.candidates) == 1


def test_pytorch_computes_another_form_where_the_derived_one_fails() -> None:
    @formula
    def goldman(v, p: Learnable = 1.0):  # type: ignore[no-untyped-def]
        return v * (1 - p * exp(-v)) / (1 - exp(-v))

    variant = best(goldman.definition)
    (decision, *_) = variant.decisions
    assert decision.in_pytorch is not None
    for v, expected in ((-3e28, -3e28), (5e-23, 5e-23), (0.0, 0.0), (40.0, 40.0)):
        (got,) = simulated(variant.forward, {"v": v, "p": 1.0})
        assert abs(got - expected) <= 1e-6 * abs(expected), v
    (got,) = simulated(variant.forward, {"v": -3e28, "p": 0.5})
    assert abs(got + 1.5e28) < 1e22


def test_regimes_of_linear_functions() -> None:
    a, k = sympy.symbols("a k", real=True)
    u = (x - a) / k
    for expr in (u / (1 - exp(-u)), (x + 2) * (a + k * exp(x)) / (exp(x + 2) - 1)):
        found = near_zero.with_regimes(recognise(expr, frozenset({a, k})))
        for at in (0.0, 1e-9, -0.3, 0.9, 3.0):
            point = {
                x: sympy.Float(at * 1.7 - 2, 60),
                a: sympy.Integer(-2),
                k: sympy.Rational(17, 10),
            }
            got = found.xreplace(point).doit().evalf(30)
            if at == 0:
                point[x] += sympy.Float("1e-20", 60)
            truth = expr.xreplace(point).evalf(30)
            assert abs(got - truth) < 1e-16 * abs(truth), (expr, at)


def test_arguments_are_looked_at_where_they_are_large() -> None:
    made = Formula.from_expr(x / (1 + exp(-(x + 40) / 10)), name="shifted").definition
    (result,) = made.variants[0].outputs
    (argument, *_) = sample.arguments_of([recognise(result)], ["x"])
    points = sample.of_arguments(
        [{"x": 0.0}], ["x"], [lambda point: mp.mpf(str(argument.subs(x, point["x"])))]
    )
    arguments = sorted(abs(point["x"] + 40) / 10 for point in points)
    assert arguments[0] == 0 and arguments[-1] > 83 and any(88 < each < 89 for each in arguments)


def test_float64_has_a_program_of_its_own_where_its_arguments_are_larger() -> None:
    (made,) = load_file(ROOT / "formulas" / "swish.py")
    variant = best(made.definition)
    forward = variant.kernels["forward"]
    assert forward.wide is not None and forward.wide.nodes != forward.nodes
    point = {"x": -512.3, "beta": 1.3}
    (truth,) = exact(forward, point)
    wide = replace(forward, nodes=forward.wide.nodes, outputs=forward.wide.outputs)
    errors = [
        error(each, Sample((point,), ((truth,),)), form=DOUBLE).ulp for each in (forward, wide)
    ]
    assert errors[1] < 8 and errors[1] < errors[0] / 5


def test_products_times_their_sign() -> None:
    a = sympy.Symbol("a", real=True)
    for expr in (a * x * sympy.sign(a * x), a * x**2 * sympy.sign(a * x)):
        found = recognise(expr, frozenset())
        assert not found.has(sympy.sign) and found.has(sympy.Abs(a * x))
    assert recognise(a * sympy.sign(a * x), frozenset()).has(sympy.sign)


def test_a_kernel_within_budget_is_cheaper_than_as_derived() -> None:
    (mish,) = load_file(ROOT / "formulas" / "mish.py")
    forward, backward, _ = best(mish.definition).decisions
    for decision in (forward, backward):
        chosen = decision.candidates[decision.chosen]
        assert chosen.error.bad == 0 and chosen.error.ulp <= decision.budget
        assert chosen.cost < decision.candidates[0].cost


def test_a_search_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFN_CACHE_DIR", str(tmp_path))
    asked: list[str] = []

    def answer() -> str:
        asked.append("")
        return "found"

    assert [remembered("question", answer) for _ in range(3)] == ["found"] * 3
    assert len(asked) == 1
    (kept,) = (tmp_path / "search").iterdir()
    kept.write_bytes(b"damaged")
    assert remembered("question", answer) == "found" and len(asked) == 2
    assert remembered("another", answer) == "found" and len(asked) == 3
    monkeypatch.setattr("os.getuid", lambda: -1)  # another user's folder is not believed
    assert remembered("question", answer) == "found" and len(asked) == 4


def test_stages_lead_from_what_was_written_to_what_is_computed() -> None:
    made = Formula.from_expr(x * tanh(log(1 + exp(x))), name="softly").definition
    first, last = stages(made, made.variants[0], 0)
    assert first.step is None and first.error is not None and first.error.bad > 0
    assert last.step is not None and last.step.rule == "log of 1 + exp"
    assert last.error is not None and last.error.bad == 0
    assert last.operations is not None and first.operations is not None
    assert last.operations < first.operations


def test_explain_tells_steps_and_candidates() -> None:
    made = Formula.from_expr(x * tanh(log(1 + exp(x))), name="softly").definition
    sections = dict(explain(made, steps=True).sections)
    rewriting = sections["Rewriting, with operations and error in simulated float32"]
    assert "log of 1 + exp: log(exp(x) + 1) -> softplus(x)" in rewriting
    assert "overflows" in rewriting and "bad" in rewriting
    assert "* exponential normal form" in sections["Candidates for kernels"]
    assert "Candidates for kernels" not in dict(explain(made).sections)


def test_explain_tells_of_powers_within_powers() -> None:
    @formula
    def tempered(x, y, k: float = 2.0):  # type: ignore[no-untyped-def]
        return (x**k + 3 * y**k) ** (1 / k)

    sections = dict(explain(tempered.definition, steps=True).sections)
    assert "ULP" in sections["Rewriting, with operations and error in simulated float32"]


def test_squares_that_vanish_are_computed_again_in_double() -> None:
    @formula
    def norm(x, y):  # type: ignore[no-untyped-def]
        return sympy.sqrt(x**2 + y**2)

    variant = best(norm.definition)
    for size in (2.0**-97, 2.0**97):
        at = {"x": 3 * size, "y": -4 * size}
        assert simulated(variant.kernels["forward"], at) == [5 * size]
    slopes = simulated(variant.kernels["backward"], {"grad": 1.0, "x": 3e-30, "y": -4e-30})
    assert slopes == [pytest.approx(0.6), pytest.approx(-0.8)]


def test_quotients_are_looked_at_where_they_are_large() -> None:
    made = Formula.from_expr(exp(-5 / x) + 1, name="arrhenius").definition
    (result,) = made.variants[0].outputs
    (argument, *_) = sample.arguments_of([recognise(result)], ["x"])
    points = sample.of_arguments(
        [{"x": 1.0}], ["x"], [lambda at: mp.mpf(str(argument.subs(x, at["x"] or math.nan)))]
    )
    assert any(88 < abs(5 / point["x"]) < 90 for point in points)


def test_a_sum_of_tensors_is_looked_at_where_it_cancels() -> None:
    def value(at: Point) -> float:
        return mp.mpf(at["x"]) - mp.mpf("0.6") * at["y"]

    assert x - sympy.Rational(3, 5) * y in sample.arguments_of([x - 3 * y / 5], ["x", "y"])
    points = sample.of_arguments(sample.points(["x", "y"], {}), ["x", "y"], [value])
    assert any(0 < abs(value(at)) < 1e-4 * abs(at["x"]) for at in points)


def test_a_second_look_finds_the_borders_of_regimes() -> None:
    # x/(2 (1 + |x|)) + 1/2 from the polynomial of 1/x far out: up to its border terms cancel.
    switched = sympy.Piecewise(
        (-1 / (2 * x), x < -8), (x / (2 * (1 - x)) + sympy.Rational(1, 2), True)
    )
    inputs = [(x, Input("x", frozenset({ELEMENT})))]
    program = lower(inputs, [Result("y", switched)])
    reference = lower(inputs, [Result("y", sympy.Rational(1, 2) / (1 - x))])
    given = [{"x": v} for v in (-9.2, -0.5, 0.11)]
    look = Closer(given, ["x"], lambda at: sampled(reference, at, frozenset({"x"})))
    first = error(program, sampled(reference, given[1:], frozenset({"x"})))
    assert first.ulp < 4 < look.error(program).ulp
    points = sample.beside_borders(given, ["x"], [lambda at: mp.mpf(at["x"]) + 8])
    assert {math.copysign(1, at["x"] + 8) for at in points} == {1.0, -1.0}
    assert all(abs(at["x"] + 8) < 0.6 for at in points)


def test_what_vanishes_in_single_precision_is_computed_again() -> None:
    @formula
    def falling(x, a: float = 1.3):  # type: ignore[no-untyped-def]
        return x**2 / (a + x**6 * exp(a / (1 + x**2)))

    variant = best(falling.definition)
    forward, point = variant.kernels["forward"], {"x": 8e7, "a": 1.3}
    (truth,) = exact(variant.forward, point)
    assert forward.arithmetic == "wary"
    assert simulated(replace(forward, arithmetic="single"), point) == [0]
    (got,) = simulated(forward, point)
    assert abs(got / truth - 1) < 1e-6


def test_a_result_that_is_often_zero_is_not_doubted() -> None:
    @formula
    def ramp(x, a: float = 0.7):  # type: ignore[no-untyped-def]
        return sympy.Max(x, 0) / (1 + exp(-a * x)) ** 3

    (variant,) = plan(ramp.definition).variants
    assert all("wary" not in (p.arithmetic, p.arithmetic16) for p in variant.kernels.values())


@formula
def limiter(x, y, e: float = 1e-6):  # type: ignore[no-untyped-def]
    return (x * (y**2 + e) + y * (x**2 + e)) / (x**2 + y**2 + 2 * e)


@formula
def beam(x, y):  # type: ignore[no-untyped-def]
    return 1 / (1 + (y / 2) ** 2) * exp(-2 * x**2 / (1 + (y / 2) ** 2))


@pytest.mark.parametrize(
    ("made", "given"), [(limiter, (1.875 * 2.0**36, 488.0)), (beam, (-190000.0, -(2.0**39)))]
)
def test_16_bit_types_do_without_double_where_fourth_powers_are_finite(
    made: Formula, given: tuple[float, float]
) -> None:
    """bfloat16 has the range of float32, in which the squares of squares overflow."""
    kernel = best(made.definition).kernels["backward"]
    at = {"grad": 1.0, "e": 1e-6, **dict(zip("xy", given, strict=True))}
    of_16_bits = replace(kernel, arithmetic=kernel.arithmetic16, first=None)
    in_double = replace(kernel, arithmetic="double", first=None)
    wanted = simulated(in_double, at)
    assert 0 not in wanted
    assert simulated(of_16_bits, at) == [pytest.approx(v, rel=1e-3, abs=0) for v in wanted]
