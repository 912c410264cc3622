"""Every block that the README and the documentation show runs, and prints what they say."""

from __future__ import annotations

import importlib.util
import multiprocessing
import re
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pages
import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").glob("*/README.md")),
    )
}

_SPEC = importlib.util.spec_from_file_location("figures", ROOT / "docs" / "figures.py")
assert _SPEC is not None and _SPEC.loader is not None
figures = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(figures)


@pytest.fixture(scope="module")
def server() -> ForkServerContext:
    """Forks a process for each page, from one that has imported torch."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pages", "torch", "sympy"])
    return context


def run(server: ForkServerContext, page: Path, folder: Path) -> str:
    """What went wrong in the page; empty where nothing did."""
    work, log = folder / "page", folder / "log"
    work.mkdir()
    process = server.Process(target=pages.child, args=(page, work, log))
    process.start()
    process.join(300)
    if process.is_alive():
        process.terminate()
        return f"{page.name} has not ended after 300 s"
    return "" if process.exitcode == 0 else log.read_text() or f"exit code {process.exitcode}"


@pytest.mark.parametrize(
    "name", [n for n, p in PAGES.items() if any(b.runs for b in pages.blocks(p.read_text()))]
)
def test_page(server: ForkServerContext, name: str, tmp_path: Path) -> None:
    wrong = run(server, PAGES[name], tmp_path)
    assert not wrong, wrong


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n", "AssertionError"),
        ("- in a list\n\n  ```python\n  1 / 0\n  ```\n", "ZeroDivisionError"),
        ("```sh\nfalse\ntrue\n```\n", "exit code 1"),
        ("```sh\nautofn no-such-command\n```\n", "no such command"),
        ('```python\nprint(1)\n```\n\n```text title="Output"\n2\n```\n', "what is printed is"),
        ("```console\n$ echo 1\n2\n```\n", "what is printed is"),
        ("```console\n$ false\n```\n", "exit code 1"),
        ("```toml\n[tool\n```\n", "TOMLDecodeError"),
        ("```python\nimport generated.swish\n```\n", "does not generate it"),
    ],
)
def test_a_wrong_page_fails(
    server: ForkServerContext, text: str, expected: str, tmp_path: Path
) -> None:
    page = tmp_path / "wrong.md"
    page.write_text(text)
    assert expected in run(server, page, tmp_path)


def test_blocks_that_are_not_run_say_why() -> None:
    for name, path in PAGES.items():
        for block in pages.blocks(path.read_text()):
            if block.title.startswith("Not run"):
                assert len(block.title) > len(pages.NOT_RUN), f"{name}:{block.line}"
                assert block.title.startswith(pages.NOT_RUN), f"{name}:{block.line}"


def test_links_of_the_readme_lead_somewhere() -> None:
    # The pages' own are checked where they are built.
    links = re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text())
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_quoted_figures_are_those_of_the_reports() -> None:
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = path.read_text()
        assert figures.updated(text) == text, f"run `python docs/figures.py`: {path.name}"


def test_a_figure_that_is_not_in_the_report_is_an_error() -> None:
    page = "<!-- figures: cpu.md | {} | {} -->\n<!-- end -->"
    with pytest.raises(KeyError):
        figures.updated(page.format("Bars", "no_such_row"))
    with pytest.raises(KeyError):
        figures.updated(page.format("No such section", "swish"))
