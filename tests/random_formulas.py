"""Formulas that nobody wrote: a hypothesis strategy, and the comparison with mpmath."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import sympy
from hypothesis import strategies as st
from sympy import Expr, Integer, Max, Min, Piecewise, Rational, Symbol

from autofn import Formula
from autofn import functions as heads
from autofn.errors import FormulaError
from autofn.pipeline import generate
from autofn.verify.checks import truth
from autofn.verify.checks.compare import Mismatch
from autofn.verify.checks.context import Context
from autofn.verify.subject import Subject
from autofn.verify.tables import make_job

DEPTH = 5
LARGEST = 25
"""Operations: larger draws are thrown away, they only take longer."""

TENSORS = [Symbol("x", real=True), Symbol("y", real=True)]
PARAMETER = Symbol("alpha", real=True)
NUMBERS = [Integer(1), Integer(2), Integer(-1), Integer(3), Rational(1, 2), Rational(-3, 4)]

EVERYWHERE = [
    sympy.exp, sympy.sin, sympy.cos, sympy.tanh, sympy.atan, sympy.asinh, sympy.erf, sympy.erfc,
    sympy.sinh, sympy.cosh, sympy.Abs, sympy.sign, sympy.sech, sympy.floor,
    heads.sigmoid, heads.softplus, heads.normcdf, heads.expm1, heads.sinc,
    lambda u: Max(u, 0), lambda u: Min(u, 1), lambda u: u**2, lambda u: u**3,
    lambda u: sympy.log(1 + sympy.exp(u)), lambda u: 1 / (1 + sympy.exp(-u)),
    lambda u: sympy.sqrt(1 + u**2), lambda u: sympy.log(1 + u**2), lambda u: 1 / (1 + u**2),
    lambda u: sympy.Heaviside(u, 0),
]  # fmt: skip
"""Functions of any real number, and what people make of others so that they are."""

POSITIVE = [
    sympy.log,
    sympy.sqrt,
    sympy.loggamma,
    sympy.digamma,
    lambda u: 1 / u,
    lambda u: u ** Rational(3, 2),
]
"""Functions of positive numbers: given 1/2 + u**2."""

WITHIN = [sympy.asin, sympy.acos, sympy.atanh]
"""Functions of the open interval (-1, 1): given tanh(u)/2."""


@st.composite
def expressions(draw: st.DrawFn) -> Expr:
    """Up to DEPTH functions deep, of one or two tensors and perhaps a parameter."""
    leaves = st.sampled_from(
        [*TENSORS[: draw(st.integers(1, 2))], *([PARAMETER] * draw(st.integers(0, 1)))]
    )

    def node(depth: int) -> Expr:
        if depth == 0:
            return draw(st.one_of(leaves, leaves, st.sampled_from(NUMBERS)))
        kind = draw(st.integers(0, 9))
        if kind <= 3:
            return draw(st.sampled_from(EVERYWHERE))(node(depth - 1))
        if kind == 4:
            return draw(st.sampled_from(POSITIVE))(Rational(1, 2) + node(depth - 1) ** 2)
        if kind == 5:
            return draw(st.sampled_from(WITHIN))(sympy.tanh(node(depth - 1)) / 2)
        left, right = node(depth - 1), node(draw(st.integers(0, depth - 1)))
        if kind == 6:
            return left + right
        if kind == 7:
            return left * right
        if kind == 8:
            return left - 2 * right
        if draw(st.booleans()):
            return draw(st.sampled_from([Max, Min]))(left, right)
        return Piecewise((left, draw(leaves) > draw(st.sampled_from(NUMBERS))), (right, True))

    return node(draw(st.integers(1, DEPTH)))


def is_formula(expr: Expr) -> bool:
    """Whether a draw is worth a package: real, with a tensor in it, not too large."""
    return bool(
        expr.free_symbols & set(TENSORS)
        and not any(
            isinstance(node, sympy.Function) and not node.free_symbols
            for node in sympy.preorder_traversal(expr)
        )
        and not expr.has(sympy.nan, sympy.zoo, sympy.oo, sympy.I)
        and sympy.count_ops(expr) <= LARGEST
    )


def check(expr: Expr, *, search: bool = True) -> str:
    """What is wrong with the package of an expression; empty where nothing is.

    Values, gradients and second derivatives of the PyTorch path in all dtypes, against mpmath.
    search: for the best kernels too, which are not run but must be found without an error.
    """
    parameters: dict[str, Any] = {"alpha": 0.75} if PARAMETER in expr.free_symbols else {}
    try:
        definition = Formula.from_expr(expr, name="drawn", params=parameters).definition
        package = generate(definition, search=search)
    except FormulaError as error:
        return "" if "does not support" in str(error) else f"refused: {error}"
    with tempfile.TemporaryDirectory(prefix="autofn_drawn_") as name:
        folder = Path(name) / "drawn"
        for path, text in package.files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        job = make_job(definition, str(folder), "quick")
        for module in [m for m in sys.modules if m.startswith("autofn_under_test")]:
            del sys.modules[module]
        context = Context(Subject(job), job)
        op = context.subject.op
        with context.subject.leaves(op._torch_forward, op._torch_backward):
            for each in (truth.values, truth.gradients, truth.seconds):
                try:
                    each(context)
                except Mismatch as error:
                    return f"{each.__name__}: {error}"
    return ""
