"""The rules: what users write, and what is computed in its place.

A table of identities. Each row has a name, a pattern and a replacement in the wildcards U, V (any
real expression) and C (a positive one of numbers and parameters), why, a source, and a hazard: a
point where the pattern, computed in float32 as it is written, overflows or has lost its digits, and
the replacement has not. `match` says how patterns are found. No rule knows a formula.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import sympy
from sympy import (
    Abs,
    Add,
    And,
    Eq,
    Expr,
    Float,
    Integer,
    Max,
    Min,
    Piecewise,
    Rational,
    S,
    Symbol,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cos,
    cosh,
    erf,
    erfc,
    exp,
    floor,
    gamma,
    log,
    pi,
    sign,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)
from sympy.core.relational import Relational

from autofn import trees
from autofn.compact import LIMIT
from autofn.functions import (
    cbrt,
    expm1,
    expm1mx,
    log1mexp,
    log1p,
    log1pmx,
    log_normal_mass,
    logaddexp,
    logcosh,
    loggamma,
    mean_any_root,
    mean_root,
    normal_mass_lower,
    normal_mass_mean,
    normal_mass_upper,
    normcdf,
    phi,
    pow1pm1,
    power,
    root_rest,
    root_rise,
    root_split,
    root_sum,
    sech2,
    share_split,
    sigmoid,
    sinc,
    softplus,
    softplus_divergence,
    softplus_rise,
    spherical_bessel,
    times_exp,
    xlog1py,
    xlogy,
)
from autofn.rewrite.heads import polynomial
from autofn.rewrite.within import LEAST, NO_PART_OF_1

U = Symbol("U", real=True)
V = Symbol("V", real=True)
C = Symbol("C", positive=True)


class minus(sympy.Function):  # type: ignore[misc]
    """U - V, multiplied out where that is no longer: of b*(x + 1) and b*x it is b.

    Of x/a and y/a it is (x - y)/a, which does not cancel.
    """

    nargs = (2,)
    is_real = True

    @classmethod
    def eval(cls, u: Expr, v: Expr) -> Expr | None:
        if {u, v} == {U, V}:
            return None
        if isinstance(u, Add) and v in u.args:
            return u - v
        whole = {each: each.args[0] * exp(each.args[1]) for each in (u - v).atoms(times_exp)}
        out = sympy.expand_mul((u - v).xreplace(whole))
        common = sympy.factor_terms(out) if isinstance(out, Add) else out
        if sympy.fraction(common)[1].free_symbols:
            return common
        return min(out, u - v, key=lambda each: len(Add.make_args(each)))


class plus(sympy.Function):  # type: ignore[misc]
    """U + V with their common factor taken out: of a*x and b*x it is x*(a + b)."""

    nargs = (2,)
    is_real = True

    @classmethod
    def eval(cls, u: Expr, v: Expr) -> Expr | None:
        return None if U in (u, v) else sympy.factor_terms(u + v)


class ratio(sympy.Function):  # type: ignore[misc]
    """U / V in lowest terms: of k*x and x that is k."""

    nargs = (2,)
    is_real = True

    @classmethod
    def eval(cls, u: Expr, v: Expr) -> Expr | None:
        return None if {u, v} == {U, V} else sympy.cancel(u / v)


Bindings = Mapping[Symbol, Expr]
Condition = Callable[[Bindings, frozenset[Symbol]], bool]
"""Whether a match counts, from what the wildcards stand for and the symbols of parameters."""


@dataclass(frozen=True)
class Rule:
    """An identity. `hazard`: where the pattern fails in float32; empty for a change of name.

    alone: found in sums of which no other term depends on this; with those it might cancel.
    """

    name: str
    pattern: Expr
    replacement: Expr
    why: str
    source: str
    hazard: Mapping[Symbol, float]
    where: Condition | None = None
    alone: Symbol | None = None


_HERBIE = "Herbie's rule database"
_BREGMAN = "Bregman, The relaxation method of finding the common point of convex sets"
_PYTENSOR = "PyTensor, local_log1p_plusminus_exp and relatives"
_MAECHLER = "Maechler, Accurately computing log(1 - exp(-|a|))"
_ABRAMOWITZ = "Abramowitz and Stegun"
_GOLDBERG = "Goldberg, What every computer scientist should know about floating-point arithmetic"
_PYTORCH = "the definition of PyTorch's function"

_OVERFLOWS = "exp overflows where the result does not"
_CANCELS = "the difference cancels"
_MAGNIFIED = "the rounding of the angle is magnified where the result is small"
_UNDERFLOWS_BESIDE = "exp overflows where the tail underflows"
_POWERS = "the power overflows where the result, or its derivative, does not"
_HILL = "Hill, The possible effects of the aggregation of the molecules of haemoglobin"


def _signed_alike(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether V is c*expm1(U/c), which has the sign of U for any c."""
    u, v = found[U], found[V]
    heads = v.atoms(expm1)
    if len(heads) != 1:
        return False
    (head,) = heads
    c = v / head
    return not c.has(head) and sympy.expand_mul(c * head.args[0] - u) == 0


def _is_of_both_signs(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether U is not a negative multiple of what is absolute."""
    factor, size = found[U].as_coeff_Mul()
    return not (factor.is_negative and isinstance(size, Abs))


def _are_no_numbers(found: Bindings, _: frozenset[Symbol]) -> bool:
    return not (found[U].is_number or found[V].is_number)


def _grows(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether V times what grows with U is positive where that is large, and not done yet."""
    return not (found[V].could_extract_minus_sign() or found[U].has(Min))


def _is_no_tensor(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    return not varies(found[V], parameters)


def _is_run_time(found: Bindings, _: frozenset[Symbol]) -> bool:
    return not found[V].is_number


def _are_of_run_time(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether C and V are of numbers and parameters, not both of numbers, beside a tensor's U."""
    numbers = found[C] - found[V]
    return varies(found[U], parameters) and not (numbers.is_number or varies(numbers, parameters))


def _is_greater(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether U is greater than V everywhere, taking parameters to be positive."""
    return bool(with_positive(minus(found[U], found[V]), parameters).is_positive)


def _is_near(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether U is V and a number or parameter, or V is one, or they share a term of a tensor.

    Else U is not to be had from V.
    """
    u, v = found[U], found[V]
    if any(varies(each, parameters) for each in {*Add.make_args(u)} & {*Add.make_args(v)}):
        return True
    return not (varies(minus(u, v), parameters) and varies(v, parameters))


def _are_of_one_tensor(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether U and V are polynomials of the same tensors, that meet somewhere."""
    u, v = found[U], found[V]
    tensors = [trees.symbols(each) - parameters for each in (u, v)]
    return tensors[0] == tensors[1] != set() and minus(u, v).is_polynomial(*tensors[0])


def _share_a_term(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether U and V are sums with a term in common, that of a tensor: x + y and x."""
    u, v = ({*Add.make_args(sympy.expand_mul(found[each]))} for each in (U, V))
    return any(varies(each, parameters) for each in u & v)


def _share_a_term_of_their_own(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """The same, where neither is bounded yet."""
    return _share_a_term(found, parameters) and not (found[U].has(Max) or found[V].has(Max))


def _is_summand(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether V is a sum that all terms of U are in, of tensors."""
    u, v = ({*Add.make_args(found[each])} for each in (U, V))
    return u < v and varies(found[V], parameters)


def _is_part(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """The same, and some of those terms are of a tensor."""
    return _is_summand(found, parameters) and varies(found[U], parameters)


def _are_nearly_alike(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether U - V has fewer terms than either: 2*x of 1 + x and 1 - x."""
    u, v, rest = (Add.make_args(e) for e in (found[U], found[V], minus(found[U], found[V])))
    return len(rest) < min(len(u), len(v))


def _are_close(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether U and V are alike where a tensor is large, or where it is small."""
    return _share_a_term(found, parameters) or (
        varies(minus(found[U], found[V]), parameters) and _are_nearly_alike(found, parameters)
    )


def _are_a_step_apart(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether U is V and a number or parameter."""
    u, v = found[U], found[V]
    return varies(v, parameters) and not varies(minus(u, v), parameters)


def _add_up(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether U + V has fewer terms than U and V have."""
    u, v = (sympy.expand_mul(found[each]) for each in (U, V))
    return len(Add.make_args(u + v)) < len(Add.make_args(u)) + len(Add.make_args(v))


def _is_multiple(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether U is V times a number, or times one of run time, and 0 where V is."""
    u, v = found[U], found[V]
    return varies(v, parameters) and not varies(sympy.cancel(u / v), parameters)


def _is_new_quadratic(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether the factor C may vanish by itself, and U is not bounded yet."""
    symbols = trees.symbols(found[C])
    return bool(symbols) and symbols.isdisjoint(trees.symbols(found[V])) and not found[U].has(Max)


def _is_new_multiple(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    return _is_multiple(found, parameters) and not isinstance(found[U], Max)


def _is_run_time_beside(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether V is known at run time, and U is a tensor's."""
    u, v = found[U], found[V]
    fixed = not v.is_number and not varies(v, parameters)
    return fixed and varies(u, parameters) and not isinstance(u, Min)


def _vanish_together(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    return vanishes_with(found[V], found[U], parameters)


def vanishes_with(product: Expr, u: Expr, parameters: frozenset[Symbol]) -> bool:
    """Whether u is 0 where a factor of the product is, or is a tensor's probability."""
    if _vanishes_slowly(product, u):
        return False
    if any(each in (u, 1 - u) for each in u.free_symbols - parameters):
        return varies(product, parameters)
    return has_zero_of([each.as_base_exp() for each in sympy.Mul.make_args(product)], u, parameters)


def has_zero_of(
    powers: Iterable[tuple[Expr, Expr]], u: Expr, parameters: frozenset[Symbol]
) -> bool:
    """Whether one of these powers, each a base and an exponent, is 0 where u is."""
    return any(
        exponent.is_positive and base.free_symbols and _is_zero_where(base, u, parameters)
        for base, exponent in powers
    )


def _vanishes_slowly(v: Expr, u: Expr) -> bool:
    """Whether v is 0 where u is but infinite when multiplied by log(u), or finite, as 1/log(u)."""
    if isinstance(v, phi) or (isinstance(v, sympy.Pow) and v.exp.is_negative):
        return bool(v.has(log(u)))
    if isinstance(v, sympy.Function):
        return False
    return any(_vanishes_slowly(each, u) for each in v.args)


def _is_zero_where(base: Expr, u: Expr, parameters: frozenset[Symbol]) -> bool:
    if u.xreplace({base: S.Zero}) == 0:
        return True
    for x in sorted(base.free_symbols - parameters, key=str):
        line = sympy.Poly(base, x) if base.is_polynomial(x) else None
        if line is None or line.degree() != 1 or trees.size(u) > LIMIT:
            continue
        slope, start = line.all_coeffs()
        if not slope.is_number or not u.is_rational_function(x):
            continue
        if sympy.cancel(u.xreplace({x: -start / slope})) == 0:
            return True
    return False


def _is_large(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether exp(U) may overflow beside a factor that depends on a tensor."""
    return not is_bounded(found[U], parameters) and varies(found[V], parameters)


def is_bounded(exponent: Expr, parameters: frozenset[Symbol]) -> bool:
    """Whether the exponent is never positive, taking parameters to be positive."""
    return bool(with_positive(exponent, parameters).is_nonpositive)


def with_positive(expr: Expr, parameters: frozenset[Symbol]) -> Expr:
    """The expression of parameters that are positive."""
    return expr.xreplace({p: Symbol(p.name, positive=True) for p in parameters})


def varies(factor: Expr, parameters: frozenset[Symbol]) -> bool:
    """Whether a factor depends on a tensor other than a cotangent or tangent (`_grad`, `_d_x`)."""
    return any(not s.name.startswith("_") for s in trees.symbols(factor) - parameters)


def _is_of_no_branch(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether U is not yet kept within a branch, whose Max it would have."""
    return not found[U].has(Max)


def _raw(head: type, *args: Expr) -> Expr:
    """A pattern that SymPy would rewrite."""
    return head(*args, evaluate=False)


_TAIL = tuple(Float(c, 20) for c in (
    "-2489571632.9918900921", "347869882.22486405246", "-27408590.109301008230",
    "1806034.2324706345172", "-121611.28600893691922", "9198.6960294199357024",
    "-816.19306566374779923", "88.249986740554344517", "-12.333333320230925421",
    "2.4999999999949185798", "-0.99999999999999967238",
))  # fmt: skip
"""log(normcdf(-u)) + u**2/2 + log(u) + log(2*pi)/2, over 1/u**2, as a polynomial in that, the
highest power first: fitted at Chebyshev's points for u over 8, to 3e-16."""

_TAIL_CUT = 4
"""Its terms that are below the last digit of single precision."""


def _log_normcdf(u: Expr) -> Expr:
    z = u**-2
    tail = polynomial(_TAIL_CUT, z, *_TAIL)
    far = -(u**2) / 2 - log(-u) - log(2 * pi) / 2 + z * tail
    below = log(erfc(Min(-u / sqrt(2), _TAIL_FROM))) - log(2)
    return Piecewise((far, u < -8), (below, u < 0), (log1p(-normcdf(-u)), True), evaluate=False)


_STIRLING = tuple(map(sympy.Rational, (
    "-174611/125400", "43867/244188", "-3617/122400", "1/156", "-691/360360", "1/1188",
    "-1/1680", "1/1260", "-1/360", "1/12",
)))  # fmt: skip
"""What Stirling's formula lacks, times u: a polynomial in 1/u**2, the highest power first."""

_STIRLING_FROM, _STIRLING_CUT = 16, 8
"""Where these terms do for all digits, and how many are below the last of single precision."""


def _rising(factors: int) -> list[int]:
    """u*(u + 1)*... by powers of u, the highest first."""
    found = [1]
    for k in range(factors):
        found = [a + k * b for a, b in zip([*found, 0], [0, *found], strict=True)]
    return found


def _loggamma_less_loggamma(u: Expr, v: Expr) -> Expr:
    """By Stirling's formula, of which little cancels; below where it holds, by that 16 higher."""
    step = minus(u, v)

    def difference(low: Expr) -> Expr:
        high = low + step
        rests = [polynomial(_STIRLING_CUT, t**-2, *_STIRLING) / t for t in (high, low)]
        powers = low * log1pmx(step / low) - log1p(step / low) / 2 + step * log(high)
        return powers + rests[0] - rests[1]

    factors = [*map(Integer, _rising(_STIRLING_FROM))]
    rising = [polynomial(0, t, *factors) for t in (u, v)]
    near = difference(v + _STIRLING_FROM) - log(rising[0] / rising[1])
    # Marked as done by its bound.
    below = loggamma(u) - loggamma(Min(v, 0))
    return Piecewise(
        (difference(v), v > _STIRLING_FROM), (near, v > 0), (below, True), evaluate=False
    )


def _is_a_small_step(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether U is V and a number of at most four, and not done yet."""
    step = minus(found[U], found[V])
    small = step.is_number and bool(step > 0) and bool(step <= 4)
    return small and varies(found[V], parameters) and not found[V].has(Min)


def _erf_less_erf(u: Expr, v: Expr) -> Expr:
    some = erf(_marked(u)) - erf(_marked(v))
    above = 2 * _apart(-sqrt(2) * v, -sqrt(2) * u)
    below = 2 * _apart(sqrt(2) * u, sqrt(2) * v)
    half = sympy.Rational(1, 2)
    return Piecewise(
        (above, (u > half) & (v > half)),
        (below, (u < -half) & (v < -half)),
        (some, True),
        evaluate=False,
    )


def _normcdf_less_normcdf(u: Expr, v: Expr) -> Expr:
    return Piecewise((_apart(-v, -u), (u > 0) & (v > 0)), (_apart(u, v), True), evaluate=False)


def _apart(u: Expr, v: Expr) -> Expr:
    return normcdf(_marked(u)) - normcdf(_marked(v))


def _marked(u: Expr) -> Expr:
    """An argument of erf or normcdf that is done, by a bound at which they are constant."""
    marked: Expr = Max(u, -40)
    return marked


_INTEGRAL = tuple(Float(c, 20) for c in (
    "2661691152.821792401", "-373233306.8865315799", "29593161.450881590547",
    "-1970341.5985767838622", "134692.90253860628184", "-10392.732649579837265",
    "944.99264235364952789", "-104.9999859293524168", "14.999999986094884447",
    "-2.999999999994607041", "0.99999999999999965229",
))  # fmt: skip
"""(1 - u*normcdf(-u)/density(u))*u**2 as a polynomial in 1/u**2, fitted like `_TAIL`."""


def integral_of_normcdf(u: Expr) -> Expr:
    """u*normcdf(u) + the normal density of u, whose terms cancel far below 0."""
    far = exp(-(u**2) / 2) / sqrt(2 * pi) * u**-2 * polynomial(_TAIL_CUT, u**-2, *_INTEGRAL)
    return Piecewise((far, u < -8), (_plain_integral(u), True), evaluate=False)


def _log_integral_of_normcdf(u: Expr) -> Expr:
    tail = polynomial(_TAIL_CUT, u**-2, *_INTEGRAL)
    far = -(u**2) / 2 - 2 * log(-u) - log(2 * pi) / 2 + log(tail)
    # Marked as done by a bound, here and below not where it turns: Max has no gradient there.
    return Piecewise((far, u < -8), (log(_plain_integral(Max(u, -9))), True), evaluate=False)


def _plain_integral(u: Expr) -> Expr:
    return u * normcdf(u) + exp(-(u**2) / 2) / sqrt(2 * pi)


_TAIL_FROM = Integer(6)
"""An argument of erfc that does not get beyond is that of no tail."""


def scaled_erfc(u: Expr) -> Expr:
    """exp(u**2)*erfc(u)."""
    z = u**-2 / 2
    far = (1 - z * polynomial(_TAIL_CUT, z, *_INTEGRAL)) / (sqrt(pi) * u)
    near = exp(u**2) * erfc(_marked(u))
    return Piecewise((far, u > _TAIL_FROM), (near, True), evaluate=False)


def scaled_normcdf(u: Expr) -> Expr:
    """exp(u**2/2)*normcdf(u)."""
    z = u**-2
    far = (z * polynomial(_TAIL_CUT, z, *_INTEGRAL) - 1) / (sqrt(2 * pi) * u)
    near = exp(u**2 / 2) * normcdf(-_marked(-u))
    return Piecewise((far, u < -8), (near, True), evaluate=False)


def _log_erfc(u: Expr) -> Expr:
    far, _ = _log_normcdf(-sqrt(2) * u).args[0]
    some = log(erfc(Min(u, _TAIL_FROM + 1)))
    return Piecewise(
        (far + log(2), u > _TAIL_FROM), (some, 4 * u > 1), (log1p(-erf(u)), True), evaluate=False
    )


def _log_of_number_and_exp(u: Expr, v: Expr) -> Expr:
    # No branch has its kink, or its pole, where it is taken.
    far, low = u + log1p(v * exp(-Max(u, 0))), exp(Min(u, 2))
    some = Piecewise((v, v > 0), (1, True), evaluate=False)
    near = log(some) + log1p(low / some)
    return Piecewise((far, u > 1), (near, v > 0), (log(v + low), True), evaluate=False)


def log_of_times_sinh(v: Expr, u: Expr, n: Expr = S.One) -> Expr:
    """log(v * sinh(u)**n)"""
    far = n * Abs(u) + log(v * sign(u) ** Abs(n) / 2**n)
    most = _EXP_FROM + 1
    near = log(v * sinh(Max(Min(u, most), -most)) ** n)
    return Piecewise((far, Abs(u) > _EXP_FROM), (near, True), evaluate=False)


def log_of_times_expm1(v: Expr, u: Expr, n: Expr = S.One) -> Expr:
    """log(v * expm1(u)**n)"""
    near = log(v * expm1(Min(u, _EXP_FROM + 1)) ** n)
    return Piecewise((n * u + log(v), u > _EXP_FROM), (near, True), evaluate=False)


def log1mexp_of_exp(u: Expr) -> Expr:
    """log(1 - exp(-exp(u)))"""
    # Marked as done by its bounds.
    near = u + log(phi(Integer(1), -exp(Min(u, 1))))
    return Piecewise((near, u < 0), (log1mexp(-exp(Max(u, -1))), True), evaluate=False)


def log_of_times_phi(v: Expr, u: Expr, n: Expr = S.One) -> Expr:
    """log(v * phi(1, u)**n)"""
    near = log(v * phi(Integer(1), Min(u, _EXP_FROM + 1)) ** n)
    return Piecewise((n * (u - log(u)) + log(v), u > _EXP_FROM), (near, True), evaluate=False)


def _log_of_phi(u: Expr) -> Expr:
    """log(phi(1, u)), of which phi(1, u) - 1 is u*phi(2, u)."""
    near, some = log1p(u * phi(Integer(2), u)), log(phi(Integer(1), Min(u, _EXP_FROM + 1)))
    return Piecewise(
        (near, Abs(u) < 1), (u - log(u), u > _EXP_FROM), (-log(-u), u < -_EXP_FROM), (some, True),
        evaluate=False,
    )  # fmt: skip


def log_with_exp(u: Expr, v: Expr, c: Expr) -> Expr:
    """log(c + v*exp(u)) of a v of either sign, which may be small where exp(u) is large."""
    near, is_near = log(c + Min(v * exp(u), 2 * _HUGE)), v * exp(u) < _HUGE
    far = u + log(v) + log1p(c * exp(-u) / v)
    if sympy.expand_mul(c + v) != 1:
        return Piecewise((near, is_near), (far, True), evaluate=False)
    beside = log1p(v * expm1(u))
    return Piecewise((beside, Abs(u) < 1), (near, is_near), (far, True), evaluate=False)


def power_with_exp(u: Expr, v: Expr, c: Expr, n: Expr) -> Expr:
    """(c + v*exp(u))**n of a number c"""
    near = (c + Min(v * exp(u), 2 * _HUGE * Abs(c))) ** n
    far = v**n * exp(n * u) * (1 + n * c * exp(-u) / v)
    return Piecewise((near, v * exp(u) < _HUGE * Abs(c)), (far, True), evaluate=False)


_HUGE = Integer(2) ** 30
"""The square of its inverse is nothing in double, its square and cube finite in single precision.
"""


def _log_of_odds(u: Expr, v: Expr) -> Expr:
    """log(1 + expm1(u)/expm1(v)) of positive u and v."""
    return softplus(u - v + log1mexp(-u) - log1mexp(-v))


def _is_not_bounded(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether U has no bound yet, and takes one: SymPy leaves it out of what is negative."""
    return not isinstance(found[U], Min) and isinstance(Min(found[U], 1), Min)


def _are_positive(found: Bindings, _: frozenset[Symbol]) -> bool:
    return bool(found[U].is_positive and found[V].is_positive)


def _log_of_power(u: Expr, v: Expr) -> Expr:
    # 0**0 is 1, and has no gradient in torch.pow.
    given = sympy.Or(sympy.Ne(u, 0), sympy.Ne(v, 0))
    return Piecewise((xlogy(v, Abs(u)), given), (0, True), evaluate=False)


def lesser_power(u: Expr, n: Expr, v: Expr = S.One) -> tuple[Expr, Relational]:
    """power(u/v, n), or its inverse, whichever is at most 1; and whether it is the former.

    One power, not that of either branch: its argument is chosen. It marks what is done, too.
    """
    small = sympy.Le(n * (Abs(u) - Abs(v)), 0)
    over = u if v == 1 else ratio(u, v)
    return power(Piecewise((over, small), (1 / over, True), evaluate=False), n), small


def _power_over_powers(u: Expr, v: Expr, n: Expr) -> Expr:
    """power(u, n)/(power(u, n) + power(v, n))"""
    t, small = lesser_power(u, n, v)
    return Piecewise((t / (1 + t), small), (1 / (1 + t), True), evaluate=False)


def _power_over_sum(u: Expr, n: Expr, c: Expr) -> Expr:
    """power(u, n)/(c + power(u, n))"""
    t, small = lesser_power(u, n)
    return Piecewise((t / (c + t), small), (1 / (1 + c * t), True), evaluate=False)


def _over_power(u: Expr, n: Expr, c: Expr) -> Expr:
    """1/(c + power(u, n))"""
    t, small = lesser_power(u, n)
    return Piecewise((1 / (c + t), small), (t / (1 + c * t), True), evaluate=False)


def _log_with_power(u: Expr, n: Expr, c: Expr) -> Expr:
    """log(c + power(u, n))"""
    t, small = lesser_power(u, n)
    far = log(1 + c * t) + n * log(Abs(u))
    return Piecewise((log(c + t), small), (far, True), evaluate=False)


def _is_of_no_lesser_power(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether it is not done yet, and there is no other power to compare it with."""
    others = found[C].atoms(power) if not found[C].is_Symbol else ()
    return not found[U].has(Piecewise) and all(each.args[1] != found[V] for each in others)


def _log_of_sides(u: Expr, v: Expr) -> Expr:
    # One side alone has vanished where it is all there is: its factor is 1, the other's 0.
    this = log1p((1 - v) * expm1(Min(-u, _FAR))) - softplus(-u)
    that = log1p(v * expm1(Min(u, _FAR))) - softplus(u)
    above = log(v + (1 - v) * exp(Min(-u, 1))) - softplus(-u)
    below = log(1 - v + v * exp(Min(u, 1))) - softplus(u)
    return Piecewise(
        (this, sympy.Eq(v, 1) & (u < 0)), (that, sympy.Eq(v, 0) & (u > 0)), (above, u > 0),
        (below, True), evaluate=False,
    )  # fmt: skip


_FAR = Integer(80)
"""Whose exponential is finite in single precision: the other side's weight, as good as infinite."""

_EXP_FROM = Integer(40)
"""Beyond it exp(-u) is nothing beside 1: expm1 is exp, sinh half of it, phi_1 exp(u)/u."""

LOGARITHMS = (
    Rule("log of 2 - exp", log(2 - exp(U)), log1p(-expm1(U)),
         _CANCELS, _GOLDBERG, {U: 1.3e-6}),
    Rule("log of normcdf", log(normcdf(U)), _log_normcdf(U),
         "normcdf underflows", _ABRAMOWITZ, {U: -40.0}),
    Rule("log of twice normcdf", log(2 * normcdf(U)), _log_erfc(-U / sqrt(2)),
         "normcdf underflows, and is 1/2 near 0", _ABRAMOWITZ, {U: 1e-9}),
    Rule("log of erfc", log(erfc(U)), _log_erfc(U), "erfc underflows", _ABRAMOWITZ, {U: 30.0},
         where=lambda found, _: not isinstance(found[U], Min)),
    Rule("log of a product with erfc", log(V * erfc(U)), log(2 * V) + _log_normcdf(-sqrt(2) * U),
         "erfc underflows", _ABRAMOWITZ, {U: 30.0, V: 0.3}),
    Rule("log of a product with normcdf", log(V * normcdf(U)), log(V) + _log_normcdf(U),
         "normcdf underflows", _ABRAMOWITZ, {U: -40.0, V: 0.3}),
    Rule("log of an integral of normcdf", log(_plain_integral(U)), _log_integral_of_normcdf(U),
         "the difference cancels, and vanishes", _ABRAMOWITZ, {U: -30.0},
         where=_is_of_no_branch),
    Rule("log of a normal mass", log(normcdf(U) - normcdf(V)),
         log_normal_mass(U, V, minus(U, V)),
         "the difference cancels, and vanishes", _ABRAMOWITZ, {U: -30.0, V: -31.0}),
    Rule("log of 1 + a quotient of positive exp - 1", log1p(expm1(U) / expm1(V)),
         _log_of_odds(U, V), _OVERFLOWS, _MAECHLER, {U: 2000.0, V: 2000.0}, where=_are_positive),
    Rule("log of 1 + a quotient of exp - 1", log1p(expm1(U) / expm1(V)),
         Piecewise((_log_of_odds(U, V), (U > 0) & (V > 0)),
                   (log1p(expm1(Min(U, 1)) / expm1(V)), True), evaluate=False),
         _OVERFLOWS, _MAECHLER, {U: 2000.0, V: 2000.0}, where=_is_not_bounded),
    Rule("log of phi_1", log(phi(Integer(1), U)), _log_of_phi(U),
         "it overflows, and near 0 the logarithm is of what is rounded to 1", _MAECHLER,
         {U: 1.3e-6}, where=_is_not_bounded),
    Rule("log of v times exp", log(times_exp(V, U)), U + log(V),
         _OVERFLOWS, _HERBIE, {U: 100.0, V: 0.3}),
    Rule("log of gamma", log(gamma(U)), loggamma(U), "gamma overflows", _ABRAMOWITZ, {U: 40.0}),
    Rule("log of a product with gamma", log(C * gamma(U)), log(C) + loggamma(U),
         "gamma overflows", _ABRAMOWITZ, {U: 40.0, C: 0.3}),
    Rule("log of a power", log(power(U, V)), _log_of_power(U, V),
         "the power overflows, or underflows", _PYTENSOR, {U: 1e10, V: 9.0}),
    Rule("log of a product with a power", log(C * power(U, V)), log(C) + _log_of_power(U, V),
         "the power overflows, or underflows", _PYTENSOR, {U: 1e10, V: 9.0, C: 0.3}),
    Rule("log of both of two sides", log(sigmoid(-U) * sigmoid(V) + sigmoid(U) * sigmoid(-V)),
         logaddexp(U, V) - softplus(U) - softplus(V),
         "sigmoid underflows", _PYTENSOR, {U: -200.0, V: -201.0}),
    Rule("log of a product with tanh", log(V * tanh(U)), log(V) + log(tanh(U)),
         "what is beside it may underflow", _PYTENSOR, {U: 1e-25, V: 1e-25},
         where=lambda found, _: bool(found[V].is_positive)),
    Rule("log of a product with sinh", log(V * sinh(U)), log_of_times_sinh(V, U),
         "sinh overflows", _MAECHLER, {U: 100.0, V: 0.3},
         where=lambda found, _: not found[U].has(Min)),
    Rule("log of a product with exp - 1", log(V * expm1(U)), log_of_times_expm1(V, U),
         _OVERFLOWS, _MAECHLER, {U: 100.0, V: 0.3}, where=_grows),
    Rule("log of a product with 1 - exp", log(-V * expm1(U)), log(V) + log1mexp(U),
         _CANCELS, _MAECHLER, {U: -30.0, V: 1.0}, where=lambda found, _: found[V].is_positive),
    Rule("log(1 - exp) of -exp", log1mexp(-exp(U)), log1mexp_of_exp(U),
         "exp underflows", _MAECHLER, {U: -200.0}, where=lambda found, _: not found[U].has(Max)),
    Rule("log of a product with phi_1", log(V * phi(Integer(1), U)), log_of_times_phi(V, U),
         _OVERFLOWS, _MAECHLER, {U: 100.0, V: 0.3}, where=_grows),
    Rule("log of one side or the other", log(V * sigmoid(U) + (1 - V) * sigmoid(-U)),
         _log_of_sides(U, V), "sigmoid underflows", _PYTENSOR, {U: -200.0, V: 1.0}),
    Rule("log of sigmoid", log(sigmoid(U)), -softplus(-U),
         "sigmoid underflows", _PYTENSOR, {U: -200.0}),
    Rule("log of a product with cosh", log(V * cosh(U)), log(V) + logcosh(U),
         _OVERFLOWS, _HERBIE, {U: 100.0, V: 2.0}),
    Rule("log of a product with sech**2", log(V * sech2(U)), log(V) - 2 * logcosh(U),
         "sech**2 underflows, and is 1 near 0", _ABRAMOWITZ, {U: 100.0, V: 2.0}),
    Rule("log of sech**2", log(sech2(U)), -2 * logcosh(U),
         "sech**2 underflows, and is 1 near 0", _ABRAMOWITZ, {U: 1e-3}),
    Rule("log of cosh", log(cosh(U)), logcosh(U),
         "cosh overflows, and is 1 near 0", _HERBIE, {U: 1e-3}),
    Rule("log of 1 + exp", log(1 + exp(U)), softplus(U), _OVERFLOWS, _MAECHLER, {U: 100.0}),
    Rule("log of a sum with a power", log(C + power(U, V)), _log_with_power(U, V, C),
         _POWERS, _HILL, {U: 1e20, V: 4.0, C: 1.0}, where=_is_of_no_lesser_power),
    Rule("log of an inverse", log(1 / U), -log(U), "the inverse overflows", _PYTENSOR, {U: 1e-40}),
    Rule("log of exp - 1", log(expm1(U)), U + log1mexp(-U), _OVERFLOWS, _MAECHLER, {U: 100.0}),
    Rule("log of a sum of exps", log(exp(U) + exp(V)), logaddexp(U, V),
         _OVERFLOWS, _HERBIE, {U: 100.0, V: 99.0}),
    Rule("log of a number + exp", log(V + exp(U)), _log_of_number_and_exp(U, V),
         _OVERFLOWS, _MAECHLER, {U: 100.0, V: 2.0}, where=_is_run_time_beside),
    Rule("log of cosh**2", log(cosh(U) ** 2), 2 * logcosh(U),
         "the square overflows", _HERBIE, {U: 60.0}),
    Rule("log of u + its root", log(2 * mean_root(U, C)), asinh(U / sqrt(C)) + log(C) / 2,
         "1 + u drops the digits of a small u", _ABRAMOWITZ, {U: 1.3e-6, C: 1.0}),
    Rule("log of a multiple of u + its root", log(V * mean_root(U, C)),
         asinh(U / sqrt(C)) + log(sqrt(C) * V / 2),
         "1 + u drops the digits of a small u", _ABRAMOWITZ, {U: 1.3e-6, C: 1.0, V: 2.0},
         where=_is_no_tensor),
    Rule("log of u + its root, over v", log(2 * mean_root(U, V**2) / V),
         asinh(U / V) + log(Abs(V) / V),
         "1 + u drops the digits of a small u", _ABRAMOWITZ, {U: 1.3e-6, V: 1.0},
         where=_is_no_tensor),
    Rule("log of a mean of u and its root", log(mean_root(U, C)),
         asinh(U / sqrt(C)) + log(sqrt(C) / 2),
         "1 + u drops the digits of a small u", _ABRAMOWITZ, {U: 1.3e-6, C: 4.0}),
    Rule("log of (1 + u)/(1 - u)", log((1 + U) / (1 - U)), 2 * atanh(U),
         "a quotient near 1 has few digits of what it differs by", _ABRAMOWITZ, {U: 1.3e-6}),
    Rule("log of a sum over the difference", log((U + V) / (U - V)),
         Piecewise((log1p(2 * V / (U - V)), U * V > 0), (-log1p(-2 * V / (U + V)), True),
                   evaluate=False),
         "a quotient near 1 has few digits of what it differs by", _ABRAMOWITZ,
         {U: 1.0, V: 1.3e-6}, where=_are_no_numbers),
    Rule("log of a quotient of sigmoids", log(sigmoid(U) / sigmoid(V)),
         softplus(-V) - softplus(-U), "both underflow", _PYTENSOR, {U: -110.0, V: -111.0}),
    Rule("log of sigmoid times 1 + exp", log(sigmoid(U) * (1 + exp(V))),
         softplus(V) - softplus(-U), _OVERFLOWS, _PYTENSOR, {U: -110.0, V: 109.0}),
    Rule("log of a product with sigmoid", log(V * sigmoid(U)), log(V) - softplus(-U),
         "sigmoid underflows", _PYTENSOR, {U: -110.0, V: 0.3}),
    Rule("log of 1 + u", log(1 + U), log1p(U), "1 + u drops the digits of a small u",
         _GOLDBERG, {U: 1.3e-6}),
)  # fmt: skip


def exp_less_exp(u: Expr, v: Expr) -> Expr:
    """exp(u) - exp(v) in two regimes."""
    # The first of the two exponents is marked as done, by what no exponential sees.
    far = exp(Max(u, -_NOTHING)) - exp(v)
    near = exp(v) * expm1(minus(u, v))
    return Piecewise((near, Abs(minus(u, v)) < 1), (far, True), evaluate=False)


def _expm1_over_expm1(u: Expr, v: Expr) -> Expr:
    # Marked as done by their signs, which make no multiple of u and v, nor exp(u) - 1 again.
    below = expm1(-Abs(v))
    far = Piecewise(
        (expm1(u) / below, v < 0),
        (exp(u - v) * expm1(-Abs(u)) / below, u > 0),
        (-exp(-v) * expm1(u) / below, True),
        evaluate=False,
    )
    near = ratio(u, v) * phi(Integer(1), u) / phi(Integer(1), v)
    return Piecewise((near, (Abs(u) < 1) & (Abs(v) < 1)), (far, True), evaluate=False)


def over_expm1(u: Expr, v: Expr, c: Expr, *, times: bool) -> Expr:
    """(c + v*exp(u))/(exp(u) - 1), times u if so: from whichever of v and -c it goes to."""
    if times:
        # Not 1/phi_1(u), in whose derivative the square overflows.
        above = v * u + (c + v) * exp(-u) / phi(S.One, -u)
        below = (c + v) * exp(u) / phi(S.One, u) - c * u
    else:
        above, below = v + (c + v) / expm1(u), -c - (c + v) / expm1(-u)
    return Piecewise((above, u > 0), (below, True), evaluate=False)


def power_mean(parts: Sequence[tuple[Expr, Expr, Expr]], n: Expr, times: Expr, far: Expr) -> Expr:
    """exp(times*log(sum of w*x**(k*n))/n), of weights w that add up to 1; far: where n is large.

    parts: w, x and k each. As n goes to 0 it goes to the product of all x**(times*k*w).
    """
    logs = [(w, k * log(x)) for w, x, k in parts]
    mean = Add(*(w * u * phi(S.One, n * u) for w, u in logs))
    near = exp(times * mean / phi(S.One, log1p(n * mean)))
    is_near = And(Abs(n) < Rational(1, 8), *(x > 0 for _, x, _ in parts), evaluate=False)
    return Piecewise((near, is_near), (far, True), evaluate=False)


def less_root_of_squares(u: Expr, v: Expr, rest: Expr) -> Expr:
    """u + v - sqrt(u**2 + v**2 + rest), by what the larger loses: u - sqrt(u**2 + w) <= 0."""
    by_u = v - 2 * mean_any_root(-u, v**2 + rest)
    by_v = u - 2 * mean_any_root(-v, u**2 + rest)
    return Piecewise((by_u, u > v), (by_v, True), evaluate=False)


def less_root_of_difference(u: Expr, v: Expr, mean: type[Expr], rest: Expr) -> Expr:
    """u + v - root of u - v, as twice the lesser and what the root is more than |u - v|.

    mean: of w and rest, half of w and the root.
    """
    above, below = 2 * v - 2 * mean(v - u, rest), 2 * u - 2 * mean(u - v, rest)
    return Piecewise((above, u > v), (below, True), evaluate=False)


def times_pow1pm1(u: Expr, v: Expr, exponent: Expr) -> Expr:
    """v*((1 + u/v)**exponent - 1), v >= 0."""
    # Marked as done by its bound.
    beside = v * pow1pm1(u / Max(v, LEAST), exponent)
    at_zero = power(u, exponent) * power(v, 1 - exponent)
    return Piecewise((at_zero, Eq(v, 0)), (beside, True), evaluate=False)


def _tanh_less_logcosh(u: Expr) -> Expr:
    # Marked as done by its bounds.
    some, twice = Max(Min(u, 2), -2), 2 * Abs(u)
    far = log(2) - softplus(-twice) - twice * sigmoid(-twice)
    return Piecewise((far, Abs(u) > 1), (some * tanh(some) - logcosh(some), True), evaluate=False)


def _log1p_less_share(u: Expr, v: Expr) -> Expr:
    """log(1 + u/v) - u/(u + v), which is the half of (u/v)**2 near 0."""
    share = u / (u + v)
    # Marked as done by its bound.
    far = log1p(Max(u / v, S.Half)) - share
    return Piecewise((-log1pmx(-share), u / v < 1), (far, True), evaluate=False)


def excess_over_log(u: Expr, v: Expr, squared: bool, weight: Expr, far: Expr) -> Expr:
    """weight*(w - 1 - log(w)), which is half of (w - 1)**2 near 1, of w = u/v or its square."""
    above = minus(u, v) / v
    # By this and not its square, which may vanish or overflow.
    is_near = Abs(above) < (S.Half / 2 if squared else S.Half)
    near = -weight * log1pmx(above * (2 + above) if squared else above)
    return Piecewise((near, is_near), (far, True), evaluate=False)


def _quotient_less_log(u: Expr, v: Expr) -> Expr:
    far = Max(u / v, NO_PART_OF_1) - log(u / v) - 1
    return excess_over_log(u, v, False, S.One, far)


def _softplus_less_softplus(u: Expr, v: Expr) -> Expr:
    # Marked in the same way.
    far = softplus(Max(u, -_NOTHING)) - softplus(v)
    near = softplus_rise(v, minus(u, v))
    return Piecewise((near, Abs(minus(u, v)) < 1), (far, True), evaluate=False)


def mean_root_over(u: Expr, v: Expr, factor: Expr) -> Expr:
    near = v / (4 * mean_any_root(-u, v * factor))
    # Marked as done by its bound.
    far = mean_any_root(Max(u, 0), v * factor) / factor
    return Piecewise((near, u <= 0), (far, True), evaluate=False)


def _log_less_log(log_u: type[Expr], log_v: type[Expr]) -> Rule:
    """Of log(u) - log(v), where either may be of 1 + U or 1 + V."""
    more = {log: S.Zero, log1p: S.One}
    v = V + more[log_v]

    def where(found: Bindings, parameters: frozenset[Symbol]) -> bool:
        of_logs = {U: found[U] + more[log_u], V: found[V] + more[log_v]}
        shared = _share_a_term(of_logs, parameters) and of_logs[V].is_positive
        return bool(shared) and _is_greater(of_logs, parameters)

    return Rule(
        f"{log_u(U)} - {log_v(V)}", log_u(U) - log_v(V),
        log1p((minus(U, V) + more[log_u] - more[log_v]) / v),
        _CANCELS, _HERBIE, {U: 1000.01, V: 1000.0}, where=where,
    )  # fmt: skip


_NOTHING = Integer(2000)
"""Whose negative's exponential is 0 in any dtype, as is the derivative of that."""


AREAS = (
    Rule("asinh of exp", asinh(exp(U)),
         Piecewise((U + log(2), U >= 20), (asinh(exp(Min(U, 20))), True), evaluate=False),
         _OVERFLOWS, _ABRAMOWITZ, {U: 89.5}, where=lambda found, _: not isinstance(found[U], Min)),
    Rule("acosh of 1 + u", acosh(1 + U), 2 * asinh(sqrt(U / 2)),
         "1 + u drops the digits of a small u", _ABRAMOWITZ, {U: 1.3e-6}),
)  # fmt: skip

SUMS = (
    Rule("exp - 1", exp(U) - 1, expm1(U), _CANCELS, _GOLDBERG, {U: 1.3e-6}),
    Rule("exp - 1 - u", expm1(U) - U, expm1mx(U),
         _CANCELS, "Loader's log1pmx", {U: 1.3e-4}, alone=U),
    Rule("exp - 1 - u of a bounded u", expm1(Min(U, V)) - U, expm1mx(Min(U, V)) - Max(U - V, 0),
         _CANCELS, "Loader's log1pmx", {U: -1.3e-4, V: 0.7}, alone=U),
    Rule("log(1 + u) - u", log1p(U) - U, log1pmx(U), _CANCELS, "Loader's log1pmx", {U: 1.3e-4}),
    Rule("log(1 + u) - u/(1 + u)", log1p(U) - U / (1 + U), _log1p_less_share(U, S.One),
         _CANCELS, "Loader's log1pmx", {U: 1.3e-4}),
    Rule("log(1 + u/v) - u/(u + v)", log1p(U / V) - U / (U + V), _log1p_less_share(U, V),
         _CANCELS, "Loader's log1pmx", {U: 1.3e-4, V: 0.7}),
    Rule("power of 1 + u, less 1", power(1 + U, V) - 1, pow1pm1(U, V),
         _CANCELS, "Boost's powm1", {U: 1.3e-6, V: 0.7}),
    Rule("known power of 1 + u, less 1", (1 + U) ** V - 1, pow1pm1(U, V),
         _CANCELS, "Boost's powm1", {U: 1.3e-6, V: 0.5},
         where=lambda found, _: found[V].is_Rational and (found[V] > 2 or not found[V].is_Integer)),
    Rule("square of 1 + u, less 1", (1 + U) ** 2 - 1, U * (2 + U), _CANCELS, _HERBIE, {U: 1.3e-6}),
    Rule("number - a multiple of exp", C - V * exp(U), (C - V) - V * expm1(U),
         _CANCELS, _GOLDBERG, {U: 1.3e-6, V: 1.0, C: 1.0}, where=_are_of_run_time),
    Rule("sigmoid and its mirror", sigmoid(U) + sigmoid(-U), Integer(1),
         "one is all there is", _PYTENSOR, {}),
    Rule("cos - sin of pi/4 + u", cos(U + pi / 4) - sin(U + pi / 4), -sqrt(2) * sin(U),
         _CANCELS, _ABRAMOWITZ, {U: 1.3e-6}),
    Rule("derivative of sin**2 over its argument",
         cos(U) * sinc(U) - sin(U) * spherical_bessel(Integer(1), U),
         sinc(U) * (2 * cos(U) - sinc(U)),
         "no function but sin and cos", _ABRAMOWITZ, {}),
    Rule("derivative of u times sinc", sinc(U) - U * spherical_bessel(Integer(1), U), cos(U),
         "one function", _ABRAMOWITZ, {}),
    Rule("1 - 2 sigmoid", 1 - 2 * sigmoid(U), -tanh(U / 2), _CANCELS, _ABRAMOWITZ, {U: 1.3e-6}),
    Rule("derivative of u times phi_1",
         phi(Integer(1), U) + U * phi(Integer(1), U) - U * phi(Integer(2), U), exp(U),
         _CANCELS, "Hochbruck and Ostermann, Exponential integrators", {U: -30.0}),
    Rule("derivative of u over exp - 1",
         1 + U - U * phi(Integer(2), U) / phi(Integer(1), U), 1 / phi(Integer(1), -U),
         _CANCELS, "Hochbruck and Ostermann, Exponential integrators", {U: -30.0}),
    Rule("1 - sigmoid", 1 - sigmoid(U), sigmoid(-U), _CANCELS, _HERBIE, {U: 20.0}),
    Rule("1 - one side or the other", 1 - V * sigmoid(U) - (1 - V) * sigmoid(-U),
         V * sigmoid(-U) + (1 - V) * sigmoid(U), _CANCELS, _HERBIE, {U: 20.0, V: 1.0}),
    Rule("softplus less its tangent", (U - V) * sigmoid(U) + softplus(V) - softplus(U),
         softplus_divergence(U, V), _CANCELS, _BREGMAN, {U: 1.3e-4, V: -1.3e-4}),
    Rule("softplus less its tangent, multiplied out",
         U * sigmoid(U) - V * sigmoid(U) + softplus(V) - softplus(U),
         softplus_divergence(U, V), _CANCELS, _BREGMAN, {U: 1.3e-4, V: -1.3e-4}),
    Rule("divergence of two sides",
         sigmoid(U) * (softplus(-V) - softplus(-U)) + sigmoid(-U) * (softplus(V) - softplus(U)),
         softplus_divergence(U, V), _CANCELS, _BREGMAN, {U: 1.3e-4, V: -1.3e-4}),
    Rule("softplus - u times sigmoid", softplus(U) - U * sigmoid(U),
         softplus(-Abs(U)) + Abs(U) * sigmoid(-Abs(U)), _CANCELS, _MAECHLER, {U: 30.0},
         where=_is_of_both_signs),
    Rule("u times tanh - log of cosh", U * tanh(U) - logcosh(U), _tanh_less_logcosh(U),
         _CANCELS, _HERBIE, {U: 1e6}, where=_is_of_no_branch),
    Rule("sigmoid - sigmoid", sigmoid(U) - sigmoid(-U), tanh(U / 2),
         _CANCELS, _ABRAMOWITZ, {U: 1.3e-6}),
    Rule("sigmoid - a lower one", sigmoid(U) - sigmoid(V),
         -expm1(-minus(U, V)) * sigmoid(U) * sigmoid(-V),
         _CANCELS, _ABRAMOWITZ, {U: 100.0, V: 99.0}, where=_is_greater),
    Rule("sigmoid - another", sigmoid(U) - sigmoid(V),
         tanh(minus(U, V) / 2) * (sigmoid(U) * sigmoid(-V) + sigmoid(V) * sigmoid(-U)),
         _CANCELS, _ABRAMOWITZ, {U: 100.0, V: 99.0}),
    Rule("softplus - softplus", softplus(U) - softplus(-U), U,
         _CANCELS, _MAECHLER, {U: 1.3e-6}),
    Rule("softplus - another", softplus(U) - softplus(V), softplus_rise(V, minus(U, V)),
         _CANCELS, _MAECHLER, {U: 1.3e-6, V: 1e-6}, where=_is_near),
    Rule("u less the log of a sum of exps", U - logaddexp(U, V), -softplus(V - U),
         _CANCELS, _PYTENSOR, {U: 100.0, V: 1.0}),
    Rule("softplus - another of the same tensor", softplus(U) - softplus(V),
         _softplus_less_softplus(U, V), _CANCELS, _MAECHLER, {U: 1.3e-6, V: -1.3e-6},
         where=_are_of_one_tensor),
    Rule("loggamma - another a step below", loggamma(U) - loggamma(V),
         _loggamma_less_loggamma(U, V), _CANCELS, _ABRAMOWITZ, {U: 2e7 + 2, V: 2e7},
         where=_is_a_small_step),
    Rule("erf - another", erf(U) - erf(V), _erf_less_erf(U, V),
         "both are 1, or -1", _ABRAMOWITZ, {U: 8.0, V: 6.0}, where=_share_a_term_of_their_own),
    Rule("normcdf - another", normcdf(U) - normcdf(V), _normcdf_less_normcdf(U, V),
         "both are 1", _ABRAMOWITZ, {U: 9.0, V: 8.0}, where=_share_a_term_of_their_own),
    Rule("densities at both ends of a normal mass",
         normal_mass_lower(U, V, C) - normal_mass_upper(U, V, C), normal_mass_mean(U, V, C),
         _CANCELS, _ABRAMOWITZ, {U: 1.001, V: 1.0, C: 0.001}),
    Rule("1 + erf", 1 + erf(U), 2 * normcdf(sqrt(2) * U), _CANCELS, _ABRAMOWITZ, {U: -4.5}),
    Rule("1 - erf", 1 - erf(U), erfc(U), _CANCELS, _ABRAMOWITZ, {U: 4.5}),
    Rule("2 - erfc", 2 - erfc(U), 2 * normcdf(sqrt(2) * U), _CANCELS, _ABRAMOWITZ, {U: -4.5}),
    Rule("1 - sech**2", 1 - sech2(U), tanh(U) ** 2, _CANCELS, _ABRAMOWITZ, {U: 1.3e-3}),
    Rule("1 - tanh**2", 1 - tanh(U) ** 2, sech2(U), _CANCELS, _ABRAMOWITZ, {U: 9.3}),
    Rule("1 + tanh", 1 + tanh(U), 2 * sigmoid(2 * U), _CANCELS, _ABRAMOWITZ, {U: -9.3}),
    Rule("1 - tanh", 1 - tanh(U), 2 * sigmoid(-2 * U), _CANCELS, _ABRAMOWITZ, {U: 9.3}),
    Rule("1 - cos", 1 - cos(U), 2 * sin(U / 2) ** 2, _CANCELS, _GOLDBERG, {U: 1.3e-3}),
    Rule("1 + cos", 1 + cos(U), 2 * cos(U / 2) ** 2, _CANCELS, _GOLDBERG, {U: 3.1403}),
    Rule("cos - cos of a multiple", cos(U) - cos(V),
         -2 * sin(plus(U, V) / 2) * sin(plus(U, -V) / 2),
         _CANCELS, _ABRAMOWITZ, {U: 1.3e-3, V: 2.1e-3}, where=_is_multiple),
    Rule("1 + sin", 1 + sin(U), 2 * sin(U / 2 + pi / 4) ** 2,
         _CANCELS, _ABRAMOWITZ, {U: -1.57}),
    Rule("1 - sin", 1 - sin(U), 2 * sin(U / 2 - pi / 4) ** 2,
         _CANCELS, _ABRAMOWITZ, {U: 1.57}),
    Rule("mean of exp, its exponent, less a log", V * exp(-U / V) + U - 1 - log(V),
         V * expm1mx(-U / V) + _quotient_less_log(V, S.One), _CANCELS, "Loader's log1pmx",
         {U: 1e-3, V: 1.001}),
    Rule("slope of v times exp - 1 - u/v", expm1mx(U) - U * expm1(U), expm1(U) - U * exp(U),
         "-u and u are both large", _GOLDBERG, {U: -1e12}),
    Rule("cosh - 1", cosh(U) - 1, 2 * sinh(U / 2) ** 2, _CANCELS, _HERBIE, {U: 1.3e-3}),
    Rule("1 - cos**2", 1 - cos(U) ** 2, sin(U) ** 2, _CANCELS, _ABRAMOWITZ, {U: 1.3e-3}),
    Rule("1 - sin**2", 1 - sin(U) ** 2, cos(U) ** 2, _CANCELS, _ABRAMOWITZ, {U: 1.5705}),
    Rule("1 + sinh**2", 1 + sinh(U) ** 2, cosh(U) ** 2, "one function", _ABRAMOWITZ, {}),
    Rule("cosh**2 - 1", cosh(U) ** 2 - 1, sinh(U) ** 2, _CANCELS, _ABRAMOWITZ, {U: 1.3e-3}),
    Rule("cosh**2 - sinh**2", cosh(U) ** 2 - sinh(U) ** 2, Integer(1),
         _CANCELS, _ABRAMOWITZ, {U: 11.0}),
    Rule("cosh - sinh", cosh(U) - sinh(U), exp(-U), _CANCELS, _ABRAMOWITZ, {U: 11.0}),
    Rule("exp - cosh", exp(U) - cosh(U), sinh(U), _CANCELS, _ABRAMOWITZ, {U: 1.3e-6}),
    Rule("cosh + sinh", cosh(U) + sinh(U), exp(U), _CANCELS, _ABRAMOWITZ, {U: -11.0}),
    Rule("exp - exp", exp(U) - exp(-U), 2 * sinh(U), _CANCELS, _ABRAMOWITZ, {U: 1.3e-6}),
    Rule("exp + exp", exp(U) + exp(-U), 2 * cosh(U), "one function", _ABRAMOWITZ, {}),
    Rule("exp - exp of a multiple", exp(U) - exp(V), exp_less_exp(U, V),
         _CANCELS, _GOLDBERG, {U: 1.3e-6, V: -1.7e-6},
         where=_is_new_multiple),
    Rule("power of c + u, less that of c", power(C + U, V) - power(C, V),
         power(C, V) * pow1pm1(U / C, V), _CANCELS, "Boost's powm1", {U: 1.3e-6, C: 2.0, V: 0.7},
         where=lambda found, parameters: not varies(found[C], parameters)),
    Rule("pi/2 - atan", pi / 2 - atan(U), atan2(1, U), _CANCELS, _ABRAMOWITZ, {U: 1e7}),
    Rule("pi/2 + atan", pi / 2 + atan(U), atan2(1, -U), _CANCELS, _ABRAMOWITZ, {U: -1e7}),
    Rule("root - its value at 0", root_sum(U, C) - sqrt(C), root_rest(U, C),
         _CANCELS, _GOLDBERG, {U: 1e-3, C: 1.0}, where=lambda found, _: found[C].is_number),
    Rule("root - what its square has", root_sum(U, V**2) - V, root_rest(U, V**2) + 2 * Max(-V, 0),
         _CANCELS, _GOLDBERG, {U: 1e-3, V: 1.0}),
    Rule("difference of squares", U**2 - V**2, (U - V) * (U + V),
         _CANCELS, _GOLDBERG, {U: 3.0001, V: 3.0},
         where=_are_no_numbers),
    Rule("root + u", root_sum(U, C) + U, 2 * mean_root(U, C),
         _CANCELS, _GOLDBERG, {U: -1e3, C: 1.0}),
    Rule("root - u", root_sum(U, C) - U, 2 * mean_root(-U, C),
         _CANCELS, _GOLDBERG, {U: 1e3, C: 1.0}),
    Rule("1 + u over root", 1 + U / root_sum(U, C), 2 * mean_root(U, C) / root_sum(U, C),
         _CANCELS, _GOLDBERG, {U: -1e3, C: 1.0}),
    Rule("1 - u over root", 1 - U / root_sum(U, C), 2 * mean_root(-U, C) / root_sum(U, C),
         _CANCELS, _GOLDBERG, {U: 1e3, C: 1.0}),
    Rule("root of a square and more, + u", sqrt(U**2 + V) + U, 2 * mean_any_root(U, V),
         _CANCELS, _GOLDBERG, {U: -1e3, V: 1.0}),
    Rule("1 + u over the root of a square and more", 1 + U / sqrt(U**2 + V),
         2 * mean_any_root(U, V) / sqrt(U**2 + V),
         _CANCELS, _GOLDBERG, {U: -1e3, V: 1.0}),
    Rule("mean_any_root less half of its root", mean_any_root(U, V) - sqrt(U**2 + V) / 2, U / 2,
         _CANCELS, _GOLDBERG, {U: 1e-3, V: 1.0}),
    Rule("root - another root", root_sum(U, C) - root_sum(U, V),
         (C - V) / (root_sum(U, C) + root_sum(U, V)),
         _CANCELS, _HERBIE, {U: 1e3, C: 2.0, V: 1.0}),
    Rule("square root - another", sqrt(U) - sqrt(V), minus(U, V) / (sqrt(U) + sqrt(V)),
         _CANCELS, _HERBIE, {U: 1000.01, V: 1000.0}, where=_are_close),
    Rule("root of a fraction, less 1", sqrt(U / V) - 1,
         pow1pm1(minus(U, V) / V, sympy.Rational(1, 2)),
         _CANCELS, _HERBIE, {U: 1.0000003, V: 1.0}, where=_are_nearly_alike),
    Rule("1 over a square root - another", 1 / sqrt(U) - 1 / sqrt(V),
         -minus(U, V) / (sqrt(U) * sqrt(V) * (sqrt(U) + sqrt(V))),
         _CANCELS, _HERBIE, {U: 1000.01, V: 1000.0}, where=_are_close),
    Rule("cube root - another", cbrt(U) - cbrt(V),
         minus(U, V) / (cbrt(U) ** 2 + cbrt(U) * cbrt(V) + cbrt(V) ** 2),
         _CANCELS, _HERBIE, {U: 1000.01, V: 1000.0}, where=_are_close),
    Rule("1 - a part over the whole", 1 - U / V, minus(V, U) / V,
         _CANCELS, _HERBIE, {U: 1000.0, V: 1000.01}, where=_is_summand),
    Rule("difference of inverses", 1 / U - 1 / V, -minus(U, V) / (U * V),
         _CANCELS, _HERBIE, {U: 1000.01, V: 1000.0}, where=_share_a_term),
    Rule("difference of cubes", U**3 - V**3, minus(U, V) * (U**2 + U * V + V**2),
         _CANCELS, _HERBIE, {U: 1000.01, V: 1000.0}, where=_share_a_term),
    Rule("difference of fourth powers", U**4 - V**4, minus(U, V) * (U + V) * (U**2 + V**2),
         _CANCELS, _HERBIE, {U: 1000.01, V: 1000.0}, where=_share_a_term),
    Rule("difference of fifth powers", U**5 - V**5,
         minus(U, V) * (U**4 + U**3 * V + U**2 * V**2 + U * V**3 + V**4),
         _CANCELS, _HERBIE, {U: 1000.01, V: 1000.0}, where=_share_a_term),
    *(_log_less_log(*logs) for logs in itertools.product((log, log1p), repeat=2)),
    Rule("exp - that of more terms", exp(U) - exp(V), -exp(U) * expm1(minus(V, U)),
         _CANCELS, _HERBIE, {U: 10.0001, V: 10.0}, where=_is_part),
    Rule("exp - another", exp(U) - exp(V), exp(V) * expm1(minus(U, V)),
         _CANCELS, _HERBIE, {U: 10.0001, V: 10.0}, where=_share_a_term),
    Rule("sin - another", sin(U) - sin(V), 2 * cos((U + V) / 2) * sin(minus(U, V) / 2),
         _CANCELS, _ABRAMOWITZ, {U: 10.0001, V: 10.0}, where=_share_a_term),
    Rule("cos - another", cos(U) - cos(V), -2 * sin((U + V) / 2) * sin(minus(U, V) / 2),
         _CANCELS, _ABRAMOWITZ, {U: 10.0001, V: 10.0}, where=_share_a_term),
    Rule("cos of a sum", cos(U) * cos(V) - sin(U) * sin(V), cos(U + V),
         _CANCELS, _ABRAMOWITZ, {U: 0.785, V: 0.785}, where=_add_up),
    Rule("sin of a sum", sin(U) * cos(V) + cos(U) * sin(V), sin(U + V),
         _CANCELS, _ABRAMOWITZ, {U: 0.785, V: -0.78501}, where=_add_up),
    Rule("cos of a difference", cos(U) * cos(V) + sin(U) * sin(V), cos(minus(U, V)),
         _CANCELS, _ABRAMOWITZ, {U: 0.785, V: -0.785}, where=_share_a_term),
    Rule("sin of a difference", sin(U) * cos(V) - cos(U) * sin(V), sin(minus(U, V)),
         _CANCELS, _ABRAMOWITZ, {U: 0.785, V: 0.78501}, where=_share_a_term),
    Rule("tan - another", tan(U) - tan(V), sin(minus(U, V)) / (cos(U) * cos(V)),
         _CANCELS, _ABRAMOWITZ, {U: 1.0001, V: 1.0}, where=_are_a_step_apart),
    Rule("atan - another", atan(U) - atan(V), atan2(minus(U, V), 1 + U * V),
         _CANCELS, _ABRAMOWITZ, {U: 1000.01, V: 1000.0}, where=_are_a_step_apart),
    Rule("tanh - another", tanh(U) - tanh(V),
         2 * tanh(minus(U, V))
         * (sigmoid(2 * U) * sigmoid(-2 * V) + sigmoid(2 * V) * sigmoid(-2 * U)),
         _CANCELS, _ABRAMOWITZ, {U: 11.0, V: 10.0}, where=_share_a_term),
    Rule("sinh - another", sinh(U) - sinh(V), 2 * cosh((U + V) / 2) * sinh(minus(U, V) / 2),
         _CANCELS, _ABRAMOWITZ, {U: 10.0001, V: 10.0}, where=_share_a_term),
    Rule("cosh - another", cosh(U) - cosh(V), 2 * sinh((U + V) / 2) * sinh(minus(U, V) / 2),
         _CANCELS, _ABRAMOWITZ, {U: 10.0001, V: 10.0}, where=_share_a_term),
    Rule("softplus in two parts", Max(U, 0) + softplus(-Abs(U)), softplus(U),
         "its derivative at 0 would be that of |u|", _PYTORCH, {}),
    Rule("max + min of equal signs", Max(U, 0) + Min(V, 0),
         Piecewise((U, U > 0), (V, True), evaluate=False),
         "a kink at 0 that the sum does not have", _PYTORCH, {}, where=_signed_alike),
)  # fmt: skip


def _acos_over_its_sine(u: Expr) -> Expr:
    # The series of asin(s)/s in z = s**2, 1/32 at most.
    z = (1 - u) * (1 + u)
    terms = range(_SERIES, -1, -1)
    near = polynomial(
        _SERIES - 4,
        z,
        *(Float(sympy.binomial(2 * n, n) / Integer(4) ** n / (2 * n + 1), 20) for n in terms),
    )
    far = acos(u) / (sqrt(1 - u) * sqrt(1 + u))
    return Piecewise((near, (64 * u > 63) & (u <= 1)), (far, True), evaluate=False)


_SERIES = 10
"""The highest power of z: the next term is 2**-62 of the sum, and from the sixth on 2**-34."""


def _is_of_run_time_exponent(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether no polynomial serves near 0, as it does for a known one."""
    return bool(found[V].free_symbols)


PRODUCTS = (
    Rule("power over a sum with another", power(U, C) / (power(U, C) + power(V, C)),
         _power_over_powers(U, V, C), _POWERS, _HILL, {U: 1e20, V: 1e19, C: 4.0}),
    Rule("power over a sum with it", power(U, V) / (C + power(U, V)),
         _power_over_sum(U, V, C), _POWERS, _HILL, {U: 1e20, V: 4.0, C: 1.0},
         where=_is_of_no_lesser_power),
    Rule("exp times sigmoid", exp(U) * sigmoid(-U), sigmoid(U), _OVERFLOWS, _HERBIE, {U: 100.0}),
    Rule("sigmoid over its mirror", sigmoid(U) / sigmoid(-U), exp(U),
         "one function", _PYTENSOR, {}),
    Rule("both of two sides over one",
         (1 + exp(U)) * (sigmoid(U) * sigmoid(V) + sigmoid(-U) * sigmoid(-V)),
         sigmoid(-V) + exp(U - softplus(-V)),
         "sigmoid underflows where exp overflows", _PYTENSOR, {U: 100.0, V: -101.0}),
    Rule("acos over its sine", acos(U) / sqrt(1 - U**2), _acos_over_its_sine(U),
         "0 / 0 at 1", _ABRAMOWITZ, {U: 1.0}),
    Rule("sin over sin of a multiple", sin(U) / sin(V), ratio(U, V) * sinc(U) / sinc(V),
         "0 / 0 at 0", _ABRAMOWITZ, {}, where=_is_multiple),
    Rule("tan over tan of a multiple", tan(U) / tan(V),
         ratio(U, V) * sinc(U) * cos(V) / (sinc(V) * cos(U)),
         "0 / 0 at 0", _ABRAMOWITZ, {}, where=_is_multiple),
    Rule("exp - 1 over that of a multiple", expm1(U) / expm1(V), _expm1_over_expm1(U, V),
         "0 / 0 at 0, and both overflow", "Hochbruck and Ostermann, Exponential integrators",
         {U: 90.0, V: 180.0}, where=_is_multiple),
    Rule("power of 1 + u, less 1, over u", pow1pm1(U, V) / U,
         V * phi(Integer(1), V * log1p(U)) * log1p(U) / U, "0 / 0 at 0",
         "Boost's powm1", {}, where=_is_of_run_time_exponent),
    Rule("u over a power of 1 + u, less 1", U / pow1pm1(U, V),
         U / (V * phi(Integer(1), V * log1p(U)) * log1p(U)), "0 / 0 at 0",
         "Boost's powm1", {}, where=_is_of_run_time_exponent),
    Rule("power less 1, over its exponent", (power(U, V) - 1) / V,
         log(U) * phi(Integer(1), V * log(U)), "0 / 0 where the exponent is 0",
         "Box and Cox, An analysis of transformations", {},
         where=lambda found, _: bool(found[U].is_positive)),
    Rule("exp over a sum of two", exp(U) / (exp(U) + exp(V)), sigmoid(U - V),
         _OVERFLOWS, _HERBIE, {U: 100.0, V: 99.0}),
    Rule("exp over its root", exp(U) / root_sum(exp(U), C), 1 / root_sum(sqrt(C) * exp(-U), 1),
         _OVERFLOWS, "hypot", {U: 100.0, C: 1.0}),
    Rule("exp over the square of its root", exp(U) / root_sum(exp(U / 2), C) ** 2,
         sigmoid(U - log(C)), _OVERFLOWS, _HERBIE, {U: 100.0, C: 1.0}),
    Rule("mean_any_root over a factor", mean_any_root(U, V * C) / C, mean_root_over(U, V, C),
         "0 / 0 where the factor vanishes, and few digits beside", _GOLDBERG,
         {U: -1e3, V: 1.0, C: 1e-40}, where=_is_new_quadratic),
    Rule("mean_any_root times its mirror", mean_any_root(U, V) * mean_any_root(-U, V), V / 4,
         _CANCELS, _GOLDBERG, {}),
    Rule("mean_root times its mirror", mean_root(U, C) * mean_root(-U, C), C / 4,
         "one is subnormal where the other is large", _GOLDBERG, {U: 3e38, C: 1.0}),
    Rule("sin times cos", sin(U) * cos(U), sin(2 * U) / 2, "one function", _ABRAMOWITZ, {}),
    Rule("u times its sign", U * sign(U), Abs(U), "one operation", _HERBIE, {}),
    Rule("sign over |u|", sign(U) / Abs(U), 1 / U, "one operation", _HERBIE, {}),
    Rule("|u| times its sign", Abs(U) * sign(U), U, "one operation", _HERBIE, {}),
    Rule("sinh over cosh", sinh(U) / cosh(U), tanh(U),
         "both overflow", _ABRAMOWITZ, {U: 100.0}),
    Rule("cosh over sinh", cosh(U) / sinh(U), 1 / tanh(U),
         "both overflow", _ABRAMOWITZ, {U: 200.0}),
    Rule("sinh times sech**2", sinh(U) * sech2(U), tanh(U) / cosh(U),
         "sech**2 underflows", _ABRAMOWITZ, {U: 60.0}),
    Rule("sinh times sech**2 of half", sinh(U) * sech2(U / 2), 2 * tanh(U / 2),
         "sinh overflows", _ABRAMOWITZ, {U: 100.0}),
    Rule("exp - 1 over exp", expm1(U) * exp(-U), -expm1(-U),
         _OVERFLOWS, _HERBIE, {U: 100.0}),
    Rule("exp - 1 over a sum with it", expm1(U) / (C + V * expm1(U)),
         -expm1(-U) / (C * exp(-U) - V * expm1(-U)), _OVERFLOWS, _HERBIE,
         {U: 800.0, C: 2.0, V: 1.0}, where=lambda found, _: found[U].is_nonnegative is True),
    Rule("exp over exp - 1", exp(U) / expm1(U), -1 / expm1(-U),
         "both overflow", _HERBIE, {U: 100.0}),
    Rule("cosh times sech**2", cosh(U) * sech2(U), 1 / cosh(U),
         "sech**2 underflows", _ABRAMOWITZ, {U: 60.0}),
    Rule("exp times exp", exp(U) * exp(V), exp(U + V),
         "one overflows, or vanishes, where the product does not", _HERBIE, {U: 100.0, V: -90.0}),
    Rule("v times log", V * log(U), xlogy(V, U),
         "0 times infinity where both are 0", _PYTORCH, {U: 0.0, V: 0.0}, where=_vanish_together),
    Rule("v times log1p", V * log1p(U), xlog1py(V, U),
         "0 times infinity where both are 0", _PYTORCH, {U: -1.0, V: 0.0},
         where=lambda found, parameters: vanishes_with(found[V], 1 + found[U], parameters)),
    Rule("v times exp", V * exp(U), times_exp(V, U),
         "exp overflows where v vanishes", "two halves of the exponent, as in ldexp",
         {U: 90.0, V: 1e-10}, where=_is_large),
)  # fmt: skip

POWERS = (
    Rule("1 over a sum with a power", 1 / (C + power(U, V)), _over_power(U, V, C),
         _POWERS, _HILL, {U: 4.5e9, V: 4.0, C: 1.0}, where=_is_of_no_lesser_power),
    Rule("1 over 1 + exp", 1 / (1 + exp(U)), sigmoid(-U),
         _OVERFLOWS, _HERBIE, {U: 89.5}),
    Rule("1 over cosh**2", cosh(U) ** -2, sech2(U), "cosh**2 overflows", _ABRAMOWITZ, {U: 50.0}),
    Rule("1 over 1 + cosh", 1 / (1 + cosh(U)), sech2(U / 2) / 2,
         "cosh overflows where sinh does", _ABRAMOWITZ, {}),
    Rule("square of a sign", sign(U) ** 2, Integer(1),
         "the derivative of sign(u)*f(|u|) is that of f at 0", _HERBIE, {}),
    Rule("power of e", _raw(sympy.Pow, sympy.E, U), _raw(exp, U), "another name", _PYTORCH, {}),
    Rule("power of 1 + exp", (1 + exp(U)) ** V, exp(V * softplus(U)),
         _OVERFLOWS, _HERBIE, {U: 100.0, V: -0.3}, where=_is_run_time),
    Rule("power of sigmoid", sigmoid(U) ** V, exp(-V * softplus(-U)),
         "sigmoid underflows", _HERBIE, {U: -110.0, V: 0.3}, where=_is_run_time),
    Rule("power of a number", C**V, exp(V * log(C)), "one exponential", _HERBIE, {},
         where=lambda found, _: found[C].is_number and not found[V].is_number),
    Rule("power known at run time", _raw(sympy.Pow, U, V), power(U, V),
         "gradients at 0 as torch.pow has them", _PYTORCH, {}, where=_is_run_time),
)  # fmt: skip

BY_HAND = (
    Rule("quotient - 1, less its log", U / V - log(U / V) - 1, _quotient_less_log(U, V),
         _CANCELS, "Loader's log1pmx", {U: 0.70003, V: 0.7}),
    Rule("log of a sum with a multiple of exp", log(C + V * exp(U)), log_with_exp(U, V, C),
         _OVERFLOWS, _MAECHLER, {U: 100.0, V: 0.3, C: 0.7}),
    Rule("from one to the other by a sigmoid", U + (V - U) * sigmoid(C),
         U * sigmoid(-C) + V * sigmoid(C), _CANCELS, _HERBIE, {U: 1.0, V: 1e-5, C: 12.0}),
    Rule("sum times sigmoid, less half of a part", (U + V) * sigmoid(C) - V / 2,
         U * sigmoid(C) + V * tanh(C / 2) / 2, _CANCELS, _ABRAMOWITZ,
         {U: 1e-9, V: 0.7, C: 1e-9}),
    Rule("sum times normcdf, less half of a part", (U + V) * normcdf(C) - V / 2,
         U * normcdf(C) + V * erf(C / sqrt(2)) / 2, _CANCELS, _ABRAMOWITZ,
         {U: 1e-9, V: 0.7, C: 1e-9}),
    Rule("quotient of sums of exps", (exp(U) + C * exp(U / 2 + V / 2))
         / (exp(U) + exp(V) + C * exp(U / 2 + V / 2)),
         (exp(U / 2 - V / 2) + C) / (exp(U / 2 - V / 2) + exp(V / 2 - U / 2) + C),
         _OVERFLOWS, _MAECHLER, {U: 100.0, V: 99.0, C: 0.7}),
    Rule("mean by the sizes of exps", (U * exp(U) + V * exp(V)) / (exp(U) + exp(V)),
         U * sigmoid(U - V) + V * sigmoid(V - U), _OVERFLOWS, _HERBIE, {U: 100.0, V: 99.0}),
    Rule("root of a sum - that of the difference", root_sum(U + V, C) - root_sum(U - V, C),
         root_split(U + V, U - V, U, V, C), _CANCELS, _GOLDBERG, {U: 1e-10, V: 1.0, C: 0.1}),
    Rule("powers of a sum that differ by 1",
         power(C + U, V + 1) - U * power(C + U, V), C * power(C + U, V),
         _CANCELS, _GOLDBERG, {C: 1.0, U: 1e9, V: -3.0}),
    Rule("slope of a power times its base",
         U * Piecewise((0, Eq(V, 0)), (V * power(U, V - 1), True)), V * power(U, V),
         "0 times infinity", _POWERS, {U: 0.0, V: 0.5}),
    Rule("beside what is 0 below", Max(U, 0) * (V * Max(U, 0) + C), Max(U, 0) * (V * U + C),
         "terms cancel where it is not 0", _HERBIE, {}),
    Rule("sign times pieces with |u|",
         sign(U) * Piecewise((C * Abs(U), Abs(U) < 1), (V, True), evaluate=False),
         Piecewise((C * U, Abs(U) < 1), (V * sign(U), True), evaluate=False),
         "the slope at 0 is not that of the sign", _HERBIE, {}),
    Rule("square of a quotient with a root less 1", (V / (sqrt(C) + U)) ** 2 - 1,
         ((V - U) ** 2 - C) * (V / (sqrt(C) + U) + 1) / ((sqrt(C) + V - U) * (sqrt(C) + U)),
         _CANCELS, _GOLDBERG, {}),
    Rule("share of a root's square less its rest",
         C * (U**2 / root_sum(U, V**2) - root_rest(U, V**2)),
         C * Abs(V) * root_rest(U, V**2) / root_sum(U, V**2),
         _CANCELS, _GOLDBERG, {U: 1e9, V: 1.0, C: 1.0}),
    Rule("slopes of a difference of roots",
         share_split(U + V, U - V, U, V, C) + share_split(U + V, V - U, V, U, C),
         2 * (U + V) / root_sum(U + V, C), "the slopes of which the chain rule adds cancel",
         _GOLDBERG, {U: 1.0007, V: -1.00069, C: 900.0}),
    Rule("root of a sum less that of a part", sqrt(U + V) - sqrt(U), root_rise(U, V),
         _CANCELS, _HERBIE, {U: 1e3, V: 0.01}),
    Rule("1 less the root of a part of a sum over its", 1 - sqrt(U) / sqrt(U + V),
         root_rise(U, V) / sqrt(U + V), _CANCELS, _HERBIE, {U: 1e3, V: 0.01}),
    Rule("sum less the root of its squares", U + V - sqrt(U**2 + V**2),
         less_root_of_squares(U, V, S.Zero), _CANCELS, _GOLDBERG, {U: 1e5, V: 1e-3}),
    Rule("sum less the root of its difference", U + V - root_sum(U - V, C),
         less_root_of_difference(U, V, mean_root, C), _CANCELS, _GOLDBERG,
         {U: 1e9, V: 1.0, C: 0.1}),
    Rule("v times a power of 1 + u/v, less 1", Abs(V) * pow1pm1(U / Abs(V), C),
         times_pow1pm1(U, Abs(V), C),
         "0 times infinity where v is 0", "Barron, A general and adaptive robust loss function",
         {U: 0.7, V: 0.0, C: 1.0}),
    Rule("v times exp, over what the exponent is", times_exp(V, -1 / U**2) / U,
         times_exp(V / U, -1 / U**2), "0 over 0 where the exponent is infinite",
         "two halves of the exponent, as in ldexp", {}),
    Rule("power mean", (power(U, C) / 2 + power(V, C) / 2) ** (1 / C),
         power_mean([(S.Half, U, S.One), (S.Half, V, S.One)], C, S.One,
                    power(power(U, C) / 2 + power(V, C) / 2, 1 / C)),
         "1 to an infinite power where the exponent is 0",
         "Hardy, Littlewood and Polya, Inequalities", {U: 0.7, V: 0.3, C: 1.3e-4}),
    Rule("sum with exp over exp - 1", (V + C * exp(U)) / expm1(U),
         over_expm1(U, C, V, times=False), "both overflow, or vanish",
         "Scharfetter and Gummel, on diffusion with drift", {U: 100.0, V: 0.3, C: 0.7}),
    Rule("exp times the tail of erf", exp(U**2) * erfc(U), scaled_erfc(U),
         _UNDERFLOWS_BESIDE, _ABRAMOWITZ, {U: 30.0}),
    Rule("exp times the tail of normcdf", exp(U**2 / 2) * normcdf(U), scaled_normcdf(U),
         _UNDERFLOWS_BESIDE, _ABRAMOWITZ, {U: -40.0}),
    Rule("sum with exp over exp, less 1", times_exp(C + exp(U), -V) - 1,
         expm1(U - V) + times_exp(C, -V), _CANCELS, "Kullback and Leibler, of two normals",
         {U: 0.70003, V: 0.7, C: 1e-6}),
    Rule("power of 1 + a multiple of exp", 1 / sqrt(1 + V * exp(U)),
         power_with_exp(U, V, S.One, -S.Half),
         "exp overflows where the result, or its slope, does not", _MAECHLER, {U: 100.0, V: 0.3}),
)  # fmt: skip

ANGLES = (
    Rule("cos of acos and more", cos(acos(U) + V),
         U * cos(V) - sqrt((1 - U) * (1 + U)) * sin(V), _MAGNIFIED, _ABRAMOWITZ, {}),
    Rule("sin of acos and more", sin(acos(U) + V),
         sqrt((1 - U) * (1 + U)) * cos(V) + U * sin(V), _MAGNIFIED, _ABRAMOWITZ, {}),
    Rule("sin of asin and more", sin(asin(U) + V),
         U * cos(V) + sqrt((1 - U) * (1 + U)) * sin(V), _MAGNIFIED, _ABRAMOWITZ, {}),
    Rule("cos of asin and more", cos(asin(U) + V),
         sqrt((1 - U) * (1 + U)) * cos(V) - U * sin(V), _MAGNIFIED, _ABRAMOWITZ, {}),
)  # fmt: skip

SIGNS = (
    Rule("sign of exp - 1", sign(expm1(U)), sign(U), "exp rounds to 1 beside 0", _GOLDBERG, {}),
    *(
        Rule(
            f"sign of {f.__name__} - another",
            sign(f(U) - f(V)),
            sign(U - V),
            "both round to the same",
            _GOLDBERG,
            {},
        )
        for f in (exp, log1p, sqrt, tanh, asinh, atan, softplus)
    ),
)

REMOVABLE = (
    Rule("sin over its argument", sin(U) / U, sinc(U), "0 / 0 at 0", _ABRAMOWITZ, {U: 0.0}),
    Rule("exp - 1 over its argument", expm1(U) / U, phi(Integer(1), U),
         "0 / 0 at 0", "Hochbruck and Ostermann, Exponential integrators", {U: 0.0}),
)  # fmt: skip


def _of_exps(u: Expr, v: Expr) -> Expr:
    # From the greater, as phi_1 of a large number overflows.
    above, below = exp(u) * phi(Integer(1), v - u), exp(v) * phi(Integer(1), u - v)
    return Piecewise((above, u > v), (below, True), evaluate=False)


def logarithmic_mean(u: Expr, v: Expr, apart: Expr) -> Expr:
    """(u - v) / apart, from what is farther from 0. apart: log(u) - log(v)."""
    above, below = u * phi(Integer(1), -apart), v * phi(Integer(1), apart)
    return Piecewise((above, Abs(u) > Abs(v)), (below, True), evaluate=False)


_EQUAL = "0 / 0 where both are equal"

QUOTIENTS = (
    Rule("exp - exp over the difference", (exp(U) - exp(V)) / (U - V), _of_exps(U, V),
         _EQUAL, "Hochbruck and Ostermann, Exponential integrators", {U: 1.0, V: 1.0}),
    Rule("sin - sin over the difference", (sin(U) - sin(V)) / (U - V),
         cos((U + V) / 2) * sinc((U - V) / 2), _EQUAL, _ABRAMOWITZ, {U: 1.0, V: 1.0}),
    Rule("cos - cos over the difference", (cos(U) - cos(V)) / (U - V),
         -sin((U + V) / 2) * sinc((U - V) / 2), _EQUAL, _ABRAMOWITZ, {U: 1.0, V: 1.0}),
    Rule("root - root over the difference", (sqrt(U) - sqrt(V)) / (U - V),
         1 / (sqrt(U) + sqrt(V)), _EQUAL, _GOLDBERG, {U: 1.5, V: 1.5}),
    Rule("difference over that of logs", (U - V) / (log(U) - log(V)),
         logarithmic_mean(U, V, log(U) - log(V)), _EQUAL,
         "Carlson, The logarithmic mean", {U: 1.5, V: 1.5}),
    Rule("difference over the log of the ratio", (U - V) / log(U / V),
         logarithmic_mean(U, V, log(U / V)), _EQUAL,
         "Carlson, The logarithmic mean", {U: 1.5, V: 1.5}),
)  # fmt: skip

NAMES = (
    Rule("sinc", sympy.sinc(U), sinc(U), "another name", _PYTORCH, {}),
    Rule("sec", sympy.sec(U), 1 / cos(U), "another name", _ABRAMOWITZ, {}),
    Rule("csc", sympy.csc(U), 1 / sin(U), "another name", _ABRAMOWITZ, {}),
    Rule("cot", sympy.cot(U), 1 / tan(U), "another name", _ABRAMOWITZ, {}),
    Rule("asec", sympy.asec(U), acos(1 / U), "another name", _ABRAMOWITZ, {}),
    Rule("acsc", sympy.acsc(U), asin(1 / U), "another name", _ABRAMOWITZ, {}),
    Rule("acot", sympy.acot(U), atan(1 / U), "another name", _ABRAMOWITZ, {}),
    Rule("sech", sympy.sech(U), 1 / cosh(U), "another name", _ABRAMOWITZ, {}),
    Rule("csch", sympy.csch(U), 1 / sinh(U), "another name", _ABRAMOWITZ, {}),
    Rule("coth", sympy.coth(U), 1 / tanh(U), "another name", _ABRAMOWITZ, {}),
    Rule("asech", sympy.asech(U), acosh(1 / U), "another name", _ABRAMOWITZ, {}),
    Rule("acsch", sympy.acsch(U), asinh(1 / U), "another name", _ABRAMOWITZ, {}),
    Rule("acoth", sympy.acoth(U), atanh(1 / U), "another name", _ABRAMOWITZ, {}),
    Rule("frac", sympy.frac(U), U - floor(U), "another name", _ABRAMOWITZ, {}),
    Rule("mod", sympy.Mod(U, V), U - V * floor(U / V), "another name", _PYTORCH, {}),
    Rule("factorial", sympy.factorial(U), gamma(U + 1), "another name", _ABRAMOWITZ, {}),
    Rule("loggamma", sympy.loggamma(U), loggamma(U), "another name", _ABRAMOWITZ, {}),
    Rule("beta", sympy.beta(U, V), exp(loggamma(U) + loggamma(V) - loggamma(U + V)),
         "gamma overflows", _ABRAMOWITZ, {U: 40.0, V: 40.0}),
)  # fmt: skip

ROOTS = (
    Rule("root of a square and a constant", sqrt(U**2 + C), root_sum(U, C),
         "the square overflows", "hypot", {U: 1e20, C: 1.0}),
    Rule("root of exp and a constant", sqrt(exp(U) + C), root_sum(exp(U / 2), C),
         _OVERFLOWS, "hypot", {U: 100.0, C: 1.0}),
    Rule("cube root", U ** sympy.Rational(1, 3), cbrt(U), "real for negative u", "C99 cbrt", {}),
)  # fmt: skip

RULES: tuple[Rule, ...] = (
    *LOGARITHMS, *AREAS, *ANGLES, *SUMS, *PRODUCTS, *POWERS, *BY_HAND, *SIGNS, *REMOVABLE,
    *QUOTIENTS, *ROOTS, *NAMES,
)  # fmt: skip
