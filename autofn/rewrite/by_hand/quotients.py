"""Rules of quotients, and of products with branches, that no pattern finds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import sympy
from sympy import Add, Basic, Expr, Integer, Mul, Pow, S, Symbol

from autofn import trees
from autofn.compact import LIMIT
from autofn.rewrite import replacements
from autofn.rewrite.by_hand.parts import (
    exps_in_regimes,
    is_piecewise,
    multiple_of,
    over_power_of_sum,
)
from autofn.rewrite.conditions import varies
from autofn.rewrite.match import are_equal, holds, put, unfold
from autofn.rewrite.rule import Rule, U, V
from autofn.rewrite.rules import NAMED

_OVER_SINE = NAMED["acos over its sine"]
_OF_DIFFERENCES = {
    sympy.exp: NAMED["exp - exp over the difference"],
    sympy.sin: NAMED["sin - sin over the difference"],
    sympy.cos: NAMED["cos - cos over the difference"],
    Pow: NAMED["root - root over the difference"],
}
_OVER_LOGS = NAMED["difference over that of logs"]
_OVER_LOG = NAMED["difference over the log of the ratio"]
_PART_OF_WHOLE = NAMED["1 - a part over the whole"]


def over_sine(node: Mul) -> Expr | None:
    """acos(u) over the root of 1 - u**2, however that is written; what else divides it stays."""
    for angle in node.args:
        if not isinstance(angle, sympy.acos):
            continue
        (u,) = angle.args
        for fraction in node.args:
            base, power = fraction.as_base_exp()
            if not (power.is_negative and power.is_Rational and power.q == 2 and base.has(u)):
                continue
            # The replacement's own roots are of 1 - u and of 1 + u.
            if trees.size(base) < LIMIT and sympy.expand(base - 1 + u**2) == 0:
                rest = node / angle / fraction * base ** (power + sympy.Rational(1, 2))
                return rest * put(_OVER_SINE, {U: u})
    return None


def difference_quotient(node: Mul, parameters: frozenset[Symbol]) -> tuple[Rule, Expr] | None:
    """f(u) - f(v) over u - v, or the inverse, at any multiple and among other factors."""
    for head, fraction in itertools.permutations(node.args, 2):
        (base, power), (d, exponent) = head.as_base_exp(), fraction.as_base_exp()
        if not (power.is_Integer and exponent.is_Integer and power * exponent < 0):
            continue
        if not trees.symbols(base):
            continue
        for rule, u, v, value in _differences(base):
            multiple = multiple_of(u - v, d)
            if multiple is None or varies(sympy.fraction(multiple)[0], parameters):
                continue
            sign = 1 if power > 0 else -1
            others = (each for each in node.args if each not in (head, fraction))
            rest = base ** (power - sign) * d ** (exponent + sign)
            return rule, Mul(*others) * rest * (value / multiple) ** sign
    return None


def _differences(node: Expr) -> Iterator[tuple[Rule, Expr, Expr, Expr]]:
    """u and v of m*(f(u) - f(v)), and that over u - v."""
    if isinstance(node, sympy.log):
        u, v = node.args[0].as_numer_denom()
        yield _OVER_LOG, u, v, 1 / replacements.logarithmic_mean(u, v, node)
    if (exps := exps_in_regimes(node)) is not None:
        of_exps = _OF_DIFFERENCES[sympy.exp]
        yield of_exps, *exps, put(of_exps, dict(zip((U, V), exps, strict=True)))
    if not (isinstance(node, Add) and len(node.args) == 2):
        return
    (first, second) = node.args
    for head, other in itertools.product(Mul.make_args(first), Mul.make_args(second)):
        multiple = first / head
        if type(head) is not type(other) or second / other != -multiple or not head.args:
            continue
        (u, *exponent), (v, *same) = head.args, other.args
        if exponent != same or exponent not in ([], [S.Half]):
            continue
        if isinstance(head, sympy.log):
            yield _OVER_LOGS, u, v, multiple / replacements.logarithmic_mean(u, v, head - other)
        elif (rule := _OF_DIFFERENCES.get(head.func)) is not None:
            yield rule, u, v, multiple * put(rule, {U: u, V: v})


def whole_less_part(node: Add, parameters: frozenset[Symbol]) -> Expr | None:
    """m*(1 - u/(u + v)) in a sum as m*v/(u + v).

    Of an m that is a sum its terms that are there, as in the slope of u/(u + v).
    """
    for term in node.args:
        for m in Mul.make_args(term):
            shared = set(m.args) & set(node.args) if m.is_Add else set()
            if shared and (rest := _less_part(-term / m, parameters)) is not None:
                left = [each for each in node.args if each is not term and each not in shared]
                unshared = Add(*(each for each in m.args if each not in shared))
                return Add(*left, Add(*shared) * rest, unshared * (term / m))
    branched = [each for each in node.args if any(map(is_piecewise, Mul.make_args(each)))]
    others = itertools.product(branched, (each for each in node.args if each not in branched))
    for term, other in itertools.chain(over_power_of_sum(node, S.One), others):
        rest = _less_part(-term / other, parameters)
        if rest is not None:
            left = [each for each in node.args if each not in (term, other)]
            return Add(*left, other * rest)
    return None


def _less_part(ratio: Expr, parameters: frozenset[Symbol]) -> Expr | None:
    """1 - u/(u + v) as v/(u + v); in each branch of one, if all are such."""
    for factor in Mul.make_args(ratio):
        if is_piecewise(factor):
            others = Mul(*(each for each in Mul.make_args(ratio) if each is not factor))
            rests = []
            for part, where in factor.args:
                if (rest := _less_part(others * part, parameters)) is None:
                    break
                rests.append((rest, where))
            else:
                return sympy.Piecewise(*rests, evaluate=False)
        whole, power = factor.as_base_exp()
        if power != -1 or not isinstance(whole, Add):
            continue
        found = {U: ratio * whole, V: whole}
        if holds(_PART_OF_WHOLE, found, parameters):
            return put(_PART_OF_WHOLE, found)
    return None


def removed(rule: Rule, node: Mul, parameters: frozenset[Symbol]) -> Expr | None:
    """sin(c*d) / d = c * sinc(c*d), (exp(c*d) - 1) / d = c * phi_1(c*d), and their inverses.

    So the limit at d = 0 is a value like any other, in every derivative too. Inverses in one symbol
    beside parameters stay, which `near_zero` gives their limit: both functions in 1 / phi_1(x)'
    overflow.
    """
    (function,) = (each.func for each in rule.pattern.args if isinstance(each, sympy.Function))
    factors = list(node.args)
    for i, factor in enumerate(factors):
        base, power = factor.as_base_exp()
        if not (isinstance(base, function) and power.is_Integer):
            continue
        u = base.args[0]
        sign = 1 if power > 0 else -1
        unfolded, own = unfold(u), trees.symbols(u) - parameters
        if sign < 0 and len(own) == 1 and u.is_polynomial(*own):
            continue
        for j, other in enumerate(factors):
            d, exponent = _divisor(other, sign)
            if not (exponent.is_Integer and exponent * sign <= -1 and trees.symbols(d)):
                continue
            of_sum = isinstance(d, Add) and any(f.is_Add for f in Mul.make_args(u))
            ratio = sympy.cancel(u / d) if of_sum or isinstance(u, Add) else unfolded / d
            if j != i and not trees.symbols(ratio) & trees.symbols(d):
                rest = [f for n, f in enumerate(factors) if n not in (i, j)]
                whole = (ratio * put(rule, {U: u})) ** sign
                return Mul(*rest, whole, base ** (power - sign), d ** (exponent + sign))
    return None


def _divisor(factor: Expr, sign: int) -> tuple[Expr, Expr]:
    """A factor as a power: exp(-u) is one of exp(u) where a product is divided by that."""
    if isinstance(factor, sympy.exp):
        return factor**-sign, Integer(-sign)
    base, power = factor.as_base_exp()
    return base, power


def hinge_over_pole(node: Mul) -> Expr | None:
    """A product with 1/x**p, x a tensor, that is 0 beside x = 0: all of it has a hinge there."""
    for fraction in node.args:
        x, power = fraction.as_base_exp()
        if not (power.is_negative and x.is_Symbol):
            continue
        for total in (each for each in node.args if each is not fraction):
            hinged = [set(_hinges(term)) for term in Add.make_args(total)]
            for u in sorted(set.intersection(*hinged), key=sympy.default_sort_key):
                if u.subs(x, 0).is_negative:
                    above = trees.replaced(node, _zeros_below(node, u))
                    above = trees.replaced(above, {sympy.Max(0, u): u})
                    return sympy.Piecewise((S.Zero, u <= 0), (above, True), evaluate=False)
    return None


def _hinges(term: Expr) -> Iterator[Expr]:
    """The u of a product that is 0 where they are below 0."""
    for factor in Mul.make_args(term):
        if (u := _of_hinge(factor)) is not None:
            yield u
        if is_piecewise(factor) and len(factor.args) == 2 and factor.args[1][0] == 0:
            where = factor.args[0][1]
            if isinstance(where, sympy.Gt) and where.rhs == 0:
                yield where.lhs


def _of_hinge(factor: Expr) -> Expr | None:
    """The u of a power of Max(u, 0)."""
    base, power = factor.as_base_exp()
    if not (isinstance(base, sympy.Max) and S.Zero in base.args and power.is_positive):
        return None
    return sympy.Max(*(each for each in base.args if each != 0))


def _zeros_below(node: Expr, u: Expr) -> dict[Basic, Basic]:
    """What pieces that are 0 below are above."""
    return {
        each: each.args[0][0]
        for each in trees.nodes(node)
        if is_piecewise(each) and u in set(_hinges(each))
    }


def beside_hinge(node: Mul) -> Expr | None:
    """A power of Max(u, 0) times a sum with it, or with what is where u > 0: as they are there."""
    for factor in node.args:
        if (u := _of_hinge(factor)) is None:
            continue
        for total in (each for each in node.args if each.is_Add):
            above: dict[Basic, Basic] = {sympy.Max(0, u): u}
            for piece in filter(is_piecewise, trees.nodes(total)):
                value, where = piece.args[0].args
                if isinstance(where, sympy.Gt | sympy.Ge) and are_equal(where.lhs - where.rhs, u):
                    above[piece] = value
            if (found := trees.replaced(total, above)) != total:
                return Mul(*(each for each in node.args if each is not total), found)
    return None


def sign_in_pieces(node: Mul) -> Expr | None:
    """sign(u) times a Piecewise of which a piece is a multiple of |u|: the product in each."""
    for sign in (each for each in node.args if isinstance(each, sympy.sign)):
        size = sympy.Abs(sign.args[0])
        for pieces in filter(is_piecewise, node.args):
            if any(size in Mul.make_args(value) for value, _ in pieces.args):
                others = Mul(*(each for each in node.args if each not in (sign, pieces)))
                within = [(sign * value, where) for value, where in pieces.args]
                return others * sympy.Piecewise(*within, evaluate=False)
    return None
