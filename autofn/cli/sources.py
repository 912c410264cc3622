"""From the arguments of a command to formula sources: paths, folders, library names, `--expr`."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autofn import project
from autofn.cli.library import entries
from autofn.errors import AutofnError, FormulaError, UsageError, about
from autofn.resources import library
from autofn.suggest import close

if TYPE_CHECKING:
    from autofn.source import Source

_Command = TypeVar("_Command", bound=Callable[..., Any])


def expression_options(command: _Command) -> _Command:
    """`--expr`, `--name` and `--param`."""
    options = (
        click.option("--expr", metavar="TEXT", help="An expression in place of files."),
        click.option("--name", metavar="NAME", help="Name of the --expr formula (default: f)."),
        click.option(
            "--param",
            "params",
            multiple=True,
            metavar="NAME=VALUE",
            help="A symbol of --expr that is a number at run time, with its default; repeatable.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def usual_output() -> str:
    """Where packages lie unless -o says otherwise."""
    found = project.find()
    return "generated" if found is None else found.output


output_option = click.option(
    "-o",
    "output",
    # A callable, so that a wrong table is an error of the commands that look at it.
    default=usual_output,
    show_default="generated, or what [tool.autofn] says",
    metavar="DIR",
    help="Folder of the packages.",
)

timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Limit on loading a formula file.",
)


def jobs_option(what: str) -> Callable[[_Command], _Command]:
    """`-j N`: how many of `what` at a time."""
    return click.option(
        "-j",
        "jobs",
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help=f"{what} at a time.",
    )


def resolve(
    files: Sequence[str], expr: str | None, name: str | None, params: Sequence[str]
) -> tuple[list[Source], list[AutofnError]]:
    """The sources that a command line names, and errors for those that do not exist.

    Without files those of the project. Raises click.UsageError where the arguments contradict each
    other.
    """
    if expr is None:
        if name is not None or params:
            raise click.UsageError("--name and --param belong to --expr")
        files = named(files)
    elif files:
        raise click.UsageError("give files or --expr, not both")
    else:
        from autofn.source import ExprSource

        given = tuple(map(_parameter, params))
        twice = [each for each, count in Counter(n for n, _ in given).items() if count > 1]
        if twice:
            raise click.UsageError(f"--param gives {twice[0]} twice")
        return [ExprSource(expr, name or "f", given)], []
    sources: dict[str, Source] = {}
    errors: list[AutofnError] = []
    for file in files:
        try:
            for source in _named(file):
                sources.setdefault(f"{os.path.realpath(source.path)}:{source.only}", source)
        except AutofnError as error:
            errors.append(error)
    return list(sources.values()), errors


def named(files: Sequence[str]) -> Sequence[str]:
    """What a command line names, or else the project's sources."""
    if files:
        return files
    found = project.find()
    if found is None:
        raise UsageError(
            "no FILE is given, and this folder is in no project",
            remedy="name a formula file or a formula of the library (autofn list), or set up a "
            "project: autofn init",
        )
    for source in found.sources:
        if not os.path.exists(source):
            raise UsageError(
                f"{source}, a source of the project's [tool.autofn], does not exist",
                remedy="autofn new NAME writes a first formula there"
                if not source.endswith(".py")
                else "correct its sources",
            )
    return found.sources


@about("file")
def _named(file: str) -> list[Any]:
    from autofn.source import FileSource

    path = Path(file)
    if path.is_dir():
        return _in_folder(path)
    if path.exists():
        return [FileSource(file)]
    if file.endswith(".py") or os.sep in file:
        names = [entry.name for entry in entries(library())]
        remedy = "check the path; autofn new NAME writes a first formula file"
        if path.stem in names:
            remedy = f"for the library's formula: autofn gen {path.stem}"
        raise UsageError(f"no such file: {file}", remedy=remedy)
    inside = library() / f"{file}.py"
    if file.isidentifier() and inside.is_file():
        return [FileSource(_shown(inside))]
    for entry in entries(library()):
        if entry.name == file:
            return [FileSource(_shown(entry.path), only=file)]
    meant = close(re.sub(r"\W", "_", file), (entry.name for entry in entries(library())))
    remedy = f"did you mean {meant}? autofn list shows all" if meant else "autofn list"
    if os.path.isfile(f"{file}.py"):
        remedy = f"name the file: {file}.py"
    raise UsageError(f"{file!r} is neither a file nor a formula of the library", remedy=remedy)


def _in_folder(folder: Path) -> list[Any]:
    """The formula files of a folder: those that speak of autofn. Others are not executed."""
    from autofn.source import FileSource

    found = []
    for path in sorted(folder.glob("*.py")):
        try:
            if b"autofn" not in path.read_bytes():
                continue
        except OSError:
            pass  # loading says why
        found.append(FileSource(str(path), optional=True))
    if not found:
        raise FormulaError(f"no formula file in {folder}", remedy="autofn new NAME writes one")
    return found


def _shown(path: Path) -> str:
    """Relative to the working directory where it lies in it, as people write it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def _parameter(text: str) -> tuple[str, float | int | None]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not name.isidentifier():
        raise click.BadParameter(f"{text!r}: write NAME=VALUE, b=1.0 say", param_hint="--param")
    if not equals:
        return name, None
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    raise click.BadParameter(f"{value!r} is not a number", param_hint=f"--param {name}")
