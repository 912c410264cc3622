"""The examples from which people learn torch.autograd.Function, called as tutorials call them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

pytestmark = pytest.mark.usefixtures("pytorch_path")


def function(package: str, name: str) -> Any:
    return getattr(importlib.import_module(f"generated.{package}"), name)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """float64 numbers that require a gradient, away from the kink at 0."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (x + 0.1 * torch.where(x < 0, -1.0, 1.0)).requires_grad_()


def check(apply: Callable[..., Any], *inputs: Any) -> None:
    assert gradcheck(apply, inputs, eps=1e-6, atol=1e-4)
    assert gradgradcheck(apply, inputs, eps=1e-6, atol=1e-4)


def gradient(out: Tensor, *wrt: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(out.sum(), wrt)


@pytest.mark.parametrize("beta", [1.0, 1.5])
def test_swish(beta: float) -> None:
    made, x = function("swish", "SwishFunction"), numbers(4, 3)
    torch.testing.assert_close(made.apply(x, beta), x * torch.sigmoid(beta * x))
    check(made.apply, x, beta)


def test_exp_saves_its_output() -> None:
    made, x = function("exp", "ExpFunction"), numbers(4, 3)
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = made.apply(x)
    assert len(saved) == 1
    assert torch.equal(saved[0], y)
    assert not torch.equal(saved[0], x)
    (grad,) = gradient(y, x)
    torch.testing.assert_close(grad, x.exp())
    check(made.apply, x)


def test_relu() -> None:
    made, x = function("relu", "ReluFunction"), numbers(4, 3)
    torch.testing.assert_close(made.apply(x), x.clamp(min=0))
    check(made.apply, x)


def test_leaky_relu() -> None:
    made, x = function("leaky_relu", "LeakyReluFunction"), numbers(4, 3)
    torch.testing.assert_close(made.apply(x, 0.01), torch.where(x > 0, x, 0.01 * x))
    check(made.apply, x, 0.01)


def test_quadratic() -> None:
    made, x, y = function("quadratic", "QuadraticFunction"), numbers(4, 3), numbers(4, 3, seed=1)
    z = made.apply(x, y)
    torch.testing.assert_close(z, 10 * (x**2 + y**2 + 2 * x * y))
    for grad in gradient(z, x, y):
        torch.testing.assert_close(grad, 20 * x + 20 * y)
    check(made.apply, x, y)


def test_quadratic_terms() -> None:
    made = function("quadratic_terms", "QuadraticTermsFunction")
    x, y = numbers(4, 3), numbers(4, 3, seed=1)
    returned = made.apply(x, y)
    assert type(returned) is tuple
    expected = (10 * (x**2 + y**2 + 2 * x * y), x**2, y**2, x * y)
    torch.testing.assert_close(returned, expected)
    check(made.apply, x, y)


def test_each_output_of_quadratic_terms_has_its_own_gradient() -> None:
    made = function("quadratic_terms", "QuadraticTermsFunction")
    x, y = numbers(4, 3), numbers(4, 3, seed=1)
    expected = [(20 * (x + y), 20 * (x + y)), (2 * x, 0 * y), (0 * x, 2 * y), (y, x)]
    for index, wanted in enumerate(expected):
        out = made.apply(x, y)[index]
        got = torch.autograd.grad(out.sum(), (x, y), allow_unused=True, materialize_grads=True)
        torch.testing.assert_close(got, wanted)


def test_two_outputs() -> None:
    made, x = function("two_outputs", "TwoOutputsFunction"), numbers(4, 3)
    returned = made.apply(x)
    assert type(returned) is tuple
    torch.testing.assert_close(returned, (x**2, 3 * x))
    first, second = numbers(4, 3, seed=1).detach(), numbers(4, 3, seed=2).detach()
    (grad,) = torch.autograd.grad(returned, x, (first, second))
    torch.testing.assert_close(grad, 2 * x * first + 3 * second)
    check(made.apply, x)


@pytest.mark.parametrize("squash", ["none", "tanh"])
def test_affine_settings(squash: str) -> None:
    made = function("affine_settings", "AffineSettingsFunction")
    settings = function("affine_settings", "Settings")(1.5, -0.25, squash)
    x = numbers(4, 3)
    y = 1.5 * x - 0.25
    torch.testing.assert_close(made.apply(x, settings), y.tanh() if squash == "tanh" else y)
    # gradcheck rebuilds a tuple among its inputs, and cannot rebuild a named one.
    check(lambda x: made.apply(x, settings), x)


def test_scaled_bias() -> None:
    made, x = function("scaled_bias", "ScaledBiasFunction"), numbers(4, 3)
    bias = numbers(3, seed=1)
    torch.testing.assert_close(made.apply(x, bias, 2.0), 2 * x + bias)
    check(made.apply, x, bias, 2.0)


def test_scaled_bias_without_a_bias() -> None:
    made, x = function("scaled_bias", "ScaledBiasFunction"), numbers(4, 3)
    torch.testing.assert_close(made.apply(x, None, 2.0), 2 * x)
    check(made.apply, x, None, 2.0)
