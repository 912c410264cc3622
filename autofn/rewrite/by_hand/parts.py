"""What procedures look for in sums and products."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import sympy
from sympy import Add, Expr, Mul, Rational, Symbol, sqrt

from autofn import functions as heads
from autofn import trees
from autofn.compact import LIMIT
from autofn.rewrite import replacements
from autofn.rewrite.conditions import varies
from autofn.rewrite.match import unfold


def is_piecewise(expr: Expr) -> bool:
    return isinstance(expr, sympy.Piecewise)


def terms_with(node: Add, head: type[Expr]) -> Iterator[tuple[Expr, Expr]]:
    """The terms of a sum that have a factor of a kind, and that factor."""
    for term in node.args:
        for factor in Mul.make_args(term):
            if isinstance(factor, head):
                yield term, factor


def divided_out(term: Expr) -> Expr:
    """Of a quotient of a sum, the quotients of its terms."""
    sums = [factor for factor in Mul.make_args(term) if factor.is_Add]
    return Add(*(each * (term / sums[0]) for each in sums[0].args)) if len(sums) == 1 else term


def are_opposite(a: Expr, b: Expr) -> bool:
    """Whether their sum is 0; of decimal fractions, to their digits."""
    if a.is_Float and b.is_number:
        return bool(abs(a + b) <= abs(a) * Rational(1, 2**50))
    return bool(a == -b)


def times_exp_of(term: Expr) -> tuple[Expr, Expr] | None:
    """u and v of v*exp(u)."""
    factors = Mul.make_args(unfold(term))
    for k, factor in enumerate(factors):
        if isinstance(factor, sympy.exp):
            return factor.args[0], Mul(*factors[:k], *factors[k + 1 :])
    return None


def multiples_of_exps(total: Expr) -> list[tuple[Expr, Expr]] | None:
    """u and v of the v*exp(u) of which it is the sum; None where it has other terms."""
    found = [times_exp_of(term) for term in Add.make_args(total)]
    return [each for each in found if each is not None] if None not in found else None


def with_exp(node: Expr, parameters: frozenset[Symbol]) -> tuple[Expr, Expr, Expr] | None:
    """u, v and c of c + v*exp(u)."""
    if not isinstance(node, Add):
        return None
    exps = [(term, *parts) for term in node.args if (parts := times_exp_of(term)) is not None]
    if len(exps) != 1 or not varies(exps[0][1], parameters) or exps[0][1].has(sympy.Min):
        return None
    ((term, u, v),) = exps
    return u, v, node - term


def exps_in_regimes(node: Expr) -> tuple[Expr, Expr] | None:
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
    (_, where), far = replacements.exp_less_exp(u, v).args
    return (u, v) if node.args == ((near, where), far) else None


def square_root(square: Expr) -> Expr | None:
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


def multiple_of(u: Expr, multiple: Expr) -> Expr | None:
    """How many times u it is, where that is one term as both are multiplied out."""
    if trees.size(u) + trees.size(multiple) > LIMIT:
        return None
    u, multiple = sympy.expand_mul(u), sympy.expand_mul(multiple)
    for term in Add.make_args(multiple) if u != 0 else ():
        times = term / Add.make_args(u)[0]
        if sympy.expand_mul(multiple - times * u) == 0:
            return times
    return None


def over_power_of_sum(node: Add, power: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Pairs of terms of which the first over the other is divided by such a power of a sum."""
    for term, other in itertools.permutations(node.args, 2):
        above, below = powers_of_sums(term), powers_of_sums(other)
        if any(above.get(base, 0) - below.get(base, 0) == -power for base in above | below):
            yield term, other


@functools.lru_cache(maxsize=10_000)
def powers_of_sums(term: Expr) -> dict[Expr, Expr]:
    powers = (factor.as_base_exp() for factor in Mul.make_args(term))
    return {base: power for base, power in powers if isinstance(base, Add)}
