"""`autofn bench`: generated ops against eager PyTorch, its own operators and torch.compile."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from autofn import project
from autofn.cli.console import Watch, say, show_error, show_table
from autofn.cli.gen import gravest
from autofn.cli.sources import expression_options, output_option, resolve, timeout_option
from autofn.errors import AutofnError, UsageError
from autofn.suggest import close
from autofn.verify.job import DTYPES

if TYPE_CHECKING:
    from autofn.bench.records import Report, Setting
    from autofn.bench.sketch import Drawn
    from autofn.source import Source


LARGEST = 1 << 30
"""Elements of the largest tensors."""


def _numbers(context: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    """Whole numbers, several with commas between them; 2^20 is a power."""
    return tuple(_number(part.strip()) for part in text.split(","))


def _number(text: str) -> int:
    found = re.fullmatch(r"(\d{1,12})(?:(?:\^|\*\*)(\d{1,2}))?", text)
    number = 0 if found is None else int(found[1]) ** int(found[2] or 1)
    if not 1 <= number <= LARGEST:
        raise click.BadParameter(f"{text!r} is no number from 1 to 2^30 (64, 2^20)")
    return number


def _usual_dtypes() -> tuple[str, ...]:
    found = project.find()
    return ("float32",) if found is None or found.dtypes == DTYPES else found.dtypes


def _dtypes(context: click.Context, option: click.Parameter, text: str) -> tuple[str, ...]:
    """Floating-point dtypes, several with commas between them."""
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in DTYPES:
            meant = close(name, DTYPES)
            known = f"did you mean {meant}?" if meant else f"choose of {', '.join(DTYPES)}"
            raise click.BadParameter(f"{name!r} is no dtype here: {known}")
    return names


@click.command()
@click.argument("files", nargs=-1, metavar="NAME|DIR...")
@output_option
@click.option(
    "--size",
    "sizes",
    callback=_numbers,
    default="2^20",
    show_default=True,
    metavar="N,...",
    help="Elements; up to 4096 it is the call that is measured.",
)
@click.option(
    "--threads",
    callback=_numbers,
    default="1",
    show_default=True,
    metavar="N,...",
    help="Threads on the CPU.",
)
@click.option(
    "--dtype",
    "dtypes",
    callback=_dtypes,
    default=lambda: ",".join(_usual_dtypes()),
    show_default="float32, or what [tool.autofn] says",
    metavar="T,...",
    help="Dtypes of tensors and parameters.",
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out: it takes its time.")
@click.option(
    "--fresh-memory",
    is_flag=True,
    help="Let malloc return freed memory to the system: page faults are measured too.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    metavar="S",
    help="Time to measure one formula in one setting and mode.",
)
@click.option("--json", "json_file", metavar="FILE", help="Write the results as JSON.")
@click.option("--plot", "plot_file", metavar="FILE.png", help="Write a picture (matplotlib).")
@expression_options
@timeout_option
@click.pass_context
def bench(
    context: click.Context,
    files: tuple[str, ...],
    output: str,
    sizes: tuple[int, ...],
    threads: tuple[int, ...],
    dtypes: tuple[str, ...],
    device: str,
    no_compile: bool,
    fresh_memory: bool,
    seconds: float,
    json_file: str | None,
    plot_file: str | None,
    expr: str | None,
    name: str | None,
    params: tuple[str, ...],
    timeout: float,
) -> int:
    """Measure generated ops against what users would pick instead.

    NAME is a formula of the library or a formula file, whose package lies in the folder of -o;
    DIR is a generated package of the library, a folder of them, or one of formula files. A
    formula that has no package there is generated for the purpose, unless -o was given.

    All contenders run in turn in one loop: the op, the formula in PyTorch operations (eager),
    PyTorch's own operator (native) and torch.compile of eager. Rival is the fastest of the last
    three, limit the time of copying the bytes that must move. Figures are medians with half the
    distance between the quartiles. Memory that is freed stays with the process, for all alike.
    """
    from autofn.bench import session
    from autofn.bench.records import Report, Setting

    fresh = context.get_parameter_source("output") is ParameterSource.DEFAULT
    placed, errors = _placed(files, output, expr, name, params)
    settings = [
        Setting(size, dtype, count, device)
        for dtype in dtypes
        for count in (threads if device == "cpu" else (1,))
        for size in sizes
    ]
    if plot_file is not None:
        from autofn.bench import plot

        plot.require()
    for path in (json_file, plot_file):
        _check_writable(path)
    report, codes = Report(()), {error.exit_code for error in errors}
    for error in errors:
        show_error(error)
    with tempfile.TemporaryDirectory(prefix="autofn-bench-") as scratch:
        formulas: list[Drawn] = []
        with Watch(len(placed), quiet=False) as watch:
            for found in session.drawn(
                placed, Path(scratch), fresh=fresh, timeout=timeout, watch=watch
            ):
                watch.clear()
                if isinstance(found, AutofnError):
                    show_error(found)
                    codes.add(found.exit_code)
                else:
                    formulas.append(found)
        how = {"compile": not no_compile, "keep_memory": not fresh_memory, "seconds": seconds}
        for part in _measured(formulas, settings, how):
            if isinstance(part, AutofnError):
                show_error(part)
                codes.add(part.exit_code)
            else:
                report = report.merged(part)
    if report.results:
        # First the files: whoever reads the tables may stop reading.
        _save(report, json_file, plot_file)
        _show(report)
    return gravest(codes)


# --- which packages ------------------------------------------------------------------------


def _placed(
    files: Sequence[str], output: str, expr: str | None, name: str | None, params: Sequence[str]
) -> tuple[list[tuple[Source, str]], list[AutofnError]]:
    """Formula sources, each with the folder that its package lies in."""
    if expr is not None or not files:
        sources, errors = resolve(files, expr, name, params)
        return [(source, output) for source in sources], errors
    placed: dict[Any, tuple[Source, str]] = {}
    failed: list[AutofnError] = []
    for file in files:
        packages = list(_packages(Path(file)))
        for label, root in [(p.name, str(p.parent)) for p in packages] or [(file, output)]:
            sources, errors = resolve([label], None, name, params)
            placed.update(((source, root), (source, root)) for source in sources)
            failed += [_no_formula(Path(root) / label) for _ in errors] if packages else errors
    return list(placed.values()), failed


def _no_formula(folder: Path) -> UsageError:
    return UsageError(
        f"{folder} is no package of the library",
        remedy=f"name its formula file: autofn bench FILE -o {folder.parent}",
    )


def _packages(path: Path) -> Iterator[Path]:
    """The generated packages that a path is, or that a folder holds."""
    if (path / "manifest.json").is_file():
        yield path
    elif path.is_dir():
        yield from sorted(each.parent for each in path.glob("*/manifest.json"))


# --- the run -------------------------------------------------------------------------------


def _measured(
    formulas: Sequence[Drawn], settings: Sequence[Setting], how: Mapping[str, Any]
) -> Iterator[Report | AutofnError]:
    """What `session.measured` gives, with progress on a terminal in between."""
    if not formulas:
        return
    # Only now: the formulas' own processes were forked from one without torch's threads.
    from autofn.bench import session
    from autofn.bench.run import Options
    from autofn.isolate import Progress

    with Watch(len(formulas), quiet=False) as watch:
        done = 0

        def step(name: str, doing: str) -> None:
            watch(done, [Progress(name, doing, time.monotonic() - watch.begun)])

        parts = session.measured(formulas, settings, Options(**how), step)
        for part in parts:
            done += 1
            watch.clear()
            yield part


def _show(report: Report) -> None:
    from autofn.bench.tables import grids, rich_table

    shown = [f"{key} {value}" for key, value in report.environment]
    say("; ".join(shown))
    for grid in grids(report):
        say("")
        show_table(rich_table(grid, framed=sys.stdout.isatty()))
        for note in grid.notes:
            say(note, "yellow")


def _check_writable(path: str | None) -> None:
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise UsageError(f"{Path(path).parent} is no folder", remedy="create it first")


def _save(report: Report, json_file: str | None, plot_file: str | None) -> None:
    from autofn.bench.plot import plot
    from autofn.bench.records import to_json, write

    if json_file is not None:
        try:
            write(json_file, to_json(report))
        except OSError as error:
            raise UsageError(
                f"{json_file} cannot be written: {error.strerror}", remedy="name another file"
            ) from None
    if plot_file is not None:
        plot(report, plot_file)
