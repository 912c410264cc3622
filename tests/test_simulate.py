"""Simulated arithmetic is that of a machine."""

from __future__ import annotations

import pytest
from derivations import VALUES, program_of, single
from mpmath import mp
from sympy import exp

from autofn import functions as heads
from autofn.program import ELEMENT, Input, Result, lower
from autofn.rewrite.formats import rounded
from autofn.rewrite.judge import error, sampled
from autofn.rewrite.rule import U, V
from autofn.rewrite.simulate import simulated


@pytest.mark.parametrize(
    "number",
    [0.0, 1.0, 0.1, -1 / 3, 1e-40, -3e-45, 1e-45, 7e-46, 2.0**-150, 1.5 * 2.0**-150, 1.17549431e-38,
     3.4028234e38, 123456789.0, 16777217.0],
)  # fmt: skip
def test_rounding_is_that_of_float32(number: float) -> None:
    assert float(rounded(mp.mpf(number))) == single(number)


def test_what_is_beyond_float32_is_infinite() -> None:
    assert rounded(mp.mpf("3.5e38")) == mp.inf
    assert rounded(mp.mpf("-1e300")) == -mp.inf


def test_sums_products_and_quotients_are_those_of_a_machine() -> None:
    import torch

    inputs = [(s, Input(s.name, frozenset({ELEMENT}))) for s in (U, V)]
    program = lower(inputs, [Result("y", (U * V + U) / (V**2 + 3) - V)])
    generator = torch.Generator().manual_seed(1)
    for a, b in torch.randn(50, 2, generator=generator).tolist():
        u, v = torch.tensor(a), torch.tensor(b)
        (got,) = simulated(program, {"U": float(u), "V": float(v)})
        terms = {"U*V + U": u * v + u, "3 + V**2": v * v + 3}
        assert float(got) == float(terms["U*V + U"] / terms["3 + V**2"] - v)


def test_errors_are_the_same_in_every_process() -> None:
    program = program_of(heads.sigmoid(U) * exp(U))
    points = [{"U": single(v), "V": 1.0, "C": 1.0} for v in VALUES]
    sample = sampled(program, points, frozenset({"U"}))
    errors = {error(program, sample) for _ in range(3)}
    assert len(errors) == 1 and 0.5 < errors.pop().ulp < 10
