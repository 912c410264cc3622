"""Recognition of stable heads in what users write, before anything is differentiated."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import sympy
from sympy import (
    And,
    Basic,
    Eq,
    Expr,
    Piecewise,
    S,
    Symbol,
)

from autofn import functions as heads
from autofn import trees
from autofn.errors import FormulaError
from autofn.model import Definition
from autofn.ops import BY_CLASS, STRUCTURAL
from autofn.rewrite.by_hand.masses import of_mass
from autofn.rewrite.heads import polynomial
from autofn.rewrite.rewriting import rewritten
from autofn.rewrite.rule import Rule
from autofn.rewrite.rules import NAMES


@dataclass(frozen=True)
class Step:
    """One application of a rule: a subexpression before and after."""

    rule: str
    before: Basic
    after: Basic
    why: str


def recognise(
    expr: Expr, parameters: frozenset[Symbol] = frozenset(), steps: list[Step] | None = None
) -> Expr:
    """The same function with its heads found: `1/(1 + exp(-x))` becomes `sigmoid(x)`.

    Values are equal wherever what was written is finite. Kinks stay where they are. `parameters`
    are symbols of moderate values, numbers and learnable parameters. The rules that were used are
    appended to `steps`.
    """
    if steps is None:
        return _remembered(expr, parameters)
    seen: dict[Basic, Basic] = {}

    def visit(node: Basic) -> Basic:
        if node not in seen:
            seen[node] = _visited(node, visit, parameters, steps)
        return seen[node]

    return visit(expr)


# Derivatives are made of the same parts over and over.
@lru_cache(maxsize=100_000)
def _remembered(node: Basic, parameters: frozenset[Symbol]) -> Basic:
    return _visited(node, lambda arg: _remembered(arg, parameters), parameters, None)


def _visited(
    node: Basic,
    visit: Callable[[Basic], Basic],
    parameters: frozenset[Symbol],
    steps: list[Step] | None,
) -> Basic:
    if not node.args or node.is_Number:
        return node
    if (mass := of_mass(node)) is not None:
        # Before its difference is seen, which has a form of its own.
        return visit(_stepped(node, *mass, steps))
    args = [visit(arg) for arg in node.args]
    rebuilt = trees.rebuilt(node, args)
    if rebuilt.func is not node.func and rebuilt.args and rebuilt not in args:
        # SymPy knows more of the new arguments: loggamma at a half-integer is a log of powers.
        return visit(rebuilt)
    return _rewritten(rebuilt, parameters, steps)


def _stepped(node: Basic, rule: Rule, new: Expr, steps: list[Step] | None) -> Expr:
    """What a rule gives, written down."""
    if steps is not None:
        steps.append(Step(rule.name, node, new, rule.why))
    return new


def _rewritten(node: Basic, parameters: frozenset[Symbol], steps: list[Step] | None) -> Basic:
    found = rewritten(node, parameters)
    if found is not None and found[1] != node:
        new = _stepped(node, *found, steps)
        # A rule's result may be open to others: log(sigmoid) gives softplus.
        return recognise(new, parameters, steps) if new.args else new
    for kind, form in _PLAIN_FORMS:
        if isinstance(node, kind):
            plain = form(node)
            return recognise(plain, parameters, steps) if plain != node else node
    return node


def _heaviside(node: Basic) -> Basic:
    u, at_zero = node.args
    # Last the argument itself: neither above, below nor at 0, it is NaN, and stays so.
    return Piecewise(
        (S.One, u > 0), (S.Zero, u < 0), (at_zero, Eq(u, 0)), (sympy.sign(u), True),
        evaluate=False,
    )  # fmt: skip


def _polygamma(node: Basic) -> Basic:
    if not (node.args[0].is_Integer and node.args[0] >= 0):
        raise FormulaError(
            f"polygamma of order {node.args[0]}",
            remedy="the order is a whole number known when the formula is written",
        )
    return node


def _log_of_pieces(node: Basic) -> Basic:
    """Of each piece, where it may be a head: log(sigmoid(x)) is -softplus(-x)."""
    (arg,) = node.args
    if not isinstance(arg, Piecewise):
        return node
    return Piecewise(*((sympy.log(value), where) for value, where in arg.args), evaluate=False)


_PLAIN_FORMS: tuple[tuple[type, Callable[[Basic], Basic]], ...] = (
    (sympy.Heaviside, _heaviside),
    (sympy.polygamma, _polygamma),
    (sympy.log, _log_of_pieces),
    (sympy.Xor, lambda node: node.rewrite(And)),
    (sympy.ITE, lambda node: node.to_nnf(simplify=False)),
    (sympy.Implies, lambda node: node.to_nnf(simplify=False)),
    (sympy.Equivalent, lambda node: node.to_nnf(simplify=False)),
    (sympy.Derivative, lambda node: node.doit()),
)
"""Classes that no backend has, in terms of others; and such as are to be seen another way."""


SUPPORTED_NAMES = sorted(
    {kind.__name__ for kind in BY_CLASS}
    | {rule.pattern.func.__name__ for rule in NAMES}
    | {kind.__name__ for kind, _ in _PLAIN_FORMS}
    | {"log", "Add", "Mul", "Pow"}
    | {"sqrt", "Max", "Min", "Piecewise", "Rational", "pi", "E", *heads.__all__}
)
"""What a formula may call, for error messages."""


def check_supported(expr: Expr, definition: Definition) -> None:
    """Raises FormulaError, naming the function and the nearest supported one, or the number."""
    for number in _numbers(expr):
        _check_number(number, definition)
    for node in trees.nodes(expr):
        if node.is_Symbol or (node.is_number and not node.has(sympy.Function)):
            continue
        if isinstance(
            node,
            (*STRUCTURAL, *BY_CLASS, polynomial, sympy.functions.elementary.piecewise.ExprCondPair),
        ):
            continue
        if node in (S.true, S.false):
            continue
        name = node.func.__name__
        if name in ("DiracDelta", "SingularityFunction"):
            remedy = "it has no value at its peak; leave it out, derivatives of steps are 0"
        else:
            close = difflib.get_close_matches(name, SUPPORTED_NAMES, 1, 0.0)
            remedy = f"the nearest supported one is {close[0]}; write it out of supported functions"
            if name in ("Sum", "Product", "Integral", "Limit"):
                remedy = "write it out as an expression; Python's own loops and sum() work"
        raise FormulaError(
            f"{definition.name} uses {name}, which autofn does not support",
            where=definition.locate(name),
            remedy=remedy,
        )


def _numbers(expr: Basic) -> Iterator[Expr]:
    """The largest subexpressions that are numbers: computed when the package is generated."""
    seen: set[Basic] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            if isinstance(node, Expr) and not trees.symbols(node):
                yield node
            else:
                stack.extend(node.args)


def _check_number(number: Expr, definition: Definition) -> None:
    value = number if number.is_Integer or number.is_infinite else number.evalf(15)
    if value.has(S.ImaginaryUnit):
        what, remedy = "is not real", "a formula is real for real inputs: take a real form of it"
    elif value.is_number and value.is_finite and abs(value) > LARGEST:
        what, remedy = "is beyond the largest float64", "scale the formula"
    else:
        return
    text = str(number)
    shown = text if len(text) <= 40 else f"{text[:37]}..."
    raise FormulaError(
        f"{definition.name} contains {shown}, which {what}", where=definition.where, remedy=remedy
    )


LARGEST = 2**1024 - 2**970
"""The largest finite float64."""
