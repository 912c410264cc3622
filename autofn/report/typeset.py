"""Expressions in MathML, as the field writes them."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

from sympy import Add, Basic, Expr, Piecewise, S, Symbol
from sympy.printing.mathml import MathMLPresentationPrinter
from sympy.printing.precedence import PRECEDENCE

from autofn import trees

LONG = 24
"""Operations of a sum that has a line for each of its terms."""

_WORDS = {"normcdf": "Φ", "spherical_bessel": "j", "phi": "φ"}


class _Printer(MathMLPresentationPrinter):  # type: ignore[misc]
    """SymPy's, with braces around cases, upright words, and exponents that stay small."""

    def __init__(self) -> None:
        super().__init__({"mul_symbol": "times", "ln_notation": False})

    def _row(self, *parts: Any) -> Any:
        row = self.dom.createElement("mrow")
        for part in parts:
            row.appendChild(part)
        return row

    def _text(self, tag: str, text: str, **attributes: str) -> Any:
        element = self.dom.createElement(tag)
        for name, value in attributes.items():
            element.setAttribute(name, value)
        # SymPy writes text as it is, for the sake of entities.
        element.appendChild(self.dom.createTextNode(html.escape(text)))
        return element

    def _call(self, head: Any, args: Any) -> Any:
        # Subscripts and exponents are no reason for large parentheses.
        stretchy = "true" if any(map(_has_fraction, args)) else "false"
        parts = [head, self._text("mo", "(", stretchy=stretchy)]
        for k, arg in enumerate(args):
            parts += [self._text("mo", ",")] if k else []
            parts.append(self._print(arg))
        return self._row(*parts, self._text("mo", ")", stretchy=stretchy))

    def _print_Function(self, expr: Any, *rest: Any) -> Any:
        name = expr.func.__name__
        args = list(expr.args)
        if name in ("spherical_bessel", "phi"):
            head = self.dom.createElement("msub")
            head.appendChild(self._text("mi", _WORDS[name]))
            head.appendChild(self._print(args.pop(0)))
            return self._call(head, args)
        if name == "sech2":
            head = self.dom.createElement("msup")
            head.appendChild(self._text("mi", "sech"))
            head.appendChild(self._text("mn", "2"))
            return self._call(head, args)
        if name == "root_sum":
            return self._print(expr.definition(*args))
        if name in ("times_exp", "xlogy", "xlog1py"):
            return self._row(
                self.parenthesize(args[0], PRECEDENCE["Mul"]),
                self._thin(),
                self._text("mi", "exp" if name == "times_exp" else "log"),
                self._text("mo", "("),
                self._print(args[1] + 1 if name == "xlog1py" else args[1]),
                self._text("mo", ")"),
            )
        return self._call(self._text("mi", _WORDS.get(name, name)), args)

    def _thin(self) -> Any:
        return self._text("mo", "⁢", lspace="0.08em", rspace="0.08em")

    def _print_exp(self, expr: Any) -> Any:
        (exponent,) = expr.args
        if exponent.is_Symbol or (exponent.is_Mul and not _tall(exponent)):
            power = self.dom.createElement("msup")
            power.appendChild(self._text("mi", "e"))
            power.appendChild(self._print(exponent))
            return power
        return self._call(self._text("mi", "exp"), [exponent])

    def _print_Exp1(self, expr: Any) -> Any:
        return self._text("mi", "e")

    def _print_Max(self, expr: Any) -> Any:
        return self._call(self._text("mi", type(expr).__name__.lower()), expr.args)

    _print_Min = _print_Max

    def _print_Heaviside(self, expr: Any) -> Any:
        return self._call(self._text("mi", "H"), expr.args[:1])

    def _print_sign(self, expr: Any) -> Any:
        return self._call(self._text("mi", "sign"), expr.args)

    def _print_erf(self, expr: Any) -> Any:
        return self._call(self._text("mi", type(expr).__name__), expr.args)

    _print_erfc = _print_erf
    _print_gamma = _print_erf

    def lines(self, terms: Sequence[Expr]) -> Any:
        """A sum, a line for each of its terms."""
        table = self.dom.createElement("mtable")
        table.setAttribute("displaystyle", "true")
        for k, term in enumerate(terms):
            negative = term.could_extract_minus_sign()
            sign = [self._text("mo", "\u2212" if negative else "+", form="prefix")]
            row, cell = self.dom.createElement("mtr"), self.dom.createElement("mtd")
            shown = self.parenthesize(-term if negative else term, PRECEDENCE["Add"])
            cell.appendChild(self._row(*(sign if k or negative else []), shown))
            row.appendChild(cell)
            table.appendChild(row)
        return table

    def _print_Piecewise(self, expr: Any) -> Any:
        table = self.dom.createElement("mtable")
        table.setAttribute("displaystyle", "true")
        for value, where in expr.args:
            row = self.dom.createElement("mtr")
            said = (
                [self._text("mtext", "otherwise")]
                if where == S.true
                else [self._text("mtext", "if\u00a0"), self._print(where)]
            )
            for parts in ([self._print(value)], said):
                cell = self.dom.createElement("mtd")
                cell.appendChild(self._row(*parts))
                row.appendChild(cell)
            table.appendChild(row)
        return self._row(self._text("mo", "{", stretchy="true", symmetric="true"), table)

    def _print_And(self, expr: Any) -> Any:
        parts: list[Any] = []
        for k, arg in enumerate(expr.args):
            parts += [self._text("mo", "∧")] if k else []
            parts.append(self._print(arg))
        return self._row(*parts)

    def _print_Symbol(self, symbol: Symbol, style: str = "plain") -> Any:
        name = symbol.name.lstrip("_") or symbol.name
        base, _, below = name.partition("_")
        if base and below and not below.endswith("_"):
            element = self.dom.createElement("msub")
            element.appendChild(self._text("mi", _greek(base)))
            element.appendChild(self._text("mi", below.replace("_", " ")))
            return element
        return self._text("mi", _greek(name))


_GREEK = dict(
    zip(
        "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau "
        "upsilon phi chi psi omega".split(),
        "αβγδεζηθικλμνξπρστυφχψω",
        strict=True,
    )
)


def _greek(name: str) -> str:
    return _GREEK.get(name, name)


def _has_fraction(expr: Basic) -> bool:
    return any(
        isinstance(node, Piecewise)
        or (node.is_Pow and node.exp.could_extract_minus_sign())
        or (node.is_Rational and not node.is_Integer)
        for node in trees.nodes(expr)
    )


def _tall(expr: Expr) -> bool:
    return any(arg.is_Add or arg.args for arg in expr.args if not arg.is_Number and not arg.is_Pow)


def mathml(expr: Basic) -> str:
    """The expression as a row of presentation MathML, every text in it escaped.

    A long sum has a line for each of its terms.
    """
    printer = _Printer()
    if isinstance(expr, Add) and trees.size(expr) > LONG:
        text = str(printer.lines(expr.as_ordered_terms()).toxml())
    else:
        text = str(printer.doprint(expr))
    # A thin space where factors meet: names may have several letters.
    text = re.sub(
        r"<mo>(&InvisibleTimes;|&#xD7;|&#215;|×)</mo>",
        '<mo lspace="0.08em" rspace="0.08em">&#x2062;</mo>',
        text,
    )
    text = re.sub(r"<mo>(<=?)</mo>", lambda found: f"<mo>{html.escape(found[1])}</mo>", text)
    return text.replace("<mo>-</mo>", "<mo>&#x2212;</mo>").replace("<mn>-", "<mn>&#x2212;")


def name(text: str) -> str:
    """A symbol's name in MathML, escaped."""
    return mathml(Symbol(text))
