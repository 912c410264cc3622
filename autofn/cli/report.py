"""`autofn report`: a page per formula to look at, and an index of many."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autofn import project
from autofn.cli.console import Watch, say, show_error
from autofn.cli.gen import FAILED, gravest
from autofn.cli.sources import (
    expression_options,
    jobs_option,
    resolve,
    timeout_option,
    usual_output,
)
from autofn.errors import AutofnError, UsageError
from autofn.verify.job import DTYPES

if TYPE_CHECKING:
    from autofn.bench.records import Report
    from autofn.report.model import Page
    from autofn.source import Source


@click.command()
@click.argument("files", nargs=-1, metavar="NAME|FILE...")
@click.option(
    "-o", "output", metavar="FILE.html|DIR",
    help="The page of one formula (report.html), or a folder for many (report).",
)  # fmt: skip
@click.option(
    "--packages", default=usual_output, metavar="DIR",
    show_default="generated, or what [tool.autofn] says",
    help="Where packages lie, with the certificates that `autofn verify --full` left.",
)  # fmt: skip
@click.option("--verify", is_flag=True, help="Verify each formula, and show the table.")
@click.option("--bench", is_flag=True, help="Measure each formula, and show the times.")
@click.option("--figures", metavar="FILE", help="Show times of `autofn bench --json FILE`.")
@jobs_option("Files")
@expression_options
@timeout_option
def report(
    files: tuple[str, ...],
    output: str | None,
    packages: str,
    verify: bool,
    bench: bool,
    figures: str | None,
    jobs: int,
    expr: str | None,
    name: str | None,
    params: tuple[str, ...],
    timeout: float,
) -> int:
    """Write a page per formula: what it is, what is computed, and how well.

    Formula and derivatives typeset, the way from what was written to what is computed, kinks,
    curves with sliders, errors over the whole number line beside PyTorch's own and the form as
    written, saved bytes, times, verification and sources. A page is one file and loads nothing.

    Times are those measured now (--bench), of a file (--figures), or, for the library in a clone,
    the committed ones. Exit code 3 if a verification failed; its page is written.
    """
    sources, errors = resolve(files, expr, name, params)
    from autofn import isolate
    from autofn.report.collect import Collect
    from autofn.report.figures import of_the_library, read
    from autofn.verify import nursery

    measured = read(figures) if figures is not None else of_the_library()
    target = _Target(output, many=len(sources) + len(errors) > 1)
    found = project.find()
    dtypes = found.dtypes if found else DTYPES
    codes: set[int] = set()
    for error in errors:
        show_error(error)
        codes.add(error.exit_code)
    pages: list[tuple[Source, Page]] = []
    with Watch(len(sources), quiet=False) as watch, nursery.opened(verify):
        nursery.prepare()
        action = Collect(packages, verify, _known(sources, packages, dtypes), dtypes)
        outcomes = isolate.run(sources, action, workers=jobs, timeout=timeout, watch=watch)
        with contextlib.closing(outcomes):
            for outcome in outcomes:
                watch.clear()
                if outcome.error is not None:
                    show_error(outcome.error)
                    codes.add(outcome.error.exit_code)
                    continue
                pages.append((outcome.source, outcome.value))
    if bench and pages:
        measured = _measured([source for source, _ in pages], packages, timeout, codes)
    by_name = bench or figures is not None
    made = [_with_figures(page, source, measured, by_name) for source, page in pages]
    for page in made:
        checks = page.verification.rows if verify and page.verification else ()
        if any(row.status == "failed" for row in checks):
            codes.add(FAILED)
    if made:
        target.write(made)
    return gravest(codes)


def _known(sources: Sequence[Source], packages: str, dtypes: Sequence[str]) -> dict[str, str]:
    """What `autofn gen` found, by the digest of what it verified."""
    from autofn import records

    kept = [
        each for source in sources for each in records.recall(source, packages, dtypes).formulas
    ]
    return {each.digest: each.verified for each in kept if each.verified}


def _with_figures(page: Page, source: Source, measured: Report | None, by_name: bool) -> Page:
    """The page with what was measured of its formula: the committed figures are the library's."""
    from autofn.report.figures import bench
    from autofn.resources import library

    path = getattr(source, "path", None)
    own = path is not None and Path(path).resolve().parent == library()
    if measured is None or not (by_name or own):
        return page
    return dataclasses.replace(page, bench=bench(measured, page.name))


def _measured(sources: Sequence[Source], packages: str, timeout: float, codes: set[int]) -> Report:
    from autofn.bench import session
    from autofn.bench.records import Report, Setting
    from autofn.bench.sketch import Drawn

    found = Report(())
    with tempfile.TemporaryDirectory(prefix="autofn-bench-") as scratch:
        placed = [(source, packages) for source in dict.fromkeys(sources)]
        drawn: list[Drawn] = []
        for each in session.drawn(placed, Path(scratch), fresh=True, timeout=timeout):
            if isinstance(each, AutofnError):
                show_error(each)
                codes.add(each.exit_code)
            else:
                drawn.append(each)
        if not drawn:
            return found
        # Only now: it imports torch, and formulas' own processes were forked without.
        from autofn.bench.run import Options

        for part in session.measured(drawn, [Setting(1 << 20)], Options()):
            if isinstance(part, AutofnError):
                show_error(part)
                codes.add(part.exit_code)
            else:
                found = found.merged(part)
    return found


class _Target:
    """Where pages go: a file for one, a folder with an index for several."""

    def __init__(self, output: str | None, *, many: bool) -> None:
        self.path = None if output is None else Path(output)
        if many and self.path is not None:
            self._refuse_file(self.path)
        parent = Path() if self.path is None else self.path.absolute().parent
        if not parent.is_dir():
            raise UsageError(f"{parent} is no folder", remedy="create it first")

    def _refuse_file(self, path: Path) -> None:
        if path.suffix in (".html", ".htm") or path.is_file():
            raise UsageError(
                f"{path} is a file, and there are several formulas", remedy="name a folder with -o"
            )

    def write(self, pages: Sequence[Page]) -> None:
        from autofn.report import render

        path = self.path or Path("report.html" if len(pages) == 1 else "report")
        if len(pages) == 1 and not path.is_dir() and path.suffix:
            _write(path, render.page(pages[0]))
            say(f"wrote {path}")
            return
        self._refuse_file(path)
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be created: {error.strerror}", remedy="name another folder"
            ) from None
        for page in pages:
            _write(path / f"{page.name}.html", render.page(page))
        _write(path / "index.html", render.index(pages))
        say(f"wrote {path / 'index.html'} and {len(pages)} page{'s' * (len(pages) != 1)}")


def _write(path: Path, text: str) -> None:
    from autofn.bench.records import write

    try:
        write(path, text)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", remedy="name a file in a folder of yours"
        ) from None
