"""Functions of exp(u) as functions of t = exp(u)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import sympy
from sympy import Expr, Piecewise, Symbol, exp, log

from autofn import functions as heads
from autofn import trees

_ONCE = (exp, heads.times_exp, heads.sigmoid, heads.softplus, heads.expm1, sympy.sinh, sympy.cosh)
_TWICE = (sympy.tanh, heads.sech2)
"""Functions of exp(2*u)."""


def exponents(expr: Expr) -> list[Expr]:
    """The u, up to a factor, of which an expression has functions of exp(n*u), n whole."""
    found: list[tuple[Expr, list[Expr]]] = []
    for v in sorted(set(_arguments(expr)), key=sympy.default_sort_key):
        for u, ratios in found:
            if (v / u).is_Rational:
                ratios.append(v / u)
                break
        else:
            found.append((v, [sympy.S.One]))
    return [_positive(u * _common(ratios)) for u, ratios in found]


def _arguments(expr: Expr) -> Iterator[Expr]:
    for node in trees.nodes(expr):
        if isinstance(node, _ONCE):
            argument = node.args[-1]
        elif isinstance(node, _TWICE):
            argument = 2 * node.args[-1]
        else:
            continue
        if argument.free_symbols and not argument.has(sympy.Function):
            yield argument


def _positive(u: Expr) -> Expr:
    return -u if u.could_extract_minus_sign() else u


def _common(ratios: list[Expr]) -> Expr:
    """The largest number of which all are whole multiples."""
    bottom = math.lcm(*(int(each.q) for each in ratios))
    return sympy.Rational(math.gcd(*(int(each * bottom) for each in ratios)), bottom)


def in_exponential(expr: Expr, u: Expr, t: Symbol) -> Expr | None:
    """The expression with its functions of n*u written in t = exp(u), functions of those too.

    None where u is left inside another function.
    """
    seen: dict[Expr, Expr | None] = {}
    symbols = u.free_symbols

    def visit(node: Expr) -> Expr | None:
        if not node.args or not node.free_symbols & symbols:
            return node
        if node not in seen:
            seen[node] = found(node)
        return seen[node]

    def found(node: Expr) -> Expr | None:
        if isinstance(node, Piecewise):
            return None
        if isinstance(node, heads.times_exp):
            multiple, value = _multiple(node.args[1], u), visit(node.args[0])
            return None if multiple is None or value is None else value * t**multiple
        known = rational(node, u, t) if isinstance(node, sympy.Function) else None
        if known is None and isinstance(node, sympy.Function):
            known = _logarithmic(node, u, t)
        if known is not None:
            return known
        args = [arg for arg in map(visit, node.args) if arg is not None]
        if len(args) < len(node.args):
            return None
        if isinstance(node, sympy.Function) and any(arg.free_symbols & symbols for arg in args):
            return None
        return node.func(*args)

    return visit(expr)


def rational(node: Expr, u: Expr, t: Symbol) -> Expr | None:
    """A function of n*u that is rational in t = exp(u); None if it is another."""
    if isinstance(node, sympy.tanh | heads.sech2):
        inner = node.args[0]
        if isinstance(inner, heads.softplus):
            multiple = _multiple(inner.args[0], u)
            if multiple is None:
                return None
            s = t**multiple
            square = s**2 + 2 * s
            if isinstance(node, sympy.tanh):
                return square / (square + 2)
            return 4 * (1 + s) ** 2 / (square + 2) ** 2
        multiple = _multiple(2 * inner, u)
        if multiple is None:
            return None
        power = t ** abs(multiple)
        if isinstance(node, heads.sech2):
            return 4 * power / (1 + power) ** 2
        return (1 if multiple > 0 else -1) * (power - 1) / (power + 1)
    if isinstance(node, exp):
        multiple = _multiple(node.args[0], u)
        return None if multiple is None else t**multiple
    if isinstance(node, heads.sigmoid):
        multiple = _multiple(node.args[0], u)
        if multiple is None:
            return None
        power = t ** abs(multiple)
        return power / (1 + power) if multiple > 0 else 1 / (1 + power)
    if isinstance(node, heads.expm1 | sympy.sinh | sympy.cosh):
        multiple = _multiple(node.args[0], u)
        if multiple is None:
            return None
        if isinstance(node, heads.expm1):
            return t**multiple - 1
        return (t**multiple + (1 if isinstance(node, sympy.cosh) else -1) / t**multiple) / 2
    return None


def _logarithmic(node: Expr, u: Expr, t: Symbol) -> Expr | None:
    if isinstance(node, heads.softplus) and (multiple := _multiple(node.args[0], u)):
        return log(1 + t ** abs(multiple)) + (0 if multiple > 0 else multiple * u)
    if isinstance(node, heads.logcosh) and (multiple := _multiple(2 * node.args[0], u)):
        n = abs(multiple)
        return log((1 + t**n) / 2) - sympy.Rational(n, 2) * u
    return None


def _multiple(argument: Expr, u: Expr) -> int | None:
    """n of an argument n*u; None where it is something else."""
    if argument == u:
        return 1  # of a decimal fraction the ratio is a decimal fraction
    ratio = argument / u
    return int(ratio) if ratio.is_Integer and ratio != 0 else None
