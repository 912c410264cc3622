"""The compiled CPU kernels against the PyTorch path: every formula, dtype and kind of tensor."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from autofn.load import load_file
from autofn.model import REQUIRED, Definition, Kind
from autofn.resources import library

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "c++", "clang++"))), reason="no C++ compiler"
)

FORMULAS = sorted(path.stem for path in library().glob("*.py") if path.stem != "__init__")

# Formulas that are defined on part of the line only, or that overflow away from it.
RANGE = {"lennard_jones": (1.0, 1.5), "logit": (0.05, 0.95), "bessel_basis": (0.3, 4.0)}

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

ROUNDINGS = {torch.float64: 2.0**-44, torch.float32: 2.0**-16, torch.bfloat16: 2.0**-8,
             torch.float16: 2.0**-10}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """A kind of tensor: how the k-th tensor of a call is made of random values of a shape."""

    name: str
    shape: tuple[int, ...]
    make: Callable[[Tensor, int], Tensor]


def _dense(x: Tensor, k: int) -> Tensor:
    return x


def _transposed(x: Tensor, k: int) -> Tensor:
    return x.transpose(-1, -2).contiguous().transpose(-1, -2)


def _sliced(x: Tensor, k: int) -> Tensor:
    return torch.stack([x, x + 1], -1).flatten(-2)[..., ::2]


def _misaligned(x: Tensor, k: int) -> Tensor:
    return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)


def _mixed(x: Tensor, k: int) -> Tensor:
    return _transposed(x, k) if k % 2 else _sliced(x, k)


def _first(x: Tensor, k: int) -> Tensor:
    return x if k == 0 else x[:1]


def _last(x: Tensor, k: int) -> Tensor:
    return x if k == 0 else x[..., :1]


def _lower(x: Tensor, k: int) -> Tensor:
    return x if k == 0 else x[0]


def _crossed(x: Tensor, k: int) -> Tensor:
    return x[:1] if k % 2 else x[:, :1]


LAYOUTS = (
    Layout("dense", (3, 5, 37), _dense),
    Layout("large", (3, 5, 11000), _dense),
    Layout("0-dim", (), _dense),
    Layout("one", (1, 1), _dense),
    Layout("empty", (0, 5, 3), _dense),
    Layout("transposed", (6, 5, 70), _transposed),
    Layout("channels last", (2, 5, 6, 4), lambda x, k: x.contiguous(
        memory_format=torch.channels_last)),
    Layout("sliced", (2, 5, 33), _sliced),
    Layout("mixed", (2, 5, 33), _mixed),
    Layout("misaligned", (2, 5, 300), _misaligned),
    Layout("broadcast first", (700, 5, 3), _first),
    Layout("broadcast last", (7, 5, 600), _last),
    Layout("lower rank", (40, 5, 64), _lower),
    Layout("crossed", (7, 5, 9), _crossed),
)  # fmt: skip


def definition_of(name: str) -> Definition:
    return next(
        formula.definition
        for formula in load_file(library() / f"{name}.py")
        if formula.definition.name == name
    )


@pytest.fixture(params=FORMULAS, scope="module")
def op(request: pytest.FixtureRequest) -> Iterator[tuple[str, ModuleType]]:
    module = importlib.import_module(f"generated.{request.param}")
    runtime = importlib.import_module(f"generated.{request.param}._runtime")
    before = runtime.BACKEND, dict(runtime._LOADED)
    runtime.BACKEND = "native"
    runtime._LOADED.clear()
    yield request.param, module
    runtime.BACKEND = before[0]
    runtime._LOADED.clear()
    runtime._LOADED.update(before[1])


@contextlib.contextmanager
def torch_path(runtime: ModuleType) -> Iterator[None]:
    """No compiled kernels for a while."""
    loaded = dict(runtime._LOADED)
    runtime._LOADED["cpu"] = None
    yield
    runtime._LOADED.update(loaded)


def arguments(
    name: str, layout: Layout, dtype: torch.dtype, generator: torch.Generator
) -> list[Any]:
    """Random inputs: tensors in a layout, parameters in float32 under 16-bit tensors."""
    low, high = RANGE.get(name, (-3.0, 3.0))
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    found: list[Any] = []
    tensors = 0
    for leaf in definition_of(name).parameters:
        if leaf.kind in (Kind.TENSOR, Kind.OPTIONAL):
            values = torch.rand(layout.shape, generator=generator, dtype=torch.float64)
            values = (low + (high - low) * values).to(dtype)
            if values.dim() > 1 or layout.make is _dense:
                values = layout.make(values, tensors)
            found.append(values)
            tensors += 1
        elif leaf.kind in (Kind.LEARNABLE, Kind.PER_CHANNEL):
            dim = getattr(leaf, "dim", None)
            size = 1
            if leaf.kind is Kind.PER_CHANNEL and len(layout.shape) > 1:
                size = layout.shape[dim]
            values = 0.5 + torch.rand(size, generator=generator, dtype=torch.float64)
            found.append(values.to(wide))
        else:
            break
    return found


def results(
    module: ModuleType, name: str, given: list[Any], rounded: torch.dtype | None = None
) -> list[Tensor]:
    """Outputs, gradients and second-order gradients. `rounded`: the dtype of the cotangents."""
    function = getattr(module, name)
    required = [
        0.5
        for p in definition_of(name).parameters
        if not p.differentiable and p.default is REQUIRED
    ]
    inputs = [x.detach().requires_grad_() for x in given]
    outputs = function(*inputs, *required)
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    generator = torch.Generator().manual_seed(1)
    cotangents = [
        torch.randn(y.shape, generator=generator, dtype=torch.float64)
        .to(rounded or y.dtype)
        .to(y.dtype)
        .requires_grad_()
        for y in outputs
    ]
    grads = torch.autograd.grad(
        outputs, inputs, cotangents, create_graph=True, allow_unused=True, materialize_grads=True
    )
    if not any(g.requires_grad for g in grads):
        return [*outputs, *grads]
    seconds = torch.autograd.grad(
        [g for g in grads if g.requires_grad],
        [*inputs, *cotangents],
        [torch.ones_like(g) / 2 for g in grads if g.requires_grad],
        allow_unused=True,
        materialize_grads=True,
    )
    return [*outputs, *grads, *seconds]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda each: each.name)
def test_kernels_equal_the_pytorch_path(
    op: tuple[str, ModuleType], layout: Layout, generator: torch.Generator
) -> None:
    name, module = op
    runtime = importlib.import_module(f"{module.__name__}._runtime")
    for dtype in DTYPES if layout.name in ("dense", "broadcast first") else DTYPES[:1]:
        given = arguments(name, layout, dtype, generator)
        native = results(module, name, given)
        with torch_path(runtime):
            expected = results(module, name, given)
            exact = results(module, name, [x.detach().double() for x in given], native[0].dtype)
        for k, (got, want, true) in enumerate(zip(native, expected, exact, strict=True)):
            assert got.shape == want.shape and got.dtype == want.dtype, (k, dtype)
            if k == 0 and layout.make is not _mixed:
                assert got.stride() == want.stride(), dtype
            # Against the largest value, or what it may be the difference of.
            terms = max(1, max((x.numel() for x in given), default=1) // max(1, got.numel()))
            tolerance = ROUNDINGS[dtype] * max(1.0, terms**0.5)
            want = true.to(got.dtype)
            size = want.abs().nan_to_num(0.0, 0.0).max().item() if want.numel() else 0.0
            size = max(size, 1e-3)
            close = torch.isclose(got, want, rtol=tolerance, atol=tolerance * size, equal_nan=True)
            assert close.all(), (k, dtype, (got - want).abs().max(), size)


PLACED = {
    "one, 0-dim output": ((), (1,)),
    "one, no dimension of channels": ((5,), (1,)),
    "one": ((2, 3, 4), (1,)),
    "per channel, last": ((6, 3), (3,)),
    "per channel": ((2, 3, 4, 5), (3,)),
    "one of many dimensions": ((2, 3), (1, 1, 1, 1)),
    "empty": ((0, 3, 4), (3,)),
}


@pytest.mark.parametrize(("shape", "channels"), PLACED.values(), ids=PLACED)
@pytest.mark.parametrize("permuted", [False, True])
def test_ops_place_parameters_that_users_give(
    native: Callable[[str], ModuleType],
    shape: tuple[int, ...],
    channels: tuple[int, ...],
    permuted: bool,
    generator: torch.Generator,
) -> None:
    prelu = native("prelu").prelu
    x = torch.randn(shape, generator=generator)
    if permuted and x.dim() > 1:
        x = x.movedim(0, -1).contiguous().movedim(-1, 0)
    weight = torch.rand(channels, generator=generator)
    spread = weight if weight.numel() == 1 else weight.view(-1, *[1] * (x.dim() - 2))
    want = torch.where(x > 0, x, spread * x)
    with torch.no_grad():
        assert torch.equal(prelu(x, weight), want.view(shape))
    x.requires_grad_()
    weight.requires_grad_()
    out = prelu(x, weight)
    assert torch.equal(out, want.view(shape)) and out.stride() == x.stride()
    grad = torch.randn(shape, generator=generator)
    by_x, by_weight = torch.autograd.grad(out, (x, weight), grad)
    assert torch.equal(by_x, torch.where(x > 0, grad, spread.detach() * grad).view(shape))
    terms = (x * grad * (x <= 0)).detach()
    dims = [d for d in range(x.dim()) if weight.numel() == 1 or d != 1]
    summed = terms.sum(dims) if dims else terms
    torch.testing.assert_close(by_weight, summed.reshape(channels))


@pytest.mark.parametrize(
    ("shape", "channels", "why"),
    [
        ((5,), (5,), "an output of 1 dimensions takes a parameter of 1 element"),
        ((), (2,), "an output of 0 dimensions takes a parameter of 1 element"),
        ((2, 3), (3, 1), "a per-channel parameter has 1 dimension, not 2"),
        ((2, 3), (4,), r"size of tensor a \(3\) must match the size of tensor b \(4\)"),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_parameters_of_wrong_shapes_are_refused(
    native: Callable[[str], ModuleType],
    shape: tuple[int, ...],
    channels: tuple[int, ...],
    why: str,
    grad: bool,
) -> None:
    with pytest.raises((ValueError, RuntimeError), match=why):
        native("prelu").prelu(torch.ones(shape), torch.ones(channels, requires_grad=grad))


SUMMED = {"first": (0, (7, 9, 5001)), "middle": (1, (40, 7, 3001)), "last": (2, (411, 60, 70))}


@pytest.mark.parametrize("where", SUMMED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sums_are_exact_to_a_bound_and_the_same_for_any_threads(
    native: Callable[[str], ModuleType], where: str, dtype: torch.dtype, generator: torch.Generator
) -> None:
    dim, shape = SUMMED[where]
    quadratic = native("quadratic").quadratic  # 10 (x + y)**2
    x = torch.randn(shape, generator=generator).to(dtype)
    y = torch.randn([size if d == dim else 1 for d, size in enumerate(shape)], generator=generator)
    grad = torch.randn(shape, generator=generator)
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            leaf = y.clone().requires_grad_()
            out = quadratic(x, leaf)
            found.append(torch.autograd.grad(out, leaf, grad.to(out.dtype))[0])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(each, found[0]) for each in found)
    terms = 20 * (x.double() + y.double()) * grad.double()
    exact = terms.sum_to_size(y.shape)
    # Each term is four roundings from the truth; the sum's own share is 2^-20.
    sizes = 20 * ((x.double().abs() + y.double().abs()) * grad.double().abs()).sum_to_size(y.shape)
    bound = sizes * (2.0**-20 + 4 * 2.0**-24)
    assert bool(((found[0].double() - exact).abs() <= bound).all())


def test_one_sum_of_all_elements(
    native: Callable[[str], ModuleType], generator: torch.Generator
) -> None:
    swish_beta = native("swish_beta").swish_beta
    x = torch.randn(3_000_001, generator=generator)
    beta = torch.tensor([1.0], requires_grad=True)
    (got,) = torch.autograd.grad(swish_beta(x, beta).sum(), beta)
    s = torch.sigmoid(x.double())
    terms = x.double() ** 2 * s * (1 - s)
    assert abs(got.item() - terms.sum().item()) <= terms.abs().sum().item() * 2.0**-20


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_16_bit_types_are_read_and_rounded_as_pytorch_does(
    native: Callable[[str], ModuleType], dtype: torch.dtype
) -> None:
    """Every number, and a length that is no multiple of a vector's."""
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    x = torch.cat([x, x[:3]])
    square, triple = native("two_outputs").two_outputs(x)
    for got, want in ((square, x.float() ** 2), (triple, 3 * x.float())):
        torch.testing.assert_close(got, want.to(dtype), rtol=0, atol=0, equal_nan=True)


def test_a_direction_of_zeros_adds_nothing_to_second_derivatives(
    native: Callable[[str], ModuleType],
) -> None:
    """Not 0 times an exponential that overflows: a direction that is not asked for is zeros."""
    laplace_nll = native("laplace_nll").laplace_nll
    inputs = [torch.tensor([v], requires_grad=True) for v in (1.5, 1.0, -1e11)]
    grad = torch.ones(1, requires_grad=True)
    *_, first = torch.autograd.grad(laplace_nll(*inputs), inputs, grad, create_graph=True)
    (second,) = torch.autograd.grad(first, inputs[2], torch.zeros(1))
    assert second.item() == 0


def _free_memory() -> int:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0


@pytest.mark.slow
@pytest.mark.skipif(_free_memory() < 14 << 30, reason="needs 14 GB of memory")
def test_more_elements_than_32_bits_count(native: Callable[[str], ModuleType]) -> None:
    relu = native("relu").relu
    x = torch.zeros(2**31 + 99, dtype=torch.bfloat16)
    x[-3:] = torch.tensor([1.0, -2.0, 3.0])
    assert relu(x)[-3:].tolist() == [1.0, 0.0, 3.0]
    every_other = x[1::2]
    assert every_other.numel() > 2**30
    assert relu(every_other)[-1] == relu(x[every_other.numel() * 2 - 1])
    far_apart = x[:: 2**30 + 48]
    assert far_apart.stride(0) * 2 > 2**31
    assert relu(far_apart).tolist() == [0.0, 0.0, 1.0]


def test_a_forked_worker_runs_kernels(native: Callable[[str], ModuleType]) -> None:
    mish = native("mish").mish
    x = torch.linspace(-3, 3, 100_000)
    want = mish(x)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(mish(x), want) else 1)
    assert os.waitpid(child, 0)[1] == 0


LARGE = """
import sys, torch
from torch.autograd import grad

from autofn.bench.measure import keep_freed_memory

sys.path.insert(0, sys.argv[1])
from geglu import geglu
from swish import swish

n, piece = (1 << 23) + 13, 1 << 20
assert keep_freed_memory()
for dtype in (torch.float32, torch.float64):
    x = torch.linspace(-9, 9, n, dtype=dtype).requires_grad_()
    gate = x.detach().flip(0).requires_grad_()
    for _ in range(3):  # what is freed is written to again
        large = [swish(x), *grad(geglu(x, gate).sum(), [x, gate])]
    for i in range(0, n, piece):
        part, beside = x[i : i + piece], gate[i : i + piece]
        small = [swish(part), *grad(geglu(part, beside).sum(), [part, beside])]
        for got, want in zip(large, small):
            assert torch.equal(got[i : i + piece], want), (dtype, i)
"""


def test_results_that_are_stored_past_the_caches(native: Callable[[str], ModuleType]) -> None:
    """Results of 32 MiB and more, where memory has been written to before."""
    (package,) = native("swish").__path__
    run = [sys.executable, "-c", LARGE, str(Path(package).parent)]
    subprocess.run(run, check=True, timeout=300, env={**os.environ, "AUTOFN_BACKEND": "native"})


def test_tensors_of_other_kinds_go_to_pytorch(native: Callable[[str], ModuleType]) -> None:
    swish = native("swish").swish
    assert swish(torch.ones(3, device="meta")).shape == (3,)
    assert swish(torch.arange(3)).dtype is torch.float32
    imaginary = torch.tensor([1 + 2j]).conj().imag  # a view with its sign bit pending
    assert torch.equal(swish(imaginary), swish(torch.tensor([-2.0])))
    x = torch.randn(4, 3, requires_grad=True)
    basis = torch.eye(12).view(12, 4, 3)
    (rows,) = torch.autograd.grad(swish(x), x, basis, is_grads_batched=True)
    assert torch.allclose(rows.sum(0), torch.autograd.grad(swish(x).sum(), x)[0])


def test_large_arguments_of_sin_among_small_ones(native: Callable[[str], ModuleType]) -> None:
    sine = native("sine").sine
    x = torch.linspace(-3, 3, 5000)
    x[700], x[3001], x[4000] = 1e7, torch.inf, torch.nan
    got = sine(x, omega=1.0)
    assert torch.allclose(got, torch.sin(x.double()).float(), atol=3e-7, equal_nan=True)
    assert got[3001].isnan() and got[4000].isnan() and got.isnan().sum() == 2


def test_an_element_is_the_same_beside_one_that_is_computed_again(
    native: Callable[[str], ModuleType],
) -> None:
    """sine is computed again, in double, where omega * x overflows single precision."""
    module = native("sine")
    x = torch.linspace(-3, 3, 700)
    beside = x.clone()
    beside[::50] = 3e38
    alone, together = module.sine(x, omega=30.0), module.sine(beside, omega=30.0)
    calm = beside == x
    assert torch.equal(alone[calm], together[calm])
    far = torch.sin(30.0 * torch.tensor(3e38).double())
    torch.testing.assert_close(together[0].double(), far, rtol=2**-23, atol=0.0)
    assert module.sine(torch.tensor([torch.inf, torch.nan]), omega=30.0).isnan().all()
