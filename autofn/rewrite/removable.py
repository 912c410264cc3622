"""Quotients whose parts vanish together, as quotients of divided differences.

(1 - exp(-n*(1 - c)))/(1 - c*exp(-n*(1 - c))) is 0/0 at c = 1 and a function of two variables, so
that no polynomial serves. But of a function f of t the divided difference (f(t) - f(a))/(t - a) is
known without a division, by rules like those of derivatives; where f(a) = 0 that is f without its
zero, and the factors t - a of both parts cancel. It is smooth, so that a may be rounded.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sympy
from mpmath import mp
from mpmath.libmp import NoConvergence
from sympy import (
    Abs,
    Add,
    Basic,
    Expr,
    Max,
    Mul,
    Piecewise,
    Pow,
    S,
    Symbol,
    cos,
    sin,
    sqrt,
)

from autofn import functions as heads
from autofn import trees
from autofn.compact import LIMIT
from autofn.rewrite.heads import polynomial
from autofn.rewrite.polynomials import linear

POWERS = 8
"""The highest power whose differences are written out."""

NOTHING, DIGITS = 1e-25, 40
"""What is 0 beside 1, of how many digits."""

BESIDE = (mp.mpf(1) / 3, -mp.mpf(2) / 7)
"""So far from a point a function is looked at for its size."""

TRIED = 12
"""The most points that are tried in one variable."""

POINTS, ENOUGH = 60, 10
"""Where it is looked whether something is 0, and at how many of them it must be real."""

SPREAD = 2.2
"""Numbers are drawn from between 3 to the power of this and its inverse."""

_T = Symbol("_t", real=True)

_Factor = tuple[Expr, int]
"""A factor of a product, and its power."""


class _log_rise(sympy.Function):  # type: ignore[misc]  # SymPy has no types
    """log(1 + z)/z, until it is known which of them are left."""

    is_positive = True
    nargs = (1,)


class _log_rest(sympy.Function):  # type: ignore[misc]
    """(log(1 + z) - z)/z, as `_log_rise`."""

    nargs = (1,)


class _Unknown(Exception):
    """A pole, or a function whose differences have no rule."""


def divided_out(
    node: Mul, logarithm: Callable[[Expr], Expr], rest: Callable[[Expr], Expr]
) -> Expr | None:
    """A product that is 0/0 where a symbol has some value, without its zeros there; else None.

    logarithm, rest: give log(1 + z)/z and (log(1 + z) - z)/z of z, and their limits where that is
    0.
    """
    found = _divided_out(node)
    if found is None:
        return None
    logarithms = {each: logarithm(each.args[0]) for each in found.atoms(_log_rise)}
    rests = {each: rest(each.args[0]) for each in found.atoms(_log_rest)}
    return trees.replaced(found, {**logarithms, **rests})


def _divided_out(node: Mul) -> Expr | None:
    if trees.size(node) > LIMIT:
        return None
    if node.has(Piecewise):
        return _in_branches(node)
    factors = list(_factors(node))
    bottoms = [base for base, power in factors if power < 0 and _may_vanish(base)]
    if not bottoms or not any(power > 0 and _may_vanish(base) for base, power in factors):
        return None
    symbols = sorted(frozenset[Symbol]().union(*map(trees.symbols, bottoms)), key=str)
    variables = [each for x in symbols for each in _variables(node, x)]
    found = [_without_zeros(node, factors, each) for each in variables]
    best = min((each for each in found if each is not None), key=_cost, default=None)
    again = _divided_out(best) if isinstance(best, Mul) else None
    return best if again is None else again


def over_one(node: Add) -> tuple[Mul, Expr] | None:
    """The terms of a sum with poles in their exponents over one divisor, and the other terms.

    The poles of y**(2 - k)/((1 - k)*(2 - k)) - y*m**(1 - k)/(1 - k) + m**(2 - k)/(2 - k) are none.
    """
    if not poles_in_exponents(node):
        return None
    parts = [(term, *_poles(term)) for term in node.args]
    whole = Mul(*dict.fromkeys(_upright(base) for _, bases, _ in parts for base in bases))
    found = [sympy.cancel(whole * term / rest) * rest for term, bases, rest in parts if bases]
    product = Add(*found) / whole
    others = Add(*(term for term, bases, _ in parts if not bases))
    return (product, others) if product.is_Mul else None


def poles_in_exponents(expr: Expr) -> frozenset[Symbol]:
    """The symbols that a sum is, or its terms are, divided by, and that powers in it are to."""
    terms = [term for factor in Mul.make_args(expr) for term in Add.make_args(factor)]
    bases = [base for term in [*terms, expr] for base in _poles(term)[0]]
    found = frozenset[Symbol]().union(*map(trees.symbols, bases))
    if not found:
        return found
    powers = (each for each in trees.nodes(expr) if isinstance(each, heads.power))
    exponents = frozenset[Symbol]().union(*(trees.symbols(each.args[1]) for each in powers))
    return found & exponents


def _poles(term: Expr) -> tuple[list[Expr], Expr]:
    """What a term is divided by that is linear in one symbol, and the term without."""
    poles = [
        factor
        for factor in Mul.make_args(term)
        if factor.is_Pow and factor.exp == -1 and len(trees.symbols(factor.base)) == 1
        if linear(factor.base, *trees.symbols(factor.base)) is not None
    ]
    return [factor.base for factor in poles], term / Mul(*poles)


def _upright(base: Expr) -> Expr:
    return -base if base.could_extract_minus_sign() else base


def _in_branches(node: Mul) -> Expr | None:
    """The same of a product with one factor that has branches."""
    branches = [each for each in node.args if isinstance(each, Piecewise)]
    rest = Mul(*(each for each in node.args if each not in branches))
    if len(branches) != 1 or rest.has(Piecewise):
        return None
    made: list[tuple[Expr, Basic]] = []
    divided = False
    for value, where in branches[0].args:
        product = rest * value
        found = _divided_out(product) if product.is_Mul else None
        divided |= found is not None
        if isinstance(found, Piecewise) and found.args[0][1] == where:
            found = found.args[0][0]
        made.append((product if found is None else found, where))
    return Piecewise(*made, evaluate=False) if divided else None


def _factors(node: Expr) -> Iterator[_Factor]:
    for factor in Mul.make_args(node):
        base, power = factor.as_base_exp()
        yield (base, int(power)) if power.is_Integer else (factor, 1)


def _may_vanish(base: Expr) -> bool:
    return bool(base.free_symbols) and base.is_nonzero is not True


def _cost(expr: Expr) -> tuple[int, int, int]:
    """How many sums it divides by that are 0 somewhere known, how many others, and the size."""
    near = expr.args[0][0] if isinstance(expr, Piecewise) else expr
    sums = [base for base, power in _factors(near) if power < 0 and base.is_Add]
    zeros = [base for base in sums if any(_is_zero_somewhere(base, x) for x in trees.symbols(base))]
    return len(zeros), len(sums), trees.size(expr)


def _is_zero_somewhere(base: Expr, x: Symbol) -> bool:
    in_t = base.xreplace({x: _T})
    return any(_is_zero_at(in_t, point) for point in _points([in_t]))


@dataclass(frozen=True)
class _Variable:
    """A symbol x, or a product u with it."""

    u: Expr
    x: Symbol

    def factors(self, factors: list[_Factor]) -> list[tuple[Expr, Expr, int]]:
        """Those that are functions of it alone, beside what it lacks, each with itself in `_T`."""
        in_t, found = self.x * _T / self.u, []
        lost = trees.symbols(self.u)
        for base, power in factors:
            if base == self.x:
                found.append((self.u, _T, power))
            elif self.x in trees.symbols(base):
                written = base.xreplace({self.x: in_t})
                if not trees.symbols(written) & lost:
                    found.append((base, written, power))
        return found


def _variables(node: Mul, x: Symbol) -> Iterator[_Variable]:
    products = set()
    for each in trees.nodes(*node.args):
        if each.is_Mul and x in each.args:
            products.add(each.as_independent(*each.free_symbols, as_Add=False)[1])
    for product in sorted(products - {x}, key=sympy.default_sort_key):
        yield _Variable(product, x)
    yield _Variable(x, x)


def _without_zeros(node: Mul, factors: list[_Factor], variable: _Variable) -> Expr | None:
    """The product without its common zeros in a variable, None where there are none."""
    own = variable.factors(factors)
    near: dict[Expr, tuple[Expr, Expr | None]] = {}
    tops = [each for each in own if each[-1] > 0]
    bottoms = [each for each in own if each[-1] < 0]
    for point in _points([written for _, written, _ in bottoms]):
        zeros = [each for each in bottoms if _is_zero_at(each[1], point)]
        if not zeros:
            continue
        zeros += [each for each in tops if _is_zero_at(each[1], point)]
        order = sum(power for *_, power in zeros)
        if order < 0:
            continue
        differences = _Differences(point)
        try:
            slopes = [(differences(written)[1], power) for _, written, power in zeros]
        except _Unknown:
            continue
        if any(power < 0 and _is_zero_at(slope, point) for slope, power in slopes):
            continue
        rest = node / Mul(*(base**power for base, _, power in zeros))
        quotient = (_T - point) ** order * Mul(*(slope**power for slope, power in slopes))
        without = rest * quotient.xreplace({_T: variable.u})
        change = differences.change(variable.u)
        # A change that is positive, of positive symbols, comes to no zero.
        vanishes = change is None or not any(each.is_positive for each in Max.make_args(change))
        if vanishes and is_same(without, node):
            near[point] = without, change
    return _beside(near, node, variable.u) if near else None


def _beside(near: dict[Expr, tuple[Expr, Expr | None]], node: Expr, u: Expr) -> Expr:
    """The product without its zeros where that is better, and as it is elsewhere."""
    changes = {point: change for point, (_, change) in near.items() if change is not None}
    numbers = [point for point in changes if point.is_number]
    if len(numbers) > 1:
        changes = {point: Max(changes[point], _nearness(u, point, numbers)) for point in numbers}
    elif changes:
        changes = dict([next(iter(changes.items()))])
    if changes:
        branches = [(near[point][0], change < 1) for point, change in changes.items()]
        return Piecewise(*branches, (node, True), evaluate=False)
    for point, (without, _) in near.items():
        if point == 0 or not point.is_number:
            return without
    for point, (without, _) in near.items():
        is_near = _nearness(u, point, {S.Zero, *near}) < 1
        node = Piecewise((without, is_near), (node, True), evaluate=False)
    return node


def _nearness(u: Expr, point: Expr, points: Collection[Expr]) -> Expr:
    """What is below 1 nearer to a point than halfway to the next of them."""
    clear = min(abs(point - other) for other in points if other != point) / 2
    size: Expr = Abs(u - point) / clear
    return size


def _points(bottoms: list[Expr]) -> list[Expr]:
    """Where something linear in a divisor is 0, exponents are equal, or logarithms 0; 0, and 1."""
    found: dict[Expr, None] = {}
    for bottom in bottoms:
        nodes = [each for each in trees.nodes(bottom) if isinstance(each, Expr)]
        functions = [each for each in nodes if isinstance(each, sympy.Function)]
        lines = [each for each in nodes if _T in trees.symbols(each)]
        lines += [each.args[0] - 1 for each in nodes if isinstance(each, sympy.log)]
        lines += [
            a - b
            for f, g in itertools.combinations(functions, 2)
            if f.func == g.func or (isinstance(g, _EXPONENTIALS) and isinstance(f, _EXPONENTIALS))
            for a, b in [(f.args[0], g.args[0]), (f.args[-1], g.args[-1])]
        ]
        if bottom.is_polynomial(*bottom.free_symbols):
            lines += _linear_factors(bottom)
        for each in lines:
            if (line := linear(each, _T)) is not None:
                point = sympy.cancel(-line[1] / line[0])
                if not sympy.fraction(point)[1].free_symbols:
                    found[point] = None
    plain = sorted(found, key=lambda point: bool(point.could_extract_minus_sign()))
    return [*dict.fromkeys([S.Zero, S.One, *plain])][:TRIED]


def _linear_factors(polynomial: Expr) -> list[Expr]:
    """Its factors, in numbers such as pi, too."""
    numbers = {each: Symbol(f"_{each}") for each in polynomial.atoms(sympy.NumberSymbol)}
    back = {symbol: number for number, symbol in numbers.items()}
    _, factors = sympy.factor_list(sympy.fraction(sympy.together(polynomial.xreplace(numbers)))[0])
    return [factor.xreplace(back) for factor, _ in factors]


_EXPONENTIALS = (sympy.exp, heads.expm1, heads.times_exp)


def _is_zero_at(in_t: Expr, point: Expr) -> bool:
    """Whether it is 0 where `_T` is the point, whatever the other symbols are."""

    def values(k: int) -> tuple[Any, Any]:
        at = _value(point, k)
        beside = [abs(_value(in_t, k, at + step)) for step in BESIDE]
        return _value(in_t, k, at), max(beside)

    return _is_nothing(values)


def is_same(a: Expr, b: Expr) -> bool:
    """Whether two expressions are the same wherever they were looked at and real."""

    def values(k: int) -> tuple[Any, Any]:
        x, y = _value(a, -k - 1), _value(b, -k - 1)
        return x - y, max(abs(x), abs(y))

    return _is_nothing(values)


def may_be_product(in_t: Expr) -> bool:
    """Whether an expression may be a function of `_T` times one of the other symbols."""
    with mp.workdps(DIGITS):
        try:
            found = [[_value(in_t, k, mp.mpf(at)) for at in (0.37, 0.61)] for k in (0, 1)]
            across, other = found[0][0] * found[1][1], found[0][1] * found[1][0]
            return not abs(across - other) > NOTHING * abs(across)
        except _FAILS:
            return True


def _is_nothing(values: Callable[[int], tuple[Any, Any]]) -> bool:
    """Whether the first of two values is nothing beside the second, at the points by number."""
    real = 0
    with mp.workdps(DIGITS):
        for k in range(POINTS):
            try:
                found, beside = values(k)
            except _FAILS:
                return False
            if isinstance(found, mp.mpc):
                continue
            if not abs(found) <= NOTHING * beside:
                return False
            real += 1
            if real == ENOUGH:
                return True
    return False


_FAILS = (ArithmeticError, ValueError, TypeError, NameError, NotImplementedError, NoConvergence)


def _value(expr: Expr, k: int, t: Any = None) -> Any:
    """At the point of a number."""
    symbols, function = _function(expr)
    return function(*(_drawn(each, k) if each != _T or t is None else t for each in symbols))


@lru_cache(maxsize=10_000)
def _drawn(symbol: Symbol, k: int) -> Any:
    """Of ordinary size at first, then of more sizes."""
    draw = random.Random(f"{symbol.name} {k}")
    spread = 1 if -ENOUGH // 2 <= k < ENOUGH // 2 else SPREAD
    size = mp.mpf(draw.randrange(900, 1100)) / 1000 * mp.mpf(3) ** draw.uniform(-spread, spread)
    return size if symbol.is_positive or draw.random() < 0.5 else -size


@lru_cache(maxsize=2_000)
def _function(expr: Expr) -> tuple[tuple[Symbol, ...], Callable[..., Any]]:
    symbols = tuple(sorted(trees.symbols(expr), key=str))
    return symbols, sympy.lambdify(symbols, _elementary(expr), modules="mpmath", cse=True)


@lru_cache(maxsize=50_000)
def _elementary(node: Basic) -> Basic:
    """In functions that SymPy has."""
    plain = trees.rebuilt(node, [_elementary(arg) for arg in node.args])
    if isinstance(plain, heads.Head):
        return _elementary(plain.definition(*plain.args))
    if isinstance(plain, _log_rise):
        return sympy.log(1 + plain.args[0]) / plain.args[0]
    if isinstance(plain, _log_rest):
        return sympy.log(1 + plain.args[0]) / plain.args[0] - 1
    if isinstance(plain, polynomial):
        return plain.written_out()
    return plain


def _times_log(v: Expr, u: Expr) -> Expr:
    """v * log(u), 0 where v is."""
    number, rest = v.as_coeff_Mul()
    if rest.could_extract_minus_sign():
        number, rest = -number, -rest
    return number * (sympy.log(u) if rest == 1 else heads.xlogy(rest, u))


def _is_square(value: Expr) -> bool:
    if not value.free_symbols or not value.is_polynomial(*value.free_symbols):
        return False
    return all(power % 2 == 0 for _, power in sympy.factor_list(value)[1])


def _in_expm1(product: Expr) -> Expr:
    """With u*phi(1, u) as exp(u) - 1, of which derivatives are shorter."""
    for factor in Mul.make_args(product):
        if isinstance(factor, heads.phi) and factor.args[0] == 1:
            (u,) = factor.args[1:]
            rest = product / (factor * u)
            if _T not in trees.symbols(rest):
                return rest * heads.expm1(u)
    return product


class _Differences:
    """Divided differences between `_T` and a point, and values there."""

    def __init__(self, point: Expr) -> None:
        self.point = point
        self._changes: list[Expr] = []
        self._seen: dict[Expr, tuple[Expr, Expr]] = {}

    def __call__(self, expr: Expr) -> tuple[Expr, Expr]:
        """The value at the point, and the divided difference."""
        if expr not in self._seen:
            self._seen[expr] = self._of(expr)
        return self._seen[expr]

    def change(self, u: Expr) -> Expr | None:
        """What is below 1 where exponents and logarithms have not changed much from the point to u.

        Far from there exponentials overflow, and logarithms have cancelling arguments.
        """
        changes = {Abs(each.xreplace({_T: u})) for each in self._changes}
        return Max(*changes) if changes else None

    def _of(self, expr: Expr) -> tuple[Expr, Expr]:
        if _T not in trees.symbols(expr):
            return expr, S.Zero
        if expr == _T:
            return self.point, S.One
        if isinstance(expr, Add):
            parts = [self(term) for term in expr.args]
            return Add(*(value for value, _ in parts)), Add(*(slope for _, slope in parts))
        if isinstance(expr, Mul):
            return self._of_product(expr.args)
        if isinstance(expr, Pow):
            return self._of_power(*expr.args)
        if isinstance(expr, sympy.exp | heads.expm1):
            value, slope = self(expr.args[0])
            return expr.func(value), sympy.exp(value) * self._rise(expr.args[0], value, slope)
        if isinstance(expr, heads.times_exp):
            return self._of_product((expr.args[0], sympy.exp(expr.args[1])))
        if isinstance(expr, sympy.log | heads.log1p):
            value, slope = self(expr.args[0])
            whole = value if isinstance(expr, sympy.log) else 1 + value
            slope /= self._nonzero(whole)
            change = (expr.args[0] - value) / whole
            self._changes.append(2 * change)
            z = change if change == _T - self.point else _in_expm1(slope * (_T - self.point))
            return expr.func(value), slope * _log_rise(z)
        if isinstance(expr, heads.softplus):
            value, slope = self(expr.args[0])
            share = heads.sigmoid(value)
            rise = self._rise(expr.args[0], value, slope)
            change = _in_expm1(share * rise * (_T - self.point))
            return expr.func(value), share * rise * _log_rise(change)
        if isinstance(expr, sin | cos):
            value, slope = self(expr.args[0])
            if isinstance(expr, sin) and value == 0:
                return S.Zero, slope * heads.sinc(expr.args[0])
            middle, half = (expr.args[0] + value) / 2, heads.sinc((_T - self.point) * slope / 2)
            wave = cos(middle) if isinstance(expr, sin) else -sin(middle)
            return expr.func(value), slope * wave * half
        if isinstance(expr, heads.sinc):
            u = expr.args[0]
            if not self(u)[0].is_number or self(u)[0] == 0:
                raise _Unknown
            return self._of_product((sin(u), 1 / u))
        if isinstance(expr, sympy.sinh | sympy.cosh):
            return self(expr.rewrite(sympy.exp))
        if isinstance(expr, sympy.tanh):
            value, slope = self(expr.args[0])
            rise = self._rise(2 * expr.args[0], 2 * value, 2 * slope)
            rise *= heads.sigmoid(2 * (value - expr.args[0]))
            return sympy.tanh(value), (1 - expr * sympy.tanh(value)) * rise
        if isinstance(expr, heads.power):
            return self._of_power(*expr.args)
        if isinstance(expr, heads.log1pmx | heads.expm1mx) and self(expr.args[0])[0] == 0:
            (u,) = expr.args
            rest = u * heads.phi(2, u) if isinstance(expr, heads.expm1mx) else _log_rest(u)
            return S.Zero, self(u)[1] * rest
        if isinstance(expr, heads.Head):
            definition = expr.definition(*expr.args)
            if not definition.has(Piecewise) and not isinstance(definition, heads.Head):
                return self(definition)
        raise _Unknown

    def _of_product(self, factors: tuple[Expr, ...]) -> tuple[Expr, Expr]:
        before, total = S.One, S.Zero
        for k, factor in enumerate(factors):
            value, slope = self(factor)
            total += before * slope * Mul(*factors[k + 1 :])
            before *= value
        return before, total

    def _of_power(self, base: Expr, exponent: Expr) -> tuple[Expr, Expr]:
        if exponent.free_symbols and _T in trees.symbols(base):
            return self(sympy.exp(exponent * sympy.log(base)))
        if exponent.free_symbols:
            return self._of_exponent(base, exponent)
        value, slope = self(base)
        if exponent in (S.Half, -S.Half):
            if _is_square(value):  # of |z - 1|, which is z - 1 on one side alone
                raise _Unknown
            slope = slope / (sqrt(base) + sqrt(self._nonzero(value)))
            base, value, exponent = sqrt(base), sqrt(value), 2 * exponent
        if not (exponent.is_Integer and abs(exponent) <= POWERS):
            raise _Unknown
        n = abs(int(exponent))
        slope = slope * Add(*(base**k * value ** (n - 1 - k) for k in range(n)))
        if exponent > 0:
            return value**n, slope
        return value**-n, -slope / (base * self._nonzero(value)) ** n

    def _of_exponent(self, base: Expr, exponent: Expr) -> tuple[Expr, Expr]:
        """Of base**exponent, the base without `_T`. Where it is 0, so is its logarithm's multiple
        by a difference of exponents that is 0, or by the power.
        """
        value, slope = self(exponent)
        whole = base**value if value.is_number else heads.power(base, value)
        z = _times_log(slope * (_T - self.point), base)
        self._changes.append(z)
        return whole, _times_log(slope * whole, base) * heads.phi(S.One, z)

    def _rise(self, u: Expr, value: Expr, slope: Expr) -> Expr:
        """(exp(u - value) - 1)/(t - a)."""
        self._changes.append(u - value)
        z = u if value == 0 and not u.is_Add else slope * (_T - self.point)
        return slope * heads.phi(S.One, z)

    def _nonzero(self, value: Expr) -> Expr:
        if _is_nothing(lambda k: (_value(value, k), 1)):
            raise _Unknown
        return value
