"""f, f' and f'' as a picture by matplotlib: `autofn plot` and `Formula.plot`."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autofn.derive import derive
from autofn.emit.words import condition
from autofn.errors import UsageError
from autofn.isolate import VERIFICATION_LIMIT, Stage
from autofn.model import Definition
from autofn.report.curves import central, drawings
from autofn.report.model import Drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = ("#0b62b8", "#00786a", "#b04f00")
_INK, _QUIET, _GRID = "#1c2129", "#57606d", "#e3e0d9"


@dataclass(frozen=True)
class Draw:
    """The action of a formula's own process: what there is to draw, under a title each."""

    def __call__(self, definition: Definition, stage: Stage) -> tuple[tuple[str, Drawing], ...]:
        stage("drawing", VERIFICATION_LIMIT)
        return titled(definition)


def titled(definition: Definition) -> tuple[tuple[str, Drawing], ...]:
    """All outputs of all variants. Raises FormulaError where the formula cannot be derived."""
    found = []
    for variant in definition.variants:
        for drawing in drawings(definition, variant, derive(definition, variant)):
            title = definition.name
            if len(definition.output_names) > 1:
                title += f".{drawing.output}"
            if variant.key:
                title += f", {condition(variant.key, definition)}"
            found.append((title, drawing))
    return tuple(found)


def require() -> None:
    """Raises UsageError where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UsageError(
            "plots need matplotlib", remedy="pip install 'autofn[report]' or matplotlib"
        ) from None


def figure(found: Sequence[tuple[str, Drawing]]) -> Figure:
    """A row of three panels per drawing. Raises UsageError where matplotlib is missing."""
    require()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(11, 3.1 * len(found) + 0.25), layout="constrained", dpi=140)
    FigureCanvasAgg(made)
    rows = made.subplots(len(found), 3, squeeze=False)
    for panels, (title, drawing) in zip(rows, found, strict=True):
        for k, axes in enumerate(panels):
            _panel(axes, drawing, k)
        start = ", ".join(f"{each.name} = {each.start:g}" for each in drawing.sliders)
        panels[0].set_title(f"{title}  ({start})" if start else title, loc="left",
                            fontsize=11, color=_INK, pad=14)  # fmt: skip
    return made


def _panel(axes: Any, drawing: Drawing, k: int) -> None:
    curve = drawing.curves[k]
    xs, ys = [x for x, _ in curve.points], [y for _, y in curve.points]
    finite = [y if math.isfinite(y) else math.nan for y in ys]
    axes.axhline(0, color=_QUIET, linewidth=0.7, alpha=0.6)
    for mark in drawing.marks:
        axes.axvline(mark.at, color=_QUIET, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.plot(xs, finite, color=_COLOURS[k], linewidth=2, solid_capstyle="round")
    for mark in drawing.marks:
        here = (mark.value, mark.slope, math.nan)[k]
        if math.isfinite(here):
            axes.plot(mark.at, here, "o", markersize=4.5, markerfacecolor="white",
                      markeredgecolor=_INK, zorder=3)  # fmt: skip
    axes.set_xlim(drawing.low, drawing.high)
    axes.set_ylim(*central(ys))
    axes.set_xlabel(drawing.axis, fontsize=9, color=_QUIET)
    axes.annotate(f"{curve.title}   {curve.label}", (0, 1), xytext=(2, 3), fontsize=9,
                  xycoords="axes fraction", textcoords="offset points", color=_QUIET)  # fmt: skip
    axes.grid(color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=8.5, colors=_QUIET)
    for side in axes.spines.values():
        side.set_visible(False)


def save(made: Figure, path: str | Path) -> None:
    """By the file's ending: PNG, SVG, PDF. Raises UsageError where it cannot be written."""
    try:
        made.savefig(path, facecolor="white")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be written: {reason}", remedy="end it in .png") from None


def png(made: Figure) -> bytes:
    stream = io.BytesIO()
    made.savefig(stream, format="png", facecolor="white", dpi=72)
    return stream.getvalue()
