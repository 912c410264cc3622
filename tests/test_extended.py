"""Functions in extended precision: where they are decided, they are MPFR's."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from test_ops import OPS, arity

from autofn import precise
from autofn.rewrite import extended, simulate
from autofn.rewrite.formats import DOUBLE, SINGLE, Format

POINTS = 400
SPECIAL = (0.0, 1.0, -1.0, math.inf, -math.inf, math.nan)

pytestmark = pytest.mark.skipif(not extended.AVAILABLE, reason="long double has not 64 bits here")


def drawn(rng: Random, form: Format) -> float:
    """A number of a format: ordinary, of any size, or special."""
    kind = rng.random()
    if kind < 0.05:
        value = rng.choice(SPECIAL)
    elif kind < 0.8:
        width = rng.choice((3.0, 12.0, 120.0, 1200.0))
        value = rng.uniform(-width, width)
    else:
        value = rng.choice((1, -1)) * 10 ** rng.uniform(-45, 38 if form is SINGLE else 300)
    return float(np.float32(value)) if form is SINGLE else value


def arguments(op: str, rng: Random, form: Format) -> list[np.ndarray]:
    columns = [np.array([drawn(rng, form) for _ in range(POINTS)]) for _ in range(arity(OPS[op]))]
    if op.endswith("_of_sum"):  # what the argument before it lost in rounding
        columns[-1] = columns[-2] * np.array([rng.uniform(-1, 1) for _ in range(POINTS)])
        columns[-1] *= 2.0**-form.bits
    if op == "pow_in_parts":
        columns[2:] = [column * 2.0**-form.bits for column in columns[:2]]
    return columns


@pytest.mark.parametrize("op", extended.VALUES)
@pytest.mark.parametrize("form", [SINGLE, DOUBLE], ids=["single", "double"])
def test_decided_as_by_mpfr(op: str, form: Format) -> None:
    rng = Random(f"{op} {form.bits}")
    columns = arguments(op, rng, form)
    turns = np.array([rng.choice((-1, 0, 1)) for _ in range(POINTS)])
    quick = form is DOUBLE and rng.random() < 0.5
    with np.errstate(all="ignore"):
        found, decided = simulate._quickly(op, columns, turns, form, quick)
    assert decided.mean() > 0.15  # erf is left to MPFR near 0, log and powers below
    slowly = simulate._function_of_floats(op, None, form, quick)
    with precise.in_bits(simulate.WORKING):
        for k in np.flatnonzero(decided):
            want = slowly(tuple(float(column[k]) for column in columns))[turns[k]]
            assert found[k] == want or (math.isnan(found[k]) and math.isnan(want)), columns


def test_exact_values_are_not_decided() -> None:
    """A function that is as wrong as it may be is right where it is a number of the format."""
    ones = np.ones(1)
    for op, args in (("pow", [4 * ones, 2 * ones]), ("erfc", [40 * ones]), ("exp", [0 * ones])):
        _, decided = simulate._quickly(op, args, ones, DOUBLE, False)
        assert decided[0] == (op == "erfc")  # which is 0
