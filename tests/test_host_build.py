"""The CUDA kernels' text, and the shim and driver under which it runs on the host.

Loops, planning and sums are tested here with a kernel of their own; formulas are tested by the
verification.
"""

from __future__ import annotations

import ctypes
import math
import random
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from autofn.backends import cuda
from autofn.plan import Kernel, Operand
from autofn.program import Program
from autofn.resources import templates
from autofn.verify import host, leaves
from autofn.verify.nursery import spawn
from autofn.verify.process import Worker

CONVERSIONS = """
#include "cuda_bf16.h"
#include "cuda_fp16.h"
extern "C" void to_half(const float* from, std::uint16_t* to, long count) {
  for (long i = 0; i < count; ++i) to[i] = __float2half_rn(from[i]).bits;
}
extern "C" void to_bfloat16(const float* from, std::uint16_t* to, long count) {
  for (long i = 0; i < count; ++i) to[i] = __float2bfloat16_rn(from[i]).bits;
}
extern "C" void from_half(const std::uint16_t* from, float* to, long count) {
  for (long i = 0; i < count; ++i) to[i] = __half2float({from[i]});
}
extern "C" void from_bfloat16(const std::uint16_t* from, float* to, long count) {
  for (long i = 0; i < count; ++i) to[i] = __bfloat162float({from[i]});
}
"""


def compiler() -> str:
    tools = host.toolchain()
    if isinstance(tools, str):
        pytest.skip(tools)
    return tools.compiler


def call(function: ctypes._CFuncPtr, source: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (source, result)]
    function(*pointers, ctypes.c_long(source.numel()))
    return result


@pytest.fixture(scope="module")
def conversions(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("conversions")
    source, library = folder / "conversions.cpp", folder / "conversions.so"
    source.write_text(CONVERSIONS)
    include = f"-I{templates() / 'host'}"
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", include]
    subprocess.run([compiler(), *flags, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize(("name", "dtype"), [("half", torch.float16), ("bfloat16", torch.bfloat16)])
def test_conversions_are_pytorchs(
    conversions: ctypes.CDLL, name: str, dtype: torch.dtype, generator: torch.Generator
) -> None:
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    wide = call(getattr(conversions, f"from_{name}"), bits, torch.empty(len(bits)))
    want = bits.view(dtype).float()
    assert torch.equal(wide.nan_to_num(0.5), want.nan_to_num(0.5))

    numbers = want[want.isfinite()].sort().values
    ties = (numbers[1:].double() + numbers[:-1].double()).div(2).float()
    random = torch.randint(-(2**31), 2**31, (2**18,), generator=generator).int().view(torch.float32)
    up, down = torch.tensor(torch.inf), torch.tensor(-torch.inf)
    floats = torch.cat([ties, torch.nextafter(ties, up), torch.nextafter(ties, down), random])
    narrow = torch.empty(len(floats), dtype=torch.int16)
    call(getattr(conversions, f"to_{name}"), floats, narrow)
    expected = floats.to(dtype)
    same = (narrow == expected.view(torch.int16)) | (narrow.view(dtype).isnan() & floats.isnan())
    assert bool(same.all()), floats[~same][:5]


def operands(role: str, *names: str) -> tuple[Operand, ...]:
    return tuple(Operand(name, name, role) for name in names)  # type: ignore[arg-type]


NOTHING = Program((), (), ())

# Names that meet the struct's own, and each other's packs.
AWKWARD = Kernel(
    function="awkward_backward",
    pass_name="backward",
    op="backward",
    alike=False,
    key=(),
    inputs=operands("tensor", "grad", "x", "x_v", "load", "N", "at", "k", "in", "of")
    + operands("parameter", "S", "storage")
    + operands("number", "Pack", "compute_t", "widen_"),
    outputs=operands("tensor", "grad_x", "store", "widen") + operands("parameter", "grad_S"),
)
AWKWARD_MATHS = """
#pragma once
namespace autofn_awkward {
template <typename T>
void awkward_backward(T, T a, T b, T, T, T, T, T, T, T, T c, T, T, T, T& x, T& y, T& z, T& w) {
  x = a; y = b; z = c; w = a;
}
}
"""

# grad_x = grad * w + c, grad_y = grad, grad_w = grad * x: what is summed is exact in float64.
PRODUCT = Kernel(
    function="product_backward",
    pass_name="backward",
    op="backward",
    alike=False,
    key=(),
    inputs=operands("tensor", "grad", "x") + operands("parameter", "w") + operands("number", "c"),
    outputs=operands("tensor", "grad_x", "grad_y") + operands("parameter", "grad_w"),
)
PRODUCT_MATHS = """
#pragma once
namespace autofn_product {
template <typename T>
void product_backward(T grad, T x, T w, T c, T& grad_x, T& grad_y, T& grad_w) {
  grad_x = grad * w + c;
  grad_y = grad;
  grad_w = grad * x;
}
}
"""

# What no tensor of a test is large enough for.
INDICES = """
#include "driver.cpp"
using Op = autofn_product::product_backward_op<float>;
extern "C" std::uint32_t divided(std::uint32_t number, std::int64_t by) {
  return autofn::divisor(by).divide(number);
}
extern "C" int parts(const autofn::Call* call, autofn::Call* found) {
  int count = 0;
  autofn::sliced(*call, [&](const autofn::Call& part) {
    found[count++] = part;
    return cudaSuccess;
  });
  return count;
}
extern "C" void strided(const autofn::Call* call, std::uint32_t first, std::int64_t* offsets) {
  const auto layout = autofn::layout<Op>(*call);
  const autofn::Strided<Op::kInputs> at(layout, first, 1);
  for (int k = 0; k < Op::kInputs; ++k) offsets[k] = at.offsets[k];
}
// Of the tile that has this row and column: its first ones, and the first input's element there.
extern "C" std::int64_t tiled(const autofn::Call* call, std::int64_t outer, std::int64_t* place) {
  const autofn::Plan<Op> plan(*call, autofn::next_pass(*call, 4, 3), nullptr);
  const auto& tiling = plan.tiling;
  const std::int64_t row_tile = place[0] / tiling.tile_rows;
  const std::int64_t column_tile = place[1] / tiling.tile_columns;
  place[0] = row_tile * tiling.tile_rows;
  place[1] = column_tile * tiling.tile_columns;
  autofn::Sum<float> shared[autofn::most_sums<Op>() * autofn::tile_pack<Op>() * autofn::kThreads];
  const std::int64_t row = outer * tiling.row_tiles + row_tile;
  threadIdx.x = 0;
  const autofn::Tile<Op, false> at(tiling, shared, row * tiling.column_tiles + column_tile);
  return at.inputs[0];
}
"""


def written(folder: Path, name: str, kernel: Kernel, maths: str) -> Path:
    """A folder with all that a package has of its kernels."""
    for path, text in cuda.files(name, ((kernel, NOTHING),), "header").items():
        (folder / path).write_text(text)
    (folder / "kernel.h").write_text((templates() / "kernel.h").read_text())
    (folder / "maths.h").write_text(maths)
    return folder


def test_any_names_compile_on_the_host(tmp_path: Path) -> None:
    package = written(tmp_path, "awkward", AWKWARD, AWKWARD_MATHS)
    include = [f"-I{templates() / 'host'}", f"-I{package}"]
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
    command = [compiler(), "-std=c++17", "-fsyntax-only", *warnings, *include]
    subprocess.run([*command, str(templates() / "host" / "driver.cpp")], check=True)


def test_text_is_plain() -> None:
    files = cuda.files("awkward", ((AWKWARD, NOTHING),), "header")
    assert set(files) == {"kernels.cu", "launch.cuh", "loops.cuh"}
    for text in files.values():
        assert text.startswith("// header\n")
        assert "<<<" not in text
        assert 'extern "C"' not in text
        assert not re.search(r"#include\s*[<\"](torch|ATen|c10)", text)
        assert max(map(len, text.splitlines())) <= 100
    for shared in ("launch.cuh", "loops.cuh"):
        assert files[shared] == cuda.files("other", (), "header")[shared]


def test_the_verification_knows_the_interface() -> None:
    text = (templates() / "kernel.h").read_text()
    assert f"kMaxDims = {leaves.MAX_DIMS};" in text
    assert f"kMaxOperands = {leaves.MAX_OPERANDS};" in text
    names = ", ".join(str(dtype).removeprefix("torch.") for dtype in leaves.DTYPES)
    assert f"Dtype : std::int32_t {{ {names} }};" in text


# --- calls -------------------------------------------------------------------------------------

Shape = tuple[int, ...]
WHOLE: Shape = (-1,)


@dataclass(frozen=True)
class Sums:
    """A call over `shape`, with `w` and the gradients of x, y and w of these shapes."""

    shape: Shape
    w: Shape
    x: Shape = WHOLE
    y: Shape = WHOLE
    layout: str = "dense"


SUMS = {
    "scalar": Sums((70_001,), ()),
    "scalar of a few": Sums((3,), ()),
    "scalar of rows": Sums((37, 90, 5), (), layout="permuted"),
    "channel last": Sums((300, 136), (136,)),
    "channel last, odd": Sums((257, 33), (33,)),
    "channel last, few rows": Sums((3, 5000), (5000,)),
    "three channels last": Sums((1500, 3), (3,)),
    "channel first": Sums((7, 4000), (7, 1)),
    "channel in the middle": Sums((5, 7, 1300), (7, 1)),
    "channel in the middle, 7 by 7": Sums((40, 3, 7, 7), (3, 1, 1)),
    "channels_last": Sums((4, 24, 9, 9), (24, 1, 1), layout="permuted"),
    "scalar beside a channel": Sums((200, 72), (72,), y=()),
    "channels of two dimensions": Sums((30, 40, 50), (50,), x=(40, 1), y=(30, 1, 1)),
    "rows": Sums((300, 40), (300, 1)),
    "rows and columns": Sums((90, 130), (130,), x=(90, 1)),
    "two passes": Sums((20, 30, 40), (30, 40), x=(20, 1, 40)),
    "three passes": Sums((12, 20, 5, 6), (20, 1, 6), x=(12, 1, 5, 1), y=(12, 20, 1, 6)),
    "every other dimension": Sums((3, 4, 5, 6, 7), (3, 1, 5, 1, 7)),
    "sliced": Sums((50, 60), (60,), layout="sliced"),
    "misaligned": Sums((64, 64), (64,), layout="misaligned"),
    "one row": Sums((1, 77), (77,), x=()),
    "nothing to sum": Sums((33, 65), (33, 65)),
}


class Library:
    """The product's kernel on the host."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.autofn_workspace.restype = ctypes.c_int64
        self.library.tiled.restype = ctypes.c_int64
        self.library.divided.restype = ctypes.c_uint32

    def run(
        self,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor | None],
    ) -> None:
        shape = inputs[0].shape
        spread = [None if o is None else o.expand(shape) for o in outputs]
        call = leaves._call(inputs, spread, leaves._order(inputs, shape), shape)
        call.compute = int(inputs[0].dtype != torch.float64)
        call.numbers = (ctypes.c_double * 1)(0.25)
        size = self.library.autofn_workspace(0, ctypes.byref(call))
        # Every byte of it that is not asked for would be seen.
        memory = torch.full((size + 64,), 0xFF, dtype=torch.uint8)
        pointer = ctypes.c_void_p(memory.data_ptr() if size else None)
        assert self.library.autofn_run(0, ctypes.byref(call), pointer) == 0
        assert bool((memory[size:] == 0xFF).all())


@pytest.fixture(scope="module", params=[256, 32])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Library:
    """With the blocks of the device, and with the small ones of the verification."""
    folder = written(tmp_path_factory.mktemp("product"), "product", PRODUCT, PRODUCT_MATHS)
    (folder / "indices.cpp").write_text(INDICES)
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "-fwrapv"]
    flags += [f"-DAUTOFN_THREADS={request.param}", f"-I{folder}", f"-I{templates() / 'host'}"]
    library = folder / "indices.so"
    command = [compiler(), *flags, str(folder / "indices.cpp"), "-o", str(library)]
    subprocess.run(command, check=True)
    return Library(library)


def laid(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "permuted":
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "sliced":
        return torch.stack([tensor, tensor], -1).flatten(-2)[..., ::2]
    if layout == "misaligned":
        flat = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
        return flat[1:].view(tensor.shape).copy_(tensor)
    return tensor


def whole(shape: Shape, all_of: Shape) -> Shape:
    return all_of if shape == WHOLE else shape


@pytest.mark.parametrize("dtype", leaves.DTYPES, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("name", SUMS)
def test_sums(library: Library, name: str, dtype: torch.dtype, generator: torch.Generator) -> None:
    """Every output within its bound."""
    sums = SUMS[name]
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    grad, x = (
        laid(torch.randn(sums.shape, generator=generator, dtype=torch.float64).to(dtype), each)
        for each in (sums.layout, sums.layout)
    )
    w = torch.randn(sums.w, generator=generator, dtype=torch.float64).to(compute)
    inputs = [grad, x, w.expand(sums.shape)]
    order = leaves._order(inputs, grad.shape)
    shapes = [whole(each, sums.shape) for each in (sums.x, sums.y, sums.w)]
    outputs = [
        leaves._dense(shape, order, compute if k == 2 else dtype) for k, shape in enumerate(shapes)
    ]
    library.run(inputs, outputs)
    g, wide = grad.to(compute), x.to(compute)
    terms = (g * w + 0.25, g, g * wide)
    for got, term, shape in zip(outputs, terms, shapes, strict=True):
        want = term.double().sum_to_size(shape)
        scale = term.double().abs().sum_to_size(shape)
        bits = 49 if dtype == torch.float64 else 20
        error = (got.double() - want).abs()
        stored = torch.finfo(got.dtype)
        rounding = (stored.eps + torch.finfo(compute).eps) / 2 * (want.abs() + stored.tiny)
        assert bool((error <= scale * 2.0**-bits + rounding).all()), got.dtype


def test_a_long_sum_of_one_sign(library: Library) -> None:
    """A plain float32 sum of as many is off by 2^-9."""
    grad = torch.full((2**22 + 3,), 0.1)
    one = torch.ones(())
    got = torch.empty(())
    library.run([grad, grad, one.expand(grad.shape)], [None, got, None])
    want = float(grad.double().sum())
    assert abs(float(got) - want) <= want * 2.0**-23


def test_sums_of_what_is_not_finite(library: Library) -> None:
    grad = torch.ones(600, 8)
    grad[3, 0], grad[70, 1], grad[71, 1], grad[599, 2] = math.inf, math.inf, -math.inf, math.nan
    grad[:, 3] = 3e38
    inputs = [grad, grad, torch.ones(()).expand(grad.shape)]
    got = torch.empty(8)
    library.run(inputs, [None, got, None])
    assert got[0] == math.inf
    assert got[3] == math.inf
    assert bool(got[1:3].isnan().all())
    assert bool((got[4:] == 600).all())


def test_sums_round_to_any_dtype(library: Library, generator: torch.Generator) -> None:
    """A bfloat16 parameter of a float32 call: its gradient is rounded once."""
    grad = torch.randn(100, 24, generator=generator)
    inputs = [grad, grad, torch.ones(24).expand(grad.shape)]
    wide, narrow = torch.empty(24), torch.empty(24, dtype=torch.bfloat16)
    library.run(inputs, [None, None, wide])
    library.run(inputs, [None, None, narrow])
    assert torch.equal(wide.bfloat16(), narrow)


def test_operands_of_a_wrong_dtype_are_refused(library: Library) -> None:
    grad, x, w = torch.ones(4), torch.ones(4).half(), torch.ones(4)
    call = leaves._call([grad, x, w], [None, None, None], [0], (4,))
    call.compute = 1
    assert library.library.autofn_run(0, ctypes.byref(call), None) == 1


@pytest.mark.parametrize("dtype", leaves.DTYPES, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("size", [1, 7, 8, 9, 255, 4096 + 5, 3 * 8192])
@pytest.mark.parametrize("layout", ["dense", "misaligned", "sliced"])
def test_each_element_is_computed_once(
    library: Library, layout: str, size: int, dtype: torch.dtype
) -> None:
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    grad = laid(torch.arange(size, dtype=torch.float64).remainder(97).to(dtype), layout)
    outputs = [torch.full((size + 1,), -1.0, dtype=dtype)[:size] for _ in range(2)]
    library.run([grad, grad, torch.ones((size,), dtype=compute)], [*outputs, None])
    assert torch.equal(outputs[0], (grad.to(compute) + 0.25).to(dtype))
    assert torch.equal(outputs[1], grad)


@pytest.mark.parametrize("inner", [1, 3, 8, 33, 64])
@pytest.mark.parametrize("shape", ["inside", "outside", "middle", "everywhere"])
def test_broadcast_inputs(library: Library, shape: str, inner: int) -> None:
    full = (5, 6, inner, 7) if shape == "middle" else (30, inner * 11)
    small: Shape = {
        "inside": (30, 1),
        "outside": (inner * 11,),
        "middle": (6, 1, 7),
        "everywhere": (),
    }[shape]
    grad = torch.arange(math.prod(full)).remainder(53).bfloat16().reshape(full)
    w = torch.arange(math.prod(small)).remainder(31).float().reshape(small)
    got = torch.full(full, -1.0).bfloat16()
    library.run([grad, grad, w.expand(full)], [got, None, None])
    assert torch.equal(got, (grad.float() * w + 0.25).bfloat16())


# --- indices past 2^31, without the memory -----------------------------------------------------


def huge(shape: Shape, strides: Sequence[Shape], output: Shape | None = None) -> leaves._Call:
    """A call over `shape` whose inputs have these strides; its third output is summed to."""
    call = leaves._Call(dims=len(shape), elements=math.prod(shape))
    call.sizes[: len(shape)] = shape
    dense = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    for k, steps in enumerate(strides):
        call.inputs[k].strides[: len(shape)] = steps
        call.inputs[k].data = 1 << 60
        call.inputs[k].dtype = 1
    call.outputs[0].strides[: len(shape)] = dense
    call.outputs[0].data = None if output else 1 << 60
    call.outputs[0].dtype = 1
    if output:
        call.outputs[2].strides[: len(shape)] = output
        call.outputs[2].data = 1 << 60
    return call


def test_division_by_multiplication(library: Library) -> None:
    chosen = random.Random(0)
    edges = [1, 2, 3, 5, 7, 8, 641, 2**16 - 1, 2**16, 2**30 - 1, 2**30, 2**31 - 1]
    divisors = edges + [chosen.randrange(1, 2**31) for _ in range(200)]
    for by in divisors:
        numbers = [0, by - 1, by, 2**31 - 1, *(chosen.randrange(2**31) for _ in range(20))]
        for number in numbers:
            got = library.library.divided(number, ctypes.c_int64(by))
            assert got == number // by, (number, by)


@pytest.mark.parametrize(
    "shape", [(2**33 + 5,), (3, 2**31 + 1), (2**20, 3000), (2, 3, 2**31, 2), (7, 2**30)]
)
def test_long_calls_are_cut(library: Library, shape: Shape) -> None:
    """The parts are dense in the output, one after the other, and within 32 bits."""
    dense = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    other = [stride + 3 for stride in dense]
    call = huge(shape, [tuple(dense), tuple(other), (0,) * len(shape)])
    found = (leaves._Call * 64)()
    count = library.library.parts(ctypes.byref(call), found)
    done = 0
    for part in found[:count]:
        assert 0 < part.elements <= 2**30
        sizes, place, index = part.sizes[: part.dims], done, []
        assert math.prod(sizes) == part.elements
        for stride in dense:
            index.append(place // stride)
            place %= stride
        first = [(each.data - (1 << 60)) // 4 for each in part.inputs[:3]]
        assert first == [done, sum(i * s for i, s in zip(index, other, strict=True)), 0]
        assert (part.outputs[0].data - (1 << 60)) // 4 == done
        kept = len(shape) - part.dims
        assert list(part.inputs[1].strides[: part.dims]) == other[kept:]
        done += part.elements
    assert done == call.elements


def test_strides_past_32_bits(library: Library) -> None:
    shape, strides = (1000, 700, 900), (2**35, 3, 2**31)
    call = huge(shape, [strides, (0, 0, 5), (-7, 2**40, 0)])
    chosen = random.Random(0)
    offsets = (ctypes.c_int64 * 3)()
    for element in [
        0,
        math.prod(shape) - 1,
        *(chosen.randrange(math.prod(shape)) for _ in "x" * 50),
    ]:
        library.library.strided(ctypes.byref(call), ctypes.c_uint32(element), offsets)
        index = (element // 630000, element // 900 % 700, element % 900)
        want = [
            sum(i * s for i, s in zip(index, steps, strict=True))
            for steps in (strides, (0, 0, 5), (-7, 2**40, 0))
        ]
        assert list(offsets) == want


def test_tiles_past_32_bits(library: Library) -> None:
    """(N, C, HW) of 2^45 elements, summed to C: tile by tile where a row and column are."""
    shape = (2**14, 5, 2**31)
    dense = (5 * 2**31, 2**31, 1)
    call = huge(shape, [dense, dense, (0, 1, 0)], output=(0, 1, 0))
    chosen = random.Random(0)
    for _ in range(50):
        row, channel, column = (chosen.randrange(size) for size in shape)
        place = (ctypes.c_int64 * 2)(row, column)
        got = library.library.tiled(ctypes.byref(call), ctypes.c_int64(channel), place)
        assert 0 <= row - place[0] < 64
        assert 0 <= column - place[1] < 2**17
        assert got == place[0] * dense[0] + channel * dense[1] + place[1]


# --- what the verification makes of tensors ----------------------------------------------------


def collapsed(*tensors: torch.Tensor) -> list[int]:
    shape = tensors[0].shape
    order = leaves._order(tensors, shape)
    call = leaves._call(tensors, [], order, shape)
    return list(call.sizes[: call.dims])


def test_dimensions_are_merged_where_every_operand_runs_on() -> None:
    dense = torch.empty(2, 3, 4, 5)
    assert collapsed(dense) == [120]
    assert collapsed(dense, dense[:, :, :1].expand_as(dense)) == [6, 4, 5]
    assert collapsed(dense.mT) == [120]
    assert collapsed(dense.mT, dense.mT.contiguous()) == [6, 4, 5]
    assert collapsed(torch.empty(())) == []
    image = dense.contiguous(memory_format=torch.channels_last)
    assert collapsed(image, image.clone()) == [120]
    assert collapsed(image, dense) == [2, 20, 3]


def test_worker_takes_no_file_beside_a_formula_for_one_of_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = tmp_path / "formulas"
    beside.mkdir()
    (beside / "random.py").write_text("raise SystemExit(7)\n")
    monkeypatch.syspath_prepend(str(beside))
    worker = Worker(tmp_path, spawn)
    try:
        assert worker.ready(60), worker.last_words()
    finally:
        worker.close()
