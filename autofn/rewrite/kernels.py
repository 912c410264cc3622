"""The kernels of a variant: the search among the candidates of each pass, and its sample."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from mpmath import mp
from sympy import Expr, Symbol

from autofn import trees
from autofn.model import Definition
from autofn.program import ELEMENT, Input, Program, Result, lower
from autofn.rewrite import sample
from autofn.rewrite.candidates import Candidates
from autofn.rewrite.closer import Closer
from autofn.rewrite.formats import BFLOAT16, DOUBLE, EXACT, FLOAT16, SINGLE, Format, rounded
from autofn.rewrite.half_turns import in_half_turns
from autofn.rewrite.judge import Sample, is_extreme, sampled
from autofn.rewrite.memory import remembered
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
from autofn.rewrite.truth import Point, exact, exact_at


def for_pytorch(
    inputs: list[tuple[Symbol, Input]], fixed: frozenset[Symbol], results: list[Result]
) -> Program:
    """For PyTorch's operations."""
    turned = _with_half_turns(inputs, results, by_powers_of_two=True)
    return lower(inputs, turned, fixed)


def for_kernels(
    inputs: list[tuple[Symbol, Input]], fixed: frozenset[Symbol], results: list[Result]
) -> Program:
    return lower(inputs, _with_half_turns(inputs, results), fixed, for_kernels=True)


def _with_half_turns(
    inputs: list[tuple[Symbol, Input]], results: list[Result], *, by_powers_of_two: bool = False
) -> list[Result]:
    tensors = frozenset(symbol for symbol, each in inputs if not each.number)
    turned = functools.partial(in_half_turns, tensors=tensors, by_powers_of_two=by_powers_of_two)
    return [each.changed(turned) for each in results]


class Kernels:
    """The kernels of a variant, each chosen among its candidates."""

    def __init__(
        self,
        definition: Definition,
        primals: list[tuple[Symbol, Input]],
        cotangents: tuple[str, ...],
        forward: tuple[list[tuple[Symbol, Input]], list[Result]],
        fixed: frozenset[Symbol],
        passes: Container[str],
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

    def _judged(self, pass_name: str, program: Program) -> Sample:
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

    def _beyond(self, reference: Program, sizes: Sequence[float]) -> Sample:
        found = sample.beyond_powers(self._given, self._tensors, sizes)
        points = sample.inside(found, self._domains)
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
        if below := sample.below_the_largest(truth.points, truth.truths, self._tensors):
            inside = self._with_outputs(sample.inside(below, self._domains))
            yield BFLOAT16, sampled(program, inside, frozenset(self._tensors))
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
        pass_name: str,
        inputs: list[tuple[Symbol, Input]],
        results: list[Result],
        derived: Program,
    ) -> tuple[Program, Decision]:
        """The kernel of a pass. derived: what PyTorch's operations compute, of the same results."""

        def searched() -> tuple[Program, Decision]:
            lowered = functools.partial(for_kernels, inputs, self._fixed)
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
                plain = functools.partial(for_pytorch, inputs, self._fixed)
                other = mended(derived, candidates.forms(plain), truth)
            beyond = Sample((), ()) if second else self._beyond(reference, sample.BEYOND_SQUARES)
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
            elif chosen.is_in_double and beyond.points:  # which 16-bit types may do without
                fourths = self._beyond(reference, sample.BEYOND_FOURTHS)
                samples = itertools.chain([(BFLOAT16, beyond), (BFLOAT16, fourths)], samples)
            return for_16_bits(pass_name, chosen, samples), decision

        def as_derived() -> tuple[Program, Decision]:
            program = for_kernels(inputs, self._fixed, results)
            return program, unsearched(pass_name, program)

        names = [sorted(map(str, each)) for each in (self._fixed, self._symbols)]
        asked = [_text(each) for each in (results, self._forward[1])]
        question = [pass_name, self._allowed, inputs, *names, self._given, *asked]
        wanted = pass_name in self._passes
        return remembered(repr(question), searched if wanted else as_derived, keep=wanted)


def _text(results: list[Result]) -> list[tuple[str | None, ...]]:
    digests = trees.digests(each.expr for each in results)
    return [(r.name, r.like, r.direction, d) for r, d in zip(results, digests, strict=True)]
