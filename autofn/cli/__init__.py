"""The command line: the group, and how every kind of error ends the process.

Exit codes: 0 fine, 1 drift under `gen --check`, 2 usage or formula error, 3 verification failed,
70 a defect of autofn, 130 Ctrl-C. Heavy modules are imported by the commands that need them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import click

import autofn
from autofn.cli.bench import bench
from autofn.cli.build import build
from autofn.cli.doctor import doctor
from autofn.cli.gen import gen
from autofn.cli.library import list_library
from autofn.cli.new import new
from autofn.cli.plot import plot
from autofn.cli.report import report
from autofn.cli.show import show
from autofn.cli.verify import verify
from autofn.errors import AutofnError

INTERRUPTED = 130


class _Cli(click.Group):
    """A group whose every failure is a message and an exit code, never a traceback."""

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
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except AutofnError as error:
        show_error(error)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted: what was written before is whole", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # Nobody reads any more; the interpreter must not complain when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        show_internal(f"internal error: {type(error).__name__}: {error}", traceback.format_exc())
        return 70


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


@click.group(cls=_Cli, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(autofn.__version__, prog_name="autofn")
def cli() -> None:
    """From a SymPy formula to a verified PyTorch op with its kernels.

    \b
    autofn new swish2           write a commented formula file
    autofn gen swish2.py        generate and verify generated/swish2
    autofn gen mish             the same for a formula of the library
    """


for command in (gen, verify, show, list_library, new, bench, build, doctor, report, plot):
    cli.add_command(command)


def main() -> None:
    """The console script."""
    cli(prog_name="autofn")
