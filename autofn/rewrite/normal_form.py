"""The exponential normal form: what is rational in exp(u), with one exponential and one division.

With n = exp(-|u|) in (0, 1], a rational function of t = exp(u) is a ratio of polynomials in n, one
pair for each sign of u; nothing overflows. For kernels only: PyTorch's autograd would find the
derivative of |u| in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import sympy
from sympy import Abs, Dummy, Expr, Function, Integer, Mul, Piecewise, Poly, S, Symbol, exp

from autofn import functions as heads
from autofn import trees
from autofn.compact import LIMIT
from autofn.rewrite.exponentials import exponents, rational
from autofn.rewrite.heads import HUGE, choose, decay, exp_within


def with_horner_arguments(expr: Expr) -> Expr:
    """Polynomials of one variable that magnifying functions are applied to, in Horner's form.

    They take the fewest roundings so, which kernels make up for.
    """
    polynomials = {
        argument: _horner_form(argument)
        for node in trees.nodes(expr)
        if isinstance(node, exp | heads.sigmoid | heads.softplus | heads.sech2 | sympy.sin)
        for argument in node.args
        if len(argument.free_symbols) == 1 and trees.size(argument) <= LIMIT
    }
    return expr.xreplace({k: v for k, v in polynomials.items() if v is not None and v != k})


def _horner_form(expr: Expr) -> Expr | None:
    clamped = expr.atoms(heads.clamp)
    if clamped:
        if len(clamped) > 1:
            return None
        (x,) = clamped
        dummy = Dummy("x", real=True)
        formed = _horner_form(expr.xreplace({x: dummy}))
        return None if formed is None else formed.xreplace({dummy: x})
    if len(expr.free_symbols) != 1:
        return None
    (x,) = expr.free_symbols
    if not expr.is_polynomial(x):
        return None
    # One number each, to more digits than any arithmetic has.
    powers = [
        (monomial[0], c if c.is_Rational or not c.is_number else c.evalf(40))
        for monomial, c in Poly(expr, x).terms()
    ]
    if len(powers) < 2:
        return None
    # Steps between the powers, the highest first: a x + b x**3 is x (a + b x**2).
    value, left = powers[0][1], powers[0][0]
    for power, coefficient in powers[1:]:
        value = coefficient + value * x ** (left - power)
        left = power
    return Mul(x**left, value, evaluate=False) if left else value


def normal_form(entry: Expr, tensors: frozenset[Symbol] = frozenset()) -> Expr:
    """An equal expression, better for kernels where it is rational in an exponential.

    tensors: the symbols that may be infinite.
    """
    if trees.size(entry) > 2 * LIMIT:
        return entry
    for u in exponents(entry):
        entry = _rewritten(entry, u, tensors) or entry
    return entry


@dataclass(frozen=True)
class _Factored:
    """A rational function of t: factors with their powers. shown: what stands for what in them."""

    factors: tuple[tuple[Expr, int], ...]
    t: Dummy
    shown: Mapping[Expr, Expr]

    @property
    def left(self) -> int:
        """The powers of n that the factors leave behind at t = 1 / n."""
        degrees = (k * int(Poly(f, self.t).degree()) for f, k in self.factors if f.has(self.t))
        return -sum(degrees)

    @property
    def degree(self) -> int:
        """The greater one, of the numerator and the denominator."""
        powers = [(k, int(Poly(f, self.t).degree())) for f, k in self.factors if f.has(self.t)]
        return max(sum(k * d for k, d in powers if k > 0), -sum(k * d for k, d in powers if k < 0))

    @property
    def has_difference(self) -> bool:
        return any(f == self.t - 1 for f, _ in self.factors)


def _rewritten(entry: Expr, u: Expr, tensors: frozenset[Symbol]) -> Expr | None:
    factored = _factored(entry, u)
    if factored is None or factored.left < 0:
        return None
    n, t = decay(u), factored.t
    result: Expr = S.One
    for factor, power in factored.factors:
        if factor == t and power > 0:
            result *= choose(u, n**power, S.One)
        else:
            result *= (_in_n(factor, t, n, u, tensors) if factor.has(t) else factor) ** power
    if factored.left:
        result *= choose(-u, n**factored.left, S.One)
    return result.xreplace(factored.shown)


# Of an expression, several forms and the programs of several dtypes ask for the same.
@lru_cache(maxsize=1000)
def _factored(entry: Expr, u: Expr) -> _Factored | None:
    """An expression as one of t = exp(u); None if it is not rational, or its terms may cancel."""
    t = Dummy("t", positive=True)
    opaque: dict[Expr, Expr] = {}
    differences = _differences(entry)

    def hide(node: Expr) -> Expr:
        if node.is_Add and node in differences:
            return opaque.setdefault(node, Dummy(f"d{len(opaque)}", real=True))
        if node.is_Add and -node in differences:
            return -hide(-node)
        if isinstance(node, heads.times_exp):
            factor = rational(exp(node.args[1], evaluate=False), u, t)
            if factor is not None:
                return hide(node.args[0]) * factor
        elif isinstance(node, Function) and (known := rational(node, u, t)) is not None:
            return known
        if node.is_number and not node.is_Rational:
            return opaque.setdefault(node, Dummy(f"c{len(opaque)}", positive=node.is_positive))
        if isinstance(node, Function | Piecewise) or (node.is_Pow and not node.exp.is_Integer):
            sign = {"positive": True} if node.is_positive else {"real": True}
            return opaque.setdefault(node, Dummy(f"f{len(opaque)}", **sign))
        return node.func(*map(hide, node.args)) if node.args else node

    flat = hide(entry)
    if not flat.has(t) or not flat.is_rational_function():
        return None
    top, bottom = sympy.fraction(sympy.cancel(sympy.together(flat)))
    factors = [(f, k) for f, k in _factors(top)] + [(f, -k) for f, k in _factors(bottom)]
    if not all(_is_positive(f, t) for f, _ in factors if not f.has(*opaque.values())):
        return None
    shown = {dummy: node for node, dummy in opaque.items()}
    return _Factored(tuple(factors), t, shown)


def _differences(entry: Expr) -> frozenset[Expr]:
    """Sums that are squared, or the like: multiplied out, (x - y)**2 cancels."""
    return frozenset(
        node.base
        for node in entry.atoms(sympy.Pow)
        if node.base.is_Add
        and node.exp.is_Integer
        and node.exp > 1
        and len(node.base.free_symbols) > 1
        and not node.base.has(Function)
    )


MODERATE, POWERS = 44, 60
"""How large u is in a direct form, and its product with the degree of the powers of exp(u) there. A
denominator that overflows makes 0 of what is not small: it may have another factor of 3e12. And a
product with exp(-44) has all its digits from 1e-19 on."""

SHORT = 8
"""Too little."""


def direct_form(entry: Expr, _: frozenset[Symbol], sign: int, *, expm1_too: bool = False) -> Expr:
    """An equal expression in exp(u) as it is, or for sign = -1 in exp(-u), NaN where |u| is large.

    For first tries: nothing is selected, and no factor of what is small is put last.
    expm1_too: expm1(u) is exp(u) - 1, which has lost digits where it is small, in functions.
    """
    if trees.size(entry) > 2 * LIMIT:
        return entry
    formed, degree, limit = entry, 0, Dummy("limit", positive=True)
    for u in exponents(entry):
        n = exp_within(limit, sign * u)
        factored = _factored(formed, u)
        if factored is not None and not factored.has_difference:
            direct = _direct(factored, n, sign)
            if direct is not None:
                formed, degree = direct, degree + factored.degree
        once = {exp(sign * u): n, heads.softplus(sign * u): heads.log1p(n)}
        if expm1_too:
            once[heads.expm1(sign * u)] = n - 1
        if formed.has(*once):
            formed, degree = formed.xreplace(once), degree + 1
    reach = min(MODERATE, POWERS // max(degree, 1))
    return formed.xreplace({limit: Integer(reach)}) if degree and reach >= SHORT else entry


def _direct(factored: _Factored, n: Expr, sign: int) -> Expr | None:
    """Of n = t, or for sign = -1 of n = 1 / t."""
    if sign < 0 and factored.left < 0:
        return None
    t, result = factored.t, n**factored.left if sign < 0 else S.One
    for factor, power in factored.factors:
        if factor.has(t):
            factor = _horner(Poly(factor, t).all_coeffs()[::sign], n)
        result *= factor**power
    return result.xreplace(factored.shown)


def _factors(polynomial: Expr) -> Sequence[tuple[Expr, int]]:
    if polynomial.is_number:
        return [(polynomial, 1)]
    constant, factors = sympy.factor_list(polynomial)
    return [(constant, 1), *((factor, int(power)) for factor, power in factors)]


def _is_positive(factor: Expr, t: Dummy) -> bool:
    """Whether a polynomial in t alone has no terms that cancel but beside its root, or is expm1."""
    if factor.free_symbols != {t} or factor == t - 1:
        return True
    coefficients = Poly(factor, t).all_coeffs()
    return len(coefficients) == 2 or all(c >= 0 for c in coefficients)


def _in_n(factor: Expr, t: Dummy, n: Expr, u: Expr, tensors: frozenset[Symbol]) -> Expr:
    """The factor at t = n where u < 0; elsewhere at t = 1 / n, times n to its degree."""
    if factor == t - 1:
        rest = heads.expm1(-Abs(u))
        return choose(u, rest, -rest)
    coefficients = Poly(factor, t).all_coeffs()
    if not coefficients[0].free_symbols:
        # What grows with u is multiplied by n, which is 0 long before it overflows.
        tall = {s: heads.clamp(s, -HUGE, HUGE) for s in u.free_symbols & tensors}
        coefficients = [coefficient.xreplace(tall) for coefficient in coefficients]
    below, above = _horner(coefficients, n), _horner(coefficients[::-1], n)
    whole = below if below == above else choose(u, below, above)
    if len(coefficients) == 2 and _may_cancel(coefficients, u, tensors):
        first, last = coefficients
        small = heads.expm1(-Abs(u))
        near = choose(u, first + last + first * small, first + last + last * small)
        return Piecewise((near, Abs(u) < 1), (whole, True), evaluate=False)
    return whole


def _may_cancel(coefficients: Sequence[Expr], u: Expr, tensors: frozenset[Symbol]) -> bool:
    """Whether a difference is of numbers and parameters that may be the same at run time."""
    first, last = coefficients
    ratio = first / last
    # A shared part, `_p0` say, may have a tensor in it, as what stands for a function.
    others = tensors | u.free_symbols
    known = ratio.is_number or any(
        s in others or s.name[0] == "_" or isinstance(s, Dummy) for s in ratio.free_symbols
    )
    return not known and first.could_extract_minus_sign() != last.could_extract_minus_sign()


def _horner(coefficients: Sequence[Expr], n: Expr) -> Expr:
    value: Expr = Integer(0)
    for coefficient in coefficients:
        value = sympy.Add(Mul(value, n), coefficient)
    return value
