"""The command line: the group, and how every kind of error ends the process.

Exit codes: 0 fine, 1 drift under `gen --check`, 2 usage or formula error, 3 verification failed,
70 a defect of autofn, 130 Ctrl-C. Heavy modules are imported by the commands that need them.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import click

import autofn
from autofn.cli.bench import bench
from autofn.cli.build import build
from autofn.cli.doctor import doctor
from autofn.cli.explain import explain
from autofn.cli.gen import gen
from autofn.cli.init import init
from autofn.cli.library import list_library
from autofn.cli.new import new
from autofn.cli.plot import plot
from autofn.cli.report import report
from autofn.cli.show import show
from autofn.cli.verify import verify
from autofn.errors import AutofnError, UsageError, interrupted
from autofn.suggest import close

INTERRUPTED = 130


class _Cli(click.Group):
    """A group whose every failure is a message and an exit code, never a traceback."""

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        if self.get_command(context, name) is None and not name.startswith("-"):
            meant = close(name, self.commands)
            remedy = f"did you mean {meant}? " if meant else ""
            raise UsageError(f"no such command: {name}", remedy=f"{remedy}autofn --help shows all")
        return super().resolve_command(context, arguments)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        # A formula may be called β where the terminal knows ASCII only.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError):
                stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        # PyTorch's, wherever NumPy is not installed: nothing here needs it.
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        run = partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        with _terminable() if standalone_mode else contextlib.nullcontext():
            code = _exit_code(run)
        if standalone_mode:
            sys.exit(code)
        return code


def _exit_code(command: Callable[[], Any]) -> int:
    from autofn.cli.console import show_error, show_internal

    try:
        code = command()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        show_error(_as_usage(error))
        return error.exit_code
    except AutofnError as error:
        show_error(error)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return _interrupted()
    except BrokenPipeError:
        # Nobody reads any more; the interpreter must not complain when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if interrupted(error):
            return _interrupted()
        show_internal(f"internal error: {type(error).__name__}: {error}", traceback.format_exc())
        return 70


def _interrupted() -> int:
    click.echo("interrupted: what was written before is whole", err=True)
    return INTERRUPTED


def _as_usage(error: click.ClickException) -> UsageError:
    """click's own errors in the words of all others."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    remedy = f"{context.command_path if context else 'autofn'} --help shows all"
    what = error.format_message()
    if isinstance(error, click.NoSuchOption):
        what = f"no such option: {error.option_name}"
        options = context.command.params if context else []
        meant = close(error.option_name, (name for each in options for name in each.opts))
        remedy = f"did you mean {meant}? {remedy}" if meant else remedy
    return UsageError(what[:1].lower() + what[1:].rstrip("."), remedy=remedy)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM unwinds as Ctrl-C does, so that children end and temporary folders go."""

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.group("autofn", cls=_Cli, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(autofn.__version__, prog_name="autofn")
def cli() -> None:
    """From a SymPy formula to a verified PyTorch op with its kernels.

    \b
    autofn new swish2           write a commented formula file
    autofn gen swish2.py        generate and verify generated/swish2
    autofn gen mish             the same for a formula of the library
    autofn init                 set up a project: settings, commit hook, CI
    """


for command in (
    gen, verify, show, report, plot, list_library, new, init, bench, build, doctor, explain,
):  # fmt: skip
    cli.add_command(command)


def main() -> None:
    """The console script."""
    # A search makes many expressions and keeps most: to look for dead ones takes a tenth of it.
    gc.set_threshold(100_000, 50, 50)
    cli(prog_name="autofn")
