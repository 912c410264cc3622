"""Rules of sums, products and quotients with exponentials that no pattern finds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import sympy
from sympy import Add, Basic, Expr, Mul, Symbol

from autofn import functions as heads
from autofn import trees
from autofn.rewrite import replacements
from autofn.rewrite.by_hand.logarithms import log_of_sum
from autofn.rewrite.by_hand.parts import (
    are_opposite,
    divided_out,
    multiples_of_exps,
    times_exp_of,
    with_exp,
)
from autofn.rewrite.conditions import varies, with_positive
from autofn.rewrite.match import are_equal, put
from autofn.rewrite.rule import C, Rule, U, V
from autofn.rewrite.rules import NAMED

_OVER_EXP = NAMED["exp - 1 over exp"]
_EXP_OVER = NAMED["exp over exp - 1"]
_LESS_HALF = {
    heads.sigmoid: NAMED["sum times sigmoid, less half of a part"],
    heads.normcdf: NAMED["sum times normcdf, less half of a part"],
}
_SCALED_ERFC = NAMED["exp times the tail of erf"]
_SCALED_NORMCDF = NAMED["exp times the tail of normcdf"]


def exp_over_exp_less_1(node: Add) -> Expr | None:
    """m*(a + k*exp(u))*exp(v) in a sum with the number -m*k, which it is to be less."""
    number = Add(*(term for term in node.args if term.is_number))
    for term in node.args if number else ():
        m, head = term.as_coeff_Mul()
        if not (isinstance(head, heads.times_exp) and isinstance(head.args[0], Add)):
            continue
        inside, v = head.args
        for part in inside.args:
            k, grown = part.as_coeff_Mul()
            if isinstance(grown, sympy.exp) and m * k == -number:
                left = node - term - number + m * heads.times_exp(inside - part, v)
                return left + m * k * heads.expm1(sympy.expand(grown.args[0] + v))
    return None


def expm1_less_terms(node: Add) -> Expr | None:
    """m*(expm1(u) - u) in a sum, of a u that is a sum itself: its terms are among the others."""
    for term in node.args:
        m, head = term.as_coeff_Mul()
        if isinstance(head, heads.expm1) and isinstance(head.args[0], Add):
            terms = {-m * each for each in head.args[0].args}
            if terms < {*node.args}:
                left = [each for each in node.args if each not in terms and each is not term]
                return Add(*left, m * heads.expm1mx(head.args[0]))
    return None


def between(node: Add, parameters: frozenset[Symbol]) -> Expr | None:
    """u + (v - u)*sigmoid(w) as both their shares: it cancels where v is much smaller.

    Which no number is beside a parameter.
    """
    for term in node.args:
        for share in Mul.make_args(term):
            if not isinstance(share, heads.sigmoid):
                continue
            difference = divided_out(term / share)
            for u in node.args:
                if u is term or not (difference.is_Add and -u in difference.args):
                    continue
                v = difference + u
                if not v.is_number or varies(u, parameters):
                    (w,) = share.args
                    return node - term - u + u * heads.sigmoid(-w) + v * share
    return None


def less_half(node: Add) -> tuple[Rule, Expr] | None:
    """(u + v)*sigmoid(w) - v/2, which is u/2 where w is 0; and of normcdf."""
    for term in node.args:
        for share in Mul.make_args(term):
            if (rule := _LESS_HALF.get(share.func)) is None:
                continue
            total = divided_out(term / share)
            for v in total.args if total.is_Add else ():
                half = next((each for each in node.args if are_opposite(each, v / 2)), None)
                if half is not None:
                    whole = put(rule, {U: total - v, V: v, C: share.args[0]})
                    return rule, node - term - half + whole
    return None


def scaled_tail(node: Mul) -> tuple[Rule, Expr] | None:
    """exp(u**2)*erfc(u), or exp(u**2/2)*normcdf(u), in a product, or both below a line."""
    exponentials = [each for each in node.args if isinstance(each, sympy.exp)]
    for factor in node.args if exponentials else ():
        tail, power = factor.as_base_exp()
        if isinstance(tail, sympy.erfc):
            rule, square = _SCALED_ERFC, tail.args[0] ** 2
        elif isinstance(tail, heads.normcdf):
            rule, square = _SCALED_NORMCDF, tail.args[0] ** 2 / 2
        else:
            continue
        # Below a line, slopes have what a rule has been to and marked by a bound.
        is_new = power == 1 or (power == -1 and not tail.has(sympy.Max))
        for exponential in exponentials if is_new else ():
            if are_equal(exponential.args[0], power * square):
                rest, scaled = node / factor / exponential, put(rule, {U: tail.args[0]})
                if power == 1:
                    return rule, rest * scaled
                # What is infinite where the exponential is 0 stays beside it.
                within = ((rest / value, where) for value, where in scaled.args)
                return rule, sympy.Piecewise(*within, evaluate=False)
    return None


def share_of_sum(node: Mul) -> Expr | None:
    """exp(u) over a sum of exponentials, it among them, as a sigmoid: a softmax of any number."""
    for numerator in node.args:
        if not isinstance(numerator, sympy.exp):
            continue
        for fraction in node.args:
            total, power = fraction.as_base_exp()
            if not (isinstance(total, Add) and len(total.args) > 2 and power.is_negative):
                continue
            own = [term for term in total.args if term.as_coeff_Mul()[1] == numerator]
            if not (own and power.is_Integer and own[0].is_positive):
                continue
            others = log_of_sum(total - own[0])
            if others is not None:
                u, multiple = numerator.args[0], own[0] / numerator
                share = heads.sigmoid(u + sympy.log(multiple) - others) / multiple
                return node / numerator * total * share
    return None


def over_exponent(node: Mul, parameters: frozenset[Symbol]) -> Expr | None:
    """A product with v*exp(u/x**n) and powers of 1/x, which are infinite where the former is 0.

    Or with v*exp(-log(x)**2), and its logarithm.
    """
    for product in node.args:
        if not isinstance(product, heads.times_exp):
            continue
        v, u = product.args
        poles = {_pole(factor, parameters) for factor in _factors_in(u)} - {None}
        logs = _squared_logs(u)
        poles |= {base for each in logs for base in _bases(each.args[0])}
        others = [each for each in node.args if each is not product]
        by = [
            each
            for each in others
            if _pole(each, parameters) in poles
            or not logs.isdisjoint(trees.nodes(each))
            or (each.is_Add and any(_pole(part, parameters) in poles for part in _factors_in(each)))
        ]
        if by:
            left = [each for each in others if each not in by]
            return Mul(*left, heads.times_exp(Mul(v, *by), u))
    return None


def _factors_in(total: Expr) -> Iterator[Expr]:
    """The factors of the terms of a sum, and of the sums in these."""
    for factor in itertools.chain.from_iterable(map(Mul.make_args, Add.make_args(total))):
        yield factor
        if factor.is_Add:
            yield from _factors_in(factor)


def _squared_logs(exponent: Expr) -> set[Basic]:
    """The logarithms in even powers in an exponent: where they are endless it is."""
    factors = [each.as_base_exp() for each in _factors_in(exponent)]
    sums = [base for base, power in factors if power.is_Integer and power % 2 == 0]
    parts = itertools.chain.from_iterable(map(_factors_in, sums))
    return {each for each in parts if isinstance(each, sympy.log)}


def _bases(product: Expr) -> list[Expr]:
    return [factor.as_base_exp()[0] for factor in Mul.make_args(product)]


def _pole(factor: Expr, parameters: frozenset[Symbol]) -> Expr | None:
    """The x of a negative power of what depends on a tensor, which it may be in a branch."""
    if isinstance(factor, sympy.Piecewise):
        factors = [Mul.make_args(value) for value, _ in factor.args if value != 0]
        poles = {_pole(each, parameters) for each in itertools.chain(*factors)} - {None}
        return poles.pop() if len(factors) == len(poles) == 1 else None
    if isinstance(factor, heads.power):
        base, power = factor.args
        power = with_positive(power, parameters)
    else:
        base, power = factor.as_base_exp()
    return base if power.is_negative and varies(base, parameters) else None


def into_extremum(node: Mul) -> Expr | None:
    """exp(u) times the least or the greatest of what has the inverse as a factor, and others."""
    for extremum in (each for each in node.args if isinstance(each, sympy.Min | sympy.Max)):
        for factor in (each for each in node.args if isinstance(each, sympy.exp)):
            within = [arg * factor for arg in extremum.args]
            pairs = zip(extremum.args, within, strict=True)
            if any(old.has(sympy.exp) and not new.has(sympy.exp) for old, new in pairs):
                return node / extremum / factor * extremum.func(*within)
    return None


def mean_by_exps(node: Mul) -> Expr | None:
    """A sum of multiples of exponentials over the sum of these, term by term."""
    for above, fraction in itertools.permutations(node.args, 2):
        total, power = fraction.as_base_exp()
        if power != -1 or not (isinstance(above, Add) and isinstance(total, Add)):
            continue
        weights = [term.as_coeff_Mul()[1] for term in total.args]
        if not all(isinstance(each, sympy.exp) for each in weights):
            continue
        terms = [times_exp_of(term) for term in above.args]
        if all(parts is not None and sympy.exp(parts[0]) in weights for parts in terms):
            others = node / above * total
            return Add(*(others * v * sympy.exp(u) / total for u, v in filter(None, terms)))
    return None


def less_exp(node: Mul) -> tuple[Rule, Expr] | None:
    """exp(w)*(exp(u) - 1) with -u a term of w, or exp(w)/(exp(u) - 1) with u one."""
    for head, factor in itertools.permutations(node.args, 2):
        base, power = factor.as_base_exp()
        if not (isinstance(head, sympy.exp) and isinstance(base, heads.expm1)):
            continue
        u, terms = base.args[0], Add.make_args(head.args[0])
        if len(terms) > 1 and abs(power) == 1 and -power * u in terms:
            rule = _OVER_EXP if power > 0 else _EXP_OVER
            others = [each for each in node.args if each not in (head, factor)]
            return rule, Mul(*others, sympy.exp(head.args[0] + power * u), put(rule, {U: u}))
    return None


def over_one_exp(node: Mul) -> Expr | None:
    """exp(u), or a sum of exponentials, over another sum: both over one of them, by which all have
    exponents that are multiples of the same."""
    for fraction in node.args:
        total, power = fraction.as_base_exp()
        if not (isinstance(total, Add) and len(total.args) > 2 and power.is_Integer and power < 0):
            continue
        below = multiples_of_exps(total)
        if below is None or (w := _common_exponent([u for u, _ in below])) is None:
            continue
        for above in (each for each in node.args if each is not fraction):
            if (terms := multiples_of_exps(above)) is not None:
                lower = Add(*(v * sympy.exp(sympy.expand(u - w)) for u, v in below))
                upper = Add(*(v * sympy.exp(sympy.expand(u + power * w)) for u, v in terms))
                return node / above / fraction * upper * lower**power
    return None


def _common_exponent(exponents: Sequence[Expr]) -> Expr | None:
    """The one from which the others differ by the least multiples of the same; None if they are
    multiples of one themselves."""
    if _multiples_of_one(exponents) is not None:
        return None
    found = {w: _multiples_of_one([u for each in exponents if (u := each - w) != 0])
             for w in sorted(exponents, key=sympy.default_sort_key)}  # fmt: skip
    sizes = {w: sum(sizes) / min(sizes) for w, sizes in found.items() if sizes}
    return min(sizes, key=lambda w: sizes[w], default=None)


def _multiples_of_one(exprs: Sequence[Expr]) -> list[Expr] | None:
    """The sizes of all, in units of the first; None where those are no numbers."""
    ratios = [abs(sympy.cancel(each / exprs[0])) for each in exprs]
    return ratios if all(each.is_Rational for each in ratios) else None


def over_growing_sum(node: Mul) -> Expr | None:
    """exp(u) - 1 over a sum with multiples of it, u never negative, both divided by exp(u)."""
    for head, fraction in itertools.permutations(node.args, 2):
        total, power = fraction.as_base_exp()
        if not isinstance(head, heads.expm1) or power != -1 or not isinstance(total, Add):
            continue
        (u,) = head.args
        grown = [term for term in total.args if head in Mul.make_args(term)]
        rest = [term for term in total.args if term not in grown]
        if not (grown and rest and u.is_nonnegative) or any(
            each.has(head, sympy.exp(u)) for each in (*rest, *(term / head for term in grown))
        ):
            continue
        fallen = -heads.expm1(-u)
        below = Add(*(term / head * fallen for term in grown))
        others = Mul(*(each for each in node.args if each not in (head, fraction)))
        return others * fallen / (below + Add(*rest) * sympy.exp(-u))
    return None


def sum_over_expm1(node: Mul, parameters: frozenset[Symbol]) -> Expr | None:
    """c + v*exp(u) over exp(u) - 1, with a factor of u beside them if there is one."""
    for total, fraction in itertools.permutations(node.args, 2):
        head, power = fraction.as_base_exp()
        found = with_exp(total, parameters) if isinstance(head, heads.expm1) else None
        if power != -1 or found is None or found[0] != head.args[0]:
            continue
        u, v, c = found
        if c.is_number and v.is_number:
            continue
        others = [each for each in node.args if each not in (total, fraction)]
        for d in others:
            ratio = u / d
            if trees.symbols(d) and not trees.symbols(ratio) & trees.symbols(d):
                others.remove(d)
                return Mul(*others, 1 / ratio, replacements.over_expm1(u, v, c, times=True))
        return Mul(*others, replacements.over_expm1(u, v, c, times=False))
    return None
