"""C++: a Program as a scalar function template over the compute type `T`.

The text is plain: no intrinsics, no torch header, selects in place of branches, so that compilers
vectorise it on a CPU and nvcc compiles the same text for a GPU.
"""

from __future__ import annotations

import functools
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace

import sympy
from sympy import S, oo

from autofn.backends.text import ATOM, PRODUCT, Dialect, Text, render
from autofn.names import Namer
from autofn.ops import CPP_HELPERS, DOUBLE_DOUBLE, OPS, WAVES
from autofn.plan import Kernel
from autofn.program import Node, Program

WIDTH = 100

_LEVELS = {
    "mul": PRODUCT, "div": PRODUCT, "rsqrt": PRODUCT, "add": 60, "sub": 60, "neg": 80, "not": 80,
    "lt": 50, "le": 50, "gt": 50, "ge": 50, "eq": 45, "ne": 45, "and": 30, "or": 25, "select": 10,
}  # fmt: skip


class _Cpp:
    def constant(self, node: Node) -> Text:
        value = node.constant
        if value in (S.true, S.false):
            return Text("true" if value == S.true else "false")
        if value is S.NaN:
            return Text("T(NAN)")
        assert value is not None
        number = float(value if value in (oo, -oo) else value.evalf(25))
        if math.isinf(number):
            return Text("T(INFINITY)") if number > 0 else Text("-T(INFINITY)", 80)
        if node.op == "constant_rest":
            low = float((value - sympy.Float(number, 60)).evalf(20))
            return Text(f"constant_rest<T>({number!r}, {low!r})")
        if value.is_Integer and abs(value) < 2**31:
            return Text(f"T({int(value)})")
        return Text(f"T({number!r})")

    def operation(self, node: Node, args: tuple[Text, ...], numbers: tuple[bool, ...]) -> Text:
        op = OPS[node.op]
        level = _LEVELS.get(node.op, ATOM)
        args = _listed(node, args)
        if level == ATOM or node.op == "rsqrt":
            return Text(op.cpp.format(*(arg.code for arg in args), n=node.n), level)
        if node.op == "select":
            operands = [args[0].within(level + 1), args[1].within(level + 1), args[2].within(level)]
        elif node.op in ("and", "or"):
            # Parentheses that the language could do without, but compilers warn.
            operands = [arg.within(31 if node.op == "and" else 45) for arg in args]
        else:
            # The right operand binds tighter: a - (b - c) and a * (b / c) keep their order.
            operands = [
                args[0].behind_sign() if node.op == "neg" else args[0].within(level),
                *(arg.within(level + 1) for arg in args[1:]),
            ]
        return Text(op.cpp.format(*operands), level)


def _listed(node: Node, args: tuple[Text, ...]) -> tuple[Text, ...]:
    """The arguments, a polynomial's coefficients as one."""
    if node.op != "polynomial":
        return args
    return args[0], Text(", ".join(each.code for each in args[1:]))


CPP: Dialect = _Cpp()


class _DoubleDouble(_Cpp):
    """The same of double-double numbers."""

    def constant(self, node: Node) -> Text:
        value = node.constant
        if value is None or value.is_Boolean or not value.is_finite:
            return super().constant(node)
        high = float(value.evalf(40))
        low = float((value - sympy.Float(high, 60)).evalf(20))
        return Text(f"T({high!r}, {low!r})") if low else super().constant(node)

    def operation(self, node: Node, args: tuple[Text, ...], numbers: tuple[bool, ...]) -> Text:
        spelled = DOUBLE_DOUBLE[node.op]
        if spelled == OPS[node.op].cpp:
            return super().operation(node, args, numbers)
        args = _listed(node, args)
        level = _LEVELS["rsqrt"] if node.op == "rsqrt" else ATOM
        return Text(spelled.format(*(arg.code for arg in args), n=node.n), level)


DOUBLE_DOUBLE_CPP: Dialect = _DoubleDouble()

IN_TWO_PARTS = "_double_double"
"""What ends the name of what computes float64 in double-double numbers."""


SCALAR = "scalar"
"""The namespace of functions in one arithmetic, which those of other arithmetic call."""

TRY = "autofn::kTried"

SHORT = "_16_bits"
"""What ends the name of what is for 16-bit types alone."""

DOUBTS = {"rescued": "doubt", "wary": "doubt_or_zero"}
"""The arithmetics of two tries, and the function that is NaN of a result that is computed again."""

_WHY = {
    "rescued": "Computed again in double where that is not finite, or tiny: its parts may overflow "
    "or lose their digits first.",
    "wary": "Computed again in double where that is not finite, tiny or 0: its parts may overflow "
    "or vanish first.",
    "double": "In double, whatever T is: in single precision terms cancel or overflow.",
    "double-double": "float64's, of double-double numbers: terms cancel, or are magnified.",
}


def function(kernel: Kernel, program: Program) -> str:
    """The scalar function of a kernel: `template <typename T> AUTOFN_FN ...`.

    And that for 16-bit types, where it is another one.
    """
    wide = in_double_double(program)
    found = [*_in_double_double(kernel, wide), ""] if wide is not None else []
    if (first := first_try(program)) is not None:
        named = replace(kernel, function=first_name(kernel))
        text = _in_one_arithmetic(named, first)
        if first.is_in_double:
            outside = _signature(named, first), *_in_double(named, first, named.function), "}"
            text = "\n".join([_in_scalar(text), _WHY_FIRST, *outside])
        else:
            text = f"{_WHY_FIRST}\n{text}"
        found += [text, ""]
    text = _in_one_arithmetic(kernel, program)
    if program.arithmetic == "single":
        return "\n".join([*found, text])
    found.append(_in_scalar(text))
    short, short_program = for_16_bits(kernel, program)
    if short == kernel.function + SHORT:
        named = replace(kernel, function=short)
        found += [*_in_two_arithmetics(named, short_program, kernel.function), ""]
    why = "" if short == kernel.function else f" 16-bit types do with {short}."
    return "\n".join([*found, *_in_two_arithmetics(kernel, program, kernel.function, why)])


def _in_scalar(text: str) -> str:
    return f"namespace {SCALAR} {{\n{text}\n}}  // namespace {SCALAR}\n"


FIRST = "_first"
"""What ends the name of what CPUs try first."""

_WHY_FIRST = "// A first try on CPUs: not finite where it may be wrong."


def first_try(program: Program) -> Program | None:
    """The program that is tried first, where what it has no result of is seen in an output."""
    first = program.first if program.tries_first else None
    return first if first is not None and gives_nan(first) else None


def first_name(kernel: Kernel) -> str:
    return kernel.function + FIRST


def for_16_bits(kernel: Kernel, program: Program) -> tuple[str, Program]:
    """The function that computes elements of 16-bit types, and the program in its arithmetic."""
    arithmetic = "single" if program.arithmetic16 == "quick" else program.arithmetic16
    if arithmetic == program.arithmetic:
        return kernel.function, program
    within = f"{SCALAR}::{kernel.function}"
    name = within if arithmetic == "single" else kernel.function + SHORT
    return name, replace(program, arithmetic=arithmetic, wide=None, first=None)


def _in_two_arithmetics(kernel: Kernel, program: Program, single: str, why: str = "") -> list[str]:
    """The function that calls `single` of its namespace in another arithmetic, or in a second."""
    body = _rescued if program.arithmetic in DOUBTS else _in_double
    reason = _WHY[program.arithmetic.removeprefix("quick ")]
    comment = textwrap.wrap(reason + why, WIDTH, initial_indent="// ", subsequent_indent="// ")
    lines = body(kernel, program, single)
    own = program.is_in_double or in_double_double(program) is not None
    if own and (wide := wide_of(program)) is not None:
        lines = _by_type(_wide_body(kernel, wide), lines)
    return [*comment, _signature(kernel, program), *lines, "}"]


def _in_one_arithmetic(kernel: Kernel, program: Program) -> str:
    """The function that computes what it is given in its type; float64 perhaps by another program.

    Not where float32 is computed in double by it.
    """
    lines = _body(kernel, program)
    # Double-double numbers are float64's, not for what float32 computes again in double.
    own = in_double_double(program) is None or program.arithmetic == "single"
    own = own and not program.is_in_double
    if own and (wide := wide_of(program)) is not None:
        lines = _by_type(_wide_body(kernel, wide), lines)
    return "\n".join([*_silenced(kernel, program), _signature(kernel, program), *lines, "}"])


def wide_of(program: Program) -> Program | None:
    """The program of float64, if it is another one that can be a first try where this one is."""
    wide = program.wide
    if wide is None or in_double_double(program) is not None:
        return wide
    tries = any(_is_tried(node.op) for node in wide.nodes)
    return None if tries and not gives_nan(wide) else wide


def in_double_double(program: Program) -> Program | None:
    """The program of float64, if that is one of double-double numbers."""
    wide = program.wide
    return wide if wide is not None and wide.arithmetic == "double-double" else None


def _in_double_double(kernel: Kernel, wide: Program) -> list[str]:
    """The function of double-double numbers, T, that float64's calls."""
    named = replace(kernel, function=kernel.function + IN_TWO_PARTS)
    head = _signature(named, wide, returns="double")
    lines = _body(kernel, wide, DOUBLE_DOUBLE_CPP)
    return [f"// {_WHY[wide.arithmetic]}", head, *lines, "}"]


def call_in_double_double(kernel: Kernel) -> str:
    """The function of double-double numbers, to be called with doubles."""
    return f"{kernel.function}{IN_TWO_PARTS}<autofn::DoubleDouble>"


def _wide_body(kernel: Kernel, wide: Program) -> list[str]:
    if wide.arithmetic != "double-double":
        return ["  // Other terms cancel, or are magnified, in float64.", *_body(kernel, wide)]
    args = [operand.cname for operand in kernel.inputs]
    call = f"{call_in_double_double(kernel)}("
    if len(kernel.outputs) == 1:
        return wrapped(f"return {call}", args, ");", 2).splitlines()
    results = [operand.cname for operand in kernel.outputs]
    return wrapped(call, args + results, ");", 2).splitlines()


def _by_type(wide: Sequence[str], lines: Sequence[str]) -> list[str]:
    return [
        "  if constexpr (sizeof(T) == sizeof(double)) {",
        *_deeper(wide),
        "  } else {",
        *_deeper(lines),
        "  }",
    ]


def _deeper(lines: Sequence[str]) -> list[str]:
    """The statements two columns further in."""
    statements: list[str] = []
    for line in lines:
        if line.startswith("    "):
            statements[-1] += f" {line.lstrip()}"
        else:
            statements.append(line)
    return [part for each in statements for part in _filled(f"  {each}", "        ")]


def _body(kernel: Kernel, program: Program, dialect: Dialect = CPP) -> list[str]:
    names = {operand.name: operand.cname for operand in kernel.inputs}
    rendered = render(program, dialect, names)
    lines: list[str] = []
    for line in rendered.lines:
        lines += _statement(f"const {'bool' if line.boolean else 'T'} {line.name} = ", line.code)
    results = [text.code if text is not None else "T(0)" for text in rendered.outputs]
    if dialect is not CPP:
        results = [f"autofn::rounded({each})" for each in results]
    if len(results) == 1:
        lines += _statement("return ", results[0])
    else:
        for operand, code in zip(kernel.outputs, results, strict=True):
            lines += _statement(f"{operand.cname} = ", code)
    return lines


def _signature(kernel: Kernel, program: Program, returns: str = "T") -> str:
    parameters = [f"T {operand.cname}" for operand in kernel.inputs]
    if len(kernel.outputs) > 1:
        parameters += [f"{returns}& {operand.cname}" for operand in kernel.outputs]
        returns = "void"
    head = f"AUTOFN_FN {returns} {kernel.function}("
    way = ", autofn::Way kWay = autofn::kFull" if has_ways(program) else ""
    template = f"template <typename T{way}>"
    signature = f"{template} {head}{', '.join(parameters)}) {{"
    if len(signature) > WIDTH:
        signature = f"{template}\n{head}{', '.join(parameters)}) {{"
    if len(signature.splitlines()[-1]) > WIDTH:
        # "T x" stays together.
        joined = ", ".join(each.replace(" ", "\0") for each in parameters)
        filled = textwrap.fill(joined, WIDTH - len("    ) {")).replace("\0", " ")
        signature = f"{template}\n{head}\n{textwrap.indent(filled, '    ')}) {{"
    return signature


def _in_double(kernel: Kernel, program: Program, single: str) -> list[str]:
    way = ", kWay" if has_ways(program) else ""
    if program.arithmetic == "quick double":
        may_be_nan = any(_is_tried_in_double(node.op) for node in program.nodes)
        way = f", autofn::in_double<T{', true' if may_be_nan else ''}>(kWay)"
    call = f"{SCALAR}::{single}<double{way}>"
    args = [operand.cname for operand in kernel.inputs]
    if len(kernel.outputs) == 1:
        return wrapped(f"return T({call}(", args, "));", 2).splitlines()
    results = _results_in_double(kernel)
    return [
        wrapped("double ", results, ";", 2),
        wrapped(f"{call}(", args + results, ");", 2),
        *(f"  {o.cname} = T({r});" for o, r in zip(kernel.outputs, results, strict=True)),
    ]


def _results_in_double(kernel: Kernel) -> list[str]:
    namer = Namer(operand.cname for operand in (*kernel.inputs, *kernel.outputs))
    return [namer(f"{operand.cname}_") for operand in kernel.outputs]


def _rescued(kernel: Kernel, program: Program, single: str) -> list[str]:
    name = f"{SCALAR}::{single}"
    once = f"{name}<T, {TRY}>" if gives_nan(program) else name
    doubt = DOUBTS[program.arithmetic]
    args = [operand.cname for operand in kernel.inputs]
    results = [operand.cname for operand in kernel.outputs]
    if len(results) == 1:
        return [
            wrapped(f"const T {results[0]} = {once}(", args, ");", 2),
            f"  if ({doubt}({results[0]}) == T(0)) return {results[0]};",
            wrapped(f"return T({name}<double>(", args, "));", 2),
        ]
    again = _results_in_double(kernel)
    return [
        wrapped(f"{once}(", args + results, ");", 2),
        *_statement("if (", f"{' + '.join(f'{doubt}({x})' for x in results)} == T(0)) return"),
        wrapped("double ", again, ";", 2),
        wrapped(f"{name}<double>(", args + again, ");", 2),
        *(f"  {x} = {doubt}({x}) == T(0) ? {x} : T({y});"
          for x, y in zip(results, again, strict=True)),
    ]  # fmt: skip


TRIED = frozenset(
    "cos cospi decay exp exp_product normcdf sin sinpi "
    "times_decay times_exp times_exp_product times_normcdf".split()
)
"""The primitives whose first try gives NaN where an argument is large."""


def has_ways(program: Program) -> bool:
    """Whether the function can be computed in several ways, see `ops.CPP_HELPERS`."""
    wide = None if in_double_double(program) is not None else program.wide
    nodes = [*program.nodes, *(wide.nodes if wide else ())]
    return program.arithmetic != "double-double" and any(
        node.op in OPS and "kWay" in OPS[node.op].cpp for node in nodes
    )


@functools.cache
def _is_tried(op: str) -> bool:
    if op.startswith("exp_within"):
        return True
    text = OPS[op].cpp if op in OPS else ""
    helper = re.match(r"(\w+)<", text)
    if helper:
        text += CPP_HELPERS[helper.group(1)]
    return not TRIED.isdisjoint(re.findall(r"autofn::(\w+)<kWay>", text))


def _is_tried_in_double(op: str) -> bool:
    return op in WAVES or op.startswith("exp_within")


def gives_nan(program: Program) -> bool:
    """Whether there is a first try, and a NaN that it gives is seen in an output."""
    if program.arithmetic == "double-double":
        return False
    quick = program.arithmetic == "quick double"
    # Per node the tries whose NaN makes it NaN; of a comparison those whose NaN makes it false.
    tries: list[frozenset[int]] = []
    for number, node in enumerate(program.nodes):
        mine = frozenset[int]().union(*(tries[arg] for arg in node.args))
        if _is_tried_in_double(node.op) if quick else _is_tried(node.op):
            mine |= {number}
        if node.op == "select":
            condition, _, otherwise = node.args
            if tries[condition] and not (
                program.nodes[condition].op in _FALSE_OF_NAN
                and tries[condition] <= tries[otherwise]
            ):
                return False
        elif mine and _loses_nan(node.op):
            return False
        tries.append(mine)
    return any(tries)


_FALSE_OF_NAN = frozenset({"lt", "le", "gt", "ge", "eq"})


def _loses_nan(op: str) -> bool:
    """Whether an operation may make something else of NaN, where no select follows."""
    if op not in OPS or op in _FALSE_OF_NAN:
        return False
    return OPS[op].boolean or op in ("pow", "pow_in_parts", "clamp")


def _statement(start: str, code: str) -> list[str]:
    return _filled(f"  {start}{code};", "      ")


def _filled(line: str, further: str) -> list[str]:
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
    )


def _silenced(kernel: Kernel, program: Program) -> list[str]:
    """A comment that names the inputs that the maths does not need, if any."""
    unused = [o.cname for o in kernel.inputs if o.name not in program.used()]
    return [f"// Not needed: {', '.join(unused)}."] if unused else []


def helpers(programs: Sequence[Program]) -> list[str]:
    """The text of the helper functions that the programs call, in the table's order."""
    wide = [each.wide for each in programs if each.wide and not in_double_double(each)]
    wide += [first for each in programs if (first := first_try(each)) is not None]
    nodes = [node for program in (*programs, *wide) for node in program.nodes]
    code = " ".join(OPS[node.op].cpp for node in nodes if node.op in OPS)
    if any(node.op == "constant_rest" for node in nodes):
        code += " constant_rest<"
    used = {each for p in programs for each in (p.arithmetic, p.arithmetic16)}
    code += "".join(f" {doubt}(" for each, doubt in DOUBTS.items() if each in used)
    found: list[str] = []
    # A helper calls those before it in the table only.
    for name, text in reversed(list(CPP_HELPERS.items())):
        if re.search(rf"(?<![\w:]){name}[(<]", code):
            found.append(text)
            code += text.partition("AUTOFN_FN")[2].partition("{")[2]
    return found[::-1]


def scalar_call(function: str, args: list[str], results: list[str], indent: int) -> str:
    """The call of a kernel's scalar function that assigns its results."""
    if len(results) == 1:
        return wrapped(f"{results[0]} = {function}(", args, ");", indent)
    return wrapped(f"{function}(", args + results, ");", indent)


def wrapped(start: str, items: list[str], end: str, indent: int) -> str:
    """`start a, b, ... end`, broken before items where the line would be too long."""
    lines = [" " * indent + start]
    for n, item in enumerate(items):
        piece = item + (end if n == len(items) - 1 else ",")
        gap = "" if lines[-1].endswith(("(", "{", " ")) else " "
        if len(lines[-1]) + len(gap) + len(piece) > WIDTH:
            lines.append(" " * (indent + 4) + piece)
        else:
            lines[-1] += gap + piece
    return "\n".join(lines) if items else lines[0] + end
