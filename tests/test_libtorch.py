"""The C++ target: its header in a LibTorch program against the Python op, its files in `gen`."""

from __future__ import annotations

import importlib
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from click.testing import CliRunner
from test_distributed import BLEND
from torch import Tensor

from autofn.cli import cli
from autofn.emit import emit
from autofn.install import install
from autofn.load import load_file
from autofn.pipeline import generate
from autofn.plan import plan as planned
from autofn.resources import library

ROOT = Path(__file__).resolve().parent.parent
TORCH = Path(torch.__file__).resolve().parent

INCLUDE = [f"-I{TORCH / 'include'}", f"-I{TORCH / 'include/torch/csrc/api/include'}"]

BUILT = ("swish", "prelu", "blend")
HEADERS = (*BUILT, "relu")

TOLERANCE = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}

GXX = shutil.which("g++")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages, with their C++ files."""
    found = tmp_path_factory.mktemp("libtorch")
    (found / "blend.py").write_text(BLEND, encoding="utf-8")
    for name in HEADERS:
        source = found / "blend.py" if name == "blend" else library() / f"{name}.py"
        (made,) = load_file(source)
        package = generate(made.definition, ("cpp",), search=False)
        install(package, found / "packages_of_cpp")
    return found


@pytest.fixture
def op(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """The Python op of each package, in PyTorch operations."""
    monkeypatch.syspath_prepend(str(folder))
    yield lambda name: importlib.import_module(f"packages_of_cpp.{name}")
    for name in [name for name in sys.modules if name.startswith("packages_of_cpp")]:
        del sys.modules[name]


def _program(folder: Path) -> list[str]:
    """The compiler's command for the program's own source, but for what it is to do."""
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    source = str(ROOT / "tests/libtorch_program.cpp")
    return [str(GXX), "-std=c++20", "-O0", "-w", abi, *INCLUDE,
            f"-I{folder / 'packages_of_cpp'}", source]  # fmt: skip


def build(folder: Path) -> Path:
    """The program: the header without optimisation, which takes long enough."""
    packages = folder / "packages_of_cpp"
    commands = [
        [*_program(folder), "-c", "-o", folder / "main.o"],
        *([GXX, "-std=c++17", "-O1", INCLUDE[0], "-c", packages / name / f"{name}_ops.cc",
           "-o", folder / f"{name}.o"] for name in BUILT),
        [GXX, folder / "main.o", *(folder / f"{name}.o" for name in BUILT), f"-L{TORCH / 'lib'}",
         f"-Wl,-rpath,{TORCH / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10", "-o",
         folder / "program"],
    ]  # fmt: skip
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
    return folder / "program"


def printed(program: Path) -> dict[str, str]:
    done = subprocess.run([program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())


def values(shape: tuple[int, ...], first: float, last: float, dtype: torch.dtype) -> Tensor:
    return (
        torch.linspace(first, last, math.prod(shape), dtype=torch.float64).reshape(shape).to(dtype)
    )


def leaf(shape: tuple[int, ...], first: float, last: float, dtype: torch.dtype) -> Tensor:
    return values(shape, first, last, dtype).requires_grad_()


def expected(
    name: str, outputs: list[Tensor], inputs: list[Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """What the program's `show_all` prints."""
    for k, y in enumerate(outputs):
        yield f"{name}.output{k}", y
    cotangents = [values(tuple(y.shape), 1, k + 2, y.dtype) for k, y in enumerate(outputs)]
    grads = torch.autograd.grad(outputs, inputs, cotangents, create_graph=True)
    for k, g in enumerate(grads):
        yield f"{name}.grad{k}", g
    moving = [k for k, g in enumerate(grads) if g.requires_grad]
    seconds = torch.autograd.grad(
        [grads[k] for k in moving],
        inputs,
        [values(tuple(grads[k].shape), -1, k + 1, grads[k].dtype) for k in moving],
        allow_unused=True,
    )
    for k, g in enumerate(seconds):
        yield f"{name}.second{k}", g if g is not None else torch.zeros(())


def of_dtype(op: Callable[[str], ModuleType], dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    name = str(dtype).removeprefix("torch.")
    x = leaf((3, 4, 5), -4, 4, dtype)
    yield from expected(f"swish.{name}", [op("swish").swish(x, 1.5)], [x])
    weight = leaf((4,), 0.1, 0.5, torch.float32)
    yield from expected(f"prelu.{name}", [op("prelu").prelu(x, weight)], [x, weight])
    blend = op("blend").blend
    y, bias = leaf((5,), -1, 1, dtype), leaf((3, 1, 1), 0, 2, dtype)
    scale, shift = leaf((1,), 0.75, 0.75, dtype), leaf((5,), 0, 1, dtype)
    outputs = blend(x, y, bias, scale, shift, gain=1.5)
    yield from expected(f"blend.{name}", [*outputs], [x, y, bias, scale, shift])
    outputs = blend(x, y, None, scale, shift, gain=1.5, mode="hard")
    yield from expected(f"without.{name}", [*outputs], [x, y, scale, shift])


REFUSED = {
    "integers": "swish: x is of Int; kernels take float64, float32, bfloat16 and float16",
    "device": "swish: x is on meta, for which no kernels are loaded",
    "undefined": "tensor does not have a device",
    "channels": "prelu: weight has 1 dimension, not 2",
    "shapes": "The size of tensor a (3) must match the size of tensor b (4) at non-singleton "
    "dimension 1",
    "choice": "blend: mode is one of 'soft', 'hard'",
    "kernels": "relu: its kernels are not loaded: compile relu_ops.cc into the program, or load "
    "the library that `autofn build` makes",
    "third": "swish: third derivatives are not compiled; the Python op has them",
}


@pytest.mark.skipif(GXX is None or sys.platform != "linux", reason="no g++ on Linux")
def test_the_headers_are_valid_in_a_libtorch_program(folder: Path) -> None:
    checked = subprocess.run([*_program(folder), "-fsyntax-only"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr[-3000:]


@pytest.mark.slow  # test_the_headers_are_valid_in_a_libtorch_program is its sibling
@pytest.mark.skipif(GXX is None or sys.platform != "linux", reason="no g++ on Linux")
def test_a_libtorch_program_computes_what_the_python_op_does(
    folder: Path, op: Callable[[str], ModuleType]
) -> None:
    found = printed(build(folder))
    compared = 0
    for dtype, tolerance in TOLERANCE.items():
        for name, value in of_dtype(op, dtype):
            text = found.pop(name)
            value = value.detach().double().flatten()
            actual = (
                torch.zeros_like(value)
                if text == "undefined"
                else torch.tensor([float(each) for each in text.split()], dtype=torch.float64)
            )
            scale = max(1.0, value.abs().max().item())
            assert actual.shape == value.shape, name
            assert (actual - value).abs().max() <= tolerance * scale, name
            compared += 1
    assert compared == 4 * 30

    x = leaf((2, 3), -2, 2, torch.float32)
    weight = values((3,), 0.1, 0.5, torch.float32)
    (g,) = torch.autograd.grad(op("prelu").prelu(x, weight).sum(), x)
    assert found.pop("one_needed").split() == [f"{v:.17g}" for v in g.flatten().tolist()]
    close(found.pop("one_used"), torch.autograd.grad(torch.sigmoid(x).sum(), x)[0])
    assert found.pop("plain") == "0"
    y = op("swish").swish(x.t(), 2.0)
    close(found.pop("apply"), y)
    close(found.pop("expanded"), torch.autograd.grad(y.sum(), x)[0])
    assert found == REFUSED


def close(text: str, value: Tensor) -> None:
    actual = torch.tensor([float(each) for each in text.split()])
    torch.testing.assert_close(actual, value.detach().flatten())


def test_ops_are_the_same_as_the_python_package(
    folder: Path, op: Callable[[str], ModuleType]
) -> None:
    """The header's namespace is that of the package's library, from the same hash."""
    for name in HEADERS:
        runtime = op(name)._runtime
        package = folder / "packages_of_cpp" / name
        assert f'"{runtime.namespace()}"' in (package / f"{name}.hpp").read_text("utf-8")
        source = (package / f"{name}_ops.cc").read_text("utf-8")
        assert f'#define AUTOFN_SOURCES "{runtime.sources()}"' in source


@pytest.mark.parametrize("name", ["affine_settings", "dpo", "exp", "scaled_bias", "snake", "xielu"])
def test_the_target_only_adds(name: str) -> None:
    (made,) = load_file(library() / f"{name}.py")
    plan = planned(made.definition, search=())
    plain, package = dict(emit(plan).files), dict(emit(plan, ("cpp",)).files)
    added = set(package) - set(plain)
    assert added == {"autofn_autograd.hpp", f"{name}.hpp", f"{name}_ops.cc"}
    assert json.loads(package["manifest.json"])["targets"] == ["cpp"]
    assert added <= set(json.loads(package["manifest.json"])["files"])
    assert {path: package[path] for path in plain if path != "manifest.json"} == {
        path: text for path, text in plain.items() if path != "manifest.json"
    }
    for path in added:
        assert all(len(line) <= 100 for line in package[path].splitlines()[1:]), path


def test_gen_adds_keeps_and_drops_the_target(tmp_path: Path) -> None:
    def gen(*options: str) -> tuple[int, str]:
        done = CliRunner().invoke(
            cli, ["gen", "swish", "-o", str(tmp_path), *(options or ("--no-verify",))]
        )
        return done.exit_code, done.output

    header = tmp_path / "swish" / "swish.hpp"
    assert gen("--no-verify", "--target", "cpp")[0] == 0
    assert header.exists()
    assert gen("--check")[0] == 0
    assert gen()[0] == 0
    assert header.exists()
    header.write_text(header.read_text("utf-8").replace("double beta = 1.0", "double beta = 2.0"))
    code, output = gen("--check")
    assert code == 1
    assert "double beta = 2.0" in output
    assert gen("--no-verify", "--target", "python")[0] == 0
    assert not header.exists()
    assert gen("--check")[0] == 0
