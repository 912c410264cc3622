"""Programs as JavaScript, for sliders: float64, and exact enough to look at.

Nothing of the user's reaches the text: inputs are called `x` and `p[0]`, `p[1]`, ..., operations
are those of the table below, constants are numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sympy import S, oo

from autofn import resources
from autofn.backends.text import ATOM, Text, render
from autofn.errors import FormulaError
from autofn.program import Node, Program

_LEVELS = {
    "mul": 70, "div": 70, "add": 60, "sub": 60, "lt": 50, "le": 50, "gt": 50, "ge": 50,
    "eq": 45, "ne": 45, "and": 40, "or": 30,
}  # fmt: skip

_INFIX = {
    "mul": "*", "div": "/", "add": "+", "sub": "-", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "eq": "===", "ne": "!==", "and": "&&", "or": "||",
}  # fmt: skip

_MATH = frozenset(
    "sqrt cbrt exp expm1 log log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh "
    "atanh abs sign floor ceil max min pow".split()
)

OWN = frozenset(
    "sigmoid softplus log1mexp logaddexp logcosh sech2 sinc spherical_bessel phi erf erfc "
    "normcdf gamma loggamma digamma polygamma clamp root_sum mean_root mean_any_root root_rest "
    "root_rise root_split share_split times_exp xlogy xlog1py expm1mx log1pmx pow1pm1 "
    "softplus_rise softplus_divergence sinpi cospi sincpi spherical_bessel_pi along "
    "log_normal_mass normal_mass_upper normal_mass_lower normal_mass_mean".split()
)
"""Functions of templates/report/functions.js."""


class JavaScript:
    def constant(self, node: Node) -> Text:
        value = node.constant
        assert value is not None
        if value in (S.true, S.false):
            return Text("true" if value == S.true else "false")
        if value in (oo, -oo):
            return Text("Infinity" if value == oo else "(-Infinity)")
        if value is S.NaN:
            return Text("NaN")
        number = float(value.evalf(25))
        return Text(repr(number) if number >= 0 else f"({number!r})")

    def operation(self, node: Node, args: tuple[Text, ...], numbers: tuple[bool, ...]) -> Text:
        op, codes = node.op, [arg.code for arg in args]
        if op in _INFIX:
            level = _LEVELS[op]
            left, right = args[0].within(level), args[1].within(level + 1)
            return Text(f"{left} {_INFIX[op]} {right}", level)
        match op:
            case "neg" | "not":
                return Text(f"({'-' if op == 'neg' else '!'}{args[0].within(ATOM)})")
            case "square":
                return Text(f"Math.pow({codes[0]}, 2)")
            case "powi":
                return Text(f"Math.pow({codes[0]}, {node.n})")
            case "rsqrt":
                return Text(f"(1 / Math.sqrt({codes[0]}))")
            case "relu":
                return Text(f"Math.max({codes[0]}, 0)")
            case "exp_product":
                return Text(f"Math.exp({args[0].within(70)} * {args[1].within(71)})")
            case "select":
                return Text(f"({codes[0]} ? {codes[1]} : {codes[2]})")
        if op in _MATH:
            return Text(f"Math.{op}({', '.join(codes)})")
        if op in OWN:
            order = [str(node.n)] if node.n is not None else []
            return Text(f"F.{op}({', '.join([*order, *codes])})")
        raise FormulaError(f"JavaScript has no {op}")


def function(program: Program, names: Mapping[str, str], results: Sequence[str]) -> str:
    """A function (x, p) that returns the named outputs, 0 for one without a value.

    names: JavaScript of the program's inputs. Raises FormulaError for an operation without text.
    """
    rendered = render(program, JavaScript(), names)
    values = {
        output.name: "0" if text is None else text.code
        for output, text in zip(program.outputs, rendered.outputs, strict=True)
    }
    lines = "".join(f"const {line.name} = {line.code}; " for line in rendered.lines)
    return f"(x, p) => {{ {lines}return [{', '.join(values.get(r, '0') for r in results)}]; }}"


def library() -> str:
    """The text that the functions need: an object F."""
    return (resources.templates() / "report" / "functions.js").read_text(encoding="utf-8")
