"""Sines of pi*x/y: found in formulas, and right however large x is."""

from __future__ import annotations

import ctypes
import math

import mpmath
import pytest
import sympy
import torch
from sympy import Integer, Rational, Symbol, cos, pi, sin, sqrt, tan
from test_ops import OPS, exact, library, torch_value  # noqa: F401  (a fixture)

from autofn import formula
from autofn import functions as heads
from autofn.functions import cospi, sincpi, sinpi, spherical_bessel_pi
from autofn.plan import kernels, plan
from autofn.rewrite.half_turns import in_half_turns

x, y, n = (Symbol(name, real=True) for name in "xyn")
TENSORS = frozenset({x, y})

FOUND = {
    sin(pi * x): sinpi(x, 1),
    cos(2 * pi * x): cospi(x, Rational(1, 2)),
    sin(pi * x / 3) * y: sinpi(x, 3) * y,
    sin(6 * pi * x / 5): sinpi(3 * x, Rational(5, 2)),
    cos(2 * pi * n * x / y): cospi(n * x, y / 2),
    sin(pi * x / (3 * n)): sinpi(x / 3, n),
    sin(pi * (x + y) / 3): sinpi(x + y, 3),
    sin(pi * x + pi * y / 3): sinpi(3 * x + y, 3),
    tan(pi * x / 2): sinpi(x, 2) / cospi(x, 2),
    heads.sinc(pi * n * x): sincpi(n * x, 1),
    heads.spherical_bessel(Integer(2), pi * x / n): spherical_bessel_pi(2, x, n),
    cos(pi / x): cospi(1, x),
}


@pytest.mark.parametrize("written", FOUND, ids=str)
def test_found(written: sympy.Expr) -> None:
    found = in_half_turns(written, TENSORS)
    assert found == FOUND[written]
    at = {x: Rational(37, 10), y: Rational(-13, 10), n: Rational(17, 10)}
    with mpmath.workdps(30):
        assert abs(complex((found.doit().xreplace(at) - written.xreplace(at)).evalf(25))) < 1e-20


@pytest.mark.parametrize(
    "written",
    [
        sin(x),
        sin(pi * x + y),
        sin(sqrt(2) * pi * x),
        sin(pi**2 * x),
        sin(sympy.Float("1.1") * pi * x),
        sin(pi * n),  # no tensor
    ],
    ids=str,
)
def test_left(written: sympy.Expr) -> None:
    assert in_half_turns(written, TENSORS) == written


def test_pytorch_has_those_that_need_no_remainder() -> None:
    both = sin(2 * pi * x) + cos(pi * x / n) + sin(pi * x / 3)
    found = in_half_turns(both, TENSORS, by_powers_of_two=True)
    assert found == sinpi(x, Rational(1, 2)) + cos(pi * x / n) + sin(pi * x / 3)


LARGE = (0.25, 3.0, -7.5, 1023.5, 2.0**21 + 0.5, -(2.0**23) + 1, 2.0**24 + 2, 1.1e10, -3e25, 3e38)
PERIODS = (1.0, 0.5, 3.0, 5.0, -1.375, 2.0**-40)


@pytest.mark.parametrize("kind", ["double", "float"])
@pytest.mark.parametrize("name", ["sinpi", "cospi", "sincpi"])
def test_exact_at_any_size(library: ctypes.CDLL, name: str, kind: str) -> None:  # noqa: F811
    """Roots are 0, and other values right, where pi*x/y has no digit of its turns left."""
    function = library[f"{name}_{kind}"]
    function.restype = ctypes.c_double
    for a in LARGE:
        for b in PERIODS:
            a = ctypes.c_float(a).value
            got = function((ctypes.c_double * 3)(a, b, 0.0))
            want = exact(OPS[name], None, (a, b))
            tolerance = 5 * abs(want) * (2.0**-53 if kind == "double" else 2.0**-24)
            assert abs(got - want) <= tolerance + 2.0**-150, (a, b)


@pytest.mark.parametrize("kind", ["double", "float"])
def test_what_a_large_argument_lost(library: ctypes.CDLL, kind: str) -> None:  # noqa: F811
    """It may be many turns itself."""
    function = library[f"sinpi_of_sum_{kind}"]
    function.restype = ctypes.c_double
    for a, rest in ((2.0**30, 2.5), (2.0**30, 1.25), (1.5 * 2.0**60, -7.25), (9.0, 2.0**-30)):
        for b in (1.0, 3.0, 7.0, 0.375):
            got = function((ctypes.c_double * 3)(a, b, rest))
            with mpmath.workdps(60):
                want = float(mpmath.sinpi((mpmath.mpf(a) + mpmath.mpf(rest)) / b))
            assert got == pytest.approx(want, rel=1e-6 if kind == "float" else 1e-14), (a, b, rest)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["sinpi", "cospi", "sincpi"])
def test_pytorch_at_any_size(name: str, dtype: torch.dtype) -> None:
    pairs = [(a, b) for a in LARGE for b in (1.0, 0.5, 2.0)]
    columns = [torch.tensor(each, dtype=dtype) for each in zip(*pairs, strict=True)]
    got = torch_value(OPS[name], None, columns)
    args = zip(*(column.tolist() for column in columns), strict=True)
    want = torch.tensor([exact(OPS[name], None, each) for each in args], dtype=torch.float64)
    torch.testing.assert_close(
        got.double(), want, rtol=8 * torch.finfo(dtype).eps, atol=0.0 if name == "sinpi" else 1e-30
    )


def test_derivatives_by_autograd() -> None:
    """Of any order, as those of sin(pi x / y): third ones are had so."""
    at = torch.tensor([0.0, 0.3, -1.7, 12.2], dtype=torch.float64, requires_grad=True)
    period = 0.5
    for name, plainly in (("sinpi", torch.sin), ("cospi", torch.cos)):
        got, want = (
            torch_value(OPS[name], None, [at, period]),
            plainly(math.pi * at / period),
        )
        for _ in range(3):
            torch.testing.assert_close(got, want)
            got, want = (
                torch.autograd.grad(each.sum(), at, create_graph=True)[0] for each in (got, want)
            )


def test_a_program_has_nothing_else() -> None:
    @formula
    def wave(t, period: float = 3.0):  # type: ignore[no-untyped-def]
        return sin(2 * pi * t / period)

    for kernel, program in kernels(plan(wave.definition)):
        ops = {node.op for node in program.nodes}
        assert ops & {"sinpi", "cospi"} and not ops & {"sin", "cos"}, kernel.pass_name
        assert program.arithmetic == "single", kernel.pass_name


def test_quarters_of_turns() -> None:
    @formula
    def quarters(x, y):  # type: ignore[no-untyped-def]
        return cos(pi * x / 2 + pi * y / 4)

    for kernel, program in kernels(plan(quarters.definition)):
        ops = {node.op.removesuffix("_of_sum") for node in program.nodes}
        assert ops & {"sinpi", "cospi"}, kernel.pass_name


def test_a_raised_cosine_does_not_cancel() -> None:
    @formula
    def cutoff(r, c: float = 5.0):  # type: ignore[no-untyped-def]
        return (1 + cos(pi * r / c)) / 2

    (forward,) = [p for k, p in kernels(plan(cutoff.definition)) if k.pass_name == "forward"]
    assert {node.op for node in forward.nodes} >= {"cospi", "square"}
    assert forward.arithmetic == "single" and forward.wide is None


@pytest.mark.parametrize("kind", ["double", "float"])
def test_sinc_of_tiny_numbers(library: ctypes.CDLL, kind: str) -> None:  # noqa: F811
    """1, also where pi*x/y is a subnormal number of few digits, or 0."""
    function = library[f"sincpi_{kind}"]
    function.restype = ctypes.c_double
    for a in (0.0, 1e-300, 1.4e-45, 5.6e-45, -1e-40, 1e-20, -1e-9):
        assert function((ctypes.c_double * 3)(a, 5.0, 0.0)) == pytest.approx(1.0, abs=1e-15)
