"""The CUDA kernels' text, and the shim and driver under which it runs on the host."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
import torch

from autofn.backends import cuda
from autofn.plan import Kernel, Operand
from autofn.resources import templates
from autofn.verify import host
from autofn.verify.leaves import MAX_DIMS, _collapsed, _common_layout
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


# Names that meet the struct's own, and each other's packs.
AWKWARD = Kernel(
    "awkward_backward",
    "backward",
    (),
    operands("tensor", "grad", "x", "x_v", "load", "N", "at", "k")
    + operands("parameter", "S", "storage")
    + operands("number", "Pack", "compute_t", "aligned_"),
    operands("tensor", "grad_x", "store", "aligned") + operands("parameter", "grad_S"),
)
MATHS = """
#pragma once
namespace autofn_awkward {
template <typename T>
void awkward_backward(T, T a, T b, T, T, T, T, T, T c, T, T, T, T& x, T& y, T& z, T& w) {
  x = a; y = b; z = c; w = a;
}
}
"""


def test_any_names_compile_on_the_host(tmp_path: Path) -> None:
    for path, text in cuda.files("awkward", (AWKWARD,), "header").items():
        (tmp_path / path).write_text(text)
    (tmp_path / "maths.h").write_text(MATHS)
    described = {
        "function": AWKWARD.function,
        "inputs": [(o.name, o.role) for o in AWKWARD.inputs],
        "outputs": [(o.name, o.role) for o in AWKWARD.outputs],
    }
    (tmp_path / "driver.cpp").write_text(host.driver(tmp_path, [described]))
    include = [f"-I{templates() / 'host'}", f"-I{tmp_path}"]
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
    command = [compiler(), "-std=c++17", "-fsyntax-only", *warnings, *include]
    subprocess.run([*command, str(tmp_path / "driver.cpp")], check=True)


def test_text_is_plain() -> None:
    files = cuda.files("awkward", (AWKWARD,), "header")
    assert set(files) == {"kernels.cu", "loops.cuh"}
    for text in files.values():
        assert text.startswith("// header\n")
        assert "<<<" not in text
        assert 'extern "C"' not in text
        assert not re.search(r"#include\s*[<\"](torch|ATen|c10)", text)
        assert max(map(len, text.splitlines())) <= 100
    assert f"kMaxDims = {MAX_DIMS};" in files["loops.cuh"]
    assert files["loops.cuh"] == cuda.files("other", (), "header")["loops.cuh"]


def test_dimensions_are_merged_where_every_input_runs_on() -> None:
    dense = torch.empty(2, 3, 4, 5)
    assert _collapsed([dense], dense.shape)[:2] == (1, [120])
    assert _collapsed([dense, dense[:, :, :1].expand_as(dense)], dense.shape)[1] == [6, 4, 5]
    assert _collapsed([dense.mT], dense.mT.shape)[1] == [6, 5, 4]
    assert _collapsed([torch.empty(())], ())[:2] == (0, [])


def test_dense_inputs_of_one_layout_run_flat() -> None:
    image = torch.empty(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    assert _common_layout([image, image.clone()], image.shape) == list(image.stride())
    assert _common_layout([image, image.contiguous()], image.shape) is None
    assert _common_layout([image[:, :2]], (2, 2, 4, 5)) is None
    assert _common_layout([torch.ones(()).expand(3)], (3,)) is None


def test_worker_takes_no_file_beside_a_formula_for_one_of_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = tmp_path / "formulas"
    beside.mkdir()
    (beside / "random.py").write_text("raise SystemExit(7)\n")
    monkeypatch.syspath_prepend(str(beside))
    worker = Worker(tmp_path, None)
    try:
        assert worker.ready(60), worker.last_words()
    finally:
        worker.close()
