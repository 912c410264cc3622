"""Results of benchmarks: data, the ratios that they are judged by, and their JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

FORMAT = 1

GENERATED, EAGER, NATIVE, COMPILE, LIMIT, BASELINE = (
    "generated", "eager", "native", "compile", "limit", "F.silu",
)  # fmt: skip
RIVALS = (EAGER, NATIVE, COMPILE)

Mode = Literal["forward", "backward", "forward+backward", "no_grad", "plain"]
"""What is timed.

forward: a call under torch.no_grad(), entered before. backward: torch.autograd.grad of a call
    that was made before. forward+backward: the call and torch.autograd.grad.
no_grad: entering torch.no_grad(), the call, and leaving. plain: a call with grad mode on and no
    tensor that requires a gradient. Both for small calls.
"""


@dataclass(frozen=True)
class Setting:
    """Where and on what: elements of the output, dtype, threads (CPU), device."""

    size: int
    dtype: str = "float32"
    threads: int = 1
    device: str = "cpu"

    @property
    def small(self) -> bool:
        """Whether the cost of the call itself is what is measured."""
        return self.size <= 4096

    def __str__(self) -> str:
        place = self.device
        if place == "cpu":
            place = f"{self.threads} thread{'s' * (self.threads > 1)}"
        return f"{power_of_two(self.size)} elements, {self.dtype}, {place}"


@dataclass(frozen=True)
class Time:
    """Seconds per call of one contender: the median over the rounds, and its quartiles.

    form: what the contender was: `as written`, `F.silu`, ... calls: calls per round.
    """

    contender: str
    form: str
    median: float
    low: float
    high: float
    rounds: int
    calls: int

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, in units of the median."""
        return (self.high - self.low) / (2 * self.median)


@dataclass(frozen=True)
class Result:
    """One formula in one setting and mode.

    moved: bytes that must move, in forward and backward or in the one that is timed.
    costly: whether an element costs a special function or a division.
    missing: contenders that were not measured, and why.
    """

    name: str
    setting: Setting
    mode: Mode
    shape: tuple[int, ...]
    moved: int
    costly: bool
    times: tuple[Time, ...]
    missing: tuple[tuple[str, str], ...] = ()

    def time(self, contender: str) -> Time | None:
        return next((time for time in self.times if time.contender == contender), None)

    @property
    def rival(self) -> Time | None:
        """The fastest of eager, native and compile."""
        times = [time for time in self.times if time.contender in RIVALS]
        return min(times, key=lambda time: time.median, default=None)

    @property
    def speedup(self) -> float | None:
        """The rival's time over the generated op's: over 1, the op is faster."""
        return _ratio(self.rival, self.time(GENERATED))

    @property
    def over_limit(self) -> float | None:
        """The generated op's time over that of copying the bytes that must move."""
        return _ratio(self.time(GENERATED), self.time(LIMIT))

    def over(self, contender: str) -> float | None:
        """The generated op's time over that of a contender."""
        return _ratio(self.time(GENERATED), self.time(contender))

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second of the generated op."""
        time = self.time(GENERATED)
        return None if time is None else self.moved / time.median


@dataclass(frozen=True)
class Saved:
    """Bytes per element of the output that autograd keeps between forward and backward.

    Storages count once, learnable parameters not at all.
    """

    name: str
    dtype: str
    bytes: tuple[tuple[str, float], ...]

    def of(self, contender: str) -> float | None:
        return dict(self.bytes).get(contender)


@dataclass(frozen=True)
class Report:
    """What a run measured, and on what machine."""

    environment: tuple[tuple[str, str], ...]
    results: tuple[Result, ...] = ()
    memory: tuple[Saved, ...] = ()

    def merged(self, other: Report) -> Report:
        """This report with the other's records in place of those that they repeat."""
        results = {(each.name, each.setting, each.mode): each for each in self.results}
        results.update(((each.name, each.setting, each.mode), each) for each in other.results)
        memory = {(each.name, each.dtype): each for each in (*self.memory, *other.memory)}
        return Report(other.environment, tuple(results.values()), tuple(memory.values()))


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return math.exp(sum(map(math.log, known)) / len(known)) if known else None


def power_of_two(size: int) -> str:
    """`2^20` where it is one beyond 4096, else the number."""
    return f"2^{size.bit_length() - 1}" if size > 4096 and size & (size - 1) == 0 else str(size)


def _ratio(above: Time | None, below: Time | None) -> float | None:
    return None if above is None or below is None else above.median / below.median


# --- JSON ------------------------------------------------------------------------------------


def to_json(report: Report) -> str:
    """The report as JSON; the ratios stand beside the times that they are made of."""
    content = {
        "format": FORMAT,
        "environment": dict(report.environment),
        "results": [_result_json(result) for result in report.results],
        "memory": [
            {"name": saved.name, "dtype": saved.dtype, "bytes_per_element": dict(saved.bytes)}
            for saved in report.memory
        ],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _result_json(result: Result) -> dict[str, Any]:
    rival = result.rival
    return {
        "name": result.name,
        **dataclasses.asdict(result.setting),
        "mode": result.mode,
        "shape": list(result.shape),
        "bytes_moved": result.moved,
        "costly": result.costly,
        "seconds": {
            time.contender: {
                key: value for key, value in dataclasses.asdict(time).items() if key != "contender"
            }
            for time in result.times
        },
        "rival": None if rival is None else rival.contender,
        "rival_over_generated": result.speedup,
        "generated_over_limit": result.over_limit,
        "missing": dict(result.missing),
    }


def from_json(text: str) -> Report:
    """The report that `to_json` wrote. Raises ValueError for another format."""
    content = json.loads(text)
    if content.get("format") != FORMAT:
        raise ValueError(f"format {content.get('format')}, not {FORMAT}")
    return Report(
        tuple(content["environment"].items()),
        tuple(_result(each) for each in content["results"]),
        tuple(
            Saved(each["name"], each["dtype"], tuple(each["bytes_per_element"].items()))
            for each in content["memory"]
        ),
    )


def _result(content: dict[str, Any]) -> Result:
    fields = [field.name for field in dataclasses.fields(Setting)]
    return Result(
        content["name"],
        Setting(**{name: content[name] for name in fields}),
        content["mode"],
        tuple(content["shape"]),
        content["bytes_moved"],
        content["costly"],
        tuple(Time(contender, **time) for contender, time in content["seconds"].items()),
        tuple(content["missing"].items()),
    )


def write(path: str | os.PathLike[str], text: str) -> None:
    """The file as a whole or not at all: a run of hours may end at any moment."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def by_setting(results: Sequence[Result]) -> dict[tuple[Setting, Mode], list[Result]]:
    """The results of each setting and mode, in the order in which they were measured."""
    groups: dict[tuple[Setting, Mode], list[Result]] = {}
    for result in results:
        groups.setdefault((result.setting, result.mode), []).append(result)
    return groups
