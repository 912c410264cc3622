"""Pages and their index as HTML: one file each, with nothing to load. All text is escaped."""

from __future__ import annotations

import functools
import html
import math
from collections.abc import Sequence
from typing import Any

import jinja2
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CppLexer, CudaLexer, PythonLexer

import autofn
from autofn import resources, trees
from autofn.certificate.model import CPU, TORCH, ulps
from autofn.emit.words import LONGEST
from autofn.report import javascript, svg
from autofn.report.measure import EAGER
from autofn.report.model import Line, Page, Series, Typeset, Variant
from autofn.report.typeset import mathml
from autofn.report.typeset import name as name_in_mathml


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.templates() / "report"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    environment.filters.update(
        math=_math,
        equation=_equation,
        highlighted=_highlighted,
        ulps=ulps,
        shown=svg.shown,
        number=_number,
        contender=_contender,
    )
    environment.globals.update(
        curve=svg.curve, errors=_errors, key=svg.key, bars=svg.bars, spark=svg.spark,
        classes=classes, version=autofn.__version__, functions=Markup(javascript.library()),
    )  # fmt: skip
    return environment


def page(found: Page) -> str:
    """One formula's page."""
    return (
        _environment()
        .get_template("page.html.j2")
        .render(page=found, scripts=_scripts(found.variants))
    )


def index(pages: Sequence[Page]) -> str:
    """The table of several pages, each beside it as NAME.html."""
    rows = [(each, _summary(each)) for each in sorted(pages, key=lambda p: p.name.casefold())]
    return _environment().get_template("index.html.j2").render(rows=rows)


def _summary(found: Page) -> dict[str, Any]:
    """What the index says of a page."""
    summary: dict[str, Any] = {}
    for line, what in zip(found.variants[0].lines[:2], ("value", "gradient"), strict=False):
        chosen = next((s for name in (CPU, TORCH) for s in line.series if s.name == name), None)
        if chosen is not None and chosen.worst is not None:
            summary[what] = chosen.worst[0]
    if found.bench is not None and found.bench.speedup is not None:
        summary["speed"] = found.bench.speedup
    if found.verification is not None:
        summary["failed"] = sum(row.status == "failed" for row in found.verification.rows)
    return summary


# --- mathematics -------------------------------------------------------------------------------


def _math(expr: Any, block: bool = True) -> Markup:
    size = trees.size(expr)
    if size > LONGEST:
        return Markup("<p class='aside'>an expression of {} operations</p>").format(size)
    return _row(mathml(expr), block)


def _row(inside: str, block: bool) -> Markup:
    return Markup(f"<math display='{'block' if block else 'inline'}'>{inside}</math>")


def _equation(of: Typeset) -> Markup:
    """The left-hand side, =, and the expression."""
    name = f"<mi>{html.escape(of.of)}</mi>"
    by = [name_in_mathml(each) for each in of.by]
    match of.kind:
        case "value":
            joined = "<mo>,</mo>".join(by)
            paren = "<mo stretchy='false'>{}</mo>"
            left = f"{name}{paren.format('(')}{joined}{paren.format(')')}" if by else name
        case "gradient":
            left = f"<mfrac><mrow><mo>∂</mo>{name}</mrow><mrow><mo>∂</mo>{by[0]}</mrow></mfrac>"
        case "second":
            left = (
                f"<mfrac><mrow><msup><mo>∂</mo><mn>2</mn></msup>{name}</mrow>"
                f"<mrow><mo>∂</mo><msup>{by[0]}<mn>2</mn></msup></mrow></mfrac>"
            )
        case _:
            left = f"<msub><mi>grad</mi>{by[0]}</msub>"
    right = f"<mtext>{html.escape(of.absent)}</mtext>" if of.expr is None else mathml(of.expr)
    return _row(f"<mrow>{left}<mo>=</mo>{right}</mrow>", True)


# --- errors ------------------------------------------------------------------------------------


def classes(line: Line) -> list[str]:
    """Which look each series has: the kernel's, the PyTorch path's, PyTorch's own, or naive."""
    return [_class(series, line) for series in line.series]


def _class(series: Series, line: Line) -> str:
    if series.name == CPU:
        return "own"
    if series.name == TORCH:
        return "torch" if any(each.name == CPU for each in line.series) else "own"
    return "eager" if series.name == EAGER else "native"


def _contender(name: str) -> str:
    return {CPU: "autofn, CPU kernel", TORCH: "autofn, PyTorch path"}.get(name, name)


def _errors(line: Line) -> Markup:
    # What matters most is drawn last, on top.
    order = sorted(
        zip(line.series, classes(line), strict=True),
        key=lambda each: ("eager", "torch", "native", "own").index(each[1]),
    )
    kept = Line(line.quantity, line.axis, tuple(series for series, _ in order))
    return svg.errors(kept, [name for _, name in order])


def _number(value: float) -> str:
    """A number as it is told in a table."""
    if math.isnan(value):
        return "none"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return svg.shown(0.0 if abs(value) < 1e-7 else value)


# --- code and scripts --------------------------------------------------------------------------


def _highlighted(text: str, path: str) -> Markup:
    lexer = {"py": PythonLexer, "cu": CudaLexer}.get(path.rpartition(".")[2], CppLexer)()
    return Markup(highlight(text, lexer, HtmlFormatter(nowrap=True)).rstrip())


def _scripts(variants: Sequence[Variant]) -> Markup:
    """Per variant and output the functions behind the sliders; null where there are none."""
    parts = [
        f"[{', '.join(_pair(d.script, d.guards) for d in variant.drawings)}]"
        for variant in variants
    ]
    return Markup(f"[{', '.join(parts)}]")


def _pair(script: str, guards: str) -> str:
    return f"{{ f: {script}, guards: {guards} }}" if script else "null"
