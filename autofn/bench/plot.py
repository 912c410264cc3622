"""Benchmarks as a picture: a row for each formula, a panel for each setting and mode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autofn.bench.records import (
    BASELINE,
    COMPILE,
    EAGER,
    GENERATED,
    LIMIT,
    NATIVE,
    Report,
    Result,
    by_setting,
)
from autofn.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKS = {EAGER: ("o", "#8c8c8c"), NATIVE: ("D", "#d1793a"), COMPILE: ("s", "#6f4e9c")}
_OWN, _RIVAL, _INK = "#1f77b4", "#cdd3da", "#30343b"


def require() -> None:
    """Raises UsageError where matplotlib is missing: before an hour of measuring."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UsageError(
            "--plot needs matplotlib", remedy="pip install 'autofn[bench]' or matplotlib"
        ) from None


def plot(report: Report, path: str | Path) -> None:
    """Write the picture: PNG, SVG or PDF, by the file's ending.

    Raises UsageError where matplotlib is missing, the ending is unknown or nothing can be shown.
    """
    require()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = {
        key: sorted(results, key=lambda result: result.speedup or 0)
        for key, results in by_setting(report.results).items()
    }
    if not groups:
        raise UsageError("there is nothing to plot", remedy="name a formula")
    across = min(len(groups), 3)
    down = -(-len(groups) // across)
    height = 1.0 + 0.3 * max(map(len, groups.values()))
    figure = Figure(
        figsize=(1.0 + 6.0 * across, 0.7 + height * down), layout="constrained", dpi=140
    )
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    for axes in panels[len(groups) :]:
        axes.set_axis_off()
    for axes, ((setting, mode), results) in zip(panels, groups.items(), strict=False):
        _panel(axes, results)
        axes.set_title(f"{mode}\n{setting}", fontsize=10, color=_INK, loc="left")
    _legend(figure, panels, {time.contender for each in report.results for time in each.times})
    try:
        figure.savefig(path, facecolor="white")
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be written: {error}", remedy="end it in .png") from None


def _panel(axes: Axes, results: Sequence[Result]) -> None:
    """A bar for the op on a paler one for its fastest rival, marks for all rivals and the limit."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    rows = range(len(results))
    floor = 0.6 * min(time.median for result in results for time in result.times) * 1e6
    for row, result in zip(rows, results, strict=True):
        for time, height, colour in (
            (result.rival, 0.78, _RIVAL),
            (result.time(GENERATED), 0.42, _OWN),
        ):
            if time is not None:
                width = time.median * 1e6 - floor
                axes.barh(row, width, left=floor, height=height, color=colour, linewidth=0)
        for name, (mark, colour) in _MARKS.items():
            time = result.time(name)
            if time is not None:
                axes.plot(
                    time.median * 1e6, row, mark, color=colour, markersize=4.5,
                    markeredgecolor="white", markeredgewidth=0.5, zorder=3,
                )  # fmt: skip
        limit = result.time(LIMIT) or result.time(BASELINE)
        if limit is not None:
            axes.vlines(limit.median * 1e6, row - 0.42, row + 0.42, color=_INK, linewidth=1.6)
        slowest = max(time.median for time in result.times) * 1e6
        if result.speedup is not None:
            axes.annotate(
                f"{result.speedup:.1f}x", (slowest, row), xytext=(6, 0),
                textcoords="offset points", va="center", fontsize=8, color=_INK,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(left=floor, right=axes.get_xlim()[1] * 1.5)
    axes.set_ylim(-0.6, len(results) - 0.4)
    axes.set_yticks(list(rows), [result.name for result in results], fontsize=9)
    axes.set_xlabel("microseconds per call", fontsize=9, color=_INK)
    axes.grid(axis="x", which="major", color="#d5d8dc", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, length=0, which="both", labelsize=9)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _legend(figure: Any, panels: Sequence[Axes], present: set[str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(color=_OWN, label="generated"),
        Patch(color=_RIVAL, label="fastest rival (x: its time over the op's)"),
    ]
    handles += [
        Line2D([], [], linestyle="", marker=mark, color=colour, markersize=5, label=name)
        for name, (mark, colour) in _MARKS.items()
        if name in present
    ]
    handles.append(
        Line2D([], [], linestyle="", marker="|", color=_INK, markersize=10, markeredgewidth=1.6,
               label="limit: copying the bytes that must move (small calls: F.silu)")
    )  # fmt: skip
    figure.legend(
        handles=handles, loc="outside lower left", ncols=6 if len(panels) > 1 else 2,
        frameon=False, fontsize=8,
    )  # fmt: skip
