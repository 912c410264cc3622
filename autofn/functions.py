"""Functions that users expect and SymPy lacks, each kept whole so that it prints stably.

They are ordinary SymPy functions of real arguments: `from autofn.functions import sigmoid`.
Those in lower case with a class of their own are *heads*: derivation keeps them, and the
derivative of each stays in the family (`sigmoid` -> `sigmoid(x)*sigmoid(-x)`), so that no
overflowing or cancelling form ever arises. `definition` gives a head in plain SymPy.
"""

from __future__ import annotations

from typing import Any, Literal

import sympy
from sympy import Expr, Function, Max, Piecewise, Rational, S, pi

__all__ = [
    "clamp",
    "expm1",
    "gelu",
    "log1p",
    "logsigmoid",
    "normcdf",
    "relu",
    "sigmoid",
    "silu",
    "sinc",
    "softplus",
]


class Head(Function):  # type: ignore[misc]  # SymPy has no types
    """A real function with a stable implementation in every backend."""

    is_real = True
    is_commutative = True

    def _hashable_content(self) -> tuple[object, ...]:
        # SymPy hashes by the class's name, and has a sinc of its own.
        return (*super()._hashable_content(), "autofn")

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        """The head in plain SymPy, of any stability."""
        raise NotImplementedError(cls.__name__)

    def _eval_evalf(self, prec: int) -> Expr:
        return self.definition(*self.args)._eval_evalf(prec)

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        args = ", ".join(printer._print(arg) for arg in self.args)
        power = f"^{{{exp}}}" if exp else ""
        return rf"\operatorname{{{self.func.__name__}}}{power}\left({args}\right)"


class sigmoid(Head):
    """1 / (1 + exp(-x))."""

    is_positive = True
    nargs = (1,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return 1 / (1 + sympy.exp(-args[0]))


class softplus(Head):
    """log(1 + exp(x))."""

    is_positive = True
    nargs = (1,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return sympy.log(1 + sympy.exp(args[0]))


class expm1(Head):
    """exp(x) - 1."""

    nargs = (1,)

    @classmethod
    def eval(cls, x: Expr) -> Expr | None:
        # What a rule leaves of terms that are the same, in two ways of writing.
        return sympy.S.Zero if x == 0 else None

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return sympy.exp(args[0]) - 1


class log1p(Head):
    """log(1 + x)."""

    nargs = (1,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return sympy.log(1 + args[0])


class normcdf(Head):
    """The standard normal distribution function, erfc(-x / sqrt(2)) / 2."""

    is_positive = True
    nargs = (1,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return sympy.erfc(-args[0] / sympy.sqrt(2)) / 2


class log_normal_mass(Head):
    """log(normcdf(u) - normcdf(v)), also where the difference vanishes; d is u - v."""

    is_nonpositive = True
    nargs = (3,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return sympy.log(_normal_mass(*args))


class normal_mass_upper(Head):
    """density(u) / (normcdf(u) - normcdf(v)), of the standard normal distribution; d is u - v."""

    nargs = (3,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return _normal_density(args[0]) / _normal_mass(*args)


class normal_mass_lower(Head):
    """density(v) / (normcdf(u) - normcdf(v))."""

    nargs = (3,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return _normal_density(args[1]) / _normal_mass(*args)


class normal_mass_mean(Head):
    """(density(v) - density(u)) / (normcdf(u) - normcdf(v)), the mean between v and u."""

    nargs = (3,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        u, v, _ = args
        return (_normal_density(v) - _normal_density(u)) / _normal_mass(*args)


def _normal_mass(u: Expr, v: Expr, d: Expr) -> Expr:
    del d
    return normcdf.definition(u) - normcdf.definition(v)


def _normal_density(u: Expr) -> Expr:
    return sympy.exp(-(u**2) / 2) / sympy.sqrt(2 * pi)


class clamp(Head):
    """Min(Max(x, lo), hi), with PyTorch's gradient: 1 on the closed interval."""

    nargs = (3,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        x, low, high = args
        return sympy.Min(Max(x, low), high)


class sinc(Head):
    """sin(x) / x, and 1 at 0: SymPy's convention, not the one with pi."""

    nargs = (1,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        x = args[0]
        return Piecewise((sympy.sin(x) / x, sympy.Ne(x, 0)), (S.One, True))


class sech2(Head):
    """1 / cosh(x)**2, the derivative of tanh."""

    is_positive = True
    nargs = (1,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return 1 / sympy.cosh(args[0]) ** 2


class logcosh(Head):
    """log(cosh(x))."""

    nargs = (1,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return sympy.log(sympy.cosh(args[0]))


class spherical_bessel(Head):
    """The spherical Bessel function j_n(x), n = 1, 2, ...; j_0 is `sinc`."""

    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        order, x = args
        plain = sympy.expand_func(sympy.jn(order, x))
        return Piecewise((plain, sympy.Ne(x, 0)), (S.Zero, True))


class sinpi(Head):
    """sin(pi * x / y): exactly 0 at its roots, and right however many turns x has."""

    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return sympy.sin(pi * args[0] / args[1])


class cospi(Head):
    """cos(pi * x / y)."""

    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return sympy.cos(pi * args[0] / args[1])


class sincpi(Head):
    """sinc(pi * x / y)."""

    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return sinc.definition(pi * args[0] / args[1])


class spherical_bessel_pi(Head):
    """spherical_bessel(n, pi * x / y)."""

    nargs = (3,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        order, x, y = args
        return spherical_bessel.definition(order, pi * x / y)


class phi(Head):
    """phi_n(x) = (exp(x) - sum of x**k / k! for k < n) / x**n, n >= 1; phi_1 = expm1(x) / x.

    1 / n! at 0. Its derivative is phi_n - n * phi_(n+1).
    """

    is_positive = True
    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        n, x = args
        rest = sympy.exp(x) - sum(x**k / sympy.factorial(k) for k in range(int(n)))
        return Piecewise((rest / x**n, sympy.Ne(x, 0)), (1 / sympy.factorial(n), True))


class root_sum(Head):
    """sqrt(a**2 + c), c > 0 without a tensor in it: of any a, however large."""

    is_positive = True
    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return sympy.sqrt(args[0] ** 2 + args[1])


class root_rest(Head):
    """sqrt(a**2 + c) - sqrt(c), c > 0: near a = 0 as a**2 / (sqrt(a**2 + c) + sqrt(c))."""

    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return sympy.sqrt(args[0] ** 2 + args[1]) - sympy.sqrt(args[1])


class expm1mx(Head):
    """exp(x) - 1 - x, without its cancellation near 0."""

    is_nonnegative = True
    nargs = (1,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return sympy.exp(args[0]) - 1 - args[0]


class log1pmx(Head):
    """log(1 + x) - x, without its cancellation near 0."""

    is_nonpositive = True
    nargs = (1,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return sympy.log(1 + args[0]) - args[0]


class pow1pm1(Head):
    """(1 + x) ** y - 1 for a y known at run time, without its cancellation near x = 0 or y = 0."""

    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return (1 + args[0]) ** args[1] - 1


class log1mexp(Head):
    """log(1 - exp(u)), u < 0: near 0 by exp(u) - 1, else by log1p."""

    is_nonpositive = True
    nargs = (1,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return sympy.log(1 - sympy.exp(args[0]))


class logaddexp(Head):
    """log(exp(a) + exp(b))."""

    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return sympy.log(sympy.exp(args[0]) + sympy.exp(args[1]))


class softplus_rise(Head):
    """softplus(x + d) - softplus(x), also where both are large, or tiny."""

    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        x, d = args
        return sympy.log(1 + sympy.exp(x + d)) - sympy.log(1 + sympy.exp(x))


class softplus_divergence(Head):
    """softplus(v) - softplus(u) - (v - u)*sigmoid(u), Bregman's divergence, also near u = v."""

    is_nonnegative = True
    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        u, v = args
        rise = sympy.log(1 + sympy.exp(v)) - sympy.log(1 + sympy.exp(u))
        return rise - (v - u) / (1 + sympy.exp(-u))


class mean_root(Head):
    """(a + sqrt(a**2 + c)) / 2, c > 0; for a < 0 as c / (sqrt(a**2 + c) - a) / 2."""

    is_positive = True
    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return (args[0] + sympy.sqrt(args[0] ** 2 + args[1])) / 2


class mean_any_root(Head):
    """(a + sqrt(a**2 + c)) / 2 for any c; for a < 0 as c / (sqrt(a**2 + c) - a) / 2."""

    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return (args[0] + sympy.sqrt(args[0] ** 2 + args[1])) / 2


class root_split(Head):
    """sqrt(u**2 + c) - sqrt(v**2 + c), c > 0, as 4*m*d over the sum of the roots.

    m and d are half of u + v and of u - v, which only who knows the terms of u and v can tell.
    """

    nargs = (5,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        u, v, _, _, c = args
        return sympy.sqrt(u**2 + c) - sympy.sqrt(v**2 + c)


class share_split(Head):
    """u/sqrt(u**2 + c) - v/sqrt(v**2 + c), c > 0, of the same arguments: root_split's slope."""

    nargs = (5,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        u, v, _, _, c = args
        return u / sympy.sqrt(u**2 + c) - v / sympy.sqrt(v**2 + c)


class root_rise(Head):
    """sqrt(x + d) - sqrt(x), as d / (sqrt(x + d) + sqrt(x))."""

    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        x, d = args
        return sympy.sqrt(x + d) - sympy.sqrt(x)


class power(Head):
    """base ** exponent for an exponent known at run time, with PyTorch's gradients at 0."""

    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return args[0] ** args[1]


class times_exp(Head):
    """v * exp(u): 0 where v is 0, however large u is, and finite wherever the product is."""

    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return args[0] * sympy.exp(args[1])


class loggamma(Head):
    """log(|gamma(x)|): SymPy's own is a logarithm of gamma wherever x is known to be whole."""

    nargs = (1,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return sympy.log(sympy.Abs(sympy.gamma(args[0])))


class xlogy(Head):
    """v * log(u): 0 where v is 0 and log(u) minus infinity, or a number."""

    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return args[0] * sympy.log(args[1])


class xlog1py(Head):
    """v * log(1 + u): 0 where v is 0 and the logarithm minus infinity, or a number."""

    nargs = (2,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return args[0] * sympy.log(1 + args[1])


class cbrt(Head):
    """The real cube root, negative for negative x."""

    nargs = (1,)

    @classmethod
    def definition(cls, *args: Expr) -> Expr:
        return sympy.sign(args[0]) * sympy.Abs(args[0]) ** Rational(1, 3)


def relu(x: Expr) -> Expr:
    """Max(x, 0); its gradient at 0 is 0."""
    return Max(x, 0)


def silu(x: Expr) -> Expr:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def logsigmoid(x: Expr) -> Expr:
    """log(sigmoid(x))."""
    return -softplus(-x)


def gelu(x: Expr, approximate: Literal["none", "tanh"] = "none") -> Expr:
    """x * normcdf(x), or its tanh approximation (arXiv:1606.08415)."""
    if approximate == "none":
        return x * normcdf(x)
    if approximate == "tanh":
        inner = sympy.sqrt(2 / pi) * (x + sympy.Float("0.044715") * x**3)
        return x * (1 + sympy.tanh(inner)) / 2
    raise ValueError(f"approximate is 'none' or 'tanh', not {approximate!r}")
