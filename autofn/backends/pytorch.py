"""PyTorch: a Program as a Python function over tensors that broadcast, in the compute dtype.

Heads print as PyTorch's own functions, so that autograd straight through the text is right too.
A number given at run time stays a Python number in plain arithmetic with tensors; where functions
or divisions of numbers alone would raise, it becomes a 0-dim tensor first.
"""

from __future__ import annotations

import dataclasses
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sympy import S, oo

from autofn.backends import graphs
from autofn.backends.text import ATOM, PRODUCT, Rendered, Text, render
from autofn.names import Namer
from autofn.ops import OPS, TORCH_HELPERS
from autofn.program import Node, Program

_LEVELS = {
    "square": 90, "powi": 90, "neg": 80, "not": 80, "mul": PRODUCT, "div": PRODUCT, "add": 60,
    "sub": 60, "and": 50, "or": 40, "lt": 30, "le": 30, "gt": 30, "ge": 30, "eq": 30, "ne": 30,
}  # fmt: skip
_CONDITIONAL = 10

_SAFE = frozenset({"add", "sub", "mul", "neg", "lt", "le", "gt", "ge", "eq", "ne", "and", "or",
                   "not", "select"})  # fmt: skip
"""Operations that never raise on Python numbers, and mean what they mean on tensors."""

_TENSOR_OPERANDS = {
    "atan2": (0, 1), "max": (0, 1), "min": (0, 1), "logaddexp": (0, 1), "times_exp": (1,),
    "root_sum": (0,), "mean_root": (0,), "root_rest": (0,), "mean_any_root": (0,),
    "root_rise": (0, 1), "root_split": (0, 1, 2, 3), "share_split": (0, 1, 2, 3),
    "pow1pm1": (0,), "softplus_rise": (0, 1),
    "log_normal_mass": (0, 1, 2), "normal_mass_upper": (0, 1, 2), "normal_mass_lower": (0, 1, 2),
    "normal_mass_mean": (0, 1, 2),
    "softplus_divergence": (0, 1), "sinpi": (0,), "cospi": (0,), "sincpi": (0,),
    "spherical_bessel_pi": (0,),
}  # fmt: skip
"""Places where functions take no Python number."""


class _PyTorch:
    def __init__(self, reference: str):
        self._reference = reference
        """Some tensor input: its dtype is the compute dtype, its device that of all."""

    def constant(self, node: Node) -> Text:
        value = node.constant
        assert value is not None
        if value in (S.true, S.false):
            return Text("True" if value == S.true else "False")
        if value is S.NaN:
            return Text("math.nan")
        number = float(value if value in (oo, -oo) else value.evalf(25))
        level = ATOM if number >= 0 else 80
        if math.isinf(number):
            return Text("math.inf" if number > 0 else "-math.inf", level)
        is_integer = value.is_Integer and abs(value) < 2**63  # of which PyTorch makes tensors
        return Text(str(value) if is_integer else repr(number), level)

    def operation(self, node: Node, args: tuple[Text, ...], numbers: tuple[bool, ...]) -> Text:
        if node.op in graphs.SPELLING:
            return Text(graphs.SPELLING[node.op].format(*(arg.code for arg in args)))
        op = OPS[node.op]
        if node.op == "select":
            return self._select(args, numbers)
        if node.op in ("and", "or", "not") and all(numbers):
            operands = [arg.within(31) for arg in args]
            joined = f" {node.op} ".join(operands)
            return Text(f"not {operands[0]}" if node.op == "not" else joined, _CONDITIONAL)
        level = _LEVELS.get(node.op, ATOM)
        if level == ATOM:
            codes = [arg.code for arg in args]
            tensors = _TENSOR_OPERANDS.get(node.op, ())
            if node.op == "clamp" and len({*numbers[1:]}) > 1:
                tensors = (0, 1, 2)
            codes = [
                self._scalar(code) if number and place in tensors else code
                for place, (code, number) in enumerate(zip(codes, numbers, strict=True))
            ]
            if node.op == "clamp" and "math.inf" in (codes[1].lstrip("-"), codes[2]):
                # One bound; where there is none on either side, nothing is clamped.
                bounds = [f"min={codes[1]}"] if codes[1] != "-math.inf" else []
                bounds += [f"max={codes[2]}"] if codes[2] != "math.inf" else []
                return Text(f"torch.clamp({', '.join([codes[0], *bounds])})")
            return Text(op.torch.format(*codes, n=node.n))
        operands = [
            args[0].behind_sign()
            if node.op == "neg"
            else args[0].within(ATOM if node.op in ("square", "powi") else level),
            *(arg.within(level + 1) for arg in args[1:]),
        ]
        return Text(op.torch.format(*operands, n=node.n), level)

    def _scalar(self, code: str) -> str:
        return f"scalar({code}, {self._reference})"

    def _select(self, args: tuple[Text, ...], numbers: tuple[bool, ...]) -> Text:
        condition, then, otherwise = args
        if numbers[0]:
            if numbers[1] != numbers[2]:
                # A number or a tensor as it happens: what follows takes tensors.
                then, otherwise = (
                    Text(self._scalar(each.code)) if number else each
                    for each, number in zip((then, otherwise), numbers[1:], strict=True)
                )
            code = f"{then.within(11)} if {condition.within(11)} else {otherwise.within(10)}"
            return Text(code, _CONDITIONAL)
        if numbers[1] and numbers[2]:
            if (then.code, otherwise.code) == ("1", "0"):
                return Text(f"{condition.within(ATOM)}.to({self._reference}.dtype)")
            # Two Python numbers would give torch.where's default dtype.
            return Text(
                f"torch.where({condition.code}, {self._scalar(then.code)}, {otherwise.code})"
            )
        return Text(f"torch.where({condition.code}, {then.code}, {otherwise.code})")


@dataclass(frozen=True)
class Function:
    """A function of `maths.py`. `needs`: the first parameter says which outputs are needed."""

    name: str
    doc: str
    parameters: tuple[str, ...]
    body: tuple[str, ...]

    @property
    def text(self) -> str:
        head = f"def {self.name}({', '.join(self.parameters)}):"
        doc = textwrap.wrap(f'"""{self.doc}"""', 96)
        return "\n".join([head, *(f"    {line}" for line in [*doc, *self.body])])


def function(
    name: str,
    doc: str,
    program: Program,
    names: Mapping[str, str],
    parameters: Sequence[str],
    *,
    results: Sequence[str],
    prefix: str,
    reference: str,
    directions: Sequence[str] = (),
    needs: bool = False,
    in_graphs: bool = True,
) -> Function:
    """The Python function of a program.

    names: of the program's inputs.
    results: the names of what is returned, in order; several outputs of the program may be
        summands of one result.
    prefix: what the variable of a result starts with.
    reference: an input that is always a tensor; its dtype and device are those of all.
    directions: inputs of a linear program that may be None: their summands are then left out.
    needs: results are computed only where the parameter `needs` says so.
    in_graphs: the text is for torch.compile too, see `graphs`.
    """
    promoted = _promoted(program)
    if in_graphs:
        program = graphs.for_graphs(program)
    reference = names[reference]
    rendered = _unaliased(program, render(program, _PyTorch(reference), names, promoted))
    conditions = _Conditions(program, names, tuple(results), directions, needs)
    namer = Namer([*parameters, *(line.name for line in rendered.lines)])
    body = [f"{names[each]} = scalar({names[each]}, {reference})" for each in sorted(promoted)]

    # Lines in groups by the outputs that need them, the widest first: what a line needs is needed
    # wherever the line is, so it is in the same group or an earlier one.
    groups: dict[frozenset[int], list[str]] = {}
    for line in sorted(rendered.lines, key=lambda line: -len(line.outputs)):
        groups.setdefault(line.outputs, []).append(f"{line.name} = {line.code}")
    returned: list[str] = []
    unset: list[str] = []
    for result in results:
        summands = [
            (index, text.code)
            for index, (output, text) in enumerate(
                zip(program.outputs, rendered.outputs, strict=True)
            )
            if output.name == result and text is not None
        ]
        if not summands:
            returned.append("None")
        elif len(summands) == 1 and conditions.of(frozenset({summands[0][0]})) == "":
            returned.append(summands[0][1])
        else:
            target = namer(f"{prefix}{result}")
            returned.append(target)
            unset.append(target)
            for number, (index, code) in enumerate(summands):
                value = code if number == 0 else f"add({target}, {code})"
                groups.setdefault(frozenset({index}), []).append(f"{target} = {value}")
    blocks: list[tuple[str, list[str]]] = []
    for outputs, lines in sorted(groups.items(), key=lambda item: (-len(item[0]), min(item[0]))):
        condition = conditions.of(outputs)
        if blocks and blocks[-1][0] == condition:
            blocks[-1][1].extend(lines)
        else:
            blocks.append((condition, lines))
    if blocks and blocks[0][0] == "":
        body += blocks.pop(0)[1]
    # In groups that fit on a line.
    for start in range(0, len(unset), 4):
        body.append(" = ".join([*unset[start : start + 4], "None"]))
    for condition, lines in blocks:
        body += [f"if {condition}:", *(f"    {line}" for line in lines)] if condition else lines
    body.append(_return(returned, always_tuple=needs))
    return Function(name, doc, tuple(parameters), tuple(body))


def _unaliased(program: Program, rendered: Rendered) -> Rendered:
    """No result shares memory with an input or another result, as users may change any in place."""
    seen: set[int] = set()
    outputs: list[Text | None] = []
    others = frozenset(each.node for each in program.outputs if each.node is not None)
    for output, text in zip(program.outputs, rendered.outputs, strict=True):
        if text is not None and output.node is not None:
            if _may_be(program, output.node, others) or (
                output.node in seen and text.code.isidentifier()
            ):
                text = Text(f"{text.within(ATOM)}.clone()")
            seen.add(output.node)
        outputs.append(text)
    return dataclasses.replace(rendered, outputs=tuple(outputs))


def _may_be(program: Program, index: int, others: frozenset[int]) -> bool:
    """Whether a value is an input as it was given; or, chosen at run time, one of others."""
    node = program.nodes[index]
    if node.op == "select" and program.nodes[node.args[0]].number:
        return any(branch in others or _may_be(program, branch, others) for branch in node.args[1:])
    return node.op == "input" and not node.number


def _return(values: Sequence[str], *, always_tuple: bool) -> str:
    if len(values) == 1:
        return f"return ({values[0]},)" if always_tuple else f"return {values[0]}"
    joined = ", ".join(values)
    return f"return ({joined})" if len(joined) > 80 else f"return {joined}"


class _Conditions:
    """The run-time condition under which a value is needed, in Python ("" for always)."""

    def __init__(
        self,
        program: Program,
        names: Mapping[str, str],
        results: tuple[str, ...],
        directions: Sequence[str],
        needs: bool,
    ):
        self._outputs = program.outputs
        self._names = names
        self._results = results
        self._needs = needs
        self._directions = directions

    def of(self, outputs: frozenset[int]) -> str:
        chosen = [self._outputs[index] for index in sorted(outputs)]
        parts = []
        wanted = [r for r in self._results if any(o.name == r for o in chosen)]
        if self._needs and len(self._results) > 1 and {*wanted} != {*self._results}:
            parts.append([f"needs[{self._results.index(r)}]" for r in wanted])
        given = list(dict.fromkeys(o.direction for o in chosen if o.direction is not None))
        if given and len(self._directions) > 1 and {*given} != {*self._directions}:
            parts.append([f"{self._names[direction]} is not None" for direction in given])
        clauses = [" or ".join(part) for part in parts]
        if len(clauses) == 2:
            clauses = [f"({c})" if " or " in c else c for c in clauses]
        return " and ".join(clauses)


def _promoted(program: Program) -> frozenset[str]:
    """Number inputs that enter an operation among numbers alone that could raise."""
    promoted: set[str] = set()
    for node in program.nodes:
        if node.number and node.op in OPS and node.op not in _SAFE:
            stack = list(node.args)
            while stack:
                parent = program.nodes[stack.pop()]
                stack.extend(parent.args)
                if parent.input is not None:
                    promoted.add(parent.input)
    return frozenset(promoted)


def helpers(text: str, *, in_graphs: bool = True) -> list[str]:
    """The helper functions that the text calls, and those that they call, in the table's order."""
    table = {**TORCH_HELPERS, **graphs.HELPERS} if in_graphs else TORCH_HELPERS
    found: dict[str, str] = {}
    while True:
        texts = "\n".join([text, *found.values()])
        called = {n: c for n, c in table.items() if re.search(rf"\b{n}\(", texts)}
        if called == found:
            return list(called.values())
        found = called


def imports(text: str) -> Iterable[str]:
    """The names that the text needs from `_tensors`."""
    return [name for name in ("add", "scalar") if re.search(rf"\b{name}\(", text)]
