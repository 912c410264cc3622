"""The choice among candidate programs: the cheapest within the error budget.

It is a function of the candidates alone: costs come from the operation table, errors from simulated
float32 arithmetic, and ties go to fewer operations, then to the earlier candidate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import get_args

import numpy as np

from autofn.ops import DOUBLE_DOUBLE, OPS, quick_double, quick_ulp
from autofn.program import Arithmetic, Node, Program
from autofn.rewrite.closer import Closer
from autofn.rewrite.formats import DOUBLE, Format
from autofn.rewrite.judge import (
    HOPELESS,
    Error,
    Sample,
    error,
    hides_nan,
    is_in_doubt,
    is_within,
    not_finite,
)
from autofn.rewrite.simulate import STEPWISE, in_single

BARS: Mapping[str, float] = {"forward": 4.0, "backward": 8.0, "double_backward": 64.0}
"""ULP, beyond which exactness is worth a regime of its own."""

BUDGET = 0.75
"""Of a bar, how wrong a candidate may be to be looked at no further: a sample is no proof."""

IN_DOUBLE = 1 / 7
"""What becomes of the budget of second derivatives: exponentials lose as many units as their
argument is large, and float64's are seven times as large as float32's."""

WIDE_BAR = 8.0
"""ULP of float64: of values and gradients. Second derivatives have those of float32."""

BETTER = 2.0
"""How many times less wrong a program of float64's own is to be."""

WIDE, IN_WIDE = 12, 1500
"""How many candidates are tried in float64, and how many operations they have in all; one, if it
has more."""

FIRST = ("forward", "backward")
"""The passes to which a formula's own bar applies."""

NEARLY = 0.9
"""Of a bar, from where on exactness is worth regimes: no sample has the worst."""

WORTH = 1.45
"""By how much a bar is to be missed for exactness to be worth double precision, where there are
functions: by the mean of what the simulation finds with functions as wrong as they may be, where
that adds up, and with such as are only rounded. What a million points show is about that mean."""

OPTIMISM = 0.85
"""The same without functions: what is computed is simulated, but a sample has not the worst."""

PESSIMISM = 1.5
"""The same where there is no second look: it has not looked that closely."""

SAVES_IN_DOUBLE = 0.7
"""What double precision may cost, of what is exact enough in single precision. 16-bit types, which
do without it, save more."""

DOUBLED = 4
"""How many candidates are tried all in double, or in double-double numbers; of long ones fewer."""

RESCUED = 500
"""How many operations candidates have in all that are tried again in double; one, if it has more.
They take several times as long."""

ORDINARY, SELDOM = (0.01, 12.0), 0.15
"""What numbers are like, most of the time, and of how many of them a result may be 0."""

SAVES = 0.88
"""What a first try may cost, of what it is tried before."""

CLEARLY = 0.65
"""Of a bar, how wrong it may be, or as wrong as what it is tried before."""

MODERATE, MOSTLY = (0.01, 5.0), 0.95
"""Numbers of which a first try is to give results, and of how many."""

SPARE = 0.01
"""Of a unit of a 16-bit type: how wrong a result may be before it is rounded to one."""


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
    """The candidates of one pass; `chosen` is the index of the one that is computed.

    first_try: the name of the program that CPUs try first, if there is one.
    fails_as_derived: what PyTorch's operations need double precision for. in_pytorch: what they
    compute, where what is derived has no digits in double precision either.
    """

    pass_name: str
    budget: float
    candidates: tuple[Measured, ...]
    chosen: int
    first_try: str = ""
    fails_as_derived: bool = False
    in_pytorch: Program | None = None


def choose(
    pass_name: str,
    candidates: Sequence[Candidate],
    sample: Sample,
    more: Iterable[Sequence[Candidate]] = (),
    *,
    allowed: float | None = None,
    wide: Sample | None = None,
    closer: Closer | None = None,
) -> tuple[Program, Decision]:
    """The cheapest candidate within the pass's budget; if there is none, the most exact.

    Where none clearly meets the bar, those of `more` are looked at, then some in other arithmetic.
    allowed: ULP, the formula's own bar. wide: a sample of float64's numbers. closer: a second look
    at those that the sample finds best.
    """
    bar = allowed if allowed is not None and pass_name in FIRST else BARS[pass_name]
    budget = _budget(pass_name, bar)
    candidates = _with_nan(candidates, sample)
    tried = _Tried(candidates, sample, budget, bar, closer)
    tried.until_within(range(len(candidates)))
    if tried.misses(NEARLY * bar):
        for batch in more:
            cheaper: Sequence[int] = tried.extend(_with_nan(batch, sample))
            if not tried.misses(NEARLY * bar):
                cheaper = [k for k in cheaper if tried.cost(k) < tried.cost(tried.ranked()[0])]
            tried.until_within(cheaper)
    singles = tried.ranked()
    if tried.misses(bar):
        few = singles[: _many(RESCUED, RESCUED, tried.candidates[singles[0]].program)]
        rescued = [tried.add(k, "rescued", "again in double") for k in few]
        tried.until_within(rescued)
        if tried.misses(bar) and not _is_often_zero(sample):
            wary = [tried.add(k, "wary", "zeros, too, again in double") for k in few]
            tried.until_within(wary)
    doubtful = any(_is_function(node.op) for node in tried.candidates[singles[0]].program.nodes)
    worth = bar * (OPTIMISM if not doubtful else WORTH if closer else PESSIMISM)
    if tried.misses(worth) and tried.likely() > worth:
        # The least wrong in single precision: float64 is computed by them too.
        best = next(k for k in singles if k < len(candidates))
        alike = [k for k in range(len(candidates)) if tried.is_nearly(k, best)]
        doubled = _many(DOUBLED, RESCUED, tried.candidates[best].program)
        cheapest = sorted(alike, key=tried.cost)[:doubled]
        quick = [k for k in cheapest if _has_quick_double(tried.candidates[k].program)]
        tried.until_within([tried.add(k, "quick double", "quickly in double") for k in quick])
        if tried.misses(min(bar, worth)):
            tried.until_within([tried.add(k, "double", "in double") for k in cheapest])
        if tried.misses(min(bar, worth)):
            regimes = [k for k in singles if k >= len(candidates)][:doubled]
            tried.until_within([tried.add(k, "double", "in double") for k in regimes])
    if not tried.misses(bar):
        # What makes up for roundings in single precision may cost more than having none.
        most = SAVES_IN_DOUBLE * tried.cost(tried.first())[0]
        shorter = [k for k in range(len(candidates)) if tried.cost_in("double", k) < most]
        few = sorted(shorter, key=tried.cost)[:DOUBLED]
        tried.until_within([tried.add(k, "double", "in double") for k in few])
    chosen = tried.first()
    measured = tuple(
        Measured(each.name, each.program.operations, each.program.cost, tried.errors.get(k))
        for k, each in enumerate(tried.candidates)
    )
    decision = Decision(pass_name, budget, measured, chosen)
    program = tried.candidates[chosen].program
    if wide is not None:
        program = _with_wide(pass_name, program, tried.candidates, wide)
    return program, decision


def _with_nan(candidates: Sequence[Candidate], sample: Sample) -> Sequence[Candidate]:
    """Those in whose results a tensor that is NaN shows, if there are any."""
    return [each for each in candidates if not hides_nan(each.program, sample)] or candidates


def _with_wide(
    pass_name: str, chosen: Program, candidates: Sequence[Candidate], sample: Sample
) -> Program:
    """The program, with another one for float64 where it is too wrong for that.

    In double-double numbers only where none in double does: they take ten times as long.
    """
    bar = WIDE_BAR if pass_name in FIRST else BARS[pass_name]
    program, found = chosen, error(chosen, sample, form=DOUBLE)
    if not found.bad and found.ulp <= bar:
        return chosen
    others = dict.fromkeys(replace(each.program, arithmetic="single") for each in candidates)
    others.pop(replace(chosen, arithmetic="single"), None)
    program, found = _less_wrong(chosen, found, _in_64_bits("single", others), sample, bar)
    mild = error(program, sample, form=DOUBLE, mild=True)
    if found.bad or (found.ulp + mild.ulp) / 2 > bar:
        tried = _in_64_bits("double-double", [chosen, *others])
        program, _ = _less_wrong(program, found, tried, sample, bar)
    return chosen if program is chosen else replace(chosen, wide=program)


def with_first_try(
    pass_name: str,
    program: Program,
    candidates: Iterable[Candidate],
    sample: Sample,
    ladder: Callable[[], Sample],
    *,
    allowed: float | None = None,
    closer: Closer | None = None,
) -> tuple[Program, str]:
    """The program with another one that is tried first, and the name of that; "" if there is none.

    The cheapest that is as exact wherever it is finite, if that is most ordinary numbers and saves
    enough, in double where the program is. Not of programs in two arithmetics, which have a first
    try. ladder: a second sample, made where there is a candidate.
    """
    if program.arithmetic == "single":
        tries = list(candidates)
    elif program.is_in_double:
        tries = [
            replace(each, program=replace(each.program, arithmetic="quick double"))
            for each in candidates
        ]
    else:
        return program, ""
    bar = allowed if allowed is not None and pass_name in FIRST else BARS[pass_name]

    steps = cache(ladder)

    def found(each: Program) -> Error:
        looks = [error(each, sample), error(each, steps())]
        looks += [closer.error(each)] if closer else []
        return max(looks, key=lambda of: (of.bad, of.ulp))

    most: Error | None = None
    for each in sorted(tries, key=lambda each: (each.program.cost, each.program.operations)):
        if each.program.cost > SAVES * program.cost:
            break
        if not _is_mostly_finite(each.program, sample):
            continue
        most = most or found(program)
        tried = replace(program, first=each.program)
        of = found(tried)
        clearly = CLEARLY * bar if pass_name in FIRST else _budget(pass_name, bar)
        allowance = max(clearly, min(most.ulp, NEARLY * bar))
        if of.bad <= most.bad and of.ulp <= allowance:
            return tried, each.name
    return program, ""


def _is_mostly_finite(program: Program, sample: Sample) -> bool:
    moderate = [
        k
        for k, point in enumerate(sample.points)
        if all(v in (0, 1) or MODERATE[0] < abs(v) < MODERATE[1] for v in point.values())
    ]
    if not moderate:
        return False
    found = in_single(program, sample.columns.at(moderate))
    return all(float(np.isfinite(v).mean()) >= MOSTLY for v in found if v is not None)


def _less_wrong(
    program: Program, found: Error, others: Iterable[Program], sample: Sample, bar: float
) -> tuple[Program, Error]:
    """The program of these, or the one before them, that is clearly the least wrong in float64."""
    for other in others:
        now = error(other, sample, best=found, form=DOUBLE)
        less_wrong = now.bad == found.bad and bar < found.ulp > BETTER * now.ulp
        if now.whole and (now.bad < found.bad or less_wrong):
            program, found = other, now
            if not found.bad and found.ulp <= BUDGET * bar:
                break
    return program, found


def _in_64_bits(arithmetic: Arithmetic, programs: Iterable[Program]) -> list[Program]:
    """The cheapest that float64 may be computed by."""
    able = list(programs)
    if arithmetic == "double-double":
        able = [each for each in able if all(map(_is_in_double_double, each.nodes))]
    able.sort(key=lambda each: (each.cost, each.operations))
    limits = (WIDE, IN_WIDE) if arithmetic == "single" else (DOUBLED, RESCUED)
    kept = able[: _many(*limits, able[0])] if able else []
    return [replace(each, arithmetic=arithmetic, wide=None) for each in kept]


def _many(most: int, in_all: int, program: Program) -> int:
    """How many programs of that length are tried."""
    return max(1, min(most, in_all // max(1, program.operations)))


def _is_in_double_double(node: Node) -> bool:
    return node.op in DOUBLE_DOUBLE or node.op in ("input", "constant")


def for_16_bits(
    pass_name: str,
    program: Program,
    samples: Iterable[tuple[Format, Sample]],
) -> Program:
    """The program with the cheapest arithmetic that does for elements of 16-bit types.

    samples: of numbers of these types; not asked for where nothing is cheaper.

    A parameter's gradient may be float32, but it sums terms of numbers that are rounded to 16 bits:
    a hundredth of their last digit does not show in it.
    """
    ladder: tuple[Arithmetic, ...] = get_args(Arithmetic)
    cheaper = list(ladder[: ladder.index(program.arithmetic)])
    if pass_name not in FIRST or not any(quick_ulp(node.op, 1) for node in program.nodes):
        cheaper = [each for each in cheaper if each != "quick"]
    if not _has_quick_double(program):
        cheaper = [each for each in cheaper if each != "quick double"]
    kept = list(samples) if cheaper else []
    if any(_is_often_zero(sample) for _, sample in kept):
        cheaper = [each for each in cheaper if each != "wary"]
    for arithmetic in cheaper:
        tried = replace(program, arithmetic=arithmetic)
        if all(
            is_within(
                tried,
                sample,
                [(form, PESSIMISM * SPARE)] * len(program.outputs),
            )
            for form, sample in kept
        ):
            return replace(program, arithmetic16=arithmetic)
    return replace(program, arithmetic16=program.arithmetic)


def fails_in_single(program: Program, sample: Sample) -> bool:
    """Whether a result is not finite, or without digits, that double precision has.

    Those so small that their parts may be subnormal need no digits.
    """
    digits = tuple(
        tuple(None if t is None or is_in_doubt(t) else t for t in truths)
        for truths in sample.truths
    )
    judged = replace(sample, truths=digits)
    single, double = (replace(program, arithmetic=each) for each in ("single", "double"))
    lost = error(single, judged).bad
    if lost > 0 and lost > error(double, judged).bad:
        return True
    return _overflows(program, sample)


def rescued(program: Program, ordinary: Sample, beyond: Sample) -> Program | None:
    """The program, tried again in double where its results are not finite or tiny, if that mends.

    For what is too seldom to be judged by. None of what has a first try already.
    """
    if program.arithmetic != "single" or program.first is not None:
        return None
    found, least = None, error(program, beyond)
    ways: list[Arithmetic] = ["rescued"] if _is_often_zero(ordinary) else ["rescued", "wary"]
    for arithmetic in ways if least.bad else ():
        tried = replace(program, arithmetic=arithmetic)
        if (left := error(tried, beyond)).bad < least.bad:
            found, least = tried, left
    return found


def _overflows(program: Program, sample: Sample) -> bool:
    """Whether a result is not finite in single precision, and is in double."""
    single, double = (replace(program, arithmetic=each) for each in ("single", "double"))
    infinite = not_finite(single, sample)
    return infinite > 0 and infinite > not_finite(double, sample)


def mended(program: Program, forms: Iterable[Program], sample: Sample) -> Program | None:
    """The form with the fewest results that have no digits in double; None if the program has."""

    def bad(each: Program, best: Error | None = None) -> Error:
        return error(replace(each, arithmetic="double"), sample, best=best)

    found, least = None, bad(program)
    for form in forms if least.bad else ():
        tried = bad(form, least)
        if tried.bad < least.bad and tried.whole:
            found, least = form, tried
            if not least.bad:
                break
    return found


def _budget(pass_name: str, bar: float) -> float:
    """ULP: what a candidate that is looked at no further may be off by."""
    return BUDGET * bar * (1 if pass_name in FIRST else IN_DOUBLE)


def _is_function(op: str) -> bool:
    """Whether the simulation lets an operation be as wrong as it may be."""
    return op in OPS and OPS[op].ulp > 0.5 and op not in STEPWISE


def _is_often_zero(sample: Sample) -> bool:
    """Whether results are 0 at ordinary numbers: they are not to be doubted then."""
    ordinary = [
        any(truth is not None and truth == 0 for truth in truths)
        for point, truths in zip(sample.points, sample.truths, strict=True)
        if all(v in (0, 1) or ORDINARY[0] < abs(v) < ORDINARY[1] for v in point.values())
    ]
    return sum(ordinary) > SELDOM * len(ordinary)


def _has_quick_double(program: Program) -> bool:
    """Whether functions have a quick way in double."""
    return any(quick_double(node.op) for node in program.nodes)


def unsearched(pass_name: str, program: Program) -> Decision:
    """The decision for a program without a look at others."""
    only = Measured("as derived", program.operations, program.cost, None)
    return Decision(pass_name, _budget(pass_name, BARS[pass_name]), (only,), 0)


class _Tried:
    """Candidates by number, and the errors of those that were measured."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        sample: Sample,
        budget: float,
        bar: float,
        closer: Closer | None,
    ):
        self.candidates = list(candidates)
        self._closer = closer
        self._confirmed: set[int] = set()
        self.errors: dict[int, Error] = {}
        self._sample = sample
        self._order = list(range(len(sample.points)))
        self._budget = budget
        self._bar = bar

    def first(self) -> int:
        """The best, which has been looked at twice, unless once shows enough."""
        while not self._is_confirmed(number := self.ranked()[0]):
            pass
        return number

    @property
    def best(self) -> Error:
        return self.errors[self.first()]

    def _is_confirmed(self, number: int) -> bool:
        """Whether a second look finds no more than the first did; what it finds is kept."""
        first, program = self.errors[number], self.candidates[number].program
        hopeless = first.bad or first.ulp > HOPELESS * self._bar
        if self._closer is None or number in self._confirmed or hopeless:
            return True
        self._confirmed.add(number)
        second = self._closer.error(program)
        worse = (second.bad, second.ulp) > (first.bad, first.ulp)
        if worse:
            # Of the second sample: no number of the first.
            self.errors[number] = replace(second, number=first.number)
        return not worse

    def misses(self, bar: float) -> bool:
        return bool(self.best.bad) or self.best.ulp > bar

    def likely(self) -> float:
        """The error that the best may be seen to have: functions are not all as bad as they may."""
        number = self.first()
        best, program = self.errors[number], self.candidates[number].program
        if best.bad or self._closer is None:
            return float("inf") if best.bad else best.ulp
        first = error(program, self._sample, mild=True)
        mild = max(first.ulp, self._closer.error(program, mild=True).ulp)
        return (best.ulp + mild) / 2

    def is_nearly(self, number: int, best: int) -> bool:
        """Whether a candidate is measured, and hardly worse than another."""
        found, other = self.errors.get(number), self.errors[best]
        return found is not None and found.bad == other.bad and found.ulp <= HOPELESS * other.ulp

    def extend(self, candidates: Sequence[Candidate]) -> range:
        """The numbers of further candidates."""
        self.candidates += candidates
        return range(len(self.candidates) - len(candidates), len(self.candidates))

    def add(self, number: int, arithmetic: Arithmetic, name: str) -> int:
        """The number of a candidate in another arithmetic."""
        old = self.candidates[number]
        program = replace(old.program, arithmetic=arithmetic)
        self.candidates.append(Candidate(f"{old.name}, {name}", program))
        return len(self.candidates) - 1

    def until_within(self, numbers: Sequence[int]) -> None:
        """Measures the cheapest first, up to one within the budget."""
        for number in sorted(numbers, key=self.cost):
            program = self.candidates[number].program
            best = self.best if self.errors else None
            found = self.errors[number] = error(program, self._sample, self._order, best)
            if found.number is not None:
                # Where one fails others do: looked at first from now on.
                self._order.remove(found.number)
                self._order.insert(0, found.number)
            if self._is_within(number) and (self._is_confirmed(number) or self._is_within(number)):
                break

    def _is_within(self, number: int) -> bool:
        found = self.errors[number]
        return not found.bad and found.ulp <= self._budget

    def ranked(self) -> list[int]:
        """The best first, among those that were measured."""
        return sorted(self.errors, key=self._rank)

    def cost(self, number: int) -> tuple[float, int, int]:
        program = self.candidates[number].program
        return program.cost, program.operations, number

    def cost_in(self, arithmetic: Arithmetic, number: int) -> float:
        return replace(self.candidates[number].program, arithmetic=arithmetic).cost

    def _rank(self, number: int) -> tuple[float, ...]:
        found = self.errors[number]
        within = found.ulp <= self._budget
        step, many = CLOSE if found.ulp > self._bar else STEP, 0.0
        if found.bad:
            # The worst of those points that are not bad yet says little: it is next to such.
            step, many = NEXT, found.many if found.whole else math.inf
        lacks = 0 if within else _steps(found.ulp / self._budget, step)
        return found.bad, found.ulp > self._bar, lacks, many, *self.cost(number)


STEP, CLOSE, NEXT = 1.25, 1.05, 16.0
"""Errors within this factor of each other are one: a sample does not tell them apart. Beyond the
bar, the second; beside what is bad, the third."""


def _steps(ratio: float, step: float) -> int:
    count, reached = 1, step
    while reached < ratio:
        count, reached = count + 1, reached * step
    return count
