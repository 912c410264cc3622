"""From a Program to lines of text, in any language whose expressions nest.

A value that is used once is written in place, others get a name; so the text has the Program's
operations, each once, in the Program's order of evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from autofn.names import Namer
from autofn.ops import OPS
from autofn.program import Node, Program

WIDTH = 76
"""Characters of an expression beyond which its longest part gets a name."""

ATOM = 100
"""The precedence of names, literals and calls."""

PRODUCT = 70
"""The precedence of products and quotients."""


@dataclass(frozen=True)
class Text:
    """An expression's text and the precedence of its outermost operator."""

    code: str
    level: int = ATOM

    def within(self, level: int) -> str:
        """The text as an operand of an operator that needs at least this precedence."""
        return self.code if self.level >= level else f"({self.code})"

    def behind_sign(self) -> str:
        """The text as what is negated: two signs are a decrement in C.

        A sign may stand before a product: (-a) * b is -(a * b) to the last bit.
        """
        return f"({self.code})" if self.code.startswith("-") else self.within(PRODUCT)


class Dialect(Protocol):
    """How a language spells operations and constants."""

    def constant(self, node: Node) -> Text: ...

    def operation(self, node: Node, args: tuple[Text, ...], numbers: tuple[bool, ...]) -> Text:
        """`numbers` says which arguments are Python numbers (or constants), not tensors."""
        ...


@dataclass(frozen=True)
class Line:
    """`name = code`. `outputs`: indices of the outputs that need it."""

    name: str
    code: str
    boolean: bool
    outputs: frozenset[int]


@dataclass(frozen=True)
class Rendered:
    """The lines that define names, and the expression of each output (None: no value)."""

    lines: tuple[Line, ...]
    outputs: tuple[Text | None, ...]


def render(
    program: Program,
    dialect: Dialect,
    names: Mapping[str, str],
    promoted: frozenset[str] = frozenset(),
) -> Rendered:
    """The text of a program.

    names: of its inputs, in the language. promoted: number inputs that are tensors here.
    """
    return _Renderer(program, dialect, names, promoted).render()


_PREFIXES = {
    "sigmoid": "s", "sigmoids": "s", "exp": "e", "exp_product": "e", "expm1": "e", "tanh": "t",
    "softplus": "sp", "normcdf": "cdf",
    "sin": "sn", "cos": "cs", "log": "l", "log1p": "l", "sqrt": "r", "rsqrt": "r",
}  # fmt: skip


class _Renderer:
    def __init__(
        self,
        program: Program,
        dialect: Dialect,
        names: Mapping[str, str],
        promoted: frozenset[str],
    ):
        self._program = program
        self._dialect = dialect
        self._names = names
        self._namer = Namer(names.values())
        self._lines: dict[int, Line] = {}
        self._texts: dict[int, Text] = {}
        self._uses = [0] * len(program.nodes)
        for node in program.nodes:
            for arg in node.args:
                self._uses[arg] += 1
        for output in program.outputs:
            if output.node is not None:
                self._uses[output.node] += 1
        self._number = _numbers(program, promoted)
        self._needed = _needed_by(program)

    def render(self) -> Rendered:
        for index, node in enumerate(self._program.nodes):
            self._texts[index] = self._text(index, node)
            if self._uses[index] > 1 and self._is_worth_a_name(node):
                self._name(index)
        outputs = tuple(
            None if output.node is None else self._texts[output.node]
            for output in self._program.outputs
        )
        lines = tuple(self._lines[index] for index in sorted(self._lines))
        return Rendered(lines, outputs)

    def _is_worth_a_name(self, node: Node) -> bool:
        return node.op not in ("input", "constant", "item")

    def _name(self, index: int) -> None:
        node = self._program.nodes[index]
        code = self._texts[index].code
        boolean = node.op in OPS and OPS[node.op].boolean
        name = self._namer.numbered("c" if boolean else _PREFIXES.get(node.op, "v"))
        self._lines[index] = Line(name, code, boolean, self._needed[index])
        self._texts[index] = Text(name)

    def _text(self, index: int, node: Node) -> Text:
        if node.op == "input":
            return Text(self._names[node.input or ""])
        if node.op in ("constant", "constant_rest"):
            return self._dialect.constant(node)
        numbers = tuple(self._number[arg] for arg in node.args)
        while True:
            args = tuple(self._texts[arg] for arg in node.args)
            text = self._dialect.operation(node, args, numbers)
            longest = max(node.args, key=lambda arg: len(self._texts[arg].code))
            if len(text.code) <= WIDTH or not self._can_be_named(longest):
                return text
            self._name(longest)

    def _can_be_named(self, index: int) -> bool:
        return index not in self._lines and self._is_worth_a_name(self._program.nodes[index])


def _numbers(program: Program, promoted: frozenset[str]) -> list[bool]:
    """Per value, whether it is a Python number (or a constant) at run time."""
    found: list[bool] = []
    for node in program.nodes:
        if node.op == "input":
            found.append(node.number and node.input not in promoted)
        elif node.op in ("constant", "constant_rest"):
            found.append(True)
        else:
            found.append(all(found[arg] for arg in node.args))
    return found


def _needed_by(program: Program) -> list[frozenset[int]]:
    """Per value, the indices of the outputs that need it."""
    needed: list[set[int]] = [set() for _ in program.nodes]
    for index, output in enumerate(program.outputs):
        if output.node is not None:
            needed[output.node].add(index)
    for number in range(len(program.nodes) - 1, -1, -1):
        for arg in program.nodes[number].args:
            needed[arg] |= needed[number]
    return [frozenset(each) for each in needed]
