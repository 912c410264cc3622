"""Rules of logarithms that no pattern finds: of products and sums of any number of parts."""

from __future__ import annotations

import functools

import sympy
from sympy import Add, Expr, Mul, S, Symbol, sqrt

from autofn import functions as heads
from autofn import trees
from autofn.rewrite import replacements
from autofn.rewrite.by_hand.parts import exps_in_regimes, times_exp_of, with_exp
from autofn.rewrite.conditions import varies
from autofn.rewrite.match import are_equal, holds, put, unfold
from autofn.rewrite.rule import C, Rule, U, V
from autofn.rewrite.rules import LOGARITHMS, NAMED

_IN_LOG = {
    head: rule
    for head in (heads.sigmoid, sympy.erfc, heads.normcdf, sympy.tanh, sympy.cosh)
    for rule in LOGARITHMS
    if rule.pattern == sympy.log(V * head(U))
}
_WITH_EXP = NAMED["log of v times exp"]
_IN_PIECES = {
    sympy.sinh(U): (NAMED["log of a product with sinh"], replacements.log_of_times_sinh),
    heads.expm1(U): (NAMED["log of a product with exp - 1"], replacements.log_of_times_expm1),
    heads.phi(S.One, U): (NAMED["log of a product with phi_1"], replacements.log_of_times_phi),
}
_LESS_EXP = NAMED["log of a product with 1 - exp"]
_LESS_EXP_OF_EXP = NAMED["log(1 - exp) of -exp"]
_BY_ITSELF = {
    sympy.gamma: NAMED["log of a product with gamma"],
    heads.power: NAMED["log of a product with a power"],
}
_OF_INTEGRAL = NAMED["log of an integral of normcdf"]


def log_of_product(node: Expr, parameters: frozenset[Symbol]) -> tuple[Rule, Expr] | None:
    """The logarithm of a product, with that of a factor that overflows or vanishes by itself."""
    factors = Mul.make_args(node)
    for k, factor in enumerate(factors if len(factors) > 1 else ()):
        rest = Mul(*factors[:k], *factors[k + 1 :])
        if isinstance(factor, sympy.exp):
            return _WITH_EXP, sympy.log(rest) + factor.args[0]
        base, power = factor.as_base_exp()
        if isinstance(base, heads.times_exp):
            v, u = base.args
            return _WITH_EXP, sympy.log(rest * v**power) + power * u
        if isinstance(base, heads.expm1) and power == 1 and rest.is_negative:
            return _LESS_EXP, put(_LESS_EXP, {U: base.args[0], V: -rest})
        is_one = base.is_Function and not isinstance(base, sympy.Piecewise)
        pieces = _IN_PIECES.get(base.func(*base.args[:-1], U)) if is_one else None
        if pieces is not None and holds(pieces[0], {U: base.args[-1], V: rest}, parameters):
            return pieces[0], pieces[1](rest, base.args[-1], power)
        rule = _IN_LOG.get(type(base))
        if rule is None:
            continue
        found = {U: base.args[0], V: rest}
        if isinstance(base, sympy.tanh) and rest.is_negative:
            found = {U: -base.args[0], V: -rest}
        if holds(rule, found, parameters):
            if power == 1:
                return rule, put(rule, found)
            return rule, sympy.log(rest) + power * put(rule, {**found, V: S.One})
    return None


def log_of_inverse(node: Expr) -> Expr | None:
    base, power = node.as_base_exp()
    if not (power.is_Rational and power.is_negative):
        return None
    is_even = power.is_Integer and power % 2 == 0
    return power * sympy.log(sympy.Abs(base) if is_even else base)


def log_of_part(node: Expr, parameters: frozenset[Symbol]) -> Expr | None:
    """log(c/(c + u)), and the inverse, of a c of numbers and parameters that u is added to.

    Of a difference it is the quotient that has the digits.
    """
    for factor in node.args if node.is_Mul else ():
        whole, power = factor.as_base_exp()
        if not isinstance(whole, Add) or abs(power) != 1:
            continue
        part = (node / factor) ** -power
        u = whole - part
        if part not in whole.args or varies(part, parameters) or not varies(u, parameters):
            continue
        if not any(term.could_extract_minus_sign() for term in Add.make_args(u)):
            return power * heads.log1p(u / part)
    return None


def log1mexp_of_exp(node: Expr, parameters: frozenset[Symbol]) -> tuple[Rule, Expr] | None:
    """log(1 - exp(-c*exp(u))) of a positive c, which is beside u in the exponent."""
    factors = Mul.make_args(-node.args[0])
    exps = [factor for factor in factors if isinstance(factor, sympy.exp)]
    others = Mul(*(factor for factor in factors if factor not in exps))
    if not exps or not others.is_positive:
        return None
    u = Add(*(each.args[0] for each in exps), sympy.log(others))
    if not holds(_LESS_EXP_OF_EXP, {U: u}, parameters):
        return None
    return _LESS_EXP_OF_EXP, replacements.log1mexp_of_exp(u)


def logs_of_factors(node: Expr) -> tuple[Rule, Expr] | None:
    """The logarithm of a product, with those of its gammas and powers by themselves.

    What is left may be negative where one of them is: its logarithm is of its magnitude.
    """
    if not isinstance(node, Mul):
        return None
    rules: list[Rule] = []
    logs: list[Expr] = []
    left: list[Expr] = []
    for factor in node.args:
        base, n = factor.as_base_exp()
        if (rule := _BY_ITSELF.get(base.func)) is None:
            is_root = n.is_Rational and n.q == 2
            left.append(factor if is_root else sympy.Abs(factor))
        else:
            rules.append(rule)
            logs.append(n * put(rule, {**dict(zip((U, V), base.args, strict=False)), C: S.One}))
    return (rules[0], Add(sympy.log(Mul(*left)), *logs)) if rules else None


def log_with_exp(node: Expr, parameters: frozenset[Symbol]) -> Expr | None:
    """log(c + v*exp(u)) of a v of either sign; and with another exp in c's place."""
    terms = node.args if isinstance(node, Add) else ()
    exps = [parts for term in terms if (parts := times_exp_of(term)) is not None]
    if (apart := exps_in_regimes(node)) is not None:
        exps = [(apart[0], S.One), (apart[1], -S.One)]
    if len(exps) == 2 and (apart is not None or len(terms) == 2):
        (u, v), (w, c) = sorted(exps, key=lambda each: bool(each[1].could_extract_minus_sign()))
        if v == -c:
            return u + heads.log1mexp(w - u) + sympy.log(v)
        if not varies(u - w, parameters) or (v.is_positive and c.is_positive):
            return None
        over = replacements.log_with_exp(u - w, v, c)
        if not isinstance(over, sympy.Piecewise):
            return None  # of negative numbers
        return sympy.Piecewise(*((w + each, where) for each, where in over.args), evaluate=False)
    found = with_exp(node, parameters)
    if found is None or found[1].is_negative or (found[1].is_positive and found[2].is_positive):
        return None
    return replacements.log_with_exp(*found)


def log_of_quotient(node: Expr) -> Expr | None:
    """The logarithm of a quotient of sums of exponentials, as the difference of theirs."""
    factors = [factor.as_base_exp() for factor in Mul.make_args(node)]
    if len(factors) < 2 or all(power.is_positive for _, power in factors):
        return None
    logs = [(log_of_sum(base), power) for base, power in factors if power.is_Integer]
    if len(logs) < len(factors) or not all(found for found, _ in logs):
        return None
    return Add(*(power * found for found, power in logs))


def log_of_sum(node: Expr) -> Expr | None:
    """The logarithm of a sum of positive terms, exp or cosh in each but for a constant."""
    if not isinstance(node, Add):
        return None
    constant: Expr = S.Zero
    logarithms = []
    for term in node.args:
        heads_in = [each for each in Mul.make_args(term) if each.has(sympy.exp, sympy.cosh)]
        factor = term / Mul(*heads_in)
        if not factor.is_positive or len(heads_in) > 1:
            return None
        if not heads_in:
            constant += factor
        elif isinstance(heads_in[0], sympy.exp):
            logarithms.append(heads_in[0].args[0] + sympy.log(factor))
        elif isinstance(heads_in[0], sympy.cosh):
            logarithms.append(heads.logcosh(heads_in[0].args[0]) + sympy.log(factor))
        else:
            return None
    if not logarithms:
        return None
    total = functools.reduce(heads.logaddexp, sorted(logarithms, key=sympy.default_sort_key))
    if constant == 0:
        return total
    shift = sympy.log(constant)
    return heads.softplus(total - shift) + shift


def log_of_integral(node: Expr, parameters: frozenset[Symbol]) -> Expr | None:
    found = as_integral_of_normcdf(node)
    if found is None or found[2] != 0 or not holds(_OF_INTEGRAL, {U: found[1]}, parameters):
        return None
    return sympy.log(found[0]) + put(_OF_INTEGRAL, {U: found[1]})


def as_integral_of_normcdf(node: Expr) -> tuple[Expr, Expr, Expr] | None:
    """m, u and what is left of a sum with m*(u*normcdf(u) + the normal density of u)."""
    terms = [unfold(term) for term in node.args] if isinstance(node, Add) else []
    for k, term in enumerate(terms):
        heads_in = [each for each in Mul.make_args(term) if isinstance(each, heads.normcdf)]
        if len(heads_in) != 1:
            continue
        u = unfold(heads_in[0].args[0])
        for n, other in enumerate(terms):
            # As a whole: either term may have taken in what m and u have of each other.
            m = other * sympy.exp(sympy.expand(u**2 / 2)) * sqrt(2 * sympy.pi)
            m = sympy.powsimp(m, combine="exp")
            if n == k or not other.has(sympy.exp) or trees.size(m) > trees.size(other):
                continue
            if are_equal(m * u, term / heads_in[0]):
                left = [each for i, each in enumerate(node.args) if i not in (k, n)]
                return m, heads_in[0].args[0], Add(*left)
    return None
