"""The pipeline from a traced formula to its package: derive, lower and plan, then emit."""

from __future__ import annotations

from autofn.emit import emit
from autofn.explain import Explanation, explain
from autofn.model import Definition
from autofn.package import Package
from autofn.passes import PASSES
from autofn.plan import plan

__all__ = ["Explanation", "explain", "generate"]


def generate(
    definition: Definition,
    targets: tuple[str, ...] = (),
    *,
    tests: bool = False,
    search: bool = True,
) -> Package:
    """The package of a definition, not yet verified or written.

    targets: what it has beside Python: "cpp"; with `tests`, tests of its own. search: for the best
    kernels, which takes seconds; a draft does without.
    Raises FormulaError where the formula cannot be generated.
    """
    return emit(plan(definition, search=PASSES if search else ()), targets, tests=tests)
