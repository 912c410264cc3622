"""`autofn verify`: the verification of packages that exist, or of formulas as generated now."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from autofn import project
from autofn.cli.console import Watch, show_certificate, show_error, show_report, summary
from autofn.cli.gen import FAILED, gravest
from autofn.cli.sources import jobs_option, output_option, resolve, timeout_option
from autofn.errors import UsageError
from autofn.verify.job import DTYPES

if TYPE_CHECKING:
    from autofn.cli.actions import Verified


@click.command()
@click.argument("files", nargs=-1, metavar="FILE|NAME...")
@output_option
@click.option("--full", is_flag=True, help="Every check at every hard point, and the certificate.")
@click.option("--json", "json_file", metavar="FILE", help="Write the findings as JSON.")
@jobs_option("Files")
@timeout_option
@click.option("-q", "--quiet", is_flag=True, help="Print failures only.")
@click.pass_context
def verify(
    context: click.Context,
    files: tuple[str, ...],
    output: str,
    full: bool,
    json_file: str | None,
    jobs: int,
    timeout: float,
    quiet: bool,
) -> int:
    """Verify generated packages against their formulas.

    The package in DIR is verified as it stands, edits included; a formula that has none there is
    generated for the purpose, unless DIR was given. With --full a certificate is made too: errors
    in ULP against mpmath, per dtype and backend, beside the package as DIR/NAME.certificate.json.
    Exit code 3 if a verification failed, or a formula is past the budget that it states.
    """
    sources, errors = resolve(files, None, None, ())
    from autofn.verify import nursery

    codes: set[int] = set()
    for error in errors:
        show_error(error)
        codes.add(error.exit_code)
    fresh = context.get_parameter_source("output") is ParameterSource.DEFAULT
    found = project.find()
    budgets = dict(found.budgets) if found else {}
    dtypes = found.dtypes if found else DTYPES
    written: list[dict[str, Any]] = []
    with Watch(len(sources), quiet=quiet) as watch, nursery.opened():
        nursery.prepare()
        from autofn import isolate, pipeline  # noqa: F401  (once, before processes fork)
        from autofn.cli.actions import Verify

        action = Verify(output, "full" if full else "quick", fresh, budgets, dtypes)
        outcomes = isolate.run(sources, action, workers=jobs, timeout=timeout, watch=watch)
        with contextlib.closing(outcomes):
            for outcome in outcomes:
                watch.clear()
                if outcome.error is not None:
                    show_error(outcome.error)
                    codes.add(outcome.error.exit_code)
                    continue
                verified: Verified = outcome.value
                report = verified.report
                if not report.ok or verified.beyond:
                    codes.add(FAILED)
                if not (quiet and report.ok):
                    title = f"{report.name} ({verified.what}): {summary(report, dtypes)}"
                    show_report(report, title=title, failures_only=quiet)
                written.append(_as_data(verified))
                if verified.certificate is not None:
                    if not quiet or verified.beyond:
                        show_certificate(verified.certificate, verified.beyond)
                    folder = Path(output)
                    if (folder / report.name).is_dir():
                        _write(folder / f"{report.name}.certificate.json", written[-1])
    if json_file is not None:
        _write(Path(json_file), written)
    return gravest(codes)


def _as_data(verified: Verified) -> dict[str, Any]:
    """Plain data of a verification, and of its certificate if there is one."""
    certificate = verified.certificate
    return {
        "name": verified.report.name,
        "verified": [dataclasses.asdict(row) for row in verified.report.rows],
        "certificate": None if certificate is None else certificate.to_json(),
        "beyond budget": list(verified.beyond),
    }


def _write(path: Path, data: Any) -> None:
    try:
        path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}", remedy="name a file in a folder of yours"
        ) from None
