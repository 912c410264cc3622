"""Verification of a generated package: every backend that can run here, check by check.

The parent (`run`) writes the package to a temporary folder, starts the compilers (`host`, `nvcc`)
and a worker (`process`, `worker`), and sends it points and their truth (`tables`, `oracle`); the
worker alone imports torch and runs the `checks` on one backend after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from autofn.verify.job import DTYPES, Level
from autofn.verify.report import Report, Row

if TYPE_CHECKING:
    from autofn.model import Definition
    from autofn.package import Package

__all__ = ["DTYPES", "Report", "Row", "verify_package"]


def verify_package(
    package: Package,
    definition: Definition,
    *,
    level: Level = "quick",
    dtypes: Sequence[str] = DTYPES,
    on_row: Callable[[Row], None] | None = None,
    without: Collection[str] = (),
) -> Report:
    """Checks a package as generated, in a temporary folder and in processes of its own.

    Values and gradients are compared with mpmath in float64 and in `dtypes`. `on_row` is called
    with each row as it comes, from any thread. What could not run says why and does not count as
    passed; a crash, a sanitizer's report and a time-out are failures. `without`: the kernels that
    are not looked at, "CPU kernel", "CUDA kernel on host" or "CUDA kernel on GPU".
    """
    # Here, so that the worker, which imports this package too, does without SymPy.
    from autofn.verify.run import run_checks

    return run_checks(package, definition, level, dtypes, on_row, without)
