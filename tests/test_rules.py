"""The table of rules, and the engine that finds them."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator

import pytest
import sympy
from derivations import NUMBER, VALUES, program_of, value, x, y
from mpmath import mp
from sympy import Expr, Min, S, Symbol, exp, log, tanh
from sympy.core.relational import Relational

from autofn import functions as heads
from autofn.derive import Differentiator
from autofn.recognise import Step, recognise
from autofn.rewrite.judge import Sample, error
from autofn.rewrite.rule import C, Rule, U, V, minus, ratio
from autofn.rewrite.rules import NAMES, RULES, SUMS
from autofn.rewrite.simulate import simulated
from autofn.rewrite.truth import exact

OF_POSITIVE = (
    "beta", "log of a product with tanh", "loggamma - another a step below",
    "log of 1 + a quotient of positive exp - 1",
)  # fmt: skip


def pairs(rule: Rule) -> Iterator[dict[Symbol, Expr]]:
    """Values of a rule's wildcards that its condition allows."""
    symbols = sorted(rule.pattern.free_symbols, key=str)
    if rule.name == "max + min of equal signs":
        # V has the sign of U.
        for u in VALUES:
            yield {U: sympy.Float(u, 40), V: sympy.Float(2, 40) * heads.expm1(sympy.Float(u) / 2)}
        return
    for chosen in itertools.product(VALUES, repeat=len(symbols)):
        if len(set(chosen)) < len(chosen):
            continue
        found = dict(zip(symbols, chosen, strict=True))
        if rule.name in OF_POSITIVE and min(chosen) < 0:
            continue  # its logarithms are those of absolute values
        if rule.name == "log of a product with 1 - exp" and found[V] < 0:
            continue  # it has a positive factor
        if found.get(C, 1) > 0:
            yield {s: sympy.Float(v, 40) for s, v in found.items()}


def is_identity(pattern: Expr, replacement: Expr, rule: Rule) -> bool:
    compared = 0
    with mp.workdps(30):
        for at in pairs(rule):
            left, right = value(pattern, at), value(replacement, at)
            if left is None:
                continue
            if right is None or abs(left - right) > mp.mpf(10) ** -20 * (1 + abs(left)):
                return False
            compared += 1
    assert compared >= 2, rule.name
    return True


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_an_identity(rule: Rule) -> None:
    assert is_identity(rule.pattern, rule.replacement, rule)


def mutations(expr: Expr) -> Iterator[Expr]:
    """Wrong signs: of the whole, and of each argument."""
    yield -expr
    for wildcard in expr.free_symbols & {U, V}:
        yield expr.xreplace({wildcard: -wildcard})


EVEN = {
    "log of a product with cosh", "log of sech**2", "log of a product with sech**2",
    "log of cosh", "1 - sech**2", "1 - tanh**2", "1 - cos", "1 + cos", "cosh - 1", "1 - cos**2",
    "1 - sin**2",
    "root - its value at 0", "u times its sign", "1 over cosh**2", "sin over its argument", "sinc",
    "root of a square and a constant", "cosh times sech**2", "sech", "sec", "1 + sinh**2",
    "log of cosh**2", "cosh**2 - 1", "exp + exp", "1 over 1 + cosh", "difference of squares",
    "root - what its square has", "derivative of sin**2 over its argument",
    "cos - cos of a multiple", "tan over tan of a multiple", "softplus - u times sigmoid",
    "root - another root", "difference of fourth powers", "cos - another", "cosh - another",
    "u times tanh - log of cosh", "log of a power", "log of a product with a power",
    "derivative of u times sinc", "v times a power of 1 + u/v, less 1",
    "square of a quotient with a root less 1", "share of a root's square less its rest",
}  # fmt: skip
"""Rules whose sides are even functions: a turned argument is no mistake."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_wrong_sign_in_a_replacement_is_noticed(rule: Rule) -> None:
    whole, *turned = mutations(rule.replacement)
    assert not is_identity(rule.pattern, whole, rule)
    if rule.name not in EVEN:
        for mutant in turned:
            assert not is_identity(rule.pattern, mutant, rule), mutant


def borders(expr: Expr) -> Iterator[dict[Symbol, Expr]]:
    """Where it turns: what a condition, a bound or a kink compares is equal; other symbols 0.87."""
    plain = {each: sympy.Float(0.87, 40) for each in expr.free_symbols}
    for node in sorted(expr.atoms(Relational, sympy.Max, Min, sympy.Abs), key=str):
        sides = (*node.args, S.Zero) if isinstance(node, sympy.Abs) else node.args
        within = [
            side.args
            if isinstance(side, sympy.Max | Min)
            else (side.args[0], -side.args[0])
            if isinstance(side, sympy.Abs)
            else (side,)
            for side in sides
        ]
        for a, b in itertools.combinations(itertools.chain(*within), 2):
            for symbol in sorted((a - b).free_symbols, key=str):
                rest = {each: v for each, v in plain.items() if each != symbol}
                for root in sympy.solve((a - b).xreplace(rest), symbol):
                    if root.is_real and not (symbol == C and root <= 0):
                        yield {**rest, symbol: root if root.is_Integer else root.evalf(40)}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_keeps_the_derivatives_where_its_replacement_turns(rule: Rule) -> None:
    """A bound that marks something as done is no kink of it."""
    if rule.pattern.has(sympy.Max, Min, sympy.Abs):
        pytest.skip("its own kinks are those of what was written")
    written_out = rule.replacement.replace(minus, lambda u, v: u - v)
    written_out = written_out.replace(ratio, lambda u, v: u / v)
    symbols = sorted(rule.pattern.free_symbols, key=str)
    derivative = Differentiator(symbols)
    pattern = rule.pattern.replace(
        lambda node: isinstance(node, sympy.Pow) and not node.exp.is_number,
        lambda node: heads.power(*node.args),
    )
    for border in borders(written_out):
        at = {each: border.get(each, sympy.Float(0.87, 40)) for each in symbols}
        for symbol in symbols:
            with mp.workdps(30):
                want = value(derivative(pattern, symbol), at)
                got = value(derivative(written_out, symbol), at)
                if want is not None and got is not None:
                    assert abs(got - want) <= 1e-12 * (1 + abs(want)), (at, symbol)


def test_logarithms_of_products_are_sums_where_a_factor_overflows() -> None:
    density = sympy.log(x ** (y - 1) * sympy.exp(-x) / sympy.gamma(y))
    found = recognise(density)
    assert found.has(heads.loggamma, heads.xlogy) and not found.has(sympy.gamma, heads.power)
    # A factor of either sign beside a gamma that may be negative.
    both = recognise(sympy.log(x * sympy.gamma(y)))
    at = {x: sympy.Float(-3), y: sympy.Float(-0.5)}
    assert value(both, at) == pytest.approx(math.log(3 * 3.5449077018110318))


def test_a_gamma_that_sympy_puts_in_the_place_of_its_logarithm() -> None:
    """Of a number that is known to be whole, or a half-integer, once a part has been rewritten."""
    for written in (
        sympy.loggamma(sympy.floor(x) ** 2 + 3),
        sympy.loggamma((3 * sympy.Heaviside(x, 0) + 7) ** 2 + sympy.Rational(1, 2)),
    ):
        found = recognise(written)
        assert found.has(heads.loggamma) and not found.has(sympy.gamma), found
        assert not any(power.exp.free_symbols for power in found.atoms(sympy.Pow))


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if rule.hazard], ids=lambda rule: rule.name
)
def test_a_rule_mends_what_its_hazard_breaks(rule: Rule) -> None:
    if rule in NAMES:
        pytest.skip("the pattern is no operation of a program")
    point = {s.name: struct.unpack("f", struct.pack("f", v))[0] for s, v in rule.hazard.items()}
    after = program_of(rule.replacement)
    sample = Sample((point,), (tuple(exact(after, point)),))
    before = error(program_of(rule.pattern), sample)
    mended = error(after, sample)
    # Its own argument, sqrt(2)*u say, is rounded too, which kernels make up for.
    assert not mended.bad
    assert before.bad or before.ulp > 20 * max(mended.ulp, 1)


SPECIAL: dict[str, Expr] = {
    "max + min of equal signs": heads.expm1(x),
    "known power of 1 + u, less 1": sympy.Rational(3, 2),
    "v times log1p": 1 + x,
    "sigmoid - a lower one": x - 1,
    "loggamma - another a step below": x - 1,
    "erf - another": x - 1,
    "normcdf - another": x - 1,
    "softplus - another": x - 1,
    "softplus - another of the same tensor": -x * NUMBER,
    "log of a number + exp": NUMBER,
    "log of a product with tanh": 1 + x**2,
    "cos - cos of a multiple": NUMBER * x,
    "sin over sin of a multiple": NUMBER * x,
    "tan over tan of a multiple": NUMBER * x,
    "exp - 1 over that of a multiple": NUMBER * x,
    "exp - exp of a multiple": NUMBER * x,
    "number - a multiple of exp": NUMBER,
    "log of a product with 1 - exp": 1 + x**2,
    "cube root - another": x - 1,
    "difference of cubes": x - 1,
    "difference of fourth powers": x - 1,
    "difference of fifth powers": x - 1,
    "exp - that of more terms": x - y,
    "sin - another": x - 1,
    "cos - another": x - 1,
    "cos of a difference": x - y,
    "sin of a difference": x - y,
    "tan - another": x - 1,
    "atan - another": x - 1,
    "tanh - another": x - 1,
    "sinh - another": x - 1,
    "cosh - another": x - 1,
}
"""What V has to be for a rule to hold."""


SPECIAL_WILDCARDS: dict[str, dict[Symbol, Expr]] = {
    "difference of inverses": {U: x + 2, V: x + 1},
    "square root - another": {U: x + 2, V: x + 1},
    "1 over a square root - another": {U: x + 2, V: x + 1},
    "root of a fraction, less 1": {U: 1 + x, V: 1 - x},
    "1 - a part over the whole": {U: x, V: x + y},
    "exp - another": {U: x + y, V: x - 2 * y},
    "cos of a sum": {U: y, V: x - y},
    "sin of a sum": {U: y, V: x - y},
    "log(U) - log(V)": {U: x**2 + 4, V: x**2 + 2},
    "log(U) - log1p(V)": {U: x**2 + 4, V: x**2 + 2},
    "log1p(U) - log(V)": {U: x**2 + 4, V: x**2 + 2},
    "log1p(U) - log1p(V)": {U: x**2 + 4, V: x**2 + 2},
    "mean_any_root over a factor": {U: x, V: x, C: y + 1},
    "log of 1 + a quotient of positive exp - 1": {U: x**2 + 1, V: x**2 + 2},
    "exp - 1 over a sum with it": {U: x**2, V: y, C: sympy.Integer(3)},
    "power less 1, over its exponent": {U: x**2 + 4, V: y},
    "power mean": {U: x, V: y, C: NUMBER},
    "quotient of sums of exps": {U: x, V: y, C: NUMBER},
    "log of a multiple of u + its root": {U: x, V: NUMBER, C: sympy.Integer(3)},
    "log of u + its root, over v": {U: x, V: NUMBER},
    "square of a quotient with a root less 1": {
        U: S.One,
        V: 2 * (x + y + 1),
        C: 1 + 4 * y * (x + y + 1),
    },
}
"""What wildcards have to be for a rule to hold."""


def of_x_and_y(rule: Rule) -> dict[Symbol, Expr]:
    most = {U: x, V: SPECIAL.get(rule.name, y), C: sympy.Integer(3)}
    return most | SPECIAL_WILDCARDS.get(rule.name, {})


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_engine_finds_each_rule(rule: Rule) -> None:
    steps: list[Step] = []
    written = of_x_and_y(rule)
    if rule.name == "v times exp":
        written = {U: x, V: y}
    pattern = rule.pattern
    if pattern.is_Pow and not pattern.exp.is_number:
        pattern = sympy.Pow(*(a.xreplace(written) for a in pattern.args), evaluate=False)
    else:
        pattern = pattern.xreplace(written)
    recognise(pattern, frozenset({NUMBER}), steps)
    names = {step.rule for step in steps}
    assert rule.name in names or pattern == rule.replacement.xreplace(written), names


@pytest.mark.parametrize("rule", SUMS, ids=lambda rule: rule.name)
def test_sums_are_found_at_any_multiple_among_other_terms(rule: Rule) -> None:
    if rule.name in ("cosh**2 - sinh**2", "number - a multiple of exp"):
        return  # two rules hold; the wildcard is the multiple
    if rule.name in (
        "1 - one side or the other",
        "softplus less its tangent",
        "divergence of two sides",
        "root of a fraction, less 1",
        "mean of exp, its exponent, less a log",
    ):
        return  # multiplied out, it is another sum
    steps: list[Step] = []
    inside = rule.pattern.xreplace(of_x_and_y(rule))
    z = Symbol("z", real=True)
    recognise(sympy.expand_mul(-3 * z * inside) + y, frozenset({NUMBER}), steps)
    assert rule.name in {step.rule for step in steps}


def test_softplus_of_sums_with_a_common_term() -> None:
    """A zero-inflated count's likelihood; of two tensors with nothing in common it stays."""
    p, rate = 1 / (1 + exp(-x)), exp(y)
    found = recognise(log(p + (1 - p) * exp(-rate)))
    assert found == heads.softplus_rise(-x, -exp(y))
    for apart in (
        heads.softplus(x) - heads.softplus(y),
        heads.softplus(x + 1) - heads.softplus(y + 1),
    ):
        assert recognise(apart) == apart


def test_a_softmax_of_several_neither_overflows_nor_cancels() -> None:
    z = Symbol("z", real=True)
    total = exp(x) + exp(y) + exp(z)
    others = heads.logaddexp(y, z)
    assert recognise(exp(x) / total) == heads.sigmoid(x - others)
    assert recognise(exp(x) / (total + 2)) == heads.sigmoid(
        x - heads.softplus(others - log(2)) - log(2)
    )
    rest = heads.logaddexp(y - x, z - x)
    assert recognise(x - log(total)) == -heads.softplus(rest)
    assert recognise(3 * y * (log(total) - x) + 1) == 3 * y * heads.softplus(rest) + 1
    found = recognise(x - log(exp(x) + exp(y) + 1))
    assert found == -heads.softplus(heads.logaddexp(-x, y - x))
    # Not of what may be negative.
    assert recognise(exp(x) / (exp(x) + exp(y) - exp(z))).has(sympy.exp)


def test_log_of_sinh_is_linear_far_out_at_any_power() -> None:
    for written in (log(sympy.sinh(x) / x), log(x / (3 * sympy.sinh(x))), log(sympy.sinh(x) ** 2)):
        found = recognise(written)
        with mp.workdps(40):
            for at in (-700, -3, 2, 39, 41, 800):
                pair = [value(each, {x: sympy.Integer(at)}) for each in (written, found)]
                assert abs(pair[0] - pair[1]) < 1e-20 * abs(pair[0]), (written, at)
        far = found.xreplace({x: sympy.Float(1e6)}).evalf()
        assert far.is_finite and abs(far) > 1e5


def test_log_of_pieces_is_that_of_each() -> None:
    gate = sympy.Piecewise((x + 1, x >= 0), (1 / (1 + exp(-x)), True))
    expected = sympy.Piecewise((heads.log1p(x), x >= 0), (-heads.softplus(-x), True))
    assert recognise(log(gate)) == expected


def test_a_soft_label_is_one_side_where_it_is_one() -> None:
    """The log of a focal loss' probability, where the chosen side or the other has vanished."""
    p = 1 / (1 + exp(-x))
    chosen = y * p + (1 - y) * (1 - p)
    found = program_of(recognise(log(chosen)).xreplace({x: U, y: V}))
    assert recognise(1 - chosen) == y * heads.sigmoid(-x) + (1 - y) * heads.sigmoid(x)
    for u, v, expected in (
        (-2000.0, 1.0, -2000.0),
        (2000.0, 0.0, -2000.0),
        (-2000.0, 0.25, math.log(0.75)),
        (2000.0, 0.25, math.log(0.25)),
        (2000.0, 1.0, 0.0),
    ):
        (value,) = simulated(found, {"U": u, "V": v})
        assert float(value) == pytest.approx(expected, rel=1e-6, abs=1e-6), (u, v)


def test_a_zero_as_slow_as_one_over_log_is_none_beside_a_logarithm() -> None:
    """(x**k - 1)/k as exp(k*log(x)): at 0 it is -1/k, not 0 times infinity taken for 0."""
    found = recognise((exp(NUMBER * log(x)) - 1) / NUMBER, frozenset({NUMBER}))
    assert not found.has(heads.xlogy)
    assert recognise(x * log(x) / (1 + x)).has(heads.xlogy)


def test_expected_improvement_in_its_tail() -> None:
    """log(u*normcdf(u) + density(u)) at any multiple, whichever term has taken in what."""
    z = (x - 1) / y
    written = log((x - 1) * (1 + sympy.erf(z / sympy.sqrt(2))) / 2
                + y * exp(-(z**2) / 2) / sympy.sqrt(2 * sympy.pi))  # fmt: skip
    found = recognise(written).xreplace({x: U, y: V})
    for u in (-3.0, -7.9, -8.1, -60.0, 2.0):
        (value,) = exact(program_of(found), {"U": 1 + u, "V": 1.0})
        with mp.workprec(12000):
            tail = u * mp.erfc(-mp.mpf(u) / mp.sqrt(2)) / 2
            truth = mp.log(tail + mp.exp(-(mp.mpf(u) ** 2) / 2) / mp.sqrt(2 * mp.pi))
            assert abs(value - truth) < 1e-14 * abs(truth), u


def test_what_is_no_multiple_stays() -> None:
    expr = 2 - heads.sigmoid(x) + y * tanh(x)
    assert recognise(expr) == expr


def test_rules_meet_in_a_chain() -> None:
    steps: list[Step] = []
    found = recognise(log(1 - 1 / (1 + exp(-x))), frozenset(), steps)
    assert found == -heads.softplus(x)
    assert [step.rule for step in steps] == ["1 over 1 + exp", "1 - sigmoid", "log of sigmoid"]


def test_names_are_unique() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
