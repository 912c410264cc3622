"""The choice among candidate programs: the cheapest within the error budget.

It is a function of the candidates alone: costs come from the operation table, errors from simulated
float32 arithmetic, and ties go to fewer operations, then to the earlier candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autofn.program import Program
from autofn.rewrite.simulate import Error, Sample, error

BUDGETS: Mapping[str, float] = {"forward": 3.0, "backward": 6.0, "double_backward": 32.0}
"""ULP, in the simulation. It sees few points: the bars of the certificate are 4, 8 and 64."""


@dataclass(frozen=True)
class Candidate:
    """A program, and which forms made it."""

    name: str
    program: Program


@dataclass(frozen=True)
class Measured:
    """What a candidate costs, in additions, and how wrong it is.

    error: None if it was not measured, as a cheaper candidate is exact enough.
    """

    name: str
    operations: int
    cost: float
    error: Error | None


@dataclass(frozen=True)
class Decision:
    """The candidates of one pass; `chosen` is the index of the one that is computed."""

    pass_name: str
    budget: float
    candidates: tuple[Measured, ...]
    chosen: int


def choose(
    pass_name: str, candidates: Sequence[Candidate], sample: Sample
) -> tuple[Program, Decision]:
    """The cheapest candidate within the pass's budget; if there is none, the most exact."""
    budget = BUDGETS[pass_name]
    costs = [(each.program.cost, each.program.operations, k) for k, each in enumerate(candidates)]
    errors: dict[int, Error] = {}
    for *_, k in sorted(costs):
        errors[k] = error(candidates[k].program, sample)
        if not errors[k].bad and errors[k].ulp <= budget:
            break
    fewest = min(each.bad for each in errors.values())

    def rank(k: int) -> tuple[float, ...]:
        within = errors[k].ulp <= budget
        lacks = 0 if within else _steps(errors[k].ulp / budget)
        return errors[k].bad - fewest, lacks, *costs[k]

    chosen = min(errors, key=rank)
    measured = tuple(
        Measured(each.name, each.program.operations, each.program.cost, errors.get(k))
        for k, each in enumerate(candidates)
    )
    return candidates[chosen].program, Decision(pass_name, budget, measured, chosen)


STEP = 1.25
"""Errors within this factor of each other are one: a sample does not tell them apart."""


def _steps(ratio: float) -> int:
    count, reached = 1, STEP
    while reached < ratio:
        count, reached = count + 1, reached * STEP
    return count
