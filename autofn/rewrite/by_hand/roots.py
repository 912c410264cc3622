"""Rules of square roots that no pattern finds, and of sums and products with them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import sympy
from sympy import Add, Expr, Mul, Pow, S, Symbol, sqrt

from autofn import functions as heads
from autofn import trees
from autofn.compact import LIMIT
from autofn.rewrite import replacements
from autofn.rewrite.by_hand.parts import over_power_of_sum, powers_of_sums, square_root, terms_with
from autofn.rewrite.conditions import with_positive
from autofn.rewrite.match import are_equal, holds, put
from autofn.rewrite.rule import C, Rule, U, V
from autofn.rewrite.rules import NAMED

_ROOT = NAMED["root of a square and a constant"]
_ROOT_OF_EXP = NAMED["root of exp and a constant"]
_ROOT_AND_ARGUMENT = NAMED["root of a square and more, + u"]
_ARGUMENT_OVER_ROOT = NAMED["1 + u over the root of a square and more"]
_RISE = NAMED["root of a sum less that of a part"]
_RISE_OVER_ROOT = NAMED["1 less the root of a part of a sum over its"]
_LESS_ROOT_OF_SQUARES = NAMED["sum less the root of its squares"]
_OVER_FACTOR = NAMED["mean_any_root over a factor"]


def root_of_square(node: Pow, parameters: frozenset[Symbol]) -> tuple[Rule, Expr] | None:
    """(a**2 + c)**(n/2) as a power of `root_sum`, c > 0 of numbers and parameters alone."""
    base, exponent = node.args
    if not (exponent.is_Rational and exponent.q == 2 and isinstance(base, Add)):
        return None
    fixed = [term for term in base.args if trees.symbols(term) <= parameters]
    moving = [term for term in base.args if term not in fixed]
    if len(moving) != 1 or not fixed:
        return None
    a = square_root(moving[0])
    if a is None or not with_positive(Add(*fixed), parameters).is_positive:
        return None
    root = heads.root_sum(a, Add(*fixed)) ** (2 * exponent)
    return (_ROOT_OF_EXP if root.has(sympy.exp) else _ROOT), root


def cube_root(node: Pow) -> Expr | None:
    is_one = node.exp.is_Rational and node.exp.q == 3
    return heads.cbrt(node.base) ** node.exp.p if is_one else None


def less_root_of_difference(node: Add) -> Expr | None:
    """m*(root + u - v), of a root of u + v squared and more."""
    for term in node.args:
        for q, root, mean, more in _roots_of_sums(term):
            m = term / root
            plus = [each for each in q.args if m * each in node.args]
            minus = [each for each in q.args if -m * each in node.args]
            if plus and minus and len(plus) + len(minus) == len(q.args):
                rest = node - term - m * Add(*plus) + m * Add(*minus)
                return rest - m * replacements.less_root_of_difference(
                    -Add(*plus), Add(*minus), mean, more
                )
    return None


def less_root_of_its_square(node: Add, parameters: frozenset[Symbol]) -> Expr | None:
    """m*(s - root), where s**2 is what the root is of and a number or a parameter."""
    # Before it is multiplied out, which may take long.
    if len(node.args) < 3 or trees.size(node) > LIMIT:
        return None
    for term in node.args:
        for factor in Mul.make_args(term):
            base, power = factor.as_base_exp()
            if isinstance(factor, heads.root_sum):
                inside = factor.args[0] ** 2 + factor.args[1]
            elif power == S.Half and isinstance(base, Add):
                inside = base
            else:
                continue
            m = -term / factor
            s = sympy.expand((node - term) / m)
            if trees.size(s) + trees.size(inside) > LIMIT or not isinstance(s, Add):
                continue
            more = sympy.expand(s**2 - inside)
            if more != 0 and trees.symbols(more) <= parameters:
                return m * replacements.less_root_of_its_square(s, factor, more)
    return None


def root_split(node: Add) -> Expr | None:
    """k*(root of u - root of v), where the mean of u and v and their difference are shorter."""
    roots = terms_with(node, heads.root_sum)
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


def one_share(node: Add) -> Expr | None:
    """The sum or difference of root_split's slopes by the mean and the half: twice one share."""
    for term, slope in terms_with(node, heads.share_split):
        u, v, mean, half, c = slope.args
        k, by_half = term / slope, heads.share_split(u, -v, half, mean, c)
        for sign, twice in ((1, 2 * u / heads.root_sum(u, c)), (-1, -2 * v / heads.root_sum(v, c))):
            if (other := sign * k * by_half) in node.args and other != term:
                left = (each for each in node.args if each not in (term, other))
                return Add(*left, k * twice)
    return None


def square_less_1(node: Add) -> Expr | None:
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
    w = square_root(square) if len(roots) == 1 and trees.size(square) < LIMIT else None
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


def share_of_rest(node: Add) -> Expr | None:
    """m*(u**2/root - (root - its value at 0)) in a sum, of root_sum(u, c)."""
    for term, rest in terms_with(node, heads.root_rest):
        u, c = rest.args
        m, root = -term / rest, heads.root_sum(u, c)
        if (other := m * u**2 / root) in node.args:
            left = (each for each in node.args if each not in (term, other))
            return Add(*left, m * sqrt(c) * rest / root)
    return None


def with_mean_root(node: Add) -> tuple[Rule, Expr] | None:
    """m*(root + u) or m*(1 + u/root) of root = sqrt(u**2 + v) in a sum, u a product.

    Of a root u, the square of which is rounded, the difference alone cancels.
    """
    for term, other in over_power_of_sum(node, S.Half):
        left = [each for each in node.args if each not in (term, other)]
        for u, base in _over_its_root(term / other):
            beside, in_root = base - u**2, other.has(sqrt(base))
            sign, root = u.as_coeff_Mul()
            if root.is_Pow and root.exp == S.Half:
                if sign > 0:
                    continue
                rise = put(_RISE_OVER_ROOT, {U: u**2, V: beside})
                return _RISE if in_root else _RISE_OVER_ROOT, Add(*left, other * rise)
            if in_root and (lesser := _less_root_of_squares(left, other, u, beside)) is not None:
                return _LESS_ROOT_OF_SQUARES, lesser
            mean = put(_ARGUMENT_OVER_ROOT, {U: u, V: beside})
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
            lesser = replacements.less_root_of_squares(-u, -v, beside - v**2)
            return Add(*(each for each in left if each is not other), -m * lesser)
    return None


def _with_mean_root_of_sum(node: Add) -> tuple[Rule, Expr] | None:
    """m*(root + u), u a sum: all of node but the root is m*u."""
    for term in node.args:
        for base, power in powers_of_sums(term).items():
            sums = [square.base for square in base.args if square.is_Pow and square.exp == 2]
            for u in (each for each in sums if power == S.Half and each.is_Add):
                m, rest = term / sqrt(base), node - term
                for signed in (u, -u):
                    if are_equal(m * signed, rest):
                        found = {U: signed, V: base - u**2}
                        return _ROOT_AND_ARGUMENT, m * put(_ROOT_AND_ARGUMENT, found)
    return None


def _roots_of_sums(term: Expr) -> Iterator[tuple[Expr, Expr, type[Expr], Expr]]:
    """The sums, in a product, that a root has the square of; it, the head of its mean, the rest."""
    for factor in Mul.make_args(term):
        if isinstance(factor, heads.root_sum) and factor.args[0].is_Add:
            q, c = factor.args
            yield q, factor, heads.mean_root, c
    for base, power in powers_of_sums(term).items():
        for square in base.args if power == S.Half else ():
            if square.is_Pow and square.exp == 2 and square.base.is_Add:
                yield square.base, sqrt(base), heads.mean_any_root, base - square


def mean_root_over(node: Mul, parameters: frozenset[Symbol]) -> tuple[Rule, Expr] | None:
    """The mean of u and sqrt(u**2 + v*d) over d: the quadratic formula, which has a limit at 0."""
    for mean, fraction in itertools.permutations(node.args, 2):
        d, power = fraction.as_base_exp()
        if not isinstance(mean, heads.mean_any_root) or power != -1:
            continue
        u, product = mean.args
        found = {U: u, V: sympy.cancel(product / d), C: d}
        if holds(_OVER_FACTOR, found, parameters):
            return _OVER_FACTOR, node / mean * d * replacements.mean_root_over(u, found[V], d)
    return None
