"""Benchmarks as tables: on the terminal by rich, in files as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autofn.bench.records import (
    BASELINE,
    COMPILE,
    EAGER,
    GENERATED,
    LIMIT,
    NATIVE,
    Mode,
    Report,
    Result,
    Saved,
    Setting,
    Time,
    by_setting,
    geometric_mean,
)

if TYPE_CHECKING:
    from rich.table import Table

MODES: dict[Mode, str] = {
    "forward": "forward",
    "backward": "backward",
    "forward+backward": "forward+backward",
    "no_grad": "forward, entering torch.no_grad()",
    "plain": "forward, no gradients asked for",
}


@dataclass(frozen=True)
class Grid:
    """A table before it has a form: rows of cells, the first of each a name."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def grids(report: Report) -> list[Grid]:
    """All tables of a report: one for each setting and mode, and one for saved memory."""
    found = [grid(*key, results) for key, results in by_setting(report.results).items()]
    return [*found, *([memory_grid(report.memory)] if report.memory else [])]


def grid(setting: Setting, mode: Mode, results: Sequence[Result]) -> Grid:
    """The results of one setting and mode."""
    title = f"{MODES[mode]}: {setting}, microseconds per call"
    columns = _columns(setting, results)
    rows = [(result.name, *(cell(result) for _, cell in columns)) for result in results]
    rows += _means(setting, results, len(columns))
    notes = [
        f"{result.name}: no {name} ({reason})"
        for result in results
        for name, reason in result.missing
    ]
    return Grid(title, ("formula", *(head for head, _ in columns)), tuple(rows), tuple(notes))


def memory_grid(memory: Sequence[Saved]) -> Grid:
    """What autograd keeps between forward and backward."""
    names = (GENERATED, EAGER, NATIVE)
    rows = []
    for saved in memory:
        kept = [saved.of(name) for name in names]
        mine, eager = kept[0], kept[1]
        saving = f"{eager / mine:.1f}x" if mine and eager is not None else ""
        cells = ("" if value is None else f"{value:.1f}" for value in kept)
        rows.append((saved.name, saved.dtype, *cells, saving))
    return Grid(
        "kept between forward and backward, bytes per element",
        ("formula", "dtype", *names, "eager/generated"),
        tuple(rows),
    )


_Cell = Callable[[Result], str]


def _columns(setting: Setting, results: Sequence[Result]) -> list[tuple[str, _Cell]]:
    present = {time.contender for result in results for time in result.times}
    order = (GENERATED, EAGER, NATIVE, COMPILE, LIMIT, BASELINE)
    columns: list[tuple[str, _Cell]] = [
        (name, lambda result, name=name: _duration(result.time(name)))  # type: ignore[misc]
        for name in order
        if name in present
    ]
    columns.append(("rival", lambda result: result.rival.contender if result.rival else ""))
    columns.append(("rival/generated", lambda result: _times(result.speedup)))
    if setting.small:
        columns.append(("native/generated", lambda result: _times(_inverse(result.over(NATIVE)))))
        columns.append(("generated/F.silu", lambda result: _times(result.over(BASELINE))))
        columns.append(("more than F.silu", lambda result: _more(result)))
        return columns
    columns.append(("generated/limit", lambda result: _times(result.over_limit)))
    if setting.device != "cpu":
        columns.append(("GB/s", lambda result: f"{(result.bandwidth or 0) / 1e9:.0f}"))
        columns.append(("of copy", lambda result: _percent(_inverse(result.over_limit))))
    return columns


def _means(setting: Setting, results: Sequence[Result], columns: int) -> list[tuple[str, ...]]:
    """Rows of geometric means: over all, and over those that cost more than memory."""
    rows = []
    costly = [result for result in results if result.costly]
    for label, chosen in (("geometric mean", results), ("of the costly ones", costly)):
        if len(results) > 1 and (chosen is results or 0 < len(chosen) < len(results)):
            means = [_times(geometric_mean(result.speedup for result in chosen))]
            if setting.small:
                means.append(_times(geometric_mean(_inverse(r.over(NATIVE)) for r in chosen)))
                means.append(_times(geometric_mean(r.over(BASELINE) for r in chosen)))
                means.append("")
            else:
                means.append(_times(geometric_mean(result.over_limit for result in chosen)))
                means += [""] * (2 if setting.device != "cpu" else 0)
            rows.append((label, *("",) * (columns - len(means)), *means))
    return rows


def _inverse(value: float | None) -> float | None:
    return None if value is None else 1 / value


def _duration(time: Time | None) -> str:
    if time is None:
        return ""
    micros = time.median * 1e6
    digits = 2 if micros < 99.5 else 0
    return f"{micros:.{digits}f} ±{100 * time.spread:.0f}%"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f}%"


def _more(result: Result) -> str:
    mine, other = result.time(GENERATED), result.time(BASELINE)
    return "" if mine is None or other is None else f"{1e6 * (mine.median - other.median):+.2f} us"


# --- forms -----------------------------------------------------------------------------------


def rich_table(grid: Grid, *, framed: bool) -> Table:
    """The grid for a terminal, or, without a frame, for a file."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=grid.title,
        title_justify="left",
        box=box.SIMPLE_HEAD if framed else None,
        pad_edge=False,
    )
    for number, head in enumerate(grid.head):
        table.add_column(head, justify="left" if number == 0 else "right", no_wrap=True)
    for row in grid.rows:
        table.add_row(*map(Text, row))
    return table


def markdown(grid: Grid) -> str:
    """The grid as a Markdown table under its title."""
    lines = [
        f"### {grid.title[:1].upper()}{grid.title[1:]}",
        "",
        f"| {' | '.join(grid.head)} |",
        f"|---|{'---:|' * (len(grid.head) - 1)}",
        *(f"| {' | '.join(row)} |" for row in grid.rows),
    ]
    if grid.notes:
        lines += ["", *(f"- {note}" for note in grid.notes)]
    return "\n".join(lines) + "\n"
