"""What CPU kernels look up of 16-bit tensors: which functions, and that nobody sees it."""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from sympy import Max, exp, log, sign, sin, tanh
from torch import Tensor

from autofn import Learnable, formula
from autofn.api import Formula
from autofn.lookup import Lookup, looked_up
from autofn.plan import kernels, plan

Native = Callable[[str], ModuleType]

compiled = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "c++", "clang++"))), reason="no C++ compiler"
)

ELEMENTS = 1 << 17
"""From where on functions are looked up."""

CODES = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)

HALVES = [torch.bfloat16, torch.float16]


def every_number(dtype: torch.dtype) -> Tensor:
    """All of the dtype, each twice."""
    return CODES.view(dtype).repeat(ELEMENTS // len(CODES))


def gradient_of(function: Callable[..., Tensor], x: Tensor, grad: Tensor) -> Tensor:
    leaf = x.detach().requires_grad_()
    (found,) = torch.autograd.grad(function(leaf), leaf, grad)
    return found


def in_pieces(function: Callable[..., Tensor], *given: Tensor) -> Tensor:
    """By calls that are too small for tables."""
    pieces = zip(*(each.split(5000) for each in given), strict=True)
    return torch.cat([function(*piece) for piece in pieces])


def same(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def within_one_unit(got: Tensor, want: Tensor) -> None:
    """Of the last place: a product of three numbers rounds in another order."""
    unit = 2.0 ** (-7 if got.dtype == torch.bfloat16 else -10)
    torch.testing.assert_close(got, want, rtol=unit, atol=2.0**-24, equal_nan=True)


# --- which functions -----------------------------------------------------------------------------


@formula
def gated(x, y):
    """A gate."""
    return x * y * tanh(x) / (1 + exp(-x))


@formula
def summed(x, y):
    """Not a product."""
    return log(1 + exp(x)) - tanh(x * y)


@formula
def waved(x, a: Learnable = 1.0, w: float = 2.0):
    """Of one tensor and of numbers."""
    return a * sin(w * x) * tanh(a * x)


@formula
def cheap(x):
    """Computed faster than looked up."""
    return Max(x, 0) ** 2


@formula
def clipped(x):
    """A gradient of its own, not linear in the incoming one."""
    return sign(x) * tanh(x) * exp(-(x**2)) / (2 + tanh(x) ** 2)


@clipped.gradient
def _(grad: Any, x: Any) -> Any:
    return tanh(grad) * tanh(x) * exp(-(x**2)) / (2 + tanh(x) ** 2)


@formula
def reshaped(x, y):
    """A gradient that is a function of the incoming one alone."""
    return x + y


@reshaped.gradient
def _(grad: Any, x: Any, y: Any) -> Any:
    shaped = tanh(grad) * exp(-(grad**2)) * (1 + tanh(grad) ** 2)
    return shaped, shaped


def lookups(given: Formula) -> dict[str, Lookup | None]:
    made = plan(given.definition, search=())
    return {
        kernel.pass_name: looked_up(kernel, program)
        for kernel, program in kernels(made)
        if kernel.pass_name != "double_backward"
    }


def factors(*names: str) -> frozenset[str]:
    return frozenset(names)


def test_factors_are_found() -> None:
    assert lookups(gated) == {
        "forward": Lookup("x", (factors("y"),)),
        "backward": Lookup("x", (factors("grad", "y"), factors("grad"))),
    }
    assert lookups(waved) == {
        "forward": Lookup("x", (factors(),)),
        "backward": Lookup("x", (factors("grad"), factors("grad"))),
    }


def test_what_is_no_product_is_computed() -> None:
    assert lookups(summed) == {"forward": None, "backward": None}


def test_what_is_cheap_is_computed() -> None:
    assert lookups(cheap) == {"forward": None, "backward": None}


def test_a_gradient_that_is_not_linear_is_computed() -> None:
    assert lookups(clipped) == {"forward": Lookup("x", (factors(),)), "backward": None}


def test_a_gradient_may_be_looked_up_by_the_incoming_one() -> None:
    assert lookups(reshaped)["backward"] == Lookup("grad", (factors(), factors()))


# --- at run time ---------------------------------------------------------------------------------


@compiled
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", ["gelu", "mish", "swish", "phish"])
def test_every_number_gives_what_is_computed(
    native: Native, name: str, dtype: torch.dtype, generator: torch.Generator
) -> None:
    function = getattr(native(name), name)
    x = every_number(dtype)
    same(function(x), in_pieces(function, x))
    grad = torch.randn(len(x), generator=generator).to(dtype)
    got = gradient_of(function, x, grad)
    within_one_unit(got, in_pieces(lambda x, grad: gradient_of(function, x, grad), x, grad))


@compiled
def test_a_large_factor_brings_no_lost_digits_to_light(native: Native) -> None:
    """Sigmoid's derivative at -95 is subnormal, and 0 at -110, in float32."""
    sigmoid = native("sigmoid").sigmoid
    x = torch.linspace(-115, -85, ELEMENTS).to(torch.bfloat16)
    grad = torch.full_like(x, 2.0**120)
    got = gradient_of(sigmoid, x, grad).double()
    want = 2.0**120 * x.double().exp() / (1 + x.double().exp()) ** 2
    assert float(((got - want) / want).abs().max()) <= 0.51 * 2.0**-7


@compiled
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_gates(native: Native, dtype: torch.dtype, generator: torch.Generator) -> None:
    swiglu = native("swiglu").swiglu
    gate, x, grad = (torch.randn(ELEMENTS + 77, generator=generator).to(dtype) for _ in range(3))

    def both(gate: Tensor, x: Tensor, grad: Tensor) -> Tensor:
        leaves = [gate.detach().requires_grad_(), x.detach().requires_grad_()]
        return torch.stack(torch.autograd.grad(swiglu(*leaves), leaves, grad), -1)

    within_one_unit(swiglu(gate, x), in_pieces(swiglu, gate, x))
    within_one_unit(both(gate, x, grad), in_pieces(both, gate, x, grad))


@compiled
def test_numbers_and_parameters_make_tables_of_their_own(
    native: Native, generator: torch.Generator
) -> None:
    x = torch.randn(ELEMENTS, generator=generator).to(torch.bfloat16)
    swish, swish_beta = native("swish").swish, native("swish_beta").swish_beta
    for beta in (1.0, 0.3, 1.0, math.pi):
        same(swish(x, beta), in_pieces(lambda x, beta=beta: swish(x, beta), x))
        leaf = torch.tensor([beta], requires_grad=True)
        same(swish_beta(x, leaf), in_pieces(lambda x, leaf=leaf: swish_beta(x, leaf), x))
        (got,) = torch.autograd.grad(swish_beta(x, leaf).sum(), leaf)
        s = torch.sigmoid(beta * x.double())
        terms = x.double() ** 2 * s * (1 - s)
        assert abs(got.item() - terms.sum().item()) <= 2.0**-18 * terms.abs().sum().item()


@compiled
def test_parameters_along_channels_are_computed(native: Native, generator: torch.Generator) -> None:
    snake = native("snake").snake
    x = torch.randn(4, 3, ELEMENTS, generator=generator).to(torch.bfloat16)
    a = torch.tensor([0.5, 1.0, 2.0])
    parts = [snake(x[:, k : k + 1].contiguous(), a[k : k + 1]) for k in range(3)]
    same(snake(x, a), torch.cat(parts, 1))


@compiled
@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.t().contiguous().t(),
        lambda x: torch.stack([x, x], -1)[..., 0],
        lambda x: x[:, :1].expand(x.shape),
        lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
    ],
    ids=["transposed", "strided", "expanded", "misaligned"],
)
def test_layouts(
    native: Native, layout: Callable[[Tensor], Tensor], generator: torch.Generator
) -> None:
    gelu = native("gelu").gelu
    x = torch.randn(512, ELEMENTS // 512, generator=generator).to(torch.bfloat16)
    grad = torch.randn(x.shape, generator=generator).to(torch.bfloat16)
    x = layout(x)
    same(gelu(x), gelu(x.contiguous()))
    got = gradient_of(gelu, x, layout(grad))
    within_one_unit(got, gradient_of(gelu, x.contiguous(), layout(grad).contiguous()))


@compiled
def test_expanded_gradients(native: Native, generator: torch.Generator) -> None:
    """`y.sum().backward()` hands a gradient of stride 0."""
    gelu = native("gelu").gelu
    x = torch.randn(ELEMENTS, generator=generator).to(torch.bfloat16)
    leaf = x.detach().requires_grad_()
    gelu(leaf).sum().backward()
    assert leaf.grad is not None
    same(leaf.grad, gradient_of(gelu, x, torch.ones_like(x)))


@compiled
def test_what_is_summed_is_not_rounded_before(
    monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    monkeypatch.setenv("AUTOFN_BACKEND", "native")
    op = reshaped.compile()
    x = torch.zeros(2, ELEMENTS, dtype=torch.bfloat16)
    y = torch.zeros(1, ELEMENTS, dtype=torch.bfloat16, requires_grad=True)
    grad = torch.randn(x.shape, generator=generator).to(torch.bfloat16)
    (got,) = torch.autograd.grad(op(x, y), y, grad)
    t = grad.double().tanh()
    want = (t * (-(grad.double() ** 2)).exp() * (1 + t**2)).sum(0, keepdim=True)
    torch.testing.assert_close(got.double(), want, rtol=0.51 * 2**-7, atol=1e-6)


@compiled
def test_the_same_bits_for_any_threads_and_in_all_of_them(
    native: Native, generator: torch.Generator
) -> None:
    swish = native("swish").swish
    x = torch.randn(3 * ELEMENTS + 5, generator=generator).to(torch.bfloat16)
    grad = torch.randn(len(x), generator=generator).to(torch.bfloat16)
    wanted = {beta: gradient_of(lambda x, b=beta: swish(x, b), x, grad) for beta in (1.0, 0.5)}
    before = torch.get_num_threads()
    try:
        for threads in (2, 3):
            torch.set_num_threads(threads)
            same(gradient_of(swish, x, grad), wanted[1.0])
    finally:
        torch.set_num_threads(before)
    wrong: list[float] = []

    def work(beta: float) -> None:
        for _ in range(8):
            found = gradient_of(lambda x: swish(x, beta), x, grad)
            wrong.extend([] if torch.equal(found, wanted[beta]) else [beta])

    workers = [threading.Thread(target=work, args=(beta,)) for beta in (1.0, 0.5, 1.0, 0.5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
