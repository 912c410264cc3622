"""The files of a package that are compiled for a CPU.

`ops.cpp` lists the kernels, `kernels.cpp` has the formula's functions over blocks. What runs them
is the same in every package: kernel.h, cpu.cpp and binding.cpp.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace

from autofn.backends import cpp
from autofn.emit.environment import rendered
from autofn.lookup import Lookup, looked_up
from autofn.names import Namer, cpp_name
from autofn.plan import Kernel, Operand
from autofn.program import Program
from autofn.resources import templates

DOUBLE_DOUBLE = "kernels_double_double.cpp"
"""Beside kernels.cpp, where there is any: it takes as long to compile as all the others."""

SHARED = ("kernel.h", "cpu.cpp", "binding.cpp")
"""Files that are the same in every package."""

# Words of TorchScript's schemas, and what a block function calls its own things.
_TAKEN = frozenset(
    """
    and as assert break class continue def del delattr dtype elif else except exec finally for from
    first global if import in inf inputs is lambda largest last least likes n nan needs nonlocal not
    numbers or outputs
    pass raise return S self step Tensor try uniform while with yield i
    """.split()
)


def _new(k: int) -> str:
    """What a block function calls result k before it is stored."""
    return f"new{k}"


@dataclass(frozen=True)
class _Watch:
    """How a first try is watched: by the size of its largest result, and perhaps of the least.

    sizes: the variables, what they start with, how they are reduced, and the function of a size
    and results that gives the next. fine: what holds of good results.
    """

    sizes: tuple[tuple[str, str, str, str], ...]
    fine: str

    @property
    def start(self) -> tuple[str, ...]:
        return tuple(f"auto {size} = {start};" for size, start, _, _ in self.sizes)

    @property
    def reductions(self) -> str:
        return " ".join(f"reduction({kind} : {size})" for size, _, kind, _ in self.sizes)

    def lines(self, results: list[str]) -> list[str]:
        return [
            line[8:]
            for size, _, _, function in self.sizes
            for line in cpp.wrapped(
                f"{size} = autofn::{function}(", [size, *results], ");", indent=8
            ).splitlines()
        ]


_LARGEST = ("largest", "autofn::size_bits(T(0))", "max", "largest_of")
_FINITE = _Watch((_LARGEST,), "autofn::all_finite<T>(largest)")


def _and_least(function: str, bound: str) -> _Watch:
    least = ("least", "~largest", "min", function)
    return _Watch((_LARGEST, least), f"{_FINITE.fine} && least >= {bound}")


_WATCHES: Mapping[str, _Watch] = {
    "rescued": _and_least("least_but_0_of", "autofn::size_bits(kTiny<T>) - 1"),
    "wary": _and_least("least_of", "autofn::size_bits(kVanishing<T>)"),
}
"""By arithmetic; of others that have a first try, `_FINITE`."""


@dataclass(frozen=True)
class _Loop:
    """The lines that compute an element, and those of a quick first try, if there is one."""

    body: tuple[str, ...]
    first_try: tuple[str, ...]
    watch: _Watch = _FINITE


@dataclass(frozen=True)
class _Block:
    """A kernel's function over a block of elements: its name, and the lines of its loop."""

    block: str
    bindings: tuple[str, ...]
    unused: tuple[str, ...]
    loop: _Loop
    uniform: tuple[str, ...]
    uniform_loop: _Loop
    in_double_double: bool


@dataclass(frozen=True)
class _Entry:
    """A kernel in the list of kernels, and in that of their blocks."""

    kernel: tuple[str, ...]
    blocks: str


def files(name: str, kernels: tuple[tuple[Kernel, Program], ...], header: str) -> dict[str, str]:
    """The package's CPU files, path to text; `header` is what every first line says."""
    of_kernels = [_blocks(*each) for each in kernels]
    blocks = list(dict.fromkeys(block for each in of_kernels for block in each))
    wide = [each for each in blocks if each.in_double_double]

    def file_text(file: str, entries: list[_Entry], blocks: list[_Block]) -> str:
        return rendered(
            f"{file}.j2",
            header=header,
            name=name,
            namespace=f"autofn_{cpp_name(name)}",
            entries=entries,
            blocks=blocks,
            declared=wide if entries else [],
            double_double=DOUBLE_DOUBLE,
        )

    entries = [_entry(*each, b) for each, b in zip(kernels, of_kernels, strict=True)]
    others = [each for each in blocks if each not in wide]
    found = {file: file_text(file, entries, others) for file in ("ops.cpp", "kernels.cpp")}
    if wide:
        found[DOUBLE_DOUBLE] = file_text("kernels.cpp", [], wide)
    for shared in SHARED:
        text = (templates() / shared).read_text(encoding="utf-8")
        found[shared] = f"// {header}\n{text}"
    return found


def schema(kernel: Kernel) -> str:
    """The op's schema; what it takes beside tensors and numbers is `Takes` of kernel.h.

    `needs` has a bit per output that is needed. `likes` holds the number of dimensions, dtype and
    sizes of each output, one after the other, or nothing where all are like the first input;
    `dtype` is PyTorch's number of a dtype.
    """
    names = _names(kernel)
    tensors = [f"Tensor {names[each.cname]}" for each in kernel.tensors]
    numbers = [f"float {names[each.cname]}" for each in kernel.numbers]
    extra = {"nothing": [], "dtype": ["int dtype"], "likes": ["int needs", "SymInt[] likes"]}
    count = len(kernel.outputs)
    returns = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
    return f"{kernel.op}({', '.join([*tensors, *numbers, *extra[takes(kernel)]])}) -> {returns}"


def takes(kernel: Kernel) -> str:
    if kernel.alike:
        return "nothing"
    return "dtype" if kernel.pass_name == "forward" else "likes"


def _names(kernel: Kernel) -> dict[str, str]:
    functions = {kernel.function, kernel.function + cpp.SHORT, cpp.SCALAR}
    namer = Namer(_TAKEN | functions | {_new(k) for k in range(len(kernel.outputs))})
    names = {each.cname: namer(each.cname) for each in (*kernel.inputs, *kernel.outputs)}
    for each in kernel.inputs:
        names[f"{each.cname}_one"] = namer(f"{each.cname}_one")
    return names


def _entry(kernel: Kernel, program: Program, blocks: tuple[_Block, _Block, _Block]) -> _Entry:
    places = [_place(each) for each in (*kernel.tensors, *kernel.outputs)]
    counts = f"{len(kernel.tensors)}, {len(kernel.numbers)}, {len(kernel.outputs)}"
    lookup = looked_up(kernel, program)
    end = "}}," if lookup is None else f"}}, {_lookup(kernel, lookup)}}},"
    rest = cpp.wrapped(f"{counts}, Takes::{takes(kernel)}, {{", places, end, indent=5)
    first, short, wide = blocks
    of_float64 = wide.block if wide.in_double_double else f"{wide.block}<double>"
    listed = [f"{each.block}<float>" for each in (first, short)]
    listed += [f"{short.block}<float, autofn::BFloat16>", of_float64]
    lines = (*_literal(schema(kernel)), *rest.splitlines())
    return _Entry(lines, cpp.wrapped("{", listed, "},", indent=4))


def _lookup(kernel: Kernel, lookup: Lookup) -> str:
    """The number of the tensor that is looked up, and bits for those that are factors."""
    names = [each.name for each in kernel.tensors]
    bits = [sum(1 << names.index(each) for each in factors) for factors in lookup.factors]
    return f"{names.index(lookup.argument)}, {{{', '.join(map(hex, bits))}}}"


def _place(operand: Operand) -> str:
    if operand.role == "tensor":
        return "kTensor"
    return "kScalar" if operand.dim is None else str(operand.dim)


def _blocks(kernel: Kernel, program: Program) -> tuple[_Block, _Block, _Block]:
    """The kernel's function over blocks: of float32, of 16-bit types, and of float64."""
    name = f"{kernel.function}_block"
    wide = first = _block(name, kernel, replace(program, first=None), kernel.function)
    if cpp.first_try(program) is not None:
        first = _block(name + cpp.FIRST, kernel, program, kernel.function)
    short = first
    function, short_program = cpp.for_16_bits(kernel, program)
    if function != kernel.function:
        short = _block(name + cpp.SHORT, kernel, short_program, function)
    if (program_wide := cpp.in_double_double(program)) is not None:
        name += cpp.IN_TWO_PARTS
        function = cpp.call_in_double_double(kernel)
        wide = _block(name, kernel, program_wide, function, in_double_double=True)
    return first, short, wide


def _block(
    block: str,
    kernel: Kernel,
    program: Program,
    function: str,
    *,
    in_double_double: bool = False,
) -> _Block:
    """function: what computes an element, the kernel's or that for 16-bit types.

    in_double_double: such programs are long to compile, so in one loop.
    """
    names = _names(kernel)
    memory, numbers = kernel.tensors, kernel.numbers

    def stored(operand: Operand) -> str:
        return "S" if operand.role == "tensor" and not in_double_double else "T"

    bindings = [
        f"const auto* {names[each.cname]} = static_cast<const {stored(each)}*>(inputs[{k}]);"
        for k, each in enumerate(memory)
    ]
    bindings += [
        f"const T {names[each.cname]} = T(numbers[{k}]);" for k, each in enumerate(numbers)
    ]
    bindings += [
        f"auto* {names[each.cname]} = static_cast<{stored(each)}*>(outputs[{k}]);"
        for k, each in enumerate(kernel.outputs)
    ]
    parameters = {each.cname for each in memory if each.role == "parameter"}
    one = {each: names[f"{each}_one"] for each in parameters}
    stepped: dict[str, str] = {}
    uniform = [f"const T {one[each.cname]} = {names[each.cname]}[0];" for each in memory
               if each.cname in parameters]  # fmt: skip
    if in_double_double and uniform:
        bindings.append("const std::int64_t step = uniform ? 0 : 1;  // between parameters")
        stepped = {each: f"{names[each]}[i * step]" for each in parameters}
    return _Block(
        block=block,
        bindings=tuple(bindings),
        unused=(*(() if numbers else ("numbers",)), *(() if uniform else ("uniform",))),
        loop=_loop(kernel, program, function, names, stepped, in_double_double),
        uniform=() if in_double_double else tuple(uniform),
        uniform_loop=_loop(kernel, program, function, names, one, in_double_double),
        in_double_double=in_double_double,
    )


def _loop(
    kernel: Kernel,
    program: Program,
    function: str,
    names: dict[str, str],
    one: dict[str, str],
    in_double_double: bool,
) -> _Loop:
    """`one`: the inputs that are not read at i, and what they are."""

    def argument(each: Operand) -> str:
        if each.role == "number":
            return names[each.cname]
        return one.get(each.cname, f"{names[each.cname]}[i]")

    args = [argument(each) for each in kernel.inputs]
    results = [f"{names[each.cname]}[i]" for each in kernel.outputs]
    if in_double_double:
        return _Loop(tuple(_call(function, args, results)), ())
    if (other := cpp.first_try(program)) is not None:
        way = f", {cpp.TRY}" if cpp.has_ways(other) else ""
        first = _watched(_FINITE, f"{cpp.first_name(kernel)}<T{way}>", args, results)
        again = _again(f"{function}<T>", args, results, "T", _FINITE_OR)
        return _Loop(tuple(again), tuple(first))
    near = cpp.gives_nan(program)
    if (doubt := cpp.DOUBTS.get(program.arithmetic)) is not None:
        single = f"{cpp.SCALAR}::{kernel.function}"
        watch = _WATCHES[program.arithmetic]
        way = f", {cpp.TRY}" if near else ""
        first = _watched(watch, f"{single}<T{way}>", args, results)
        kept = f"{{0}} = {doubt}<T>({{0}}) == T(0) ? T({{0}}) : T({{1}});"
        again = _again(f"{single}<double>", args, results, "double", kept)
        return _Loop(tuple(again), tuple(first), watch)
    first = _watched(_FINITE, f"{function}<T, {cpp.TRY}>", args, results) if near else []
    if len(results) == 1:
        return _Loop(tuple(_call(f"{function}<T>", args, results)), tuple(first))
    return _Loop(tuple(_again(f"{function}<T>", args, results, "T", "{0} = {1};")), tuple(first))


_FINITE_OR = "{0} = autofn::finite_or<T>({0}, {1});"


def _watched(watch: _Watch, function: str, args: list[str], results: list[str]) -> list[str]:
    """Lines that compute and store an element, watched."""
    new, lines = _computed(function, args, len(results), "T")
    lines += watch.lines(new)
    return lines + [f"{x} = {y};" for x, y in zip(results, new, strict=True)]


def _again(function: str, args: list[str], results: list[str], of: str, kept: str) -> list[str]:
    """Lines that compute all anew, in type `of`; kept: what becomes of a result and a new one."""
    new, lines = _computed(function, args, len(results), of)
    return lines + [kept.format(x, y) for x, y in zip(results, new, strict=True)]


def _computed(function: str, args: list[str], count: int, of: str) -> tuple[list[str], list[str]]:
    """Names of new results of type `of`, and the lines that compute them."""
    new = [_new(k) for k in range(count)]
    if count == 1:
        return new, _call(function, args, [f"const {of} {new[0]}"])
    return new, [f"{of} {', '.join(new)};", *_call(function, args, new)]


def _call(function: str, args: list[str], results: list[str]) -> list[str]:
    """Lines that compute an element."""
    call = cpp.scalar_call(function, args, results, indent=8)
    return [line[8:] for line in call.splitlines()]


def _literal(text: str) -> list[str]:
    """The start of a table's entry: a string, in several pieces where it is long."""
    pieces = textwrap.wrap(text, 88, drop_whitespace=False, break_long_words=False)
    lines = [f'     "{piece}"' for piece in pieces]
    lines[0] = "    {" + lines[0].lstrip()
    lines[-1] += ","
    return lines
