"""Charts as SVG: classes in place of colours, so that the page's theme decides on those."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from autofn.report.curves import central
from autofn.report.model import Bar, Curve, Drawing, Line, Points, Timing
from autofn.report.truth import place


@dataclass(frozen=True)
class Frame:
    """A plot's size and margins, and what its axes span."""

    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]
    left: float = 44
    right: float = 10
    top: float = 10
    bottom: float = 26

    def across(self, value: float) -> float:
        share = (value - self.x[0]) / (self.x[1] - self.x[0])
        return self.left + share * (self.width - self.left - self.right)

    def down(self, value: float) -> float:
        share = (value - self.y[0]) / (self.y[1] - self.y[0])
        return self.height - self.bottom - share * (self.height - self.top - self.bottom)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers within the range, at most so many and a few."""
    width = high - low
    step = 10.0 ** math.floor(math.log10(width / most))
    step *= next(factor for factor in (1, 2, 5, 10, 20) if width / (step * factor) <= most)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def shown(value: float) -> str:
    """A number on an axis, with a minus sign of its own."""
    return f"{value:.4g}".replace("-", "\u2212")


def path(points: Points, frame: Frame) -> str:
    """The d of a path; a gap where there is no value. Far values end a little outside."""
    parts: list[str] = []
    pen = False
    room = frame.y[1] - frame.y[0]
    for x, y in points:
        if not math.isfinite(y):
            pen = False
            continue
        y = max(frame.y[0] - room, min(frame.y[1] + room, y))
        parts.append(f"{'L' if pen else 'M'}{frame.across(x):.1f} {frame.down(y):.1f}")
        pen = True
    return "".join(parts)


def curve(drawing: Drawing, k: int, identity: str) -> Markup:
    """One of f, f' and f'' with its axes; kinks are dashed lines, their values dots.

    identity: a name that nothing else on the page has.
    """
    width, height = 340.0, 240.0
    found: Curve = drawing.curves[k]
    frame = Frame(width, height, (drawing.low, drawing.high), drawing.reach[k])
    marks = []
    for mark in drawing.marks:
        at = frame.across(mark.at)
        marks.append(
            f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{frame.top}" '
            f'y2="{height - frame.bottom}"/>'
        )
        here = (mark.value, mark.slope, math.nan)[k]
        if frame.y[0] <= here <= frame.y[1]:
            marks.append(f'<circle class="dot" cx="{at:.1f}" cy="{frame.down(here):.1f}" r="3.2"/>')
    what = f"{found.title}, the {found.label} of {drawing.output} along {drawing.axis}"
    lines = _axes(frame, ticks(*frame.x, 6), ticks(*frame.y, 5))
    return Markup(
        f'<svg class="curve" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(what)}" data-x="{frame.x[0]!r} {frame.x[1]!r}" '
        f'data-y="{frame.y[0]!r} {frame.y[1]!r}" '
        f'data-box="{frame.left} {width - frame.right} {height - frame.bottom} {frame.top}">'
        f"<title>{escape(what)}</title>"
        f'<clipPath id="{identity}"><rect x="{frame.left}" y="{frame.top - 2}" '
        f'width="{width - frame.left - frame.right}" '
        f'height="{height - frame.top - frame.bottom + 4}"/></clipPath>'
        f'{lines}<g class="marks">{"".join(marks)}</g>'
        f'<g clip-path="url(#{identity})"><path class="ghost" d=""/>'
        f'<path class="line line{k}" d="{path(found.points, frame)}"/></g></svg>'
    )


def _axes(frame: Frame, across: Sequence[float], down: Sequence[float]) -> str:
    """Grid lines with their numbers; those through zero stand out."""
    parts = []
    bottom, right = frame.height - frame.bottom, frame.width - frame.right
    for value in across:
        at = frame.across(value)
        zero = " zero" if abs(value) < 1e-12 else ""
        parts.append(f'<line class="grid{zero}" x1="{at:.1f}" x2="{at:.1f}" y1="{frame.top}" '
                     f'y2="{bottom}"/>')  # fmt: skip
        parts.append(f'<text class="tick" x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">'
                     f"{shown(value if abs(value) > 1e-12 else 0)}</text>")  # fmt: skip
    for value in down:
        at = frame.down(value)
        zero = " zero" if abs(value) < 1e-12 else ""
        parts.append(f'<line class="grid{zero}" x1="{frame.left}" x2="{right}" y1="{at:.1f}" '
                     f'y2="{at:.1f}"/>')  # fmt: skip
        label = shown(value if abs(value) > 1e-12 else 0)
        parts.append(f'<text class="tick" x="{frame.left - 6}" y="{at + 3.5:.1f}" '
                     f'text-anchor="end">{label}</text>')  # fmt: skip
    return "".join(parts)


def spark(drawing: Drawing) -> Markup:
    """The curve alone, for the index."""
    within = central([y for _, y in drawing.curves[0].points])
    frame = Frame(96, 48, (drawing.low, drawing.high), within, 2, 2, 3, 3)
    zero = ""
    if frame.y[0] < 0 < frame.y[1]:
        at = frame.down(0)
        zero = f'<line class="grid zero" x1="2" x2="94" y1="{at:.1f}" y2="{at:.1f}"/>'
    return Markup(
        f'<svg class="spark" viewBox="0 0 96 48" aria-hidden="true">{zero}'
        f'<path class="line line0" d="{path(drawing.curves[0].points, frame)}"/></svg>'
    )


# --- errors ------------------------------------------------------------------------------------

LEAST, MOST = 0.25, 1e9
"""Errors in ULP that the axis has; smaller ones are left out, not finite ones lie above."""

_DECADES = (1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8)

_NUMBERS = (-1e20, -100.0, -1.0, -0.01, -1e-4, -1e-20)


def errors(line: Line, classes: Sequence[str], *, width: float = 720) -> Markup:
    """Errors over the number line: a mark per number and series, of a shape of its own each."""
    worst = max((e for s in line.series for _, e in s.errors if math.isfinite(e)), default=1.0)
    top = next((10 * d for d in _DECADES if worst <= d), MOST)
    bad = any(series.bad for series in line.series)
    height = 250.0
    across = [place(x) for series in line.series for x, _ in series.errors] or [1.0]
    # All of a half line that has points, so that charts can be compared.
    span = (-1.0 if min(across) < 0 else 0.0, 1.0 if max(across) > 0 else 0.0)
    frame = Frame(
        width, height, span, (math.log10(LEAST), math.log10(top)),
        left=52, bottom=30, top=30 if bad else 12,
    )  # fmt: skip
    parts = [_number_line(frame, top)]
    parts.append(f'<text class="tick" x="8" y="{frame.down(0) + 3.5:.1f}">ULP</text>')
    if bad:
        parts.append(
            f'<text class="tick" x="{frame.left - 6}" y="17" text-anchor="end">NaN, ∞</text>'
            f'<line class="grid" x1="{frame.left}" x2="{width - frame.right}" y1="13" y2="13"/>'
        )
    for series, name in zip(line.series, classes, strict=True):
        places = []
        for x, error in series.errors:
            at = frame.across(place(x))
            if math.isinf(error):
                places.append((at, 13.0))
            elif error >= LEAST:
                places.append((at, frame.down(math.log10(min(error, top)))))
        parts.append(f'<path class="err {name}" d="{_shape(name, places)}"/>')
    what = f"error of {line.quantity} in ULP over the values of {line.axis}, by contender"
    return Markup(
        f'<svg class="errors" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(what)}"><title>{escape(what)}</title>{"".join(parts)}</svg>'
    )


def _number_line(frame: Frame, top: float) -> str:
    parts = []
    bottom, right = frame.height - frame.bottom, frame.width - frame.right
    decades = [1.0, *(d for d in _DECADES[1:] if d <= top)]
    skip = 2 if len(decades) > 6 else 1
    for decade in decades[::skip]:
        at = frame.down(math.log10(decade))
        label = (
            f"{decade:.0f}"
            if decade < 1e4
            else f"10<tspan class='sup' dy='-4'>{round(math.log10(decade))}</tspan>"
        )
        parts.append(f'<line class="grid" x1="{frame.left}" x2="{right}" y1="{at:.1f}" '
                     f'y2="{at:.1f}"/>')  # fmt: skip
        parts.append(f'<text class="tick" x="{frame.left - 6}" y="{at + 3.5:.1f}" '
                     f'text-anchor="end">{label}</text>')  # fmt: skip
    for value in (*_NUMBERS, 0.0, *(-v for v in reversed(_NUMBERS))):
        if not frame.x[0] <= place(value) <= frame.x[1]:
            continue
        at = frame.across(place(value))
        zero = " zero" if value == 0 else ""
        sign = "\u2212" if value < 0 else ""
        size = abs(value)
        label = sign + (f"{size:g}" if size in (0, 0.01, 1, 100) else _power(size))
        parts.append(f'<line class="grid{zero}" x1="{at:.1f}" x2="{at:.1f}" y1="{frame.top}" '
                     f'y2="{bottom}"/>')  # fmt: skip
        parts.append(f'<text class="tick" x="{at:.1f}" y="{bottom + 18}" '
                     f'text-anchor="middle">{label}</text>')  # fmt: skip
    return "".join(parts)


def _power(value: float) -> str:
    """A power of ten."""
    return f"10<tspan class='sup' dy='-4'>{shown(round(math.log10(value)))}</tspan>"


def _shape(name: str, places: Sequence[tuple[float, float]]) -> str:
    """One path of small marks: dots, crosses, strokes or rings, by the series' class."""
    shapes: dict[str, Callable[[float, float], str]] = {
        "own": lambda x, y: f"M{x:.1f} {y:.1f}h0",
        "eager": lambda x, y: f"M{x - 1.8:.1f} {y - 1.8:.1f}l3.6 3.6m0-3.6l-3.6 3.6",
        "native": lambda x, y: f"M{x:.1f} {y - 2.3:.1f}v4.6",
        "torch": lambda x, y: f"M{x - 2.1:.1f} {y:.1f}h4.2",
    }
    return "".join(shapes[name](x, y) for x, y in places)


def key(name: str) -> Markup:
    """A series' mark beside its name."""
    place = _shape(name, [(8.0, 7.0)])
    return Markup(
        f'<svg class="key" viewBox="0 0 16 14" aria-hidden="true"><path class="err {name}" '
        f'd="{place}"/></svg>'
    )


# --- times -------------------------------------------------------------------------------------


def bars(timing: Timing) -> Markup:
    """A bar per contender with its quartiles, from 0 on."""
    most = max(bar.high for bar in timing.bars)
    height = 26 * len(timing.bars) + 6
    scale = 330 / most
    parts = []
    for k, bar in enumerate(timing.bars):
        y = 4 + 26 * k
        parts.append(_bar(bar, y, scale))
    what = f"time per call, {timing.title}: " + ", ".join(
        f"{bar.contender} {micros(bar.median)} µs" for bar in timing.bars
    )
    return Markup(
        f'<svg class="bars" viewBox="0 0 560 {height}" role="img" aria-label="{escape(what)}">'
        f"<title>{escape(what)}</title>{''.join(parts)}</svg>"
    )


def _bar(bar: Bar, y: float, scale: float) -> str:
    end = 110 + bar.median * scale
    low, high = 110 + bar.low * scale, 110 + bar.high * scale
    return (
        f'<text class="tick name" x="100" y="{y + 14}" text-anchor="end">{escape(bar.contender)}'
        f'</text><rect class="bar {escape(bar.contender)}" x="110" y="{y + 2}" '
        f'width="{max(1.5, bar.median * scale):.1f}" height="16" rx="2"/>'
        f'<path class="whisker" d="M{low:.1f} {y + 10}H{high:.1f}"/>'
        f'<text class="tick" x="{max(end, high) + 7:.1f}" y="{y + 14}">'
        f"{micros(bar.median)} µs</text>"
    )


def micros(seconds: float) -> str:
    value = seconds * 1e6
    return f"{value:.2f}" if value < 99.5 else f"{value:,.0f}"
