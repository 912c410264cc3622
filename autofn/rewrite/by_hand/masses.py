"""Rules of the mass of a normal distribution between two ends, before its difference is seen.

That has a form of its own, which keeps its digits but not what is beside it.
"""

from __future__ import annotations

import sympy
from sympy import Add, Basic, Expr, Mul, S, sqrt

from autofn import functions as heads
from autofn import trees
from autofn.rewrite.match import are_equal, put
from autofn.rewrite.rule import Rule, U, V
from autofn.rewrite.rules import NAMED

_LOG = NAMED["log of a normal mass"]
_UPPER = NAMED["density at the upper end of a normal mass, over that"]
_LOWER = NAMED["density at the lower end of a normal mass, over that"]
_MEAN = NAMED["difference of densities over a normal mass"]


def of_mass(node: Basic) -> tuple[Rule, Expr] | None:
    """The logarithm of a mass, or densities at its ends over it, in a product."""
    if isinstance(node, sympy.log):
        return _log(node.args[0])
    return _densities(node) if isinstance(node, Mul) else None


def _log(product: Expr) -> tuple[Rule, Expr] | None:
    """log(k*(normcdf(u) - normcdf(v))), k > 0, or of erf or erfc."""
    factors = Mul.make_args(product)
    masses = [(each, mass) for each in factors if (mass := _mass(each)) is not None]
    if len(masses) != 1:
        return None
    ((factor, (k, u, v)),) = masses
    rest = Mul(*(each for each in factors if each is not factor))
    return (_LOG, sympy.log(k * rest) + put(_LOG, {U: u, V: v})) if rest.is_positive else None


def _densities(product: Mul) -> tuple[Rule, Expr] | None:
    """A density at an end, or a sum with such terms, over k*(normcdf(u) - normcdf(v))."""
    for fraction in product.args:
        total, power = fraction.as_base_exp()
        if not (power.is_Integer and power < 0) or (mass := _mass(total)) is None:
            continue
        k, u, v = mass
        for factor in (each for each in product.args if each is not fraction):
            above, times = factor.as_base_exp() if factor.is_Pow else (factor, 1)
            if times == -power and (found := _over_mass(above, u, v)) is not None:
                rule, share = found
                return rule, product / fraction / factor * (share / k) ** -power
    return None


def _over_mass(above: Expr, u: Expr, v: Expr) -> tuple[Rule, Expr] | None:
    """The sum, all of whose terms have a density at an end for a factor, over the mass."""
    upper: Expr = S.Zero
    lower: Expr = S.Zero
    for term in Add.make_args(above):
        for exponential in (each for each in Mul.make_args(term) if isinstance(each, sympy.exp)):
            if are_equal(exponential.args[0], -(u**2) / 2):
                upper += term / exponential
                break
            if are_equal(exponential.args[0], -(v**2) / 2):
                lower += term / exponential
                break
        else:
            return None
    ends = {U: u, V: v}
    if upper == -lower:
        return _MEAN, lower * put(_MEAN, ends)
    rule = _UPPER if upper != 0 else _LOWER
    return rule, upper * put(_UPPER, ends) + lower * put(_LOWER, ends)


def _mass(total: Expr) -> tuple[Expr, Expr, Expr] | None:
    """k, u and v of k*(normcdf(u) - normcdf(v)), k > 0, or of erf or erfc."""
    if not (isinstance(total, Add) and len(total.args) == 2 and trees.symbols(total)):
        return None
    terms = [term.as_coeff_Mul() for term in total.args]
    (k, f), (other, g) = terms if terms[0][0] > 0 else reversed(terms)
    if k != -other or f.func != g.func:
        return None
    if isinstance(f, sympy.erfc):
        f, g = sympy.erf(g.args[0]), sympy.erf(f.args[0])
    if isinstance(f, sympy.erf):
        f, g, k = heads.normcdf(sqrt(2) * f.args[0]), heads.normcdf(sqrt(2) * g.args[0]), 2 * k
    return (k, f.args[0], g.args[0]) if isinstance(f, heads.normcdf) else None
