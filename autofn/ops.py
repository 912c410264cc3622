"""The table of scalar operations: what each is called in SymPy, PyTorch and C++, and what it costs.

Every backend's printer and the derivation are driven by it. An operation is added here, once:
its SymPy class, its spelling in each backend (with a helper where the library has none), its
partial derivatives, its cost and error bound, and its exact value for simulated arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mpmath
import sympy
from sympy import Expr, Integer, Piecewise, S, exp, pi, sqrt

from autofn import functions as heads
from autofn import precise

Partials = Callable[..., tuple[Expr, ...]]
"""From an operation's arguments to its partial derivatives, one per argument."""


@dataclass(frozen=True)
class Op:
    """A scalar operation of the Programs.

    torch, cpp: format strings over the arguments `{0}`, `{1}`, ... and, for parametrised
        operations, `{n}`. `T` is the compute type in C++. No `torch`: for kernels only.
    cost: in units of one addition, on a CPU's vector unit.
    ulp: bound on the error in float32 of a good library's implementation.
    exact: the value in any precision, from numbers of `precise`; what simulated float32 rounds.
    domain: an interval on which the generic tests of the backends sample every argument.
    """

    name: str
    torch: str
    cpp: str
    cost: float
    ulp: float
    exact: Callable[..., Any]
    sympy: type | None = None
    partials: Partials | None = None
    domain: tuple[float, float] = (-3.0, 3.0)
    boolean: bool = False


def _zero(*args: Expr) -> tuple[Expr, ...]:
    return tuple(S.Zero for _ in args)


def _exp_within_exact(x: Any, n: int) -> Any:
    return precise.exp(x) if abs(x) <= n else math.nan


def _power_in_parts(x: Any, y: Any, x_rest: Any, y_rest: Any) -> Any:
    parts = [
        each + rest if precise.is_finite(rest) and abs(rest) < abs(each) else each
        for each, rest in ((x, x_rest), (y, y_rest))
    ]
    return precise.power(*parts)


@precise.by_mpmath
def _spherical_bessel_exact(x: Any, n: int) -> Any:
    if x == 0 or mpmath.isinf(x):
        return mpmath.mpf(0)
    if x < 0:
        return (-1) ** n * _spherical_bessel_exact(-x, n)
    return mpmath.sqrt(mpmath.pi / (2 * x)) * mpmath.besselj(n + mpmath.mpf(1) / 2, x)


def _turns(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a number of half turns, from x, which may be huge, y and what x lost."""

    @precise.by_mpmath
    def of_quotient(x: Any, y: Any, rest: Any = 0, *order: int) -> Any:
        if y == 0 or mpmath.isnan(x) or not mpmath.isfinite(y):
            return mpmath.nan
        if mpmath.isinf(x):
            return function(x / y, *order)
        if not mpmath.isfinite(rest):
            return mpmath.nan
        more = max(0, mpmath.mag(x) - mpmath.mag(y)) if x else 0
        with mpmath.workprec(mpmath.mp.prec + 20 + min(more, 4000)):
            return function((x + rest) / y, *order)

    return of_quotient


def _spherical_bessel_pi(t: Any, n: int) -> Any:
    u = mpmath.pi * t
    if mpmath.isinf(t) or abs(u) < n + 1:
        return _spherical_bessel_exact(u, n)
    below, at = mpmath.sincpi(t), (mpmath.sincpi(t) - mpmath.cospi(t)) / u
    for k in range(1, n):
        below, at = at, (2 * k + 1) / u * at - below
    return at


_sinpi_exact = _turns(lambda t: mpmath.nan if mpmath.isinf(t) else mpmath.sinpi(t))
_cospi_exact = _turns(lambda t: mpmath.nan if mpmath.isinf(t) else mpmath.cospi(t))
_sincpi_exact = _turns(lambda t: mpmath.mpf(0) if mpmath.isinf(t) else mpmath.sincpi(t))
_spherical_bessel_pi_exact = _turns(_spherical_bessel_pi)


@precise.by_mpmath
def _polygamma_exact(x: Any, n: int = 0) -> Any:
    """mpmath's own steps through the integers below zero one by one: reflected there.

    And it makes an integer of x, of as many digits as x has.
    """
    if mpmath.isfinite(x) and mpmath.mag(x) > mpmath.mp.prec:
        if x < 0:
            return mpmath.nan  # x is an integer
        return (-1) ** (n + 1) * mpmath.factorial(n - 1) / x**n if n else mpmath.log(x)
    if x > -20:
        return mpmath.polygamma(n, x)
    cot = mpmath.cospi(x) / mpmath.sinpi(x)
    # The n-th derivative of the cotangent is a polynomial in it; that of c**k is
    # -k (c**(k - 1) + c**(k + 1)).
    terms = {1: 1}
    for _ in range(n):
        following: dict[int, int] = {}
        for k, factor in terms.items():
            for power in (k - 1, k + 1):
                following[power] = following.get(power, 0) - k * factor
        terms = {power: factor for power, factor in following.items() if factor}
    derivative = mpmath.pi ** (n + 1) * sum(factor * cot**power for power, factor in terms.items())
    return (-1) ** n * mpmath.polygamma(n, 1 - x) - derivative


def _spherical_bessel_partials(n: Expr, x: Expr) -> tuple[Expr, ...]:
    lower = heads.sinc(x) if n == 1 else heads.spherical_bessel(n - 1, x)
    return S.Zero, _bessel_slope(n, lower, heads.spherical_bessel(n + 1, x))


def _bessel_slope(n: Expr, lower: Expr, higher: Expr) -> Expr:
    """The derivative of j_n by its argument, from its neighbours."""
    return (n * lower - (n + 1) * higher) / (2 * n + 1)


def _spherical_bessel_pi_partials(n: Expr, x: Expr, y: Expr) -> tuple[Expr, ...]:
    lower = heads.sincpi(x, y) if n == 1 else heads.spherical_bessel_pi(n - 1, x, y)
    slope = _bessel_slope(n, lower, heads.spherical_bessel_pi(n + 1, x, y))
    return S.Zero, *_along_turns(slope, x, y)


def _along_turns(slope: Expr, x: Expr, y: Expr) -> tuple[Expr, Expr]:
    """The partial derivatives by x and y of a function of pi*x/y."""
    return pi / y * slope, -pi * x / y**2 * slope


def _phi_exact(x: Any, n: int) -> Any:
    if not precise.is_finite(x):
        return 0 / x if x < 0 else x
    if abs(x) >= n + 1:
        value = precise.exp(x)
        for k in range(n):
            value = (value * math.factorial(k) - 1) / (math.factorial(k) * x)
        return value
    term = 1 / (0 * x + math.factorial(n))
    total, k = term, n
    while total + term != total:
        k += 1
        term = term * x / k
        total = total + term
    return total


def _power_partials(b: Expr, e: Expr) -> tuple[Expr, ...]:
    # The guards are those of torch.pow: 0 * inf must not arise at exponent 0 or base 0.
    by_base: Expr = e * heads.power(b, e - 1)
    by_exponent: Expr = heads.power(b, e) * sympy.log(b)
    if not e.is_nonzero:
        by_base = Piecewise((S.Zero, sympy.Eq(e, 0)), (by_base, True))
    if isinstance(b, Piecewise):
        # The same power, of what it is of here: one condition on all of b would be long.
        whole = heads.power(b, e)
        pieces = ((_power_partials(u, e)[1].xreplace({heads.power(u, e): whole}), where)
                  for u, where in b.args)  # fmt: skip
        by_exponent = Piecewise(*pieces, evaluate=False)
    elif not b.is_nonzero:
        by_exponent = Piecewise((S.Zero, sympy.Eq(b, 0) & (e >= 0)), (by_exponent, True))
    return by_base, by_exponent


def _clamp_partials(x: Expr, low: Expr, high: Expr) -> tuple[Expr, ...]:
    def where(condition: Any) -> Expr:
        return Piecewise((S.One, condition), (S.Zero, True))

    return (
        where((x >= low) & (x <= high)),
        where((x < low) & (low < high)),
        where((x > high) | (low > high)),
    )


# Equal to (a + sqrt(a**2 + c))/2 and sqrt(a**2 + c) - sqrt(c), without cancellation: the working
# precision of a simulation is soon lost to it.


def _mean_root_exact(a: Any, c: Any) -> Any:
    root = precise.sqrt(a * a + c)
    return (a + root) / 2 if a >= 0 else c / (2 * (root - a))


def _root_rest_exact(a: Any, c: Any) -> Any:
    if a == 0 or precise.isinf(a):
        return abs(a)
    return a * a / (precise.sqrt(a * a + c) + precise.sqrt(c))


def _root_split_exact(u: Any, v: Any, m: Any, d: Any, c: Any) -> Any:
    small, large = sorted((abs(m), abs(d)))
    if precise.isinf(large):
        size = large if precise.isinf(small) else 2 * small
    else:
        roots = precise.sqrt(u * u + c) + precise.sqrt(v * v + c)
        size = small if roots == 0 else 4 * small * (large / roots)
    return size if (m >= 0) == (d >= 0) else -size


def _share_split_exact(u: Any, v: Any, m: Any, d: Any, c: Any) -> Any:
    roots = [precise.sqrt(each * each + c) for each in (u, v)]
    shares = [
        (each > 0) - (each < 0) if precise.isinf(each) else each / root
        for each, root in zip((u, v), roots, strict=True)
    ]
    if shares[0] * shares[1] <= 0 or precise.isinf(m):
        return shares[0] - shares[1]
    return 4 * c * abs(m) * d / (abs(shares[0]) + abs(shares[1])) / (roots[0] * roots[1]) ** 2


def _root_split_partials(u: Expr, v: Expr, m: Expr, d: Expr, c: Expr) -> tuple[Expr, ...]:
    by_m, by_d = heads.share_split(u, v, m, d, c), heads.share_split(u, -v, d, m, c)
    roots = heads.root_sum(u, c) * heads.root_sum(v, c)
    return S.Zero, S.Zero, by_m, by_d, -heads.root_split(u, v, m, d, c) / (2 * roots)


def _share_split_partials(u: Expr, v: Expr, m: Expr, d: Expr, c: Expr) -> tuple[Expr, ...]:
    above, below = heads.root_sum(u, c), heads.root_sum(v, c)
    squares = 1 / above**2 + 1 / (above * below) + 1 / below**2
    by_m = -c * heads.root_split(u, v, m, d, c) / (above * below) * squares
    rest = heads.share_split(u, v, m, d, c) / above**2
    by_c = -(rest - 4 * m * d * v / (above**2 * below**3)) / 2
    return S.Zero, S.Zero, by_m, c / above**3 + c / below**3, by_c


def _root_rise_exact(x: Any, d: Any) -> Any:
    roots = precise.sqrt(x + d) + precise.sqrt(x)
    return d if roots == 0 else roots if precise.isinf(d) else d / roots


def _softplus_rise_exact(x: Any, d: Any) -> Any:
    low = x if d >= 0 else x + d
    rise = precise.log1p(precise.expm1(abs(d)) / (1 + precise.exp(-low)))
    return rise if d >= 0 else -rise


def _softplus_rise_partials(x: Expr, d: Expr) -> tuple[Expr, ...]:
    y = x + d
    apart = heads.sigmoid(y) * heads.sigmoid(-x) + heads.sigmoid(x) * heads.sigmoid(-y)
    return sympy.tanh(d / 2) * apart, heads.sigmoid(y)


def _softplus_exact(x: Any) -> Any:
    return (x if x > 0 else 0) + precise.log1p(precise.exp(-abs(x)))


def _softplus_divergence_exact(u: Any, v: Any) -> Any:
    low, to = -abs(u), (-v if u > 0 else v)
    d, share = to - low, precise.exp(low) / (1 + precise.exp(low))
    if abs(d) < 1:
        return _log1pmx_exact(share * precise.expm1(d)) + share * _expm1mx_exact(d)
    return _softplus_exact(to) - _softplus_exact(low) - (share * d if share else 0)


def _expm1mx_exact(x: Any) -> Any:
    return x * x * _phi_exact(x, 2) if abs(x) < 1 else precise.expm1(x) - x


def _log1pmx_exact(x: Any) -> Any:
    if abs(x) < 2.0**-60:
        return x * x * (x / 3 - 0.5 - x * x * (0.25 - x / 5))
    return precise.log1p(x) - x


def _pow1pm1_exact(x: Any, y: Any) -> Any:
    return precise.expm1(y * precise.log1p(x)) if x > -1 else precise.power(1 + x, y) - 1


def _hermite_mean(mh: Any, h: Any) -> Any:
    """The mean of exp(-m*t - t**2/2) over |t| < h, h and m*h at most 1/2: Hermite's polynomials."""
    before, at, total, n = mpmath.mpf(1), mh / 2, mpmath.mpf(1), 1
    while n % 2 or abs(at) + abs(before) > mpmath.eps:
        before, at = at, (mh * at - h * h * before * n / (n + 1)) / (n + 2)
        total += at if n % 2 else 0
        n += 1
    return total


def _mills(t: Any) -> Any:
    """normcdf(-t) / density(t), t >= 0."""
    if mpmath.isinf(t):
        return mpmath.mpf(0)
    if t < 10000:
        return mpmath.sqrt(mpmath.pi / 2) * mpmath.exp(t * t / 2) * mpmath.erfc(t / mpmath.sqrt(2))
    total, term, n = mpmath.mpf(0), mpmath.mpf(1), 1
    while abs(term) > mpmath.eps:
        total, term, n = total + term, -term * n / (t * t), n + 2
    return total / t


def _density(t: Any) -> Any:
    return mpmath.exp(-t * t / 2) / mpmath.sqrt(2 * mpmath.pi)


@dataclass(frozen=True)
class _NormalMass:
    """As `templates/primitives/normal_mass.h` has it."""

    logarithm: Any
    upper: Any
    lower: Any
    mean: Any

    @staticmethod
    def between(u: Any, v: Any, d: Any) -> _NormalMass:
        nothing = _NormalMass(*[mpmath.nan] * 4)
        if mpmath.isnan(u + d) or mpmath.isnan(v + d):
            return nothing
        if d < 0:
            back = _NormalMass.between(v, u, -d)
            return _NormalMass(mpmath.nan, -back.lower, -back.upper, back.mean)
        twice = u + v
        if mpmath.isnan(twice):
            return _NormalMass(mpmath.mpf(0), mpmath.mpf(0), mpmath.mpf(0), mpmath.mpf(0))
        near, far = (v, u) if twice >= 0 else (-u, -v)
        middle, h, root = abs(twice) / 2, d / 2, mpmath.sqrt(2 * mpmath.pi)
        lost = far - near - d
        single = mpmath.isfinite(d) and d.man.bit_length() <= 24
        step = d + lost if abs(lost) < 2.0 ** (-22 if single else -51) * d else d
        if d == 0:
            mean = middle if twice >= 0 else -middle
            return _NormalMass(-mpmath.inf, mpmath.inf, mpmath.inf, mean)
        if d * max(middle, 1) < 1:
            part = d * _hermite_mean(middle * h, h)
            logarithm = mpmath.log(part / root) - middle * middle / 2
            at_near = mpmath.exp(h * (middle - h / 2)) / part
            at_far = mpmath.exp(-h * (middle + h / 2)) / part
            mean = -at_near * mpmath.expm1(-d * middle)
        elif near > 0:
            decay = mpmath.exp(-step * middle)
            within = _mills(near) - decay * _mills(far)
            logarithm = mpmath.log(within / root) - near * near / 2
            at_near, at_far, mean = 1 / within, decay / within, (1 - decay) / within
        else:
            at_near, at_far = _density(near), _density(far)
            outside = at_near * _mills(-near) + at_far * _mills(far)
            logarithm, mass = mpmath.log1p(-outside), 1 - outside
            at_near, at_far = at_near / mass, at_far / mass
            mean = -at_near * mpmath.expm1(-step * middle)
        if twice >= 0:
            return _NormalMass(logarithm, at_far, at_near, mean)
        return _NormalMass(logarithm, at_near, at_far, -mean)


def _of_normal_mass(part: str) -> Callable[..., Any]:
    @precise.by_mpmath
    def exact(u: Any, v: Any, d: Any) -> Any:
        value = getattr(_NormalMass.between(u, v, d), part)
        return mpmath.mpf(0) if 0 < abs(value) < mpmath.ldexp(1, -precise.IN_RANGE) else value

    return exact


def _normal_mass_upper_partials(u: Expr, v: Expr, d: Expr) -> tuple[Expr, ...]:
    upper, lower = heads.normal_mass_upper(u, v, d), heads.normal_mass_lower(u, v, d)
    return -upper * (u + upper), upper * lower, S.Zero


def _normal_mass_lower_partials(u: Expr, v: Expr, d: Expr) -> tuple[Expr, ...]:
    upper, lower = heads.normal_mass_upper(u, v, d), heads.normal_mass_lower(u, v, d)
    return -upper * lower, lower * (lower - v), S.Zero


def _normal_mass_mean_partials(u: Expr, v: Expr, d: Expr) -> tuple[Expr, ...]:
    upper, lower = heads.normal_mass_upper(u, v, d), heads.normal_mass_lower(u, v, d)
    mean = heads.normal_mass_mean(u, v, d)
    return upper * (u - mean), lower * (mean - v), S.Zero


@precise.by_mpmath
def _loggamma_exact(x: Any) -> Any:
    return mpmath.re(mpmath.loggamma(x))


# fmt: off (one line or two per operation: a table)
_TABLE = [
    # arithmetic
    Op("add", "{0} + {1}", "{0} + {1}", 1, 0.5, lambda a, b: a + b),
    Op("sub", "{0} - {1}", "{0} - {1}", 1, 0.5, lambda a, b: a - b),
    Op("mul", "{0} * {1}", "{0} * {1}", 1, 0.5, lambda a, b: a * b),
    Op(
        "div",
        "{0} / {1}",
        "{0} / {1}",
        8,
        0.5,
        lambda a, b: a / b if b != 0 else a * math.nan,
        domain=(0.5, 3.0),
    ),
    Op("neg", "-{0}", "-{0}", 1, 0.0, lambda a: -a),
    Op("square", "{0}**2", "square({0})", 1, 0.5, lambda a: a * a),
    Op("powi", "{0}**{n}", "powi<{n}>({0})", 3, 2.0, lambda a, n: a**n),
    Op("sqrt", "torch.sqrt({0})", "std::sqrt({0})", 8, 0.5, precise.sqrt, domain=(0.0, 3.0)),
    Op(
        "rsqrt",
        "torch.rsqrt({0})",
        "T(1) / std::sqrt({0})",
        10,
        1.5,
        lambda a: 1 / precise.sqrt(a),
        domain=(0.1, 3.0),
    ),
    Op(
        "cbrt",
        "_cbrt({0})",
        "autofn::cbrt({0})",
        12,
        1.0,
        lambda a: precise.sign(a) * precise.cbrt(abs(a)),
        heads.cbrt,
        lambda u: (1 / (3 * heads.cbrt(u) ** 2),),
    ),
    Op(
        "pow",
        "torch.pow({0}, {1})",
        "autofn::pow({0}, {1})",
        30,
        1.0,
        precise.power,
        heads.power,
        _power_partials,
        domain=(0.2, 3.0),
    ),
    Op(
        "root_sum",
        "_root_sum({0}, {1})",
        "root_sum({0}, {1})",
        14,
        1.0,
        lambda a, c: precise.sqrt(a * a + c),
        heads.root_sum,
        lambda a, c: (a / heads.root_sum(a, c), 1 / (2 * heads.root_sum(a, c))),
        domain=(0.1, 3.0),
    ),
    Op(
        "mean_root",
        "_mean_root({0}, {1})",
        "mean_root({0}, {1})",
        24,
        2.0,
        _mean_root_exact,
        heads.mean_root,
        lambda a, c: (
            heads.mean_root(a, c) / heads.root_sum(a, c),
            1 / (4 * heads.root_sum(a, c)),
        ),
        domain=(0.1, 3.0),
    ),
    Op(
        "mean_any_root",
        "_mean_any_root({0}, {1})",
        "mean_any_root({0}, {1})",
        28,
        2.0,
        _mean_root_exact,
        heads.mean_any_root,
        lambda a, c: (
            heads.mean_any_root(a, c) / sqrt(a**2 + c),
            1 / (4 * sqrt(a**2 + c)),
        ),
        domain=(0.1, 3.0),
    ),
    Op(
        "root_split",
        "_root_split({0}, {1}, {2}, {3}, {4})",
        "root_split({0}, {1}, {2}, {3}, {4})",
        44,
        3.0,
        _root_split_exact,
        heads.root_split,
        _root_split_partials,
        domain=(0.1, 3.0),
    ),
    Op(
        "share_split",
        "_share_split({0}, {1}, {2}, {3}, {4})",
        "share_split({0}, {1}, {2}, {3}, {4})",
        80,
        5.0,
        _share_split_exact,
        heads.share_split,
        _share_split_partials,
        domain=(0.1, 3.0),
    ),
    Op(
        "root_rise",
        "_root_rise({0}, {1})",
        "root_rise({0}, {1})",
        28,
        2.5,
        _root_rise_exact,
        heads.root_rise,
        lambda x, d: (
            -heads.root_rise(x, d) / (2 * sqrt(x) * sqrt(x + d)),
            1 / (2 * sqrt(x + d)),
        ),
        domain=(0.1, 3.0),
    ),
    Op(
        "root_rest",
        "_root_rest({0}, {1})",
        "root_rest({0}, {1})",
        26,
        2.8,
        _root_rest_exact,
        heads.root_rest,
        lambda a, c: (
            a / heads.root_sum(a, c),
            1 / (2 * heads.root_sum(a, c)) - 1 / (2 * sqrt(c)),
        ),
        domain=(0.1, 3.0),
    ),
    # exponentials and logarithms
    Op(
        "exp",
        "torch.exp({0})",
        "autofn::exp<kWay>({0})",
        12,
        1.0,
        precise.exp,
        sympy.exp,
        lambda u: (exp(u),),
    ),
    Op(
        "exp_product",
        "torch.exp({0} * {1})",
        "autofn::exp_product<kWay>({0}, {1})",
        15,
        2.0,
        lambda a, b: precise.exp(a * b),
    ),
    Op(
        "times_exp",
        "_times_exp({0}, {1})",
        "autofn::times_exp<kWay>({0}, {1})",
        14,
        2.0,
        lambda v, u: v * precise.exp(u),
        heads.times_exp,
        lambda v, u: (exp(u), heads.times_exp(v, u)),
    ),
    Op(
        "xlogy",
        "_xlogy({0}, {1})",
        "xlogy<kWay>({0}, {1})",
        17,
        1.5,
        lambda v, u: v if v == 0 and u >= 0 else v * precise.log(u),
        heads.xlogy,
        lambda v, u: (sympy.log(u), v / u),
        domain=(0.1, 3.0),
    ),
    Op(
        "xlog1py",
        "_xlog1py({0}, {1})",
        "xlog1py<kWay>({0}, {1})",
        19,
        1.5,
        lambda v, u: v if v == 0 and u >= -1 else v * precise.log1p(u),
        heads.xlog1py,
        lambda v, u: (heads.log1p(u), v / (1 + u)),
        domain=(-0.9, 3.0),
    ),
    Op(
        "expm1",
        "torch.expm1({0})",
        "autofn::expm1<kWay>({0})",
        16,
        1.0,
        precise.expm1,
        heads.expm1,
        lambda u: (exp(u),),
    ),
    Op(
        "expm1mx",
        "_expm1mx({0})",
        "expm1mx<kWay>({0})",
        36,
        3.0,
        _expm1mx_exact,
        heads.expm1mx,
        lambda u: (heads.expm1(u),),
    ),
    Op(
        "log1pmx",
        "_log1pmx({0})",
        "log1pmx({0})",
        44,
        3.0,
        _log1pmx_exact,
        heads.log1pmx,
        lambda u: (-u / (1 + u),),
        domain=(-0.9, 3.0),
    ),
    Op(
        "pow1pm1",
        "_pow1pm1({0}, {1})",
        "pow1pm1({0}, {1})",
        64,
        3.0,
        _pow1pm1_exact,
        heads.pow1pm1,
        lambda u, v: (v * (1 + u) ** (v - 1), S.Zero) if v.is_number else _power_partials(1 + u, v),
        domain=(0.1, 3.0),
    ),
    Op(
        "log",
        "torch.log({0})",
        "autofn::log<kWay>({0})",
        14,
        1.0,
        precise.log,
        sympy.log,
        lambda u: (1 / u,),
        domain=(0.1, 3.0),
    ),
    Op(
        "log1p",
        "torch.log1p({0})",
        "autofn::log1p<kWay>({0})",
        16,
        1.0,
        precise.log1p,
        heads.log1p,
        lambda u: (1 / (1 + u),),
        domain=(-0.9, 3.0),
    ),
    Op(
        "sigmoid",
        "torch.sigmoid({0})",
        "sigmoid<kWay>({0})",
        22,
        2.5,
        lambda a: 1 / (1 + precise.exp(-a)),
        heads.sigmoid,
        lambda u: (heads.sigmoid(u) * heads.sigmoid(-u),),
    ),
    Op(
        "softplus",
        "_softplus({0})",
        "softplus<kWay>({0})",
        32,
        2.0,
        lambda a: precise.log1p(precise.exp(a)),
        heads.softplus,
        lambda u: (heads.sigmoid(u),),
    ),
    Op(
        "softplus_rise",
        "_softplus_rise({0}, {1})",
        "softplus_rise<kWay>({0}, {1})",
        80,
        4.0,
        _softplus_rise_exact,
        heads.softplus_rise,
        _softplus_rise_partials,
    ),
    Op(
        "softplus_divergence",
        "_softplus_divergence({0}, {1})",
        "softplus_divergence<kWay>({0}, {1})",
        260,
        0.6,
        _softplus_divergence_exact,
        heads.softplus_divergence,
        lambda u, v: (
            (u - v) * heads.sigmoid(u) * heads.sigmoid(-u),
            heads.sigmoid(v) - heads.sigmoid(u),
        ),
    ),
    Op(
        "log1mexp",
        "_log1mexp({0})",
        "log1mexp<kWay>({0})",
        64,
        2.0,
        lambda u: precise.log(-precise.expm1(u)),
        heads.log1mexp,
        lambda u: (-1 / heads.expm1(-u),),
        domain=(-5.0, -0.1),
    ),
    Op(
        "logaddexp",
        "torch.logaddexp({0}, {1})",
        "logaddexp<kWay>({0}, {1})",
        34,
        2.0,
        lambda a, b: precise.log(precise.exp(a) + precise.exp(b)),
        heads.logaddexp,
        lambda a, b: (heads.sigmoid(a - b), heads.sigmoid(b - a)),
    ),
    Op(
        "logcosh",
        "_logcosh({0})",
        "logcosh<kWay>({0})",
        36,
        3.0,
        lambda a: precise.log1p(2 * precise.sinh(a / 2) ** 2),
        heads.logcosh,
        lambda u: (sympy.tanh(u),),
    ),
    # trigonometric and hyperbolic functions
    Op(
        "sin",
        "torch.sin({0})",
        "autofn::sin<kWay>({0})",
        16,
        1.0,
        precise.sin,
        sympy.sin,
        lambda u: (sympy.cos(u),),
    ),
    Op(
        "cos",
        "torch.cos({0})",
        "autofn::cos<kWay>({0})",
        16,
        1.0,
        precise.cos,
        sympy.cos,
        lambda u: (-sympy.sin(u),),
    ),
    Op(
        "tan",
        "torch.tan({0})",
        "autofn::tan({0})",
        24,
        1.5,
        precise.tan,
        sympy.tan,
        lambda u: (1 + sympy.tan(u) ** 2,),
        domain=(-1.4, 1.4),
    ),
    Op(
        "asin",
        "torch.asin({0})",
        "autofn::asin({0})",
        20,
        1.5,
        precise.asin,
        sympy.asin,
        lambda u: (1 / sqrt((1 - u) * (1 + u)),),
        domain=(-0.9, 0.9),
    ),
    Op(
        "acos",
        "torch.acos({0})",
        "autofn::acos({0})",
        20,
        1.5,
        precise.acos,
        sympy.acos,
        lambda u: (-1 / sqrt((1 - u) * (1 + u)),),
        domain=(-0.9, 0.9),
    ),
    Op(
        "atan",
        "torch.atan({0})",
        "autofn::atan({0})",
        20,
        1.5,
        precise.atan,
        sympy.atan,
        lambda u: (1 / (1 + u**2),),
    ),
    Op(
        "atan2",
        "torch.atan2({0}, {1})",
        "autofn::atan2({0}, {1})",
        28,
        1.5,
        precise.atan2,
        sympy.atan2,
        lambda y, x: (x / (x**2 + y**2), -y / (x**2 + y**2)),
        domain=(0.2, 3.0),
    ),
    Op(
        "sinh",
        "_sinh({0})",
        "autofn::sinh({0})",
        20,
        1.5,
        precise.sinh,
        sympy.sinh,
        lambda u: (sympy.cosh(u),),
    ),
    Op(
        "cosh",
        "_cosh({0})",
        "autofn::cosh({0})",
        20,
        1.5,
        precise.cosh,
        sympy.cosh,
        lambda u: (sympy.sinh(u),),
    ),
    Op(
        "tanh",
        "torch.tanh({0})",
        "autofn::tanh<kWay>({0})",
        18,
        1.0,
        precise.tanh,
        sympy.tanh,
        lambda u: (heads.sech2(u),),
    ),
    Op(
        "sech2",
        "_sech2({0})",
        "sech2<kWay>({0})",
        24,
        3.0,
        lambda a: precise.sech(a) ** 2,
        heads.sech2,
        lambda u: (-2 * sympy.tanh(u) * heads.sech2(u),),
    ),
    Op(
        "asinh",
        "torch.asinh({0})",
        "autofn::asinh({0})",
        24,
        2.0,
        precise.asinh,
        sympy.asinh,
        lambda u: (1 / sqrt(1 + u**2),),
    ),
    Op(
        "acosh",
        "torch.acosh({0})",
        "autofn::acosh({0})",
        24,
        2.0,
        precise.acosh,
        sympy.acosh,
        lambda u: (1 / (sqrt(u - 1) * sqrt(u + 1)),),
        domain=(1.1, 3.0),
    ),
    Op(
        "atanh",
        "torch.atanh({0})",
        "autofn::atanh({0})",
        24,
        2.0,
        precise.atanh,
        sympy.atanh,
        lambda u: (1 / ((1 - u) * (1 + u)),),
        domain=(-0.9, 0.9),
    ),
    Op(
        "sinc",
        "_sinc({0})",
        "sinc<kWay>({0})",
        26,
        2.0,
        precise.sinc,
        heads.sinc,
        lambda u: (-heads.spherical_bessel(Integer(1), u),),
    ),
    Op(
        "spherical_bessel",
        "_spherical_bessel({n}, {0})",
        "spherical_bessel<{n}, kWay>({0})",
        40,
        4.0,
        _spherical_bessel_exact,
        heads.spherical_bessel,
        _spherical_bessel_partials,
    ),
    Op(
        "sinpi",
        "_sinpi({0}, {1})",
        "autofn::sinpi<kWay>({0}, {1})",
        24,
        2.0,
        _sinpi_exact,
        heads.sinpi,
        lambda x, y: _along_turns(heads.cospi(x, y), x, y),
        domain=(0.5, 9.0),
    ),
    Op(
        "cospi",
        "_cospi({0}, {1})",
        "autofn::cospi<kWay>({0}, {1})",
        24,
        2.1,
        _cospi_exact,
        heads.cospi,
        lambda x, y: _along_turns(-heads.sinpi(x, y), x, y),
        domain=(0.5, 9.0),
    ),
    Op(
        "sincpi",
        "_sincpi({0}, {1})",
        "sincpi<kWay>({0}, {1})",
        34,
        3.5,
        _sincpi_exact,
        heads.sincpi,
        lambda x, y: _along_turns(-heads.spherical_bessel_pi(Integer(1), x, y), x, y),
        domain=(0.5, 9.0),
    ),
    Op(
        "spherical_bessel_pi",
        "_spherical_bessel_pi({n}, {0}, {1})",
        "spherical_bessel_pi<{n}, kWay>({0}, {1})",
        50,
        6.0,
        lambda x, y, n: _spherical_bessel_pi_exact(x, y, 0, n),
        heads.spherical_bessel_pi,
        _spherical_bessel_pi_partials,
        domain=(0.5, 9.0),
    ),
    Op(
        "phi",
        "_phi({n}, {0})",
        "phi<{n}>({0})",
        30,
        6.1,
        _phi_exact,
        heads.phi,
        lambda n, u: (S.Zero, heads.phi(n, u) - n * heads.phi(n + 1, u)),
    ),
    # error and gamma functions
    Op(
        "erf",
        "torch.erf({0})",
        "autofn::erf<kWay>({0})",
        24,
        1.0,
        precise.erf,
        sympy.erf,
        lambda u: (2 / sqrt(pi) * exp(-(u**2)),),
    ),
    Op(
        "erfc",
        "torch.erfc({0})",
        "autofn::erfc({0})",
        28,
        1.7,
        precise.erfc,
        sympy.erfc,
        lambda u: (-2 / sqrt(pi) * exp(-(u**2)),),
    ),
    Op(
        "log_normal_mass",
        "_log_normal_mass({0}, {1}, {2})",
        "autofn::log_normal_mass({0}, {1}, {2})",
        250,
        2.0,
        _of_normal_mass("logarithm"),
        heads.log_normal_mass,
        # u - v is that, not a third number that moves.
        lambda *args: (heads.normal_mass_upper(*args), -heads.normal_mass_lower(*args), S.Zero),
    ),
    Op(
        "normal_mass_upper",
        "_normal_mass_upper({0}, {1}, {2})",
        "autofn::normal_mass_upper({0}, {1}, {2})",
        250,
        2.0,
        _of_normal_mass("upper"),
        heads.normal_mass_upper,
        _normal_mass_upper_partials,
    ),
    Op(
        "normal_mass_lower",
        "_normal_mass_lower({0}, {1}, {2})",
        "autofn::normal_mass_lower({0}, {1}, {2})",
        250,
        2.0,
        _of_normal_mass("lower"),
        heads.normal_mass_lower,
        _normal_mass_lower_partials,
    ),
    Op(
        "normal_mass_mean",
        "_normal_mass_mean({0}, {1}, {2})",
        "autofn::normal_mass_mean({0}, {1}, {2})",
        250,
        2.0,
        _of_normal_mass("mean"),
        heads.normal_mass_mean,
        _normal_mass_mean_partials,
    ),
    Op(
        "normcdf",
        "_normcdf({0})",
        "autofn::normcdf<kWay>({0})",
        30,
        4.0,
        precise.ncdf,
        heads.normcdf,
        lambda u: (exp(-(u**2) / 2) / sqrt(2 * pi),),
    ),
    Op(
        "gamma",
        "_gamma({0})",
        "std::tgamma({0})",
        60,
        5.5,
        precise.gamma,
        sympy.gamma,
        lambda u: (sympy.gamma(u) * sympy.polygamma(0, u),),
        domain=(0.2, 3.0),
    ),
    Op(
        "loggamma",
        "torch.lgamma({0})",
        "std::lgamma({0})",
        60,
        4.5,
        _loggamma_exact,
        heads.loggamma,
        lambda u: (sympy.polygamma(0, u),),
        domain=(0.2, 3.0),
    ),
    Op(
        "digamma",
        "torch.digamma({0})",
        "digamma({0})",
        80,
        4.0,
        _polygamma_exact,
        domain=(0.2, 3.0),
    ),
    Op(
        "polygamma",
        "_polygamma({n}, {0})",
        "polygamma<{n}>({0})",
        120,
        7.0,
        _polygamma_exact,
        sympy.polygamma,
        lambda n, u: (S.Zero, sympy.polygamma(n + 1, u)),
        domain=(0.2, 3.0),
    ),
    # steps and kinks; their gradients follow PyTorch (see derive)
    Op(
        "abs",
        "torch.abs({0})",
        "std::fabs({0})",
        1,
        0.0,
        abs,
        sympy.Abs,
        lambda u: (sympy.sign(u),),
    ),
    Op("sign", "_sign({0})", "sign({0})", 2, 0.0, precise.sign, sympy.sign, _zero),
    Op("floor", "torch.floor({0})", "std::floor({0})", 1, 0.0, precise.floor, sympy.floor, _zero),
    Op("ceil", "torch.ceil({0})", "std::ceil({0})", 1, 0.0, precise.ceil, sympy.ceiling, _zero),
    Op("relu", "torch.relu({0})", "maximum({0}, T(0))", 1, 0.0, lambda a: max(a, 0)),
    Op("max", "torch.maximum({0}, {1})", "maximum({0}, {1})", 2, 0.0, max),
    Op("min", "torch.minimum({0}, {1})", "minimum({0}, {1})", 2, 0.0, min),
    Op(
        "clamp",
        "torch.clamp({0}, {1}, {2})",
        "clamp({0}, {1}, {2})",
        2,
        0.0,
        lambda x, low, high: min(max(x, low), high),
        heads.clamp,
        _clamp_partials,
    ),
    # relations and logic
    Op(
        "lt",
        "{0} < {1}",
        "{0} < {1}",
        1,
        0.0,
        lambda a, b: a < b,
        sympy.StrictLessThan,
        boolean=True,
    ),
    Op("le", "{0} <= {1}", "{0} <= {1}", 1, 0.0, lambda a, b: a <= b, sympy.LessThan, boolean=True),
    Op(
        "gt",
        "{0} > {1}",
        "{0} > {1}",
        1,
        0.0,
        lambda a, b: a > b,
        sympy.StrictGreaterThan,
        boolean=True,
    ),
    Op(
        "ge",
        "{0} >= {1}",
        "{0} >= {1}",
        1,
        0.0,
        lambda a, b: a >= b,
        sympy.GreaterThan,
        boolean=True,
    ),
    Op("eq", "{0} == {1}", "{0} == {1}", 1, 0.0, lambda a, b: a == b, sympy.Equality, boolean=True),
    Op(
        "ne",
        "{0} != {1}",
        "{0} != {1}",
        1,
        0.0,
        lambda a, b: a != b,
        sympy.Unequality,
        boolean=True,
    ),
    Op("and", "{0} & {1}", "{0} && {1}", 1, 0.0, lambda a, b: a and b, sympy.And, boolean=True),
    Op("or", "{0} | {1}", "{0} || {1}", 1, 0.0, lambda a, b: a or b, sympy.Or, boolean=True),
    Op("not", "~{0}", "!{0}", 1, 0.0, lambda a: not a, sympy.Not, boolean=True),
    Op(
        "select",
        "torch.where({0}, {1}, {2})",
        "{0} ? {1} : {2}",
        1,
        0.0,
        lambda c, a, b: a if c else b,
    ),
]
# fmt: on

# What kernels have beside it. `_of_sum`: the argument in two parts, of which the second is what the
# first lost in rounding. `times_`: the first argument times a function that may be subnormal.
_TABLE += [
    Op("sum_rest", "", "sum_rest({0}, {1})", 6, 0.0, lambda a, b: a + b - (a + b)),
    Op("product_rest", "", "std::fma({0}, {1}, -({0} * {1}))", 1, 0.0, lambda a, b: a * b - a * b),
    Op("constant_rest", "", "", 0, 0.5, lambda: 0),
    Op("along", "_along({0}, {1})", "along({0}, {1})", 1, 0.0, lambda d, v: v if d else 0 * d),
    # c0*t**n + ... + cn, {1} its coefficients; in single precision without the first {n}.
    Op(
        "polynomial",
        "",
        "polynomial<{n}>({0}, {1})",
        1,
        0.5,
        lambda t, *c: precise.polyval(c[:-1], t),
    ),
    Op("fma", "", "std::fma({0}, {1}, {2})", 1, 0.5, lambda a, b, c: a * b + c),
    Op(
        "decay",
        "",
        "autofn::value(autofn::decay<kWay>({0}))",
        12,
        1.0,
        lambda a: precise.exp(-a),
        domain=(0.0, 3.0),
    ),
    Op(
        "decay_of_sum",
        "",
        "autofn::value(autofn::decay<kWay>({0}, {1}))",
        13,
        1.0,
        lambda a, b: precise.exp(b - a),
        domain=(0.0, 3.0),
    ),
    Op("exp_within", "", "autofn::exp_within<{n}, kWay>({0})", 11, 1.0, _exp_within_exact),
    Op(
        "exp_within_of_sum",
        "",
        "autofn::exp_within<{n}, kWay>({0}, {1})",
        12,
        1.0,
        lambda a, b, n: _exp_within_exact(a + b, n),
    ),
    Op(
        "pow_in_parts",  # what the base and the exponent lost behind them
        "",
        "autofn::pow({0}, {1}, {2}, {3})",
        36,
        1.0,
        _power_in_parts,
        domain=(0.2, 3.0),
    ),
    Op(
        "exp_of_sum",
        "",
        "autofn::exp<kWay>({0}, {1})",
        13,
        1.0,
        lambda a, b: precise.exp(a + b),
    ),
    Op(
        "times_exp_of_sum",
        "",
        "autofn::times_exp<kWay>({0}, {1}, {2})",
        15,
        1.5,
        lambda v, a, b: v * precise.exp(a + b),
    ),
    Op(
        "times_exp_product",
        "",
        "autofn::times_exp_product<kWay>({0}, {1}, {2})",
        16,
        1.5,
        lambda v, a, b: v * precise.exp(a * b),
    ),
    Op(
        "sigmoid_of_sum",
        "",
        "sigmoid<kWay>({0}, {1})",
        23,
        2.0,
        lambda a, b: 1 / (1 + precise.exp(-a - b)),
    ),
    Op(
        "softplus_of_sum",
        "",
        "softplus<kWay>({0}, {1})",
        33,
        2.0,
        lambda a, b: precise.log1p(precise.exp(a + b)),
    ),
    Op("sech2_of_sum", "", "sech2<kWay>({0}, {1})", 25, 2.5, lambda a, b: precise.sech(a + b) ** 2),
    Op("sinh_of_sum", "", "autofn::sinh({0}, {1})", 23, 2.0, lambda a, b: precise.sinh(a + b)),
    Op("cosh_of_sum", "", "autofn::cosh({0}, {1})", 23, 2.0, lambda a, b: precise.cosh(a + b)),
    Op(
        "expm1_of_sum",
        "",
        "autofn::expm1<kWay>({0}, {1})",
        18,
        1.5,
        lambda a, b: precise.expm1(a + b),
    ),
    Op("erfc_of_sum", "", "autofn::erfc({0}, {1})", 42, 2.5, lambda a, b: precise.erfc(a + b)),
    Op(
        "normcdf_of_sum",
        "",
        "autofn::normcdf<kWay>({0}, {1})",
        44,
        4.5,
        lambda a, b: precise.ncdf(a + b),
    ),
    Op(
        "times_normcdf_of_sum",
        "",
        "autofn::times_normcdf<kWay>({0}, {1}, {2})",
        46,
        4.5,
        lambda v, a, b: v * precise.ncdf(a + b),
    ),
    Op("sin_of_sum", "", "autofn::sin<kWay>({0}, {1})", 17, 1.0, lambda a, b: precise.sin(a + b)),
    Op("cos_of_sum", "", "autofn::cos<kWay>({0}, {1})", 17, 1.0, lambda a, b: precise.cos(a + b)),
    Op(
        "spherical_bessel_of_sum",
        "",
        "spherical_bessel<{n}, kWay>({0}, {1})",
        41,
        4.0,
        lambda a, b, n: _spherical_bessel_exact(a + b, n),
    ),
    Op("sinc_of_sum", "", "sinc<kWay>({0}, {1})", 27, 2.0, lambda a, b: precise.sinc(a + b)),
    Op(
        "sinpi_of_sum",
        "",
        "autofn::sinpi<kWay>({0}, {1}, {2})",
        25,
        2.0,
        _sinpi_exact,
        domain=(0.5, 9.0),
    ),
    Op(
        "cospi_of_sum",
        "",
        "autofn::cospi<kWay>({0}, {1}, {2})",
        25,
        2.0,
        _cospi_exact,
        domain=(0.5, 9.0),
    ),
    Op(
        "sincpi_of_sum",
        "",
        "sincpi<kWay>({0}, {1}, {2})",
        35,
        3.5,
        _sincpi_exact,
        domain=(0.5, 9.0),
    ),
    Op(
        "spherical_bessel_pi_of_sum",
        "",
        "spherical_bessel_pi<{n}, kWay>({0}, {1}, {2})",
        51,
        6.0,
        _spherical_bessel_pi_exact,
        domain=(0.5, 9.0),
    ),
    Op(
        "times_lower",
        "",
        "times_lower<kWay>({0}, {1})",
        5,
        1.5,
        lambda v, u: v if u >= 0 else v * precise.exp(u),
    ),
    Op(
        "times_lower_of_sum",
        "",
        "times_lower<kWay>({0}, {1}, {2})",
        6,
        1.5,
        lambda v, a, b: v if a + b >= 0 else v * precise.exp(a + b),
    ),
    Op(
        "sigmoid_minus",
        "",
        "sigmoid<kWay, true>({0})",
        22,
        2.5,
        lambda a: 1 / (1 + precise.exp(a)),
    ),
    Op(
        "sigmoid_minus_of_sum",
        "",
        "sigmoid<kWay, true>({0}, {1})",
        23,
        2.0,
        lambda a, b: 1 / (1 + precise.exp(a + b)),
    ),
    Op(
        "times_sigmoid_minus",
        "",
        "times_sigmoid<kWay, true>({0}, {1})",
        25,
        2.0,
        lambda v, u: v / (1 + precise.exp(u)),
    ),
    Op(
        "times_sigmoid_minus_of_sum",
        "",
        "times_sigmoid<kWay, true>({0}, {1}, {2})",
        26,
        2.0,
        lambda v, a, b: v / (1 + precise.exp(a + b)),
    ),
    Op(
        "times_sigmoid",
        "",
        "times_sigmoid<kWay>({0}, {1})",
        25,
        2.0,
        lambda v, u: v / (1 + precise.exp(-u)),
    ),
    Op(
        "times_sigmoid_of_sum",
        "",
        "times_sigmoid<kWay>({0}, {1}, {2})",
        26,
        2.0,
        lambda v, a, b: v / (1 + precise.exp(-a - b)),
    ),
    Op(
        "times_sech2",
        "",
        "times_sech2<kWay>({0}, {1})",
        26,
        3.0,
        lambda v, u: v * precise.sech(u) ** 2,
    ),
    Op(
        "times_sech2_of_sum",
        "",
        "times_sech2<kWay>({0}, {1}, {2})",
        27,
        3.0,
        lambda v, a, b: v * precise.sech(a + b) ** 2,
    ),
    Op(
        "times_normcdf",
        "",
        "autofn::times_normcdf<kWay>({0}, {1})",
        32,
        4.0,
        lambda v, u: v * precise.ncdf(u),
    ),
]

OPS: Mapping[str, Op] = {op.name: op for op in _TABLE}

# fmt: off (a table)
QUICK: Mapping[str, float] = {
    "exp": 10,
    "exp_product": 10,
    "times_exp": 10,
    "decay": 10,
    "times_lower": 10,
    "sigmoid": 16,
    "sigmoid_minus": 16,
    "times_sigmoid": 16,
    "times_sigmoid_minus": 16,
    "sech2": 24,
    "times_sech2": 24,
    "normcdf": 24,
    "times_normcdf": 24,
    "expm1": 24,
    "log": 16,
    "log1p": 16,
    "xlogy": 18,
    "xlog1py": 18,
    "softplus": 32,
    "logaddexp": 32,
    "logcosh": 64,
    "erf": 16,
}
# fmt: on
"""The bound on the error in float32 of what has a quick way on a GPU; see `quick_ulp`."""

BOUNDED = frozenset("log log1p xlogy xlog1py logaddexp logcosh erf".split())
"""Of these, what no rounding of a large argument spoils: the others are exponentials."""


def quick_ulp(op: str, factor: Any) -> float:
    """The bound for an operation whose value, or factor of it, is known: exponentials lose more, by
    the roundings of their argument, for which they do without what it lost. 0 if it has none."""
    name = op.removesuffix("_of_sum").replace("times_exp_product", "times_exp")
    if name not in QUICK:
        return 0.0
    if name in BOUNDED or not factor or not precise.is_finite(factor):
        return QUICK[name]
    size = precise.log(abs(factor))
    size = max(size, 0) if name == "expm1" else abs(size)
    # Beyond that it has overflowed, or vanished.
    return QUICK[name] + 2.0 * float(min(size, 200))


QUICK_DOUBLE = 2.0**-34
"""The bound on the relative error of quick functions in double: see `in_double.h`."""

WAVES = frozenset(
    f"{op}{parts}"
    for op in "sin cos sinc spherical_bessel sinpi cospi sincpi spherical_bessel_pi".split()
    for parts in ("", "_of_sum")
)
"""What is NaN in double, too, where it is tried as if no argument were large, or done quickly."""

ONE_QUICK_WAY: Mapping[str, bool] = {
    **dict.fromkeys(("normcdf", "times_normcdf", "erf"), False),
    **dict.fromkeys(("exp_within", "expm1mx", "tanh", *WAVES), True),
}
"""What has a quick way in single precision or in double, not in both: whether in double."""


def quick_double(op: str) -> bool:
    """Whether an operation has a quick way in double."""
    name = op.removesuffix("_of_sum")
    return ONE_QUICK_WAY.get(name, quick_ulp(name, 1) > 0)


# fmt: off (a table)
DOUBLE_DOUBLE: Mapping[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "square": "autofn::power<2>({0})",
    "powi": "autofn::power<{n}>({0})",
    "fma": "fma({0}, {1}, {2})",
    "sqrt": "sqrt({0})",
    "rsqrt": "T(1) / sqrt({0})",
    "pow": "autofn::pow_dd({0}, {1})",
    "pow1pm1": "autofn::pow1pm1_dd({0}, {1})",
    "cbrt": "autofn::cbrt_dd({0})",
    "polynomial": "autofn::polynomial_dd({0}, {1})",
    "root_sum": "autofn::root_sum_dd({0}, {1})",
    "mean_root": "autofn::mean_root_dd({0}, {1})",
    "mean_any_root": "autofn::mean_root_dd({0}, {1})",
    "root_split": "autofn::root_split_dd({0}, {1}, {2}, {3}, {4})",
    "share_split": "autofn::share_split_dd({0}, {1}, {2}, {3}, {4})",
    "root_rise": "autofn::root_rise_dd({0}, {1})",
    "root_rest": "autofn::root_rest_dd({0}, {1})",
    "exp": "autofn::exp_dd({0})",
    "exp_product": "autofn::exp_dd(({0}) * ({1}))",
    "times_exp": "autofn::times_exp_dd({0}, {1})",
    "times_exp_product": "autofn::times_exp_dd({0}, ({1}) * ({2}))",
    "times_lower": "autofn::times_exp_dd({0}, smaller({1}, T(0)))",
    "decay": "autofn::exp_dd(-({0}))",
    "expm1": "autofn::expm1_dd({0})",
    "expm1mx": "autofn::expm1mx_dd({0})",
    "phi": "autofn::phi_dd<{n}>({0})",
    "log": "autofn::log_dd({0})",
    "log1pmx": "autofn::log1pmx_dd({0})",
    "log1p": "autofn::log1p_dd({0})",
    "xlogy": "autofn::xlogy_dd({0}, {1})",
    "xlog1py": "autofn::xlog1py_dd({0}, {1})",
    "sigmoid": "autofn::sigmoid_dd({0})",
    "sigmoid_minus": "autofn::sigmoid_dd(-({0}))",
    "times_sigmoid": "autofn::times_sigmoid_dd({0}, {1})",
    "times_sigmoid_minus": "autofn::times_sigmoid_dd({0}, -({1}))",
    "softplus": "autofn::softplus_dd({0})",
    "softplus_rise": "autofn::softplus_rise_dd({0}, {1})",
    "softplus_divergence": "autofn::softplus_divergence_dd({0}, {1})",
    "logcosh": "autofn::logcosh_dd({0})",
    "log1mexp": "autofn::log1mexp_dd({0})",
    "logaddexp": "autofn::logaddexp_dd({0}, {1})",
    "sin": "autofn::sin_dd({0})",
    "cos": "autofn::cos_dd({0})",
    "tan": "autofn::tan_dd({0})",
    "sinc": "autofn::sinc_dd({0})",
    "spherical_bessel": "autofn::spherical_bessel_dd<{n}>({0})",
    "sinpi": "autofn::sinpi_dd({0}, {1})",
    "cospi": "autofn::cospi_dd({0}, {1})",
    "sincpi": "autofn::sincpi_dd({0}, {1})",
    "spherical_bessel_pi": "autofn::spherical_bessel_pi_dd<{n}>({0}, {1})",
    "asin": "autofn::asin_dd({0})",
    "acos": "autofn::acos_dd({0})",
    "atan": "autofn::atan_dd({0})",
    "atan2": "autofn::atan2_dd({0}, {1})",
    "sinh": "autofn::sinh_dd({0})",
    "cosh": "autofn::cosh_dd({0})",
    "tanh": "autofn::tanh_dd({0})",
    "asinh": "autofn::asinh_dd({0})",
    "acosh": "autofn::acosh_dd({0})",
    "atanh": "autofn::atanh_dd({0})",
    "erf": "autofn::erf_dd({0})",
    "erfc": "autofn::erfc_dd({0})",
    "normcdf": "autofn::normcdf_dd({0})",
    "times_normcdf": "autofn::times_normcdf_dd({0}, {1})",
    "sech2": "autofn::sech2_dd({0})",
    "times_sech2": "autofn::times_sech2_dd({0}, {1})",
    "abs": "fabs({0})",
    "floor": "floor({0})",
    "relu": "greater({0}, T(0))",
    "max": "greater({0}, {1})",
    "min": "smaller({0}, {1})",
    "clamp": "clamped({0}, {1}, {2})",
    "select": "choose({0}, {1}, {2})",
    "along": "choose(({0}) == T(0), T(0), {1})",
    **{name: OPS[name].cpp for name in ("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not")},
}
# fmt: on
"""C++ spellings of double-double numbers, of what there is for them: see `double_double.h`."""

DOUBLE_DOUBLE_BOUND = 2.0**-70
"""The bound on the relative error of functions of double-double numbers."""

BY_CLASS: Mapping[type, Op] = {op.sympy: op for op in _TABLE if op.sympy is not None}

STRUCTURAL: tuple[type, ...] = (
    sympy.Add,
    sympy.Mul,
    sympy.Pow,
    sympy.Max,
    sympy.Min,
    sympy.Piecewise,
)
"""Classes that lowering turns into several operations."""


TORCH_HELPERS: Mapping[str, str] = {
    "_along": '''def _along(d, v):
    """v, what comes of the direction d: 0 where that is, even if a factor overflows."""
    return torch.where((d == 0) & torch.isnan(v), 0, v)  # v elsewhere: d may have a tangent''',
    "_cbrt": '''def _cbrt(x):
    """The real cube root."""
    root = torch.sign(x) * torch.abs(x) ** (1 / 3)
    # One Newton step: 1 / 3 is not exact, which large exponents magnify.
    fix = (root * root * root - x) / (3 * root * root)
    return root - torch.where(torch.isfinite(fix), fix, 0)''',
    "_xlogy": '''def _xlogy(v, u):
    """v * log(u): 0 where v is 0 and u is not negative."""
    zero = (v == 0) & (u >= 0)
    return torch.where(zero, v, v * torch.log(torch.where(zero, 1, u)))''',
    "_xlog1py": '''def _xlog1py(v, u):
    """v * log(1 + u): 0 where v is 0 and u is not below -1."""
    zero = (v == 0) & (u >= -1)
    return torch.where(zero, v, v * torch.log1p(torch.where(zero, 0, u)))''',
    "_times_exp": '''def _times_exp(v, u):
    """v * exp(u), in two halves: they overflow late, and not at all where v is 0.

    0 where u is below -1e30 and v infinite.
    """
    half = torch.exp(0.5 * u)
    half = torch.where((v == 0) & (half == math.inf), 0, half)
    v = torch.where((u < -1e30) & (abs(v) == math.inf), 0, v)
    return v * half * half''',
    "_log1mexp": '''def _log1mexp(u):
    """log(1 - exp(u)), u < 0: near 0 by exp(u) - 1, else by log1p."""
    edge = -0.6875
    near, far = torch.clamp(u, min=edge), torch.clamp(u, max=edge)
    return torch.where(u > edge, torch.log(-torch.expm1(near)), torch.log1p(-torch.exp(far)))''',
    "_sinh": '''def _sinh(x):
    """sinh(x), also where exp(x) has overflowed and it has not: there torch.sinh is infinite."""
    half = torch.exp(0.5 * torch.abs(x))
    near = torch.sinh(torch.clamp(x, -80, 80))
    return torch.where(torch.abs(x) > 80, 0.5 * torch.sign(x) * half * half, near)''',
    "_cosh": '''def _cosh(x):
    """cosh(x), also where exp(x) has overflowed and it has not: there torch.cosh is infinite."""
    half = torch.exp(0.5 * torch.abs(x))
    near = torch.cosh(torch.clamp(x, -80, 80))
    return torch.where(torch.abs(x) > 80, 0.5 * half * half, near)''',
    "_softplus": '''def _softplus(x):
    """log(1 + exp(x))."""
    # The default threshold, 20, costs half of float64's digits.
    return F.softplus(x, threshold=40)''',
    "_softplus_rise": '''def _softplus_rise(x, d):
    """softplus(x + d) - softplus(x), from the lower; far from one another as a difference."""
    low, high, size = torch.minimum(x, x + d), torch.maximum(x, x + d), torch.abs(d)
    some = torch.clamp(size, max=64)
    # The lower sigmoid may be subnormal where the difference is not.
    tail = -torch.expm1(-some) * torch.exp(torch.clamp(high, max=64)) * torch.sigmoid(-low)
    near = torch.log1p(torch.where(low < 0, tail, torch.expm1(some) * torch.sigmoid(low)))
    above = size + F.softplus(-torch.abs(high)) - F.softplus(-torch.abs(low))
    far = torch.where(low < 0, F.softplus(high) - F.softplus(low), above)
    return torch.copysign(torch.where(size < 64, near, far), d)''',
    "_softplus_divergence": '''def _softplus_divergence(u, v):
    """softplus(v) - softplus(u) - (v - u)*sigmoid(u), from u <= 0; far apart as a difference."""
    low, to = -torch.clamp(torch.abs(u), max=1e4), torch.where(u > 0, -v, v)
    apart, share = to - low, torch.sigmoid(low)
    some = torch.clamp(apart, -1, 1)
    near = _log1pmx(share * torch.expm1(some)) + share * _expm1mx(some)
    far = F.softplus(to, threshold=40) - F.softplus(low, threshold=40) - share * apart
    far = torch.where(torch.isinf(to), torch.abs(to), far)
    return torch.where(torch.abs(apart) < 1, near, far)''',
    "_logcosh": '''def _logcosh(x):
    """log(cosh(x)), near 0 by its square."""
    near = torch.sinh(0.5 * torch.clamp(x, -1, 1))
    far = torch.abs(x) + torch.log1p(torch.expm1(-2 * torch.abs(x)) / 2)
    return torch.where(torch.abs(x) < 1, torch.log1p(2 * near * near), far)''',
    "_root_sum": '''def _root_sum(a, c):
    """sqrt(a**2 + c); c is nothing beside an a whose square might overflow."""
    large = torch.abs(a) > (1e150 if a.dtype is torch.float64 else 1e18)
    return torch.where(large, torch.abs(a), torch.sqrt(torch.where(large, 0, a) ** 2 + c))''',
    "_root_split": '''def _root_split(u, v, m, d, c):
    """sqrt(u**2 + c) - sqrt(v**2 + c), without its cancellation; m, d: half of u + v, u - v."""
    size, step = torch.abs(m), torch.abs(d)
    small, large = torch.minimum(size, step), torch.maximum(size, step)
    mean = 0.5 * _root_sum(u, c) + 0.5 * _root_sum(v, c)
    part = torch.where(torch.isinf(large), 1, large / torch.where(mean == 0, 1, mean))
    return torch.where((m < 0) == (d < 0), 2 * part, -2 * part) * small''',
    "_share_split": '''def _share_split(u, v, m, d, c):
    """u/sqrt(u**2 + c) - v/sqrt(v**2 + c) in the same way."""
    roots = _root_sum(u, c), _root_sum(v, c)
    first = torch.where(torch.isinf(u), torch.sign(u), u / roots[0])
    last = torch.where(torch.isinf(v), torch.sign(v), v / roots[1])
    many = torch.abs(first) + torch.abs(last)
    size = torch.where(torch.isinf(m), 1, torch.abs(m) / roots[0])
    rest = size / torch.where(many == 0, 1, many) * 4 * (d / roots[1]) * (c / roots[0]) / roots[1]
    return torch.where((u < 0) == (v < 0), rest, first - last)''',
    "_root_rise": '''def _root_rise(x, d):
    """sqrt(x + d) - sqrt(x), without its cancellation for a small d."""
    roots = torch.sqrt(x + d) + torch.sqrt(x)
    rise = torch.where(torch.isposinf(d), roots, d / roots)
    return torch.where(roots == 0, d, rise)''',
    "_root_rest": '''def _root_rest(a, c):
    """sqrt(a**2 + c) - sqrt(c), without its cancellation near a = 0."""
    large = torch.abs(a) > (1e150 if a.dtype is torch.float64 else 1e18)
    near = torch.where(large, 0, a)
    near = near * (near / (torch.sqrt(near * near + c) + c**0.5))
    return torch.where(large, torch.abs(a), near)''',
    "_mean_root": '''def _mean_root(a, c):
    """(a + sqrt(a**2 + c)) / 2, without its cancellation for a < 0."""
    root = 0.5 * torch.abs(a) + 0.5 * _root_sum(a, c)
    return torch.where(a < 0, 0.25 * c / root, root)''',
    "_mean_any_root": '''def _mean_any_root(a, c):
    """(a + sqrt(a**2 + c)) / 2 for any c, without its cancellation for a < 0."""
    large = torch.abs(a) > (1e150 if a.dtype is torch.float64 else 1e18)
    small = 2.0**-530 if a.dtype is torch.float64 else 2.0**-66
    scale = torch.where(large, small, torch.ones_like(a))
    root = torch.sqrt((a * scale) ** 2 + c * scale * scale) / scale
    mean = 0.5 * (torch.where(a < 0, -a, a) + root)
    return torch.where(a < 0, 0.25 * c / mean, mean)''',
    "_sech2": '''def _sech2(x):
    """1 / cosh(x)**2, without the cancellation of 1 - tanh(x)**2."""
    return 4 * torch.sigmoid(2 * x) * torch.sigmoid(-2 * x)''',
    "_sinc": '''def _sinc(x):
    """sin(x) / x, 1 at 0 and 0 at infinity."""
    s = torch.where(x == 0, 1, x)
    return torch.where(x == 0, 1, torch.where(torch.isinf(x), 1, torch.sin(s)) / s)''',
    "_spherical_bessel_of": '''def _spherical_bessel_of(n, x, sine, cosine):
    """j_n(x), n >= 1, from sin(x) and cos(x): a series near 0, else upward recurrence."""
    small = torch.abs(x) < n + 1
    s = torch.where(small, x, 0)
    term = s**n / math.prod(range(2 * n + 1, 1, -2))
    series = term
    for k in range(1, 16 + n):
        term = term * (s * s) / (-2 * k * (2 * n + 2 * k + 1))
        series = series + term
    s = torch.where(small, n + 2, x)
    below, at = sine / s, (sine / s - cosine) / s
    for k in range(1, n):
        below, at = at, (2 * k + 1) / s * at - below
    return torch.where(small, series, at)''',
    "_spherical_bessel": '''def _spherical_bessel(n, x):
    """The spherical Bessel function j_n, n >= 1."""
    y = torch.where(torch.isinf(x), 0, x)
    return _spherical_bessel_of(n, x, torch.sin(y), torch.cos(y))''',
    "_half_turns": '''def _half_turns(x, y):
    """x less the nearest multiple of y, a power of two, exactly; and whether that is an odd one."""
    n = torch.round(x / y)
    left = torch.where(torch.isinf(n), 0 * x, x - n * y)
    return left, 2 * torch.round(n / 2) != n''',
    "_sinpi": '''def _sinpi(x, y):
    """sin(pi * x / y), right however large x is."""
    left, odd = _half_turns(x, y)
    sine = torch.sin(math.pi * (left / y))
    return torch.where(odd, -sine, sine)''',
    "_cospi": '''def _cospi(x, y):
    """cos(pi * x / y), right however large x is; near roots by the distance from them."""
    left, odd = _half_turns(x, y)
    far = 0.5 - torch.abs(left / y)
    cosine = torch.where(far < 0.25, torch.sin(math.pi * far), torch.cos(math.pi * (left / y)))
    return torch.where(odd, -cosine, cosine)''',
    "_sincpi": '''def _sincpi(x, y):
    """sin(pi * x / y) / (pi * x / y), 1 at 0 and 0 at infinity."""
    tiny = torch.abs(x / y) < 1e-18
    s = torch.where(tiny, y, x)
    wave = torch.where(torch.isinf(s), 1, _sinpi(s, y))
    return torch.where(tiny, 1, wave / (math.pi * (s / y)))''',
    "_spherical_bessel_pi": '''def _spherical_bessel_pi(n, x, y):
    """j_n(pi * x / y), n >= 1."""
    s = torch.where(torch.isinf(x), 0, x)
    return _spherical_bessel_of(n, math.pi * (x / y), _sinpi(s, y), _cospi(s, y))''',
    "_phi": '''def _phi(n, x):
    """(exp(x) - its Taylor polynomial of degree n - 1) / x**n: a series near 0."""
    small = torch.abs(x) < 1 + n / 2
    s = torch.where(small, x, 0)
    series = term = torch.full_like(s, 1 / math.factorial(n))
    for k in range(1, 20):
        term = term * s / (n + k)
        series = series + term
    s = torch.where(small, 1, x)
    found = torch.expm1(s) / s
    for k in range(1, n):
        found = (found - 1 / math.factorial(k)) / s
    return torch.where(small, series, torch.where(x < math.inf, found, x))''',
    "_expm1mx": '''def _expm1mx(x):
    """exp(x) - 1 - x: a series near 0."""
    small = torch.abs(x) < 1
    s = torch.where(small, x, 0)
    series = torch.ones_like(s)
    for k in range(20, 2, -1):
        series = 1 + s * series / k
    far = torch.expm1(x) - torch.where(x < 1000, x, 0)
    return torch.where(small, 0.5 * s * (s * series), far)''',
    "_log1pmx": '''def _log1pmx(x):
    """log(1 + x) - x: near 0 by the series of artanh."""
    small = torch.abs(x) < 0.5
    s = torch.where(small, x, 0)
    r = s / (2 + s)
    square = r * r
    series = torch.zeros_like(s)
    for k in range(35, 1, -2):
        series = series * square + 2 / k
    far = torch.where(x < math.inf, torch.log1p(x) - x, -x)
    return torch.where(small, r * (square * series - s), far)''',
    "_pow1pm1": '''def _pow1pm1(x, y):
    """(1 + x)**y - 1: by its logarithm where the difference cancels."""
    exponent = y * torch.log1p(torch.clamp(x, min=-1))
    small = (torch.abs(exponent) < 1) & (x > -1)
    total = 1 + x
    lost = torch.where(torch.abs(x) < 1, x - (total - 1), 1 - (total - x))
    lost = torch.where(torch.abs(lost) > 0, lost, 0) / torch.where(total == 0, 1, total)
    power = total**y
    ordinary = (torch.abs(power) > 0) & (torch.abs(power) < math.inf)
    far = power * torch.exp(torch.where(ordinary, y * lost, 0)) - 1
    return torch.where(small, torch.expm1(torch.where(small, exponent, 0)), far)''',
    "_normcdf": '''def _normcdf(x):
    """The standard normal distribution function, accurate in the lower tail."""
    return 0.5 * torch.erfc(-math.sqrt(0.5) * x)''',
    "_normal_mass": '''def _normal_mass(u, v, d):
    """Of normcdf(u) - normcdf(v), d = u - v: its logarithm, the normal densities at u and at v over
    it, and the mean between v and u; near one another by Hermite's polynomials, else by erfcx.
    """
    high, low, width = torch.where(d < 0, v, u), torch.where(d < 0, u, v), torch.abs(d)
    up, middle = high + low >= 0, torch.abs(0.5 * high + 0.5 * low)
    near, far = torch.where(up, low, -high), torch.where(up, high, -low)
    narrow = width * torch.clamp(middle, min=1) < 1
    h = torch.where(narrow, 0.5 * width, 0)
    m = torch.where(narrow, middle, 0)
    before, at, mean = torch.ones_like(h), 0.5 * m * h, torch.ones_like(h)
    for n in range(1, 20):
        before, at = at, (m * h * at - h * h * before * (n / (n + 1))) / (n + 2)
        mean = mean + at if n % 2 else mean
    part = torch.where(narrow, width * mean, 1)

    def mills(t):
        return math.sqrt(math.pi / 2) * torch.special.erfcx(math.sqrt(0.5) * torch.abs(t))

    def density(t):
        return torch.exp(-0.5 * t * t) / math.sqrt(2 * math.pi)

    beside = ~narrow & (near > 0)
    fall = torch.where(torch.isnan(middle), 0, width * middle)
    decay = torch.exp(-fall)
    within = torch.where(beside, mills(near) - decay * mills(far), 1)
    outside = density(near) * mills(near) + density(far) * mills(far)
    outside = torch.where(narrow | beside, 0, outside)
    base = torch.where(narrow, middle, torch.where(beside, near, 0))
    scale = torch.log(torch.where(narrow, part, within)) - 0.5 * base * base
    logarithm = torch.where(
        narrow | beside, scale - 0.5 * math.log(2 * math.pi), torch.log1p(-outside)
    )
    logarithm = torch.where(d >= 0, logarithm, math.nan)
    at_near = torch.where(beside, 1 / within, density(near) / (1 - outside))
    at_near = torch.where(narrow, torch.exp(h * (m - 0.5 * h)) / part, at_near)
    at_far = torch.where(beside, decay / within, density(far) / (1 - outside))
    at_far = torch.where(narrow, torch.exp(-h * (m + 0.5 * h)) / part, at_far)
    mean = torch.where(narrow & (fall < 1e-30), middle, -at_near * torch.expm1(-fall))
    upper, lower = torch.where(up, at_far, at_near), torch.where(up, at_near, at_far)
    upper, lower = torch.where(d < 0, -lower, upper), torch.where(d < 0, -upper, lower)
    return logarithm, upper, lower, torch.where(up, mean, -mean)''',
    "_log_normal_mass": '''def _log_normal_mass(u, v, d):
    """log(normcdf(u) - normcdf(v))."""
    return _normal_mass(u, v, d)[0]''',
    "_normal_mass_upper": '''def _normal_mass_upper(u, v, d):
    """The normal density at u over normcdf(u) - normcdf(v)."""
    return _normal_mass(u, v, d)[1]''',
    "_normal_mass_lower": '''def _normal_mass_lower(u, v, d):
    """The normal density at v over normcdf(u) - normcdf(v)."""
    return _normal_mass(u, v, d)[2]''',
    "_normal_mass_mean": '''def _normal_mass_mean(u, v, d):
    """The mean of the standard normal distribution between v and u."""
    return _normal_mass(u, v, d)[3]''',
    "_gamma": '''def _gamma(x):
    """The gamma function; below 0 its sign alternates."""
    odd = torch.remainder(torch.floor(x), 2) == 1
    return torch.where((x < 0) & odd, -1.0, 1.0).to(x.dtype) * torch.exp(torch.lgamma(x))''',
    "_polygamma": '''def _polygamma(n, x):
    """The n-th derivative of digamma, n >= 1."""
    # PyTorch's trigamma has 9 digits, and its polygamma takes a step per integer below 0; its zeta,
    # for y > 0, has all digits. There, and beyond where y**-(n + 1) is 0, the sum over k of
    # (y + k)**-(n + 1) is its integral.
    y = torch.where(x > 0, x, 1 - x)
    zeta = torch.special.zeta(torch.full_like(y, n + 1), y)
    value = (-1) ** (n + 1) * math.factorial(n) * torch.where(y > 1e20, y**-n / n, zeta)
    # Reflected: the derivatives of the cotangent c are polynomials of it, c' = -1 - c**2.
    cot = 1 / torch.tan(math.pi * (x - torch.round(x)))
    terms = {1: 1}
    for _ in range(n):
        steps = [(k + by, -k * a) for k, a in terms.items() for by in (-1, 1) if k]
        terms = {power: sum(a for k, a in steps if k == power) for power, _ in steps}
    derivative = sum(a * cot**k for k, a in terms.items() if a)
    return torch.where(x > 0, value, (-1) ** n * value - math.pi ** (n + 1) * derivative)''',
    "_sign": '''def _sign(x):
    """The sign, NaN for NaN."""
    return torch.where(torch.isnan(x), x, torch.sign(x))''',
}
"""PyTorch helpers by name; a package that uses one has it, or that of `backends.graphs`."""

CPP_HELPERS: Mapping[str, str] = {
    "square": """template <typename T> AUTOFN_FN T square(T x) { return x * x; }""",
    "powi": """// x**N, N > 0, by squaring.
template <int N, typename T> AUTOFN_FN T powi(T x) {
  if constexpr (N == 1) {
    return x;
  } else {
    const T half = powi<N / 2>(x);
    if constexpr (N % 2) return half * half * x;
    return half * half;
  }
}""",
    "polynomial": """// c0 * t**n + ... + cn; in single precision without the first kCut terms,
// which are below its last digit.
template <int kCut, typename T> AUTOFN_FN T polynomial_from(T, T v) { return v; }
template <int kCut, typename T, typename... C>
AUTOFN_FN T polynomial_from(T t, T v, T c, C... rest) {
  if constexpr (kCut > 0 && sizeof(T) < 8) return polynomial_from<kCut - 1>(t, c, rest...);
  return polynomial_from<0>(t, std::fma(v, t, c), rest...);
}
template <int kCut, typename T, typename... C> AUTOFN_FN T polynomial(T t, T c, C... rest) {
  return polynomial_from<kCut>(t, c, rest...);
}""",
    "doubt": """// NaN where v is not finite, or in single precision so small that its
// parts may be subnormal; else 0.
template <typename T> constexpr T kTiny = T(sizeof(T) < sizeof(double) ? 0x1p-100 : 0x1p-1074);
template <typename T> AUTOFN_FN T doubt(T v) {
  return std::fabs(v) < kTiny<T> && v != T(0) ? T(NAN) : v * T(0);
}""",
    "doubt_or_zero": """// As doubt, in single precision of all that is below 2^-64, and of 0: parts
// may have vanished, or overflowed in a denominator.
template <typename T> constexpr T kVanishing = T(sizeof(T) < sizeof(double) ? 0x1p-64 : 0.0);
template <typename T> AUTOFN_FN T doubt_or_zero(T v) {
  return std::fabs(v) < kVanishing<T> ? T(NAN) : v * T(0);
}""",
    "sum_rest": """// What a + b loses in rounding.
template <typename T> AUTOFN_FN T sum_rest(T a, T b) {
  const T s = a + b, t = s - a;
  return (a - (s - t)) + (b - t);
}""",
    "constant_rest": """// What a constant, high + low, loses when it is rounded to T.
template <typename T> AUTOFN_FN T constant_rest(double high, double low) {
  return sizeof(T) == sizeof(double) ? T(low) : T(high - double(T(high)));
}""",
    "times_lower": """// v * exp(min(x, 0)). A third argument is what x lost in rounding, here and
// below.
template <autofn::Way kWay, typename T, typename... R>
AUTOFN_FN T times_lower(T v, T x, R... rest) {
  const T low = autofn::times_decay<kWay>(v, std::fabs(x), (x < T(0) ? rest : -rest)...);
  return x < T(0) ? low : v;
}""",
    "sigmoid": """// 1 / (1 + exp(-x)), or with kMinus 1 / (1 + exp(x)): exp of a negative
// argument only, so nothing overflows. exp and the reciprocal are the same for both, so that
// compilers share them.
template <autofn::Way kWay, bool kMinus = false, typename T, typename... R>
AUTOFN_FN T sigmoid(T x, R... rest) {
  const T e = autofn::value(autofn::decay<kWay>(std::fabs(x), (x < T(0) ? rest : -rest)...));
  const T r = autofn::reciprocal<kWay>(T(1) + e);
  return (kMinus ? x > T(0) : x < T(0)) ? e * r : r;
}""",
    "times_sigmoid": """// v * sigmoid(x), rounded to a subnormal number once.
template <autofn::Way kWay, bool kMinus = false, typename T, typename... R>
AUTOFN_FN T times_sigmoid(T v, T x, R... rest) {
  const T e = autofn::value(autofn::decay<kWay>(std::fabs(x), (x < T(0) ? rest : -rest)...));
  const T w = v * autofn::reciprocal<kWay>(T(1) + e);
  const T low = autofn::times_decay<kWay>(w, std::fabs(x), (x < T(0) ? rest : -rest)...);
  return (kMinus ? x > T(0) : x < T(0)) ? low : w;
}""",
    "softplus": """// log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)).
template <autofn::Way kWay, typename T, typename... R> AUTOFN_FN T softplus(T x, R... rest) {
  const T e = autofn::value(autofn::decay<kWay>(std::fabs(x), (x < T(0) ? rest : -rest)...));
  return ((x < T(0) ? T(0) : x) + ... + (x < T(0) || x == T(INFINITY) ? T(0) : rest)) +
      autofn::log1p<kWay>(e);
}""",
    "softplus_rise": """// softplus(x + d) - softplus(x), from the lower of the two; far from one
// another they do not cancel.
template <autofn::Way kWay, typename T> AUTOFN_FN T softplus_rise(T x, T d) {
  const T y = x + d, rest = sum_rest(x, d), size = std::fabs(d);
  const bool up = d >= T(0);
  const T low = up ? x : y, low_rest = up ? T(0) : rest;
  const T high = up ? y : x, high_rest = up ? rest : T(0);
  const T near =
      autofn::log1p<kWay>(times_sigmoid<kWay>(autofn::expm1<kWay>(size), low, low_rest));
  const T below = softplus<kWay>(high, high_rest) - softplus<kWay>(low, low_rest);
  const T above = size + (softplus<kWay>(-high) - softplus<kWay>(-low));
  const T rise = size < T(64) ? near : low < T(0) ? below : above;
  return up ? rise : -rise;
}""",
    "logcosh": """// log(cosh(x)) = log1p(2 sinh(x / 2)**2), far from 0
// |x| + log1p(expm1(-2|x|) / 2).
template <autofn::Way kWay, typename T> AUTOFN_FN T logcosh(T x) {
  const T y = std::fabs(x), s = autofn::sinh(T(0.5) * (y > T(1) ? T(1) : y));
  const T tail = T(0.5) * autofn::expm1<kWay>(T(-2) * y);
  return (y < T(1) ? T(0) : y) + autofn::log1p<kWay>(y < T(1) ? T(2) * s * s : tail);
}""",
    "root_sum": """// sqrt(a**2 + c); c is nothing beside an a whose square might overflow.
template <typename T> AUTOFN_FN T root_sum(T a, T c) {
  const T size = std::fabs(a);
  return size > T(0x1p+60) ? size : std::sqrt(a * a + c);
}""",
    "root_split": """// sqrt(u**2 + c) - sqrt(v**2 + c), without its cancellation; m and d are half
// of u + v and of u - v.
template <typename T> AUTOFN_FN T root_split(T u, T v, T m, T d, T c) {
  const T size = std::fabs(m), step = std::fabs(d);
  const T small = size < step ? size : step, large = size < step ? step : size;
  const T mean = T(0.5) * root_sum(u, c) + T(0.5) * root_sum(v, c);
  const T part = large == T(INFINITY) ? T(1) : large / (mean == T(0) ? T(1) : mean);
  return ((m < T(0)) == (d < T(0)) ? T(2) : T(-2)) * part * small;
}""",
    "share_split": """// u/sqrt(u**2 + c) - v/sqrt(v**2 + c), without its cancellation where both
// have the same sign; m and d are half of u + v and of u - v.
template <typename T> AUTOFN_FN T share_split(T u, T v, T m, T d, T c) {
  const T above = root_sum(u, c), below = root_sum(v, c);
  const T first = std::fabs(u) == T(INFINITY) ? std::copysign(T(1), u) : u / above;
  const T last = std::fabs(v) == T(INFINITY) ? std::copysign(T(1), v) : v / below;
  const T many = std::fabs(first) + std::fabs(last);
  const T size = std::fabs(m) == T(INFINITY) ? T(1) : std::fabs(m) / above;
  const T near = size / (many == T(0) ? T(1) : many) * T(4) * (d / below) * (c / above) / below;
  return (u < T(0)) == (v < T(0)) ? near : first - last;
}""",
    "root_rise": """// sqrt(x + d) - sqrt(x), without its cancellation for a small d.
template <typename T> AUTOFN_FN T root_rise(T x, T d) {
  const T roots = std::sqrt(x + d) + std::sqrt(x);
  return roots == T(0) ? d : d == T(INFINITY) ? roots : d / roots;
}""",
    "root_rest": """// sqrt(a**2 + c) - sqrt(c), without its cancellation near a = 0.
template <typename T> AUTOFN_FN T root_rest(T a, T c) {
  const T rest = a * (a / (root_sum(a, c) + std::sqrt(c)));
  return std::fabs(a) == T(INFINITY) ? std::fabs(a) : rest;
}""",
    "log1mexp": """// log(1 - exp(u)), u < 0: near 0 by exp(u) - 1, else by log1p.
template <autofn::Way kWay, typename T> AUTOFN_FN T log1mexp(T u) {
  // The smallest number's exp(u) - 1 may have been halved on the way.
  const T near = autofn::log<kWay>(u > T(-0x1p-60) ? -u : -autofn::expm1<kWay>(u));
  return u > T(-0.6875) ? near : autofn::log1p<kWay>(-autofn::exp<kWay>(u));
}""",
    "logaddexp": """// log(exp(a) + exp(b)) = max(a, b) + log1p(exp(-|a - b|)).
template <autofn::Way kWay, typename T> AUTOFN_FN T logaddexp(T a, T b) {
  const T high = a > b ? a : b;
  const T low = autofn::log1p<kWay>(autofn::value(autofn::decay<kWay>(std::fabs(a - b))));
  return a == b ? a + T(0.69314718055994531) : high + low;
}""",
    "mean_root": """// (a + sqrt(a**2 + c)) / 2, without its cancellation for a < 0.
template <typename T> AUTOFN_FN T mean_root(T a, T c) {
  const T root = T(0.5) * std::fabs(a) + T(0.5) * root_sum(a, c);
  return a < T(0) ? T(0.25) * c / root : root;
}""",
    "mean_any_root": """// (a + sqrt(a**2 + c)) / 2 for any c, without its cancellation for a < 0.
template <typename T> AUTOFN_FN T mean_any_root(T a, T c) {
  // A power of two, so that the square of a does not overflow.
  constexpr bool kIsDouble = sizeof(T) == sizeof(double);
  const bool large = std::fabs(a) > T(kIsDouble ? 0x1p+500 : 0x1p+60);
  const T scale = large ? T(kIsDouble ? 0x1p-530 : 0x1p-66) : T(1);
  const T back = large ? T(kIsDouble ? 0x1p+530 : 0x1p+66) : T(1);
  const T part = a * scale;
  const T sum = T(0.5) * std::fabs(a) + T(0.5) * std::sqrt(part * part + c * scale * scale) * back;
  return a < T(0) ? T(0.25) * c / sum : sum;
}""",
    "sech2": """// 1 / cosh(x)**2 = 4 e / (1 + e)**2 with e = exp(-2|x|). Of the square, multiplied
// out, one rounding counts.
template <autofn::Way kWay, typename T, typename... R> AUTOFN_FN T sech2(T x, R... rest) {
  const T y = T(2) * std::fabs(x);
  const T e = autofn::value(autofn::decay<kWay>(y, (T(2) * (x < T(0) ? rest : -rest))...));
  return autofn::quotient<kWay>(T(4) * e, std::fma(e, e + T(2), T(1)));
}""",
    "times_sech2": """// v / cosh(x)**2, rounded to a subnormal number once.
template <autofn::Way kWay, typename T, typename... R>
AUTOFN_FN T times_sech2(T v, T x, R... rest) {
  const T y = T(2) * std::fabs(x);
  const T e = autofn::value(autofn::decay<kWay>(y, (T(2) * (x < T(0) ? rest : -rest))...));
  const T factor = autofn::quotient<kWay>(T(4) * v, std::fma(e, e + T(2), T(1)));
  return autofn::times_decay<kWay>(factor, y, (T(2) * (x < T(0) ? rest : -rest))...);
}""",
    "xlogy": """// v * log(u): 0 where v is 0 and u is not negative.
template <autofn::Way kWay, typename T> AUTOFN_FN T xlogy(T v, T u) {
  const bool zero = (v == T(0)) & (u >= T(0));
  return zero ? v : v * autofn::log<kWay>(u);
}""",
    "xlog1py": """// v * log(1 + u): 0 where v is 0 and u is not below -1.
template <autofn::Way kWay, typename T> AUTOFN_FN T xlog1py(T v, T u) {
  const bool zero = (v == T(0)) & (u >= T(-1));
  return zero ? v : v * autofn::log1p<kWay>(u);
}""",
    "sinc": """// sin(x) / x, 1 at 0 and 0 at infinity. A second argument is what x lost
// in rounding.
template <autofn::Way kWay, typename T, typename... R> AUTOFN_FN T sinc(T x, R... rest) {
  const T y = std::fabs(x) == T(INFINITY) ? T(1) : autofn::sin<kWay>(x, rest...);
  return x == T(0) ? T(1) : y / x;
}""",
    "bessel_series": """// The power series of j_N in z = x**2, a factor left out, from term K on.
// Times c.
template <int N, int K, typename T> AUTOFN_FN T bessel_series(T z, T c = T(1)) {
  if constexpr (K > (sizeof(T) == 4 ? 9 : 15) + N) {
    return c;
  } else {
    return std::fma(z, bessel_series<N, K + 1>(z, -c / T(2 * K * (2 * N + 2 * K + 1))), c);
  }
}""",
    "spherical_bessel_of": """// j_N(x), N >= 1, given 1 / x, sin(x) and cos(x): a series near 0,
// else upward recurrence. Both are computed, so that loops over it have no branch.
template <int N, typename T> AUTOFN_FN T spherical_bessel_of(T x, T inverse, T s, T c) {
  T series = bessel_series<N, 1>(x * x);
  for (int k = 1; k <= N; ++k) series *= x * (T(1) / T(2 * k + 1));
  T below = s * inverse, at = (below - c) * inverse;
  for (int k = 1; k < N; ++k) {
    const T above = T(2 * k + 1) * inverse * at - below;
    below = at;
    at = above;
  }
  return std::fabs(x) < T(N + 1) ? series : at;
}""",
    "spherical_bessel": """// j_N(x), N >= 1. A second argument is what x lost in rounding.
template <int N, autofn::Way kWay, typename T, typename... R>
AUTOFN_FN T spherical_bessel(T x, R... rest) {
  const bool far = std::fabs(x) == T(INFINITY);
  const T s = far ? T(0) : autofn::sin<kWay>(x, rest...);
  return spherical_bessel_of<N>(x, T(1) / x, s, far ? T(0) : autofn::cos<kWay>(x, rest...));
}""",
    "sincpi": """// sin(pi x / y) / (pi x / y), 1 at 0 and 0 at infinity. A third argument is
// what x lost in rounding.
template <autofn::Way kWay, typename T, typename... R> AUTOFN_FN T sincpi(T x, T y, R... rest) {
  const T turns = autofn::over<kWay>(x, y);  // times pi may overflow
  const T s = std::fabs(x) == T(INFINITY) ? T(1) : autofn::sinpi<kWay>(x, y, rest...);
  constexpr T kOverPi = T(0.318309886183790672);
  constexpr T kRest = sizeof(T) == 4 ? T(1.2841276486564e-8) : T(-1.9678676675182486e-17);
  const T found = s / turns;
  // What is subnormal has few digits.
  return std::fabs(turns) < T(0x1p-60) ? T(1) : std::fma(found, kOverPi, found * kRest);
}""",
    "spherical_bessel_pi": """// j_N(pi x / y), N >= 1. A last argument is what x lost in rounding.
template <int N, autofn::Way kWay, typename T, typename... R>
AUTOFN_FN T spherical_bessel_pi(T x, T y, R... rest) {
  const bool far = std::fabs(x) == T(INFINITY);
  const T s = far ? T(0) : autofn::sinpi<kWay>(x, y, rest...);
  const T c = far ? T(0) : autofn::cospi<kWay>(x, y, rest...);
  const T turns = autofn::over<kWay>(x, y), inverse = T(0.318309886183790672) / turns;
  return spherical_bessel_of<N>(T(3.14159265358979324) * turns, inverse, s, c);
}""",
    "phi_series": """// 1 + x / (K + 1) + x**2 / ((K + 1) (K + 2)) + ..., to x**(LAST - K).
// Times c.
template <int K, int LAST, typename T> AUTOFN_FN T phi_series(T x, T c = T(1)) {
  if constexpr (K == LAST) {
    return c;
  } else {
    return std::fma(x, phi_series<K + 1, LAST>(x, c / T(K + 1)), c);
  }
}""",
    "phi": """// (exp(x) - its Taylor polynomial of degree N - 1) / x**N, N >= 1: a series near 0.
// Both are computed, so that loops over it have no branch.
template <int N, typename T> AUTOFN_FN T phi(T x) {
  const T inverse = T(1) / x;
  T far = T(1), power = inverse, factorial = T(1);
  for (int k = 1; k < N; ++k) {
    factorial *= T(k);
    far = std::fma(far, inverse, T(1) / factorial);
    power *= inverse;
  }
  factorial *= T(N);
  // exp(x) may overflow where this does not.
  far = autofn::times_exp(power, x) - far * inverse;
  far = x < T(INFINITY) ? far : x;
  constexpr int kLast = N + (sizeof(T) == 4 ? 14 : 20);
  return std::fabs(x) < T(1) + T(0.5) * T(N) ? phi_series<N, kLast>(x) / factorial : far;
}""",
    "expm1mx": """// exp(x) - 1 - x: a series near 0.
template <autofn::Way kWay, typename T> AUTOFN_FN T expm1mx(T x) {
  constexpr bool quick = kWay == autofn::kQuick && sizeof(T) == 8;
  constexpr autofn::Way way = quick ? autofn::kQuick : autofn::kFull;
  constexpr int last = sizeof(T) == 4 ? 11 : quick ? 12 : 18;
  const T near = T(0.5) * x * (x * phi_series<2, last>(x));
  const T far = autofn::expm1<way>(x) - (x < T(1000) ? x : T(0));
  return std::fabs(x) < (quick ? T(0.5) : T(1)) ? near : far;
}""",
    "log1pmx": """// log(1 + x) - x: near 0 by the series of artanh.
template <typename T> AUTOFN_FN T log1pmx(T x) {
  const T r = x / (T(2) + x), square = r * r;
  T series = T(0);
  for (int k = sizeof(T) == 4 ? 17 : 35; k > 1; k -= 2) series = series * square + T(2) / T(k);
  const T far = x < T(INFINITY) ? autofn::log1p(x) - x : -x;
  return std::fabs(x) < T(0.5) ? r * (square * series - x) : far;
}""",
    "softplus_divergence": """// softplus(v) - softplus(u) - (v - u) sigmoid(u), the same for -u and
// -v: from u <= 0; far apart, where less cancels, as it stands. In double, whatever T is.
template <autofn::Way kWay, typename T> AUTOFN_FN T softplus_divergence(T u, T v) {
  if constexpr (sizeof(T) < sizeof(double)) {
    return T(softplus_divergence<autofn::in_double<T>(kWay)>(double(u), double(v)));
  }
  const T low = -(std::fabs(u) > T(10000) ? T(10000) : std::fabs(u)), to = u > T(0) ? -v : v;
  const T apart = to - low;
  const T sum = times_sigmoid<kWay>(expm1mx<kWay>(apart), low);
  const T near = sum + log1pmx(times_sigmoid<kWay>(autofn::expm1<kWay>(apart), low));
  const T rise = softplus<kWay>(to) - softplus<kWay>(low);
  const T far = rise - times_sigmoid<kWay>(apart, low), size = std::fabs(to);
  return std::fabs(apart) < T(1) ? near : size < T(INFINITY) ? far : size;
}""",
    "pow1pm1": """// (1 + x)**y - 1: by its logarithm where the difference cancels; else what
// 1 + x lost, which is next to 1 beside it, is raised to y as well.
template <typename T> AUTOFN_FN T pow1pm1(T x, T y) {
  const T exponent = y * autofn::log1p(x), sum = T(1) + x;
  const T near = autofn::expm1(exponent), power = autofn::pow(sum, y);
  const T lost = std::fabs(x) < T(1) ? x - (sum - T(1)) : T(1) - (sum - x);
  const T more = std::fabs(lost) > T(0) ? y * (lost / sum) : T(0);
  const bool ordinary = std::fabs(power) > T(0) && std::fabs(power) < T(INFINITY);
  const T far = (ordinary ? power * autofn::exp(more) : power) - T(1);
  return std::fabs(exponent) < T(1) && x > T(-1) ? near : far;
}""",
    "digamma": """// Reflection, recurrence up to 10, then the asymptotic series.
template <typename T> AUTOFN_FN T digamma(T x) {
  const T pi = T(3.14159265358979324);
  T result = T(0);
  if (x <= T(0)) {
    if (x == std::floor(x)) return x == T(0) ? -std::copysign(T(INFINITY), x) : T(NAN);
    result = -pi / autofn::tan(pi * (x - std::floor(x + T(0.5))));
    x = T(1) - x;
  }
  for (; x < T(10); x += T(1)) result -= T(1) / x;
  const T z = T(1) / (x * x);
  const T series =
      z * (T(1) / T(12) -
           z * (T(1) / T(120) -
                z * (T(1) / T(252) -
                     z * (T(1) / T(240) - z * (T(1) / T(132) - z * T(691) / T(32760))))));
  return result + autofn::log(x) - T(0.5) / x - series;
}""",
    "polygamma": """// The N-th derivative of digamma, N >= 1: recurrence up to 10 + N, then the
// asymptotic (Euler-Maclaurin) series of the Hurwitz zeta function. Not defined far below 0.
template <int N, typename T> AUTOFN_FN T polygamma(T x) {
  if (!(x > T(-1000))) return T(NAN);
  const T bernoulli[] = {T(1) / T(6),  T(-1) / T(30),     T(1) / T(42), T(-1) / T(30),
                         T(5) / T(66), T(-691) / T(2730), T(7) / T(6)};
  T factorial = T(1);
  for (int k = 2; k <= N; ++k) factorial *= T(k);
  T sum = T(0);
  for (; x < T(10 + N); x += T(1)) sum += autofn::pow(x, T(-N - 1));
  T tail = autofn::pow(x, T(-N)) / T(N) + T(0.5) * autofn::pow(x, T(-N - 1));
  T rising = T(N + 1), even = T(2);
  for (int k = 1; k <= 7; ++k) {
    tail += bernoulli[k - 1] * rising / even * autofn::pow(x, T(-N - 2 * k));
    rising *= T(N + 2 * k) * T(N + 2 * k + 1);
    even *= T(2 * k + 1) * T(2 * k + 2);
  }
  return (N % 2 ? T(1) : T(-1)) * factorial * (sum + tail);
}""",
    "sign": """// The sign; NaN for NaN, 0 for 0.
template <typename T> AUTOFN_FN T sign(T x) {
  return x > T(0) ? T(1) : (x < T(0) ? T(-1) : x);
}""",
    "maximum": """// The greater; NaN if either is NaN, which fmax drops.
template <typename T> AUTOFN_FN T maximum(T a, T b) {
  return a > b || a != a ? a : b;
}""",
    "minimum": """// The smaller; NaN if either is NaN, which fmin drops.
template <typename T> AUTOFN_FN T minimum(T a, T b) {
  return a < b || a != a ? a : b;
}""",
    "clamp": """// x within [low, high]; NaN stays NaN.
template <typename T> AUTOFN_FN T clamp(T x, T low, T high) {
  return x > high ? high : (x < low ? (low < high ? low : high) : x);
}""",
    "along": """// v, what comes of the direction d: 0 where that is, even if a factor overflows.
template <typename T> AUTOFN_FN T along(T d, T v) { return d == T(0) ? T(0) : v; }""",
}
"""C++ helpers by name; printed into a header that uses them.

`autofn::exp` and its like are primitives: see `backends/primitives.py`. `kWay` is a template
parameter of what calls those that are computed in several ways: `templates/primitives/prelude.h`.
"""
