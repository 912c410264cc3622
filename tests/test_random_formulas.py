"""Formulas that nobody wrote, against mpmath; and those that once came out wrong."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator

import pytest
import sympy
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import seed as seeded
from random_formulas import check, expressions, is_formula
from sympy import Expr

pytestmark = pytest.mark.usefixtures("pytorch_path")

PARTS = 5
"""So that workers share them."""

COUNT = 50

SECONDS, PATIENCE, FEWEST = 12.0, 5.0, 2
"""Seconds of a part, from which on nothing more is drawn, and of a formula; and how many a part has
at least. A machine that is slow compares fewer."""

LARGEST = 12
"""Operations of those that each run draws; `make fuzz` draws larger ones."""

OVERFLOWS = ("where the true value is finite: hard point", "got inf", "got -inf")
"""What is known to be left: sinh, cosh and exp that overflow inside a function of them, and
PyTorch's own in their last binade."""


class TooSlow(Exception):
    """A formula that takes too long."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    def out_of_time(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, out_of_time)
    # Again and again: what is interrupted may swallow exceptions.
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.5)
    try:
        yield
    except TooSlow:
        assume(False)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("part", range(PARTS))
def test_random_formulas_agree_with_mpmath(part: int) -> None:
    found: set[Expr] = set()
    failures: list[str] = []
    start = time.monotonic()

    @seeded(20261121 + part)
    @settings(
        max_examples=3 * COUNT // PARTS,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(expressions())
    def run(expr: Expr) -> None:
        assume(time.monotonic() - start < SECONDS)
        assume(len(found) < COUNT // PARTS and is_formula(expr) and expr not in found)
        assume(sympy.count_ops(expr) <= LARGEST)
        found.add(expr)
        with limited(PATIENCE):
            wrong = check(expr)
        if wrong and not any(each in wrong for each in OVERFLOWS):
            failures.append(f"{expr}: {wrong}")

    run()
    assert not failures, failures
    assert len(found) >= FEWEST


def test_a_wrong_derivative_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from autofn import derive

    right = derive.Differentiator._partial

    def wrong(self: derive.Differentiator, expr: Expr, symbol: sympy.Symbol) -> Expr:
        found = right(self, expr, symbol)
        return 2 * found if isinstance(expr, sympy.sin) else found

    monkeypatch.setattr(derive.Differentiator, "_partial", wrong)
    assert "gradients" in check(sympy.sin(sympy.Symbol("x", real=True)) ** 2)
