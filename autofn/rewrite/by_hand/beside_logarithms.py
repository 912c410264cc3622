"""Rules of sums and products with logarithms that no pattern finds."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence

import sympy
from sympy import Add, Basic, Expr, Mul, S, Symbol

from autofn import functions as heads
from autofn import trees
from autofn.rewrite import replacements
from autofn.rewrite.by_hand.parts import divided_out, square_root
from autofn.rewrite.conditions import has_zero_of, vanishes_with, varies
from autofn.rewrite.within import LEAST_NUMBER, NO_PART_OF_1


def log_of_share(node: Add) -> Expr | None:
    """u - log(exp(u) + exp(v) + ...) as -log(1 + exp(v - u) + ...), at any multiple."""
    for term in node.args:
        for head in Mul.make_args(term):
            multiple = -term / head
            terms = _exponents(head)
            if len(terms) == 1:
                continue
            for k, u in enumerate(terms):
                wanted = Add.make_args(sympy.expand_mul(multiple * u))
                if trees.symbols(u) and all(each in node.args for each in wanted):
                    left = Add(*(each for each in node.args if each not in (term, *wanted)))
                    shifted = [each - u for n, each in enumerate(terms) if n != k]
                    rest = functools.reduce(heads.logaddexp, shifted)
                    return left - multiple * heads.softplus(rest)
    return None


def _exponents(node: Expr) -> list[Expr]:
    """a, b, c of logaddexp(logaddexp(a, b), c); 0, a, b of softplus(logaddexp(a, b))."""
    if isinstance(node, heads.softplus) and isinstance(node.args[0], heads.logaddexp):
        return [S.Zero, *_exponents(node.args[0])]
    if not isinstance(node, heads.logaddexp):
        return [node]
    return [each for arg in node.args for each in _exponents(arg)]


def less_its_log(node: Add) -> Expr | None:
    """m*(w - 1 - log(w)) in a sum, of a power w of what the logarithm is of."""
    factors = itertools.chain.from_iterable(map(Mul.make_args, node.args))
    if not any(isinstance(each, sympy.log | heads.xlogy) for each in factors):
        return None
    terms = Add.make_args(Add(*(divided_out(term) for term in node.args)))
    for logs, m, u in _times_log_of(terms):
        others = [term for term in terms if term not in logs]
        for known in others:
            weight = -known
            power = -m / weight
            if not (power.is_Rational and power):
                continue
            w = u**power
            left = [term for term in others if term != known]
            if weight * w not in left:
                continue
            far = _marked(weight, w)
            if far is None:
                continue
            left.remove(weight * w)
            above, below = sympy.fraction(w)
            far += Add(*logs)
            a, b = square_root(above), square_root(below)
            if a is None or b is None:
                return Add(*left, replacements.excess_over_log(above, below, False, weight, far))
            if u in (w, 1 / w):
                a, b = sympy.Abs(a), sympy.Abs(b)
            return Add(*left, replacements.excess_over_log(a, b, True, weight, far))
    return None


def _times_log_of(terms: Sequence[Expr]) -> Iterator[tuple[list[Expr], Expr, Expr]]:
    """The terms that are m*log(u), m and u; of log(u) - log(v), too."""
    found: list[tuple[Expr, Expr, Expr]] = []
    for term in terms:
        for factor in Mul.make_args(term):
            if isinstance(factor, sympy.log):
                found.append((term, term / factor, factor.args[0]))
            elif isinstance(factor, heads.xlogy):
                found.append((term, term / factor * factor.args[0], factor.args[1]))
    for term, m, u in found:
        yield [term], m, u
    for (term, m, u), (other, n, v) in itertools.combinations(found, 2):
        if m == -n:
            yield [term, other], m, u / v


def _marked(weight: Expr, w: Expr) -> Expr | None:
    """weight*(w - 1), marked as done by a bound; none if there is no way to."""
    if weight.is_number:
        return weight * sympy.Max(w, NO_PART_OF_1) - weight
    # Which bounds nothing: it may be negative, if what it is a weight of is a ratio.
    bounded = sympy.Max(weight, LEAST_NUMBER)
    return weight * w - bounded if isinstance(bounded, sympy.Max) else None


def of_one_nothing(node: Add) -> Expr | None:
    """Terms that are 0 where the same is, in one branch: their derivatives cancel."""
    found: dict[Basic, list[tuple[Expr, Expr]]] = {}
    for term in node.args:
        for factor in Mul.make_args(term):
            if isinstance(factor, sympy.Piecewise) and len(factor.args) == 2:
                (zero, where), (value, _) = factor.args
                if zero == 0 and isinstance(where, sympy.Eq) and _is_of_xlogy(value):
                    others = (each for each in Mul.make_args(term) if each is not factor)
                    found.setdefault(where, []).append((term, Mul(*others, value)))
                    break
    for where, terms in found.items():
        if len(terms) > 1:
            left = [each for each in node.args if each not in [term for term, _ in terms]]
            return Add(*left, _or_nothing(Add(*(value for _, value in terms)), where))
    return None


def _is_of_xlogy(value: Expr) -> bool:
    factors = itertools.chain.from_iterable(map(Mul.make_args, Add.make_args(value)))
    return any(isinstance(each, heads.xlogy) for each in factors)


def _or_nothing(value: Expr, where: Basic) -> Expr:
    return sympy.Piecewise((S.Zero, where), (value, True), evaluate=False)


def times_logs(node: Mul, parameters: frozenset[Symbol]) -> Expr | None:
    """p*(log(p) - log(q)) with the logarithms that are infinite where p is 0 by themselves."""
    for total in node.args:
        if not isinstance(total, Add):
            continue
        v = Mul(*(factor for factor in node.args if factor is not total))
        own = {term: found for term in total.args if (found := _into_log(v, term, parameters))}
        if own:
            left = [term for term in total.args if term not in own]
            return Add(*own.values(), v * Add(*left))
    return None


def _into_log(v: Expr, term: Expr, parameters: frozenset[Symbol]) -> Expr | None:
    """v times a term that is infinite where v is 0, as one product with that logarithm."""
    factor, head = term.as_coeff_Mul()
    if isinstance(head, sympy.log | heads.log1p):
        u = head.args[0] + int(isinstance(head, heads.log1p))
        return v * term if varies(v, parameters) and vanishes_with(v, u, parameters) else None
    if isinstance(head, heads.xlogy | heads.xlog1py):
        m, argument = head.args
        u = argument + int(isinstance(head, heads.xlog1py))
        powers = (
            (each.args[0], S.One) if isinstance(each, heads.power) else each.as_base_exp()
            for each in Mul.make_args(v)
        )
        if has_zero_of(powers, u, parameters):
            return head.func(factor * v * m, argument)
    return None


def of_nothing(product: Expr) -> Expr:
    """A product with v*log(m*v/(v + w)) as 0 where v + w is."""
    for shares in Mul.make_args(product):
        if not isinstance(shares, heads.xlogy):
            continue
        v, u = shares.args
        for whole in Mul.make_args(sympy.denom(u)):
            own = [each for each in Add.make_args(whole) if (each / v).is_number]
            if len(own) == 1 and whole.is_Add and (sympy.numer(u) / v).is_number:
                return _or_nothing(product, sympy.Eq(whole, 0))
    return product
