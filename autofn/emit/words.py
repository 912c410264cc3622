"""A formula in words, for docstrings and comments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sympy import Expr, Symbol

from autofn import trees
from autofn.model import (
    Definition,
    Kind,
    Parameter,
)
from autofn.plan import Plan
from autofn.rewrite.near_zero import without_series
from autofn.rewrite.within import without_marks


def title(definition: Definition) -> str:
    """The docstring's first line, or the formula itself where there is none."""
    line = definition.doc.splitlines()[0].strip() if definition.doc else ""
    return _safe(line) or f"{definition.name}, generated from a formula."


def _safe(text: str) -> str:
    """Users' words inside a docstring or comment: nothing in them may end it."""
    return text.replace("\\", "\\\\").replace('"""', "'''").replace("*/", "* /").rstrip()


def condition(key: Sequence[tuple[str, Any]], definition: Definition) -> str:
    parts = []
    for name, value in key:
        if definition.leaf(name).kind is Kind.OPTIONAL:
            parts.append(f"{name} given" if value else f"{name} is None")
        else:
            parts.append(f"{definition.leaf(name).path} = {_safe(repr(value))}")
    return ", ".join(parts)


LONGEST = 200
"""Operations beyond which a formula is no help to read."""


def formula_lines(made: Plan) -> list[str]:
    """The formula and its gradient, as they are read."""
    definition = made.definition
    signature = ", ".join(parameter.name for parameter in definition.parameters)
    head = f"{definition.name}({signature})"
    many = len(definition.output_names) > 1
    lines: list[str] = []
    for variant, source in zip(made.variants, definition.variants, strict=True):
        if variant.key:
            lines.append(f"where {condition(variant.key, definition)}:")
        indent = "    " if variant.key else ""
        for name, expr in zip(definition.output_names, source.outputs, strict=True):
            label = f"{head}.{name}" if many else head
            lines += _wrapped(f"{indent}{label} = {readable(expr)}")
        for symbol, entry in zip(variant.derivation.variables, variant.derivation.vjp, strict=True):
            shown = "none" if entry is None else readable(entry)
            lines += _wrapped(f"{indent}grad {symbol.name} = {shown}")
    return [_safe(line) for line in lines]


def readable(expr: Expr) -> str:
    expr = without_marks(without_series(expr))
    operations = trees.size(expr)
    if operations > LONGEST:
        return f"an expression of {operations} operations"
    renamed = {
        symbol: Symbol(symbol.name.lstrip("_"))
        for symbol in expr.free_symbols
        if symbol.name.startswith("_")
    }
    # A Piecewise evaluated anew would be simplified: only names change here.
    return str(expr.xreplace(renamed))


def _wrapped(line: str, width: int = 92) -> list[str]:
    """The line broken at spaces, or after a `*` where there are none."""
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    lines: list[str] = []
    while len(line) > width:
        cut = line.rfind(" ", len(indent) + 1, width)
        after = cut + 1
        if cut <= len(indent):
            cut = after = line.rfind("*", len(indent) + 1, width) + 1
        if cut <= len(indent):
            break
        lines.append(line[:cut])
        line = indent + line[after:]
    return [*lines, line]


def function_doc(made: Plan) -> str:
    definition = made.definition
    lines = [_safe(line) for line in definition.doc.splitlines()] or [title(definition)]
    lines += ["", *(f"    {line}" for line in formula_lines(made)), ""]
    for parameter in definition.parameters:
        lines.append(f"{parameter.name}: {_describe(parameter)}")
    if definition.options.reduction:
        lines.append('reduction: "none", "mean" or "sum" over all elements.')
    if definition.options.domain:
        inside = ", ".join(f"{n} in {interval}" for n, interval in definition.options.domain)
        lines.append(f"Defined for {inside}; outside it results are unspecified.")
    lines.append("The result has the common broadcast shape and the promoted dtype of the tensors.")
    return "\n".join(indented(lines, "    "))


def _describe(parameter: Parameter) -> str:
    if parameter.kind is Kind.PER_CHANNEL:
        return f"1-D tensor along dimension {parameter.dim} of the result, or of one element."
    if parameter.kind is Kind.CHOICE:
        return _safe(f"one of {', '.join(map(repr, parameter.values))}.")
    return {
        Kind.TENSOR: "tensor of any shape; tensors broadcast.",
        Kind.OPTIONAL: "tensor of any shape, or None.",
        Kind.LEARNABLE: "tensor of one element.",
        Kind.FLOAT: "number, without a gradient.",
        Kind.INT: "integer, without a gradient.",
        Kind.SETTINGS: f"a {parameter.type_name}, or any object with its fields.",
    }[parameter.kind]


def indented(lines: list[str], indent: str) -> list[str]:
    return [lines[0], *(f"{indent}{line}".rstrip() for line in lines[1:]), indent]
