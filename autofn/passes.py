"""What a variant computes: the programs of its passes, for PyTorch's operations and for kernels."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sympy import Add, Expr, S, Symbol

from autofn import saving, trees
from autofn.aside import aside
from autofn.compact import compact
from autofn.derive import (
    Derivation,
    Term,
    direction,
    parameters_of,
    pushed_forward,
    scales_of,
    second_order,
)
from autofn.model import Definition, Kind, Leaf
from autofn.program import CHANNEL, ELEMENT, Input, Program, Result, lower
from autofn.rewrite.formats import DOUBLE
from autofn.rewrite.heads import along
from autofn.rewrite.kernels import Kernels, for_kernels, for_pytorch
from autofn.rewrite.limits import Limits
from autofn.rewrite.saturate import Finite
from autofn.rewrite.search import Decision
from autofn.rewrite.simulate import simulated_at
from autofn.rewrite.truth import Point, exact_at

Pass = Literal["forward", "backward", "double_backward"]
FIRST_ORDER: tuple[Pass, ...] = ("forward", "backward")
PASSES: tuple[Pass, ...] = (*FIRST_ORDER, "double_backward")

AXES: dict[Kind, frozenset[str]] = {
    Kind.TENSOR: frozenset({ELEMENT}),
    Kind.OPTIONAL: frozenset({ELEMENT}),
    Kind.PER_CHANNEL: frozenset({CHANNEL}),
}


@dataclass(frozen=True)
class Programs:
    """What one variant computes, for PyTorch's operations; and, in `kernels`, for kernels.

    Names of inputs: leaves and outputs by their own name, cotangents as `Plan.grads`, tangents
    and second cotangents as `direction_name` of what they belong to. `jvp` and `vjp_jvp` are None
    where the user's own gradient has no transpose. `decisions` says how each kernel was chosen.
    """

    forward: Program
    vjp: Program
    double_vjp: Program
    jvp: Program | None
    vjp_jvp: Program
    kernels: dict[Pass, Program]
    decisions: tuple[Decision, ...]


def direction_name(name: str) -> str:
    """The tangent or second cotangent of a value: no leaf has a name like it."""
    return f"_d_{name}"


def programs_of(
    definition: Definition,
    derivation: Derivation,
    vjp: tuple[Expr | None, ...],
    outputs: tuple[str, ...],
    grads: tuple[str, ...],
    saved: tuple[str, ...],
    search: Container[Pass],
    wanted: Container[Pass],
) -> Programs:
    """The programs of a variant, of its derivation and of its vjp in the `saved` values.

    See `plan`. The names of outputs and grads are those inside the package.
    """
    present = [leaf for leaf in definition.differentiable if leaf.symbol in derivation.variables]
    numbers = _number_inputs(definition)
    primals = [_tensor_input(leaf) for leaf in present]
    cotangents = [
        (symbol, Input(name, frozenset({ELEMENT})))
        for symbol, name in zip(derivation.grads, grads, strict=True)
    ]
    by_name = {each.name: (symbol, each) for symbol, each in primals}
    for name in outputs:
        by_name[name] = (saving.output_symbol(name), Input(name, frozenset({ELEMENT})))
    kept = [by_name[name] for name in saved if name in by_name]
    fixed = frozenset(symbol for symbol, _ in numbers)

    vjp_inputs = [*cotangents, *kept]
    finite = Finite(definition)
    forward_results = [
        Result(name, expr) for name, expr in zip(outputs, derivation.forward, strict=True)
    ]
    vjp_results = [
        Result(leaf.name, expr, like=leaf.name).changed(
            lambda expr: _by_cotangent(expr, derivation)
        )
        for leaf, expr in zip(present, vjp, strict=True)
    ]
    tangents = [(direction(s), _directed(each)) for s, each in primals]
    symbols = tuple(symbol for symbol, _ in vjp_inputs)
    known = parameters_of(definition), scales_of(definition)
    moving = tuple(symbol for symbol, _ in tangents)
    # Not so if an output takes the place of what it was made of.
    of_one = not derivation.own and not any(name in outputs for name in saved)
    alike = derivation.variables if of_one else ()
    twice = "double_backward" in wanted
    seconds = tuple(
        dataclasses.replace(each, expr=_by_cotangent(each.expr, derivation, frozenset(moving)))
        for each in (second_order(vjp, symbols, moving, *known, alike) if twice else ())
    )
    double_results = _results(
        seconds, tuple(each.name for _, each in vjp_inputs), tangents, like=True
    )
    passes: dict[Pass, tuple[list[tuple[Symbol, Input]], list[Result]]] = {
        "forward": ([*primals, *numbers], forward_results),
        "backward": ([*vjp_inputs, *numbers], vjp_results),
        "double_backward": ([*tangents, *vjp_inputs, *numbers], double_results),
    }
    limits = Limits(definition, grads)
    searching = Kernels(definition, primals, grads, passes["forward"], fixed, search)
    directions = [each.name for _, each in tangents]
    # The longest first: each is a task of its own.
    tasks = {
        name: aside(
            functools.partial(
                _made, name, *passes[name], fixed, finite, limits, searching, directions
            )
        )
        for name in reversed(PASSES)
    }
    jvp = None
    if derivation.jvp is not None:
        jvp = finite(
            functools.partial(for_pytorch, [*tangents, *primals, *numbers], fixed),
            _results(derivation.jvp, outputs, tangents),
        )
    pushed = [(direction(s), _directed(each)) for s, each in vjp_inputs]
    along_pushed = tuple(symbol for symbol, _ in pushed)
    tangents_of_vjp = pushed_forward(vjp, symbols, along_pushed, *known, alike) if twice else ()
    vjp_jvp = for_pytorch(
        [*pushed, *vjp_inputs, *numbers],
        fixed,
        _results(tangents_of_vjp, tuple(leaf.name for leaf in present), pushed, like=True),
    )
    made = {name: tasks[name]() for name in PASSES}
    return Programs(
        made["forward"].program,
        made["backward"].program,
        made["double_backward"].program,
        jvp,
        vjp_jvp,
        {name: each.kernel for name, each in made.items()},
        tuple(each.decision for each in made.values()),
    )


@dataclass(frozen=True)
class _Made:
    """A pass: its program for PyTorch's operations, its kernel's, and how that was chosen."""

    program: Program
    kernel: Program
    decision: Decision


def _made(
    name: Pass,
    inputs: list[tuple[Symbol, Input]],
    results: list[Result],
    fixed: frozenset[Symbol],
    finite: Finite,
    limits: Limits,
    searching: Kernels,
    directions: list[str],
) -> _Made:
    """directions: the names of the tangents that double backward is linear in."""
    reference = lower(inputs, results, fixed)
    program = finite(functools.partial(for_pytorch, inputs, fixed), results)
    first_order = name in FIRST_ORDER
    if first_order:
        program = limits(program, reference, exact_at)
    lowering = functools.partial(for_kernels, inputs, fixed)
    kernel, decision = searching(name, inputs, finite.results(lowering, results), program)
    # Where a result is to be mended, at infinity say, that of a first try is not finite.
    kernel, first_try = dataclasses.replace(kernel, first=None), kernel.first
    if first_order:
        if decision.in_pytorch is not None:
            program = limits(decision.in_pytorch, reference, exact_at)
        # It is read: only what is wrong at the default values is worth the lines.
        as_run = _in_double if decision.fails_as_derived else simulated_at
        program = limits.inside(program, reference, as_run, rescue=False, at_defaults=True)
        kernel = limits(kernel, reference, simulated_at)
        kernel = limits.inside(kernel, reference, _again)
        kernel = _with_limits_in_16_bits(kernel, reference, limits)
        if kernel.wide is not None:
            in_double = functools.partial(simulated_at, form=DOUBLE)
            wide = limits(kernel.wide, reference, in_double)
            wide = limits.inside(wide, reference, in_double, rescue=False)
            kernel = dataclasses.replace(kernel, wide=wide)
    program = limits.vanishing(program, reference, directions, near=first_order)
    if decision.fails_as_derived:  # in double, but in graphs and on some devices
        wide = dataclasses.replace(program, arithmetic="double")
        wide = limits.vanishing(wide, reference, directions, near=first_order)
        program = dataclasses.replace(wide, arithmetic="single")
    kernel = limits.vanishing(kernel, reference, directions)
    if kernel.wide is not None:
        wide = limits.vanishing(kernel.wide, reference, directions)
        kernel = dataclasses.replace(kernel, wide=wide)
    return _Made(program, dataclasses.replace(kernel, first=first_try), decision)


def _with_limits_in_16_bits(kernel: Program, reference: Program, limits: Limits) -> Program:
    """The kernel with its arithmetic for 16-bit types too, where less misses limits."""
    if kernel.arithmetic16 == kernel.arithmetic:
        return kernel
    less = dataclasses.replace(kernel, arithmetic=kernel.arithmetic16)
    by_less, by_kernel = limits.missed([less, kernel], reference, _again)
    if by_less <= by_kernel:
        return kernel
    return dataclasses.replace(kernel, arithmetic16=kernel.arithmetic)


def _in_double(program: Program, points: Sequence[Point]) -> list[list[Any]]:
    return simulated_at(dataclasses.replace(program, arithmetic="double"), points)


def _again(program: Program, points: Sequence[Point]) -> list[list[Any]]:
    """Simulated, with what is 0 computed again where kernels do: the search does not rely on it."""
    found = simulated_at(program, points)
    if program.arithmetic != "wary" or not any(0 in row for row in found):
        return found
    again = _in_double(program, points)
    return [
        [other if value == 0 else value for value, other in zip(*rows, strict=True)]
        for rows in zip(found, again, strict=True)
    ]


def _by_cotangent(
    entry: Expr, derivation: Derivation, directions: frozenset[Symbol] = frozenset()
) -> Expr:
    """A gradient of several outputs: 0 times one's derivative is 0, even if that overflows.

    An input does not, and makes products of sums that are computed as such. directions: what a
    second derivative is linear in beside the cotangents.
    """
    grads = frozenset(derivation.grads)
    if len(grads) == 1 or derivation.own or grads.isdisjoint(trees.symbols(entry)):
        return entry
    linear = grads | directions
    terms: list[Expr] = []
    for grad in derivation.grads:
        alone = compact(trees.replaced(entry, dict.fromkeys(grads - {grad}, S.Zero)))
        slope = alone.xreplace({grad: S.One})
        sign, rest = slope.as_coeff_Mul()
        plain = trees.symbols(slope) <= linear or (rest.is_Symbol and abs(sign) == 1)
        terms.append(alone if plain else along(grad, alone))
    return Add(*terms) if any(isinstance(each, along) for each in terms) else entry


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
