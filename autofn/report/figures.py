"""What `autofn bench` measured, for a page."""

from __future__ import annotations

from pathlib import Path

from autofn import resources
from autofn.bench.records import Report, Result, from_json
from autofn.bench.tables import MODES
from autofn.errors import UsageError
from autofn.report.model import Bar, Bench, Timing


def bench(report: Report, name: str) -> Bench | None:
    """The figures of a formula, by its name; None where there are none."""
    results = [each for each in report.results if each.name == name and each.times]
    large = (r for r in results if not r.setting.small and r.mode == "forward+backward")
    speedup = next((result.speedup for result in large), None)
    timings = tuple(map(_timing, results))
    return Bench(report.environment, timings, speedup) if timings else None


def _timing(result: Result) -> Timing:
    bars = sorted(result.times, key=lambda time: time.median)
    return Timing(
        title=f"{MODES[result.mode]}: {result.setting}",
        bars=tuple(Bar(t.contender, t.form, t.median, t.low, t.high) for t in bars),
        missing=tuple(f"no {name}: {why}" for name, why in result.missing),
    )


def read(path: str | Path) -> Report:
    """A file of `autofn bench --json`. Raises UsageError where it cannot be read."""
    try:
        return from_json(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{path} holds no figures: {reason}", remedy="autofn bench NAME --json FILE writes them"
        ) from None


def of_the_library() -> Report | None:
    """The committed figures of the formula library, where this is a clone."""
    path = resources.library().parent / "benchmarks" / "cpu.json"
    return read(path) if path.is_file() else None
