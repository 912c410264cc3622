"""What a package computes: per variant its programs, the values saved for backward, the kernels."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from sympy import Expr, Symbol

from autofn import saving, trees
from autofn.derive import Derivation, derive
from autofn.errors import FormulaError
from autofn.model import Choice, Definition, Kind, Leaf, Variant
from autofn.names import Namer, cpp_name
from autofn.passes import PASSES, Pass, Programs, direction_name, programs_of
from autofn.program import Program, summed
from autofn.rewrite.memory import remembered

Role = Literal["tensor", "parameter", "number"]


@dataclass(frozen=True)
class Operand:
    """An argument of a kernel.

    `name` is what the rest of the package calls it, `cname` its C++ identifier. A `tensor` has
    the kernel's dtype, a `parameter` (learnable scalar or per-channel) and a `number` the compute
    type; numbers are passed by value. `dim`: the dimension of the output that a per-channel
    parameter runs along.
    """

    name: str
    cname: str
    role: Role
    dim: int | None = None


@dataclass(frozen=True)
class Kernel:
    """One elementwise kernel: a scalar function of `maths.h` applied over the broadcast shape.

    `function` is the scalar function, `op` the name of the PyTorch op in the package's namespace;
    `key` names the variant. The function takes the inputs by value and returns the output, or, for
    several, writes them by reference. Outputs of any pass but the first are gradients. `alike`:
    all outputs have the shape and dtype of the first tensor, and all are needed.
    """

    function: str
    pass_name: Pass
    op: str
    alike: bool
    key: tuple[tuple[str, Choice], ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]

    @property
    def tensors(self) -> tuple[Operand, ...]:
        """The inputs that memory holds: tensors and parameters."""
        return tuple(each for each in self.inputs if each.role != "number")

    @property
    def numbers(self) -> tuple[Operand, ...]:
        return tuple(each for each in self.inputs if each.role == "number")


@dataclass(frozen=True)
class VariantPlan(Programs):
    """One variant: its programs, its choices, and the derivatives that they compute."""

    key: tuple[tuple[str, Choice], ...]
    suffix: str
    derivation: Derivation


@dataclass(frozen=True)
class Plan:
    """What is generated for a definition, before it has a language.

    outputs: names of the outputs inside the package; a leaf's name gets an underscore.
    saved: names of the leaves and outputs that backward needs, over all variants.
    saved_for: per differentiable leaf, which of those its own gradient needs.
    """

    definition: Definition
    outputs: tuple[str, ...]
    grads: tuple[str, ...]
    saved: tuple[str, ...]
    saved_for: tuple[tuple[str, frozenset[str]], ...]
    variants: tuple[VariantPlan, ...]


def plan(
    definition: Definition,
    *,
    search: Container[Pass] = PASSES,
    passes: Container[Pass] = PASSES,
) -> Plan:
    """The plan of a definition. Raises FormulaError where a gradient cannot be had as asked.

    search: whose best kernels to look for; of others those that no earlier search found are as
    derived. passes: without double backward its programs, and those of vjp_jvp, are empty.
    """
    namer = Namer(leaf.name for leaf in definition.leaves)
    many = len(definition.output_names) > 1
    outputs = tuple(namer(name) for name in definition.output_names)
    grads = tuple(namer(f"grad_{name}" if many else "grad") for name in definition.output_names)
    chosen = [_chosen(definition, variant, outputs) for variant in definition.variants]
    order = [leaf.name for leaf in definition.differentiable] + list(outputs)
    symbols = {
        **{leaf.name: leaf.symbol for leaf in definition.differentiable},
        **{name: saving.output_symbol(name) for name in outputs},
    }
    used = {
        symbol
        for _, vjp in chosen
        for entry in vjp
        if entry is not None
        for symbol in trees.symbols(entry)
    }
    saved = tuple(name for name in order if symbols[name] in used)
    saved_for = tuple(
        (leaf.name, _needed_for(leaf, definition, chosen, saved, symbols))
        for leaf in definition.differentiable
    )
    wanted = [each for each in PASSES if each in passes]
    asked = "programs", _described(definition), wanted
    searched = all(each in search for each in wanted)
    names = outputs, grads, saved
    variants: list[VariantPlan] = []
    for variant, (derivation, vjp) in zip(definition.variants, chosen, strict=True):
        made = functools.partial(programs_of, definition, derivation, vjp, *names, search, passes)
        found = vars(remembered(repr((*asked, variant.key)), made, keep=searched))
        key, suffix = variant.key, _suffix(variant.key)
        variants.append(VariantPlan(**found, key=key, suffix=suffix, derivation=derivation))
    return Plan(definition, outputs, grads, saved, saved_for, tuple(variants))


def _needed_for(
    leaf: Leaf,
    definition: Definition,
    chosen: list[tuple[Derivation, tuple[Expr | None, ...]]],
    saved: tuple[str, ...],
    symbols: dict[str, Symbol | None],
) -> frozenset[str]:
    free: set[Symbol] = set()
    for derivation, vjp in chosen:
        for variable, entry in zip(derivation.variables, vjp, strict=True):
            if variable == leaf.symbol and entry is not None:
                free |= trees.symbols(entry)
    return frozenset(name for name in saved if symbols[name] in free)


# --- which values are saved ------------------------------------------------------------------


def _chosen(
    definition: Definition, variant: Variant, outputs: tuple[str, ...]
) -> tuple[Derivation, tuple[Expr | None, ...]]:
    """The variant's derivation, and its vjp in the cheapest lossless set of saved values.

    `save="output"` takes the cheapest of all, at a price in accuracy.
    """
    derivation = derive(definition, variant)
    options = saving.options(definition, derivation, outputs)
    if definition.options.save == "output":
        if len(options) == 1 and not derivation.own:
            raise FormulaError(
                f'save="output": no form of the gradient of {definition.name} in its output is '
                "known",
                where=definition.where,
                remedy="leave the option out",
            )
        return derivation, options[-1].vjp
    return derivation, [option for option in options if option.lossless][-1].vjp


def _described(definition: Definition) -> str:
    """All that is read of a definition to plan it, as it is told apart in any process."""
    leaves = [(leaf.name, leaf.parameter) for leaf in definition.leaves]
    variants = [
        (each.key, *map(trees.digests, (each.outputs, each.gradient or ())))
        for each in definition.variants
    ]
    return repr((leaves, definition.output_names, variants, definition.options))


def _suffix(key: tuple[tuple[str, Choice], ...]) -> str:
    """The variant in the name of its functions: `_mode_tanh`, `_no_bias`."""
    parts = []
    for name, value in key:
        if isinstance(value, bool):
            parts.append(name if value else f"no_{name}")
        else:
            word = re.sub(r"\W+", "_", str(value), flags=re.ASCII).strip("_") or "empty"
            parts.append(f"{name}_{word}")
    return "".join(f"_{part}" for part in parts)


# --- kernels ---------------------------------------------------------------------------------

WORTH_COMPILING = 2
"""Operations from which on a second-order kernel beats PyTorch's: each of theirs is a pass."""


MOST_OPERANDS = 32
"""Inputs or outputs that a kernel can have (kMaxOperands in kernel.h); else there is none."""


def kernels(made: Plan) -> tuple[tuple[Kernel, Program], ...]:
    """The kernels of each variant, with the program each computes.

    A pass has no kernel where the user's own gradient is None throughout, and none of second order
    where that is a single operation.
    """
    found: list[tuple[Kernel, Program]] = []
    suffixes = Namer()
    for variant in made.variants:
        suffix = suffixes(cpp_name(f"x{variant.suffix}")[1:] if variant.suffix else "")
        for pass_name, each in variant.kernels.items():
            program = _whole(each)
            first_order = pass_name != "double_backward"
            if program.outputs and (first_order or _is_worth_compiling(program)):
                kernel = _kernel(made, variant, pass_name, suffix, program)
                if max(len(kernel.inputs), len(kernel.outputs)) <= MOST_OPERANDS:
                    found.append((kernel, program))
    return tuple(found)


def _whole(program: Program) -> Program:
    """The program with the outputs of its kernel."""
    whole = summed(program)
    outputs = tuple(output for output in whole.outputs if output.node is not None)
    names = [output.name for output in outputs]

    def other(each: Program | None) -> Program | None:
        """Another program of the same, if that needs no other inputs."""
        made = None if each is None else _whole(each)
        if made is None or [output.name for output in made.outputs] != names:
            return None
        return made if made.used() <= program.used() else None

    wide, first = other(program.wide), other(program.first)
    return dataclasses.replace(whole, outputs=outputs, wide=wide, first=first)


def _is_worth_compiling(program: Program) -> bool:
    """Whether a second-order kernel is faster than PyTorch's operations.

    With spherical Bessel functions it is not: g++ does not vectorise what comes of them.
    """
    scalar = any(node.op == "spherical_bessel" for node in program.nodes)
    return program.operations >= WORTH_COMPILING and not scalar


def _kernel(
    made: Plan, variant: VariantPlan, pass_name: Pass, suffix: str, program: Program
) -> Kernel:
    used = program.used()
    definition = made.definition
    namer = Namer()
    # Cotangents first: they tell the dtype of the outputs.
    inputs = tuple(
        _operand(each.name, namer(cpp_name(each.name)), each.number, definition)
        for each in sorted(program.inputs, key=lambda each: each.name not in made.grads)
        if pass_name == "forward" or each.name in used or each.name in made.grads
    )
    outputs = tuple(
        _operand(
            each.name,
            namer(cpp_name(f"grad_{each.name}" if each.like else each.name)),
            False,
            definition,
        )
        for each in program.outputs
    )
    function = f"{cpp_name(definition.name)}_{pass_name}{suffix}"
    alike = is_alike(definition) and (pass_name == "forward" or len(outputs) == 1)
    return Kernel(function, pass_name, f"{pass_name}{suffix}", alike, variant.key, inputs, outputs)


def is_alike(definition: Definition) -> bool:
    """Whether gradients have the shape and dtype of the outputs: one tensor, no parameters."""
    return [leaf.kind for leaf in definition.differentiable] == [Kind.TENSOR]


def _operand(name: str, cname: str, number: bool, definition: Definition) -> Operand:
    """number: whether it is one, and no value of a leaf that has a gradient."""
    if number:
        return Operand(name, cname, "number")
    for leaf in definition.differentiable:
        if name in (leaf.name, direction_name(leaf.name)):
            if leaf.kind is Kind.PER_CHANNEL:
                return Operand(name, cname, "parameter", leaf.parameter.dim)
            if leaf.kind is Kind.LEARNABLE:
                return Operand(name, cname, "parameter")
    return Operand(name, cname, "tensor")
