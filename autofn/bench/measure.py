"""Timing: all contenders in turn, in one loop, so that what disturbs one disturbs all."""

from __future__ import annotations

import ctypes
import math
import random
import statistics
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

Sample = Callable[[int], float]
"""From a number of calls to the seconds that they took together."""

SAMPLE = 3e-3
"""Seconds that one sample lasts at least: many calls where a call is short.

Long enough for several copies of 2^20 elements: the first find the caches full of other data.
"""

ROUNDS = (9, 201)
"""The fewest and the most rounds."""


@dataclass(frozen=True)
class Statement:
    """Python to be timed, what runs untimed before it, and the names that both see."""

    text: str
    setup: str
    names: Mapping[str, Any]
    repeatable: bool = True
    """Whether it may run several times after one setup; a backward pass frees its graph."""


def keep_freed_memory() -> bool:
    """Let this process keep what it frees, for good; whether the C library lets it.

    glibc returns large blocks to the system or not as the heap happens to lie, and getting them
    back costs a page fault for every 4 KiB, many times what the op itself takes. Kept, each
    contender finds warm memory, as in an allocator with a cache, and as the copies of the limit.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    # From malloc.h: no block by mmap, and none given back from the heap's end.
    no_mmap, no_trim = (-4, 0), (-1, 2**31 - 1)
    return all([mallopt(*no_mmap), mallopt(*no_trim)])


class Clock(Protocol):
    """How a device's time is taken."""

    def sample(self, statement: Statement) -> Sample: ...


class CpuClock:
    """Wall time. The garbage collector waits, as timeit lets it.

    Each sample begins with a call that is not timed: what is in the caches is the contender's own.
    elements: of each result, which then lies elsewhere in each sample.
    """

    def __init__(self, elements: int = 0) -> None:
        self.elements = elements

    def sample(self, statement: Statement) -> Sample:
        setup = f"_held = _ballast()\n{statement.setup}"
        if statement.repeatable:
            setup = f"{setup}\n{statement.text}"
        names = {**statement.names, "_ballast": lambda: ballast(self.elements)}
        return timeit.Timer(statement.text, setup, globals=names).timeit


CHANCE = random.Random(0)


def ballast(elements: int) -> list[torch.Tensor]:
    """Blocks that take the place of results, so that these lie elsewhere; none for small ones.

    A loop takes up to three times as long where what it stores and what it loads next are the same
    modulo 4096, which the heap decides once for all of a contender's calls.
    """
    if elements < PAGES:
        return []
    return [torch.empty(elements + 16 * CHANCE.randrange(64)) for _ in range(2)]


PAGES = 1 << 16
"""Elements from which on results take many pages."""


class CudaClock:
    """Time between events on the device, its L2 cache cold; of small calls the wall time.

    A call's kernels are queued while the device is kept busy, so that what Python takes to launch
    them is not in the figure.
    """

    COLD = 1 << 28
    """Bytes that are overwritten before each sample: several times any L2 cache."""

    BUSY = 1_000_000
    """Cycles, about half a millisecond, that the device idles through before each sample."""

    def __init__(self, device: str, *, small: bool) -> None:
        self.small = small
        self.device = torch.device(device)
        self.waste = torch.empty(0 if small else self.COLD, dtype=torch.int8, device=self.device)

    def sample(self, statement: Statement) -> Sample:
        if self.small:
            return timeit.Timer(
                statement.text, statement.setup, timer=self._wall, globals=dict(statement.names)
            ).timeit
        names = {**statement.names, "_cold": self._cold}
        setup = f"{statement.setup}\n_cold()"
        timer = timeit.Timer(statement.text, setup, timer=_Mark, globals=names)  # type: ignore[arg-type]
        return timer.timeit

    def _wall(self) -> float:
        torch.cuda.synchronize(self.device)
        return timeit.default_timer()

    def _cold(self) -> None:
        self.waste.zero_()
        torch.cuda._sleep(self.BUSY)  # type: ignore[no-untyped-call]


class _Mark:
    """A point in the device's time: timeit subtracts two of them."""

    def __init__(self) -> None:
        self.event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self.event.record()

    def __sub__(self, earlier: _Mark) -> float:
        self.event.synchronize()
        return float(earlier.event.elapsed_time(self.event)) / 1e3


@dataclass(frozen=True)
class Series:
    """Seconds per call, one for each round; `calls` were made in each."""

    seconds: tuple[float, ...]
    calls: int

    @property
    def quartiles(self) -> tuple[float, float, float]:
        low, median, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return low, median, high


def quick_look(sample: Sample) -> float:
    """Seconds of a call, roughly: the best of three, after one that warms up."""
    sample(1)
    return min(sample(1) for _ in range(3))


def interleaved(
    samples: Mapping[str, Sample],
    looks: Mapping[str, float],
    budget: float,
    single: Sequence[str] = (),
) -> dict[str, Series]:
    """Every contender once a round, in an order that changes from round to round.

    looks: seconds of a call, roughly. budget: seconds for all rounds, exceeded where the fewest
    rounds take longer. single: contenders that are called once in a sample, however short.
    """
    names = list(samples)
    calls = {
        name: 1 if name in single else max(1, math.ceil(SAMPLE / max(looks[name], 1e-9)))
        for name in names
    }
    # One more for the call that warms up.
    total = sum(looks[name] * (calls[name] + 1) for name in names)
    fewest, most = ROUNDS
    rounds = max(fewest, min(most, int(budget / max(total, 1e-9))))
    seconds: dict[str, list[float]] = {name: [] for name in names}
    order, chance = list(names), random.Random(0)
    for _ in range(rounds):
        # Should it matter whom a contender follows, it is not always the same one.
        chance.shuffle(order)
        for name in order:
            seconds[name].append(samples[name](calls[name]) / calls[name])
    return {name: Series(tuple(seconds[name]), calls[name]) for name in names}
