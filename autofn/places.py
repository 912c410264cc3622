"""Where in the user's own text something is: lines and columns of calls, parameters, exceptions."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import textwrap
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

from autofn.errors import Location


def of_definition(body: Callable[..., Any]) -> Location:
    """The line of `def`, which `co_firstlineno` is not where there are decorators, and its name."""
    code = body.__code__
    line = code.co_firstlineno
    try:
        lines, start = inspect.getsourcelines(body)
    except (OSError, TypeError, SyntaxError):
        return Location(code.co_filename, line)
    for offset, text in enumerate(lines):
        found = re.match(r"\s*(?:async\s+)?def\s+(\w+)", text)
        if found:
            return Location(code.co_filename, start + offset, found.span(1))
    return Location(code.co_filename, line)


def of_parameter(body: Callable[..., Any], name: str) -> Location:
    """A parameter in the signature; that of the function where it is not found."""
    where = of_definition(body)
    for node, start, indent in _nodes(body):
        if isinstance(node, ast.arg) and node.arg == name:
            return _place(node, where.file, start, indent)
    return where


def of_calls(body: Callable[..., Any], file: str) -> dict[str, Location]:
    """Where a function first calls what, by the callee's last name."""
    found: dict[str, Location] = {}
    for node, start, indent in _nodes(body):
        if isinstance(node, ast.Call):
            callee = node.func
            name = callee.id if isinstance(callee, ast.Name) else getattr(callee, "attr", "")
            found.setdefault(name, _place(node, file, start, indent))
    return found


def of_symbol(body: Callable[..., Any], name: str) -> Location | None:
    """The call that names a symbol, Symbol("k") say; None where there is none."""
    where = of_definition(body)
    for node, start, indent in _nodes(body):
        if isinstance(node, ast.Call) and any(
            isinstance(each, ast.Constant) and each.value == name for each in node.args
        ):
            return _place(node, where.file, start, indent)
    return None


def of_exception(error: BaseException, file: str) -> Location | None:
    """The innermost line of a file that an exception went through, None where it did not."""
    found, trace = None, error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == file:
            found = Location(file, trace.tb_lineno, _span(code, trace.tb_lasti, trace.tb_lineno))
        trace = trace.tb_next
    return found


def text_at(where: Location) -> str:
    """What is meant of a line of a file; all of it where that is not known."""
    line = linecache.getline(where.file, where.line)
    return line[slice(*where.span)] if where.span else line.strip()


def of_zero(body: Callable[..., Any]) -> Location | None:
    """The first division by a literal zero, None where there is none."""
    where = of_definition(body)
    for node, start, indent in _nodes(body):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            by = node.right
            if isinstance(by, ast.Constant) and by.value == 0:
                return _place(node, where.file, start, indent)
    return None


def of_truth(body: Callable[..., Any], names: frozenset[str]) -> Location | None:
    """Where arithmetic of such names stands for true or false: in `x and y`, `not x`, `if x:`."""
    where = of_definition(body)
    for node, start, indent in _nodes(body):
        tested: list[ast.expr] = []
        if isinstance(node, ast.BoolOp):
            tested = node.values
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            tested = [node.operand]
        elif isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            tested = [node.test]
        for each in tested:
            if _is_arithmetic(each, names):
                return _place(each, where.file, start, indent)
    return None


def of_equality(body: Callable[..., Any], names: frozenset[str]) -> Location | None:
    """Where arithmetic of such names is asked what it equals: `x == 0`, `n in (1, 2)`, `d.get(n)`.

    Local names that stand for arithmetic, or for a SymPy function of it, count as well.
    """
    where = of_definition(body)
    nodes = _nodes(body)
    known = set(names)
    given = getattr(body, "__globals__", {})
    for node, _, _ in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name) and _is_symbolic(node.value, known, given):
                known.add(target.id)
    for node, start, indent in nodes:
        asked: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            if any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
                asked = [node.left, *node.comparators]
            elif any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
                asked = [node.left]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            asked = node.args[:1] if node.func.attr == "get" else []
        if any(_is_symbolic(each, known, given) for each in asked):
            return _place(cast(ast.expr, node), where.file, start, indent)
    return None


def _is_symbolic(node: ast.expr, names: Collection[str], given: Mapping[str, Any]) -> bool:
    """Whether it is an expression in such names, arithmetic or a SymPy function called by name."""
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}" in names
    if isinstance(node, ast.BinOp):
        return any(_is_symbolic(each, names, given) for each in (node.left, node.right))
    if isinstance(node, ast.UnaryOp):
        return _is_symbolic(node.operand, names, given)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        made_by = getattr(given.get(node.func.id), "__module__", None) or ""
        of_sympy = made_by.split(".")[0] == "sympy"
        return of_sympy and any(_is_symbolic(each, names, given) for each in node.args)
    return False


def _is_arithmetic(node: ast.expr, names: frozenset[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.BinOp):
        return _is_arithmetic(node.left, names) or _is_arithmetic(node.right, names)
    operand = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub)
    return operand and _is_arithmetic(node.operand, names)  # type: ignore[attr-defined]


def of_syntax(error: SyntaxError, file: str) -> Location:
    """The place that a syntax error names, in `file` where it names none."""
    line, begin = error.lineno or 1, (error.offset or 0) - 1
    end = (error.end_offset or 0) - 1 if error.end_lineno == error.lineno else -1
    span = (begin, max(end, begin + 1)) if begin >= 0 else None
    return Location(error.filename or file, line, span)


def _nodes(body: Callable[..., Any]) -> list[tuple[ast.AST, int, int]]:
    """The syntax of a function: nodes, and its first line and indentation, which they lack."""
    try:
        lines, start = inspect.getsourcelines(body)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return []
    indent = len(lines[0]) - len(lines[0].lstrip())
    return [(node, start, indent) for node in ast.walk(tree)]


def _place(node: ast.expr | ast.arg, file: str, start: int, indent: int) -> Location:
    line = start + node.lineno - 1
    text = linecache.getline(file, line)
    # Python counts bytes of UTF-8.
    begin = characters(text, node.col_offset + indent)
    end = len(text.rstrip())
    if node.end_lineno == node.lineno and node.end_col_offset is not None:
        end = characters(text, node.end_col_offset + indent)
    return Location(file, line, (begin, end))


def _span(code: Any, instruction: int, line: int) -> tuple[int, int] | None:
    """The columns of an instruction; Python 3.10 does not know them."""
    if not hasattr(code, "co_positions"):
        return None
    positions = list(code.co_positions())
    first, last, begin, end = positions[instruction // 2]
    if begin is None or end is None or first != line:
        return None
    text = linecache.getline(code.co_filename, line)
    if last != first:
        return characters(text, begin), len(text.rstrip())
    return characters(text, begin), characters(text, end)


def characters(text: str, count: int) -> int:
    """How many characters so many bytes of UTF-8 are."""
    return len(text.encode()[:count].decode(errors="replace"))
