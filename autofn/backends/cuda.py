"""The CUDA files of a package: `kernels.cu`, one struct per kernel, and its loops, `loops.cuh`.

The text holds no launch, no torch header and nothing that only nvcc understands, so that the
host check compiles it as it stands.
"""

from __future__ import annotations

import functools
import textwrap
from dataclasses import dataclass

from jinja2 import Environment, StrictUndefined

from autofn.names import cpp_name
from autofn.plan import Kernel
from autofn.resources import templates

WIDTH = 100

STORAGE = {
    "float64": "double",
    "float32": "float",
    "bfloat16": "__nv_bfloat16",
    "float16": "__half",
}
"""The C++ storage type of each dtype that kernels are instantiated for."""

# What a kernel's struct calls its own things: an operand of that name gets an underscore.
_TAKEN = frozenset(
    "At N Pack S T aligned apply at autofn compute_t k kInputs load storage store".split()
)


@dataclass(frozen=True)
class _Operand:
    """An operand as `kernels.cu` writes it: `member` of the struct, `pack` while computing."""

    label: str
    role: str
    member: str
    pack: str

    @property
    def type(self) -> str:
        return "S" if self.role == "tensor" else "T"


@dataclass(frozen=True)
class _Struct:
    """One kernel as the template wants it; `loads` are the inputs that memory holds."""

    name: str
    title: str
    inputs: tuple[_Operand, ...]
    outputs: tuple[_Operand, ...]
    aligned: str
    declare: str
    call: str

    @property
    def loads(self) -> tuple[_Operand, ...]:
        return tuple(each for each in self.inputs if each.role != "number")


def files(name: str, kernels: tuple[Kernel, ...], header: str) -> dict[str, str]:
    """The package's CUDA files, path to text; `header` is what every first line says."""
    text = (
        _environment()
        .get_template("kernels.cu.j2")
        .render(
            header=header,
            name=name,
            namespace=f"autofn_{cpp_name(name)}",
            kernels=[_struct(kernel) for kernel in kernels],
        )
    )
    loops = (templates() / "loops.cuh").read_text(encoding="utf-8")
    return {"kernels.cu": text, "loops.cuh": f"// {header}\n{loops}"}


def struct_name(kernel: Kernel) -> str:
    """The name of a kernel's struct in the formula's namespace."""
    return f"{kernel.function}_op"


@functools.cache
def _environment() -> Environment:
    from jinja2 import FileSystemLoader

    return Environment(
        loader=FileSystemLoader(templates()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _struct(kernel: Kernel) -> _Struct:
    operands = _operands(kernel)
    inputs = tuple(operands[: len(kernel.inputs)])
    outputs = tuple(operands[len(kernel.inputs) :])
    args = [x.member if x.role == "number" else f"{x.pack}.at[k]" for x in inputs]
    results = [f"{y.pack}.at[k]" for y in outputs]
    if len(outputs) == 1:
        call = _wrapped(f"{results[0]} = {kernel.function}(", args, ");", indent=6)
    else:
        call = _wrapped(f"{kernel.function}(", args + results, ");", indent=6)
    pointers = [x.member for x in operands if x.role != "number"]
    shown = ", ".join(y.label for y in outputs)
    title = f"{shown} = {kernel.function}({', '.join(x.label for x in inputs)})"
    return _Struct(
        name=struct_name(kernel),
        title=textwrap.fill(
            title, WIDTH, initial_indent="// ", subsequent_indent="//     ", break_long_words=False
        ),
        inputs=inputs,
        outputs=outputs,
        aligned=_aligned(pointers),
        declare=_wrapped("Pack<T, N> ", [y.pack for y in outputs], ";", indent=4),
        call=call,
    )


def _aligned(pointers: list[str]) -> str:
    """The member that says whether vectors may be used: on one line, if it fits."""
    head = "  __device__ bool aligned() const {"
    line = f"{head} return autofn::aligned({', '.join(pointers)}); }}"
    if len(line) <= WIDTH:
        return line
    body = _wrapped("return autofn::aligned(", pointers, ");", indent=4)
    return f"{head}\n{body}\n  }}"


def _operands(kernel: Kernel) -> list[_Operand]:
    """Inputs, then outputs, under names that do not meet each other or the struct's own."""
    taken = _TAKEN | {kernel.function, struct_name(kernel)}
    given = kernel.inputs + kernel.outputs
    names = taken | {operand.cname for operand in given}
    found: list[_Operand] = []
    used: set[str] = set(taken)
    for operand in given:
        member = _free(operand.cname, "_", used)
        used.add(member)
        pack = _free(f"{operand.cname}_v", "v", used | names)
        used.add(pack)
        found.append(_Operand(operand.cname, operand.role, member, pack))
    return found


def _free(name: str, suffix: str, used: set[str] | frozenset[str]) -> str:
    while name in used:
        name += suffix
    return name


def _wrapped(start: str, items: list[str], end: str, indent: int) -> str:
    """`start a, b, ... end`, broken before items where the line would be too long."""
    lines = [" " * indent + start]
    for n, item in enumerate(items):
        piece = item + (end if n == len(items) - 1 else ",")
        gap = "" if lines[-1].endswith(("(", " ")) else " "
        if len(lines[-1]) + len(gap) + len(piece) > WIDTH:
            lines.append(" " * (indent + 4) + piece)
        else:
            lines[-1] += gap + piece
    return "\n".join(lines) if items else lines[0] + end
