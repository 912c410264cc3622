"""What the commands print: errors, verification tables, progress.

Colour and progress appear on terminals only; NO_COLOR is honoured. rich is imported on first use.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autofn.errors import AutofnError, InternalError
from autofn.verify.job import DTYPES

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from autofn.certificate.model import Certificate
    from autofn.install import Drift
    from autofn.isolate import Progress
    from autofn.verify.report import Report

_STYLES = {"passed": "green", "failed": "bold red", "not run": "yellow"}

_WIDEST = 120
"""Columns of a source line that are shown where no terminal says how many it has."""

_PATIENCE = 1.0
"""Seconds before progress is shown: what is quicker needs none."""


def console(*, stderr: bool = False) -> Console:
    """A console on the stream as it is now; lines are never cut where no terminal cuts them."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream,
        width=None if stream.isatty() else 1_000,
        # NO_COLOR alone would leave bold type.
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
        markup=False,
        emoji=False,
    )


def say(text: str, style: str | None = None) -> None:
    """A line on stdout."""
    console().print(text, style=style, soft_wrap=True)


def show_table(table: Table) -> None:
    """A table on stdout; a file gets no padding."""
    target = console()
    if target.is_terminal:
        target.print(table)
        return
    with target.capture() as captured:
        target.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def show_error(error: AutofnError) -> None:
    """What, where, remedy, on stderr, after what stdout has to say already."""
    sys.stdout.flush()
    if isinstance(error, InternalError):
        place = f"{error.where}: " if error.where else ""
        show_internal(f"{place}{error.what}", error.trace)
        return
    from rich.text import Text

    text = Text()
    text.append("error: ", "bold red")
    if error.where:
        text.append(f"{error.where}: ", "bold")
    text.append(error.what)
    target = console(stderr=True)
    if error.where is not None:
        from autofn.cli.snippet import snippet

        text.append(snippet(error.where, min(target.width, _WIDEST)))
    if error.remedy:
        text.append("\n  remedy: ", "cyan")
        text.append(error.remedy)
    text.append("\n  more: ", "cyan")
    text.append(f"autofn explain {error.kind} (docs/errors.md#{error.kind})", "dim")
    target.print(text, soft_wrap=True)


def show_internal(what: str, trace: str) -> None:
    """A defect of autofn: one line, or the traceback under AUTOFN_DEBUG=1."""
    if os.environ.get("AUTOFN_DEBUG", "0") not in ("", "0"):
        print(trace, file=sys.stderr)
    first = what.splitlines()[0] if what else "internal error"
    print(f"{first}; please report it (AUTOFN_DEBUG=1 shows the traceback)", file=sys.stderr)


def show_report(report: Report, *, title: str | None = None, failures_only: bool = False) -> None:
    """The verification table: one row per backend and check."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    frame = box.SIMPLE_HEAD if sys.stdout.isatty() else None
    table = Table(title=title or report.name, title_justify="left", box=frame, pad_edge=False)
    for heading in ("backend", "check", "result"):
        table.add_column(heading, no_wrap=True)
    table.add_column("detail", overflow="fold")
    backend = None
    for row in report.failures if failures_only else report.rows:
        table.add_row(
            Text("" if row.backend == backend else row.backend),
            Text(row.check),
            Text(row.status, _STYLES[row.status]),
            Text(row.detail),
        )
        backend = row.backend
    show_table(table)


def show_certificate(certificate: Certificate, beyond: Sequence[str]) -> None:
    """Errors in ULP, a row per quantity, dtype and backend; then what misses its bar or budget."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    frame = box.SIMPLE_HEAD if sys.stdout.isatty() else None
    title = f"{certificate.name}: errors in ULP, away from roots"
    table = Table(title=title, title_justify="left", box=frame, pad_edge=False)
    for heading in ("backend", "dtype", "of"):
        table.add_column(heading, no_wrap=True)
    for heading in ("points", "largest", "99.9 %", "bar"):
        table.add_column(heading, no_wrap=True, justify="right")
    table.add_column("largest at", overflow="fold")
    for each in certificate.findings:
        where = each.bad_at if each.bad else each.worst
        point = ", ".join(f"{name}={value:.6g}" for name, value in where.point) if where else ""
        largest = f"{each.bad} not finite" if each.bad else f"{each.max_ulp:.3g}"
        table.add_row(
            each.backend,
            each.dtype,
            each.entry,
            str(each.points),
            Text(largest, "green" if each.ok else "yellow"),
            f"{each.p999:.3g}",
            f"{each.bar:g}",
            point,
        )
    show_table(table)
    wrong = [limit for limit in certificate.limits if not limit.ok]
    say(f"limits at infinity: {len(certificate.limits) - len(wrong)} right, {len(wrong)} wrong")
    for limit in wrong:
        place = f"{limit.backend}, {limit.dtype}, {limit.entry} at {limit.at}"
        say(f"  {place}: {limit.got:.6g}, not {limit.truth:.6g}", "yellow")
    if certificate.own:
        say(f"equals {' and '.join(certificate.own)}: PyTorch's own in the table")
    for line in certificate.not_run:
        say(f"not run: {line}", "yellow")
    for line in beyond:
        say(f"past the formula's budget: {line}", "red")


def show_drift(drift: Drift) -> None:
    """A difference that `gen --check` found."""
    if drift.kind != "edited":
        say(f"{drift.kind}: {drift.detail}", "yellow")
        return
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in drift.detail.splitlines():
        say(line, colours.get(line[:1]))


def summary(report: Report, dtypes: Sequence[str] = DTYPES) -> str:
    """`12 passed, 1 not run`, and in which dtypes if not in all."""
    counts = dict.fromkeys(_STYLES, 0)
    for row in report.rows:
        counts[row.status] += 1
    text = ", ".join(f"{n} {status}" for status, n in counts.items() if n) or "nothing checked"
    return text if set(dtypes) == set(DTYPES) else f"{text} ({', '.join(dtypes)})"


class Watch:
    """Progress on stderr: a line per running formula. Clear it before printing anything."""

    def __init__(self, total: int, *, quiet: bool) -> None:
        self.total = total
        self.shown = sys.stderr.isatty() and not quiet and os.environ.get("TERM") != "dumb"
        self.begun = time.monotonic()
        self.live: Live | None = None

    def __call__(self, done: int, running: Sequence[Progress]) -> None:
        if not self.shown or time.monotonic() - self.begun < _PATIENCE:
            return
        if self.live is None:
            from rich.live import Live

            # No thread of its own: processes are forked from this one.
            self.live = Live(
                console=console(stderr=True),
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self.live.start()
        self.live.update(self._lines(done, running), refresh=True)

    def clear(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()

    def _lines(self, done: int, running: Sequence[Progress]) -> Any:
        from rich.text import Text

        text = Text()
        if self.total > 1:
            width = 30
            filled = width * done // self.total
            text.append("━" * filled, "green").append("━" * (width - filled), "bright_black")
            text.append(f" {done}/{self.total}\n")
        for each in running:
            text.append(f"{each.label} ", "bold").append(each.doing)
            text.append(f" {each.seconds:.0f} s\n", "bright_black")
        text.rstrip()
        return text
