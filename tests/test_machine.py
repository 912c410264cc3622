"""Arithmetic of float32 on floats, against numbers of any precision that are rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp

from autofn.rewrite import machine
from autofn.rewrite.formats import DOUBLE, SINGLE, rounded

ANY = st.floats(width=32, allow_nan=False)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


def exactly(value: Any) -> float:
    """A number of any precision in float32."""
    return float(rounded(value, SINGLE))


def as_digits(*values: float) -> list[Any]:
    return [mp.mpf(value) for value in values]


def is_same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def computed(function: Callable[..., Any], *args: Any) -> float:
    """What a function of columns gives."""
    with np.errstate(all="ignore"):
        columns = [arg if callable(arg) else np.array([arg]) for arg in args]
        return float(function(*columns)[0])


def in_single(op: str) -> Callable[..., Any]:
    return lambda *args: machine.single(machine.NATIVE[op](*args))


@given(st.floats(allow_nan=False))
@example(3.4028235677973366e38)
@example(3.4028235677973362e38)
@example(2.0**-150)
@example(2.0**-150 * (1 + 2.0**-52))
def test_single(value: float) -> None:
    assert is_same(computed(machine.single, value), exactly(mp.mpf(value)))


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
@given(ANY, ANY)
def test_operations(op: str, a: float, b: float) -> None:
    with mp.workprec(700):
        x, y = as_digits(a, b)
        try:
            want = {"add": x + y, "sub": x - y, "mul": x * y}.get(op)
            want = exactly(x / y if want is None else want)
        except ZeroDivisionError:
            want = math.nan
        assert is_same(computed(in_single(op), a, b), want)


@given(st.floats(width=32, min_value=0))
def test_roots(a: float) -> None:
    with mp.workprec(700):
        assert computed(in_single("sqrt"), a) == exactly(mp.sqrt(mp.mpf(a)))


@given(FINITE, FINITE, FINITE)
@example(1.0 + 2.0**-23, 1.0 + 2.0**-23, -(2.0**-60))
@example(1.0 + 2.0**-12, 1.0 + 2.0**-12, 2.0**-80)
@example(2.0**-149, 0.5, 2.0**-149)
@example(2.0**-100, 2.0**-50, 2.0**-149)
def test_fma(a: float, b: float, c: float) -> None:
    with mp.workprec(2000):
        x, y, z = as_digits(a, b, c)
        assert is_same(computed(machine.fma, a, b, c), exactly(x * y + z))


@given(FINITE, FINITE)
def test_what_is_lost(a: float, b: float) -> None:
    with mp.workprec(700):
        x, y = as_digits(a, b)
        near = rounded(x + y, SINGLE)
        want = exactly(x + y - near) if mp.isfinite(near) else math.nan
        assert is_same(computed(machine.sum_rest, a, b, machine.single), want)
        near = rounded(x * y, SINGLE)
        want = exactly(x * y - near) if mp.isfinite(near) else math.nan
        assert is_same(computed(machine.product_rest, a, b), want)


@given(st.floats(width=32, min_value=-9, max_value=9), st.lists(FINITE, min_size=1, max_size=6))
def test_polynomials(t: float, terms: list[float]) -> None:
    with mp.workprec(2000):
        value = mp.mpf(terms[0])
        for term in terms[1:]:
            if not mp.isfinite(value):
                return
            value = rounded(value * mp.mpf(t) + mp.mpf(term), SINGLE)
        columns = [np.array([term]) for term in terms]
        assert is_same(computed(lambda t: machine.polynomial(t, columns), t), float(value))


# --- float64 -----------------------------------------------------------------------------------

DOUBLES = st.floats(min_value=-1e30, max_value=1e30)


@given(DOUBLES, DOUBLES, DOUBLES, st.integers(-130, 5))
@example(1.0 + 2.0**-52, 1.0 - 2.0**-52, -1.0, 0)
@example(1.0 + 2.0**-52, 1.0 + 2.0**-52, 2.0**-110, 0)
def test_what_is_known_of_float64(a: float, b: float, c: float, by: int) -> None:
    """c is also made so that the product nearly cancels, or is a tie."""
    for third in (c, -a * b * (1 + 2.0**by), a * b * 2.0**by):
        columns = [np.array([each]) for each in (a, b, third)]
        with np.errstate(all="ignore"):
            value, known = machine.fma_in_double(*columns)
            rest, also = machine.product_rest_in_double(*columns[:2])
        with mp.workprec(2000):
            x, y, z = as_digits(a, b, third)
            if known[0]:
                assert value[0] == float(rounded(x * y + z, DOUBLE))
            if also[0]:
                assert rest[0] == float(x * y - rounded(x * y, DOUBLE))


def test_ordinary_numbers_of_float64_are_known() -> None:
    rng = np.random.default_rng(0)
    a, b, c = rng.standard_normal((3, 100))
    assert machine.fma_in_double(a, b, c)[1].all()
    assert machine.product_rest_in_double(a, b)[1].all()
