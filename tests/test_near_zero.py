"""Regimes near zero: their polynomials in derivatives and for kernels."""

import pytest
import sympy
from sympy import Expr

from autofn.rewrite.near_zero import for_kernels, with_regimes


@pytest.mark.parametrize("turned", [False, True])
def test_regimes_in_a_sum_and_its_mirror(turned: bool) -> None:
    """p*(x - y) where the border is written p*(y - x), beside x - y, keeps its value."""
    x, y, p = sympy.symbols("x y p", real=True)
    u = p * (y - x) if turned else p * (x - y)
    value: Expr = sympy.Float("0.1", 30)
    for k in range(2, 10):
        value = value * p * (x - y) + sympy.Float(1, 30) / k
    node = sympy.Piecewise(
        ((x - y) * value, sympy.Abs(u) < sympy.Rational(1, 4)),
        (sympy.log(1 + p * (x - y)) / p, True),
        evaluate=False,
    )
    at = {x: 0.75, y: 0.5, p: 0.375}
    for expr in (node, node.diff(p), node.diff(x, p)):
        for made in (with_regimes(expr), for_kernels(expr)):
            got, want = (float(each.subs(at)) for each in (made, expr))
            assert got == pytest.approx(want, rel=1e-12)
