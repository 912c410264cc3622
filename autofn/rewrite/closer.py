"""A second look at candidates that the sample finds best, which is no proof.

At more ordinary points, beside the borders between a program's regimes, and around what has turned
out to be the worst: rounding errors add up at one point, and cancel beside it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from autofn.program import Output, Program, operation, pruned
from autofn.rewrite.judge import Error, Sample, error, worst
from autofn.rewrite.sample import around, beside_borders, closer
from autofn.rewrite.truth import Point, exact

WORST = 4
"""So many points of each kind are looked around at."""


class Closer:
    """The samples of a pass. judged: points with the truths there."""

    def __init__(
        self,
        given: Sequence[Point],
        tensors: Sequence[str],
        judged: Callable[[Sequence[Point]], Sample],
    ) -> None:
        self._given, self._tensors, self._judged = given, tensors, judged

    def error(self, program: Program, *, mild: bool = False) -> Error:
        """The largest error that is found; mild: of functions that are only rounded."""
        samples = [self._more, self._judged(self._beside_borders(program))]
        looks = [worst(program, each, WORST, mild=mild) for each in samples]
        bad = [point for _, points in looks for point in points]
        beside = self._judged(around(bad, self._tensors))
        found = [*(each for each, _ in looks), error(program, beside, mild=mild)]
        return max(found, key=lambda each: (each.bad, each.ulp))

    @functools.cached_property
    def _more(self) -> Sample:
        return self._judged(closer(self._given, self._tensors))

    def _beside_borders(self, program: Program) -> list[Point]:
        pairs = [node.args for node in program.nodes if node.op in ("lt", "le", "gt", "ge")]
        borders = [functools.partial(_first, _apart(program, pair)) for pair in pairs]
        return beside_borders(self._given, self._tensors, borders)


def _apart(program: Program, pair: tuple[int, ...]) -> Program:
    """The difference of two values of a program."""
    nodes = list(program.nodes)
    nodes.append(operation(nodes, "sub", pair))
    return pruned(program.inputs, nodes, [Output("difference", len(program.nodes))])


def _first(program: Program, point: Point) -> Any:
    return exact(program, point)[0]
