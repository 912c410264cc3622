"""The calls that every backend is checked with: shapes and layouts, filled with regular values.

Finite differences need points away from kinks and singularities, in every element of a broadcast
output; here they are drawn and tried against the oracle.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from autofn.model import Definition, Kind, Leaf, Variant
from autofn.verify.job import Array, Case
from autofn.verify.oracle import Oracle, oracle

Shape = tuple[int, ...]
Layout = Literal["dense", "transposed", "sliced"]
Point = Mapping[str, Any]

NUDGE = 1e-4
"""Around a regular point, derivatives move little over this relative distance."""

TRIES = 400
"""Redraws of single elements before a case is given up."""


def make_cases(
    definition: Definition, variant: Variant, points: Sequence[Point]
) -> tuple[Case, ...]:
    """The cases of one variant; `points` are regular, and the source of all values."""
    sampler = _Sampler(definition, variant, points)
    cases: list[Case] = []
    for name, shapes, layouts in _calls(definition, variant):
        filled = sampler.fill(shapes)
        if filled is None:
            continue
        values: dict[str, Any] = dict(variant.key)
        values.update(sampler.numbers)
        for leaf in definition.differentiable:
            values[leaf.name] = (
                Array(shapes[leaf.name], filled[leaf.name], layouts.get(leaf.name, "dense"))
                if leaf.name in shapes
                else None
            )
        cases.append(Case(name, variant.key, values))
    return tuple(cases)


def _calls(
    definition: Definition, variant: Variant
) -> list[tuple[str, dict[str, Shape], dict[str, Layout]]]:
    """Name, shape per given leaf, layout per tensor."""
    key = dict(variant.key)
    given = [leaf for leaf in definition.differentiable if key.get(leaf.name, True)]
    tensors = [leaf.name for leaf in given if leaf.kind in (Kind.TENSOR, Kind.OPTIONAL)]
    # Dimensions enough for every channel dimension to exist.
    dims = max(2, *(_depth(leaf) for leaf in given))
    base = (*[1] * (dims - 2), 3, 3)
    turning: tuple[Layout, ...] = ("transposed", "sliced", "dense")

    def call(
        name: str, out: Shape, shapes: Mapping[str, Shape], layouts: Mapping[str, Layout]
    ) -> tuple[str, dict[str, Shape], dict[str, Layout]]:
        everything = {leaf.name: shapes.get(leaf.name) or _parameter(leaf, out) for leaf in given}
        everything.update({name: out for name in tensors if name not in shapes})
        return name, everything, dict(layouts)

    wide = (2, *base[:-2], 2, 3)
    broadcast = [(2, *[1] * (dims - 1), 3), (2, 1), wide, (1,), ()]
    first = dict(zip(tensors, itertools.cycle(broadcast), strict=False))
    if len(tensors) > 1 and wide not in first.values():
        first[tensors[0]] = wide
    calls = [
        call("dense", base, {}, {}),
        call("transposed", base, {}, dict.fromkeys(tensors, turning[0])),
        call("sliced", base, {}, {n: turning[(k + 1) % 3] for k, n in enumerate(tensors)}),
        call("broadcast", wide, first if len(tensors) > 1 else {}, {}),
        call("0-dim", (), dict.fromkeys(tensors, ()), {}),
        call("one element", (1,) * dims, {}, {}),
        call("empty", (*base[:-1], 0), {}, {}),
    ]
    if any(leaf.kind is Kind.PER_CHANNEL for leaf in given):
        single = {leaf.name: (1,) for leaf in given if leaf.kind is Kind.PER_CHANNEL}
        calls.append(call("one channel", base, single, {}))
    return calls


def _depth(leaf: Leaf) -> int:
    if leaf.kind is not Kind.PER_CHANNEL:
        return 1
    dim = leaf.parameter.dim
    return dim + 1 if dim >= 0 else -dim


def _parameter(leaf: Leaf, out: Shape) -> Shape:
    if leaf.kind is Kind.PER_CHANNEL:
        dim = leaf.parameter.dim
        return (out[dim],) if -len(out) <= dim < len(out) else (1,)
    return (1,) if leaf.kind is Kind.LEARNABLE else out


class _Sampler:
    """Draws values of leaves so that every element of the output is a regular point."""

    def __init__(self, definition: Definition, variant: Variant, points: Sequence[Point]) -> None:
        self.leaves = {leaf.name: leaf for leaf in definition.differentiable}
        self.points = points
        self.numbers = {
            leaf.name: points[0].get(leaf.name, leaf.parameter.default)
            for leaf in definition.numbers
        }
        self.oracle: Oracle = oracle(definition, variant)
        self.random = random.Random(definition.name)
        self.known: dict[tuple[float, ...], bool] = {}

    def fill(self, shapes: Mapping[str, Shape]) -> dict[str, tuple[float, ...]] | None:
        """Values in row-major order; None where no regular ones were found."""
        out = self._broadcast(shapes)
        filled = {
            name: [self._draw(name, k) for k in range(math.prod(shape))]
            for name, shape in shapes.items()
        }
        sources = {name: self._sources(name, shape, out) for name, shape in shapes.items()}
        tries = TRIES
        for element in range(math.prod(out)):
            while not self._regular({n: filled[n][sources[n][element]] for n in shapes}):
                tries -= 1
                if tries < 0:
                    return None
                name = self.random.choice(list(shapes))
                filled[name][sources[name][element]] = self._draw(name, None)
        # A redraw may have spoilt an element that was fine before.
        for element in range(math.prod(out)):
            if not self._regular({n: filled[n][sources[n][element]] for n in shapes}):
                return None
        return {name: tuple(values) for name, values in filled.items()}

    def _draw(self, name: str, index: int | None) -> float:
        if index is None:
            return float(self.random.choice(self.points)[name])
        return float(self.points[index % len(self.points)][name])

    def _broadcast(self, shapes: Mapping[str, Shape]) -> Shape:
        tensors = [
            shape
            for name, shape in shapes.items()
            if self.leaves[name].kind in (Kind.TENSOR, Kind.OPTIONAL)
        ]
        dims = max(map(len, tensors))
        padded = [(1,) * (dims - len(shape)) + shape for shape in tensors]
        return tuple(
            next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True)
        )

    def _sources(self, name: str, shape: Shape, out: Shape) -> list[int]:
        """Per element of the output, the element of this leaf that it comes from."""
        leaf = self.leaves[name]
        if leaf.kind is Kind.PER_CHANNEL and math.prod(shape) > 1:
            dim = leaf.parameter.dim % len(out)
            shape = (shape[0], *(1,) * (len(out) - 1 - dim))
        elif leaf.kind in (Kind.LEARNABLE, Kind.PER_CHANNEL):
            shape = ()
        padded = (1,) * (len(out) - len(shape)) + shape
        sources: list[int] = []
        for index in itertools.product(*map(range, out)):
            flat = 0
            for place, size in zip(index, padded, strict=True):
                flat = flat * size + (place if size > 1 else 0)
            sources.append(flat)
        return sources

    def _regular(self, point: dict[str, float]) -> bool:
        key = tuple(point.values())
        if key not in self.known:
            self.known[key] = self._smooth(point)
        return self.known[key]

    def _smooth(self, point: dict[str, float]) -> bool:
        """Whether derivatives are finite here and about the same a nudge away."""
        here = self._derivatives(point)
        if here is None:
            return False
        for sign in (1, -1):
            near = {
                name: value + sign * NUDGE * max(abs(value), 1.0) * (1 + k / 7)
                for k, (name, value) in enumerate(point.items())
            }
            there = self._derivatives(near)
            if there is None or any(
                abs(a - b) > 0.02 * (1 + abs(a)) for a, b in zip(here, there, strict=True)
            ):
                return False
        return True

    def _derivatives(self, point: Mapping[str, float]) -> list[float] | None:
        """All first derivatives, and the user's own gradients; None where one is not finite."""
        everything = {**self.numbers, **point}
        truth = self.oracle.evaluate(everything)
        if not truth.finite:
            return None
        outputs, jacobian = truth.floats()
        found = [entry for row in jacobian for entry in row]
        if self.oracle.variant.gradient is not None:
            own = self.oracle.vjp(everything, [1.0] * len(outputs))
            found += [float(entry) for entry in own if entry is not None]
        if any(not math.isfinite(entry) or abs(entry) > 1e4 for entry in (*outputs, *found)):
            return None
        return found
