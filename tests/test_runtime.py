"""Generated ops as PyTorch users use them: dtypes, shapes, autograd, transforms, compile, modules.

Every result is compared with plain PyTorch operations under the same use.
"""

from __future__ import annotations

import importlib
import itertools
import shutil
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, func
from torch.autograd import forward_ad
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from autofn.load import load_file
from autofn.pipeline import generate

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.usefixtures("pytorch_path")

EXTRA = """
from typing import Literal

from sympy import Heaviside, Max, exp, sin, tanh

from autofn import Learnable, PerChannel, Tensor, formula

@formula
def same(x):
    return x

@formula
def plus(x, y):
    return x + y

@formula
def constant(x, y):
    return 3

@formula
def unused(x, y):
    return x**2

@formula
def twins(x, y):
    return {"first": x**2, "second": x**2, "third": x}

@formula
def power(x, n: int = 2):
    return x**n

@formula
def first(x, w: PerChannel(dim=0) = 0.5):
    return tanh(x * w)

@formula
def middle(x, w: PerChannel(dim=-2) = 0.5, *, gain: float = 1.0):
    return gain * tanh(x * w)

@formula
def affine(
    x,
    bias: Tensor | None = None,
    scale: Learnable = 2.0,
    shift: PerChannel(dim=-1) = 0.5,
    *,
    gain: float = 1.0,
    mode: Literal["linear", "tanh"] = "linear",
):
    y = scale * x + shift
    if bias is not None:
        y = y + bias * sin(x)
    return gain * (tanh(y) if mode == "tanh" else y)

@formula
def step(x, y, a: Learnable = 1.5, w: PerChannel = 0.5):
    return Heaviside(x, 0) * a * y + w

@step.gradient
def _(grad, x, y, a, w):
    return grad * a * y * exp(-(x**2)), grad * a * exp(-(x**2)), grad * y, None

@formula
def pair(x, y):
    return Heaviside(x, 0), Max(x, y)

@pair.gradient
def _(grad, x, y):
    return grad[0] * exp(-(x**2)) + grad[1], grad[1] * x

@formula
def squashed(x):
    return Max(x, 0)

@squashed.gradient
def _(grad, x):
    return tanh(grad) * x
"""


@pytest.fixture(scope="module")
def extra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ModuleType]]:
    """The packages of the formulas above, by name."""
    folder = tmp_path_factory.mktemp("runtime")
    (folder / "formulas.py").write_text(EXTRA, encoding="utf-8")
    for each in load_file(folder / "formulas.py"):
        package = generate(each.definition, search=False)
        target = folder / "runtime_extra" / package.name
        target.mkdir(parents=True)
        for path, text in package.files:
            (target / path).write_text(text, encoding="utf-8")
    sys.path.insert(0, str(folder))
    yield lambda name: importlib.import_module(f"runtime_extra.{name}")
    sys.path.remove(str(folder))


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    yield
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


def library(name: str) -> ModuleType:
    return importlib.import_module(f"generated.{name}")


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def leaf(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return normal(*shape, seed=seed, dtype=dtype).requires_grad_()


def close(actual: Any, expected: Any, rtol: float = 1e-10, atol: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


def raw_gradients(out: Tensor, *grads: Tensor) -> tuple[Tensor | None, ...]:
    """What the op's own backward returns, before the engine repairs it."""
    with torch.no_grad():
        found = out.grad_fn.apply(*grads)  # type: ignore[union-attr]
    return found if isinstance(found, tuple) else (found,)


# --- dtypes ----------------------------------------------------------------------------------

REAL = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int8,
        torch.bool)  # fmt: skip


@pytest.mark.parametrize("default", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shapes", [((3,), (3,)), ((3,), ()), ((), (3,)), ((), ())], ids=str)
def test_outputs_promote_as_pytorch_does(
    shapes: tuple[tuple[int, ...], ...], default: torch.dtype
) -> None:
    quadratic = library("quadratic").quadratic
    try:
        torch.set_default_dtype(default)
        for one, two in itertools.product(REAL, REAL):
            x, y = torch.ones(shapes[0], dtype=one), torch.ones(shapes[1], dtype=two)
            expected = torch.result_type(x, y)
            if not expected.is_floating_point:
                expected = default
            got = quadratic(x, y)
            assert got.dtype == expected, (one, two)
            assert (got == 40).all()
    finally:
        torch.set_default_dtype(torch.float32)


def test_complex_is_a_type_error() -> None:
    z, x = torch.ones(3, dtype=torch.complex64), torch.ones(3)
    quadratic, prelu = library("quadratic").quadratic, library("prelu").prelu
    for args in ((z, x), (x, z), (x, z[0]), (z[0], x), (z, z)):
        with pytest.raises(TypeError, match="complex"):
            quadratic(*args)
    with pytest.raises(TypeError, match="complex"):
        prelu(x.reshape(1, 3), z)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("kept", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_parameters_never_promote_and_one_rounding(dtype: torch.dtype, kept: torch.dtype) -> None:
    dyt = library("dyt").DytFunction.apply
    x = leaf(7, 5, dtype=dtype)
    parameters = [leaf(1, seed=1, dtype=kept), leaf(5, seed=2, dtype=kept),
                  leaf(5, seed=3, dtype=kept)]  # fmt: skip
    wide = [t.detach().float().requires_grad_() for t in (x, *parameters)]
    y = dyt(x, *parameters)
    expected = wide[2] * torch.tanh(wide[1] * wide[0]) + wide[3]
    assert y.dtype == dtype
    close(y, expected.to(dtype), rtol=1e-6 if dtype == torch.float32 else 0, atol=1e-6)
    cotangent = normal(7, 5, seed=4, dtype=dtype)
    exact = torch.autograd.grad(expected, wide, cotangent.float())
    raw = raw_gradients(y, cotangent)[:4]
    for got, like, want in zip(raw, (x, *parameters), exact, strict=True):
        assert got is not None
        assert (got.dtype, got.shape) == (like.dtype, like.shape)
        step = torch.finfo(like.dtype).eps
        close(got.float(), want, rtol=max(step, 2e-6), atol=2e-6)


def test_pytorch_operations_are_double_where_single_precision_fails() -> None:
    # 30*x overflows in float32; exp(-log_var) does, where its product with a square does not.
    sine = importlib.import_module("generated.sine").sine
    x = torch.tensor([1.2e38, -3e38], requires_grad=True)
    y = sine(x)
    y.sum().backward()
    wide = x.detach().double()
    torch.testing.assert_close(y, torch.sin(30 * wide).float())
    torch.testing.assert_close(x.grad, (30 * torch.cos(30 * wide)).float())
    nll = importlib.import_module("generated.gaussian_nll").gaussian_nll
    value = nll(*torch.tensor([1e-30, 0.0, -90.0]).unbind())
    torch.testing.assert_close(value, torch.tensor(-45.0))
    swish = (ROOT / "generated" / "swish" / "op.py").read_text()
    assert "compute_type(dtype)" in swish  # where single precision does, it is what it was


def test_gradients_have_each_inputs_dtype_and_shape(extra: Callable[[str], ModuleType]) -> None:
    affine = extra("affine").AffineFunction.apply
    tensors = [
        leaf(4, 3, dtype=torch.bfloat16),
        leaf(2, 1, 1, dtype=torch.float64),
        leaf(1, dtype=torch.float16),
        leaf(3),
    ]
    y = affine(*tensors, 1.5, "tanh")
    assert y.shape == (2, 4, 3)
    assert y.dtype == torch.float64
    for got, like in zip(raw_gradients(y, torch.ones_like(y)), tensors, strict=False):
        assert got is not None
        assert (got.dtype, got.shape) == (like.dtype, like.shape)
    # Also those of the second order.
    first = torch.autograd.grad(y.sum(), tensors, create_graph=True)
    (node,) = {each.grad_fn for each in first}
    second = node.apply(*(torch.ones_like(each) for each in first))
    likes = [None, y, *tensors[:2], tensors[2], tensors[3]]
    for got, like in zip(second, likes, strict=False):
        if got is not None and like is not None:
            assert (got.dtype, got.shape) == (like.dtype, like.shape)


def test_integers_take_the_default_dtype(extra: Callable[[str], ModuleType]) -> None:
    power = extra("power").power
    got = power(torch.arange(-3, 4), 3)
    assert got.dtype == torch.float32
    assert got.tolist() == [-27, -8, -1, 0, 1, 8, 27]
    weight = leaf(1, dtype=torch.float32)
    y = library("prelu").prelu(torch.tensor([[-2, 3]]), weight)
    assert y.dtype == torch.float32
    y.sum().backward()
    assert weight.grad is not None
    assert weight.grad.item() == -2


# --- shapes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two"),
    [((3, 1, 4), (2, 1)), ((), (2, 3)), ((5,), ()), ((), ()), ((2, 0, 3), (1, 3)), ((1,), (1, 1)),
     ((0,), (1,)), ((4,), (1, 4))],
)  # fmt: skip
def test_tensors_broadcast(one: tuple[int, ...], two: tuple[int, ...]) -> None:
    made = library("quadratic_terms")
    x, y = leaf(*one), leaf(*two, seed=1)
    outputs = made.quadratic_terms(x, y)
    shape = torch.broadcast_shapes(one, two)
    b, c = torch.broadcast_tensors(x, y)
    expected = (10 * (b + c) ** 2, b**2, c**2, b * c)
    for got, want in zip(outputs, expected, strict=True):
        assert got.shape == shape
        assert got.is_contiguous()
        close(got, want)
    cotangents = [normal(*shape, seed=k) for k in range(4)]
    wanted = torch.autograd.grad(expected, (x, y), cotangents)
    close(torch.autograd.grad(outputs, (x, y), cotangents, retain_graph=True), wanted)
    for got, like in zip(raw_gradients(outputs[0], *cotangents), (x, y), strict=True):
        assert got is not None
        assert got.shape == like.shape


def test_layouts_are_kept() -> None:
    swish = library("swish").swish
    x = normal(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    y = swish(x)
    assert y.is_contiguous(memory_format=torch.channels_last)
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert grad.is_contiguous(memory_format=torch.channels_last)
    made = library("prelu")
    y = made.prelu(x, normal(3))
    assert y.is_contiguous(memory_format=torch.channels_last)
    base = leaf(6, 8)
    for view in (
        base.t(),
        base[::2, 1::3],
        base.flip(0),
        base[2],
        base[:, 3],
        base.unfold(1, 4, 2),
    ):
        close(swish(view), F.silu(view))
        close(
            torch.autograd.grad(swish(view).sum(), base, retain_graph=True),
            torch.autograd.grad(F.silu(view).sum(), base, retain_graph=True),
        )
    expanded = leaf(3, 1).expand(3, 4)
    close(swish(expanded), F.silu(expanded))


@pytest.mark.parametrize(
    ("name", "shape", "dim"),
    [
        ("first", (3, 4, 5), 0),
        ("first", (3,), 0),
        ("middle", (3, 4, 5), 1),
        ("middle", (4, 5), 0),
    ],
)
def test_channels_lie_along_any_dimension(
    extra: Callable[[str], ModuleType], name: str, shape: tuple[int, ...], dim: int
) -> None:
    made = getattr(extra(name), name)
    x = leaf(*shape)
    along = [1] * len(shape)
    along[dim] = shape[dim]
    for w in (leaf(shape[dim], seed=1), leaf(1, seed=2), leaf(seed=3)):
        spread = w.reshape(along if w.numel() > 1 else [1] * len(shape))
        expected = torch.tanh(x * spread)
        got = made(x, w)
        assert got.shape == x.shape
        close(got, expected)
        cotangent = normal(*shape, seed=5)
        close(
            torch.autograd.grad(got, (x, w), cotangent, retain_graph=True),
            torch.autograd.grad(expected, (x, w), cotangent),
        )
        found = raw_gradients(got, cotangent)
        assert [g.shape for g in found[:2] if g is not None] == [x.shape, w.shape]


def test_one_channel_where_the_output_has_fewer_dimensions(
    extra: Callable[[str], ModuleType],
) -> None:
    prelu, middle = library("prelu").prelu, extra("middle").middle
    w = leaf(1)
    for made, shape in ((prelu, (4,)), (prelu, ()), (middle, (4,)), (middle, ())):
        x = leaf(*shape, seed=1)
        y = made(x, w)
        assert y.shape == shape
        found = torch.autograd.grad(y.sum(), (x, w))
        assert [g.shape for g in found] == [x.shape, (1,)]


def test_wrong_sizes_are_clear_errors(extra: Callable[[str], ModuleType]) -> None:
    prelu, swish_beta = library("prelu").prelu, library("swish_beta").swish_beta
    with pytest.raises(ValueError, match=r"2 dimensions|1 dimension"):
        prelu(normal(4, 3), normal(3, 1))
    with pytest.raises(ValueError, match="1 dimension"):
        prelu(normal(3), normal(3))
    with pytest.raises(
        (ValueError, RuntimeError), match=r"(?s)broadcast.*5|5.*channels|size of tensor.*5"
    ):
        prelu(normal(4, 3), normal(5))
    with pytest.raises(ValueError, match="1 element"):
        swish_beta(normal(4, 3), normal(3))
    with pytest.raises((ValueError, RuntimeError), match=r"(?i)broadcast|size of tensor"):
        library("quadratic").quadratic(normal(3), normal(4))
    with pytest.raises(TypeError, match=r"x.*Tensor.*float"):
        library("swish").swish(1.0)
    with pytest.raises(TypeError, match=r"beta.*Tensor.*float"):
        swish_beta(normal(3), 0.5)


def test_a_learnable_scalar_adds_no_dimension() -> None:
    x, beta = leaf(), leaf(1, seed=1)
    y = library("swish_beta").swish_beta(x, beta)
    assert y.shape == ()
    found = torch.autograd.grad(y, (x, beta))
    assert [g.shape for g in found] == [(), (1,)]
    close(y, x * torch.sigmoid(beta[0] * x))


# --- autograd --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Use:
    """An op with inputs, and the same in plain PyTorch; `batched` says which may have a batch."""

    op: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: tuple[Tensor, ...]


def _affine(x: Tensor, bias: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return 1.5 * torch.tanh(scale * x + shift + bias * torch.sin(x))


def uses(extra: Callable[[str], ModuleType]) -> dict[str, Use]:
    affine, swish = extra("affine").affine, library("swish").swish
    terms = library("quadratic_terms").quadratic_terms
    return {
        "swish": Use(
            lambda x: swish(x, 1.5),
            lambda x: x * torch.sigmoid(1.5 * x),
            (normal(3),),
        ),
        "exp": Use(library("exp").exp, torch.exp, (normal(2, 2),)),
        "dyt": Use(
            library("dyt").dyt,
            lambda x, a, g, b: g * torch.tanh(a * x) + b,
            (normal(2, 3), normal(1, seed=1), normal(3, seed=2), normal(3, seed=3)),
        ),
        "terms": Use(
            lambda *a: tuple(terms(*a)),
            lambda x, y: (10 * (x + y) ** 2, x**2 + 0 * y, y**2 + 0 * x, x * y),
            (normal(2, 1), normal(3, seed=1)),
        ),
        "affine": Use(
            lambda *a: affine(*a, gain=1.5, mode="tanh"),
            _affine,
            (normal(2, 3), normal(2, 1, seed=1), normal(1, seed=2), normal(3, seed=3)),
        ),
    }


USES = ("swish", "exp", "dyt", "terms", "affine")


@pytest.fixture(params=USES)
def use(request: pytest.FixtureRequest, extra: Callable[[str], ModuleType]) -> Use:
    return uses(extra)[request.param]


def many(returned: Any) -> tuple[Tensor, ...]:
    return (returned,) if isinstance(returned, Tensor) else tuple(returned)


def energy(op: Callable[..., Any]) -> Callable[..., Tensor]:
    """A scalar function of the op, with different and non-linear cotangents."""
    return lambda *inputs: sum(
        (k + 1) * (out.sin() * out).sum() for k, out in enumerate(many(op(*inputs)))
    )  # type: ignore[return-value]


def derivatives(op: Callable[..., Any], inputs: tuple[Tensor, ...], order: int) -> list[Tensor]:
    """Gradients of gradients, each order contracted with a fixed direction."""
    inputs = tuple(each.detach().requires_grad_() for each in inputs)
    value: Tensor = energy(op)(*inputs)
    found: list[Tensor] = []
    for k in range(order):
        grads = torch.autograd.grad(value, inputs, create_graph=True, materialize_grads=True)
        found += grads
        value = sum(((g * normal(*g.shape, seed=k)).sum() for g in grads), torch.zeros(()))
    return found


def test_gradients_to_third_order(use: Use) -> None:
    close(derivatives(use.op, use.inputs, 3), derivatives(use.reference, use.inputs, 3), rtol=1e-8)


def test_gradient_penalty(use: Use) -> None:
    def penalty(op: Callable[..., Any]) -> tuple[Tensor, ...]:
        inputs = tuple(each.clone().requires_grad_() for each in use.inputs)
        grads = torch.autograd.grad(energy(op)(*inputs), inputs, create_graph=True)
        sum(g.pow(2).sum() for g in grads).backward()  # type: ignore[union-attr]
        return tuple(each.grad for each in inputs)  # type: ignore[misc]

    close(penalty(use.op), penalty(use.reference), rtol=1e-9)


def test_a_graph_may_be_used_twice_and_by_hooks(use: Use) -> None:
    inputs = tuple(each.clone().requires_grad_() for each in use.inputs)
    out = many(use.op(*inputs))[0]
    seen: list[Tensor] = []
    out.register_hook(lambda grad: seen.append(grad) or 2 * grad)
    one = torch.autograd.grad(out.sum(), inputs, retain_graph=True)
    two = torch.autograd.grad(out.sum(), inputs)
    close(one, two)
    assert len(seen) == 2
    again = many(use.op(*inputs))[0]
    close([2 * g for g in torch.autograd.grad(again.sum(), inputs)], list(one))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(out.sum(), inputs)


def test_only_what_is_needed_is_saved() -> None:
    saved: list[Tensor] = []

    def save(op: Callable[..., Any], *inputs: Any) -> list[tuple[int, ...]]:
        saved.clear()
        with saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
            op(*inputs)
        return [tuple(each.shape) for each in saved]

    prelu, quadratic = library("prelu").prelu, library("scaled_bias").scaled_bias
    x, w = leaf(4, 3), leaf(3)
    assert save(prelu, x, w) == [(4, 3), (3,)]
    assert save(prelu, x.detach(), w) == [(4, 3)]
    assert save(prelu, x.detach(), w.detach()) == []
    assert save(quadratic, x, w) == []
    swiglu = library("swiglu").swiglu
    gate, up = leaf(5), leaf(5)
    assert len(save(swiglu, gate, up)) == 2
    assert len(save(swiglu, gate.detach(), up)) == 1
    with torch.no_grad():
        assert save(swiglu, gate, up) == []


def test_an_op_that_saves_its_output_lets_go_of_its_input() -> None:
    exp = library("exp").exp
    middle = leaf(3) * 2
    gone = weakref.ref(middle)
    y = exp(middle).sum()
    del middle
    assert gone() is None
    y.backward()


def test_gradients_only_where_they_are_needed(use: Use) -> None:
    for k, _ in enumerate(use.inputs):
        inputs = [each.clone() for each in use.inputs]
        inputs[k].requires_grad_()
        got = torch.autograd.grad(energy(use.op)(*inputs), inputs[k])
        close(got, torch.autograd.grad(energy(use.reference)(*inputs), inputs[k]))


def test_unused_outputs_cost_nothing() -> None:
    x, y = leaf(3), leaf(3, seed=1)
    outputs = library("quadratic_terms").quadratic_terms(x, y)
    for k, (by_x, by_y) in enumerate(
        [(20 * (x + y), 20 * (x + y)), (2 * x, 0 * y), (0 * x, 2 * y), (y, x)]
    ):
        got = torch.autograd.grad(
            outputs[k].sum(), (x, y), retain_graph=True, materialize_grads=True
        )
        close(got, (by_x.detach(), by_y.detach()))
    raw = raw_gradients(outputs[0], None, None, None, None)  # type: ignore[arg-type]
    assert raw == (None, None)


def test_saved_tensors_are_never_written_to(use: Use) -> None:
    inputs = tuple(each.clone().requires_grad_() for each in use.inputs)
    out = many(use.op(*inputs))
    before = [(each, each.clone(), each._version) for each in (*inputs, *out)]
    grads = torch.autograd.grad([o.sum() for o in out], inputs, create_graph=True)
    sum(g.pow(2).sum() for g in grads).backward()  # type: ignore[union-attr]
    for tensor, copied, version in before:
        assert torch.equal(tensor, copied)
        assert tensor._version == version


def test_a_saved_tensor_changed_in_place_is_an_error() -> None:
    for name in ("swish", "exp"):
        x = leaf(3) * 1
        y = getattr(library(name), name)(x)
        (y if name == "exp" else x).add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_anomaly_mode_and_checkpoint(use: Use) -> None:
    inputs = tuple(each.clone().requires_grad_() for each in use.inputs)
    expected = torch.autograd.grad(energy(use.reference)(*inputs), inputs)
    with torch.autograd.detect_anomaly(check_nan=True):
        close(torch.autograd.grad(energy(use.op)(*inputs), inputs), expected)
    for reentrant in (False, True):
        value = checkpoint(energy(use.op), *inputs, use_reentrant=reentrant)
        for each in inputs:
            each.grad = None
        value.backward()
        close(tuple(each.grad for each in inputs), expected)


@pytest.mark.filterwarnings("ignore:Anomaly")
def test_forward_mode_with_dual_tensors(use: Use) -> None:
    tangents = tuple(normal(*each.shape, seed=9) for each in use.inputs)

    def pushed(op: Callable[..., Any], some: bool) -> list[Tensor]:
        with forward_ad.dual_level():
            duals = [
                forward_ad.make_dual(each, t) if k == 0 or not some else each
                for k, (each, t) in enumerate(zip(use.inputs, tangents, strict=True))
            ]
            found = [forward_ad.unpack_dual(each) for each in many(op(*duals))]
            zeros = torch.zeros(())
            return [zeros + (f.tangent if f.tangent is not None else 0) for f in found]

    for some in (False, True):
        got, want = pushed(use.op, some), pushed(use.reference, some)
        close(got, [w.broadcast_to(g.shape) for g, w in zip(got, want, strict=True)])


def test_forward_over_reverse_with_dual_tensors(use: Use) -> None:
    def pushed(op: Callable[..., Any]) -> list[Tensor]:
        with forward_ad.dual_level():
            duals = [
                forward_ad.make_dual(each.clone().requires_grad_(), normal(*each.shape, seed=9))
                for each in use.inputs
            ]
            grads = torch.autograd.grad(energy(op)(*duals), duals)
            return [forward_ad.unpack_dual(g).tangent for g in grads]  # type: ignore[misc]

    close(pushed(use.op), pushed(use.reference))


def test_outputs_are_tensors_of_their_own(extra: Callable[[str], ModuleType]) -> None:
    for requires_grad in (False, True):
        x = normal(3).requires_grad_(requires_grad)
        before = x.detach().clone()
        y = extra("same").same(x)
        assert y.data_ptr() != x.data_ptr()
        y.add_(1)
        close(x.detach(), before)
        for args in ((x, normal(3)), (x, normal(1, 3)), (x, normal(2, 3)), (x, normal())):
            made = extra("twins").twins(*args)
            assert len({each.data_ptr() for each in (x, *made)}) == 4
            for each in made:
                each.add_(1)
            close(x.detach(), before)
            close(made.first, made.second)
            if requires_grad:
                (grad,) = torch.autograd.grad(sum(each.sum() for each in made), x)  # type: ignore
                count = made.first.numel() / 3
                close(grad, count * (4 * before + 1))


def test_in_place_operations_on_outputs(use: Use) -> None:
    inputs = tuple(each.clone().requires_grad_() for each in use.inputs)
    outputs, expected = many(use.op(*inputs)), many(use.reference(*inputs))
    if use.reference is torch.exp:
        return  # its output is saved
    for got, want in zip(outputs, expected, strict=True):
        got.mul_(3).add_(1)
        close(got, 3 * want + 1)
    close(
        torch.autograd.grad([o.sum() for o in outputs], inputs),
        torch.autograd.grad([3 * o.sum() for o in expected], inputs),
    )


def test_gradients_share_no_memory(extra: Callable[[str], ModuleType]) -> None:
    x, y, cotangent = leaf(3), leaf(3, seed=1), torch.ones(3, dtype=torch.float64)
    for op in (extra("plus").plus, library("scaled_bias").scaled_bias):
        x.grad = y.grad = None
        op(x, y).backward(cotangent)
        assert x.grad is not None and y.grad is not None
        assert len({x.grad.data_ptr(), y.grad.data_ptr(), cotangent.data_ptr()}) == 3
    x.grad = None
    extra("same").same(x).backward(cotangent)
    assert x.grad is not None
    assert x.grad.data_ptr() != cotangent.data_ptr()


def test_constants_and_unused_tensors(extra: Callable[[str], ModuleType]) -> None:
    x, y = leaf(2, 1), leaf(3, seed=1)
    constant, unused = extra("constant").constant, extra("unused").unused
    got = constant(x, y)
    assert got.shape == (2, 3)
    assert got.dtype == torch.float64
    assert (got == 3).all()
    got.add_(1)
    found = torch.autograd.grad(got.sum(), (x, y), materialize_grads=True)
    close(found, (torch.zeros(2, 1).double(), torch.zeros(3).double()))
    out = unused(x, y)
    assert out.shape == (2, 3)
    found = torch.autograd.grad(out.sum(), (x, y), materialize_grads=True)
    close(found, (6 * x.detach(), torch.zeros(3).double()))
    for op in (constant, unused):
        for dims in ((0, None), (None, 0), (0, 0)):
            batched = func.vmap(op, dims)(normal(4, 1), normal(4, seed=2))
            want = [op(normal(4, 1)[k] if dims[0] == 0 else normal(4, 1),
                       normal(4, seed=2)[k] if dims[1] == 0 else normal(4, seed=2))
                    for k in range(4)]  # fmt: skip
            close(batched, torch.stack(want))
    got = func.vmap(constant, in_dims=(None, 0), out_dims=1)(normal(2), normal(4, 2))
    assert got.shape == (2, 4)
    close(func.jvp(constant, (x, y), (x, y))[1], torch.zeros(2, 3).double())
    close(func.grad(lambda v: constant(v, y).sum())(x), torch.zeros(2, 1).double())


@pytest.mark.parametrize("n", [0, 1, 2, 3, -1, -2])
def test_integer_exponents_of_negative_numbers(extra: Callable[[str], ModuleType], n: int) -> None:
    power = extra("power").power
    x = torch.tensor([-2.0, -0.5, 1.5], dtype=torch.float64, requires_grad=True)
    close(power(x, n), x**n)
    order = min(n, 2) if n >= 0 else 2
    close(derivatives(lambda t: power(t, n), (x,), order), derivatives(lambda t: t**n, (x,), order))
    close(func.vmap(func.grad(lambda t: power(t, n)))(x.detach()), n * x.detach() ** (n - 1))


def test_integer_exponents_at_zero(extra: Callable[[str], ModuleType]) -> None:
    power = extra("power").power
    for n in (0, 1, 2, 3):
        x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        y = power(x, n)
        (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True, materialize_grads=True)
        assert (y.item(), grad.item()) == (float(n == 0), float(n == 1)), n
        if grad.requires_grad:
            (second,) = torch.autograd.grad(grad.sum(), x, materialize_grads=True)
            assert second.item() == 2 * (n == 2), n


# --- torch.func ------------------------------------------------------------------------------


def everywhere(count: int) -> tuple[int, ...]:
    return tuple(range(count))


TRANSFORMS: dict[str, Callable[[Callable[..., Any], tuple[Tensor, ...]], Any]] = {
    "grad": lambda f, xs: func.grad(energy(f), everywhere(len(xs)))(*xs),
    "vjp": lambda f, xs: func.vjp(energy(f), *xs)[1](torch.ones((), dtype=torch.float64)),
    "jvp": lambda f, xs: func.jvp(f, xs, tuple(x.cos() for x in xs))[1],
    "jacrev": lambda f, xs: func.jacrev(f, everywhere(len(xs)))(*xs),
    "jacfwd": lambda f, xs: func.jacfwd(f, everywhere(len(xs)))(*xs),
    "hessian": lambda f, xs: func.hessian(energy(f), everywhere(len(xs)))(*xs),
    "jacrev of jacrev": lambda f, xs: func.jacrev(
        func.jacrev(energy(f), everywhere(len(xs))), everywhere(len(xs))
    )(*xs),
    "jacrev of jacfwd": lambda f, xs: func.jacrev(
        func.jacfwd(energy(f), everywhere(len(xs))), everywhere(len(xs))
    )(*xs),
    "jacfwd of jacfwd": lambda f, xs: func.jacfwd(
        func.jacfwd(energy(f), everywhere(len(xs))), everywhere(len(xs))
    )(*xs),
    "grad of hessian": lambda f, xs: func.grad(
        lambda x: func.hessian(lambda t: energy(f)(t, *xs[1:]))(x).sin().sum()
    )(xs[0]),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms(use: Use, transform: str) -> None:
    transformed = TRANSFORMS[transform]
    close(transformed(use.op, use.inputs), transformed(use.reference, use.inputs), rtol=1e-8)


def test_vmap(use: Use) -> None:
    """Every choice of batched inputs; values, gradients per sample, outer gradients, tangents."""
    count = len(use.inputs)
    for which in itertools.product((False, True), repeat=count):
        if not any(which):
            continue
        inputs = tuple(
            torch.stack([each, 2 * each, -each], dim=each.dim()) if batched else each
            for each, batched in zip(use.inputs, which, strict=True)
        )
        dims = tuple(-1 if batched else None for batched in which)
        for transformed in (
            lambda f: f,
            lambda f: func.grad(energy(f), everywhere(count)),
            lambda f: lambda *xs: func.jvp(f, xs, tuple(x.cos() for x in xs))[1],
        ):
            got = func.vmap(transformed(use.op), dims)(*inputs)
            close(got, func.vmap(transformed(use.reference), dims)(*inputs))
        outer = tuple(each.clone().requires_grad_() for each in inputs)
        close(
            torch.autograd.grad(energy(func.vmap(use.op, dims, out_dims=1))(*outer), outer),
            torch.autograd.grad(energy(func.vmap(use.reference, dims, out_dims=1))(*outer), outer),
        )


def test_nested_vmap(use: Use) -> None:
    xs = (torch.stack([torch.stack([use.inputs[0] + a + 5 * b for a in range(2)], -1)
                       for b in range(3)]), *use.inputs[1:])  # fmt: skip
    outer, inner = (0, *(None for _ in xs[1:])), (-1, *(None for _ in xs[1:]))
    for transformed in (lambda f: f, lambda f: func.grad(energy(f), everywhere(len(xs)))):
        got = func.vmap(func.vmap(transformed(use.op), inner, out_dims=0), outer)(*xs)
        want = func.vmap(func.vmap(transformed(use.reference), inner, out_dims=0), outer)(*xs)
        close(got, want)
    # Another input batched by another level.
    if len(xs) > 1:
        other = torch.stack([xs[1], -xs[1]])
        x = use.inputs[0]
        for op, into in ((use.op, got), (use.reference, want)):
            del into
            _ = op
        pairs = [
            func.vmap(
                lambda p, op=op: func.vmap(
                    lambda q: func.grad(energy(op), (0, 1))(p, q, *use.inputs[2:])
                )(other)
            )(torch.stack([x, 2 * x, 3 * x]))
            for op in (use.op, use.reference)
        ]
        close(pairs[0], pairs[1])


def test_vmap_over_a_variant_and_without_the_optional_tensor(
    extra: Callable[[str], ModuleType],
) -> None:
    affine = extra("affine").affine
    x, scale, shift = normal(4, 2, 3), normal(1), normal(4, 3)
    for mode, outer in (("linear", lambda v: v), ("tanh", torch.tanh)):
        got = func.vmap(lambda x, s, mode=mode: affine(x, None, scale, s, mode=mode, gain=2.0))(
            x, shift
        )
        close(got, 2 * outer(scale * x + shift[:, None]))
        grads = func.vmap(
            func.grad(lambda s, x, mode=mode: affine(x, None, scale, s, mode=mode).sum())
        )(shift, x)
        slope = (
            torch.ones_like(x) if mode == "linear" else 1 - outer(scale * x + shift[:, None]) ** 2
        )
        close(grads, slope.sum(1))


def test_per_sample_gradients_and_functional_call() -> None:
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 4), library("prelu").Prelu(4), library("dyt").Dyt(4)
    ).double()
    with torch.no_grad():
        for p in module.parameters():
            p.add_(normal(*p.shape) * 0.3)
    parameters = {k: v.detach() for k, v in module.named_parameters()}
    x = normal(5, 3)

    def loss(parameters: dict[str, Tensor], sample: Tensor) -> Tensor:
        return func.functional_call(module, parameters, (sample.unsqueeze(0),)).pow(2).sum()

    per_sample = func.vmap(func.grad(loss), in_dims=(None, 0))(parameters, x)
    for k in range(5):
        module.zero_grad()
        module(x[k : k + 1]).pow(2).sum().backward()
        for name, p in module.named_parameters():
            assert p.grad is not None
            close(per_sample[name][k], p.grad)
    # An ensemble: the parameters batched.
    stacked = {k: torch.stack([v, 2 * v, -v]) for k, v in parameters.items()}
    got = func.vmap(loss, in_dims=(0, None))(stacked, x[0])
    close(got, torch.stack([loss({k: v[i] for k, v in stacked.items()}, x[0]) for i in range(3)]))


# --- torch.compile and torch.export ------------------------------------------------------------


def test_compiled_forward_and_backward(use: Use) -> None:
    compiled = torch.compile(use.op, fullgraph=True, backend="aot_eager")
    inputs = tuple(each.clone().requires_grad_() for each in use.inputs)
    outputs, expected = many(compiled(*inputs)), many(use.op(*inputs))
    close(outputs, expected)
    assert [o.dtype for o in outputs] == [e.dtype for e in expected]
    cotangents = [normal(*o.shape, seed=k) for k, o in enumerate(outputs)]
    close(
        torch.autograd.grad(outputs, inputs, cotangents),
        torch.autograd.grad(expected, inputs, cotangents),
    )
    with torch.no_grad():
        close(many(compiled(*use.inputs)), expected)


@pytest.mark.parametrize("transform", ["grad", "jvp", "hessian"])
@pytest.mark.parametrize("name", ["swish", "dyt", "affine"])
def test_compiled_transforms(name: str, transform: str, extra: Callable[[str], ModuleType]) -> None:
    use = uses(extra)[name]
    transformed = TRANSFORMS[transform]
    compiled = torch.compile(
        lambda *xs: transformed(use.op, xs), fullgraph=True, backend="aot_eager"
    )
    close(compiled(*use.inputs), transformed(use.reference, use.inputs), rtol=1e-8)


def test_compiled_with_dynamic_shapes() -> None:
    prelu = library("prelu").prelu
    count = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(prelu, fullgraph=True, backend=count, dynamic=True)
    for n, c in ((4, 3), (5, 3), (7, 6), (2, 9)):
        x, w = leaf(n, c), leaf(c, seed=1)
        got = compiled(x, w)
        close(got, F.prelu(x, w))
        close(torch.autograd.grad(got.sum(), (x, w)),
              torch.autograd.grad(F.prelu(x, w).sum(), (x, w)))  # fmt: skip
    assert count.frame_count == 1


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_compiled_by_inductor() -> None:
    module = torch.nn.Sequential(library("prelu").Prelu(3), library("swish").Swish(1.5))
    x = leaf(4, 3, dtype=torch.float32)
    got, expected = torch.compile(module, fullgraph=True)(x), module(x)
    close(got, expected, rtol=1e-5, atol=1e-6)
    inputs = (x, *module.parameters())
    close(torch.autograd.grad(got.sum(), inputs), torch.autograd.grad(expected.sum(), inputs),
          rtol=1e-5, atol=1e-6)  # fmt: skip


def test_export() -> None:
    module = torch.nn.Sequential(
        library("prelu").Prelu(3), library("dyt").Dyt(3), library("spike").Spike()
    )
    x = normal(4, 3, dtype=torch.float32)
    batch = torch.export.Dim("batch", min=2, max=64)
    for strict in (False, True):
        exported = torch.export.export(module, (x,), dynamic_shapes=({0: batch},), strict=strict)
        for n in (4, 7):
            x = normal(n, 3, dtype=torch.float32)
            close(exported.module()(x), module(x))


# --- own gradients -----------------------------------------------------------------------------


def surrogate(name: str) -> Callable[[Tensor], Tensor]:
    return {
        "spike": lambda x: 1 / (1 + (torch.pi * x) ** 2),
        "trunc_exp": lambda x: x.clamp(-15, 15).exp(),
        "ste_sign": lambda x: (x.abs() <= 1).to(x.dtype),
    }[name]


OWN = ("spike", "trunc_exp", "ste_sign")


def slopes(op: Callable[[Tensor], Tensor], x: Tensor) -> dict[str, tuple[Callable[..., Any], int]]:
    """Ways to the derivative of an elementwise op, and how often it is taken."""
    one = torch.ones_like(x)
    total = lambda t: op(t).sum()  # noqa: E731
    return {
        "grad": (lambda x: func.grad(total)(x), 1),
        "vjp": (lambda x: func.vjp(op, x)[1](one)[0], 1),
        "jvp": (lambda x: func.jvp(op, (x,), (one,))[1], 1),
        "vmap of grad": (lambda x: func.vmap(func.grad(op))(x), 1),
        "grad of vmap": (lambda x: func.grad(lambda t: func.vmap(op)(t).sum())(x), 1),
        "vmap of jvp": (lambda x: func.vmap(lambda t, o: func.jvp(op, (t,), (o,))[1])(x, one), 1),
        "jacrev": (lambda x: func.jacrev(op)(x).diagonal(), 1),
        "jacfwd": (lambda x: func.jacfwd(op)(x).diagonal(), 1),
        "hessian": (lambda x: func.hessian(total)(x).diagonal(), 2),
        "grad of grad": (lambda x: func.grad(lambda t: func.grad(total)(t).sum())(x), 2),
        "jvp of grad": (lambda x: func.jvp(func.grad(total), (x,), (one,))[1], 2),
        "grad of jvp": (lambda x: func.grad(lambda t: func.jvp(op, (t,), (one,))[1].sum())(x), 2),
    }


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", OWN)
def test_own_gradients_under_transforms(name: str, compiled: bool) -> None:
    op, h = getattr(library(name), name), surrogate(name)
    x = torch.tensor([-20.0, -0.7, 0.2, 1.0, 3.0, 16.0], dtype=torch.float64)
    expected = {1: h(x), 2: func.grad(lambda t: h(t).sum())(x) if name != "ste_sign" else 0 * x}
    for label, (way, order) in slopes(op, x).items():
        if compiled:
            if label in ("vmap of jvp", "grad of jvp", "jacrev", "grad of vmap"):
                continue
            torch._dynamo.reset()
            way = torch.compile(way, fullgraph=True, backend="aot_eager")
        got = way(x)
        torch.testing.assert_close(
            got, expected[order], rtol=1e-10, atol=1e-12, msg=lambda m, label=label: f"{label}: {m}"
        )
    if not compiled:
        with pytest.raises(NotImplementedError, match="second tangents"):
            func.jacfwd(func.jacfwd(op))(x)
