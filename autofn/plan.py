"""What a package computes: per variant its programs, the values saved for backward, the kernels."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mpmath import mp
from sympy import Add, Expr, S, Symbol

from autofn import saving, trees
from autofn.compact import compact
from autofn.derive import (
    Derivation,
    Term,
    derive,
    direction,
    parameters_of,
    pushed_forward,
    scales_of,
    second_order,
)
from autofn.errors import FormulaError
from autofn.model import Choice, Definition, Kind, Leaf, Variant
from autofn.names import Namer, cpp_name
from autofn.program import CHANNEL, ELEMENT, Input, Program, Result, lower, summed
from autofn.rewrite import sample
from autofn.rewrite.candidates import Candidates
from autofn.rewrite.closer import Closer
from autofn.rewrite.formats import BFLOAT16, DOUBLE, EXACT, FLOAT16, SINGLE, Format, rounded
from autofn.rewrite.half_turns import in_half_turns
from autofn.rewrite.heads import along
from autofn.rewrite.judge import Sample, is_extreme, sampled
from autofn.rewrite.limits import Limits
from autofn.rewrite.memory import remembered
from autofn.rewrite.saturate import Finite
from autofn.rewrite.search import (
    Decision,
    choose,
    fails_in_single,
    for_16_bits,
    mended,
    rescued,
    unsearched,
    with_first_try,
)
from autofn.rewrite.simulate import simulated
from autofn.rewrite.truth import Point, exact, exact_at

Role = Literal["tensor", "parameter", "number"]
Pass = Literal["forward", "backward", "double_backward"]
FIRST_ORDER: tuple[Pass, ...] = ("forward", "backward")
PASSES: tuple[Pass, ...] = (*FIRST_ORDER, "double_backward")

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


def direction_name(name: str) -> str:
    """The tangent or second cotangent of a value: no leaf has a name like it."""
    return f"_d_{name}"


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
        made = functools.partial(_programs, definition, derivation, vjp, *names, search, passes)
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


# --- programs --------------------------------------------------------------------------------


def _described(definition: Definition) -> str:
    """All that is read of a definition to plan it, as it is told apart in any process."""
    leaves = [(leaf.name, leaf.parameter) for leaf in definition.leaves]
    variants = [
        (each.key, *map(_digests, (each.outputs, each.gradient or ())))
        for each in definition.variants
    ]
    return repr((leaves, definition.output_names, variants, definition.options))


def _programs(
    definition: Definition,
    derivation: Derivation,
    vjp: tuple[Expr | None, ...],
    outputs: tuple[str, ...],
    grads: tuple[str, ...],
    saved: tuple[str, ...],
    search: Container[Pass],
    wanted: Container[Pass],
) -> Programs:
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
    jvp = None
    if derivation.jvp is not None:
        jvp = finite(
            functools.partial(_lowered, [*tangents, *primals, *numbers], fixed),
            _results(derivation.jvp, outputs, tangents),
        )
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
    references = {name: lower(inputs, results, fixed) for name, (inputs, results) in passes.items()}
    limits = Limits(definition, grads)
    programs = {
        name: finite(functools.partial(_lowered, inputs, fixed), results)
        for name, (inputs, results) in passes.items()
    }
    for name in FIRST_ORDER:
        programs[name] = limits(programs[name], references[name], exact)
    searching = _Search(definition, primals, grads, passes["forward"], fixed, search)
    chosen = {
        name: searching(name, inputs, finite.results(lowering, results), programs[name])
        for name, (inputs, results) in passes.items()
        for lowering in [functools.partial(_for_kernels, inputs, fixed)]
    }
    # Where a result is to be mended, at infinity say, that of a first try is not finite.
    first_tries = {name: program.first for name, (program, _) in chosen.items()}
    chosen = {
        name: (dataclasses.replace(program, first=None), decision)
        for name, (program, decision) in chosen.items()
    }
    for name in FIRST_ORDER:
        program, decision = chosen[name]
        if decision.in_pytorch is not None:
            programs[name] = limits(decision.in_pytorch, references[name], exact)
        # It is read: only what is wrong at the default values is worth the lines.
        as_run = _in_double if decision.fails_as_derived else simulated
        programs[name] = limits.inside(
            programs[name], references[name], as_run, rescue=False, at_defaults=True
        )
        made = limits(program, references[name], simulated)
        made = limits.inside(made, references[name], _again)
        if made.wide is not None:
            in_double = functools.partial(simulated, form=DOUBLE)
            wide = limits(made.wide, references[name], in_double)
            wide = limits.inside(wide, references[name], in_double, rescue=False)
            made = dataclasses.replace(made, wide=wide)
        chosen[name] = made, decision
    directions = [each.name for _, each in tangents]
    for name, reference in references.items():
        made, decision = chosen[name]
        programs[name] = limits.vanishing(programs[name], reference, directions)
        if decision.fails_as_derived:  # in double, but in graphs and on some devices
            wide = dataclasses.replace(programs[name], arithmetic="double")
            wide = limits.vanishing(wide, reference, directions)
            programs[name] = dataclasses.replace(wide, arithmetic="single")
        made = limits.vanishing(made, reference, directions)
        if made.wide is not None:
            wide = limits.vanishing(made.wide, reference, directions)
            made = dataclasses.replace(made, wide=wide)
        chosen[name] = dataclasses.replace(made, first=first_tries[name]), decision
    pushed = [(direction(s), _directed(each)) for s, each in vjp_inputs]
    along_pushed = tuple(symbol for symbol, _ in pushed)
    tangents_of_vjp = pushed_forward(vjp, symbols, along_pushed, *known, alike) if twice else ()
    vjp_jvp = _lowered(
        [*pushed, *vjp_inputs, *numbers],
        fixed,
        _results(tangents_of_vjp, tuple(leaf.name for leaf in present), pushed, like=True),
    )
    return Programs(
        programs["forward"],
        programs["backward"],
        programs["double_backward"],
        jvp,
        vjp_jvp,
        {name: program for name, (program, _) in chosen.items()},
        tuple(decision for _, decision in chosen.values()),
    )


def _in_double(program: Program, point: Point) -> list[Any]:
    return simulated(dataclasses.replace(program, arithmetic="double"), point)


def _again(program: Program, point: Point) -> list[Any]:
    """Simulated, with what is 0 computed again where kernels do: the search does not rely on it."""
    found = simulated(program, point)
    if program.arithmetic != "wary" or 0 not in found:
        return found
    again = _in_double(program, point)
    return [other if value == 0 else value for value, other in zip(found, again, strict=True)]


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


def _lowered(
    inputs: list[tuple[Symbol, Input]], fixed: frozenset[Symbol], results: list[Result]
) -> Program:
    """For PyTorch's operations."""
    turned = _with_half_turns(inputs, results, by_powers_of_two=True)
    return lower(inputs, turned, fixed)


def _for_kernels(
    inputs: list[tuple[Symbol, Input]], fixed: frozenset[Symbol], results: list[Result]
) -> Program:
    return lower(inputs, _with_half_turns(inputs, results), fixed, for_kernels=True)


def _with_half_turns(
    inputs: list[tuple[Symbol, Input]], results: list[Result], *, by_powers_of_two: bool = False
) -> list[Result]:
    tensors = frozenset(symbol for symbol, each in inputs if not each.number)
    turned = functools.partial(in_half_turns, tensors=tensors, by_powers_of_two=by_powers_of_two)
    return [each.changed(turned) for each in results]


class _Search:
    """The kernels of a variant, each chosen among its candidates."""

    def __init__(
        self,
        definition: Definition,
        primals: list[tuple[Symbol, Input]],
        cotangents: tuple[str, ...],
        forward: tuple[list[tuple[Symbol, Input]], list[Result]],
        fixed: frozenset[Symbol],
        passes: Container[Pass],
    ) -> None:
        self._fixed = fixed
        self._passes = passes
        self._allowed = definition.options.budget
        tensors = [leaf.name for leaf in definition.tensors]
        self._tensors = [each.name for _, each in primals if each.name in tensors]
        self._symbols = frozenset(s for s, each in primals if each.name in tensors)
        self._cotangents = cotangents
        self._forward = forward
        self._given = sample.of(definition, self._tensors)
        self._defaults = sample.defaults(definition)
        self._domains = sample.domains_of(definition, self._tensors)

    @functools.cached_property
    def _points(self) -> list[Point]:
        """With the outputs; not computed for searches that are remembered."""
        return self._with_outputs(self._given)

    @functools.cached_property
    def _of_arguments(self) -> list[Point]:
        exprs = [each.expr for each in self._forward[1] if each.expr is not None]
        arguments = [self._argument(u) for u in sample.arguments_of(exprs, self._tensors)]
        given = sample.of_arguments(self._given, self._tensors, arguments)
        return self._with_outputs(sample.inside(given, self._domains))

    @functools.cached_property
    def _far(self) -> list[Point]:
        """Where an output is none of float32's, but of float64's; and below borders."""

        def values(point: Point) -> list[Any]:
            return exact(self._forward_program, point)

        found = (
            sample.beside_extremes(self._given, self._tensors, values, sample.FAR_SIZES)
            if self._tensors
            else []
        )
        found += sample.at_sizes(self._given, self._tensors, sample.BELOW_BORDERS)
        return self._with_outputs(sample.inside(found, self._domains), DOUBLE)

    @functools.cached_property
    def _forward_program(self) -> Program:
        inputs, results = self._forward
        return lower(inputs, results, self._fixed)

    def _with_outputs(self, points: Sequence[Point], form: Format = SINGLE) -> list[Point]:
        """Points with the outputs there, as backward gets them."""
        names = [output.name for output in self._forward_program.outputs]
        found: list[Point] = []
        for point, values in zip(points, exact_at(self._forward_program, points), strict=True):
            with mp.workprec(EXACT):
                outputs = {
                    name: float(rounded(value, form))
                    for name, value in zip(names, values, strict=True)
                    if value is not None
                }
            found.append({**point, **outputs})
        return found

    def _judged(self, pass_name: Pass, program: Program) -> Sample:
        """The truths of a program at all points, with those beside roots and beside extremes.

        Cotangents are 1, and where there are several, at points of its own each while others are 0.
        Programs of double backward are long: of several tensors at neither of those, and at half of
        the points; of one beside where they overflow.
        """
        points = [*self._points, *self._of_arguments]
        second = pass_name == "double_backward"
        alone = self._cotangents_alone(program)
        if second and len(self._tensors) != 1:
            farther = sample.inside(sample.farther(self._given, self._tensors), self._domains)
            huge = self._with_outputs(
                [{**point, **one} for one in alone or [{}] for point in farther]
            )
            points = sample.half(points)
            points += [*sample.in_turn(points, alone), *huge]
            return sampled(program, points, frozenset(self._tensors))

        names = {each.name for each in self._forward_program.outputs}
        takes_outputs = not names.isdisjoint(each.name for each in program.inputs)

        def values(point: Point) -> list[Any]:
            return exact(program, self._with_outputs([point])[0] if takes_outputs else point)

        extreme: list[Point] = []
        for cotangents in ({}, *alone):
            at = [{**point, **cotangents} for point in self._given]
            given = at, self._tensors, values
            if second:
                extreme += sample.beside_extremes(*given, sample.SIZES[:1])
            elif self._tensors:
                extreme += sample.beside_roots(*given)
                extreme += sample.beside_extremes(*given, sample.SIZES)
                extreme += sample.at_sizes(at, self._tensors, sample.CARRIES)
        inside = sample.inside(extreme, self._domains)
        points += [*sample.in_turn(points, alone), *self._with_outputs(inside)]
        return sampled(program, points, frozenset(self._tensors))

    def _cotangents_alone(self, program: Program) -> Sequence[Mapping[str, float]]:
        """Of several cotangents that a program takes: one is 1, the others 0."""
        if {each.name for each in program.inputs}.isdisjoint(self._cotangents):
            return ()
        return sample.one_at_a_time(self._cotangents)

    def _on_a_ladder(self, reference: Program) -> Sample:
        points = sample.inside(sample.on_a_ladder(self._given, self._tensors), self._domains)
        points += sample.in_turn(points, self._cotangents_alone(reference))
        return sampled(reference, self._with_outputs(points), frozenset(self._tensors))

    def _beyond_squares(self, reference: Program) -> Sample:
        points = sample.inside(sample.beyond_squares(self._given, self._tensors), self._domains)
        points = sample.in_turn(points, self._cotangents_alone(reference) or [{}])
        return sampled(reference, self._with_outputs(points), frozenset(self._tensors))

    def _closer(self, reference: Program) -> Closer:
        def judged(points: Sequence[Point]) -> Sample:
            given = [{n: v for n, v in each.items() if n in self._given[0]} for each in points]
            inside = self._with_outputs(sample.inside(given, self._domains))
            return sampled(reference, inside, frozenset(self._tensors))

        return Closer(self._given, self._tensors, judged)

    def _argument(self, u: Expr) -> sample.Argument:
        program = lower(self._forward[0], [Result("u", u)], self._fixed)
        return lambda point: exact(program, point)[0]

    def _in_64_bits(self, truth: Sample, program: Program) -> Sample:
        """A sample of float64: some points as they are, some with as many digits as there are.

        And those of results that no float32 has.
        """
        points: list[Point] = []
        for k, point in enumerate((*truth.points, *self._far)):
            if k % 2 == 0 or math.inf in map(abs, point.values()) or k >= len(truth.points):
                points.append({n: value * (1 + math.pi * 2.0**-30) for n, value in point.items()})
            elif k % 4 == 1:
                points.append({**point, **self._defaults})
        names = frozenset(self._tensors)
        return sampled(program, points, names, DOUBLE)

    def _in_16_bits(
        self, inputs: list[tuple[Symbol, Input]], truth: Sample, program: Program
    ) -> Iterator[tuple[Format, Sample]]:
        """A sample, and of the 16-bit types every third of its points, rounded to them.

        And all with tiny or huge results, and numbers of all magnitudes.
        """
        yield BFLOAT16, truth  # of float32's range
        kept = [
            point
            for k, (point, values) in enumerate(zip(truth.points, truth.truths, strict=True))
            if k % 3 == 0 or any(map(is_extreme, values))
        ]
        binades = sample.inside(
            sample.at_sizes(self._given, self._tensors, sample.BINADES), self._domains
        )
        kept += self._with_outputs(binades)
        tensors = {each.name for _, each in inputs if ELEMENT in each.axes}
        for form in (BFLOAT16, FLOAT16):
            points = [
                {
                    name: float(rounded(mp.mpf(value), form)) if name in tensors else value
                    for name, value in point.items()
                }
                for point in kept
            ]
            yield form, sampled(program, points, frozenset(self._tensors))

    def __call__(
        self,
        pass_name: Pass,
        inputs: list[tuple[Symbol, Input]],
        results: list[Result],
        derived: Program,
    ) -> tuple[Program, Decision]:
        """The kernel of a pass. derived: what PyTorch's operations compute, of the same results."""

        def searched() -> tuple[Program, Decision]:
            lowered = functools.partial(_for_kernels, inputs, self._fixed)
            reference = lower(inputs, results, self._fixed)
            truth = self._judged(pass_name, reference)
            candidates = Candidates(results, lowered, self._symbols)
            second = pass_name == "double_backward"
            more = () if second else candidates.in_regimes()
            closer = None if second else self._closer(reference)
            chosen, decision = choose(
                pass_name,
                candidates.plain(),
                truth,
                more,
                allowed=self._allowed,
                wide=self._in_64_bits(truth, reference),
                closer=closer,
            )
            other = None
            if not second:
                plain = functools.partial(_lowered, inputs, self._fixed)
                other = mended(derived, candidates.forms(plain), truth)
            beyond = Sample((), ()) if second else self._beyond_squares(reference)
            in_pytorch = other or derived
            found = any(fails_in_single(in_pytorch, each) for each in (truth, beyond))
            decision = dataclasses.replace(decision, fails_as_derived=found, in_pytorch=other)
            chosen, name = with_first_try(
                pass_name,
                chosen,
                candidates.direct(in_double=chosen.is_in_double and not second),
                truth,
                functools.partial(self._on_a_ladder, reference),
                allowed=self._allowed,
                closer=closer,
            )
            decision = dataclasses.replace(decision, first_try=name)
            samples = self._in_16_bits(inputs, truth, reference)
            if (again := rescued(chosen, truth, beyond)) is not None:
                chosen = again
                samples = itertools.chain([(BFLOAT16, beyond)], samples)
            return for_16_bits(pass_name, chosen, samples), decision

        def as_derived() -> tuple[Program, Decision]:
            program = _for_kernels(inputs, self._fixed, results)
            return program, unsearched(pass_name, program)

        names = [sorted(map(str, each)) for each in (self._fixed, self._symbols)]
        asked = [_text(each) for each in (results, self._forward[1])]
        question = [pass_name, self._allowed, inputs, *names, self._given, *asked]
        wanted = pass_name in self._passes
        return remembered(repr(question), searched if wanted else as_derived, keep=wanted)


def _digests(exprs: Iterable[Expr | None]) -> list[str | None]:
    """Expressions as they are told apart in any process."""
    return [None if each is None else trees.digest(each) for each in exprs]


def _text(results: list[Result]) -> list[tuple[str | None, ...]]:
    digests = _digests(each.expr for each in results)
    return [(r.name, r.like, r.direction, d) for r, d in zip(results, digests, strict=True)]


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
