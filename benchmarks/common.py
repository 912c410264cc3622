"""What the benchmark scripts share: the library's packages, runs that can be resumed, pages."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "benchmarks"
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from autofn.bench import session  # noqa: E402
from autofn.bench.records import Mode, Report, Setting, from_json, to_json, write  # noqa: E402
from autofn.bench.sketch import Drawn  # noqa: E402
from autofn.bench.tables import grids, markdown  # noqa: E402
from autofn.errors import AutofnError  # noqa: E402
from autofn.load import FileSource  # noqa: E402

if TYPE_CHECKING:
    from bars import Bar


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a benchmark: a setting, and the modes that are measured in it."""

    setting: Setting
    modes: tuple[Mode, ...]


def library(names: Sequence[str] = ()) -> list[Drawn]:
    """The library's formulas (or those named) with their committed packages.

    Call it before torch is imported.
    """
    paths = [ROOT / "formulas" / f"{name}.py" for name in names]
    paths = paths or sorted((ROOT / "formulas").glob("*.py"))
    placed = [(FileSource(str(path)), str(ROOT / "generated")) for path in paths]
    found: list[Drawn] = []
    with tempfile.TemporaryDirectory() as scratch:
        for each in session.drawn(placed, Path(scratch), fresh=False):
            if isinstance(each, AutofnError):
                raise SystemExit(f"error: {each}")
            found.append(each)
    return found


def load(path: Path) -> Report:
    """The report in a file; an empty one where there is none."""
    return from_json(path.read_text(encoding="utf-8")) if path.exists() else Report(())


def run(
    sections: Mapping[str, Section],
    formulas: Sequence[Drawn],
    path: Path,
    *,
    compiled: bool,
    seconds: float,
    resume: bool,
) -> Report:
    """Measure all sections; the report in `path` is whole after every formula.

    resume: leave out what the report has already; otherwise it is measured anew.
    """
    from autofn.bench.run import Options

    report = load(path)
    begun = time.monotonic()
    for label, section in sections.items():
        options = Options(compiled, seconds, modes=section.modes)
        waiting = [each for each in formulas if not (resume and _measured(report, each, section))]
        parts = session.measured(waiting, [section.setting], options)
        for number, part in enumerate(parts, 1):
            if isinstance(part, AutofnError):
                print(f"error: {part}", file=sys.stderr, flush=True)
                continue
            report = report.merged(part)
            write(path, to_json(report))
            took = time.monotonic() - begun
            print(f"{took:7.0f} s  {label} {number}/{len(waiting)}  {_line(part)}", flush=True)
    return report


def _measured(report: Report, drawn: Drawn, section: Section) -> bool:
    there = {
        each.mode
        for each in report.results
        if each.name == drawn.sketch.name and each.setting == section.setting
    }
    return set(section.modes) <= there


def _line(part: Report) -> str:
    last = part.results[-1]
    rival = last.rival
    against = f"{last.speedup:.2f}x {rival.contender}" if rival and last.speedup else "no rival"
    limit = f", {last.over_limit:.2f}x the limit" if last.over_limit else ""
    return f"{last.name}: {against}{limit}"


def page(title: str, introduction: str, report: Report, bars: str, picture: str | None) -> str:
    """The Markdown page of a report."""
    lines = [f"# {title}", "", introduction.strip(), ""]
    lines += [f"- {key}: {value}" for key, value in report.environment]
    lines += ["", "## Bars", "", bars]
    if picture is not None:
        lines += [f"![the times of the table]({picture})", ""]
    lines += ["## Figures", ""]
    return "\n".join(lines) + "\n" + "\n".join(_tables(report))


def _tables(report: Report) -> Iterator[str]:
    for each in grids(dataclasses.replace(report, memory=())):
        yield markdown(each)


def say_bars(bars: Sequence[Bar]) -> None:
    """The bars on stdout."""
    for bar in bars:
        missed = f"; missed by {', '.join(bar.misses)}" if bar.misses else ""
        print(f"{'met   ' if bar.met else 'MISSED'} {bar.text}: {bar.measured}{missed}")
