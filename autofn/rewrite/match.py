"""Finding the rules' patterns in expressions.

A pattern that is a sum is found within sums, at any multiple: 2*x - 2*x*sigmoid(y) holds 2*x times
1 - sigmoid(y). One that is a product is found within products, a power within higher powers. Inside
functions a pattern stands for the whole; there a bare wildcard of a sum takes what is left.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import sympy
from sympy import Add, Basic, Expr, Integer, Mul, Pow, Rational, S, Symbol, sqrt

from autofn import functions as heads
from autofn import trees
from autofn.compact import LIMIT
from autofn.rewrite.rules import (
    ANGLES,
    AREAS,
    LOGARITHMS,
    NAMES,
    POWERS,
    PRODUCTS,
    REMOVABLE,
    ROOTS,
    RULES,
    SIGNS,
    SUMS,
    Bindings,
    C,
    Rule,
    U,
    V,
    excess_over_log,
    exp_less_exp,
    has_zero_of,
    less_root_of_difference,
    less_root_of_squares,
    lesser_power,
    log1mexp_of_exp,
    log_of_times_expm1,
    log_of_times_phi,
    log_of_times_sinh,
    log_with_exp,
    logarithmic_mean,
    mean_root_over,
    over_expm1,
    power_mean,
    power_with_exp,
    times_pow1pm1,
    vanishes_with,
    varies,
    with_positive,
)
from autofn.rewrite.within import LEAST_NUMBER, NO_PART_OF_1

_WILDCARDS = (U, V, C)
_BY_NAME = {rule.pattern.func: rule for rule in NAMES}
assert len(_BY_NAME) == len(NAMES)
_ROOT, _ROOT_OF_EXP, _CUBE_ROOT = ROOTS
_NAMED = {rule.name: rule for rule in RULES}
_TIMES_LOG = _NAMED["v times log"]
_IN_LOG = {
    head: rule
    for head in (heads.sigmoid, sympy.erfc, heads.normcdf, sympy.tanh, sympy.cosh)
    for rule in LOGARITHMS
    if rule.pattern == sympy.log(V * head(U))
}
_WITH_EXP = _NAMED["log of v times exp"]
_IN_PIECES = {
    sympy.sinh(U): (_NAMED["log of a product with sinh"], log_of_times_sinh),
    heads.expm1(U): (_NAMED["log of a product with exp - 1"], log_of_times_expm1),
    heads.phi(S.One, U): (_NAMED["log of a product with phi_1"], log_of_times_phi),
}
_OF_INVERSE = _NAMED["log of an inverse"]
_LESS_EXP = _NAMED["log of a product with 1 - exp"]
_LESS_EXP_OF_EXP = _NAMED["log(1 - exp) of -exp"]
_BY_ITSELF = {
    sympy.gamma: _NAMED["log of a product with gamma"],
    heads.power: _NAMED["log of a product with a power"],
}
_SUM_OF_EXPS = _NAMED["log of a sum of exps"]
_OVER_SINE = _NAMED["acos over its sine"]
_OVER_EXPS = _NAMED["exp over a sum of two"]
_OF_DIFFERENCES = {
    sympy.exp: _NAMED["exp - exp over the difference"],
    sympy.sin: _NAMED["sin - sin over the difference"],
    sympy.cos: _NAMED["cos - cos over the difference"],
    Pow: _NAMED["root - root over the difference"],
}
_OVER_LOGS = _NAMED["difference over that of logs"]
_OVER_LOG = _NAMED["difference over the log of the ratio"]
_OF_MASS = _NAMED["log of a normal mass"]
_OF_ODDS = [
    _NAMED["log of 1 + a quotient of positive exp - 1"],
    _NAMED["log of 1 + a quotient of exp - 1"],
]
_LOG_WITH_EXP = _NAMED["log of a sum with a multiple of exp"]
_RUN_TIME = _NAMED["power known at run time"]
_POWER_WITH_EXP = _NAMED["power of 1 + a multiple of exp"]
_OF_INTEGRAL = _NAMED["log of an integral of normcdf"]
_ROOT_AND_ARGUMENT = _NAMED["root of a square and more, + u"]
_ARGUMENT_OVER_ROOT = _NAMED["1 + u over the root of a square and more"]
_SPLIT = _NAMED["root of a sum - that of the difference"]
_LESSER_POWER = _NAMED["powers of a sum that differ by 1"]
_BASE_TIMES_SLOPE = _NAMED["slope of a power times its base"]
_BESIDE_HINGE = _NAMED["beside what is 0 below"]
_OVER_ONE_EXP = _NAMED["quotient of sums of exps"]
_SIGN_IN_PIECES = _NAMED["sign times pieces with |u|"]
_SQUARE_LESS_1 = _NAMED["square of a quotient with a root less 1"]
_SHARE_OF_REST = _NAMED["share of a root's square less its rest"]
_ONE_SHARE = _NAMED["slopes of a difference of roots"]
_RISE = _NAMED["root of a sum less that of a part"]
_RISE_OVER_ROOT = _NAMED["1 less the root of a part of a sum over its"]
_PART_OF_WHOLE = _NAMED["1 - a part over the whole"]
_OVER_EXP = _NAMED["exp - 1 over exp"]
_EXP_OVER = _NAMED["exp over exp - 1"]
_SUM_OVER_EXPM1 = _NAMED["sum with exp over exp - 1"]
_POWER_OVER = _NAMED["power over a sum with it"]
_OVER_GROWING = _NAMED["exp - 1 over a sum with it"]
_OVER_FACTOR = _NAMED["mean_any_root over a factor"]
_LESS_LOG = _NAMED["u less the log of a sum of exps"]
_MEAN_BY_EXPS = _NAMED["mean by the sizes of exps"]
_POWER_MEAN = _NAMED["power mean"]
_OVER_EXPONENT = _NAMED["v times exp, over what the exponent is"]
_TIMES_POW1PM1 = _NAMED["v times a power of 1 + u/v, less 1"]
_LESS_ROOT_OF_SQUARES = _NAMED["sum less the root of its squares"]
_LESS_ROOT_OF_DIFFERENCE = _NAMED["sum less the root of its difference"]
_BETWEEN = _NAMED["from one to the other by a sigmoid"]
_LESS_HALF = {
    heads.sigmoid: _NAMED["sum times sigmoid, less half of a part"],
    heads.normcdf: _NAMED["sum times normcdf, less half of a part"],
}
_LESS_ITS_LOG = _NAMED["quotient - 1, less its log"]
_SCALED_ERFC = _NAMED["exp times the tail of erf"]
_SCALED_NORMCDF = _NAMED["exp times the tail of normcdf"]
_EXP_OVER_EXP = _NAMED["sum with exp over exp, less 1"]
_LESS_ARGUMENT = _NAMED["exp - 1 - u"]


PAIRED = 30
"""Sums of at most so many terms are looked at pair by pair."""


def rewritten(node: Basic, parameters: frozenset[Symbol]) -> tuple[Rule, Expr] | None:
    """The first rule of which the pattern is found at the top of an expression, and what it makes.

    `parameters` are symbols of moderate values, numbers and learnable parameters.
    """
    if not trees.symbols(node) and node.func not in _BY_NAME:
        return None  # a number, whatever its form
    if isinstance(node, Add):
        if (share := _log_of_share(node)) is not None:
            return _LESS_LOG, share
        if (one := _of_one_nothing(node)) is not None:
            return _TIMES_LOG, one
        if len(node.args) <= PAIRED:
            if (lesser := _less_root_of_difference(node)) is not None:
                return _LESS_ROOT_OF_DIFFERENCE, lesser
            if (split := _root_split(node)) is not None:
                return _SPLIT, split
            if (share := _one_share(node)) is not None:
                return _ONE_SHARE, share
            if (power := _with_lesser_power(node)) is not None:
                return _LESSER_POWER, power
            if (lesser := _square_less_1(node)) is not None:
                return _SQUARE_LESS_1, lesser
            if (rest := _share_of_rest(node)) is not None:
                return _SHARE_OF_REST, rest
            if (mean := _with_mean_root(node)) is not None:
                return mean
            if (rest := _whole_less_part(node, parameters)) is not None:
                return _PART_OF_WHOLE, rest
            if (excess := _less_its_log(node)) is not None:
                return _LESS_ITS_LOG, excess
            if (apart := _exp_over_exp_less_1(node)) is not None:
                return _EXP_OVER_EXP, apart
            if (lesser := _expm1_less_terms(node)) is not None:
                return _LESS_ARGUMENT, lesser
        found = _first(SUMS, lambda rule: _in_sum(rule, node, parameters))
        if found is None and (between := _between(node, parameters)) is not None:
            return _BETWEEN, between
        return found or _less_half(node)
    if isinstance(node, Mul):
        if (tail := _scaled_tail(node)) is not None:
            return tail
        if (power := _base_times_slope(node)) is not None:
            return _BASE_TIMES_SLOPE, power
        if (beside := _beside_hinge(node)) is not None:
            return _BESIDE_HINGE, beside
        if (pieces := _sign_in_pieces(node)) is not None:
            return _SIGN_IN_PIECES, pieces
        if (share := _share(node)) is not None:
            return _OVER_EXPS, share
        if (whole := _over_exponent(node, parameters)) is not None:
            return _OVER_EXPONENT, whole
        if (parts := _times_pow1pm1(node)) is not None:
            return _TIMES_POW1PM1, parts
        if (mean := _mean_by_exps(node)) is not None:
            return _MEAN_BY_EXPS, mean
        if (angle := _over_sine(node)) is not None:
            return _OVER_SINE, angle
        if (quotient := _difference_quotient(node, parameters)) is not None:
            return quotient
        if (share := _power_times_lesser(node)) is not None:
            return _POWER_OVER, share
        if (mirrored := _less_exp(node)) is not None:
            return mirrored
        if (over_one := _over_one_exp(node)) is not None:
            return _OVER_ONE_EXP, over_one
        if (decaying := _over_growing_sum(node)) is not None:
            return _OVER_GROWING, decaying
        if (mixed := _sum_over_expm1(node, parameters)) is not None:
            return _SUM_OVER_EXPM1, mixed
        found = _first(PRODUCTS[:-1], lambda rule: _in_product(rule, node, parameters))
        if found is None and (quotient := _mean_root_over(node, parameters)) is not None:
            return quotient
        found = found or _first(REMOVABLE, lambda rule: _removed(rule, node, parameters))
        if found is None and (parts := _times_logs(node, parameters)) is not None:
            return _TIMES_LOG, parts
        found = found or _first(PRODUCTS[-1:], lambda rule: _in_product(rule, node, parameters))
        return found and (found[0], _of_nothing(found[1]))
    if isinstance(node, Pow):
        if (root := _root(node, parameters)) is not None:
            return (_ROOT_OF_EXP if root.has(sympy.exp) else _ROOT), root
        if node.exp.is_Rational and node.exp.q == 3:
            return _CUBE_ROOT, heads.cbrt(node.base) ** node.exp.p
        if (mean := _power_mean(node)) is not None:
            return _POWER_MEAN, mean
        found = _first(POWERS, lambda rule: _in_power(rule, node, parameters))
        if found is None or found[0] is _RUN_TIME:
            power = _power_with_exp(node, parameters)
            return found if power is None else (_POWER_WITH_EXP, power)
        return found
    if isinstance(node, sympy.log):
        if (logs := _logs_of_factors(node.args[0])) is not None:
            return logs
        base, power = node.args[0].as_base_exp()
        if power.is_Rational and power.is_negative:
            is_even = power.is_Integer and power % 2 == 0
            return _OF_INVERSE, power * sympy.log(sympy.Abs(base) if is_even else base)
        *others, last = LOGARITHMS
        found = _first(others, lambda rule: _whole(rule, node, parameters))
        if found is None and (parts := _log_of_product(node.args[0], parameters)) is not None:
            return parts
        if found is None and (sum_of_exps := _log_of_sum(node.args[0])) is not None:
            return _SUM_OF_EXPS, sum_of_exps
        if found is None and (parted := _log_with_exp(node.args[0], parameters)) is not None:
            return _LOG_WITH_EXP, parted
        if found is None and (integral := _log_of_integral(node.args[0], parameters)) is not None:
            return _OF_INTEGRAL, integral
        return found or _first([last], lambda rule: _whole(rule, node, parameters))
    if isinstance(node, sympy.sin | sympy.cos):
        return _first(ANGLES, lambda rule: _whole(rule, node, parameters))
    if isinstance(node, sympy.sign):
        return _first(SIGNS, lambda rule: _whole(rule, node, parameters))
    if isinstance(node, heads.log1p):
        return _first(_OF_ODDS, lambda rule: _whole(rule, node, parameters))
    if isinstance(node, heads.log1mexp):
        return _log1mexp_of_exp(node, parameters)
    if isinstance(node, sympy.asinh | sympy.acosh):
        return _first(AREAS, lambda rule: _whole(rule, node, parameters))
    if node.func in _BY_NAME:
        rule = _BY_NAME[node.func]
        # Further arguments are those that SymPy adds: beta(a, b) has four.
        wildcards = dict(zip((U, V), node.args, strict=False))
        return rule, rule.replacement.xreplace(wildcards)
    return None


def _first(rules: Sequence[Rule], made: Callable[[Rule], Expr | None]) -> tuple[Rule, Expr] | None:
    for rule in rules:
        if (new := made(rule)) is not None:
            return rule, new
    return None


def _holds(rule: Rule, found: Bindings, parameters: frozenset[Symbol]) -> bool:
    return rule.where is None or rule.where(found, parameters)


def _put(rule: Rule, found: Bindings) -> Expr:
    """The replacement, its wildcards filled in; a select is not evaluated again."""
    return rule.replacement.xreplace(dict(found))


# --- whole expressions -----------------------------------------------------------------------


def match(pattern: Expr, expr: Expr, found: Bindings) -> Iterator[Bindings]:
    """The ways in which an expression is the pattern; wildcards found before stay as they are."""
    if pattern in _WILDCARDS:
        if pattern not in found:
            yield {**found, pattern: expr}
        elif _equal(found[pattern], expr):
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


def _equal(a: Expr, b: Expr) -> bool:
    small = trees.size(a) + trees.size(b) < LIMIT
    return bool(a == b or (small and sympy.expand_mul(a - b) == 0))


def _whole(rule: Rule, node: Expr, parameters: frozenset[Symbol]) -> Expr | None:
    for found in match(rule.pattern, node, {}):
        if _holds(rule, found, parameters):
            return _put(rule, found)
    return None


def _log_of_product(node: Expr, parameters: frozenset[Symbol]) -> tuple[Rule, Expr] | None:
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
            return _LESS_EXP, _put(_LESS_EXP, {U: base.args[0], V: -rest})
        is_one = base.is_Function and not isinstance(base, sympy.Piecewise)
        pieces = _IN_PIECES.get(base.func(*base.args[:-1], U)) if is_one else None
        if pieces is not None and _holds(pieces[0], {U: base.args[-1], V: rest}, parameters):
            return pieces[0], pieces[1](rest, base.args[-1], power)
        rule = _IN_LOG.get(type(base))
        if rule is None:
            continue
        found = {U: base.args[0], V: rest}
        if isinstance(base, sympy.tanh) and rest.is_negative:
            found = {U: -base.args[0], V: -rest}
        if _holds(rule, found, parameters):
            if power == 1:
                return rule, _put(rule, found)
            return rule, sympy.log(rest) + power * _put(rule, {**found, V: S.One})
    return None


def _log1mexp_of_exp(node: Expr, parameters: frozenset[Symbol]) -> tuple[Rule, Expr] | None:
    """log(1 - exp(-c*exp(u))) of a positive c, which is beside u in the exponent."""
    factors = Mul.make_args(-node.args[0])
    exps = [factor for factor in factors if isinstance(factor, sympy.exp)]
    others = Mul(*(factor for factor in factors if factor not in exps))
    if not exps or not others.is_positive:
        return None
    u = Add(*(each.args[0] for each in exps), sympy.log(others))
    if not _holds(_LESS_EXP_OF_EXP, {U: u}, parameters):
        return None
    return _LESS_EXP_OF_EXP, log1mexp_of_exp(u)


def _logs_of_factors(node: Expr) -> tuple[Rule, Expr] | None:
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
            logs.append(n * _put(rule, {**dict(zip((U, V), base.args, strict=False)), C: S.One}))
    return (rules[0], Add(sympy.log(Mul(*left)), *logs)) if rules else None


def _log_with_exp(node: Expr, parameters: frozenset[Symbol]) -> Expr | None:
    """log(c + v*exp(u)) of a v of either sign; and with another exp in c's place."""
    terms = node.args if isinstance(node, Add) else ()
    exps = [parts for term in terms if (parts := _times_exp_of(term)) is not None]
    if (apart := _exps_in_regimes(node)) is not None:
        exps = [(apart[0], S.One), (apart[1], -S.One)]
    if len(exps) == 2 and (apart is not None or len(terms) == 2):
        (u, v), (w, c) = sorted(exps, key=lambda each: bool(each[1].could_extract_minus_sign()))
        if v == -c:
            return u + heads.log1mexp(w - u) + sympy.log(v)
        if not varies(u - w, parameters) or (v.is_positive and c.is_positive):
            return None
        over = log_with_exp(u - w, v, c)
        if not isinstance(over, sympy.Piecewise):
            return None  # of negative numbers
        return sympy.Piecewise(*((w + each, where) for each, where in over.args), evaluate=False)
    found = _with_exp(node, parameters)
    if found is None or found[1].is_negative or (found[1].is_positive and found[2].is_positive):
        return None
    return log_with_exp(*found)


def _with_exp(node: Expr, parameters: frozenset[Symbol]) -> tuple[Expr, Expr, Expr] | None:
    """u, v and c of c + v*exp(u)."""
    if not isinstance(node, Add):
        return None
    exps = [(term, *parts) for term in node.args if (parts := _times_exp_of(term)) is not None]
    if len(exps) != 1 or not varies(exps[0][1], parameters) or exps[0][1].has(sympy.Min):
        return None
    ((term, u, v),) = exps
    return u, v, node - term


def _power_with_exp(node: Pow, parameters: frozenset[Symbol]) -> Expr | None:
    """(c + v*exp(u))**n of a number c, but (1 + nu*exp(-x))**(-1/nu), which has a limit at 0."""
    found = None if node.exp.is_Integer else _with_exp(node.base, parameters)
    if found is None or not found[2].is_number:
        return None
    if trees.symbols(found[1]) & sympy.fraction(node.exp)[1].free_symbols:
        return None
    return power_with_exp(*found, node.exp)


def _power_mean(node: Pow) -> Expr | None:
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
    return power_mean(parts, n, times, heads.power(node.base, node.exp))


def _times_exp_of(term: Expr) -> tuple[Expr, Expr] | None:
    """u and v of v*exp(u)."""
    factors = Mul.make_args(_unfolded(term))
    for k, factor in enumerate(factors):
        if isinstance(factor, sympy.exp):
            return factor.args[0], Mul(*factors[:k], *factors[k + 1 :])
    return None


def _log_of_sum(node: Expr) -> Expr | None:
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


def _over_sine(node: Mul) -> Expr | None:
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
                return rest * _put(_OVER_SINE, {U: u})
    return None


def _difference_quotient(node: Mul, parameters: frozenset[Symbol]) -> tuple[Rule, Expr] | None:
    """f(u) - f(v) over u - v, or the inverse, at any multiple and among other factors."""
    for head, fraction in itertools.permutations(node.args, 2):
        (base, power), (d, exponent) = head.as_base_exp(), fraction.as_base_exp()
        if not (power.is_Integer and exponent.is_Integer and power * exponent < 0):
            continue
        if not trees.symbols(base):
            continue
        for rule, u, v, value in _differences(base):
            multiple = _multiple_of(u - v, d)
            if multiple is None or varies(sympy.fraction(multiple)[0], parameters):
                continue
            sign = 1 if power > 0 else -1
            others = (each for each in node.args if each not in (head, fraction))
            rest = base ** (power - sign) * d ** (exponent + sign)
            return rule, Mul(*others) * rest * (value / multiple) ** sign
    return None


def _power_times_lesser(node: Mul) -> Expr | None:
    """A power over its sum with others, of which the sum is in two branches already."""
    for branches, whole in itertools.permutations(node.args, 2):
        if not (isinstance(branches, sympy.Piecewise) and isinstance(whole, heads.power)):
            continue
        t, small = lesser_power(*whole.args)
        (near, where), (far, always) = branches.args[0], branches.args[-1]
        if len(branches.args) == 2 and where == small and branches.has(t):
            share = sympy.Piecewise((near * t, small), (far / t, always), evaluate=False)
            return node.func(*(each for each in node.args if each not in (branches, whole)), share)
    return None


def _differences(node: Expr) -> Iterator[tuple[Rule, Expr, Expr, Expr]]:
    """u and v of m*(f(u) - f(v)), and that over u - v."""
    if isinstance(node, sympy.log):
        u, v = node.args[0].as_numer_denom()
        yield _OVER_LOG, u, v, 1 / logarithmic_mean(u, v, node)
    if (exps := _exps_in_regimes(node)) is not None:
        of_exps = _OF_DIFFERENCES[sympy.exp]
        yield of_exps, *exps, _put(of_exps, dict(zip((U, V), exps, strict=True)))
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
            yield _OVER_LOGS, u, v, multiple / logarithmic_mean(u, v, head - other)
        elif (rule := _OF_DIFFERENCES.get(head.func)) is not None:
            yield rule, u, v, multiple * _put(rule, {U: u, V: v})


def _exps_in_regimes(node: Expr) -> tuple[Expr, Expr] | None:
    """u and v of exp(u) - exp(v), where another rule has been there before."""
    near = node.args[0][0] if isinstance(node, sympy.Piecewise) else None
    factors = {each.func: each for each in Mul.make_args(near)} if near else {}
    if isinstance(near, heads.times_exp) and isinstance(near.args[0], heads.expm1):
        (difference,), v = near.args[0].args, near.args[1]
    elif factors.keys() == {sympy.exp, heads.expm1}:  # exp of what is not above 0
        (difference,), (v,) = factors[heads.expm1].args, factors[sympy.exp].args
    else:
        return None
    u = v + difference
    (_, where), far = exp_less_exp(u, v).args
    return (u, v) if node.args == ((near, where), far) else None


def _multiple_of(u: Expr, multiple: Expr) -> Expr | None:
    """How many times u it is, where that is one term as both are multiplied out."""
    if trees.size(u) + trees.size(multiple) > LIMIT:
        return None
    u, multiple = sympy.expand_mul(u), sympy.expand_mul(multiple)
    for term in Add.make_args(multiple) if u != 0 else ():
        times = term / Add.make_args(u)[0]
        if sympy.expand_mul(multiple - times * u) == 0:
            return times
    return None


def _less_exp(node: Mul) -> tuple[Rule, Expr] | None:
    """exp(w)*(exp(u) - 1) with -u a term of w, or exp(w)/(exp(u) - 1) with u one."""
    for head, factor in itertools.permutations(node.args, 2):
        base, power = factor.as_base_exp()
        if not (isinstance(head, sympy.exp) and isinstance(base, heads.expm1)):
            continue
        u, terms = base.args[0], Add.make_args(head.args[0])
        if len(terms) > 1 and abs(power) == 1 and -power * u in terms:
            rule = _OVER_EXP if power > 0 else _EXP_OVER
            others = [each for each in node.args if each not in (head, factor)]
            return rule, Mul(*others, sympy.exp(head.args[0] + power * u), _put(rule, {U: u}))
    return None


def _over_growing_sum(node: Mul) -> Expr | None:
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


def _sum_over_expm1(node: Mul, parameters: frozenset[Symbol]) -> Expr | None:
    """c + v*exp(u) over exp(u) - 1, with a factor of u beside them if there is one."""
    for total, fraction in itertools.permutations(node.args, 2):
        head, power = fraction.as_base_exp()
        found = _with_exp(total, parameters) if isinstance(head, heads.expm1) else None
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
                return Mul(*others, 1 / ratio, over_expm1(u, v, c, times=True))
        return Mul(*others, over_expm1(u, v, c, times=False))
    return None


def _mean_root_over(node: Mul, parameters: frozenset[Symbol]) -> tuple[Rule, Expr] | None:
    """The mean of u and sqrt(u**2 + v*d) over d: the quadratic formula, which has a limit at 0."""
    for mean, fraction in itertools.permutations(node.args, 2):
        d, power = fraction.as_base_exp()
        if not isinstance(mean, heads.mean_any_root) or power != -1:
            continue
        u, product = mean.args
        found = {U: u, V: sympy.cancel(product / d), C: d}
        if _holds(_OVER_FACTOR, found, parameters):
            return _OVER_FACTOR, node / mean * d * mean_root_over(u, found[V], d)
    return None


def _share(node: Mul) -> Expr | None:
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
            others = _log_of_sum(total - own[0])
            if others is not None:
                u, multiple = numerator.args[0], own[0] / numerator
                share = heads.sigmoid(u + sympy.log(multiple) - others) / multiple
                return node / numerator * total * share
    return None


def _over_one_exp(node: Mul) -> Expr | None:
    """exp(u), or a sum of exponentials, over another sum: both over one of them, by which all have
    exponents that are multiples of the same."""
    for fraction in node.args:
        total, power = fraction.as_base_exp()
        if not (isinstance(total, Add) and len(total.args) > 2 and power.is_Integer and power < 0):
            continue
        below = _exps(total)
        if below is None or (w := _common_exponent([u for u, _ in below])) is None:
            continue
        for above in (each for each in node.args if each is not fraction):
            if (terms := _exps(above)) is not None:
                lower = Add(*(v * sympy.exp(sympy.expand(u - w)) for u, v in below))
                upper = Add(*(v * sympy.exp(sympy.expand(u + power * w)) for u, v in terms))
                return node / above / fraction * upper * lower**power
    return None


def _exps(total: Expr) -> list[tuple[Expr, Expr]] | None:
    """u and v of the v*exp(u) of which it is the sum; None where it has other terms."""
    found = [_times_exp_of(term) for term in Add.make_args(total)]
    return [each for each in found if each is not None] if None not in found else None


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


def _mean_by_exps(node: Mul) -> Expr | None:
    """A sum of multiples of exponentials over the sum of these, term by term."""
    for above, fraction in itertools.permutations(node.args, 2):
        total, power = fraction.as_base_exp()
        if power != -1 or not (isinstance(above, Add) and isinstance(total, Add)):
            continue
        weights = [term.as_coeff_Mul()[1] for term in total.args]
        if not all(isinstance(each, sympy.exp) for each in weights):
            continue
        terms = [_times_exp_of(term) for term in above.args]
        if all(parts is not None and sympy.exp(parts[0]) in weights for parts in terms):
            others = node / above * total
            return Add(*(others * v * sympy.exp(u) / total for u, v in filter(None, terms)))
    return None


def _log_of_share(node: Add) -> Expr | None:
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


def _less_its_log(node: Add) -> Expr | None:
    """m*(w - 1 - log(w)) in a sum, of a power w of what the logarithm is of."""
    factors = itertools.chain.from_iterable(map(Mul.make_args, node.args))
    if not any(isinstance(each, sympy.log | heads.xlogy) for each in factors):
        return None
    terms = Add.make_args(Add(*(_divided_out(term) for term in node.args)))
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
            a, b = _square_root(above), _square_root(below)
            if a is None or b is None:
                return Add(*left, excess_over_log(above, below, False, weight, far))
            if u in (w, 1 / w):
                a, b = sympy.Abs(a), sympy.Abs(b)
            return Add(*left, excess_over_log(a, b, True, weight, far))
    return None


def _exp_over_exp_less_1(node: Add) -> Expr | None:
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


def _expm1_less_terms(node: Add) -> Expr | None:
    """m*(expm1(u) - u) in a sum, of a u that is a sum itself: its terms are among the others."""
    for term in node.args:
        m, head = term.as_coeff_Mul()
        if isinstance(head, heads.expm1) and isinstance(head.args[0], Add):
            terms = {-m * each for each in head.args[0].args}
            if terms < {*node.args}:
                left = [each for each in node.args if each not in terms and each is not term]
                return Add(*left, m * heads.expm1mx(head.args[0]))
    return None


def _scaled_tail(node: Mul) -> tuple[Rule, Expr] | None:
    """exp(u**2)*erfc(u), or exp(u**2/2)*normcdf(u), in a product."""
    exponentials = [each for each in node.args if isinstance(each, sympy.exp)]
    for tail in node.args if exponentials else ():
        if isinstance(tail, sympy.erfc):
            rule, square = _SCALED_ERFC, tail.args[0] ** 2
        elif isinstance(tail, heads.normcdf):
            rule, square = _SCALED_NORMCDF, tail.args[0] ** 2 / 2
        else:
            continue
        for growing in exponentials:
            if _equal(growing.args[0], square):
                return rule, node / tail / growing * _put(rule, {U: tail.args[0]})
    return None


def _between(node: Add, parameters: frozenset[Symbol]) -> Expr | None:
    """u + (v - u)*sigmoid(w) as both their shares: it cancels where v is much smaller.

    Which no number is beside a parameter.
    """
    for term in node.args:
        for share in Mul.make_args(term):
            if not isinstance(share, heads.sigmoid):
                continue
            difference = _divided_out(term / share)
            for u in node.args:
                if u is term or not (difference.is_Add and -u in difference.args):
                    continue
                v = difference + u
                if not v.is_number or varies(u, parameters):
                    (w,) = share.args
                    return node - term - u + u * heads.sigmoid(-w) + v * share
    return None


def _less_half(node: Add) -> tuple[Rule, Expr] | None:
    """(u + v)*sigmoid(w) - v/2, which is u/2 where w is 0; and of normcdf."""
    for term in node.args:
        for share in Mul.make_args(term):
            if (rule := _LESS_HALF.get(share.func)) is None:
                continue
            total = _divided_out(term / share)
            for v in total.args if total.is_Add else ():
                half = next((each for each in node.args if _are_opposite(each, v / 2)), None)
                if half is not None:
                    whole = _put(rule, {U: total - v, V: v, C: share.args[0]})
                    return rule, node - term - half + whole
    return None


def _are_opposite(a: Expr, b: Expr) -> bool:
    """Whether their sum is 0; of decimal fractions, to their digits."""
    if a.is_Float and b.is_number:
        return bool(abs(a + b) <= abs(a) * Rational(1, 2**50))
    return bool(a == -b)


def _divided_out(term: Expr) -> Expr:
    """Of a quotient of a sum, the quotients of its terms."""
    sums = [factor for factor in Mul.make_args(term) if factor.is_Add]
    return Add(*(each * (term / sums[0]) for each in sums[0].args)) if len(sums) == 1 else term


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


def _over(node: Add, power: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Pairs of terms of which the first over the other is divided by such a power of a sum."""
    for term, other in itertools.permutations(node.args, 2):
        above, below = _powers_of_sums(term), _powers_of_sums(other)
        if any(above.get(base, 0) - below.get(base, 0) == -power for base in above | below):
            yield term, other


@functools.lru_cache(maxsize=10_000)
def _powers_of_sums(term: Expr) -> dict[Expr, Expr]:
    powers = (factor.as_base_exp() for factor in Mul.make_args(term))
    return {base: power for base, power in powers if isinstance(base, Add)}


def _with_mean_root(node: Add) -> tuple[Rule, Expr] | None:
    """m*(root + u) or m*(1 + u/root) of root = sqrt(u**2 + v) in a sum, u a product.

    Of a root u, the square of which is rounded, the difference alone cancels.
    """
    for term, other in _over(node, S.Half):
        left = [each for each in node.args if each not in (term, other)]
        for u, base in _over_its_root(term / other):
            beside, in_root = base - u**2, other.has(sqrt(base))
            sign, root = u.as_coeff_Mul()
            if root.is_Pow and root.exp == S.Half:
                if sign > 0:
                    continue
                rise = _put(_RISE_OVER_ROOT, {U: u**2, V: beside})
                return _RISE if in_root else _RISE_OVER_ROOT, Add(*left, other * rise)
            if in_root and (lesser := _less_root_of_squares(left, other, u, beside)) is not None:
                return _LESS_ROOT_OF_SQUARES, lesser
            mean = _put(_ARGUMENT_OVER_ROOT, {U: u, V: beside})
            return _ROOT_AND_ARGUMENT if in_root else _ARGUMENT_OVER_ROOT, Add(*left, other * mean)
    return _with_mean_root_of_sum(node)


def _over_its_root(ratio: Expr) -> Iterator[tuple[Expr, Expr]]:
    """The u, no number, of a ratio that is u over the root of u**2 and more; what that is of."""
    for factor in Mul.make_args(ratio):
        base, power = factor.as_base_exp()
        u = ratio / factor
        if power == -S.Half and base.is_Add and not u.is_number and u**2 in base.args:
            yield u, base


def _less_root_of_squares(left: list[Expr], term: Expr, u: Expr, beside: Expr) -> Expr | None:
    """m*(root + u + v) of term = m*root, root = sqrt(u**2 + v**2 + more), and what else is left."""
    m = term / sqrt(u**2 + beside)
    for other in left:
        v = other / m
        if v**2 in Add.make_args(beside):
            lesser = less_root_of_squares(-u, -v, beside - v**2)
            return Add(*(each for each in left if each is not other), -m * lesser)
    return None


def _less_root_of_difference(node: Add) -> Expr | None:
    """m*(root + u - v), of a root of u + v squared and more."""
    for term in node.args:
        for q, root, mean, more in _roots_of_sums(term):
            m = term / root
            plus = [each for each in q.args if m * each in node.args]
            minus = [each for each in q.args if -m * each in node.args]
            if plus and minus and len(plus) + len(minus) == len(q.args):
                rest = node - term - m * Add(*plus) + m * Add(*minus)
                return rest - m * less_root_of_difference(-Add(*plus), Add(*minus), mean, more)
    return None


def _one_share(node: Add) -> Expr | None:
    """The sum or difference of root_split's slopes by the mean and the half: twice one share."""
    for term, slope in _terms_with(node, heads.share_split):
        u, v, mean, half, c = slope.args
        k, by_half = term / slope, heads.share_split(u, -v, half, mean, c)
        for sign, twice in ((1, 2 * u / heads.root_sum(u, c)), (-1, -2 * v / heads.root_sum(v, c))):
            if (other := sign * k * by_half) in node.args and other != term:
                left = (each for each in node.args if each not in (term, other))
                return Add(*left, k * twice)
    return None


def _base_times_slope(node: Mul) -> Expr | None:
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
            is_slope = (value / power / v).is_number and _equal(where.lhs - where.rhs, v)
            if is_slope and all(each in rest for each in factors):
                left = (each for each in rest if each not in factors)
                return Mul(*left, value / power * heads.power(u, v))
    return None


def _terms_with(node: Add, head: type[Expr]) -> Iterator[tuple[Expr, Expr]]:
    """The terms of a sum that have a factor of a kind, and that factor."""
    for term in node.args:
        for factor in Mul.make_args(term):
            if isinstance(factor, head):
                yield term, factor


def _with_lesser_power(node: Add) -> Expr | None:
    """a*power(u, v + n) + b*power(u, v) of a sum u as (a*u**n + b)*power(u, v), if terms cancel."""
    powers = [each for each in _terms_with(node, heads.power) if each[1].args[0].is_Add]
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


def _beside_hinge(node: Mul) -> Expr | None:
    """A power of Max(u, 0) times a sum with it, or with what is where u > 0: as they are there."""
    for factor in node.args:
        hinge, power = factor.as_base_exp()
        if not (isinstance(hinge, sympy.Max) and S.Zero in hinge.args and power.is_positive):
            continue
        u = sympy.Max(*(each for each in hinge.args if each != 0))
        for total in (each for each in node.args if each.is_Add):
            above: dict[Basic, Basic] = {hinge: u}
            for piece in filter(_is_piecewise, trees.nodes(total)):
                value, where = piece.args[0].args
                if isinstance(where, sympy.Gt | sympy.Ge) and _equal(where.lhs - where.rhs, u):
                    above[piece] = value
            if (found := trees.replaced(total, above)) != total:
                return Mul(*(each for each in node.args if each is not total), found)
    return None


def _sign_in_pieces(node: Mul) -> Expr | None:
    """sign(u) times a Piecewise of which a piece is a multiple of |u|: the product in each."""
    for sign in (each for each in node.args if isinstance(each, sympy.sign)):
        size = sympy.Abs(sign.args[0])
        for pieces in filter(_is_piecewise, node.args):
            if any(size in Mul.make_args(value) for value, _ in pieces.args):
                others = Mul(*(each for each in node.args if each not in (sign, pieces)))
                within = [(sign * value, where) for value, where in pieces.args]
                return others * sympy.Piecewise(*within, evaluate=False)
    return None


def _square_less_1(node: Add) -> Expr | None:
    """m*(w**2 - 1) in a sum: the numerator of w - 1 by its conjugate, if that factors."""
    squares = [term for term in node.args if any(map(_is_square_of_root, Mul.make_args(term)))]
    for term, other in itertools.product(squares, node.args):
        if term is other or trees.size(other) > trees.size(term):
            continue
        if (factors := _factors_of_square_less_1(-term / other)) is not None:
            return Add(*(each for each in node.args if each not in (term, other)), -other * factors)
    return None


def _is_square_of_root(factor: Expr) -> bool:
    """Whether it is an even power of a sum with a square root, or of a root less 1."""
    base, power = factor.as_base_exp()
    if not (power.is_Integer and power % 2 == 0):
        return False
    if isinstance(base, heads.pow1pm1):
        return bool(base.args[1] == S.Half)
    factors = itertools.chain.from_iterable(map(Mul.make_args, Add.make_args(base)))
    return any(each.is_Pow and each.exp == S.Half for each in factors)


def _factors_of_square_less_1(square: Expr) -> Expr | None:
    plain = {
        each: sqrt(1 + each.args[0]) - 1
        for each in trees.nodes(square)
        if isinstance(each, heads.pow1pm1) and each.args[1] == S.Half
    }
    square = square.xreplace(plain)
    roots = {each for each in trees.nodes(square) if each.is_Pow and each.exp == S.Half}
    w = _square_root(square) if len(roots) == 1 and trees.size(square) < LIMIT else None
    if w is None:
        return None
    (root,), t = roots, sympy.Dummy(positive=True)
    above, below = sympy.fraction(sympy.together(w.xreplace({root: t})))
    beside = sympy.Poly(above - below, t) if (above - below).is_polynomial(t) else None
    if beside is None or beside.degree() != 1:
        return None
    slope, rest = beside.all_coeffs()
    # Else the square of |x| is x**2, which has no factor in common with |x|.
    sizes = {each: sympy.Dummy() for each in root.base.atoms(sympy.Abs)}
    product = sympy.expand((slope**2 * root.base - rest**2).xreplace(sizes))
    product = sympy.factor(product).xreplace({each: size for size, each in sizes.items()})
    if not any(trees.symbols(each) and not each.is_Add for each in Mul.make_args(product)):
        return None
    return product * (w + 1) / ((slope * root - rest) * below.xreplace({t: root}))


def _share_of_rest(node: Add) -> Expr | None:
    """m*(u**2/root - (root - its value at 0)) in a sum, of root_sum(u, c)."""
    for term, rest in _terms_with(node, heads.root_rest):
        u, c = rest.args
        m, root = -term / rest, heads.root_sum(u, c)
        if (other := m * u**2 / root) in node.args:
            left = (each for each in node.args if each not in (term, other))
            return Add(*left, m * sqrt(c) * rest / root)
    return None


def _root_split(node: Add) -> Expr | None:
    """k*(root of u - root of v), where the mean of u and v and their difference are shorter."""
    roots = _terms_with(node, heads.root_sum)
    for (term, root), (other, another) in itertools.combinations(roots, 2):
        (u, c), (v, same) = root.args, another.args
        if c != same or term / root != -other / another:
            continue
        mean, half = sympy.expand_mul((u + v) / 2), sympy.expand_mul((u - v) / 2)
        if sum(len(Add.make_args(each)) for each in (mean, half)) <= sum(
            len(Add.make_args(each)) for each in (u, v)
        ) and not (mean.is_Add and half.is_Add):
            left = (each for each in node.args if each not in (term, other))
            return Add(*left, term / root * heads.root_split(u, v, mean, half, c))
    return None


def _roots_of_sums(term: Expr) -> Iterator[tuple[Expr, Expr, type[Expr], Expr]]:
    """The sums, in a product, that a root has the square of; it, the head of its mean, the rest."""
    for factor in Mul.make_args(term):
        if isinstance(factor, heads.root_sum) and factor.args[0].is_Add:
            q, c = factor.args
            yield q, factor, heads.mean_root, c
    for base, power in _powers_of_sums(term).items():
        for square in base.args if power == S.Half else ():
            if square.is_Pow and square.exp == 2 and square.base.is_Add:
                yield square.base, sqrt(base), heads.mean_any_root, base - square


def _over_exponent(node: Mul, parameters: frozenset[Symbol]) -> Expr | None:
    """A product with v*exp(u/x**n) and powers of 1/x, which are infinite where the former is 0."""
    for product in node.args:
        if not isinstance(product, heads.times_exp):
            continue
        v, u = product.args
        poles = {_pole(each, parameters) for each in Mul.make_args(u)} - {None}
        by = [each for each in node.args if _pole(each, parameters) in poles]
        if by:
            left = [each for each in node.args if each is not product and each not in by]
            return Mul(*left, heads.times_exp(Mul(v, *by), u))
    return None


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


def _times_pow1pm1(node: Mul) -> Expr | None:
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
                branches = times_pow1pm1(quotient * v, v, exponent).args
                within = ((value * below, where) for value, where in branches)
                return rest / below * sympy.Piecewise(*within, evaluate=False)
    return None


def _with_mean_root_of_sum(node: Add) -> tuple[Rule, Expr] | None:
    """m*(root + u), u a sum: all of node but the root is m*u."""
    for term in node.args:
        for base, power in _powers_of_sums(term).items():
            sums = [square.base for square in base.args if square.is_Pow and square.exp == 2]
            for u in (each for each in sums if power == S.Half and each.is_Add):
                m, rest = term / sqrt(base), node - term
                for signed in (u, -u):
                    if _equal(m * signed, rest):
                        found = {U: signed, V: base - u**2}
                        return _ROOT_AND_ARGUMENT, m * _put(_ROOT_AND_ARGUMENT, found)
    return None


def _whole_less_part(node: Add, parameters: frozenset[Symbol]) -> Expr | None:
    """m*(1 - u/(u + v)) in a sum as m*v/(u + v), m a sum as well."""
    for term in node.args:
        for m in Mul.make_args(term):
            if m.is_Add and set(m.args) <= set(node.args):
                rest = _less_part(-term / m, parameters)
                if rest is not None:
                    gone = {term, *m.args}
                    return Add(*(each for each in node.args if each not in gone), m * rest)
    branched = [each for each in node.args if any(map(_is_piecewise, Mul.make_args(each)))]
    others = itertools.product(branched, (each for each in node.args if each not in branched))
    for term, other in itertools.chain(_over(node, S.One), others):
        rest = _less_part(-term / other, parameters)
        if rest is not None:
            left = [each for each in node.args if each not in (term, other)]
            return Add(*left, other * rest)
    return None


def _is_piecewise(expr: Expr) -> bool:
    return isinstance(expr, sympy.Piecewise)


def _less_part(ratio: Expr, parameters: frozenset[Symbol]) -> Expr | None:
    """1 - u/(u + v) as v/(u + v); in each branch of one, if all are such."""
    for factor in Mul.make_args(ratio):
        if _is_piecewise(factor):
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
        if _holds(_PART_OF_WHOLE, found, parameters):
            return _put(_PART_OF_WHOLE, found)
    return None


def as_integral_of_normcdf(node: Expr) -> tuple[Expr, Expr, Expr] | None:
    """m, u and what is left of a sum with m*(u*normcdf(u) + the normal density of u)."""
    terms = [_unfolded(term) for term in node.args] if isinstance(node, Add) else []
    for k, term in enumerate(terms):
        heads_in = [each for each in Mul.make_args(term) if isinstance(each, heads.normcdf)]
        if len(heads_in) != 1:
            continue
        u = _unfolded(heads_in[0].args[0])
        for n, other in enumerate(terms):
            # As a whole: either term may have taken in what m and u have of each other.
            m = other * sympy.exp(sympy.expand(u**2 / 2)) * sqrt(2 * sympy.pi)
            m = sympy.powsimp(m, combine="exp")
            if n == k or not other.has(sympy.exp) or trees.size(m) > trees.size(other):
                continue
            if _equal(m * u, term / heads_in[0]):
                left = [each for i, each in enumerate(node.args) if i not in (k, n)]
                return m, heads_in[0].args[0], Add(*left)
    return None


def _log_of_integral(node: Expr, parameters: frozenset[Symbol]) -> Expr | None:
    found = as_integral_of_normcdf(node)
    if found is None or found[2] != 0 or not _holds(_OF_INTEGRAL, {U: found[1]}, parameters):
        return None
    return sympy.log(found[0]) + _put(_OF_INTEGRAL, {U: found[1]})


def log_of_mass(node: Basic) -> tuple[Rule, Expr] | None:
    """log(k*(normcdf(u) - normcdf(v))), k > 0, or of erf or erfc, before the difference is seen."""
    if not isinstance(node, sympy.log):
        return None
    factors = Mul.make_args(node.args[0])
    masses = [each for each in factors if isinstance(each, Add) and len(each.args) == 2]
    rest = Mul(*(each for each in factors if each not in masses))
    if len(masses) != 1 or not rest.is_positive:
        return None
    terms = [term.as_coeff_Mul() for term in masses[0].args]
    (k, f), (other, g) = terms if terms[0][0] > 0 else reversed(terms)
    if k != -other or f.func != g.func or not trees.symbols(node.args[0]):
        return None
    if isinstance(f, sympy.erfc):
        f, g = sympy.erf(g.args[0]), sympy.erf(f.args[0])
    if isinstance(f, sympy.erf):
        f, g, k = heads.normcdf(sqrt(2) * f.args[0]), heads.normcdf(sqrt(2) * g.args[0]), 2 * k
    if not isinstance(f, heads.normcdf):
        return None
    u, v = f.args[0], g.args[0]
    return _OF_MASS, sympy.log(k * rest) + _put(_OF_MASS, {U: u, V: v})


def _exponents(node: Expr) -> list[Expr]:
    """a, b, c of logaddexp(logaddexp(a, b), c); 0, a, b of softplus(logaddexp(a, b))."""
    if isinstance(node, heads.softplus) and isinstance(node.args[0], heads.logaddexp):
        return [S.Zero, *_exponents(node.args[0])]
    if not isinstance(node, heads.logaddexp):
        return [node]
    return [each for arg in node.args for each in _exponents(arg)]


# --- sums ------------------------------------------------------------------------------------


def _in_sum(rule: Rule, node: Add, parameters: frozenset[Symbol]) -> Expr | None:
    terms, functions = _terms_and_functions(node)
    if not _functions_of(rule.pattern.args) <= functions:
        return None
    for multiple, found, left in _partial_sums(rule.pattern, list(terms)):
        if _holds(rule, found, parameters) and _stands_alone(rule, found, left, parameters):
            new = Add(*left, multiple * _put(rule, found))
            # Multiplied out, as it may be looked at next, it may be what it was.
            if not isinstance(new, Add) or {*_terms_and_functions(new)[0]} != {*terms}:
                return new
    return None


@functools.lru_cache(maxsize=1000)
def _terms_and_functions(node: Add) -> tuple[tuple[Expr, ...], frozenset[type]]:
    # Products with exp are whole by now: v*exp(u) - v is v times exp(u) - 1 all the same.
    terms = tuple(part for term in node.args for part in Add.make_args(_unfolded(term)))
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


def _unfolded(term: Expr) -> Expr:
    """Its products with exp multiplied out, and those that phi is of."""
    phis = [each for each in trees.nodes(term) if isinstance(each, heads.phi)]
    term = trees.replaced(term, {each: heads.phi(*map(_unfolded, each.args)) for each in phis})
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


# --- products and powers ---------------------------------------------------------------------


def _in_product(rule: Rule, node: Mul, parameters: frozenset[Symbol]) -> Expr | None:
    patterns = sorted(rule.pattern.args, key=_how_plain)
    for found, left in _other_factors(patterns, list(node.args), {}, parameters):
        if _holds(rule, found, parameters):
            return Mul(*left, _put(rule, found))
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


def _of_nothing(product: Expr) -> Expr:
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


def _or_nothing(value: Expr, where: Basic) -> Expr:
    return sympy.Piecewise((S.Zero, where), (value, True), evaluate=False)


def _is_of_xlogy(value: Expr) -> bool:
    factors = itertools.chain.from_iterable(map(Mul.make_args, Add.make_args(value)))
    return any(isinstance(each, heads.xlogy) for each in factors)


def _of_one_nothing(node: Add) -> Expr | None:
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


def _times_logs(node: Mul, parameters: frozenset[Symbol]) -> Expr | None:
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


def _in_power(rule: Rule, node: Pow, parameters: frozenset[Symbol]) -> Expr | None:
    base, exponent = node.args
    wanted = rule.pattern.exp if isinstance(rule.pattern, Pow) else None
    if wanted is None or not wanted.is_number:
        return _whole_power(rule, node, parameters)
    if not (exponent.is_Integer and exponent / wanted >= 1):
        return None
    count = exponent // wanted
    for multiple, found in _multiples(rule.pattern.base, base):
        if _holds(rule, found, parameters):
            rest = (multiple * rule.pattern.base.xreplace(dict(found))) ** (
                exponent - count * wanted
            )
            return multiple ** (count * wanted) * _put(rule, found) ** count * rest
    return None


def _whole_power(rule: Rule, node: Pow, parameters: frozenset[Symbol]) -> Expr | None:
    for after in match(rule.pattern.args[-1], node.exp, {}):
        pattern = rule.pattern.args[0] if len(rule.pattern.args) == 2 else S.Exp1
        for found in match(pattern, node.base, after):
            if _holds(rule, found, parameters):
                return _put(rule, found)
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


# --- by procedures of their own --------------------------------------------------------------


def _root(node: Pow, parameters: frozenset[Symbol]) -> Expr | None:
    """(a**2 + c)**(n/2) as a power of `root_sum`, c > 0 of numbers and parameters alone."""
    base, exponent = node.args
    if not (exponent.is_Rational and exponent.q == 2 and isinstance(base, Add)):
        return None
    fixed = [term for term in base.args if trees.symbols(term) <= parameters]
    moving = [term for term in base.args if term not in fixed]
    if len(moving) != 1 or not fixed:
        return None
    a = _square_root(moving[0])
    if a is None or not with_positive(Add(*fixed), parameters).is_positive:
        return None
    return heads.root_sum(a, Add(*fixed)) ** (2 * exponent)


def _square_root(square: Expr) -> Expr | None:
    """a of a product a**2 of even powers and exponentials: x / delta of x**2 / delta**2."""
    factors = []
    for factor in Mul.make_args(square):
        base, exponent = factor.as_base_exp()
        if factor.is_number and factor.is_positive:
            factors.append(sqrt(factor))
        elif isinstance(factor, sympy.exp):
            factors.append(sympy.exp(factor.args[0] / 2))
        elif exponent.is_Integer and exponent % 2 == 0:
            factors.append(base ** (exponent // 2))
        else:
            return None
    return Mul(*factors)


def _removed(rule: Rule, node: Mul, parameters: frozenset[Symbol]) -> Expr | None:
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
        unfolded, own = _unfolded(u), trees.symbols(u) - parameters
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
                whole = (ratio * _put(rule, {U: u})) ** sign
                return Mul(*rest, whole, base ** (power - sign), d ** (exponent + sign))
    return None


def _divisor(factor: Expr, sign: int) -> tuple[Expr, Expr]:
    """A factor as a power: exp(-u) is one of exp(u) where a product is divided by that."""
    if isinstance(factor, sympy.exp):
        return factor**-sign, Integer(-sign)
    base, power = factor.as_base_exp()
    return base, power
