"""Regimes near zero: functions of one variable that lose their digits where it is small.

x - tanh(x) has no digit left for |x| < 1e-4, and no identity helps; log(1 + x)/x is 0/0 at 0. Where
a sum's terms cancel at u = 0, or a quotient is 0/0 there, it becomes u**k times a polynomial for
|u| < r, fitted to the last digit of float64 and a few more, since the polynomial's derivatives are
used as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import sympy
from mpmath import mp
from sympy import Abs, Add, Basic, Expr, Float, Mul, Piecewise, S, Symbol, sqrt

from autofn import functions as heads
from autofn import trees
from autofn.compact import EXPANDED, LIMIT, terms_at_most
from autofn.rewrite.heads import polynomial
from autofn.rewrite.polynomials import SINGLE, coefficients, linear, terms_below
from autofn.rewrite.removable import divided_out, is_same, may_be_product, over_one
from autofn.rewrite.within import unbounded

RADII = tuple(sympy.Rational(1, 2**k) for k in range(7))
"""Within the largest that serves the polynomial holds. Beyond, the terms cancel less."""

DEGREES = (8, 11, 14, 17, 20)
NOTHING = 2.0**-200
"""Coefficients of this size are 0."""

CANCELS = 8.0
"""How much larger than the sum its terms are, near zero, from which on it is worth it."""

AMPLIFIED = 12.0
"""How much larger than a polynomial its terms may be where it ends: a fast wave's cancel there."""

AT_ZERO = 2.0**-70
"""Where a function is as good as at 0, and can still be evaluated."""

BESIDE = 2.0**-60
"""Where the slope of a function at 0 is looked at."""

CLOSE, CANCELLED = 2.0**-20, 400
"""Where terms are evaluated to how many digits: at `AT_ZERO` a sum may lose 253 of them."""

SMALL = 1e-25
"""What is nothing in 30 digits."""

T = Symbol("_t", real=True)


@lru_cache(maxsize=100_000)
def with_regimes(node: Basic) -> Basic:
    """The expression with its cancelling sums, and quotients 0/0 at zero, in two regimes."""
    if not node.args or node.is_Number or trees.size(node) == 0:
        return node
    if _is_regime(node):
        far = node.args[1][0]
        if _is_series(node) and _loses_nothing(far):
            return far
        return _flat(node)
    if isinstance(node, Mul):
        limited = (
            _limited(node)
            or _limited_at_origin(node)
            or _limited_by_term(node)
            or _limited_over_symbol(node)
            or _limited_by_exponent(node)
            or _limited_in_branch(node)
            or _divided_out(node)
        )
        if limited is not None:
            return _with_divisors(limited)
    if isinstance(node, Add) and (limited := _divided_sum(node)) is not None:
        return _with_divisors(limited)
    if isinstance(node, heads.power | heads.pow1pm1 | sympy.Pow):
        limited = _limited_power(node)
        if limited is not None:
            return limited
    visited = trees.rebuilt(node, [with_regimes(arg) for arg in node.args])
    if isinstance(visited, sympy.log):
        return _log(visited.args[0])
    if not isinstance(visited, Add):
        return visited
    if visited.has(Piecewise) and (whole := _regimes(node)) != node:
        # log(1 + x)/x has a limit by itself, and cancels with 1/(1 + x) all the same.
        return whole
    return _regimes(visited)


def _is_regime(node: Basic) -> bool:
    """Whether a Piecewise is one of ours: nothing cancels within its second branch."""
    return (
        isinstance(node, Piecewise)
        and len(node.args) == 2
        and isinstance(node.args[0][1], sympy.StrictLessThan)
        and (_is_absolute(node.args[0][1].lhs) or _is_square(node.args[0][1].lhs))
        and node.args[0][1].rhs in (*RADII, *(radius**2 for radius in RADII))
    )


def _is_absolute(size: Expr) -> bool:
    """Whether it is |u|, of which SymPy leaves out what is not negative, or the largest of such."""
    if isinstance(size, sympy.Max):
        return all(map(_is_absolute, size.args))
    factors = Mul.make_args(size)
    absolute = [isinstance(factor, Abs) for factor in factors]
    return any(absolute) and all(
        a or f.is_nonnegative for a, f in zip(absolute, factors, strict=True)
    )


def _is_square(size: Expr) -> bool:
    """Whether it is the square of a vector's length, which no SymPy takes the absolute value of."""
    return bool(size.is_nonnegative and any(isinstance(f, Add) for f in Mul.make_args(size)))


def _variable(where: Basic) -> Expr:
    """What a regime's first branch is a polynomial in."""
    factors = Mul.make_args(where.lhs)
    return Mul(*(f.args[0] if isinstance(f, Abs) else f for f in factors))


def _is_series(node: Basic) -> bool:
    """Whether a regime is one of ours, and not a user's: by the digits of its numbers."""
    return _is_regime(node) and any(c._prec > 53 for c in node.args[0][0].atoms(Float))


def _log(expr: Expr) -> Expr:
    """The logarithm of what may have, or be, a series that is 1 where it begins."""
    if _is_series(expr):
        (near, where), (far, _) = expr.args
        ones = [term for term in Add.make_args(near) if term.is_Float and float(term) == 1]
        small = heads.log1p(near - ones[0]) if ones else sympy.log(near)
        return Piecewise((small, where), (sympy.log(far), True), evaluate=False)
    if isinstance(expr, heads.sinc) and _is_series(rest := with_regimes(expr - 1)):
        near, where = rest.args[0]
        return Piecewise((heads.log1p(near), where), (sympy.log(expr), True), evaluate=False)
    if isinstance(expr, Add) and _is_plain(expr) and len(expr.free_symbols) == 1:
        (x,) = expr.free_symbols
        if (fitted := _quotient(sympy.log(expr.xreplace({x: T})), least=1)) is not None:
            near, radius = fitted
            return Piecewise(
                (near.xreplace({T: x}), Abs(x) < radius), (sympy.log(expr), True), evaluate=False
            )
    return sympy.log(expr)


def _loses_nothing(far: Expr) -> bool:
    """Whether nothing can cancel in it any more: the derivative of x - tanh(x) is tanh(x)**2."""
    nodes = trees.nodes(far)
    return not any(
        isinstance(node, Add | Piecewise) or (node.is_Pow and not node.exp.is_positive)
        for node in nodes
    )


def without_series(expr: Expr) -> Expr:
    """The expression for reading: what is computed another way near zero as it is elsewhere."""
    series = {
        node: node.args[1][0]
        for node in trees.nodes(expr)
        if _is_series(node) or (_is_regime(node) and is_same(node.args[0][0], node.args[1][0]))
    }
    inner = {node: without_series(far) for node, far in series.items()}
    return trees.replaced(expr, inner) if inner else expr


def _flat(node: Piecewise) -> Expr:
    """A regime whose derivative has been taken: its first branch one polynomial again."""
    found = series(node)
    if found is None:
        return node
    (_, where), otherwise = node.args
    return Piecewise((found.expr, where), otherwise, evaluate=False)


@dataclass(frozen=True)
class Series:
    """A factor times a polynomial, in `T`, of u."""

    factor: Expr
    in_t: Expr
    u: Expr

    @property
    def expr(self) -> Expr:
        """It by Horner's scheme."""
        terms = sympy.Poly(sympy.expand(self.in_t), T).terms()
        (left,), value = terms[0]
        for (degree,), coefficient in terms[1:]:
            value = value * T ** (left - degree) + coefficient
            left = degree
        return self.factor * (value * T**left).xreplace({T: self.u})

    def slope(self, of_factor: Expr, of_u: Expr) -> Expr:
        """The derivative, of those of its factor and of u; one polynomial where it can be."""
        rise = replace(self, factor=self.factor * of_u, in_t=self.in_t.diff(T))
        if of_factor == 0:
            return rise.expr
        if of_u == 0:
            return replace(self, factor=of_factor).expr
        ratio = sympy.cancel(self.factor * of_u / (of_factor * self.u))
        if ratio.is_number:
            return replace(self, factor=of_factor, in_t=self.in_t + ratio * T * rise.in_t).expr
        return replace(self, factor=of_factor).expr + rise.expr


@lru_cache(maxsize=10_000)
def series(node: Basic) -> Series | None:
    """The first branch of a regime, where that is a polynomial of its variable times a factor."""
    if not _is_regime(node):
        return None
    first, where = node.args[0]
    u = _variable(where)
    found = _as_polynomial(first, u)
    return Series(*found, u) if found is not None else None


def _as_polynomial(expr: Expr, u: Expr) -> tuple[Expr, Expr] | None:
    """What `_in_variable` gives of a product with a polynomial in u."""
    functions = (each for each in trees.nodes(expr) if isinstance(each, sympy.Function))
    if any(map(trees.symbols, functions)):
        return None
    found = _in_variable(expr, u)
    return found if found is not None and found[1].is_polynomial(T) else None


def _in_variable(expr: Expr, u: Expr) -> tuple[Expr, Expr] | None:
    """A polynomial factor, and what is left of an expression as a function of u, in `T`.

    u may be a multiple of a symbol, or of a sum, which is in the expression by itself too.
    """
    in_t = expr.xreplace({u: T})
    if in_t.free_symbols == {T}:
        return S.One, in_t
    for total in (each for each in Mul.make_args(u) if isinstance(each, Add)):
        dummy = sympy.Dummy("d", real=True)
        known = {total: dummy, -total: -dummy}
        found = _by_symbol(expr.xreplace(known), u.xreplace(known))
        if found is not None:
            return found[0].xreplace({dummy: total}), found[1]
    return _by_symbol(expr, u)


def _by_symbol(expr: Expr, u: Expr) -> tuple[Expr, Expr] | None:
    for x in sorted(u.free_symbols, key=lambda symbol: symbol.name):
        scaled = _scaled(expr, x, u)
        if scaled is None:
            continue
        factor, in_t = scaled.as_independent(T, as_Add=False)
        if in_t.free_symbols == {T} and _divides_no_more(factor, u):
            number, in_t = sympy.factor_terms(sympy.expand(in_t)).as_independent(T, as_Add=False)
            return number * factor, in_t
        if terms_at_most(scaled) > EXPANDED:
            continue
        if may_be_product(scaled):
            product = sympy.factor_terms(sympy.expand(scaled))
            factor, in_t = product.as_independent(T, as_Add=False)
            if in_t.free_symbols == {T} and _divides_no_more(factor, u):
                return factor, in_t
    return None


def _divides_no_more(factor: Expr, u: Expr) -> bool:
    """Whether a factor is a polynomial, divided by nothing but what u is divided by too."""
    if factor.is_polynomial(*factor.free_symbols):
        return True
    top, bottom = sympy.fraction(factor)
    known = sympy.fraction(u)[1].free_symbols
    return bool(top.is_polynomial(*top.free_symbols) and bottom.free_symbols <= known)


def _scaled(expr: Expr, x: Symbol, u: Expr) -> Expr | None:
    """The expression with x written in `T`, which u is; None where u is not linear in x."""
    line = linear(u, x)
    if line is None:
        return None
    scale, shift = line
    products = {
        each: each.args[0] * sympy.exp(each.args[1]) for each in expr.atoms(heads.times_exp)
    }
    return trees.replaced(expr, products).xreplace({x: sympy.expand((T - shift) / scale)})


def for_kernels(expr: Expr) -> Expr:
    """The expression with the polynomials of its regimes as one operation each.

    It leaves out, in single precision, the terms that are below the last digit there.
    """
    return _shortened(expr)


@lru_cache(maxsize=100_000)
def _shortened(node: Basic) -> Basic:
    if not node.args or node.is_Number or trees.size(node) == 0:
        return node
    if _is_regime(node) and (short := _short(node)) is not None:
        return short
    return trees.rebuilt(node, [_shortened(arg) for arg in node.args])


def _short(node: Piecewise) -> Expr | None:
    (_, where), (second, always) = node.args
    first = series(node)
    if first is None or (made := _coefficients(first.in_t, where.rhs)) is None:
        return None
    cut, left, step, found = made
    short = first.factor * first.u**left * polynomial(cut, first.u**step, *found)
    return Piecewise((short, where), (_shortened(second), always), evaluate=False)


def _coefficients(in_t: Expr, radius: Expr) -> tuple[int, int, int, list[Expr]] | None:
    """Of t**left * p(t**step): how many first coefficients of p are below single precision's last
    digit within the radius, left, step, and the coefficients; None of one term alone, and of
    polynomials in another variable, such as t - pi, whose digits cancel in powers of t.
    """
    terms = sympy.Poly(in_t, T).as_dict()
    left = min(power for (power,) in terms)
    even = all((power - left) % 2 == 0 for (power,) in terms)
    step = 2 if even else 1
    top = max(power for (power,) in terms)
    found = [terms.get((power,), sympy.Integer(0)) for power in range(top, left - 1, -step)]
    if len(found) < 2 or not all(c.is_Number for c in found):
        return None
    cut = terms_below(SINGLE, [mp.mpf(str(c)) for c in found], mp.mpf(str(radius**step)))
    return cut, left, step, found


def _regimes(node: Add) -> Expr:
    if trees.size(node) > LIMIT or not node.has(sympy.Function) or node.has(Piecewise):
        return node
    for u in _variables(node):
        in_t = _of(node, u)
        if in_t is not None and (fitted := _fitted(in_t)) is not None:
            polynomial, radius = fitted
            return Piecewise(
                (polynomial.xreplace({T: u}), Abs(u) < radius), (node, True), evaluate=False
            )
    return _without_poles(node) or _by_part(node) or _of_multiple(node) or node


def _of_multiple(node: Add) -> Expr | None:
    """A sum such as c*(1 - exp(-x/c)) - x*exp(-x/c), which is c times a function of x/c."""
    for x in sorted(node.free_symbols, key=lambda symbol: symbol.name):
        for factor, in_t, u in of_one(node, x):
            if u != x and isinstance(in_t, Add) and (fitted := _fitted(in_t)):
                polynomial, radius = fitted
                near = factor * polynomial.xreplace({T: u})
                return Piecewise((near, Abs(u) < radius), (node, True), evaluate=False)
    return None


def _by_part(node: Add) -> Expr | None:
    """A sum such as y + (softplus(x) - log(2)), of which terms of one variable cancel near 0."""
    for u in sorted(filter(_is_expr, _arguments(node)), key=sympy.default_sort_key):
        own = [term for term in node.args if term.xreplace({u: T}).free_symbols <= {T}]
        if 2 <= len(own) < len(node.args):
            part = _regimes(Add(*own))
            if part.is_Piecewise:
                return Add(part, *(term for term in node.args if term not in own))
    return None


def _without_poles(node: Add) -> Expr | None:
    """A sum such as a*coth(a*x) - b*coth(b*x) in two regimes, near 0 without the poles that cancel.

    Where one of the arguments is large, no term is.
    """
    poles = [(term, *pole) for term in node.args if (pole := _pole(term)) is not None]
    if len(poles) < 2:
        return None
    total = Add(*(factor * principal for _, factor, _, principal, _ in poles))
    if sympy.cancel(sympy.together(total)) != 0:
        return None
    finite = {term: _regimes(own - principal) for term, _, own, principal, _ in poles}
    if not all(isinstance(each, Piecewise) for each in finite.values()):
        return None
    whole = {term: factor * finite[term] for term, factor, *_ in poles}
    near = Add(*(whole.get(term, term) for term in node.args))
    first = poles[0][-1]
    return Piecewise((near, Abs(first) < RADII[0]), (node, True), evaluate=False)


def _pole(term: Expr) -> tuple[Expr, Expr, Expr, Expr] | None:
    """A factor, a function of u with a pole at 0, the c/u**n that leaves it finite, and u."""
    for u in sorted(filter(_is_expr, _arguments(term)), key=sympy.default_sort_key):
        factor, in_t = term.xreplace({u: T}).as_independent(T, as_Add=False)
        if in_t.free_symbols == {T} and (principal := _principal_part(in_t)) is not None:
            return factor, in_t.xreplace({T: u}), principal.xreplace({T: u}), u
    return None


MULTIPLE = 3
"""The order of the highest pole that is looked for."""


@lru_cache(maxsize=256)
def _principal_part(in_t: Expr) -> Expr | None:
    """The c/t**n, c a simple fraction, that leaves something finite at 0."""
    near, nearer = mp.mpf(2) ** -30, mp.mpf(2) ** -31
    with mp.workprec(400):
        value = _function(in_t)
        try:
            n = int(mp.nint(mp.log(abs(value(nearer) / value(near)), 2)))
            if not 1 <= n <= MULTIPLE:  # of exp(1/t), say, of which no integer is to be made
                return None
            c = sympy.Rational(int(mp.nint(FRACTIONS * value(nearer) * nearer**n)), FRACTIONS)
            rests = [value(t) - mp.mpf(int(c.p)) / int(c.q) / t**n for t in (near, nearer)]
        except (ZeroDivisionError, ValueError, TypeError):
            return None
    if not (c != 0 and abs(rests[1]) < 1.5 * abs(rests[0]) + 1):
        return None
    return c / T**n


FRACTIONS = 720
"""Of what such coefficients are multiples of the inverse."""


def _is_plain(node: Expr) -> bool:
    """Whether it is of moderate size, and without branches that a regime would be one of."""
    return trees.size(node) <= LIMIT and not node.has(Piecewise)


def _limited(node: Mul) -> Expr | None:
    """A product of functions of one variable that is 0/0 at 0, with its limit there."""
    if not _is_plain(node):
        return None
    bottoms = [f.base for f in node.args if isinstance(f, sympy.Pow) and f.exp.is_negative]
    candidates = {x for bottom in bottoms for x in bottom.free_symbols}
    for x in sorted(candidates, key=lambda symbol: symbol.name):
        others, own = node.as_independent(x, as_Add=False)
        alone = Mul(*(each for each in Mul.make_args(own) if each.free_symbols == {x}))
        for part in dict.fromkeys((own, alone)):
            for factor, in_t, u in of_one(part, x):
                if (fitted := _limit(in_t)) is not None:
                    first, radius = fitted
                    # Beside other functions of x its derivatives would be multiplied out.
                    near = _opaque(first, u, radius) if part != own else first.xreplace({T: u})
                    near *= (own / part) * factor
                    return others * Piecewise((near, Abs(u) < radius), (own, True), evaluate=False)
    return None


def _limit(in_t: Expr) -> tuple[Expr, Expr] | None:
    """What `_quotient` gives of a product that divides by 0 at 0, and is more than a fraction."""
    vanishes = any(map(_vanishes, _bottoms(in_t))) and not in_t.is_rational_function(T)
    return _quotient(in_t) if vanishes else None


def _limited_at_origin(node: Mul) -> Expr | None:
    """A product of functions of a vector's length that is 0/0 at 0, with its limit there.

    sin(r)/r of r = sqrt(x**2 + y**2): near 0 a polynomial in r**2, whose derivatives exist.
    """
    if not _is_plain(node):
        return None
    if not any(map(_divides, node.args)):
        return None
    squares = {
        power.base
        for power in trees.nodes(node)
        if isinstance(power, sympy.Pow)
        and isinstance(power.base, Add)
        and power.base.is_nonnegative
    }
    for square in sorted(squares, key=sympy.default_sort_key):
        others, own = node.xreplace({square: _LENGTH**2}).as_independent(_LENGTH, as_Add=False)
        if not others.free_symbols.isdisjoint({_LENGTH}):
            continue
        for factor, in_t, u in of_one(own, _LENGTH):
            if (fitted := _limit(in_t)) is None:
                continue
            first, radius = fitted
            made = _coefficients(first, radius)
            if made is None or made[1] % 2 or made[2] != 2:
                continue
            cut, left, _, found = made
            back = {_LENGTH: sqrt(square)}
            z = (u**2).xreplace(back)
            near = factor.xreplace(back) * z ** (left // 2) * polynomial(cut, z, *found)
            far = own.xreplace(back)
            return others * Piecewise((near, z < radius**2), (far, True), evaluate=False)
    return None


_LENGTH = Symbol("_r", positive=True)


def _with_divisors(product: Expr) -> Expr:
    """A product with a series that has a power of a symbol, of which it is divided: within both
    branches, so that the derivative by the symbol is not one of the power and its inverse.
    """
    regimes = [each for each in Mul.make_args(product) if _is_series(each)]
    if len(regimes) != 1 or regimes[0] == product:
        return product
    (near, where), (far, _) = regimes[0].args
    multiplied = {each.as_base_exp()[0] for each in Mul.make_args(near)}
    rest, divisors = S.One, S.One
    for each in (each for each in Mul.make_args(product) if each is not regimes[0]):
        base, power = each.as_base_exp()
        if base.is_Symbol and base in multiplied and power.is_negative:
            divisors *= each
        else:
            rest *= each
    if divisors == 1:
        return product
    return rest * Piecewise((near * divisors, where), (far * divisors, True), evaluate=False)


def _divided_out(node: Mul) -> Expr | None:
    """`divided_out`, whose quotient elsewhere may have regimes of its parts."""
    found = divided_out(node, _log1p_over, _log1pmx_over)
    if found is None or not isinstance(found, Piecewise) or found.args[-1][0] != node:
        return found
    far = trees.rebuilt(node, [with_regimes(arg) for arg in node.args])
    return Piecewise(*found.args[:-1], (far, True), evaluate=False)


def _divided_sum(node: Add) -> Expr | None:
    """`divided_out` of a sum of fractions with poles that it has not."""
    parts = over_one(node)
    if parts is None:
        return None
    found = divided_out(parts[0], _log1p_over, _log1pmx_over)
    if not isinstance(found, Piecewise) or found.args[-1][0] != parts[0]:
        return None
    near = [(value + with_regimes(parts[1]), where) for value, where in found.args[:-1]]
    far = trees.rebuilt(node, [with_regimes(arg) for arg in node.args])
    return Piecewise(*near, (far, True), evaluate=False)


def _limited_power(node: Expr) -> Expr | None:
    """A power such as (1 + p*x)**(1/p), less 1 or not, with its limit exp(x) where p is 0.

    What is divided by in the base or the exponent, and cancels in their product, may be 0 or
    infinite; near there digits of p*x are lost beside 1, and magnified.
    """
    base, exponent = node.args
    less_one = isinstance(node, heads.pow1pm1)
    if exponent.is_number or not (less_one or (isinstance(base, Add) and S.One in base.args)):
        return None
    if not _is_plain(node):
        return None
    vanishing = base if less_one else base - 1
    divisors = [sympy.fraction(sympy.together(each))[1] for each in (vanishing, exponent)]
    product = sympy.cancel(vanishing * exponent)
    left = sympy.fraction(product)[1]
    if not any(each.free_symbols - left.free_symbols for each in divisors):
        return None
    series, radius = _logarithm()
    near = (heads.expm1 if less_one else sympy.exp)(product * _opaque(series, vanishing, radius))
    return Piecewise((near, Abs(vanishing) < radius), (node, True), evaluate=False)


def _limited_by_exponent(node: Mul) -> Expr | None:
    """((1 + u)**p - 1)/p or (u**p - 1)/p, with its limit log(1 + u) or log(u) where p is 0."""
    if not _is_plain(node):
        return None
    for power in node.args:
        if isinstance(power, heads.pow1pm1):
            (vanishing, exponent), sign = power.args, S.One
            logarithm = heads.log1p(vanishing)
        elif isinstance(power, Add) and len(power.args) == 2 and power.args[0] in (1, -1):
            sign = -power.args[0]
            raised = sign * power.args[1]
            if not isinstance(raised, heads.power):
                continue
            base, exponent = raised.args
            logarithm = sympy.log(base)
        else:
            continue
        rest = _divided(node / power, exponent)
        if rest is not None:
            u = exponent * logarithm
            near = sign * rest * logarithm * heads.phi(S.One, u)
            return Piecewise((near, Abs(u) < RADII[-1]), (node, True), evaluate=False)
    return None


def _divided(product: Expr, u: Expr) -> Expr | None:
    """The product times u, where that takes a divisor with symbols out of it; else None."""
    for divisor in Mul.make_args(sympy.fraction(product)[1]):
        quotient = sympy.cancel(u / divisor)
        gone = divisor.free_symbols - sympy.fraction(quotient)[1].free_symbols
        if divisor.free_symbols and gone == divisor.free_symbols:
            return product * divisor * quotient
    return None


@cache
def _logarithm() -> tuple[Expr, Expr]:
    """log(1 + t)/t as a polynomial, and the radius in which it is that."""
    radius = sympy.Rational(1, 16)
    with mp.workprec(400):
        found = _polynomial(lambda t: mp.log1p(t) / t if t else mp.mpf(1), False, radius)
    assert found is not None
    return found, radius


def _log1p_over(z: Expr) -> Expr:
    """log(1 + z)/z, and its limit where z is 0."""
    series, radius = _logarithm()
    near = (_opaque(series, z, radius), Abs(z) < radius)
    return Piecewise(near, (heads.log1p(z) / z, True), evaluate=False)


def _log1pmx_over(z: Expr) -> Expr:
    """(log(1 + z) - z)/z, and its limit where z is 0."""
    found = _quotient(heads.log1pmx(T) / T)
    assert found is not None
    series, radius = found
    near = (_opaque(series, z, radius), Abs(z) < radius)
    return Piecewise(near, (heads.log1pmx(z) / z, True), evaluate=False)


def _opaque(first: Expr, u: Expr, radius: Expr) -> Expr:
    """A polynomial in `T` as one operation on u."""
    made = _coefficients(first, radius)
    if made is None:
        return first.xreplace({T: u})
    cut, left, step, found = made
    return u**left * polynomial(cut, u**step, *found)


def _limited_by_term(node: Mul) -> Expr | None:
    """d*(a/expm1(d) + b/expm1(-d)) multiplied out: each term is 0/0 at 0 by itself."""
    for total in node.args:
        if not (isinstance(total, Add) and any(map(_divides, total.args))):
            continue
        if _is_regime(with_regimes(total)):
            continue  # m*(coth(m*x) - 1/(m*x)) has its limit in the sum
        terms = [node / total * term for term in total.args]
        limited = [(isinstance(t, Mul) and _limited(t)) or None for t in terms]
        if any(each is not None for each in limited):
            kept = (with_regimes(term) for term in terms)
            return Add(*(a if a is not None else b for a, b in zip(limited, kept, strict=True)))
    return None


def _limited_in_branch(node: Mul) -> Expr | None:
    """log(1 + q*exp(x))/q of a logarithm in two branches, the first of which has a limit."""
    for factor in node.args:
        if not (isinstance(factor, Piecewise) and isinstance(factor.args[0][0], heads.log1p)):
            continue
        (near, where), *rest = factor.args
        small = unbounded(near, frozenset({where}))
        others = Mul(*(each for each in node.args if each is not factor))
        if small == near:
            continue
        limited = with_regimes(others * small)
        if limited.has(Piecewise):
            branches = ((with_regimes(others * value), where) for value, where in rest)
            return Piecewise((limited, where), *branches, evaluate=False)
    return None


def _limited_over_symbol(node: Mul) -> Expr | None:
    """(sin(a*x) + x*cos(b*x))/x, of which each term has a limit at 0."""
    for divisor in node.args:
        x, power = divisor.as_base_exp()
        if not (x.is_Symbol and power.is_Integer and power < 0):
            continue
        for total in node.args:
            if not isinstance(total, Add) or x not in trees.symbols(total):
                continue
            terms = [term * divisor for term in total.args]
            found = [_without_pole(term, x) for term in terms]
            if all(each is not None for each in found):
                return node / divisor / total * Add(*found)
    return None


def _without_pole(term: Expr, x: Symbol) -> Expr | None:
    """A product that divides by x no more, or that has its limit where x is 0; else None."""
    waves = [f for f in Mul.make_args(term) if isinstance(f, sympy.sin) and 1 / x in term.args]
    for wave in waves:
        slope = wave.args[0] / x
        if x not in trees.symbols(slope):
            term = term * x / wave * slope * heads.sinc(wave.args[0])
            break
    if any(f.is_Pow and f.exp.is_negative and f.base == x for f in Mul.make_args(term)):
        return _limited(term) if isinstance(term, Mul) else None
    return with_regimes(term)


def _divides(term: Expr) -> bool:
    return any(f.is_Pow and f.exp.is_negative for f in Mul.make_args(term))


def _bottoms(product: Expr) -> list[Expr]:
    """What it divides by at 0; nothing where that is no number, as of Min(1/t, 2)."""
    factors = (each.as_base_exp() for each in Mul.make_args(product))
    try:
        return [base.xreplace({T: S.Zero}) for base, power in factors if power.is_negative]
    except ValueError:
        return []


def of_one(own: Expr, x: Symbol) -> Iterator[tuple[Expr, Expr, Expr]]:
    """A factor without x, a function in `T`, and what that is of: x, or a linear function of x."""
    if own.free_symbols == {x}:
        yield S.One, own.xreplace({x: T}), x
    for u in sorted(_arguments(own), key=sympy.default_sort_key):
        scaled = _scaled(own, x, u)
        if scaled is None or (u / x).is_number:
            continue
        factor, in_t = sympy.factor_terms(scaled).as_independent(T, as_Add=False)
        if in_t.free_symbols == {T}:
            yield factor, in_t, u


def _arguments(expr: Expr) -> set[Basic]:
    """What the functions in an expression are of, and x/s of (x/s)**2."""
    found = {
        arg for each in trees.nodes(expr) if isinstance(each, sympy.Function) for arg in each.args
    }
    powers = [u.as_independent(*u.free_symbols, as_Add=False)[1] for u in found if _is_expr(u)]
    return found | {root for power in powers if (root := _root(power)) is not None}


def _is_expr(u: Basic) -> bool:
    return isinstance(u, Expr) and bool(u.free_symbols)


def _root(product: Expr) -> Expr | None:
    """x/s of x**2/s**2; None of what is no such product of several symbols."""
    factors = [each.as_base_exp() for each in Mul.make_args(product)]
    if len(factors) < 2 or not all(b.is_Symbol and e.is_Integer for b, e in factors):
        return None
    n = int(sympy.igcd(*(e for _, e in factors)))
    return Mul(*(b ** (e / n) for b, e in factors)) if n > 1 else None


def _vanishes(number: Expr) -> bool:
    if number.free_symbols:
        return False
    value = number.evalf(30)
    return bool(value.is_Number and value.is_finite and abs(value) < SMALL)


def _variables(node: Add) -> list[Expr]:
    """What the terms may all be functions of: the one symbol, or the argument of a function."""
    found = _arguments(node)
    symbols = sorted(node.free_symbols, key=lambda s: s.name)
    others = [u for u in found if isinstance(u, Expr) and u.free_symbols and not u.is_Symbol]
    return [*symbols[: 1 if len(symbols) == 1 else 0], *sorted(others, key=sympy.default_sort_key)]


def _of(node: Add, u: Expr) -> Expr | None:
    """The sum as a function of u, in `T`; None where it has other variables too."""
    tries = [node.xreplace({u: T})]
    if isinstance(u, Add):
        # In a - b - tanh(a - b) the first two terms are u.
        tries += [k * T + (node - k * u).xreplace({u: T}) for k in (1, -1)]
    # In coth(a*x) - 1/(a*x) the second term has both by themselves.
    if not u.is_Symbol:
        symbols = sorted(u.free_symbols, key=lambda symbol: symbol.name)
        tries += [each for x in symbols if (each := _scaled(node, x, u)) is not None]
    return next((each for each in tries if each.free_symbols == {T}), None)


@lru_cache(maxsize=256)
def _fitted(in_t: Expr) -> tuple[Expr, Expr] | None:
    """t**k times a polynomial, and the radius in which it is the sum; None if nothing cancels."""
    with mp.workprec(400):
        value = _function(in_t)
        terms = [_function(term) for term in Add.make_args(in_t)]
        try:
            ratios = [
                sum(abs(term(at)) for term in terms) / abs(value(at))
                for at in (mp.mpf(2) ** -6, -(mp.mpf(2) ** -6), mp.mpf(2) ** -9)
            ]
            if not (min(ratios[:2]) > CANCELS and ratios[2] > 2 * ratios[0]):
                return None
            return _expanded(value, range(ORDER + 1))
        except (ZeroDivisionError, ValueError, TypeError):
            return None


@lru_cache(maxsize=256)
def _quotient(in_t: Expr, *, least: int = 0) -> tuple[Expr, Expr] | None:
    """t**k times a polynomial, and the radius in which it is the quotient; None at a pole, and
    where k is below the least."""
    with mp.workprec(400):
        try:
            return _expanded(_function(in_t), range(least, ORDER + 1))
        except (ZeroDivisionError, ValueError, TypeError):
            return None


ORDER = 12
"""The highest power of t that is looked for."""


def _expanded(value: Callable[[mp.mpf], mp.mpf], orders: range) -> tuple[Expr, Expr] | None:
    """A function as a power of t times a polynomial, and the radius in which it is that."""
    order = int(mp.nint(mp.log(abs(value(mp.mpf(2) ** -30) / value(mp.mpf(2) ** -31)), 2)))
    if order not in orders:
        return None

    def quotient(t: mp.mpf) -> mp.mpf:
        t = t if abs(t) > AT_ZERO else mp.mpf(AT_ZERO)
        return value(t) / t**order

    here, there = quotient(mp.mpf("0.004")), quotient(mp.mpf("-0.004"))
    even = abs(here - there) < mp.mpf(2) ** -100 * abs(here)
    for radius in RADII:
        try:
            found = _polynomial(quotient, even, radius)
        except (ZeroDivisionError, ValueError, TypeError):
            continue  # beyond a singularity
        if found is not None:
            return T**order * found, radius
    return None


def _amplified(polynomial: list[mp.mpf], z: mp.mpf) -> mp.mpf:
    """How much larger the terms are than the sum."""
    terms = mp.polyval([abs(c) for c in polynomial], abs(z))
    value = abs(mp.polyval(polynomial, z))
    return terms / value if value else mp.inf


def _function(expr: Expr) -> Callable[[mp.mpf], mp.mpf]:
    def at(t: mp.mpf) -> mp.mpf:
        digits = 110 if abs(t) > CLOSE else CANCELLED
        value = expr.xreplace({T: Float(t, digits)}).evalf(100)
        if not (value.is_Number and value.is_finite):
            raise ValueError
        return mp.mpf(str(value))

    return at


def _is_level(value: Callable[[mp.mpf], mp.mpf]) -> bool:
    """Whether a function has no slope at 0."""
    above, below = value(mp.mpf(BESIDE)), value(mp.mpf(-BESIDE))
    return bool(abs(above - below) < BESIDE * mp.mpf(2) ** -100 * abs(above))


def _polynomial(quotient: Callable[[mp.mpf], mp.mpf], even: bool, radius: Expr) -> Expr | None:
    r = mp.mpf(int(radius.p)) / int(radius.q)
    interval = [mp.mpf(0), r * r] if even else [-r, r]

    def at(z: mp.mpf) -> mp.mpf:
        return quotient(mp.sqrt(z)) if even else quotient(z)

    found = coefficients(at, interval, abs(quotient(mp.mpf(0))), DEGREES)
    if found is None or any(_amplified(found, end) > AMPLIFIED for end in interval):
        return None
    if not even and _is_level(quotient):
        found[-2] = mp.zero  # else its derivative would not be 0 at 0
    z = T**2 if even else T
    value: Expr = sympy.Integer(0)
    largest = max(map(abs, found))
    for coefficient in found:
        value *= z
        if abs(coefficient) > NOTHING * largest:
            value += Float(mp.nstr(coefficient, 20), 20)
    return value
