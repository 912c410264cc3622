"""`autofn build`: the libraries of generated packages, ahead of time."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autofn import project
from autofn.cli.console import Watch, say, show_error, show_table
from autofn.cli.sources import jobs_option
from autofn.errors import AutofnError, UsageError
from autofn.project import Project

if TYPE_CHECKING:
    from autofn.build import Built, Job

FAILED = 1


class BuildFailed(AutofnError):
    """A compiler refused a package's sources."""

    exit_code = FAILED
    kind = "build"


@click.command()
@click.argument("folders", nargs=-1, metavar="DIR...")
@click.option(
    "--isa",
    "sets",
    default=lambda: ",".join(_project().isa),
    show_default="native, or what [tool.autofn] says",
    metavar="ISA,...",
    help="Instruction sets: x86-64, x86-64-v2, -v3, -v4, aarch64; native is this CPU's best.",
)
@click.option(
    "--cuda-arch",
    "architectures",
    default=lambda: ",".join(_project().architectures),
    show_default="none, or what [tool.autofn] says",
    metavar="NN,...",
    help="CUDA architectures: 80 for A100, 90 for H100 and H200.",
)
@jobs_option("Libraries")
@click.option("-q", "--quiet", is_flag=True, help="Print failures only.")
def build(folders: tuple[str, ...], sets: str, architectures: str, jobs: int, quiet: bool) -> int:
    """Build the libraries of generated packages ahead of time.

    DIR is a package or a folder of packages. Libraries are written to lib/ in the package and
    travel with it: where one fits, no compiler is needed. CUDA's need a CPU library beside them.
    Exit code 1 if a build failed.
    """
    from autofn.build import build_all

    if not folders:
        if project.find() is None:
            raise click.UsageError("name a package or a folder of packages")
        folders = (_project().output,)
    wanted = _jobs([Path(folder) for folder in folders], _words(sets), _words(architectures))
    results: list[Built] = []
    with Watch(len(wanted), quiet=quiet) as watch:
        outcomes = build_all(wanted, workers=jobs, watch=watch)
        with contextlib.closing(outcomes):
            for built in outcomes:
                watch.clear()
                results.append(built)
                if built.failure:
                    _show_failure(built)
    if not quiet:
        _show(results)
    return FAILED if any(built.failure for built in results) else 0


def _project() -> Project:
    return project.find() or Project(Path.cwd())


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _jobs(folders: Sequence[Path], sets: list[str], architectures: list[str]) -> list[Job]:
    """What to build. Raises UsageError or click.BadParameter before anything is."""
    from autofn.build import Job, packages, runtime

    found = {each.resolve(): each for folder in folders for each in packages(folder)}
    targets: list[tuple[str, str]] = []
    for package in found.values():
        tools = runtime(package)._build
        if not targets:
            targets = [("cpu", _instruction_set(tools.instruction_sets(), each)) for each in sets]
            targets += [("cuda", _architecture(each)) for each in architectures]
    if not targets:
        raise click.UsageError("nothing to build: give --isa or --cuda-arch")
    unique = list(dict.fromkeys(targets))
    return [Job(package, *target) for package in found.values() for target in unique]


def _instruction_set(mine: Sequence[str], wanted: str) -> str:
    """The name of an instruction set; `mine` are those of this CPU, best first."""
    if not mine:
        raise UsageError(
            "libraries are built ahead of time on x86-64 and aarch64 only",
            remedy="packages build their own on first use",
        )
    if wanted == "native":
        return mine[0]
    levels = (
        ["aarch64"] if mine[0] == "aarch64" else [f"x86-64{v}" for v in ("", "-v2", "-v3", "-v4")]
    )
    if wanted not in levels:
        raise click.BadParameter(
            f"{wanted!r} is none of native, {', '.join(levels)}", param_hint="--isa"
        )
    return wanted


def _architecture(wanted: str) -> str:
    if not re.fullmatch(r"(sm_)?[1-9]\d{1,2}", wanted):
        raise click.BadParameter(f"{wanted!r}: write 90 for sm_90", param_hint="--cuda-arch")
    return f"sm_{wanted.removeprefix('sm_')}"


def _show_failure(built: Built) -> None:
    verbose = os.environ.get("AUTOFN_DEBUG") == "1"
    if verbose and built.output:
        print(built.output, file=sys.stderr)
    more = None if verbose or not built.output else "AUTOFN_DEBUG=1 shows all that it printed"
    show_error(BuildFailed(f"{built.job.label}: {built.failure}", remedy=more))


def _show(results: Sequence[Built]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    good = sorted((each for each in results if not each.failure), key=lambda each: each.path)
    if good:
        frame = box.SIMPLE_HEAD if sys.stdout.isatty() else None
        table = Table(box=frame, pad_edge=False)
        table.add_column("library", overflow="fold")
        table.add_column("size", justify="right", no_wrap=True)
        table.add_column("seconds", justify="right", no_wrap=True)
        for each in good:
            size = f"{each.size / 1024:.0f} KiB"
            table.add_row(Text(str(each.path)), size, f"{each.seconds:.1f}")
        show_table(table)
    failed = len(results) - len(good)
    say(f"{len(good)} built" + (f", {failed} failed" if failed else ""))
