"""Finding the rules' patterns in expressions.

A pattern that is a sum is found within sums, at any multiple: 2*x - 2*x*sigmoid(y) holds 2*x times
1 - sigmoid(y). One that is a product is found within products, a power within higher powers. Inside
functions a pattern stands for the whole; there a bare wildcard of a sum takes what is left.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence

import sympy
from sympy import Add, Expr, Mul, Pow, S, Symbol

from autofn import functions as heads
from autofn import trees
from autofn.compact import LIMIT
from autofn.rewrite.conditions import varies
from autofn.rewrite.rule import Bindings, C, Rule, U, V

_WILDCARDS = (U, V, C)


def holds(rule: Rule, found: Bindings, parameters: frozenset[Symbol]) -> bool:
    return rule.where is None or rule.where(found, parameters)


def put(rule: Rule, found: Bindings) -> Expr:
    """The replacement, its wildcards filled in; a select is not evaluated again."""
    return rule.replacement.xreplace(dict(found))


def match(pattern: Expr, expr: Expr, found: Bindings) -> Iterator[Bindings]:
    """The ways in which an expression is the pattern; wildcards found before stay as they are."""
    if pattern in _WILDCARDS:
        if pattern not in found:
            yield {**found, pattern: expr}
        elif are_equal(found[pattern], expr):
            yield found
    elif not trees.symbols(pattern):
        if pattern == expr:
            yield found
    elif isinstance(pattern, Mul) and pattern.args[0].is_number:
        factor, rest = _apart(pattern)
        yield from match(rest, expr / factor, found)
    elif isinstance(pattern, Add):
        if isinstance(expr, Add):
            yield from _all_terms(list(pattern.args), list(expr.args), found)
    elif isinstance(pattern, Pow):
        base, exponent = expr.as_base_exp()
        for after in match(pattern.exp, exponent, found):
            yield from match(pattern.base, base, after)
    elif isinstance(pattern, sympy.Min | Mul) and isinstance(expr, pattern.func):
        if len(expr.args) == len(pattern.args):
            for args in itertools.permutations(expr.args):
                yield from _each(list(zip(pattern.args, args, strict=True)), found)
    elif pattern.func == expr.func and len(pattern.args) == len(expr.args):
        yield from _each(list(zip(pattern.args, expr.args, strict=True)), found)


@functools.lru_cache(maxsize=1000)
def _apart(pattern: Mul) -> tuple[Expr, Expr]:
    """A pattern's number, and what is left of it."""
    factor, rest = pattern.as_independent(*pattern.free_symbols, as_Add=False)
    return factor, rest


def _each(pairs: list[tuple[Expr, Expr]], found: Bindings) -> Iterator[Bindings]:
    if not pairs:
        yield found
        return
    (pattern, expr), *rest = pairs
    for after in match(pattern, expr, found):
        yield from _each(rest, after)


def _all_terms(patterns: list[Expr], terms: list[Expr], found: Bindings) -> Iterator[Bindings]:
    """Patterns against terms in any order; a bare wildcard comes last and takes what is left."""
    patterns = sorted(patterns, key=lambda each: each in _WILDCARDS)
    if not patterns:
        if not terms:
            yield found
        return
    first, *rest = patterns
    if first in _WILDCARDS and not rest:
        if terms:
            yield from match(first, Add(*terms), found)
        return
    for k, term in enumerate(terms):
        for after in match(first, term, found):
            yield from _all_terms(rest, terms[:k] + terms[k + 1 :], after)


def are_equal(a: Expr, b: Expr) -> bool:
    small = trees.size(a) + trees.size(b) < LIMIT
    return bool(a == b or (small and sympy.expand_mul(a - b) == 0))


def as_whole(rule: Rule, node: Expr, parameters: frozenset[Symbol]) -> Expr | None:
    for found in match(rule.pattern, node, {}):
        if holds(rule, found, parameters):
            return put(rule, found)
    return None


def in_sum(rule: Rule, node: Add, parameters: frozenset[Symbol]) -> Expr | None:
    terms, functions = _terms_and_functions(node)
    if not _functions_of(rule.pattern.args) <= functions:
        return None
    for multiple, found, left in _partial_sums(rule.pattern, list(terms)):
        if holds(rule, found, parameters) and _stands_alone(rule, found, left, parameters):
            new = Add(*left, multiple * put(rule, found))
            # Multiplied out, as it may be looked at next, it may be what it was.
            if not isinstance(new, Add) or {*_terms_and_functions(new)[0]} != {*terms}:
                return new
    return None


@functools.lru_cache(maxsize=1000)
def _terms_and_functions(node: Add) -> tuple[tuple[Expr, ...], frozenset[type]]:
    # Products with exp are whole by now: v*exp(u) - v is v times exp(u) - 1 all the same.
    terms = tuple(part for term in node.args for part in Add.make_args(unfold(term)))
    return terms, _functions_of(terms)


@functools.lru_cache(maxsize=1000)
def _functions_of(terms: tuple[Expr, ...]) -> frozenset[type]:
    """Those that are factors of terms, in powers too: a term is like a pattern only with its."""
    factors = (factor for term in terms for factor in Mul.make_args(term))
    bases = (each.base if isinstance(each, Pow) else each for each in factors)
    return frozenset(base.func for base in bases if base.is_Function)


def _stands_alone(
    rule: Rule, found: Bindings, left: list[Expr], parameters: frozenset[Symbol]
) -> bool:
    if rule.alone is None:
        return True
    symbols = trees.symbols(found[rule.alone]) - parameters
    return all(symbols.isdisjoint(trees.symbols(term)) for term in left)


def unfold(term: Expr) -> Expr:
    """Its products with exp multiplied out, and those that phi is of."""
    phis = [each for each in trees.nodes(term) if isinstance(each, heads.phi)]
    term = trees.replaced(term, {each: heads.phi(*map(unfold, each.args)) for each in phis})
    heads_in = [each for each in Mul.make_args(term) if isinstance(each, heads.times_exp)]
    term = term.xreplace({each: each.args[0] * sympy.exp(each.args[1]) for each in heads_in})
    return sympy.expand_mul(term) if phis else term


def _partial_sums(pattern: Add, terms: list[Expr]) -> Iterator[tuple[Expr, Bindings, list[Expr]]]:
    """Multiples of the pattern among terms: the factor, the wildcards, and the other terms."""
    anchor, *others = sorted(pattern.args, key=_how_plain)
    factor, core = anchor.as_coeff_Mul()
    for k, term in enumerate(terms):
        for found, cofactor in _factors_like(core, term, {}):
            multiple = cofactor / factor
            left = terms[:k] + terms[k + 1 :]
            for after, rest in _other_terms(others, multiple, left, found):
                yield multiple, after, rest


def _how_plain(term: Expr) -> int:
    """Functions first: they say most about what a wildcard is; then what has a bare one for a
    factor, numbers last.
    """
    if not trees.symbols(term):
        return 3
    if isinstance(term, Mul) and any(factor in _WILDCARDS for factor in term.args):
        return 1 if term.has(sympy.Function, sympy.Max, sympy.Min) else 2
    return 0 if term.has(sympy.Function, sympy.Max, sympy.Min) else 2


def _factors_like(core: Expr, term: Expr, found: Bindings) -> Iterator[tuple[Bindings, Expr]]:
    """The factors of a term that are the pattern, with the others multiplied."""
    factors = Mul.make_args(term)
    if isinstance(core, Mul):
        patterns = sorted(core.args, key=_how_plain)
        for after, left in _other_factors(patterns, list(factors), found, frozenset()):
            yield after, Mul(*left)
        return
    for k, each in enumerate(factors):
        for after in match(core, each, found):
            yield after, Mul(*factors[:k], *factors[k + 1 :])


def _other_terms(
    patterns: list[Expr], multiple: Expr, terms: list[Expr], found: Bindings
) -> Iterator[tuple[Bindings, list[Expr]]]:
    if not patterns:
        yield found, terms
        return
    first, *rest = patterns
    if trees.symbols(first) <= found.keys():
        wanted = Add.make_args(multiple * first.xreplace(dict(found)))
        left = list(terms)
        for each in wanted:
            if each not in left:
                return
            left.remove(each)
        yield from _other_terms(rest, multiple, left, found)
        return
    factor, core = first.as_coeff_Mul()
    for k, term in enumerate(terms):
        for after, cofactor in _factors_like(core, term, found):
            if cofactor == multiple * factor:
                left = terms[:k] + terms[k + 1 :]
                yield from _other_terms(rest, multiple, left, after)


def in_product(rule: Rule, node: Mul, parameters: frozenset[Symbol]) -> Expr | None:
    patterns = sorted(rule.pattern.args, key=_how_plain)
    for found, left in _other_factors(patterns, list(node.args), {}, parameters):
        if holds(rule, found, parameters):
            return Mul(*left, put(rule, found))
    return None


def _other_factors(
    patterns: list[Expr], factors: list[Expr], found: Bindings, parameters: frozenset[Symbol]
) -> Iterator[tuple[Bindings, list[Expr]]]:
    if not patterns:
        yield found, factors
        return
    first, *rest = patterns
    if first in _WILDCARDS and first not in found:
        # What varies: numbers and parameters stay outside.
        mine = [each for each in factors if varies(each, parameters)]
        if mine:
            left = [each for each in factors if each not in mine]
            yield from _other_factors(rest, left, {**found, first: Mul(*mine)}, parameters)
        return
    if isinstance(found.get(first), Mul):
        others = _without(factors, found[first].args)
        if others is not None:
            yield from _other_factors(rest, others, found, parameters)
        return
    base, wanted = first.as_base_exp() if not isinstance(first, sympy.exp) else (first, S.One)
    for k, factor in enumerate(factors):
        body, power = factor.as_base_exp() if not isinstance(factor, sympy.exp) else (factor, S.One)
        if not (power.is_Integer and (power / wanted).is_positive and abs(power) >= abs(wanted)):
            continue
        for after in match(base, body, found):
            left = [*factors[:k], *factors[k + 1 :]]
            if power != wanted:
                left.append(body ** (power - wanted))
            yield from _other_factors(rest, left, after, parameters)


def _without(factors: list[Expr], wanted: Sequence[Expr]) -> list[Expr] | None:
    """The factors without those wanted, a power with one less; None where one is missing."""
    left = list(factors)
    for each in wanted:
        powers = (f for f in left if f == each or (f.is_Pow and f.args[0] == each))
        power = next(powers, None)
        if power is None or not (power == each or (power.args[1].is_Integer and power.args[1] > 1)):
            return None
        left.remove(power)
        if power != each:
            left.append(power / each)
    return left


def in_power(rule: Rule, node: Pow, parameters: frozenset[Symbol]) -> Expr | None:
    base, exponent = node.args
    wanted = rule.pattern.exp if isinstance(rule.pattern, Pow) else None
    if wanted is None or not wanted.is_number:
        return _whole_power(rule, node, parameters)
    if not (exponent.is_Integer and exponent / wanted >= 1):
        return None
    count = exponent // wanted
    for multiple, found in _multiples(rule.pattern.base, base):
        if holds(rule, found, parameters):
            rest = (multiple * rule.pattern.base.xreplace(dict(found))) ** (
                exponent - count * wanted
            )
            return multiple ** (count * wanted) * put(rule, found) ** count * rest
    return None


def _whole_power(rule: Rule, node: Pow, parameters: frozenset[Symbol]) -> Expr | None:
    for after in match(rule.pattern.args[-1], node.exp, {}):
        pattern = rule.pattern.args[0] if len(rule.pattern.args) == 2 else S.Exp1
        for found in match(pattern, node.base, after):
            if holds(rule, found, parameters):
                return put(rule, found)
    return None


def _multiples(pattern: Expr, expr: Expr) -> Iterator[tuple[Expr, Bindings]]:
    """Numbers times the pattern."""
    if isinstance(pattern, Add) and isinstance(expr, Add):
        for multiple, found, left in _partial_sums(pattern, list(expr.args)):
            if not left and multiple.is_number:
                yield multiple, found
    else:
        for found in match(pattern, expr, {}):
            yield S.One, found
