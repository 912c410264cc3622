"""Rules of powers that no pattern finds, and of products and sums with them."""

from __future__ import annotations

import itertools

import sympy
from sympy import Add, Expr, Mul, Pow, S, Symbol

from autofn import functions as heads
from autofn import trees
from autofn.compact import LIMIT
from autofn.rewrite import replacements
from autofn.rewrite.by_hand.parts import terms_with, with_exp
from autofn.rewrite.conditions import varies
from autofn.rewrite.match import are_equal


def power_mean(node: Pow) -> Expr | None:
    """(v*x**n + w*y**n)**(m/n) of weights that add up to 1, and any number of terms."""
    if node.exp.is_number or not isinstance(node.base, Add):
        return None
    factors = itertools.chain.from_iterable(map(Mul.make_args, node.base.args))
    found = {each for each in factors if isinstance(each, heads.power)}
    powers = sorted(found, key=sympy.default_sort_key)
    if not powers:
        return None
    (_, n), *_ = (each.args for each in powers)
    multiples = [sympy.cancel(each.args[1] / n) for each in powers]
    times = sympy.cancel(node.exp * n)
    if n.is_number or not times.is_number or not all(each.is_number for each in multiples):
        return None
    weights = [node.base.coeff(each) for each in powers]
    if any(weight.has(*powers) or weight == 0 for weight in weights):
        return None
    if sympy.expand(node.base.xreplace(dict.fromkeys(powers, S.One))) != 1:
        return None
    parts = [
        (weight, each.args[0], multiple)
        for weight, each, multiple in zip(weights, powers, multiples, strict=True)
    ]
    return replacements.power_mean(parts, n, times, heads.power(node.base, node.exp))


def power_with_exp(node: Pow, parameters: frozenset[Symbol]) -> Expr | None:
    """(c + v*exp(u))**n of a number c, but (1 + nu*exp(-x))**(-1/nu), which has a limit at 0."""
    found = None if node.exp.is_Integer else with_exp(node.base, parameters)
    if found is None or not found[2].is_number:
        return None
    if trees.symbols(found[1]) & sympy.fraction(node.exp)[1].free_symbols:
        return None
    return replacements.power_with_exp(*found, node.exp)


def with_lesser_power(node: Add) -> Expr | None:
    """a*power(u, v + n) + b*power(u, v) of a sum u as (a*u**n + b)*power(u, v), if terms cancel."""
    powers = [each for each in terms_with(node, heads.power) if each[1].args[0].is_Add]
    for (term, power), (other, lesser) in itertools.permutations(powers, 2):
        u, n = power.args[0], power.args[1] - lesser.args[1]
        if lesser.args[0] != u or not (n.is_Integer and 0 < n <= 2):
            continue
        a, b = term / power, other / lesser
        if trees.size(a) + trees.size(b) + trees.size(u) > LIMIT:
            continue
        whole, beside = sympy.expand(a * u**n), sympy.expand(b)
        sums = [len(Add.make_args(each)) for each in (whole + beside, whole, beside)]
        if sums[0] < sums[1] + sums[2]:
            left = (each for each in node.args if each not in (term, other))
            return Add(*left, lesser * sympy.factor_terms(whole + beside))
    return None


def over_its_base(node: Mul, parameters: frozenset[Symbol]) -> Expr | None:
    """power(u, v) over powers of u, or of what u is a multiple of, as one power."""
    for power in (each for each in node.args if isinstance(each, heads.power)):
        u, v = power.args
        for divisor in node.args:
            base, n = divisor.as_base_exp()
            if not (n.is_Integer and n < 0 and varies(base, parameters)):
                continue
            if not varies(multiple := u / base, parameters):
                return node / power / divisor * multiple**-n * heads.power(u, v + n)
    return None


def base_times_slope(node: Mul) -> Expr | None:
    """u times the slope of power(u, v), of which all factors of u are in a product."""
    for slope in node.args:
        if not (isinstance(slope, sympy.Piecewise) and len(slope.args) == 2):
            continue
        (nothing, where), (value, _) = slope.args
        rest = [each for each in node.args if each is not slope]
        for power in Mul.make_args(value) if nothing == 0 and isinstance(where, sympy.Eq) else ():
            if not isinstance(power, heads.power):
                continue
            u, v = power.args[0], power.args[1] + 1
            factors = Mul.make_args(u)
            is_slope = (value / power / v).is_number and are_equal(where.lhs - where.rhs, v)
            if is_slope and all(each in rest for each in factors):
                left = (each for each in rest if each not in factors)
                return Mul(*left, value / power * heads.power(u, v))
    return None


def times_pow1pm1(node: Mul) -> Expr | None:
    """v*((1 + u/v)**p - 1), v >= 0 of all sizes."""
    for power in node.args:
        if not isinstance(power, heads.pow1pm1):
            continue
        quotient, exponent = power.args
        for v in node.args:
            if not v.is_number and v.is_nonnegative and 1 / v in Mul.make_args(quotient):
                rest = node / power / v
                # What vanishes with the exponent stays beside it.
                below = Mul(
                    *(
                        each
                        for each in Mul.make_args(rest)
                        if each.as_base_exp()[1].is_negative
                        and each.free_symbols & exponent.free_symbols
                    )
                )
                branches = replacements.times_pow1pm1(quotient * v, v, exponent).args
                within = ((value * below, where) for value, where in branches)
                return rest / below * sympy.Piecewise(*within, evaluate=False)
    return None


def power_times_lesser(node: Mul) -> Expr | None:
    """A power over its sum with others, of which the sum is in two branches already."""
    for branches, whole in itertools.permutations(node.args, 2):
        if not (isinstance(branches, sympy.Piecewise) and isinstance(whole, heads.power)):
            continue
        t, small = replacements.lesser_power(*whole.args)
        (near, where), (far, always) = branches.args[0], branches.args[-1]
        if len(branches.args) == 2 and where == small and branches.has(t):
            share = sympy.Piecewise((near * t, small), (far / t, always), evaluate=False)
            return node.func(*(each for each in node.args if each not in (branches, whole)), share)
    return None
