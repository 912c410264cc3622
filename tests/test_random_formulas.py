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
from sympy import Expr, Piecewise

from autofn import functions

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
    late = done = False

    def out_of_time(*_: object) -> None:
        nonlocal late
        late = True
        if not done:
            raise TooSlow

    before = signal.signal(signal.SIGALRM, out_of_time)
    # Again and again: what is interrupted may swallow exceptions.
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.5)
    try:
        try:
            yield
        finally:
            done = True
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    except Exception:
        # TooSlow, or what a build that it interrupted made of it.
        if not late:
            raise
        assume(False)


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


x, y, alpha = sympy.symbols("x y alpha", real=True)

ONCE_WRONG = {
    # steps of a sine are the same at a few points far out
    "step of a sine": sympy.Heaviside(sympy.sin(2 * x + 6), 0),
    "as good as constant but near the zeros of a sine":
        functions.sinc(sympy.tanh(sympy.sinh(x * sympy.sin(x)))),
    # torch.sinh and torch.cosh overflow 0.7 too early
    "sinh in its last binade": sympy.sinh(x) - 2 * x,
    "cosh in its last binade": sympy.cosh(y + 1),
    # 0 times an overflowing function
    "normcdf of cosh": functions.normcdf(sympy.cosh(x)),
    "normcdf of cosh of a multiple": functions.normcdf(sympy.cosh(2 * alpha * x)),
    "tanh of sinh in a sum": y * sympy.tanh(sympy.sinh(x)) + x,
    "deep": sympy.tanh(sympy.sech(sympy.sinh(sympy.tanh(sympy.sinh(x))))),
    # roots of sums of exponentials
    "asinh of exp": sympy.asinh(sympy.exp(y)),
    "root of 1 + exp": 1 / sympy.sqrt(1 + sympy.exp(-x)),
    "log of u + root": sympy.log(x + sympy.sqrt(x**2 + 1)),
    "quotients near 1": sympy.log((1 + sympy.tanh(x)) / (1 - sympy.tanh(x))),
    "softplus - softplus": y * functions.softplus(x) - y * functions.softplus(-x) + sympy.tanh(x),
    # what cancels near 0
    "exp - 1 - u": (x**2 + sympy.exp(y) - y - 1) / 2,
    "log(1 + u) - u": sympy.log(1 + x**2) - x**2,
    "power of 1 + u, less 1": ((1 + x**2) ** alpha - 1) / alpha,
    "root of 1 + u, less 1": sympy.sqrt(1 + sympy.exp(x) + y**2) - 1,
    "1 less a cube": 1 - (1 - x**2) ** 3,
    "exp over a sum of two": sympy.exp(x) / (sympy.exp(x) + sympy.exp(y)),
    "1 - 2 sigmoid": x * (2 * functions.sigmoid(y) - 1),
    "slope of (exp(c*u) - 1) / c": (sympy.exp(alpha * x) - 1) / alpha,
    # 0 / 0 at 0, of a multiple by a run-time number
    "erf of a multiple over x": sympy.erf(alpha * x) / x,
    "coth of a multiple less its pole": sympy.coth(alpha * x) - 1 / (alpha * x),
    "x over exp of a multiple less 1": x / (sympy.exp(alpha * x) - 1),
    # mpmath takes a step for each integer below zero
    "loggamma": sympy.loggamma(x**2 + 1) + sympy.loggamma(x + 90),
    # numbers known at run time in place of tensors
    "times exp of a number": sympy.sinh(x * sympy.exp(alpha)),
    "log of exp + exp of a number": sympy.log(sympy.exp(x) + sympy.exp(alpha)),
    "an input or a number": Piecewise((x, alpha > -1), (alpha, True)),
    # one of the numbers that stood for four cosines was 0: their product seemed constant
    "four sines": sympy.sin(sympy.sin(sympy.sin(sympy.sin(x)))),
    # SymPy's sinc, as equal to the head as their hashes
    "function of a kink of a sinc": sympy.tanh(abs(sympy.sinc(x + sympy.Rational(1, 2)))),
    # a number added before cosh is rounded to the coarser numbers past a power of two
    "cosh of a sum": sympy.cosh(y - 2) + sympy.erfc(x + 1),
    # a shared number, of which a root was taken at run time
    "root of a number": sympy.sqrt(1 + (3 + 27 * sympy.sqrt(2) / 4) ** 2) * (1 - 2 * sympy.erf(y)),
    # x cosh(root) overflows before it is divided by the root
    "sinh of a root": sympy.sinh(sympy.sqrt(x**2 + 1)),
    "function of an input or a number": sympy.erfc(Piecewise((x, alpha > 1), (2, True))),
    # mpmath makes an integer of the argument, and PyTorch's zeta is 0 where that to the -2 is
    "digamma of huge numbers": sympy.polygamma(
        0, functions.expm1(y + sympy.polygamma(0, y**2 + sympy.Rational(1, 2)))**2 + 1
    ),
    "trigamma of large numbers": sympy.polygamma(1, sympy.exp(x)),
    # roundings of the argument decide the result, and whether it is infinite in 16 bits
    "sines of loggamma": sympy.cosh(
        sympy.sin(sympy.sin(sympy.sin(sympy.loggamma(x**2 + sympy.Rational(1, 2)))))
    ),
    "sine of expm1": 3 * sympy.sin(functions.expm1(x)),
    "steep at a step": sympy.cosh((x**2 + sympy.Rational(1, 2)) ** sympy.Rational(27, 2))
        * sympy.sqrt(1 + Piecewise((2, x > -sympy.Rational(3, 4)), (1, True))),
    # SymPy turns the sides of asin(..) > x - 2*alpha round without end
    "sides of a comparison": sympy.erfc(
        sympy.erfc(sympy.Max(x, x - 2 * alpha, sympy.asin(sympy.tanh(alpha) / 2)))
    ),
    # Internal errors, and searches that did not end
    "logarithm of a multiple of branches": sympy.log(
        2 * Piecewise((x + 1, x > 1), (2 - 1 / (x**2 + 1), True))
    ),
    "the lesser of a number and a pole": sympy.asin(
        sympy.tanh(sympy.Min(2, 1 / (x**2 + sympy.Rational(1, 2)))) / 2
    ),
    "bounds instead of a number": 1 / (sympy.atan(
        1 / (sympy.sin(x) ** 2 + sympy.Rational(1, 2))
    ) ** 2 + sympy.Rational(1, 2)),
    "an essential singularity": sympy.atan(x) + 1 / (
        sympy.sech(sympy.polygamma(0, x**2 + sympy.Rational(1, 2))) ** 2 + 1
    ),
    # gmpy2's floor is an integer, which mpmath took to 53 bits
    "floor in a choice": sympy.cosh(
        sympy.Min(
            sympy.acos(sympy.tanh(sympy.cos(x)) / 2), sympy.asin(sympy.tanh(sympy.floor(x)) / 2)
        )
    ),
    # SymPy makes a condition of a piece within a condition
    "choice among conditions": sympy.Max(
        0, (sympy.Min(1, x) - 2 * sympy.atanh(sympy.tanh(x) / 2)) * sympy.asin(sympy.tanh(y) / 2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("expr", ONCE_WRONG.values(), ids=ONCE_WRONG)
def test_what_was_wrong_once_is_right(expr: Expr) -> None:
    assert check(expr, search=False) == ""


def test_a_deep_composition_has_kernels() -> None:
    assert check(sympy.sech(sympy.sinh(sympy.tanh(sympy.sinh(x))))) == ""


def test_a_wrong_derivative_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from autofn import derive

    right = derive.Differentiator._partial

    def wrong(self: derive.Differentiator, expr: Expr, symbol: sympy.Symbol) -> Expr:
        found = right(self, expr, symbol)
        return 2 * found if isinstance(expr, sympy.sin) else found

    monkeypatch.setattr(derive.Differentiator, "_partial", wrong)
    assert "gradients" in check(sympy.sin(sympy.Symbol("x", real=True)) ** 2)
