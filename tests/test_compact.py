"""Common factors and reduced fractions, and where they are not looked for."""

import sympy

from autofn import functions as heads
from autofn.compact import TERMS, compact, factored

X, M, L, S, A, B = sympy.symbols("x mu lam sigma _s0 _s1", real=True)


def test_factors_and_one_fraction() -> None:
    assert compact(X**2 + 2 * X * M + M**2) == (X + M) ** 2
    assert compact(1 / (X + M) - X / (X + M) ** 2) == M / (X + M) ** 2


def test_long_polynomials_are_not_factored() -> None:
    """SymPy may take minutes for the factors: it is of an exponentially modified Gaussian."""
    shift = L * S**2 + M - X
    below = 2 * A * S**4 * shift**2 + 2 * B * S**6 + S**2 * shift**4
    top = -below - L * S**2 * shift**5 - M * shift**5 + X * shift**5
    assert len(sympy.expand(top).args) > TERMS
    fraction = top / shift**5
    assert factored(fraction) == sympy.together(fraction)
    assert factored(shift**200 - 1) == sympy.together(shift**200 - 1)


def test_no_logarithm_is_left_alone_in_a_divisor() -> None:
    product = heads.xlogy(A, B)
    for expr in (
        A * (X + product) / (X - product) + (X + product) / (B + 1),
        (X + product) * (A + 1) / (X + product + 1) ** 2 + (A + 1) / (X + product + 1),
    ):
        functions = compact(expr).atoms(sympy.Function)
        assert functions and all(isinstance(each, heads.xlogy) for each in functions)
