"""What the PyTorch path computes in graphs in another way than eager: values and derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch import Tensor, func
from torch.utils import _pytree

from autofn.backends import pytorch
from autofn.functions import sigmoid, softplus, times_exp
from autofn.program import ELEMENT, Input, Result, lower
from generated.quadratic_terms import QuadraticTerms
from generated.tanh_exp import tanh_exp
from generated.tanhshrink import tanhshrink
from generated.two_outputs import two_outputs

Unary = Callable[[Tensor], Any]

EDGES = [0.0, -0.0, 1e-30, 1e-4, 0.5, 3.0, 17.0, 40.0, 60.0, 86.0]


def helper(name: str) -> Unary:
    space: dict[str, Any] = {"torch": torch, "F": F, "math": math}
    for text in pytorch.helpers(f"{name}("):
        exec(text, space)
    return space[name]  # type: ignore[no-any-return]


def plus(x: Tensor) -> Tensor:
    return F.softplus(x, threshold=40)


def of_softplus(name: str) -> Unary:
    f = helper(name)
    return lambda x: f(x, plus(x))  # type: ignore[call-arg]


def power(name: str, sign: int) -> Unary:
    f = helper(name)
    return lambda x: f(x, 2.0, -2.0 * plus(sign * x))  # type: ignore[call-arg]


CASES: dict[str, tuple[Unary, Unary]] = {
    "sigmoid": (helper("_sigmoid_shared"), torch.sigmoid),
    "sigmoid(-x)": (helper("_sigmoid_minus"), lambda x: torch.sigmoid(-x)),
    "softplus": (helper("_softplus_shared"), plus),
    "softplus(-x)": (helper("_softplus_minus"), lambda x: plus(-x)),
    "sigmoid**2": (power("_sigmoid_power", -1), lambda x: torch.sigmoid(x) ** 2),
    "sigmoid(-x)**2": (power("_sigmoid_minus_power", 1), lambda x: torch.sigmoid(-x) ** 2),
    "tanh": (helper("_tanh"), torch.tanh),
    "sech2": (helper("_sech2"), lambda x: 4 * torch.sigmoid(2 * x) * torch.sigmoid(-2 * x)),
    "erf": (helper("_erf"), torch.erf),
    "expm1": (helper("_expm1"), torch.expm1),
    "normcdf": (helper("_normcdf"), lambda x: 0.5 * torch.erfc(-math.sqrt(0.5) * x)),
    "tanh(softplus)": (of_softplus("_tanh_softplus"), lambda x: torch.tanh(plus(x))),
    "sech2(softplus)": (
        of_softplus("_sech2_softplus"),
        lambda x: 4 * torch.sigmoid(2 * plus(x)) * torch.sigmoid(-2 * plus(x)),
    ),
}


def in_graph(f: Unary) -> Unary:
    torch._dynamo.reset()  # closures of one code object would be recompilations of it
    return torch.compile(f, backend="eager", fullgraph=True, dynamic=False)  # type: ignore


def points(dtype: torch.dtype, largest: float) -> Tensor:
    sides = [sign * each for each in EDGES if each <= largest for sign in (1, -1)]
    return torch.tensor([*sides, *torch.linspace(-8, 8, 65).tolist()], dtype=dtype)


@pytest.mark.parametrize("name", CASES)
def test_values_and_tails_in_float32(name: str) -> None:
    """Within a few roundings, and those of the argument of an exponential, of the exact value."""
    f, exact = CASES[name]
    x = points(torch.float32, 12.0 if name == "normcdf" else 40.0)
    got, want = in_graph(f)(x), exact(x.double())
    slack = 4e-7 + 1.2e-7 * torch.where(x.abs() > 1, x * x if name == "normcdf" else 0 * x, 0)
    off = torch.where(got == want, 0, (got - want).abs() / want.abs())
    worst = (off / slack).max()
    assert worst < 1, f"{worst} times the bound"


@pytest.mark.parametrize("name", CASES)
def test_far_out(name: str) -> None:
    """Limits, and NaN for NaN."""
    f, exact = CASES[name]
    x = torch.tensor([-math.inf, -1e30, -1000.0, 1000.0, 1e30, math.inf, math.nan])
    torch.testing.assert_close(
        in_graph(f)(x).double(), exact(x.double()), equal_nan=True, rtol=2e-7, atol=1e-37
    )


@pytest.mark.parametrize("name", CASES)
def test_derivatives_through_it(name: str) -> None:
    """Three orders by autograd, at 0 too, where |x| would have none; never NaN far out."""
    f, exact = CASES[name]

    def orders(g: Unary) -> Unary:
        first = func.grad(lambda x: g(x).sum())
        second = func.grad(lambda x: first(x).sum())
        third = func.grad(lambda x: second(x).sum())
        return lambda x: torch.stack([first(x), second(x), third(x)])

    far = torch.tensor([-1000.0, -90.0, -30.0, 0.0, 30.0, 90.0, 1000.0])
    found = in_graph(orders(f))(far[:5] if name == "expm1" else far)
    assert found.isfinite().all()
    near = torch.tensor([-2.0, -0.5, -0.0, 0.0, 0.5, 2.0])
    torch.testing.assert_close(
        in_graph(orders(f))(near).double(), orders(exact)(near.double()), rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(
        in_graph(orders(f))(near.double()), orders(exact)(near.double()), rtol=1e-11, atol=1e-12
    )


def test_named_outputs_can_be_saved_by_torch_export() -> None:
    """It saves the type of what a program returns by a name."""
    returned = two_outputs(torch.ones(2))
    spec = _pytree.tree_structure(returned)
    loaded = _pytree.treespec_loads(_pytree.treespec_dumps(spec))
    assert loaded == spec
    assert type(_pytree.tree_unflatten([1, 2], loaded)) is type(returned)


def test_an_output_of_lower_rank_leaves_the_batch_dynamic() -> None:
    """Compared with a shape of three dimensions, (4, 1) would be a guard: the batch is not 4."""
    batch = torch.export.Dim("batch", min=2, max=64)
    inputs = (torch.randn(2, 4, 4), torch.randn(4, 1))
    shapes = ({0: batch}, {})
    program = torch.export.export(QuadraticTerms(), inputs, dynamic_shapes=shapes, strict=False)
    x, y = torch.randn(4, 4, 4), inputs[1]
    for got, want in zip(program.module()(x, y), QuadraticTerms()(x, y), strict=True):
        torch.testing.assert_close(got, want)


def test_pairs_are_found_where_both_sigmoids_are() -> None:
    x, y = sympy.symbols("x y", real=True)
    inputs = [(s, Input(str(s), frozenset({ELEMENT}))) for s in (x, y)]

    def text(expr: sympy.Expr) -> str:
        program = lower(inputs, [Result("out", expr)])
        return pytorch.function(
            "f", "", program, {"x": "x", "y": "y"}, ["x", "y"], results=["out"], prefix="",
            reference="x",
        ).text  # fmt: skip

    both = text(sigmoid(x * y) * sigmoid(-x * y))
    assert "_sigmoid_shared(v0)" in both and "_sigmoid_minus(v0)" in both
    assert "_shared" not in text(sigmoid(x) * sigmoid(-y))
    assert "_softplus_minus(x)" in text(softplus(x) * softplus(-x))
    assert "_tanh_softplus(x, " in text(sympy.tanh(softplus(x)))
    assert "_sigmoid_minus_power(x, 2, " in text(sympy.exp(-2 * softplus(x)) * softplus(x))
    assert "_power" not in text(sympy.exp(-y * softplus(x)))
    assert "torch.exp(torch.where(y < 2, x, -math.inf))" in text(
        times_exp(sympy.Piecewise((1, y < 2), (0, True)), x)
    )


def test_a_polynomial_near_zero_makes_no_nan_far_out() -> None:
    """Graphs differentiate forward by autograd: 0 times what overflowed in the other branch."""
    x = torch.tensor([-1e5, -50.0, -0.5, 0.0, 0.5, 50.0, 1e5])
    found = in_graph(func.grad(lambda x: tanhshrink(x).sum()))(x)
    torch.testing.assert_close(found, torch.tanh(x) ** 2)


def test_saturation_of_an_exponential_makes_no_nan_far_out() -> None:
    """tanh'(exp(x)) is 0 where exp'(x) is infinite."""
    x = torch.tensor([-1e5, 0.0, 5.0, 60.0, 90.0, 1e5])
    found = in_graph(func.grad(lambda x: tanh_exp(x).sum()))(x)
    torch.testing.assert_close(found[2:], torch.ones(4))
    torch.testing.assert_close(found[:2], func.grad(lambda x: tanh_exp(x).sum())(x[:2]))
