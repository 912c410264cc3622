"""Reports: what is on a page, that nothing of a formula file escapes, and what a browser shows."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import chromium
import pytest
from click.testing import CliRunner
from mpmath import mp
from sympy import Abs, Heaviside, Max, Piecewise, Symbol, exp, log, sin, sqrt, tanh

from autofn import Formula, formula
from autofn.bench.records import Report, Result, Setting, Time, to_json
from autofn.cli import cli
from autofn.derive import derive
from autofn.load import load_file
from autofn.ops import OPS
from autofn.pipeline import generate
from autofn.program import ELEMENT, Input, lower
from autofn.program import Result as Output
from autofn.records import digest
from autofn.report import curves, javascript, render
from autofn.report.collect import Collect, page
from autofn.report.figures import bench, read
from autofn.report.model import Page
from autofn.report.truth import error, place, places, truth
from autofn.report.typeset import mathml
from autofn.resources import library

HOSTILE = '''
"""Hostile."""
from typing import Literal

from sympy import Abs, exp, log
from autofn import Learnable, formula


@formula
def hostile(x, offset, a: Learnable = 0.25, mode: Literal["<b>", "b"] = "<b>"):
    """</p><script>window.owned = 1</script> & <img src=x onerror="window.owned = 2">."""
    if mode == "b":
        return x
    return a * Abs(x - offset) + log(1 + exp(x))
'''


def quiet(doing: str, seconds: float | None) -> None:
    """No stage has a limit here."""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = tmp_path_factory.mktemp("hostile")
    path = folder / "a<i>b&.py"
    path.write_text(HOSTILE, encoding="utf-8")
    (only,) = load_file(path)
    rows = [{"backend": "<u>", "check": "values", "status": "passed", "detail": "<s>&"}]
    (folder / "hostile.certificate.json").write_text(json.dumps({"verified": rows}))
    return page(only.definition, quiet, Collect(str(folder), verify=False))


@pytest.fixture(scope="module")
def text(hostile: Page) -> str:
    return render.page(hostile)


class Tree(HTMLParser):
    """Elements with their attributes, parents, and text."""

    VOID = frozenset({"meta", "link", "input", "img", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.parents: list[list[str]] = []
        self.texts: dict[int, str] = {}
        self.open: list[int] = []
        self.feed(text)
        assert not self.open, [self.elements[k] for k in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.parents.append([self.elements[k][0] for k in self.open])
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in self.VOID:
            self.open.append(len(self.elements) - 1)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.parents.append([self.elements[k][0] for k in self.open])
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.elements[self.open[-1]][0] == tag, (tag, self.elements[self.open[-1]])
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for k in self.open:
            self.texts[k] = self.texts.get(k, "") + data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def said(self, tag: str) -> list[str]:
        return [self.texts.get(k, "") for k, (name, _) in enumerate(self.elements) if name == tag]


# --- the page ----------------------------------------------------------------------------------


def test_a_page_is_well_formed_and_has_landmarks(text: str) -> None:
    tree = Tree(text)
    assert [len(tree.all(tag)) for tag in ("header", "nav", "main", "footer", "h1")] == [1] * 5
    assert tree.all("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in tree.elements if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [attributes["id"] for _, attributes in tree.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for link in tree.all("a"):
        assert link["href"][1:] in ids
    for section in tree.all("section"):
        assert section["aria-labelledby"] in ids
    assert tree.all("nav")[0]["aria-label"]


def test_tables_charts_and_sliders_say_what_they_are(text: str) -> None:
    tree = Tree(text)
    assert len(tree.all("table")) == len(tree.all("caption")) >= 5
    assert all(head.get("scope") in ("row", "col") for head in tree.all("th"))
    for chart in tree.all("svg"):
        hidden = chart.get("aria-hidden") == "true"
        assert hidden or (chart["role"] == "img" and chart["aria-label"])
    for k, (tag, attributes) in enumerate(tree.elements):
        if tag == "input":
            assert "label" in tree.parents[k]
        if "scroll" in attributes.get("class", "").split():
            # What scrolls can be reached by the keyboard.
            assert attributes["tabindex"] == "0" and attributes["aria-label"]


def test_nothing_is_loaded(text: str) -> None:
    tree = Tree(text)
    assert not any("src" in attributes for _, attributes in tree.elements)
    assert tree.all("link") == [{"rel": "icon", "href": "data:,"}]
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org)", text.replace("arXiv", ""))
    assert len(text.encode()) < 2_000_000


def test_what_a_formula_file_says_is_text(text: str, hostile: Page) -> None:
    tree = Tree(text)
    assert len(tree.all("script")) == 2 and not tree.all("img")
    assert not (tree.all("s") or tree.all("u") or tree.all("i"))
    (said,) = (tree.texts[k] for k, (_, a) in enumerate(tree.elements) if a.get("class") == "doc")
    assert said == hostile.doc
    assert "a<i>b&.py" in "".join(tree.said("li"))
    assert any("'<b>'" in said for said in tree.said("label"))
    # In the scripts there is nothing of the file's.
    assert not any(name in script for script in tree.said("script") for name in ("offset", "owned"))


def test_kinks_have_their_gradients(hostile: Page) -> None:
    (mark,) = hostile.variants[0].drawings[0].marks
    assert (mark.at, mark.what) == (1.0, "kink")
    slope = 1 / (1 + math.exp(-1))
    assert mark.below == pytest.approx(slope - 0.25)
    assert mark.slope == pytest.approx(slope)
    assert mark.above == pytest.approx(slope + 0.25)


def test_curves_are_the_formula_and_break_at_jumps(hostile: Page) -> None:
    drawing = hostile.variants[0].drawings[0]
    value, gradient, second = (curve.points for curve in drawing.curves)
    for x, y in value[::20]:
        assert y == pytest.approx(0.25 * abs(x - 1) + math.log1p(math.exp(x)))
    for points, jumps in ((value, 0), (gradient, 1), (second, 0)):
        assert sum(math.isnan(y) for _, y in points) == jumps
    assert [slider.name for slider in drawing.sliders] == ["offset", "a"]


def test_errors_show_the_naive_form_and_every_step(hostile: Page) -> None:
    line = hostile.variants[0].lines[0]
    by_name = {series.name: series for series in line.series}
    assert by_name["as written"].bad > 0 and by_name["PyTorch path"].bad == 0
    (_, value), (_, gradient) = hostile.variants[0].steps
    for steps in (value, gradient):
        rules = [step.rule for step in steps if not step.rule.startswith("Rule: ")]
        assert rules == ["As written", "Stable functions", "Kernel"]
        assert steps[0].bad > 0 and steps[-1].bad == 0
        assert steps[-1].error < 16 and steps[-1].code.startswith("template")
    assert hostile.equals == ()


def test_variants_without_a_kink_have_their_own_part(text: str, hostile: Page) -> None:
    assert [variant.label for variant in hostile.variants] == ["mode = '<b>'", "mode = 'b'"]
    assert hostile.variants[1].drawings[0].marks == ()
    assert "smooth there" in text


def test_the_certificate_beside_the_package_is_read(text: str, hostile: Page) -> None:
    assert hostile.verification is not None
    assert hostile.verification.origin == "from hostile.certificate.json"
    assert "&lt;s&gt;&amp;" in text


def test_an_index_links_every_page(hostile: Page) -> None:
    tree = Tree(render.index([hostile]))
    assert {"href": "hostile.html"} in tree.all("a")
    assert len(tree.all("table")) == len(tree.all("caption")) == 1
    assert len(tree.all("script")) == 1


def test_times_are_bars(hostile: Page) -> None:
    times = (
        Time("generated", "", 2e-6, 1e-6, 3e-6, 9, 1),
        Time("<eager>", "", 8e-6, 7e-6, 9e-6, 9, 1),
    )
    result = Result("hostile", Setting(64), "plain", (64,), 1, True, times, (("native", "<none>"),))
    report = Report((("cpu", "<c>"),), (result,))
    shown = render.page(dataclasses.replace(hostile, bench=bench(report, "hostile")))
    assert "&lt;eager&gt; 8.00 µs" in shown and "&lt;none&gt;" in shown
    Tree(shown)
    assert bench(report, "other") is None


# --- its parts ---------------------------------------------------------------------------------


def test_every_operation_has_a_text_in_javascript() -> None:
    for op in OPS.values():
        if op.torch:
            known = (*javascript._INFIX, *javascript._MATH, *javascript.OWN)
            special = ("neg", "not", "square", "powi", "rsqrt", "relu", "exp_product", "select")
            assert op.name in (*known, *special)


def test_javascript_has_no_name_of_the_users() -> None:
    x, y = Symbol("while", real=True), Symbol("alert", real=True)
    inputs = [(x, Input("while", frozenset({ELEMENT}))), (y, Input("alert", frozenset()))]
    program = lower(inputs, [Output("f", exp(x) + y)])
    made = javascript.function(program, {"while": "x", "alert": "p[0]"}, ["f", "absent"])
    assert made == "(x, p) => { return [p[0] + Math.exp(x), 0]; }"


def test_errors_are_in_units_of_the_last_place() -> None:
    assert error(1.0, mp.mpf(1) + mp.mpf(2) ** -24) == pytest.approx(0.5)
    assert error(0.0, mp.mpf(2) ** -149) == 1
    assert error(math.nan, mp.mpf(1)) == math.inf
    assert error(math.inf, mp.mpf(3.4028234663852886e38)) == 0
    assert math.isnan(error(1.0, mp.inf))


def test_the_number_line_has_all_sizes_in_order() -> None:
    variant = softened.definition.variants[0]
    found = truth(softened.definition, variant, places(softened.definition, variant))
    xs = [point["x"] for point in found.points]
    assert xs == sorted(xs)
    assert xs[0] < -1e37 and xs[-1] > 1e37
    assert min(map(abs, xs)) < 1e-43
    assert [place(x) for x in (-math.inf, 0.0, 2.0**-20, 2.0**8)][1:] == [0.0, 0.2, 0.8]


@formula
def softened(x):
    return tanh(x) + sin(x) / 2


def test_poles_jumps_and_ends_are_told_apart() -> None:
    x = Symbol("x", real=True)
    expected = {
        1 / x: "pole",
        Heaviside(x, 0): "jump",
        sqrt(x): "end of the range",
        Max(x, 0): "kink",
        sin(x) / x: "removable singularity, its limit taken",
        Max(x, 0) ** 2: "kink of the gradient",
        # What lies in a piece that is not selected there is none of the formula.
        Piecewise((log(x), x > 1), (x - 1, True)): None,
        Piecewise((1, x > 1), (sin(x) / x, True)): "removable singularity, its limit taken",
    }
    for expr, what in expected.items():
        definition = Formula.from_expr(expr).definition
        made = derive(definition, definition.variants[0])
        (drawing,) = curves.drawings(definition, definition.variants[0], made)
        assert [mark.what for mark in drawing.marks if mark.at == 0] == [what] * bool(what)


def test_long_sums_have_a_line_for_each_term() -> None:
    x = Symbol("x", real=True)
    parts = [exp(-k * x) / (1 + k * x) for k in range(1, 5)]
    short, long, mixed = map(mathml, (parts[0], sum(parts), sum(parts[:3]) - parts[3]))
    assert "<mtr>" not in short
    assert long.count("<mtr>") == 4
    assert long.count('<mo form="prefix">') == 3
    assert long.count('<mo form="prefix">+</mo>') == 3
    assert mixed.count('<mo form="prefix">\u2212</mo>') == 1
    Tree(f"<math>{long}</math>")


def test_mathml_has_no_markup_of_its_own() -> None:
    x = Symbol("x<b>", real=True)
    for expr in (x, exp(-(x**2)), Abs(x), x < 1, log(x + 1) / 3):
        assert "<b>" not in mathml(expr)
        Tree(f"<math>{mathml(expr).replace('&InvisibleTimes;', '')}</math>")


def test_what_gen_found_before_is_told() -> None:
    plain = Formula.from_expr(tanh(Symbol("x", real=True)), name="plain").definition
    package = generate(plain)
    known = {digest(package): "34 passed, 4 not run"}
    made = page(plain, quiet, Collect("nowhere", False, known))
    text = render.page(made)
    assert "Verified by autofn gen: 34 passed, 4 not run." in text
    assert "Not verified here" not in text
    other = {"0" * 64: "34 passed"}
    assert page(plain, quiet, Collect("nowhere", False, other)).verification is None


# --- the commands ------------------------------------------------------------------------------


def test_one_formula_is_a_file_and_a_bad_one_beside_it_is_reported(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("from autofn import formula\n@formula\ndef good(x):\n    return x * x\n")
    bad.write_text("from autofn import formula\n@formula\ndef bad(x):\n    return nothing\n")
    out = tmp_path / "out.html"
    done = CliRunner().invoke(cli, ["report", str(good), "-o", str(out)], standalone_mode=False)
    assert done.return_value == 0, done.output
    assert "<h1>good</h1>" in out.read_text(encoding="utf-8")
    folder = tmp_path / "many"
    done = CliRunner().invoke(
        cli, ["report", str(good), str(bad), "-o", str(folder)], standalone_mode=False
    )
    assert done.return_value == 2
    assert sorted(path.name for path in folder.iterdir()) == ["good.html", "index.html"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "swish", "mish", "-o", "x.html"], "several formulas"),
        (["report", "swish", "-o", "no/where/x.html"], "no folder"),
        (["report", "swissh", "-o", "x.html"], "did you mean swish"),
        (["report", "swish", "--figures", "pyproject.toml"], "no figures"),
        (["plot", "swissh"], "did you mean swish"),
    ],
)
def test_mistakes_are_told_before_any_work(arguments: list[str], said: str, capfd: Any) -> None:
    done = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert done.return_value == 2
    assert said in done.output + capfd.readouterr().err


def test_plot_writes_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "f.png"
    done = CliRunner().invoke(cli, ["plot", "elu", "-o", str(out)], standalone_mode=False)
    assert done.return_value == 0, done.output
    assert out.read_bytes().startswith(b"\x89PNG") and out.stat().st_size > 10_000


def test_plot_says_that_matplotlib_is_missing(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = CliRunner().invoke(cli, ["plot", "elu"], standalone_mode=False)
    assert done.return_value == 2
    assert "pip install" in done.output + capfd.readouterr().err


def test_figures_of_a_bench_are_read_by_name(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    file.write_text(to_json(Report((("cpu", "one"),))), encoding="utf-8")
    assert read(file).environment == (("cpu", "one"),)


# --- in a browser ------------------------------------------------------------------------------


@chromium.needed
def test_a_slider_moves_the_curve_and_its_kink(text: str, tmp_path: Path) -> None:
    script = """
    const block = document.querySelector(".plots"), lines = () =>
      [...block.querySelectorAll("svg.curve .line")].map((line) => line.getAttribute("d"));
    const slider = block.querySelector("input[data-name=offset]");
    const mark = () => Number(block.querySelector("svg.curve .mark").getAttribute("x1"));
    const before = [lines(), mark()];
    slider.value = 2; slider.dispatchEvent(new Event("input"));
    const after = [lines(), mark()];
    const output = slider.closest("label").querySelector("output").textContent;
    block.querySelector(".reset").click();
    const hidden = [...document.querySelectorAll(".variant")].map((each) => each.hidden);
    const math = document.querySelector("math mfrac").getBoundingClientRect().height;
    document.querySelector("input[name=variant][value='1']").click();
    answer = { before, after, output, again: mark(), hidden, owned: String(window.owned),
      chosen: [...document.querySelectorAll(".variant")].map((each) => each.hidden),
      math,
      wide: document.documentElement.scrollWidth - innerWidth };
    """
    found = chromium.ask(text, script, tmp_path, "--window-size=1200,900")
    (before, kink), (after, moved) = found["before"], found["after"]
    assert all(a != b for a, b in zip(before[:2], after[:2], strict=True))
    # 1 to 2 of a range that is 10 wide and 286 long, both rounded.
    assert moved - kink == pytest.approx(28.6, abs=0.3)
    assert found["again"] == pytest.approx(kink, abs=0.1)
    assert found["output"] == "2" and found["owned"] == "undefined"
    assert found["hidden"] == [not hidden for hidden in found["chosen"]]
    assert found["math"] > 10 and found["wide"] <= 0


@chromium.needed
def test_dark_and_narrow(text: str, tmp_path: Path) -> None:
    script = """
    const colours = () => [getComputedStyle(document.body).backgroundColor,
      getComputedStyle(document.body).color];
    const system = colours(), button = document.querySelector("button.theme");
    button.click(); const light = colours(); button.click(); const dark = colours();
    answer = { system, light, dark, said: button.textContent,
      wide: document.documentElement.scrollWidth - innerWidth, width: innerWidth };
    """
    found = chromium.ask(text, script, tmp_path, "--window-size=500,900",
                         "--blink-settings=preferredColorScheme=0")  # fmt: skip
    assert found["system"] == found["dark"] != found["light"]
    assert found["said"] == "Theme: dark"
    assert found["width"] <= 520 and found["wide"] <= 0
    for background, ink in (found["light"], found["dark"]):
        assert contrast(background, ink) > 10


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two CSS colours, as WCAG defines it."""

    def luminance(colour: str) -> float:
        parts = [int(each) / 255 for each in re.findall(r"\d+", colour)[:3]]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1])
def test_every_colour_of_text_can_be_read(scheme: int) -> None:
    style = Path(library().parent / "templates/report/style.css").read_text(encoding="utf-8")
    found = re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", style)
    colours = {name: pair[scheme] for name, *pair in found}

    def rgb(colour: str) -> str:
        return " ".join(str(int(colour[k : k + 2], 16)) for k in (1, 3, 5))

    for name in ("ink", "quiet", "link", "own", "torch", "native", "eager", "good", "bad", "warn"):
        for behind in ("page", "card", "well"):
            assert contrast(rgb(colours[name]), rgb(colours[behind])) >= 4.5, (name, behind)


SAMPLE = ("bessel_basis", "gelu", "elu", "softshrink", "lennard_jones", "snake", "two_outputs")


@chromium.needed
def test_javascript_computes_what_mpmath_does(tmp_path: Path) -> None:
    """f, f' and f'' of several formulas with sliders moved, and each function by itself."""
    asked: list[str] = []
    expected: list[tuple[str, float]] = []
    for name in SAMPLE:
        definition = load_file(library() / f"{name}.py")[0].definition
        variant = definition.variants[0]
        made = derive(definition, definition.variants[0])
        axis, start = curves.axis_of(definition, variant), curves.start(definition, variant)
        sliders = [leaf.name for leaf in curves.present(definition, variant) if leaf is not axis]
        for j in range(len(definition.output_names)):
            values = curves._Values(definition, variant, axis, j)
            slots = [curves._slider(definition.leaf(s), definition, start) for s in sliders]
            text, _ = curves._scripts(definition, variant, made, axis, slots, j)
            for x in (0.37, 1.3, 4.1):
                point = {**start, **{s: start[s] * 1.25 for s in sliders}}
                asked.append(f"({text})({x}, {[point[s] for s in sliders]})")
                expected += [(f"{name} {x}", y) for y in values(point, x)]
    functions = [op for op in OPS.values() if op.torch and op.name in javascript.OWN]
    for op in functions:
        count = len(re.findall(r"\{\d\}", op.torch))
        order = [3] if "{n}" in op.torch else []
        for share in (0.1, 0.35, 0.6, 0.95):
            x = op.domain[0] + (op.domain[1] - op.domain[0]) * share
            args = [x, 0.7, 2.0][:count]
            asked.append(f"[F.{op.name}({', '.join(map(repr, [*order, *args]))})]")
            value = op.exact(*map(mp.mpf, args), *order)
            expected.append((f"{op.name}{order}{args}", float(value)))
    page = f"<html><body><script>{javascript.library()}</script></body></html>"
    script = f"answer = [{', '.join(asked)}].flat();"
    found = chromium.ask(page, script, tmp_path)
    assert len(found) == len(expected)
    for got, (what, value) in zip(found, expected, strict=True):
        assert got == pytest.approx(value, rel=1e-7, abs=1e-9), what


@pytest.fixture(autouse=True)
def _pytorch(pytorch_path: None) -> None:
    """No test here waits for a compiler."""
