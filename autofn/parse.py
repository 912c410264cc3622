"""From the text of an expression to SymPy, through a whitelist over Python's `ast`.

Nothing of the text is ever executed or handed to SymPy's own parsers, which call `eval`: the
syntax tree is walked, and only what is named here is built. Limits on size, and on numbers that
SymPy would expand in full, keep hostile input from taking time or memory.
"""

from __future__ import annotations

import ast
import inspect
import math
import operator
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, NoReturn

import sympy
from sympy import Expr, Integer, Piecewise, Rational, S, Symbol
from sympy.logic.boolalg import Boolean

from autofn import functions
from autofn.errors import Location, UsageError, about
from autofn.places import characters
from autofn.source import EXPR_SOURCE
from autofn.suggest import close

MAX_CHARACTERS = 4_000
MAX_NODES = 1_000
MAX_DEPTH = 60
MAX_EXPONENT = 10_000
MAX_BITS = 2_048
"""Size of an exact power; twice what a float64 can hold."""
MAX_LOG_FACTOR = 1_000
"""Numbers beside a logarithm in an exponent: exp(n*log(2)) becomes 2**n, written out."""
MAX_CONSTANT: Mapping[str, int] = {
    # These become exact factorials and sums.
    **dict.fromkeys(("gamma", "loggamma", "digamma"), 200),
    # What these differ from 1 or 0 by is so small that comparing it takes for ever.
    **dict.fromkeys(("erf", "erfc", "normcdf", "gelu"), 100),
    **dict.fromkeys(("sinh", "cosh", "tanh", "coth", "sech", "csch"), 10_000),
    **dict.fromkeys(("sigmoid", "softplus", "logsigmoid", "silu", "expm1"), 10_000),
    # These become exact integers.
    **dict.fromkeys(("floor", "ceiling"), 1 << 63),
}
"""The largest constant that may be handed to a function."""
MAX_ARGUMENTS = 32

_LARGEST = 1 << 1024
_REMEDY = "write it in Python's notation, x*tanh(exp(x)) say"


@dataclass(frozen=True)
class _Callable:
    """A function of the whitelist, and how many arguments it takes."""

    build: Callable[..., Any]
    least: int
    most: int


@about("expression")
def parse_expression(text: str, names: Collection[str] = ()) -> Expr:
    """The SymPy expression that `text` writes in Python's notation; free names are real symbols.

    Numbers become exact (0.1 is 1/10), `a if c else b` a Piecewise, comparisons may be chained.
    `names` are symbols even where they would be a function or a constant (gamma, E).

    Raises UsageError, with the column, for anything outside the whitelist, for constants that are
    complex, infinite or undefined, and for expressions that are too large.
    """
    return _Parser(text, frozenset(names)).parse()


@lru_cache(maxsize=1)
def function_table() -> Mapping[str, _Callable]:
    """Everything that may be called, by name: SymPy's real functions and `autofn.functions`."""
    unary = (
        "exp log sqrt cbrt sin cos tan cot sec csc asin acos atan sinh cosh tanh coth sech csch "
        "asinh acosh atanh erf erfc gamma loggamma digamma Abs sign floor ceiling"
    )
    table = {name: _Callable(getattr(sympy, name), 1, 1) for name in unary.split()}
    table["log"] = table["ln"] = _Callable(sympy.log, 1, 2)
    table["atan2"] = _Callable(sympy.atan2, 2, 2)
    table["Heaviside"] = _Callable(sympy.Heaviside, 1, 2)
    table["Rational"] = _Callable(_rational, 1, 2)
    table["abs"] = table["Abs"]
    for name in ("Max", "Min"):
        table[name] = table[name.lower()] = _Callable(getattr(sympy, name), 1, MAX_ARGUMENTS)
    for name in functions.__all__:
        table[name] = _arity(getattr(functions, name))
    return table


_LOGICAL = ("And", "Or", "Not", "ITE", "Piecewise")
"""These take conditions, so their arguments are built apart."""

_CONSTANTS: Mapping[str, Expr] = {"pi": S.Pi, "E": S.Exp1}

OTHER_NAMES = {
    "arcsin": "asin(x)",
    "arccos": "acos(x)",
    "arctan": "atan(x)",
    "arctan2": "atan2(y, x)",
    "arcsinh": "asinh(x)",
    "arccosh": "acosh(x)",
    "arctanh": "atanh(x)",
    "ceil": "ceiling(x)",
    "clip": "clamp(x, low, high)",
    "cond": "a if x > 0 else b",
    "fabs": "abs(x)",
    "factorial": "gamma(n + 1)",
    "lgamma": "loggamma(x)",
    "logistic": "sigmoid(x)",
    "maximum": "Max(x, y)",
    "minimum": "Min(x, y)",
    "pow": "x**y",
    "power": "x**y",
    "psi": "digamma(x)",
    "rsqrt": "1/sqrt(x)",
    "sgn": "sign(x)",
    "square": "x**2",
    "where": "a if x > 0 else b",
}


def _rational(numerator: Expr, denominator: Expr = S.One) -> Expr:
    if not (isinstance(numerator, Rational) and isinstance(denominator, Rational)):
        raise TypeError("takes whole numbers")
    return numerator / denominator


_BY_POSITION = "pass values by position; options are for a formula file (autofn new)"


def _arity(function: Any) -> _Callable:
    if inspect.isclass(function):
        counts = [int(count) for count in function.nargs]  # type: ignore[attr-defined]
        return _Callable(function, min(counts), max(counts))
    parameters = inspect.signature(function).parameters.values()
    required = [p for p in parameters if p.default is p.empty]
    # Options with a default are strings (gelu's `approximate`), which expressions lack.
    return _Callable(function, len(required), len(required))


_COMPARISONS: dict[type[ast.cmpop], Callable[[Expr, Expr], Any]] = {
    ast.Lt: sympy.Lt,
    ast.LtE: sympy.Le,
    ast.Gt: sympy.Gt,
    ast.GtE: sympy.Ge,
    ast.Eq: sympy.Eq,
    ast.NotEq: sympy.Ne,
}

_ARITHMETIC: dict[type[ast.operator], Callable[[Expr, Expr], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}

_REFUSED: dict[type[ast.AST], tuple[str, str]] = {
    ast.BitXor: ("`^` is not a power", "write `**`"),
    ast.FloorDiv: ("`//` is not supported", "write floor(a/b)"),
    ast.Mod: ("`%` is not supported", "write a - b*floor(a/b)"),
    ast.MatMult: ("`@` is not supported", "a formula is elementwise: write `*`"),
    ast.BitAnd: ("`&` is not supported", "write `and`"),
    ast.BitOr: ("`|` is not supported", "write `or`; abs(x) for the absolute value"),
    ast.Invert: ("`~` is not supported", "write `not`"),
    ast.Attribute: ("attribute access is not supported", "write the function's name alone"),
    ast.Subscript: ("subscripts are not supported", "give each tensor a name of its own"),
    ast.Lambda: ("`lambda` is not supported", "write the expression alone"),
    ast.NamedExpr: ("`:=` is not supported", "write the expression out"),
    ast.JoinedStr: ("strings are not supported", _REMEDY),
    ast.Tuple: (
        "a tuple is not one expression",
        "write a formula file for several outputs: autofn new NAME",
    ),
    ast.Starred: ("`*` before an argument is not supported", "write the arguments out"),
}


@dataclass
class _Parser:
    text: str
    names: frozenset[str]
    nodes: int = field(default=0)
    lead: int = field(default=0)
    """Blanks before the text that were cut off."""

    # --- the text --------------------------------------------------------------------------

    def parse(self) -> Expr:
        if len(self.text) > MAX_CHARACTERS:
            raise UsageError(
                f"the expression has {len(self.text)} characters; {MAX_CHARACTERS} at most",
                remedy="write a formula file: autofn new NAME",
            )
        # One line, so that a column says it all; no comments, which would swallow the next line.
        self.text = re.sub(r"\s", " ", self.text).rstrip()
        if not self.text.strip():
            raise UsageError("the expression is empty", remedy=_REMEDY)
        if "#" in self.text:
            self._fail("comments are not supported", self.text.index("#"), "leave it out")
        self._check_brackets()
        body = self._tree()
        try:
            value = self._number(body, 0)
        except RecursionError:
            raise UsageError(
                "the expression is nested too deeply", remedy="write a formula file"
            ) from None
        except MemoryError:
            raise UsageError("the expression is too large", remedy="simplify it") from None
        return value

    def _check_brackets(self) -> None:
        """Python's own parser raises MemoryError, or dies, on very deep nesting."""
        depth = 0
        for column, character in enumerate(self.text):
            depth += (character in "([{") - (character in ")]}")
            if depth > MAX_DEPTH:
                self._fail(
                    f"more than {MAX_DEPTH} levels of brackets", column, "simplify the expression"
                )
        many = f"{{{MAX_DEPTH}}}"
        signs = re.search(rf"([-+~]\s*){many}|(\bnot\s+){many}", self.text)
        if signs:
            self._fail("too many signs in a row", signs.start(), "simplify the expression")

    def _tree(self) -> ast.expr:
        self.lead = len(self.text) - len(self.text.lstrip())
        self.text = self.text.lstrip()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            column = max((error.offset or 1) - 1, 0)
            what, remedy = self._syntax(error, column)
            self._fail(what, column, remedy)
        except (ValueError, MemoryError, RecursionError) as error:
            raise UsageError(
                f"the expression cannot be read: {error or type(error).__name__}", remedy=_REMEDY
            ) from None

    def _syntax(self, error: SyntaxError, column: int) -> tuple[str, str]:
        what = f"the expression cannot be read: {error.msg}"
        if re.search(r"(?<![=!<>:])=(?!=)", self.text):
            return what, "give the right-hand side alone; `==` compares"
        if re.search(r"!(?!=)", self.text):
            return what, "write gamma(n + 1) for a factorial"
        product = re.search(r"(?<![\w.])(\d[\d.]*)\s*([^\W\d]\w*|\()|\)\s*([\w(])", self.text)
        if product or re.search(r"\w\s+\w", self.text[max(column - 3, 0) :]):
            return what, "write `*` for every product: 2*x, not 2x"
        return what, _REMEDY

    def _fail(self, what: str, column: int, remedy: str, end: int | None = None) -> NoReturn:
        text = " " * self.lead + self.text
        begin = column + self.lead
        span = (begin, max(begin + 1, self.lead + (end or 0)))
        error = UsageError(
            f"column {begin + 1} of the expression: {what}",
            where=Location(EXPR_SOURCE, 1, span, text),
            remedy=remedy,
        )
        raise error

    def _refuse(self, node: ast.AST, what: str, remedy: str) -> NoReturn:
        begin = characters(self.text, getattr(node, "col_offset", 0))
        end = characters(self.text, getattr(node, "end_col_offset", None) or 0)
        self._fail(what, begin, remedy, end)

    # --- the tree --------------------------------------------------------------------------

    def _number(self, node: ast.expr, depth: int) -> Expr:
        value = self._value(node, depth)
        if _is_condition(value):
            self._refuse(node, "a condition where a number is needed", "write `1 if x > 0 else 0`")
        return value

    def _condition(self, node: ast.expr, depth: int) -> Boolean:
        value = self._value(node, depth)
        if not _is_condition(value):
            self._refuse(node, "a number where a condition is needed", "write a relation: x > 0")
        return value

    def _value(self, node: ast.expr, depth: int) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self._refuse(node, f"more than {MAX_NODES} operations", "write a formula file")
        if depth > MAX_DEPTH:
            self._refuse(node, f"nested more than {MAX_DEPTH} levels deep", "simplify it")
        depth += 1
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.Name():
                return self._name(node)
            case ast.BinOp():
                return self._arithmetic(node, depth)
            case ast.UnaryOp(op=ast.USub()):
                return -self._number(node.operand, depth)
            case ast.UnaryOp(op=ast.UAdd()):
                return self._number(node.operand, depth)
            case ast.UnaryOp(op=ast.Not()):
                return self._build(node, sympy.Not, self._condition(node.operand, depth))
            case ast.BoolOp():
                head = sympy.And if isinstance(node.op, ast.And) else sympy.Or
                return self._build(node, head, *(self._condition(v, depth) for v in node.values))
            case ast.Compare():
                return self._comparison(node, depth)
            case ast.IfExp():
                condition = self._condition(node.test, depth)
                then, other = self._number(node.body, depth), self._number(node.orelse, depth)
                return self._build(node, Piecewise, (then, condition), (other, S.true))
            case ast.Call():
                return self._call(node, depth)
        self._refuse_kind(node)

    def _refuse_kind(self, node: ast.AST) -> NoReturn:
        cause = getattr(node, "op", node)
        for kind in (cause, node):
            if type(kind) in _REFUSED:
                self._refuse(node, *_REFUSED[type(kind)])
        self._refuse(node, f"{type(node).__name__} is not supported", _REMEDY)

    def _constant(self, node: ast.Constant) -> Any:
        value = node.value
        if isinstance(value, bool):
            return S.true if value else S.false
        if isinstance(value, int):
            if abs(value) >= _LARGEST:
                self._refuse(node, "the number is too large for a float", "scale the formula")
            return Integer(value)
        if isinstance(value, float):
            written = ast.get_source_segment(self.text, node) or repr(value)
            if not math.isfinite(value):
                self._refuse(node, f"{written} is too large for a float", "scale the formula")
            if value == 0.0 and re.search(r"[1-9]", re.split("[eE]", written)[0]):
                self._refuse(node, f"{written} is too small for a float", "scale the formula")
            exact = Fraction(written.replace("_", "")) if value else Fraction(0)
            return Rational(exact.numerator, exact.denominator)
        kinds = {str: "strings are", bytes: "strings are", complex: "complex numbers are"}
        what = kinds.get(type(value), f"{value!r} is")
        self._refuse(node, f"{what} not supported", "a formula is real and elementwise")

    def _name(self, node: ast.Name) -> Expr:
        name = node.id
        if name.startswith("_"):
            self._refuse(node, f"{name!r} starts with an underscore", "rename it")
        if name in self.names:
            return Symbol(name, real=True)
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name in ("oo", "inf", "nan", "zoo", "I"):
            self._refuse(
                node,
                f"{name} is not a finite real number",
                "a formula is finite; infinite inputs are handled as limits",
            )
        if name in function_table() or name in _LOGICAL:
            self._refuse(
                node,
                f"{name} is a function",
                f"write {name}(...); for a number of that name, --param {name}=1.0",
            )
        return Symbol(name, real=True)

    def _arithmetic(self, node: ast.BinOp, depth: int) -> Expr:
        # Long sums and products lean to the left: walked in a loop, they are not deep.
        spine: list[ast.BinOp] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp) and not isinstance(left.op, ast.Pow):
            spine.append(left)
            left = left.left
        if not spine:
            return self._power(node, depth)
        value = self._number(left, depth)
        for each in reversed(spine):
            if type(each.op) not in _ARITHMETIC:
                self._refuse_kind(each)
            self.nodes += 1
            right = self._number(each.right, depth)
            value = self._build(each, _ARITHMETIC[type(each.op)], value, right)
        return value

    def _power(self, node: ast.BinOp, depth: int) -> Expr:
        base, exponent = self._number(node.left, depth), self._number(node.right, depth)
        if base == S.Exp1:
            return self._exp(node, exponent)
        self._check_exponent(node, base, exponent)
        value = self._build(node, operator.pow, base, exponent)
        if value.is_Pow and value.exp.is_number and _magnitude(value.exp) > MAX_EXPONENT:
            self._refuse(node, f"an exponent over {MAX_EXPONENT}", "use exp and log")
        return value

    def _exp(self, node: ast.AST, exponent: Expr) -> Expr:
        """exp(n*log(b)) is b**n to SymPy, written out for numbers."""
        self._check_exponent(node, S.One, exponent)
        value = self._build(node, sympy.exp, exponent)
        if value.is_Pow and value.exp.is_number and _magnitude(value.exp) > MAX_EXPONENT:
            self._refuse(node, f"an exponent over {MAX_EXPONENT}", "simplify the formula")
        return value

    def _check_exponent(self, node: ast.AST, base: Expr, exponent: Expr) -> None:
        """Refuses what SymPy would expand: 9**9**9, (2*x)**10**9, exp(10**9*log(2))."""
        if exponent.is_number:
            size = _magnitude(exponent)
            if size > MAX_EXPONENT or size * _bits(base) > MAX_BITS * 8:
                self._refuse(node, "the power is too large", "scale the formula")
        if exponent.has(sympy.log) and any(
            abs(number) > MAX_LOG_FACTOR for number in exponent.atoms(sympy.Number)
        ):
            self._refuse(node, "the power is too large", "write the logarithm's base out")

    def _comparison(self, node: ast.Compare, depth: int) -> Boolean:
        values = [self._number(each, depth) for each in (node.left, *node.comparators)]
        relations = []
        for op, left, right in zip(node.ops, values, values[1:], strict=False):
            build = _COMPARISONS.get(type(op))
            if build is None:
                self._refuse(node, "`in` and `is` are not supported", "write < <= > >= == !=")
            relations.append(self._build(node, build, left, right))
        return relations[0] if len(relations) == 1 else self._build(node, sympy.And, *relations)

    # --- calls -----------------------------------------------------------------------------

    def _call(self, node: ast.Call, depth: int) -> Any:
        if not isinstance(node.func, ast.Name):
            if isinstance(node.func, ast.Attribute | ast.Subscript | ast.Lambda):
                self._refuse_kind(node.func)
            self._refuse(
                node, "only a function can be called", "write `*` between factors: 2*(x + 1)"
            )
        name = node.func.id
        if node.keywords:
            self._refuse(node, f"{name}() takes no keywords here", _BY_POSITION)
        if len(node.args) > MAX_ARGUMENTS:
            self._refuse(node, f"{name}() has more than {MAX_ARGUMENTS} arguments", "nest them")
        if name in _LOGICAL:
            return self._logical(node, name, depth)
        function = function_table().get(name)
        if function is None or name in self.names:
            self._refuse(node.func, f"{name!r} is not a function", self._suggestion(name))
        if not function.least <= len(node.args) <= function.most:
            most = f" to {function.most}" if function.most != function.least else ""
            self._refuse(
                node,
                f"{name}() takes {function.least}{most} arguments, not {len(node.args)}",
                f"write {name}({', '.join('xyz'[: function.least])})",
            )
        args = [self._number(each, depth) for each in node.args]
        if name == "exp":
            return self._exp(node, *args)
        limit = MAX_CONSTANT.get(name)
        if limit is not None and args[0].is_number and _magnitude(args[0]) > limit:
            self._refuse(node, f"{name} of a number over {limit}", "write its value out")
        return self._build(node, function.build, *args, name=name)

    def _logical(self, node: ast.Call, name: str, depth: int) -> Any:
        args = node.args
        if name == "Piecewise":
            if not args:
                self._refuse(node, "Piecewise() has no branch", "Piecewise((a, x > 0), (b, True))")
            branches = [self._branch(each, depth) for each in args]
            return self._build(node, Piecewise, *branches)
        if name == "ITE":
            if len(args) != 3:
                self._refuse(
                    node, f"ITE() takes 3 arguments, not {len(args)}", "write a if x > 0 else b"
                )
            condition = self._condition(args[0], depth)
            then, other = self._value(args[1], depth), self._value(args[2], depth)
            if _is_condition(then) and _is_condition(other):
                return self._build(node, sympy.ITE, condition, then, other)
            for argument, value in ((args[1], then), (args[2], other)):
                if _is_condition(value):
                    self._refuse(
                        argument,
                        "a condition where a number is needed",
                        "give two numbers or two conditions",
                    )
            return self._build(node, Piecewise, (then, condition), (other, S.true))
        if not args or (name == "Not" and len(args) != 1):
            self._refuse(node, f"{name}() of {len(args)} conditions", f"write {name}(x > 0)")
        conditions = [self._condition(each, depth) for each in args]
        return self._build(node, getattr(sympy, name), *conditions)

    def _branch(self, node: ast.expr, depth: int) -> tuple[Expr, Boolean]:
        if not isinstance(node, ast.Tuple) or len(node.elts) != 2:
            self._refuse(
                node,
                "a branch of Piecewise is a pair (value, condition)",
                "write Piecewise((a, x > 0), (b, True))",
            )
        value, condition = node.elts
        return self._number(value, depth), self._condition(condition, depth)

    def _suggestion(self, name: str) -> str:
        if name in OTHER_NAMES:
            return f"write {OTHER_NAMES[name]}"
        meant = close(name, (*function_table(), *_LOGICAL))
        if meant:
            return f"did you mean {meant}?"
        if len(name) == 1 or re.search(rf"\b{re.escape(name)}\b(?!\s*\()", self.text):
            return f"write {name}*(...) for a product"
        return f"functions are: {', '.join(sorted((*function_table(), *_LOGICAL)))}"

    # --- values ----------------------------------------------------------------------------

    def _build(self, node: ast.AST, build: Callable[..., Any], *args: Any, name: str = "") -> Any:
        try:
            value = build(*args)
        except (RecursionError, MemoryError):
            raise
        except Exception as error:
            what = f"{name}(): {error}" if name else str(error)
            self._refuse(node, f"SymPy refuses it: {what}", "check the arguments")
        if _is_condition(value):
            return value
        shown = ast.get_source_segment(self.text, node) or "it"
        shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
        if not isinstance(value, Expr) or value.has(S.NaN, S.ComplexInfinity):
            self._refuse(node, f"{shown} is undefined", "look for a division by zero")
        if value.has(S.Infinity, S.NegativeInfinity):
            self._refuse(node, f"{shown} is infinite", "look for a division by zero")
        if value.has(S.ImaginaryUnit):
            self._refuse(node, f"{shown} is complex", "a formula is real: take a real form of it")
        if value.is_number:
            self._check_number(node, value, shown)
        return value

    def _check_number(self, node: ast.AST, value: Expr, shown: str) -> None:
        """A constant must be real and fit a float, which also bounds what later steps build."""
        if isinstance(value, Rational):
            size: Any = abs(value)
        else:
            try:
                number = value.evalf(8)
            except Exception:
                self._refuse(node, f"{shown} has no value", "simplify it")
            if not isinstance(number, sympy.Float | Rational):
                self._refuse(node, f"{shown} is not a finite real number", "check the arguments")
            size = abs(number)
        if size >= _LARGEST:
            self._refuse(node, f"{shown} is too large for a float", "scale the formula")


def _is_condition(value: Any) -> bool:
    # SymPy's Symbol is a Boolean too.
    return isinstance(value, Boolean) and not isinstance(value, Expr)


def _magnitude(value: Expr) -> Any:
    """|value| of a constant that was checked before."""
    return abs(value) if isinstance(value, Rational) else abs(value.evalf(8))


def _bits(expr: Expr) -> int:
    """Bits of the largest number in it, at least 1."""
    sizes = (
        int(number.p).bit_length() + int(number.q).bit_length() - 1
        for number in expr.atoms(Rational)
    )
    return max(sizes, default=1) or 1
