"""What a package computes: per variant its programs, the values saved for backward, the kernels."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Literal

import sympy
from sympy import Expr, Symbol

from autofn import functions as heads
from autofn import trees
from autofn.derive import (
    Derivation,
    Term,
    derive,
    direction,
    parameters_of,
    pushed_forward,
    second_order,
)
from autofn.errors import FormulaError
from autofn.model import Choice, Definition, Kind, Leaf, Variant
from autofn.names import Namer, cpp_name
from autofn.program import CHANNEL, ELEMENT, Input, Program, Result, lower

Role = Literal["tensor", "parameter", "number"]

AXES: dict[Kind, frozenset[str]] = {
    Kind.TENSOR: frozenset({ELEMENT}),
    Kind.OPTIONAL: frozenset({ELEMENT}),
    Kind.PER_CHANNEL: frozenset({CHANNEL}),
}


@dataclass(frozen=True)
class Operand:
    """An argument of a kernel.

    `name` is what the rest of the package calls it, `cname` its C++ identifier. A `tensor` has
    the kernel's dtype, a `parameter` (learnable scalar or per-channel) and a `number` the compute
    type; numbers are passed by value.
    """

    name: str
    cname: str
    role: Role


@dataclass(frozen=True)
class Kernel:
    """One elementwise kernel: a scalar function of `maths.h` applied over the broadcast shape.

    `pass_name` is "forward" or "backward"; `key` names the variant. The scalar function takes
    the inputs by value and returns the output, or, for several, writes them by reference.
    """

    function: str
    pass_name: str
    key: tuple[tuple[str, Choice], ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]


@dataclass(frozen=True)
class VariantPlan:
    """The programs of one variant.

    Names of inputs: leaves and outputs by their own name, cotangents as `Plan.grads`, tangents
    and second cotangents as `direction_name` of what they belong to. `jvp` and `vjp_jvp` are None
    where the user's own gradient has no transpose.
    """

    key: tuple[tuple[str, Choice], ...]
    suffix: str
    derivation: Derivation
    forward: Program
    vjp: Program
    double_vjp: Program
    jvp: Program | None
    vjp_jvp: Program


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


def direction_name(name: str) -> str:
    """The tangent or second cotangent of a value, as generated code calls it."""
    return f"d_{name}"


def plan(definition: Definition) -> Plan:
    """The plan of a definition. Raises FormulaError where a gradient cannot be had as asked."""
    namer = Namer(leaf.name for leaf in definition.leaves)
    many = len(definition.output_names) > 1
    outputs = tuple(namer(name) for name in definition.output_names)
    grads = tuple(namer(f"grad_{name}" if many else "grad") for name in definition.output_names)
    chosen = [_chosen(definition, variant, outputs) for variant in definition.variants]
    order = [leaf.name for leaf in definition.differentiable] + list(outputs)
    symbols = {
        **{leaf.name: leaf.symbol for leaf in definition.differentiable},
        **{name: output_symbol(name) for name in outputs},
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
    variants = tuple(
        _variant(definition, variant, derivation, vjp, outputs, grads, saved)
        for variant, (derivation, vjp) in zip(definition.variants, chosen, strict=True)
    )
    return Plan(definition, outputs, grads, saved, saved_for, variants)


def output_symbol(name: str) -> Symbol:
    """The saved value of an output, where backward is written in it."""
    return Symbol(f"_out_{name}", real=True)


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

    Outputs take the place of inputs where the derivative contains them as they are (exp), so that
    nothing is lost; `save="output"` rewrites the derivative until it does, at a price in accuracy.
    """
    derivation = derive(definition, variant)
    if derivation.own:
        return derivation, derivation.vjp
    plain = derivation.vjp
    tensors = {leaf.symbol for leaf in definition.tensors}
    from_outputs = _in_outputs(plain, derivation.forward, outputs)
    if _tensors_in(from_outputs, tensors) < _tensors_in(plain, tensors):
        return derivation, from_outputs
    if definition.options.save == "output":
        lossy = tuple(None if e is None else _through_outputs(e) for e in plain)
        lossy = _in_outputs(lossy, derivation.forward, outputs)
        if not _tensors_in(lossy, tensors) < _tensors_in(plain, tensors):
            raise FormulaError(
                f'save="output": the gradient of {definition.name} cannot be computed from its '
                "output",
                where=definition.where,
                remedy="leave the option out",
            )
        return derivation, lossy
    return derivation, plain


def _tensors_in(entries: tuple[Expr | None, ...], tensors: set[Symbol | None]) -> int:
    free: set[Symbol] = set()
    for entry in entries:
        free |= frozenset() if entry is None else trees.symbols(entry)
    return len(free & tensors)


def _in_outputs(
    entries: tuple[Expr | None, ...], forward: tuple[Expr, ...], names: tuple[str, ...]
) -> tuple[Expr | None, ...]:
    swaps = {
        output: output_symbol(name)
        for output, name in zip(forward, names, strict=True)
        if output.args
    }
    return tuple(None if entry is None else entry.xreplace(swaps) for entry in entries)


def _through_outputs(entry: Expr) -> Expr:
    """Heads by identities that outputs can stand in: sech(u)**2 = 1 - tanh(u)**2."""
    return entry.replace(heads.sech2, lambda u: 1 - sympy.tanh(u) ** 2).replace(
        lambda e: isinstance(e, heads.sigmoid) and e.args[0].could_extract_minus_sign(),
        lambda e: 1 - heads.sigmoid(-e.args[0]),
    )


# --- programs --------------------------------------------------------------------------------


def _variant(
    definition: Definition,
    variant: Variant,
    derivation: Derivation,
    vjp: tuple[Expr | None, ...],
    outputs: tuple[str, ...],
    grads: tuple[str, ...],
    saved: tuple[str, ...],
) -> VariantPlan:
    present = [leaf for leaf in definition.differentiable if leaf.symbol in derivation.variables]
    numbers = _number_inputs(definition)
    primals = [_tensor_input(leaf) for leaf in present]
    cotangents = [
        (symbol, Input(name, frozenset({ELEMENT})))
        for symbol, name in zip(derivation.grads, grads, strict=True)
    ]
    by_name = {each.name: (symbol, each) for symbol, each in primals}
    for name in outputs:
        by_name[name] = (output_symbol(name), Input(name, frozenset({ELEMENT})))
    kept = [by_name[name] for name in saved if name in by_name]
    fixed = frozenset(symbol for symbol, _ in numbers)

    forward = lower(
        [*primals, *numbers],
        [Result(name, expr) for name, expr in zip(outputs, derivation.forward, strict=True)],
        fixed,
    )
    vjp_inputs = [*cotangents, *kept]
    vjp_program = lower(
        [*vjp_inputs, *numbers],
        [Result(leaf.name, expr, like=leaf.name) for leaf, expr in zip(present, vjp, strict=True)],
        fixed,
    )
    tangents = [(direction(s), _directed(each)) for s, each in primals]
    jvp = None
    if derivation.jvp is not None:
        jvp = lower(
            [*tangents, *primals, *numbers],
            _results(derivation.jvp, outputs, tangents),
            fixed,
        )
    symbols = tuple(symbol for symbol, _ in vjp_inputs)
    parameters = parameters_of(definition)
    seconds = second_order(vjp, symbols, tuple(direction(s) for s, _ in primals), parameters)
    double_vjp = lower(
        [*tangents, *vjp_inputs, *numbers],
        _results(seconds, tuple(each.name for _, each in vjp_inputs), tangents, like=True),
        fixed,
    )
    pushed = [(direction(s), _directed(each)) for s, each in vjp_inputs]
    vjp_jvp = lower(
        [*pushed, *vjp_inputs, *numbers],
        _results(
            pushed_forward(vjp, symbols, tuple(s for s, _ in pushed), parameters),
            tuple(leaf.name for leaf in present),
            pushed,
            like=True,
        ),
        fixed,
    )
    return VariantPlan(
        variant.key, _suffix(variant.key), derivation, forward, vjp_program, double_vjp, jvp,
        vjp_jvp,
    )  # fmt: skip


def _results(
    terms: tuple[Term, ...],
    outputs: tuple[str, ...],
    directions: list[tuple[Symbol, Input]],
    *,
    like: bool = False,
) -> list[Result]:
    """The summands of a linear program; with one direction, each output is a single one."""
    found: list[Result] = []
    for k, name in enumerate(outputs):
        mine = [term for term in terms if term.output == k]
        target = name if like else None
        if not mine:
            found.append(Result(name, None, target))
        found.extend(
            Result(name, term.expr, target, directions[term.direction][1].name) for term in mine
        )
    return found


def _tensor_input(leaf: Leaf) -> tuple[Symbol, Input]:
    assert leaf.symbol is not None
    return leaf.symbol, Input(leaf.name, AXES.get(leaf.kind, frozenset()))


def _number_inputs(definition: Definition) -> list[tuple[Symbol, Input]]:
    return [
        (leaf.symbol, Input(leaf.name, frozenset(), number=True))
        for leaf in definition.numbers
        if leaf.symbol is not None
    ]


def _directed(each: Input) -> Input:
    return Input(direction_name(each.name), each.axes)


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


def kernels(made: Plan) -> tuple[tuple[Kernel, Program], ...]:
    """The forward and the backward kernel of each variant, with the program each computes."""
    definition = made.definition
    found: list[tuple[Kernel, Program]] = []
    base = cpp_name(definition.name)
    suffixes = Namer()
    for variant in made.variants:
        suffix = suffixes(cpp_name(f"x{variant.suffix}")[1:] if variant.suffix else "")
        for pass_name, whole in (("forward", variant.forward), ("backward", variant.vjp)):
            valued = tuple(output for output in whole.outputs if output.node is not None)
            if not valued:
                continue  # the user's own gradient: none at all
            program = dataclasses.replace(whole, outputs=valued)
            used = program.used()
            inputs = [
                each
                for each in program.inputs
                if pass_name == "forward" or each.name in used or each.name in made.grads
            ]
            namer = Namer()
            operands = tuple(
                Operand(each.name, namer(cpp_name(each.name)), _role(each, definition))
                for each in inputs
            )
            results = tuple(
                Operand(
                    output.name,
                    namer(cpp_name(f"grad_{output.name}" if output.like else output.name)),
                    _role_of(output.name, definition) if output.like else "tensor",
                )
                for output in program.outputs
            )
            kernel = Kernel(
                f"{base}_{pass_name}{suffix}", pass_name, variant.key, operands, results
            )
            found.append((kernel, program))
    return tuple(found)


def _role(each: Input, definition: Definition) -> Role:
    return "number" if each.number else _role_of(each.name, definition)


def _role_of(name: str, definition: Definition) -> Role:
    for leaf in definition.differentiable:
        if leaf.name == name and leaf.kind in (Kind.LEARNABLE, Kind.PER_CHANNEL):
            return "parameter"
    return "tensor"
