"""The compiled CUDA leaves on a GPU: `pytest -m gpu`, where there is one.

Each package is imported a second time with AUTOFN_BACKEND=native, which raises where it would
fall back, and compared with its PyTorch path.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from references import REFERENCES, Inputs
from torch import Tensor

from autofn.resources import templates
from autofn.verify import host, leaves

ROOT = Path(__file__).resolve().parent.parent
NAMES = sorted(REFERENCES)
LOSSES = sorted(
    path.stem for path in (ROOT / "formulas").glob("*.py") if "reduction=True" in path.read_text()
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA GPU"),
]

DTYPES = {
    torch.float64: 1e-9,
    torch.float32: 3e-5,
    torch.bfloat16: 2e-2,
    torch.float16: 3e-3,
}
"""How far results may be off, relative to 1 and to the largest term."""


# --- helpers -------------------------------------------------------------------------------------


def native(name: str) -> ModuleType:
    """The package with its compiled leaves, or an error."""
    module = f"generated_native_{name}"
    if module not in sys.modules:
        folder = ROOT / "generated" / name
        spec = importlib.util.spec_from_file_location(
            module, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        kept = os.environ.get("AUTOFN_BACKEND")
        os.environ["AUTOFN_BACKEND"] = "native"
        try:
            made = importlib.util.module_from_spec(spec)
            sys.modules[module] = made
            spec.loader.exec_module(made)
        finally:
            del os.environ["AUTOFN_BACKEND"]
            if kept is not None:
                os.environ["AUTOFN_BACKEND"] = kept
    return sys.modules[module]


def in_pytorch(name: str) -> ModuleType:
    return importlib.import_module(f"generated.{name}")


def function(module: ModuleType, name: str) -> Callable[..., Any]:
    """The op, without a loss's reduction, under the package's own type of settings."""
    op = getattr(module, name)

    def call(**inputs: Any) -> tuple[Tensor, ...]:
        if "settings" in inputs:
            inputs["settings"] = module.Settings(*inputs["settings"])
        if name in LOSSES:
            inputs["reduction"] = "none"
        found = op(**inputs)
        return (found,) if isinstance(found, Tensor) else tuple(found)

    return call


def on(inputs: Inputs, device: str, dtype: torch.dtype | None = None) -> Inputs:
    """Copies there that require a gradient; with a dtype, of that."""
    return {
        name: value.detach().to(device, dtype or value.dtype, copy=True).requires_grad_()
        if isinstance(value, Tensor)
        else value
        for name, value in inputs.items()
    }


def tensors(inputs: Inputs) -> list[Tensor]:
    return [value for value in inputs.values() if isinstance(value, Tensor)]


def all_orders(
    op: Callable[..., Any], inputs: Inputs, cotangents: Sequence[Tensor], *, second: bool = True
) -> list[Tensor]:
    """Outputs, gradients, and gradients of the sum of the squares of those."""
    outputs = op(**inputs)
    wrt = tensors(inputs)
    given = [c.to(y.device, y.dtype) for c, y in zip(cotangents, outputs, strict=True)]
    pairs = [(y, c) for y, c in zip(outputs, given, strict=True) if y.requires_grad]
    if not pairs:
        return list(outputs)
    first = torch.autograd.grad(
        [y for y, _ in pairs],
        wrt,
        [c for _, c in pairs],
        create_graph=second,
        materialize_grads=True,
    )
    found = [*outputs, *first]
    curved = [g for g in first if g.requires_grad]
    if second and curved:
        weights = [torch.linspace(0.5, 1.5, g.numel()).to(g).reshape(g.shape) for g in curved]
        found += torch.autograd.grad(curved, wrt, weights, materialize_grads=True)
    return [each.detach() for each in found]


def cotangents_of(outputs: Sequence[Tensor]) -> list[Tensor]:
    return [torch.linspace(-1, 1, y.numel()).double().reshape(y.shape) for y in outputs]


def require_close(got: Sequence[Tensor], want: Sequence[Tensor], tolerance: float) -> None:
    for n, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        assert mine.shape == theirs.shape, n
        wide = theirs.double().cpu()
        finite = wide.isfinite() & (wide.abs() < torch.finfo(mine.dtype).max)
        largest = wide[finite].abs().max() if bool(finite.any()) else torch.tensor(0.0)
        off = (mine.double().cpu() - wide)[finite].abs()
        assert bool((off <= tolerance * (1 + largest)).all()), (n, float(off.max()))


def run(name: str, inputs: Inputs, *, device: str = "cuda", second: bool = False) -> list[Tensor]:
    """The compiled op on a device, with fixed cotangents."""
    op = function(native(name), name)
    given = on(inputs, device)
    return all_orders(op, given, cotangents_of(op(**given)), second=second)


# --- every formula -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("name", NAMES)
def test_formula(name: str, dtype: torch.dtype, generator: torch.Generator) -> None:
    """Forward, backward and double backward, against PyTorch operations in float64."""
    inputs = REFERENCES[name].inputs(generator, dtype)
    ours, theirs = function(native(name), name), function(in_pytorch(name), name)
    wide = on(inputs, "cpu", torch.float64)
    cotangents = cotangents_of(theirs(**wide))
    second = dtype in (torch.float64, torch.float32)
    want = all_orders(theirs, wide, cotangents, second=second)
    got = all_orders(ours, on(inputs, "cuda"), cotangents, second=second)
    assert all(each.is_cuda for each in got)
    require_close(got, want, DTYPES[dtype])


# --- tensors of all kinds ------------------------------------------------------------------------

SHAPED = ("swiglu", "prelu", "dyt")
SHAPE = (6, 24, 7, 9)


def shaped(name: str, generator: torch.Generator) -> Inputs:
    channels = SHAPE[-1] if name == "dyt" else SHAPE[1]
    x = torch.randn(SHAPE, generator=generator)
    if name == "prelu":
        return {"x": x, "weight": torch.rand(channels, generator=generator)}
    if name == "dyt":
        alpha, gamma, beta = (torch.rand(n, generator=generator) for n in (1, channels, channels))
        return {"x": x, "alpha": alpha, "gamma": gamma, "beta": beta}
    reference = REFERENCES[name].inputs(generator, torch.float32)
    return {key: torch.randn(SHAPE, generator=generator) for key in reference}


def laid(x: Tensor, layout: str) -> Tensor:
    if layout == "channels_last":
        return x.contiguous(memory_format=torch.channels_last)
    if layout == "permuted":
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "sliced":
        return torch.stack([x, x], -1).flatten(-2)[..., ::2]
    if layout == "misaligned":
        return torch.empty(x.numel() + 1, device=x.device, dtype=x.dtype)[1:].view_as(x).copy_(x)
    if layout == "expanded":
        return x[:, :, :1, :1].expand_as(x)
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    "layout", ["dense", "channels_last", "permuted", "sliced", "misaligned", "expanded"]
)
@pytest.mark.parametrize("name", SHAPED)
def test_layouts(name: str, layout: str, dtype: torch.dtype, generator: torch.Generator) -> None:
    """Inputs and the incoming gradient in this layout; a dense one keeps its memory format."""
    inputs = shaped(name, generator)
    ours, theirs = function(native(name), name), function(in_pytorch(name), name)
    given: Inputs = {}
    for key, value in inputs.items():
        moved = value.cuda()
        if value.dim() > 1:
            moved = laid(moved.to(dtype), layout)
        given[key] = moved.requires_grad_()
    wide = {key: value.detach().double().cpu().requires_grad_() for key, value in given.items()}
    outputs, expected = ours(**given), theirs(**wide)
    cotangents = [laid(torch.randn(SHAPE, generator=generator).to(y), layout) for y in outputs]
    got = torch.autograd.grad(outputs, tensors(given), cotangents)
    want = torch.autograd.grad(expected, tensors(wide), [c.double().cpu() for c in cotangents])
    require_close([*outputs, *got], [*expected, *want], 40 * DTYPES[dtype])
    if layout in ("dense", "channels_last", "permuted"):
        first = tensors(given)[0]
        assert outputs[0].stride() == first.stride()


@pytest.mark.parametrize("size", [(), (0,), (3, 0, 5), (1,), (7,), (1025,), (65_537,)])
def test_sizes(size: tuple[int, ...]) -> None:
    x = torch.linspace(-3, 3, math.prod(size)).reshape(size)
    got = run("swish", {"x": x})
    op = function(in_pytorch("swish"), "swish")
    want = all_orders(op, on({"x": x}, "cpu"), cotangents_of([x]), second=False)
    require_close(got, want, DTYPES[torch.float32])


def test_a_0_dim_number_of_the_cpu_beside_cuda_tensors() -> None:
    x, y = torch.randn(100, device="cuda"), torch.tensor(1.5)
    op = function(native("quadratic"), "quadratic")
    (got,) = op(x=x, y=y)
    (want,) = function(in_pytorch("quadratic"), "quadratic")(x=x, y=y)
    assert got.is_cuda
    require_close([got], [want], DTYPES[torch.float32])


def test_tensors_of_two_devices_are_refused() -> None:
    op = function(native("quadratic"), "quadratic")
    with pytest.raises(RuntimeError, match="same device"):
        op(x=torch.randn(100, device="cuda"), y=torch.randn(100))


# --- large ---------------------------------------------------------------------------------------

LARGE = 2**31 + 24 * 1000 + 5


def require_memory(gib: float) -> None:
    free, _ = torch.cuda.mem_get_info()
    if free < gib * 2**30:
        pytest.skip(f"{gib:g} GiB of GPU memory needed, {free / 2**30:.0f} GiB free")


def test_more_than_2_31_elements() -> None:
    require_memory(14)
    x = torch.empty(LARGE, device="cuda", dtype=torch.bfloat16)
    x.fill_(-1.0)[-70_000:] = 2.0
    (got,) = function(native("relu"), "relu")(x=x)
    assert int(torch.count_nonzero(got)) == 70_000
    assert bool((got[-70_000:] == 2).all())


@pytest.mark.parametrize("rows", [1, 8])
def test_a_sum_over_more_than_2_31_elements(rows: int) -> None:
    """PReLU's gradient by its slopes: a sum of as many ones is exact."""
    require_memory(24)
    columns = (2**31 + 2**16) // rows
    x = torch.full((columns, rows), -1.0, device="cuda", dtype=torch.bfloat16).requires_grad_()
    weight = torch.full((rows,), 0.5, device="cuda", requires_grad=True)
    (y,) = function(native("prelu"), "prelu")(x=x, weight=weight)
    grad_x, grad = torch.autograd.grad(y, (x, weight), torch.ones_like(y))
    assert bool((grad == -columns).all())
    assert bool((grad_x[-1000:] == 0.5).all())


# --- sums are the same bits ----------------------------------------------------------------------


def dyt_inputs(generator: torch.Generator, rows: int = 3001, channels: int = 768) -> Inputs:
    x = torch.randn(rows, channels, generator=generator)
    gamma, beta = (torch.randn(channels, generator=generator) for _ in range(2))
    return {"x": x, "alpha": torch.tensor([0.7]), "gamma": gamma, "beta": beta}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
def test_runs_are_equal_to_the_bit(dtype: torch.dtype, generator: torch.Generator) -> None:
    inputs = dyt_inputs(generator)
    inputs["x"] = inputs["x"].to(dtype)
    runs = [run("dyt", inputs) for _ in range(5)]
    for other in runs[1:]:
        for one, two in zip(runs[0], other, strict=True):
            assert torch.equal(one, two)


def test_sums_are_those_of_the_host(generator: torch.Generator, tmp_path: Path) -> None:
    """The kernel's text on the host, its blocks in order: PReLU has no operation that differs."""
    package = ROOT / "generated" / "prelu"
    tools = host.toolchain()
    if isinstance(tools, str):
        pytest.skip(tools)
    library = tmp_path / "prelu.so"
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-ffp-contract=off"]
    flags += [f"-I{package}", f"-I{templates() / 'host'}", "-o", str(library)]
    driver = str(templates() / "host" / "driver.cpp")
    subprocess.run([tools.compiler, *flags, driver], check=True)
    built = ctypes.CDLL(str(library))
    built.autofn_workspace.restype = ctypes.c_int64

    x = torch.randn(50, 24, 31, 33, generator=generator)
    weight = torch.rand(24, generator=generator)
    *_, mine = run("prelu", {"x": x, "weight": weight})
    grad = cotangents_of([x])[0].to(x)
    spread = weight.reshape(24, 1, 1).expand_as(x)
    theirs = torch.empty(24, 1, 1)
    outputs = [torch.empty_like(x), theirs.expand_as(x)]
    call = leaves._call([grad, x, spread], outputs, range(4), x.shape)
    call.compute = 1
    size = built.autofn_workspace(1, ctypes.byref(call))
    workspace = torch.empty(size, dtype=torch.uint8)
    pointer = ctypes.c_void_p(workspace.data_ptr())
    assert built.autofn_run(1, ctypes.byref(call), pointer) == 0
    assert torch.equal(theirs.reshape(24), mine.cpu())


# --- streams, graphs, devices --------------------------------------------------------------------


def test_streams(generator: torch.Generator) -> None:
    """Calls in several streams at a time, each on what its own stream has written."""
    inputs = dyt_inputs(generator, rows=2000)
    want = run("dyt", inputs)
    streams = [torch.cuda.Stream() for _ in range(4)]
    found = []
    for _ in range(3):
        for stream in streams:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(1_000_000)
                found.append(run("dyt", inputs))
    torch.cuda.synchronize()
    for got in found:
        for one, two in zip(got, want, strict=True):
            assert torch.equal(one, two)


@pytest.mark.parametrize("name", ["swish", "dyt"])
def test_cuda_graphs(name: str, generator: torch.Generator) -> None:
    """Forward and backward captured once, replayed on other values."""
    inputs = dyt_inputs(generator) if name == "dyt" else {"x": torch.randn(999, 33)}
    op = function(native(name), name)
    static = on(inputs, "cuda")
    cotangents = [c.to("cuda", torch.float32) for c in cotangents_of(op(**static))]

    def step() -> list[Tensor]:
        return all_orders(op, static, cotangents, second=False)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for scale in (1.0, -0.5):
        with torch.no_grad():
            static["x"].copy_(inputs["x"] * scale)
        graph.replay()
        torch.cuda.synchronize()
        for one, two in zip(captured, step(), strict=True):
            assert torch.equal(one, two)


def test_several_devices(generator: torch.Generator) -> None:
    """The tensors' device counts, not the current one."""
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    inputs = dyt_inputs(generator)
    want = run("dyt", inputs, device="cuda:0")
    with torch.cuda.device(0):
        got = run("dyt", inputs, device="cuda:1")
        assert torch.cuda.current_device() == 0
    for one, two in zip(got, want, strict=True):
        assert one.device.index == 1
        require_close([one], [two], DTYPES[torch.float32])


# --- under the sanitizer -------------------------------------------------------------------------

EXERCISE = """
import torch
from generated import dyt, prelu, swiglu
for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    for shape in ((1,), (7, 33), (300, 96), (3, 5, 7, 9)):
        x = torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True)
        last = [torch.rand(n, device="cuda", dtype=wide, requires_grad=True)
                for n in (1, shape[-1], shape[-1])]
        middle = torch.rand(shape[1] if len(shape) > 1 else 1, device="cuda", dtype=wide)
        gate = torch.randn(shape[-1], device="cuda", dtype=dtype, requires_grad=True)
        for y in (
            dyt.dyt(x, *last),
            prelu.prelu(x, middle.requires_grad_()),
            swiglu.swiglu(x, gate),
            swiglu.swiglu(gate, x[..., ::2].repeat_interleave(2, -1)[..., : shape[-1]]),
        ):
            y.sum().backward()
torch.cuda.synchronize()
"""


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck", "initcheck"])
def test_compute_sanitizer(tool: str) -> None:
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer not found")
    environment = {
        **os.environ,
        "AUTOFN_BACKEND": "native",
        "PYTHONPATH": str(ROOT),
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    }
    command = [sys.executable, "-c", EXERCISE]
    subprocess.run(command, env=environment, check=True, timeout=600)  # builds what is missing
    options = ["--tool", tool, "--error-exitcode", "9", "--kernel-regex", "kns=autofn"]
    done = subprocess.run(
        [sanitizer, *options, *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
