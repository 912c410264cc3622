"""Candidates: other forms of the expressions of a program, for kernels.

Each form is a function from an expression to an equal one, which may be the same. They are applied
after all differentiation, so they may use |u| and selects.
"""

from __future__ import annotations

import sympy
from mpmath import mp
from sympy import Abs, Add, Eq, Expr, Float, Integer, Max, Mul, Piecewise, S, Symbol

from autofn import functions as heads
from autofn import trees
from autofn.compact import LIMIT, factored, in_differences, in_sines
from autofn.derive import Differentiator
from autofn.errors import FormulaError
from autofn.rewrite.by_hand.logarithms import as_integral_of_normcdf
from autofn.rewrite.exponentials import exponents, in_exponential
from autofn.rewrite.formats import DOUBLE, EXACT
from autofn.rewrite.heads import choose, decay, inverse
from autofn.rewrite.near_root import function_of
from autofn.rewrite.near_zero import T
from autofn.rewrite.tails import integral_of_normcdf

VANISHED = 48
"""exp(-48) is nothing beside 1, in float64 too, and its square is no subnormal number."""

ORDERS = 3
"""How many powers of a vanishing exponential are looked for."""

_T = sympy.Dummy("t", positive=True)


def with_tails(expr: Expr) -> Expr:
    """The expression, and its leading term where it vanishes like a power of exp(u).

    x*log(1 + sigmoid(x)) is x*exp(x) below -48: log1p of a subnormal number has few digits.
    """
    if trees.size(expr) > 2 * LIMIT:
        return expr
    for u in exponents(expr):
        for v in (u, -u):
            leading = _leading(expr, v)
            if leading is not None:
                return Piecewise((leading, _less(v, -VANISHED)), (expr, S.true), evaluate=False)
    return expr


def _leading(expr: Expr, u: Expr) -> Expr | None:
    """The first term of the expansion in exp(u) where u is far below zero, if that vanishes."""
    in_t = in_exponential(expr, u, _T)
    if in_t is None or in_t == expr:
        return None
    d = Differentiator((_T,))
    derivative: Expr = in_t
    for order in range(1, ORDERS + 1):
        if not _is_zero(_at_zero(derivative)):
            return None
        try:
            derivative = d(derivative, _T) / order
        except (FormulaError, KeyError):
            return None
        value = _at_zero(derivative)
        if value is None:
            return None
        if not _is_zero(value):
            return Mul(value, choose(order * u, decay(order * u), S.One))
    return None


def _at_zero(expr: Expr) -> Expr | None:
    """The expression at t = 0 with its numbers evaluated; None where that is no number."""
    try:
        value = _evaluated(expr.xreplace({_T: S.Zero}))
    except (TypeError, ValueError):  # of cosh(1/t), Min(1/t, 2), say
        return None
    return None if value is None or value.has(sympy.nan, sympy.zoo, sympy.oo) else value


def _evaluated(expr: Expr) -> Expr | None:
    if not expr.free_symbols:
        if expr.is_Rational:
            return expr
        try:
            number = expr.evalf(40)
        except (ValueError, TypeError, ZeroDivisionError, RecursionError):
            return None
        if not number.is_Float:
            return number if number.is_Rational else None
        _, _, exponent, count = number._mpf_
        if exponent + count > HUGEST:
            return None
        whole = number if exponent + count > WHOLE else Integer(round(number))
        return whole if abs(number - whole) < Float("1e-35") else number
    if not isinstance(expr, Add | Mul | sympy.Pow):
        return expr
    args = [_evaluated(arg) for arg in expr.args]
    return None if any(arg is None for arg in args) else expr.func(*args)


WHOLE, HUGEST = 60, 900
"""Exponents of two: beyond the first a number is not asked whether it is whole, beyond the second
it is none of any dtype, and may have more digits than memory holds."""


def _is_zero(expr: Expr | None) -> bool:
    if expr is None:
        return False
    return bool(expr == 0) or (trees.size(expr) < LIMIT and sympy.expand(expr) == 0)


# --- powers far out --------------------------------------------------------------------------

FAR = (20, 30, 40, 60)
"""Exponents of two: beyond one of these an expression may be a power of its variable."""

FARTHER = (100, 101, 180)
"""Exponents of two that tell which power. The squares' digits fit the exact arithmetic."""

SAME = mp.mpf(2) ** -56


def with_far_powers(expr: Expr, tensors: frozenset[Symbol]) -> Expr:
    """The expression, and c*x**n where it is that for large x: x**2/(1 + x**2) overflows."""
    linear = [s for s in trees.symbols(expr) if s.name.startswith("_")]
    function = expr
    for symbol in linear:
        function = function.xreplace({symbol: S.One})
    unknown = trees.symbols(function)
    if len(unknown & tensors) != 1 or trees.size(expr) > LIMIT or not _divides(function):
        return expr
    if linear and sympy.expand(expr - Mul(function, *linear)) != 0:
        return expr
    (x,) = unknown & tensors
    of_x = _far_power if len(unknown) == 1 else _far_ratio
    sides = [of_x(function, x, sign) for sign in (1, -1)]
    branches = [(Mul(side[0], *linear), side[1]) for side in sides if side is not None]
    if len(branches) < 2:
        return expr
    if branches[0][0] == branches[1][0]:
        branches = [(branches[0][0], Abs(x) > max(abs(w.rhs) for _, w in branches))]
    return Piecewise(*branches, (expr, S.true), evaluate=False)


def _far_ratio(expr: Expr, x: Symbol, sign: int) -> tuple[Expr, sympy.Rel] | None:
    """The ratio of the leading terms of what is rational in x, with parameters."""
    plain = expr.xreplace({Abs(x): sign * x, sympy.sign(x): Integer(sign)})
    if not plain.is_rational_function(x) or plain.has(Piecewise, sympy.Float):
        return None
    top, bottom = (sympy.Poly(each, x) for each in sympy.fraction(sympy.together(plain)))
    power = top.degree() - bottom.degree()
    # The next terms are smaller by x, or by x**2.
    steps = [each.degree() - m for each in (top, bottom) for (m,) in each.monoms()]
    edge = Integer(2) ** (60 if any(step % 2 for step in steps) else 30)
    factor = top.LC() / bottom.LC()
    return factor * _power_of(x, power), _beyond(x, edge, sign)


def _beyond(x: Symbol, edge: Expr, sign: int) -> sympy.Rel:
    return sympy.StrictGreaterThan(x, edge, evaluate=False) if sign > 0 else _less(x, -edge)


def _less(a: Expr, b: Expr | int) -> sympy.Rel:
    """The relation, not what assumptions on a symbol make of it."""
    return sympy.StrictLessThan(a, b, evaluate=False)


def _power_of(x: Expr, power: int) -> Expr:
    return x**power if power >= 0 else inverse(x) ** -power


def _divides(expr: Expr) -> bool:
    return any(
        isinstance(node, sympy.Pow) and node.exp.is_negative and node.base.free_symbols
        for node in trees.nodes(expr)
    )


def _far_power(expr: Expr, x: Symbol, sign: int) -> tuple[Expr, sympy.Rel] | None:
    with mp.workprec(EXACT):
        value = function_of(expr.xreplace({x: T}))
        try:
            values = {e: value(sign * mp.mpf(2) ** e) for e in (*FAR, *FARTHER)}
        except (ValueError, TypeError):
            return None
        if any(v == 0 for v in values.values()):
            return None
        near, next_, last = FARTHER
        power = int(mp.nint(mp.log(abs(values[next_] / values[near]), 2)))
        if abs(power) > 12:
            return None
        scale = values[last] / mp.mpf(2) ** (last * power)
        if abs(values[near] / (scale * mp.mpf(2) ** (near * power)) - 1) > SAME:
            return None
        for e in FAR:
            if abs(values[e] / (scale * mp.mpf(2) ** (e * power)) - 1) <= SAME:
                break
        else:
            return None
        integer = mp.nint(scale)
        whole = abs(scale - integer) < mp.mpf(2) ** -100
        factor = Integer(int(integer)) if whole else Float(mp.nstr(scale, 40), 40)
    edge = Integer(2) ** e
    return factor * _power_of(sign * x, power), _beyond(x, edge, sign)


# --- near zero -------------------------------------------------------------------------------

TINY = sympy.Rational(1, 2**60)


def with_linear_start(expr: Expr, tensors: frozenset[Symbol]) -> Expr:
    """The expression, and c*x where it is that for small x: c*tanh(x/c) of subnormal numbers."""
    (x, *others) = sorted(trees.symbols(expr) & tensors, key=str) or (None,)
    if x is None or others or trees.size(expr) > LIMIT or expr.has(Piecewise, Max, sympy.Min):
        return expr
    try:
        slope = Differentiator((x,))(expr, x)
    except (FormulaError, KeyError):  # functions of kernels alone have no derivative
        return expr
    start, rise = _value_at_zero(expr, x), _value_at_zero(slope, x)
    if start != 0 or rise is None or rise == 0:
        return expr
    return Piecewise((rise * x, Abs(x) < TINY), (expr, S.true), evaluate=False)


def _value_at_zero(expr: Expr, x: Symbol) -> Expr | None:
    try:
        return _number(expr.xreplace({x: S.Zero}))
    except TypeError:  # SymPy compares the NaN that it finds in cosh(1/x)
        return None


def _number(expr: Expr) -> Expr | None:
    """The value of an expression that holds no more than numbers, and parameters that cancel."""
    plain = expr.replace(
        lambda node: isinstance(node, heads.Head), lambda node: node.definition(*node.args)
    )
    if plain.has(sympy.nan, sympy.zoo, sympy.oo):
        return None
    value = _evaluated(sympy.cancel(plain) if plain.free_symbols else plain)
    return value if value is not None and value.is_number and value.is_finite else None


# --- sines -----------------------------------------------------------------------------------


def with_sines_far(expr: Expr) -> Expr:
    """The expression, and sines of u in place of Bessel functions of u where |u| is over 1."""
    if (written := _in_sines(expr)) is None:
        return expr
    found, u = written
    return Piecewise((found, Abs(u) > 1), (expr, S.true), evaluate=False)


def with_sines(expr: Expr) -> Expr:
    """Sines of u in place of Bessel functions of u everywhere but at 0."""
    if (written := _in_sines(expr)) is None:
        return expr
    found, u = written
    at_zero = {sympy.sin(u): S.Zero, sympy.cos(u): S.One, heads.sinc(u): S.One}
    at_zero |= dict.fromkeys(expr.atoms(heads.spherical_bessel), S.Zero)
    return Piecewise((expr.xreplace(at_zero), Eq(u, 0)), (found, S.true), evaluate=False)


def _in_sines(expr: Expr) -> tuple[Expr, Expr] | None:
    """The expression in sines of u alone, and that u; None where it has no Bessel functions."""
    arguments = {
        node.args[-1]
        for node in trees.nodes(expr)
        if isinstance(node, heads.sinc | heads.spherical_bessel)
    }
    found = in_sines(expr)
    if len(arguments) != 1 or found is None or found == expr:
        return None
    return found, arguments.pop()


def with_sines_of_half(expr: Expr) -> Expr:
    """sin(2*u) by sin(u) and cos(u), which are often there, and computed together."""
    found = {
        node: 2 * sympy.sin(node.args[0] / 2) * sympy.cos(node.args[0] / 2)
        for node in expr.atoms(sympy.sin)
        if node.args[0].as_coeff_Mul()[0].is_even
    }
    return expr.xreplace(found)


# --- exponential integrators ------------------------------------------------------------------


def with_phi_far(expr: Expr) -> Expr:
    """Sums with phi_1(u), phi_2(u), ..., and the same written in exp(u) where |u| is over 2.

    phi_1(u) - phi_2(u) is 1/u**2 far below zero, both of them 1/u; and both overflow far above.
    """
    found: dict[Expr, Expr] = {}
    for node in trees.nodes(expr):
        heads_in = node.atoms(heads.phi) if isinstance(node, Add) else set()
        arguments = {head.args[1] for head in heads_in}
        if len(heads_in) > 1 and len(arguments) == 1 and trees.size(node) <= FRACTIONS:
            (u,) = arguments
            if (written := _in_exp(node, heads_in, u)) is not None:
                found[node] = Piecewise((written, Abs(u) > 2), (node, S.true), evaluate=False)
    return trees.replaced(expr, found) if found else expr


def _in_exp(node: Add, heads_in: set[Expr], u: Expr) -> Expr | None:
    """a*exp(u) + b of a sum that is linear in phi_n(u), a and b rational."""
    t, s = sympy.Dummy("t", positive=True), sympy.Dummy("s", real=True)
    others = {sympy.exp(s): t, heads.expm1(s): t - 1, heads.expm1mx(s): t - 1 - s}
    in_s: set[Expr] = {each.xreplace({u: s}) for each in heads_in}
    plain = node.xreplace({u: s}).xreplace(others | _by_exp(in_s, {s: t}))
    if not plain.is_rational_function():
        return None
    below = plain.xreplace({t: S.Zero})
    slope = plain.xreplace({t: S.One}) - below
    if sympy.expand(plain - slope * t - below) != 0:
        return None
    slope, below = (factored(each).xreplace({s: u}) for each in (slope, below))
    return heads.times_exp(slope, u) + below


def _by_exp(heads_in: set[Expr], exps: dict[Expr, Expr]) -> dict[Expr, Expr]:
    """phi_n(u) = (exp(u) - 1 - u - ...)/u**n of these, exp(u) by what stands for it."""
    return {
        head: (exps[u] - Add(*(u**k / sympy.factorial(k) for k in range(n)))) / u**n
        for head in heads_in
        for n, u in [head.args]
    }


def with_phi_ratios_far(expr: Expr) -> Expr:
    """Quotients with phi_n(u), and fractions in exp(-|u|) where |u| is over 2.

    phi_2(u)/phi_1(u) is infinite over infinite far above 0; in all, its factors may be exp(-u).
    """
    heads_in = expr.atoms(heads.phi)
    divides = any(
        each.exp.is_negative and each.base.has(heads.phi) for each in expr.atoms(sympy.Pow)
    )
    arguments = sorted({each.args[1] for each in heads_in}, key=sympy.default_sort_key)
    u = arguments[-1] if arguments else S.Zero
    if not divides or {*arguments} - {u, -u} or trees.size(expr) > 2 * LIMIT:
        return expr
    above, below = (_in_decay(expr, heads_in, u, sign) for sign in (1, -1))
    if above is None or below is None:
        return expr
    return Piecewise((above, u > 2), (below, u < -2), (expr, S.true), evaluate=False)


def _in_decay(expr: Expr, heads_in: set[Expr], u: Expr, sign: int) -> Expr | None:
    """A quotient with phi_n(u) and phi_n(-u) for such a sign of u, as a fraction in exp(-|u|)."""
    t = sympy.Dummy("t", positive=True)
    grown = {u: t**-sign, -u: t**sign}
    exps = {sympy.exp(v): e for v, e in grown.items()}
    exps |= {heads.expm1(v): e - 1 for v, e in grown.items()}
    plain = expr.xreplace(exps | _by_exp(heads_in, grown))
    if not plain.is_rational_function():
        return None
    found = factored(plain)
    powers = (factor.as_base_exp() for factor in Mul.make_args(found))
    power = Add(*(exponent for base, exponent in powers if base == t))
    bounded = (found / t**power).xreplace({t: sympy.exp(-sign * u)})
    return heads.times_exp(bounded, -sign * power * u)


# --- the normal distribution ------------------------------------------------------------------


def with_normal_tails(expr: Expr) -> Expr:
    """Sums with u*normcdf(u) + the density of u, and its tail where u is below -8."""
    found: dict[Expr, Expr] = {}
    for node in trees.nodes(expr):
        if isinstance(node, Add) and (parts := as_integral_of_normcdf(node)) is not None:
            m, u, left = parts
            far, near = integral_of_normcdf(u).args
            found[node] = Piecewise((left + m * far[0], far[1]), (node, near[1]), evaluate=False)
    return trees.replaced(expr, found) if found else expr


# --- sums ------------------------------------------------------------------------------------


def with_softplus_in_parts(expr: Expr) -> Expr:
    """softplus(u) in sums as max(u, 0) + log1p(exp(-|u|)): the first part meets other terms."""
    seen: dict[Expr, Expr] = {}
    for node in trees.nodes(expr):
        if isinstance(node, Add):
            new = Add(*(_parted(term) for term in node.args))
            if new != node:
                seen[node] = new
    return expr.xreplace(seen)


def _parted(term: Expr) -> Expr:
    factor, head = term.as_coeff_Mul()
    if not isinstance(head, heads.softplus):
        return term
    u = head.args[0]
    return factor * Max(u, 0) + factor * heads.log1p(decay(u))


def with_inverses(expr: Expr) -> Expr:
    """Powers of a reciprocal in place of reciprocals of a power, which overflows before."""
    powers = {
        node: inverse(node.base) ** -node.exp
        for node in trees.nodes(expr)
        if isinstance(node, sympy.Pow)
        and node.exp.is_Integer
        and node.exp < -1
        and node.base.free_symbols
    }
    return expr.xreplace(powers)


def over_one_denominator(expr: Expr, tensors: frozenset[Symbol]) -> Expr:
    """Sums of fractions of tensors as one: of 1/(1 - x)**2 - 1 + x the constants are gone."""
    found = {
        node: new
        for node in trees.nodes(expr)
        if isinstance(node, Add)
        and trees.size(node) <= FRACTIONS
        and not trees.symbols(node).isdisjoint(tensors)
        and any(
            isinstance(part, sympy.Pow) and part.exp.is_negative and trees.symbols(part) & tensors
            for term in node.args
            for part in sympy.Mul.make_args(term)
        )
        and (new := _one_fraction(node)) is not None
    }
    return trees.replaced(expr, found) if found else expr


def _one_fraction(node: Add) -> Expr | None:
    """A sum that is rational in its symbols, and in one square root, as a factored fraction.

    Decimal fractions are what they look like: 2.51 is 251/100.
    """
    decimal = {each: _fraction(each) for each in node.atoms(Float)}
    exact, differences = in_differences(node.xreplace(decimal))
    squares = {each: each.base for each in exact.atoms(sympy.Pow) if _is_root(each)}
    squares |= {each: each.args[0] ** 2 + each.args[1] for each in exact.atoms(heads.root_sum)}
    if len(set(squares.values())) > 1:
        return None
    root, square = sympy.Dummy("r", positive=True), next(iter(squares.values()), S.One)
    powers = {each: root ** (2 * each.exp) if each.is_Pow else root for each in squares}
    plain = exact.xreplace(powers)
    if not (plain.is_rational_function() and square.is_polynomial()):
        return None
    top, bottom = sympy.fraction(sympy.together(plain))
    if squares:
        top = sympy.rem(top, root**2 - square, root)
    found = factored(top / bottom)
    if decimal:
        known = [each.base for each in trees.nodes(plain) if _is_inverse(each)]
        found = Mul(*(_as_known(factor, known) for factor in Mul.make_args(found)))
        numbers = [each for each in found.atoms(sympy.Rational) if each.q > 1]
        back = {exact: number for number, exact in decimal.items()}
        found = found.xreplace({each: back.get(each, Float(each, 40)) for each in numbers})
    found = found.xreplace({root: next(iter(_root_itself(each) for each in squares), S.One)})
    return found.xreplace(differences)


def _fraction(number: Float) -> Expr:
    """The shortest decimal fraction that is this number in float64; of more digits, all of them."""
    return sympy.Rational(repr(float(number)) if number._prec <= DOUBLE.bits else number)


def _as_known(factor: Expr, known: list[Expr]) -> Expr:
    """A power of a sum as that of a known multiple of it, or with the highest power by itself."""
    base, exponent = factor.as_base_exp()
    if not isinstance(base, Add):
        return factor
    for each in known:
        ratio = sympy.cancel(base / each)
        if ratio.is_number:
            return ratio**exponent * each**exponent
    first = sympy.Poly(base, *sorted(base.free_symbols, key=str)).LC()
    return first**exponent * sympy.expand(base / first) ** exponent


def _is_inverse(node: Expr) -> bool:
    return isinstance(node, sympy.Pow) and node.exp.is_negative and isinstance(node.base, Add)


def _is_root(power: sympy.Pow) -> bool:
    return power.exp.is_Rational and power.exp.q == 2 and bool(power.base.free_symbols)


def _root_itself(root: Expr) -> Expr:
    return sympy.sqrt(root.base) if root.is_Pow else root


FRACTIONS = 40
"""Operations beyond which sums of fractions stay: as one they have powers of many terms."""
