"""Infinite inputs: what a program makes of them, where that is not the limit.

sin(x)/x is NaN at infinity, log(1 + x)/x is inf/inf, and what a sum lost in rounding is inf - inf.
Where a limit is known and a program misses it, its result is selected there; where a sine alone has
no value there, as in a*x + sin(x), it is taken to be 0; where the limit is another one for other
parameters, infinity is the largest number. The last resort: what `saturate` has clamped is right
already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import isinf, isnan
from typing import Any

from mpmath import mp
from sympy import Add, Expr, Float, Interval, S, oo

from autofn.model import Definition
from autofn.program import Node, Output, Program, operation
from autofn.rewrite.formats import EXACT
from autofn.rewrite.sample import defaults
from autofn.rewrite.saturate import BETWEEN, NOTHING
from autofn.rewrite.simulate import columns, in_single
from autofn.rewrite.truth import Point, exact, exact_at

FAR = (("1.377e12", "1.377e22"), ("1.377e60", "1.377e90"))
"""Pairs of points that show where a function goes. At the nearer ones the digits suffice for sums
that cancel, the others are for what moves slowly."""

BESIDE = ("2.3", "5.9", "13.7", "24.1", "35.7")
"""Further points beside the first tell what oscillates, and of what is constant between steps."""

SAME = 1e-6
NEAR = 1e-3
"""Relative differences: of values on their way to a limit, and of a result that is as good."""

EDGES = (16.0, 64.0, 1024.0, 4e18)
BEYOND = (2e3, 3.1e6, 5.3e9, 7e13, 1.3e19, 4.1e25, 3.4e38)
SAME_THERE = 1e-17
"""Where a program may be as good as its limit, and where it has to be, if it is NaN there."""

TINY = (2.0**-36, 3.1e-16, 5.3e-21, 4e-26, 7e-28, 1.3e-34, 2.3e-38)
"""Numbers near 0 where a result may have vanished while its parts overflow; before the first."""

NEARER = (40.0, 600.0)
LARGER, MODERATE = (30.0, 1e3, 1e6), 8.0
"""How many times as large other tensors are, before `BEYOND` already, where what is NaN may not be
next to nothing; and up to what size they are in the settings where it is."""

TRIED_AGAIN = (700.0, 1e4, 1e7)
"""Where exponentials overflow in double: before, what is NaN in single precision is tried again.
Farther out for those of a fraction of a tensor."""

VANISHED = 1e-15
"""What is less, at the nearer points already, and goes on falling, goes to 0."""

OTHERS = (
    (1.0, 1.0, 0.0), (-0.7, 1.25, 0.4), (2.6, -0.7, -0.3), (0.0, 1.0, 0.0), (0.31, 1.0, 0.0),
)  # fmt: skip
"""Settings of all else, if there is any: of tensors, each 1.37 times the one before; a factor and a
summand of the defaults of numbers and parameters. A limit is the same in all of them in which the
formula has a value, two at least if there are several tensors."""

LARGE = (3.4028234663852886e38, 2.0**60, 2.0**40)
"""What may stand for infinity, at both ends: the largest number of single precision, and such as
have finite powers."""

GROWING = (80.0, 600.0)
"""What stands for infinity, at one end if need be, where exponentials of it are not to overflow, in
single precision and in double: one of them outgrows the others."""

LOGARITHMS, THEIRS = frozenset(("log", "log1p", "asinh", "acosh")), 2.0**40
"""What grows so slowly that nothing large comes of the largest number, and what stands for it."""

ENDLESS, VANISHING = 2.0**28, 2.0**-60
"""Of what size a result is infinite, or 0, at a number that stands for infinity."""

WAVES = frozenset("sin cos sinpi cospi sin_of_sum cos_of_sum sinpi_of_sum cospi_of_sum".split())
PHASES = ((-1.0, 0.4, 1.0), (0.4, 1.0, -1.0), (1.0, -1.0, 0.4))
"""What stands for one sine after another. With a limit that is the same for all of these, the
sines are no part of it."""

Evaluation = Callable[[Program, Sequence[Point]], Sequence[Sequence[Any]]]
"""Per point the outputs of a program, as what runs it computes them."""

_Combination = Mapping[str | None, Expr]
"""A limit per direction of which a result is the multiple; of what is not linear, that of None."""


class Limits:
    """Programs of a formula with their limits where one of its tensors is infinite."""

    def __init__(self, definition: Definition, cotangents: Sequence[str]) -> None:
        leaves = [leaf for leaf in definition.leaves if leaf.symbol is not None]
        tensors = [leaf.name for leaf in definition.tensors]
        given = defaults(definition)
        domains = dict(definition.options.domain)
        self._signs = {
            name: [s for s in (-1, 1) if name not in domains or _reaches(domains[name], s)]
            for name in tensors
        }
        self._tensors = [name for name, signs in self._signs.items() if signs]
        self._several = len(tensors) > 1
        self._known = {*(leaf.name for leaf in leaves), *cotangents}
        self._differentiable = [leaf.name for leaf in definition.differentiable]

        def setting(value: float, factor: float, more: float) -> Point:
            return {
                leaf.name: value * 1.37 ** tensors.index(leaf.name)
                if leaf.name in tensors
                else factor * given.get(leaf.name, 1) + more
                for leaf in leaves
            }

        others = OTHERS if len(leaves) > 1 else OTHERS[:1]
        self._settings = [setting(*each) for each in others]
        self._at_defaults = [setting(value, 1, 0) for value, *_ in others]

    def __call__(self, program: Program, reference: Program, evaluated: Evaluation) -> Program:
        """A forward or backward program, right at infinities. reference: the same function."""
        if not {each.name for each in program.inputs} <= self._known:
            return program  # in saved outputs, which have limits of their own
        for name in self._tensors:
            if name in program.used():
                program = self._without_waves(program, reference, evaluated, name)
                sides = [self._missed(program, reference, evaluated, name, s) for s in (-1, 1)]
                edges = [
                    self._edge(program, reference, evaluated, name, sign, side)
                    for sign, side in zip((-1, 1), sides, strict=True)
                ]
                program = self._selected(program, name, sides, edges)
        return program

    def inside(
        self,
        program: Program,
        reference: Program,
        evaluated: Evaluation,
        *,
        rescue: bool = True,
        at_defaults: bool = False,
    ) -> Program:
        """A program with limits that depend on numbers or parameters, or on other tensors.

        exp(-k*x)/x is infinite at one end and 0 at the other, as k has it: an infinite tensor is
        a large number there, where that is right in more settings, if need be in double. rescue:
        whether it may be. at_defaults: only where a limit is missed at default values. Of several
        tensors neither, and infinite limits are left alone.
        """
        if not {each.name for each in program.inputs} <= self._known:
            return program
        for name in self._tensors:
            if name in program.used():
                program = self._inside(
                    program,
                    reference,
                    evaluated,
                    name,
                    rescue=rescue and not self._several,
                    at_defaults=at_defaults or self._several,
                )
        return program

    def _inside(
        self,
        program: Program,
        reference: Program,
        evaluated: Evaluation,
        name: str,
        *,
        rescue: bool,
        at_defaults: bool,
    ) -> Program:
        missed = self._counted(reference, evaluated, name)
        # The first setting is that of the defaults.
        if not missed(program, slice(1 if at_defaults else None)):
            return program
        tried = [program]
        for within in _stand_ins(program, name):
            tried.append(within)
            if program.arithmetic == "single" and rescue:
                tried.append(replace(within, arithmetic="rescued"))
        return min(tried, key=missed)

    def missed(
        self, programs: Sequence[Program], reference: Program, evaluated: Evaluation
    ) -> list[int]:
        """How many limits programs miss that differ in their arithmetic: at defaults and others."""
        program, *_ = programs
        if not {each.name for each in program.inputs} <= self._known:
            return [0] * len(programs)
        names = [name for name in self._tensors if name in program.used()]
        counted = [self._counted(reference, evaluated, name) for name in names]
        return [sum(missed(each) for missed in counted) for each in programs]

    def _counted(self, reference: Program, evaluated: Evaluation, name: str) -> Callable[..., int]:
        """How many limits at infinities of a tensor a program misses, in some of the settings."""
        sides = [self._at(name, sign) for sign in self._signs[name]]
        wanted = [
            [_limits(reference, point, name, sign) for point in side]
            for side, sign in zip(sides, self._signs[name], strict=True)
        ]

        def missed(of: Program, settings: slice = slice(None)) -> int:
            return sum(
                limit is not None
                and (limit.is_finite or not self._several)
                and limit is not S.NaN
                and _misses(value, limit)
                for side, known in zip(sides, wanted, strict=True)
                for row, limits in zip(evaluated(of, side[settings]), known[settings], strict=True)
                for value, limit in zip(row, limits, strict=True)
            )

        return missed

    def vanishing(
        self,
        program: Program,
        reference: Program,
        directions: Collection[str],
        *,
        near: bool = False,
    ) -> Program:
        """A program that is 0 where its parts are NaN and it is next to nothing in truth.

        Far out, beyond `saturate`'s levels and at numbers, not infinities: exp(k*x)*exp(-exp(k*x))
        is 0 times infinity from where k has it. Where it is to be tried in double, from there on.
        near: near 0 as well, as exp(-1/x)/x**2 is.
        """
        if not {each.name for each in program.inputs} <= self._known.union(directions):
            return program  # in saved outputs
        again = program.arithmetic in ("rescued", "wary")
        edges = TRIED_AGAIN if again else EDGES[:1]
        # Between these, a limit that is selected from EDGES[2] on leaves NaN.
        far = (*((720.0, 900.0) if again else ()), *BEYOND)
        looks = [(far, edges, False), *([(TINY, TINY[:1], True)] if near else [])]
        for name in self._tensors:
            if name not in program.used():
                continue
            for sizes, starts, tiny in looks:
                low, high = (
                    self._vanished(program, reference, name, sign, sizes, tiny=tiny)
                    for sign in (-1, 1)
                )
                beside = self._not_beside(program, reference, name, low | high)
                for edge in starts:
                    made = self._zeroed(program, name, low, high, beside, Float(edge), near=tiny)
                    if not self._is_spoilt(program, made, reference, name, sizes):
                        program = made
                        break
        return program

    def _zeroed(
        self,
        program: Program,
        name: str,
        low: set[int],
        high: set[int],
        limited: set[int],
        edge: Expr,
        *,
        near: bool,
    ) -> Program:
        """The program with these outputs 0 where they are NaN beyond an edge on a side.

        limited: those that are so only where other tensors are not large. near: before the edge.
        """
        grown = _Grown(program)
        outputs = []
        for k, output in enumerate(program.outputs):
            node = output.node
            if node is not None and (k in low or k in high):
                side = "both" if k in low and k in high else "le" if k in low else "ge"
                # What else it is of: other inputs may be absent.
                own = _inputs_of(program, node)
                beside = [n for n in self._differentiable if n != name and n in own]
                zero = grown.plus_zeros(grown.constant(S.Zero), beside)
                beyond = (
                    grown.is_before(name, side, edge) if near else grown.is_beyond(name, side, edge)
                )
                for other in self._others(own, name) if k in limited else ():
                    beyond = grown.both(beyond, grown.is_within(other, Float(MODERATE)))
                node = grown.selected(grown.is_nan_and(node, beyond), zero, node)
            outputs.append(replace(output, node=node))
        return grown.program(outputs)

    def _others(self, names: Collection[str], name: str) -> list[str]:
        return [each for each in self._signs if each != name and each in names]

    def _not_beside(
        self, program: Program, reference: Program, name: str, outputs: set[int]
    ) -> set[int]:
        """Those that are NaN, too, where others are large and they are not small, or no number."""
        others = self._others(program.used(), name)
        if not outputs or not others:
            return set()
        points = [
            {**point, **{each: point[each] * size for each in others}}
            for size in LARGER
            for sign in self._signs[name]
            for point in self._far_out(program, name, [sign * far for far in (*NEARER, *BEYOND)])
        ]
        columns_of = enumerate(in_single(program, columns(points, [0] * len(points))))
        found = {k: column for k, column in columns_of if k in outputs and column is not None}
        numbers = [n for n in range(len(points)) if any(isnan(c[n]) for c in found.values())]
        truths = exact_at(reference, [points[n] for n in numbers])
        return {
            k
            for n, row in zip(numbers, truths, strict=True)
            for k, column in found.items()
            if isnan(column[n]) and row[k] is not None and not abs(row[k]) < VANISHING
        }

    def _far_out(self, program: Program, name: str, sizes: Sequence[float]) -> list[Point]:
        others = {i.name: 1 + 0.37 * k for k, i in enumerate(program.inputs)}
        settings = [*self._at_defaults, *self._settings]
        if len(self._signs) > 2:  # whose signs differ, too
            first = settings[0]
            settings += [{**first, each: -first[each]} for each in self._others(first, name)]
        return [{**others, **each, name: far} for each in settings for far in sizes]

    def _is_spoilt(
        self, old: Program, new: Program, reference: Program, name: str, sizes: Sequence[float]
    ) -> bool:
        """Whether a result is 0 now that was not, though it is not 0 in truth: it was NaN in single
        precision, and tried again in double.
        """
        if old.nodes == new.nodes or old.arithmetic == "single":
            return False
        points = self._far_out(old, name, [sign * far for far in sizes for sign in (-1, 1)])
        before, after = (in_single(p, columns(points, [0] * len(points))) for p in (old, new))
        return any(
            was is not None
            and now is not None
            and not isnan(was[k])
            and now[k] == 0 != was[k]
            and bool(abs(exact(reference, point)[number]) > VANISHING)
            for number, (was, now) in enumerate(zip(before, after, strict=True))
            for k, point in enumerate(points)
        )

    def _vanished(
        self,
        program: Program,
        reference: Program,
        name: str,
        sign: int,
        sizes: Sequence[float],
        *,
        tiny: bool,
    ) -> set[int]:
        """The outputs that are NaN somewhere, and wherever they are next to nothing.

        tiny: or are infinite. In PyTorch's operations infinity times exp of what is far below 0 is
        NaN.
        """
        if sign not in self._signs[name]:
            return set()
        points = self._far_out(program, name, [sign * size for size in sizes])
        found = in_single(program, columns(points, [0] * len(points)))
        small: dict[int, bool] = {}
        seen: set[tuple[int, int]] = set()
        known = [(k, each) for k, each in enumerate(found) if each is not None]
        lost = {
            n: [k for k, each in known if isnan(each[n]) or (tiny and isinf(each[n]))]
            for n in range(len(points))
        }
        numbers = [n for n, outputs in lost.items() if outputs]
        rows = exact_at(reference, [points[n] for n in numbers])
        for number, truths in zip(numbers, rows, strict=True):
            turn = number // len(sizes)
            for k in lost[number]:
                # What has no value stays NaN, but for odd parameters, with which nothing has one.
                # Farther out, digits do not suffice for all values.
                none = mp.isnan(truths[k]) and turn < len(self._at_defaults)
                if mp.isfinite(truths[k]) or (none and (turn, k) not in seen):
                    small[k] = small.get(k, True) and bool(abs(truths[k]) < VANISHING)
                    seen.add((turn, k))
        return {k for k, is_small in small.items() if is_small}

    def _beside(self, program: Program, output: Output, name: str) -> list[str]:
        """What else an output is of: other inputs may be absent."""
        own = set() if output.node is None else _inputs_of(program, output.node)
        return [each for each in self._differentiable if each != name and each in own]

    def _at(self, name: str, sign: int) -> list[Point]:
        """The points, one a setting, at which a tensor is infinite."""
        return [{**setting, name: sign * math.inf} for setting in self._settings]

    def _missed(
        self, program: Program, reference: Program, evaluated: Evaluation, name: str, sign: int
    ) -> list[_Combination | None]:
        """Per output its limit at an infinity; None where it has none or the program meets it."""
        if sign not in self._signs[name]:
            return [None] * len(program.outputs)
        points = self._at(name, sign)
        got = evaluated(program, points)
        if len(got) > 1 and not any(_is_nan(value) for row in got for value in row):
            return [None] * len(program.outputs)
        directions: list[str | None] = [i.name for i in program.inputs if i.name not in points[0]]
        directions = directions or [None]
        limits = []
        for point in points:
            units = [{str(each): float(each == one) for each in directions} for one in directions]
            of_each = [_limits(reference, {**point, **unit}, name, sign) for unit in units]
            limits.append(list(zip(*of_each, strict=True)))
        found: list[_Combination | None] = []
        for k in range(len(program.outputs)):
            of_slope = directions != [None]
            known = _same([at[k] for at in limits], several=self._several, of_slope=of_slope)
            missed = known is not None and any(
                S.NaN not in at[k] and _misses(row[k], Add(*at[k]))
                for row, at in zip(got, limits, strict=True)
            )
            found.append(dict(zip(directions, known, strict=True)) if known and missed else None)
        return found

    def _edge(
        self,
        program: Program,
        reference: Program,
        evaluated: Evaluation,
        name: str,
        sign: int,
        limits: Sequence[_Combination | None],
    ) -> Expr:
        """From where on the limits are what is computed: infinity, or the program is NaN before.

        x/(1 - x*exp(-x)) is 0 long before its derivative's parts overflow, in double too.
        """
        wanted = [(k, limit) for k, limit in enumerate(limits) if limit is not None]
        known = [each for _, limit in wanted for each in limit.values()]
        if len(self._settings) > 1 or not wanted or not all(each.is_finite for each in known):
            return oo
        (setting,) = self._settings

        def is_met(far: float) -> bool:
            for k, combination in wanted:
                for direction, limit in combination.items():
                    units = {each.name: float(each.name == direction) for each in reference.inputs}
                    value = exact(reference, {**units, **setting, name: sign * far})[k]
                    if abs(_or_zero(value) - float(limit)) > SAME_THERE * abs(float(limit)):
                        return False
            return True

        rows = evaluated(program, [{**setting, name: sign * far} for far in BEYOND])
        if not any(_is_nan(row[k]) for row in rows for k, _ in wanted):
            return oo
        for edge in EDGES:
            if all(is_met(far) for far in (*(edge * step for step in BETWEEN), *BEYOND)):
                return Float(edge)
        return oo

    def _selected(
        self,
        program: Program,
        name: str,
        sides: Sequence[Sequence[_Combination | None]],
        edges: Sequence[Expr],
    ) -> Program:
        """The program with these limits of its outputs below the first edge and above the other."""
        (lows, highs), (lower, upper) = sides, edges
        grown = _Grown(program)
        outputs = []
        for output, low, high in zip(program.outputs, lows, highs, strict=True):
            beside = self._beside(program, output, name)
            same = low is not None and low == high and lower == upper
            both = [(low, "both", lower)]
            for limits, relation, edge in (
                both if same else [(low, "le", lower), (high, "ge", upper)]
            ):
                if output.node is not None and limits is not None:
                    limit = grown.plus_zeros(grown.combined(limits), beside)
                    beyond = grown.is_beyond(name, relation, edge)
                    node = grown.selected(beyond, limit, output.node)
                    output = replace(output, node=node)
            outputs.append(output)
        return grown.program(outputs)

    def _without_waves(
        self, program: Program, reference: Program, evaluated: Evaluation, name: str
    ) -> Program:
        """The program with its sines 0 at an infinity where they have no part in the limits."""
        waves = _waves(program, name)
        reached = _reached(program, waves)
        of_outputs = [k for k, output in enumerate(program.outputs) if output.node in reached]
        for relation, signs in (("both", (-1, 1)), ("ge", (1,)), ("le", (-1,))):
            if not set(signs).issubset(self._signs[name]):
                continue
            signed = [(sign, point) for sign in signs for point in self._at(name, sign)]
            points = [point for _, point in signed]
            got = evaluated(program, points)
            if not any(_is_nan(row[k]) for row in got for k in of_outputs):
                continue
            without = _with_zeros(program, waves, name, relation)
            phased = [_phased(reference, name, phases) for phases in PHASES]
            for (sign, point), row in zip(signed, evaluated(without, points), strict=True):
                limits = [_limits(each, point, name, sign) for each in phased]
                if not _are_met(row, limits, of_outputs):
                    break
            else:
                return without
        return program


def _reaches(domain: Interval, sign: int) -> bool:
    """Whether a domain has no end on a side."""
    end: Expr = domain.end if sign > 0 else domain.start
    return bool(end.is_infinite)


def _waves(program: Program, name: str) -> list[int]:
    """The sines of an input in a program."""
    return [k for k in _of_input(program, name) if program.nodes[k].op in WAVES]


def _of_input(program: Program, name: str) -> list[int]:
    """The nodes that depend on an input, and itself."""
    return sorted(_reached(program, {k for k, n in enumerate(program.nodes) if n.input == name}))


def _inputs_of(program: Program, node: int) -> set[str]:
    """The names of the inputs that a node depends on."""
    needed = {node}
    for k in range(node, -1, -1):
        if k in needed:
            needed.update(program.nodes[k].args)
    return {each.input for k in needed if (each := program.nodes[k]).input is not None}


def _reached(program: Program, sources: Collection[int]) -> set[int]:
    """The nodes that depend on any of some nodes, which are among them."""
    found = set(sources)
    for k, node in enumerate(program.nodes):
        if not found.isdisjoint(node.args):
            found.add(k)
    return found


def _phased(reference: Program, name: str, phases: Sequence[float]) -> Program:
    """The program with numbers in place of its sines."""
    nodes = list(reference.nodes)
    for turn, k in enumerate(_waves(reference, name)):
        nodes[k] = Node("constant", constant=Float(phases[turn % len(phases)]), number=True)
    return replace(reference, nodes=tuple(nodes))


def _are_met(
    got: Sequence[Any], limits: Sequence[Sequence[Expr | None]], outputs: Sequence[int]
) -> bool:
    """Whether outputs are the limits that they have with any phases, where they have values."""
    for k in outputs:
        first, *others = (each[k] for each in limits)
        if first is S.NaN:
            continue
        if first is None or not all(_are_same([first], [other]) for other in others):
            return False
        if _misses(got[k], first):
            return False
    return True


def _stand_ins(program: Program, name: str) -> Iterator[Program]:
    """Programs with large numbers in place of an infinite input, or of its logarithms."""
    inputs = [k for k, node in enumerate(program.nodes) if node.input == name]
    for size in LARGE:
        yield _within(program, name, inputs, size)
    if logarithms := [k for k in _of_input(program, name) if program.nodes[k].op in LOGARITHMS]:
        yield _within(program, name, logarithms, THEIRS)
    for size in GROWING:
        for relation in ("both", "le", "ge"):
            yield _within(program, name, inputs, size, relation)


def _within(
    program: Program, name: str, nodes: Collection[int], size: float, relation: str = "both"
) -> Program:
    """The program with numbers of this size for some of its values where an input is infinite."""

    def large(grown: _Grown, k: int, place: int) -> int:
        if k not in nodes:
            return place
        ends = [grown.constant(Float(sign * size, 17)) for sign in (-1, 1)]
        within = grown.clamped(place, *ends)
        return grown.selected(grown.is_beyond(name, relation, oo), within, place)

    within = _rebuilt(program, large)
    grown = _Grown(within)
    beyond = grown.is_beyond(name, relation, oo)
    outputs = []
    for output in within.outputs:
        node = output.node
        if node is not None:
            node = grown.selected(beyond, grown.stretched(node, ENDLESS, VANISHING), node)
        outputs.append(replace(output, node=node))
    return grown.program(outputs)


def _with_zeros(program: Program, waves: Collection[int], name: str, relation: str) -> Program:
    """The program with its sines 0 at an infinity, or at both."""
    at_infinity: int | None = None

    def zero(grown: _Grown, k: int, place: int) -> int:
        nonlocal at_infinity
        if k not in waves:
            return place
        if at_infinity is None:
            at_infinity = grown.is_beyond(name, relation, oo)
        return grown.selected(at_infinity, grown.constant(S.Zero), place)

    return _rebuilt(program, zero)


def _rebuilt(program: Program, changed: Callable[[_Grown, int, int], int]) -> Program:
    """The program with other values for some. changed: of a node's number and its place now, the
    place of what stands for it from there on.
    """
    grown = _Grown(replace(program, nodes=()))
    places: list[int] = []
    for k, node in enumerate(program.nodes):
        place = grown.append(replace(node, args=tuple(places[arg] for arg in node.args)))
        places.append(changed(grown, k, place))
    return grown.moved(program, places)


def _limits(reference: Program, others: Point, name: str, sign: int) -> Sequence[Expr | None]:
    """Per output its limit, infinite ones included; None where it has none or it is not seen.

    NaN where the function has no value.
    """
    given = [(i.name, others.get(i.name, 1.0)) for i in reference.inputs if i.name != name]
    return _limits_of(reference, tuple(given), name, sign)


@lru_cache(maxsize=1000)
def _limits_of(
    reference: Program, others: tuple[tuple[str, float], ...], name: str, sign: int
) -> Sequence[Expr | None]:
    """All programs of a pass are asked for the same."""
    found: list[Expr | None] = [None] * len(reference.outputs)
    for near, nearer in FAR:
        with mp.workprec(EXACT):
            points = [mp.mpf(near) + mp.mpf(step) for step in ("0", *BESIDE)] + [mp.mpf(nearer)]
            rows = exact_at(reference, [{**dict(others), name: sign * each} for each in points])
        for k, values in enumerate(zip(*rows, strict=True)):
            if found[k] is None and all(isinstance(value, mp.mpf) for value in values):
                found[k] = _approached([_or_zero(value) for value in values])
    return found


def _or_zero(value: mp.mpf) -> mp.mpf:
    return mp.zero if mp.isfinite(value) and mp.mag(value) <= NOTHING else value


def _approached(values: Sequence[mp.mpf]) -> Expr | None:
    if all(map(mp.isnan, values)):
        return S.NaN
    if not all(map(mp.isfinite, values)):
        return None
    near, *beside, nearer = values
    first, size = max(map(abs, (near, *beside))), abs(nearer)
    if (nearer == 0 and first < VANISHED) or (size < VANISHED and 0 < size * 1000 < first):
        return S.Zero
    if any(abs(near - each) > SAME * abs(near) for each in beside):
        # It oscillates, or grows like an exponential.
        steps = [a / b if b else mp.inf for a, b in pairwise(values)]
        grows = all(0 < step < 0.5 for step in steps) and first < VANISHED * size
    elif abs(near - nearer) <= SAME * size:
        return Float(mp.nstr(nearer, 40), 40)
    else:
        grows = size > 1.2 * abs(near) > 120 and near * nearer > 0
    return (oo if nearer > 0 else -oo) if grows else None


def _misses(value: Any, limit: Expr) -> bool:
    if not isinstance(value, mp.mpf) or mp.isnan(value):
        return True
    if limit.is_infinite or mp.isinf(value):
        return bool(value != float(limit))
    return bool(abs(_or_zero(value) - float(limit)) > NEAR * abs(float(limit)))


def _is_nan(value: Any) -> bool:
    return isinstance(value, mp.mpf) and bool(mp.isnan(value))


def _are_same(limits: Sequence[Expr | None], others: Sequence[Expr | None]) -> bool:
    """Whether there are limits, and the same."""
    return all(
        a is not None and b is not None and math.isclose(float(a), float(b), rel_tol=SAME)
        for a, b in zip(limits, others, strict=True)
    )


def _same(
    settings: Sequence[Sequence[Expr | None]], *, several: bool, of_slope: bool
) -> list[Expr] | None:
    """The limits per direction, if they are the same in all settings that have a value.

    several: tensors, of which one other setting at least has to tell. Infinite slopes of several
    are left alone: of focal loss that by the input has them, where the label is infinite.
    """
    first, *others = settings
    alone = several and of_slope
    known = [each for each in first if each is not None and (each.is_finite or not alone)]
    if len(known) < len(first) or S.NaN in first:
        return None
    telling = [other for other in others if S.NaN not in other]
    enough = bool(telling) or not several
    return known if enough and all(_are_same(first, other) for other in telling) else None


class _Grown:
    """A program with further nodes."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._nodes = list(program.nodes)
        self._places = {node: k for k, node in reversed([*enumerate(program.nodes)])}

    def program(self, outputs: Sequence[Output]) -> Program:
        return replace(self._program, nodes=tuple(self._nodes), outputs=tuple(outputs))

    def moved(self, program: Program, places: Sequence[int]) -> Program:
        """With the outputs of a program whose nodes are at these places now."""
        return self.program(
            [
                output if output.node is None else replace(output, node=places[output.node])
                for output in program.outputs
            ]
        )

    def append(self, node: Node) -> int:
        """The place of a node, at the end where there is none like it."""
        if node not in self._places:
            self._places[node] = len(self._nodes)
            self._nodes.append(node)
        return self._places[node]

    def constant(self, value: Expr) -> int:
        return self.append(Node("constant", constant=value, number=True))

    def _add(self, op: str, *args: int) -> int:
        return self.append(operation(self._nodes, op, args))

    def _input(self, name: str) -> int:
        return next(k for k, node in enumerate(self._nodes) if node.input == name)

    def stretched(self, x: int, large: float, small: float) -> int:
        """x, infinite where it is large, and 0 where it is small."""
        size = self._add("abs", x)
        zero, endless = self.constant(S.Zero), self._add("mul", x, self.constant(oo))
        some = self.selected(self._add("lt", size, self.constant(Float(small, 17))), zero, x)
        return self.selected(self._add("gt", size, self.constant(Float(large, 17))), endless, some)

    def clamped(self, x: int, low: int, high: int) -> int:
        return self._add("clamp", x, low, high)

    def combined(self, limits: _Combination) -> int:
        """The sum of the directions times their limits; the limit where there is none."""
        total: int | None = None
        for direction, limit in limits.items():
            value = self.constant(limit)
            if direction is not None and limit != 0:
                value = self._add("mul", self._input(direction), value)
            if total is None or limit != 0:
                total = value if total is None else self._add("add", total, value)
        assert total is not None
        return total

    def plus_zeros(self, value: int, names: Sequence[str]) -> int:
        """The value, or NaN where one of these inputs is."""
        for name in names:
            zero = self._add("mul", self._input(name), self.constant(S.Zero))
            value = zero if self._nodes[value].constant == 0 else self._add("add", value, zero)
        return value

    def is_beyond(self, name: str, relation: str, edge: Expr) -> int:
        """Whether an input is beyond an edge on one side, or on both."""
        x = self._input(name)
        if relation == "both":
            return self._add("ge", self._add("abs", x), self.constant(edge))
        return self._add(relation, x, self.constant(edge if relation == "ge" else -edge))

    def is_before(self, name: str, relation: str, edge: Expr) -> int:
        """Whether an input is of at most that size, on one side of 0 or on both."""
        within = self.is_within(name, edge)
        if relation == "both":
            return within
        # Not 0: of -0 it is the other side's.
        side = "gt" if relation == "ge" else "lt"
        return self.both(within, self._add(side, self._input(name), self.constant(S.Zero)))

    def is_within(self, name: str, size: Expr) -> int:
        """Whether an input is of that size at most."""
        return self._add("le", self._add("abs", self._input(name)), self.constant(size))

    def both(self, first: int, second: int) -> int:
        return self._add("and", first, second)

    def is_nan_and(self, x: int, condition: int) -> int:
        return self.both(self._add("ne", x, x), condition)

    def selected(self, condition: int, value: int, otherwise: int) -> int:
        return self._add("select", condition, value, otherwise)
