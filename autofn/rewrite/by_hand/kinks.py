"""Rules of functions that are singular where a sum with a size vanishes: no pattern finds these."""

from __future__ import annotations

import sympy
from sympy import Add, Expr, Mul

from autofn import trees
from autofn.rewrite.by_hand.parts import are_opposite


def log_of_side(node: Expr) -> Expr | None:
    """log(node), of a sum less the size of a sum with it."""
    side = _side(node)
    return None if side is None else sympy.log(side)


def power_of_side(node: Expr) -> Expr | None:
    """A power that is not of a natural number, of such a sum."""
    base, exponent = node.args
    if exponent.is_Integer and exponent.is_positive:
        return None
    side = _side(base)
    return None if side is None else node.func(side, exponent)


def _side(total: Expr) -> Expr | None:
    """c - m*|u|, with c or -c among the terms of m*u, as the lesser of its two sides.

    1 - |2*x - 1| is the lesser of 2*x and 2 - 2*x; m*|u| - c is the greater.
    """
    for term in total.args if isinstance(total, Add) else ():
        sizes = [each for each in Mul.make_args(term) if isinstance(each, sympy.Abs)]
        if len(sizes) != 1 or not isinstance(sizes[0].args[0], Add):
            continue
        (u,) = sizes[0].args
        multiple = term / sizes[0]
        m = -multiple if multiple.could_extract_minus_sign() else multiple
        others = [each for each in total.args if each is not term] if m.is_positive else []
        for c, d in ((c, d) for c in others for d in u.args):
            sign = 1 if are_opposite(c, -m * d) else -1 if are_opposite(c, m * d) else 0
            rest = total - term - c
            if sign and trees.symbols(rest).isdisjoint(trees.symbols(u)):
                w = sign * m * (u - d)
                side = sympy.Max if m is multiple else sympy.Min
                return rest + side(-w, w + 2 * c)
    return None
