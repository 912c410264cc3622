"""The bars that the compiled kernels are held to, and who misses them; pure functions.

A bar is judged over the formulas that a report has: of the whole library, or of those measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from autofn.bench.records import (
    BASELINE,
    COMPILE,
    GENERATED,
    LIMIT,
    NATIVE,
    Mode,
    Report,
    Result,
    Setting,
    geometric_mean,
)

BOTH: Mode = "forward+backward"

PARAMETRISED = ("prelu", "dyt", "snake_beta")
"""Memory-bound kernels with parameter gradients."""


@dataclass(frozen=True)
class Bar:
    """A bar as text, what was measured, and the formulas that miss it (with their figures)."""

    text: str
    measured: str
    met: bool
    misses: tuple[str, ...] = ()


def chosen(report: Report, setting: Setting, mode: Mode) -> list[Result]:
    return [each for each in report.results if (each.setting, each.mode) == (setting, mode)]


def mean_bar(
    text: str,
    results: Sequence[Result],
    figure: Callable[[Result], float | None],
    *,
    least: float | None = None,
    most: float | None = None,
) -> list[Bar]:
    """A geometric mean over the formulas with a special function or a division."""
    mean = geometric_mean(figure(result) for result in results if result.costly)
    return [] if mean is None else [Bar(text, f"{mean:.2f}", _within(mean, least, most))]


def each_bar(
    text: str,
    results: Sequence[Result],
    figure: Callable[[Result], float | None],
    *,
    least: float | None = None,
    most: float | None = None,
    shown: str = "{:.2f}",
) -> list[Bar]:
    """A bar for each formula; what is measured is the worst of them."""
    known = [(value, result.name) for result in results if (value := figure(result)) is not None]
    if not known:
        return []
    worst = min(known) if least is not None else max(known)
    known.sort(reverse=least is None)
    misses = [f"{n} {shown.format(v)}" for v, n in known if not _within(v, least, most)]
    return [Bar(text, f"{shown.format(worst[0])} ({worst[1]})", not misses, tuple(misses))]


def _within(value: float, least: float | None, most: float | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)


def speedup(result: Result) -> float | None:
    return result.speedup


def over_limit(result: Result) -> float | None:
    return result.over_limit


def over_silu(result: Result) -> float | None:
    return result.over(BASELINE)


def micros_over_silu(result: Result) -> float | None:
    mine, silu = result.time(GENERATED), result.time(BASELINE)
    return None if mine is None or silu is None else 1e6 * (mine.median - silu.median)


def of_copy(result: Result) -> float | None:
    """The op's bytes per second over those of copying."""
    mine, limit = result.time(GENERATED), result.time(LIMIT)
    return None if mine is None or limit is None else limit.median / mine.median


def over_fused(result: Result) -> float | None:
    """The time of native or Inductor, the faster of them, over the op's."""
    mine = result.time(GENERATED)
    times = [time.median for time in result.times if time.contender in (NATIVE, COMPILE)]
    return None if mine is None or not times else min(times) / mine.median


def cpu_bars(report: Report) -> list[Bar]:
    """The bars of the CPU."""
    base = chosen(report, Setting(1 << 20), BOTH)
    narrow = chosen(report, Setting(1 << 20, "bfloat16"), BOTH)
    threads = chosen(report, Setting(1 << 20, threads=2), BOTH)
    large = chosen(report, Setting(1 << 24), BOTH)
    small = {mode: chosen(report, Setting(64), mode) for mode in ("no_grad", "plain", BOTH)}
    parametrised = [result for result in base if result.name in PARAMETRISED]
    where = "float32, 2^20, one thread"
    return [
        *each_bar(f"{where}: each at least 0.95 of the rival's speed", base, speedup, least=0.95),
        *mean_bar(
            f"{where}: costly formulas, geometric mean at least 2.5 times the rival",
            base, speedup, least=2.5,
        ),
        *mean_bar(
            f"{where}: costly formulas, geometric mean within 2.5 times the limit",
            base, over_limit, most=2.5,
        ),
        *each_bar(
            f"{where}: costly formulas, none over 5 times the limit",
            [result for result in base if result.costly], over_limit, most=5,
        ),
        *mean_bar(
            "bfloat16, 2^20, one thread: costly formulas, geometric mean at least twice the rival",
            narrow, speedup, least=2,
        ),
        *mean_bar(
            "float32, 2^20, two threads: costly formulas, geometric mean at least twice the rival",
            threads, speedup, least=2,
        ),
        *each_bar(
            "float32, 2^24, one thread: each at least 0.95 of the rival's speed",
            large, speedup, least=0.95,
        ),
        *each_bar(
            f"{where}: PReLU, DyT and SnakeBeta at least 2 times the rival",
            parametrised, speedup, least=2,
        ),
        *each_bar(
            "64 elements, torch.no_grad() included: at most 1.6 times F.silu",
            small["no_grad"], over_silu, most=1.6,
        ),
        *each_bar(
            "64 elements, no gradients asked for: at most 1.5 us more than F.silu",
            small["plain"], micros_over_silu, most=1.5, shown="{:+.2f} us",
        ),
        *each_bar(
            "64 elements, forward+backward: at most 1.5 times F.silu",
            small[BOTH], over_silu, most=1.5,
        ),
    ]  # fmt: skip


def gpu_bars(report: Report, parametrised: Iterable[str]) -> list[Bar]:
    """The bars of a GPU; `parametrised` are the formulas with parameter gradients."""
    with_parameters = set(parametrised)
    bars: list[Bar] = []
    for dtype in ("bfloat16", "float32"):
        setting = Setting(1 << 26, dtype, device="cuda")
        passes: tuple[Mode, ...] = ("forward", "backward")
        for mode in passes:
            results = chosen(report, setting, mode)
            plain = [each for each in results if each.name not in with_parameters]
            reduced = [each for each in results if each.name in with_parameters]
            where = f"{dtype}, 2^26, {mode}"
            bars += each_bar(
                f"{where}: at least 90 % of the copy bandwidth", plain, of_copy, least=0.9
            )
            # Forward has no parameter gradients: the same bar as for the others.
            least = 0.7 if mode == "backward" else 0.9
            bars += each_bar(
                f"{where}, with parameters: at least {100 * least:.0f} % of the copy bandwidth",
                reduced, of_copy, least=least,
            )  # fmt: skip
            bars += each_bar(
                f"{where}: never slower than native or Inductor", results, over_fused, least=1
            )
    return bars


def bars_table(bars: Sequence[Bar]) -> str:
    """The bars in Markdown, with the formulas that miss them named."""
    lines = ["| bar | measured | met | missed by |", "|---|---:|---|---|"]
    for bar in bars:
        missed = ", ".join(bar.misses)
        lines.append(f"| {bar.text} | {bar.measured} | {'yes' if bar.met else 'no'} | {missed} |")
    return "\n".join(lines) + "\n"
