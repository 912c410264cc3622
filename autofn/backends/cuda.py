"""The CUDA files of a package: `kernels.cu`, one struct per kernel, its loops and their launch.

The text holds no torch header and nothing that only nvcc understands, so that the host check
compiles it as it stands.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from autofn.backends import cpp
from autofn.emit.environment import rendered
from autofn.names import cpp_name
from autofn.plan import Kernel
from autofn.program import Program
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
    "At Call Loaded N Pack S T at autofn call compute compute_t in k kGradients kInputs kMixed "
    "kOutputs kScalarInputs kTensorInputs kTensorOutputs kWay load of storage widen".split()
)

_SHARED = ("launch.cuh", "loops.cuh")
"""Files that are the same in every package but for their first line."""


@dataclass(frozen=True)
class _Operand:
    """An operand as `kernels.cu` writes it: `member` of the struct, `pack` while computing."""

    label: str
    role: str
    dim: int | None
    member: str
    pack: str

    @property
    def type(self) -> str:
        return "S" if self.role == "tensor" else "T"


@dataclass(frozen=True)
class _Struct:
    """One kernel as the template wants it; `loads` are the inputs that memory holds.

    `gradients`: outputs may be summed, or not be wanted. `quick`: 16-bit types have a way of their
    own.
    """

    name: str
    title: str
    inputs: tuple[_Operand, ...]
    outputs: tuple[_Operand, ...]
    casts: tuple[str, ...]
    declare: str
    call: str
    stores: tuple[str, ...]
    gradients: bool
    quick: bool
    mixed: bool

    @property
    def loads(self) -> tuple[_Operand, ...]:
        return tuple(each for each in self.inputs if each.role != "number")

    @property
    def tensor_inputs(self) -> str:
        return _bits(each.role == "tensor" for each in self.loads)

    @property
    def tensor_outputs(self) -> str:
        return _bits(each.role == "tensor" for each in self.outputs)

    @property
    def scalar_inputs(self) -> str:
        return _bits(each.role == "parameter" and each.dim is None for each in self.loads)


def files(name: str, kernels: tuple[tuple[Kernel, Program], ...], header: str) -> dict[str, str]:
    """The package's CUDA files, path to text; `header` is what every first line says."""
    text = rendered(
        "kernels.cu.j2",
        header=header,
        name=name,
        namespace=f"autofn_{cpp_name(name)}",
        kernels=[_struct(*each) for each in kernels],
    )
    shared = {path: (templates() / path).read_text(encoding="utf-8") for path in _SHARED}
    return {"kernels.cu": text, **{k: f"// {header}\n{v}" for k, v in shared.items()}}


def struct_name(kernel: Kernel) -> str:
    """The name of a kernel's struct in the formula's namespace."""
    return f"{kernel.function}_op"


def _struct(kernel: Kernel, program: Program) -> _Struct:
    operands = _operands(kernel)
    inputs = tuple(operands[: len(kernel.inputs)])
    outputs = tuple(operands[len(kernel.inputs) :])
    args = [x.member if x.role == "number" else f"widen(in.{x.member}.at[k])" for x in inputs]
    results = [f"{y.pack}.at[k]" for y in outputs]
    short, _ = cpp.for_16_bits(kernel, program)
    quick = program.arithmetic16 == "quick"
    function = f"{kernel.function}<T, kWay>" if quick else kernel.function
    call = cpp.scalar_call(function, args, results, indent=6)
    if short != kernel.function:
        short += "<T, kWay>" if quick else ""
        less, more = (cpp.scalar_call(f, args, results, indent=8) for f in (short, kernel.function))
        call = f"      if constexpr (sizeof(S) == 2) {{\n{less}\n      }} else {{\n{more}\n      }}"
    gradients = kernel.pass_name != "forward" and not kernel.alike
    shown = ", ".join(y.label for y in outputs)
    title = f"{shown} = {kernel.function}({', '.join(x.label for x in inputs)})"
    return _Struct(
        name=struct_name(kernel),
        title=textwrap.fill(
            title, WIDTH, initial_indent="// ", subsequent_indent="//     ", break_long_words=False
        ),
        inputs=inputs,
        outputs=outputs,
        casts=_casts(inputs, outputs),
        declare=cpp.wrapped("Pack<T, N> ", [y.pack for y in outputs], ";", indent=4),
        call=call,
        stores=tuple(
            cpp.wrapped(
                f"if ({y.member} != nullptr) at.store(" if gradients else "at.store(",
                [str(n), y.member, y.pack],
                ");",
                indent=4,
            )
            for n, y in enumerate(outputs)
        ),
        gradients=gradients,
        quick=quick,
        mixed=program.arithmetic not in ("quick", "single"),
    )


def _casts(inputs: tuple[_Operand, ...], outputs: tuple[_Operand, ...]) -> tuple[str, ...]:
    """The members of a struct from a `Call`, where operands of each kind are numbered."""
    loads = [x for x in inputs if x.role != "number"]
    numbers = [x for x in inputs if x.role == "number"]
    found = [
        f"T(call.numbers[{numbers.index(x)}])"
        if x.role == "number"
        else f"static_cast<const {x.type}*>(call.inputs[{loads.index(x)}].data)"
        for x in inputs
    ]
    return (
        *found,
        *(f"static_cast<{y.type}*>(call.outputs[{n}].data)" for n, y in enumerate(outputs)),
    )


def _bits(flags: Iterable[bool]) -> str:
    return hex(sum(flag << n for n, flag in enumerate(flags)))


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
        found.append(_Operand(operand.cname, operand.role, operand.dim, member, pack))
    return found


def _free(name: str, suffix: str, used: set[str] | frozenset[str]) -> str:
    while name in used:
        name += suffix
    return name
