"""Quotients of phi functions, in second derivatives: both parts overflow together.

phi_n(u) is (exp(u) - 1 - u - ...)/u**n. Where exp(u) is all that counts, the quotient of two is a
power of u. First derivatives have this from the exponential normal form.
"""

from __future__ import annotations

from functools import cache

from sympy import Basic, Expr, Min, Mul, Piecewise

from autofn import functions as heads
from autofn import trees

FAR = 48
"""Beyond, u**3*exp(-u) is less than half of float64's last digit beside 1."""


def bounded(expr: Expr) -> Expr:
    """The expression, its quotients of phi functions of one argument finite where that is large."""

    @cache
    def visited(node: Basic) -> Basic:
        if node.args:
            node = trees.rebuilt(node, [visited(arg) for arg in node.args])
        return _bounded(node) if isinstance(node, Mul) else node

    found = visited(expr)
    assert isinstance(found, Expr)
    return found


def _bounded(node: Mul) -> Expr:
    left = dict(factor.as_base_exp() for factor in node.args)
    above, below = (
        [
            phi
            for phi, power in left.items()
            if _is_phi(phi) and power.is_Integer and sign * power > 0
        ]
        for sign in (1, -1)
    )
    pairs = [(a, b) for a in above for b in below if a.args[1] == b.args[1]]
    quotients = []
    for a, b in pairs:
        n = min(left[a], -left[b])
        left[a], left[b] = left[a] - n, left[b] + n
        quotients.append(_quotient(a, b) ** n)
    return Mul(*(base**power for base, power in left.items()), *quotients) if pairs else node


def _is_phi(base: Expr) -> bool:
    return isinstance(base, heads.phi)


def _quotient(above: Expr, below: Expr) -> Expr:
    (m, u), (n, _) = above.args, below.args
    near = heads.phi(m, Min(u, FAR)) / heads.phi(n, Min(u, FAR))
    return Piecewise((u ** (n - m), u > FAR), (near, True), evaluate=False)
