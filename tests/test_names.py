"""Users' names in generated code: kept where they can be, escaped where they must be."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
import torch

from autofn import Formula, formula
from autofn.load import load_file
from autofn.names import Namer, attribute_name, cpp_name, python_name
from autofn.package import write
from autofn.pipeline import generate


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x", "x"),
        ("double", "double_"),
        ("INFINITY", "INFINITY_"),
        ("M_PI", "M_PI_"),
        ("NULL", "NULL_"),
        ("template", "template_"),
        ("threadIdx", "threadIdx_"),
        ("β", "beta"),
        ("Δt", "Deltat"),
        ("T", "T_"),
        ("x__y", "x_y"),
        ("_x", "x"),
    ],
)
def test_cpp_name(name: str, expected: str) -> None:
    assert cpp_name(name) == expected


def test_python_names_avoid_what_templates_use() -> None:
    for name in ("torch", "ctx", "needs", "print", "maths", "self", "grads"):
        assert python_name(name) == f"{name}_"
    assert python_name("alpha") == "alpha"
    assert attribute_name("double") == "double_"
    assert attribute_name("beta") == "beta"


def test_namer_never_repeats() -> None:
    namer = Namer(["v0"])
    assert [namer("x"), namer("x"), namer.numbered("v"), namer.numbered("v")] == [
        "x", "x_", "v1", "v2",
    ]  # fmt: skip


HOSTILE = """
from sympy import exp, tanh
from autofn import formula, Learnable, PerChannel

@formula
def torch(ctx, double, β, INFINITY: Learnable = 0.5, self: PerChannel = 0.25, grad: float = 1.0,
          exp_: float = 2.0, needs: int = 2, *, maths: float = 0.5):
    return ctx * tanh(double) + β * INFINITY * self + grad * ctx**needs + exp_ * exp(-maths * β**2)

@formula
def nn(x, T, std: float = 1.0, N: int = 3, out: float = 2.0, v0: float = 1.5):
    return {"values": x * T + std, "float": x**N, "T_": out * x + v0 * (x + T)**2 * (x + T)}

@formula
def derived(x, d_x, d_x_, grad_x, d_grad, n, n_):
    return x**2 * d_x * d_x_ * grad_x * d_grad * n * n_
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile.py").write_text(HOSTILE, encoding="utf-8")
    for each in load_file(folder / "hostile.py"):
        package = generate(each.definition)
        (folder / package.name).mkdir()
        for path, text in package.files:
            (folder / package.name / path).write_text(text, encoding="utf-8")
    return folder


def imported(folder: Path, name: str):  # type: ignore[no-untyped-def]
    """The package, under a parent of its own: `torch` must not hide PyTorch."""
    parent = f"hostile_{name}"
    (folder / parent).mkdir(exist_ok=True)
    shutil.copytree(folder / name, folder / parent / name, dirs_exist_ok=True)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(f"{parent}.{name}")
    finally:
        sys.path.remove(str(folder))


def test_parameters_may_have_any_name(hostile: Path) -> None:
    package = imported(hostile, "torch")
    tensors = [torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    infinity = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    channel = torch.rand(3, dtype=torch.float64, requires_grad=True)
    got = package.torch(*tensors, infinity, channel, 1.5, needs=3, maths=0.25)
    ctx, double, β = tensors
    want = (
        ctx * double.tanh() + β * infinity * channel + 1.5 * ctx**3
        + 2 * torch.exp(-0.25 * β**2)
    )  # fmt: skip
    torch.testing.assert_close(got, want)
    inputs = (*tensors, infinity, channel, 1.5, 2.0, 3, 0.25)
    assert torch.autograd.gradcheck(package.TorchFunction.apply, inputs)
    module = package.Torch(3, grad=2.0, maths=1.0, dtype=torch.float64)
    module(*tensors).sum().backward()
    assert dict(module.named_parameters()).keys() == {"INFINITY", "self"}


def test_outputs_may_have_any_name(hostile: Path) -> None:
    package = imported(hostile, "nn")
    x, t = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    result = package.nn(x, t)
    assert result._fields == ("values", "float", "T_")
    torch.testing.assert_close(result.T_, 2 * x + 1.5 * (x + t) ** 3)


def test_parameters_may_have_the_names_of_tangents(hostile: Path) -> None:
    package = imported(hostile, "derived")
    inputs = tuple(torch.rand(2, dtype=torch.float64, requires_grad=True) for _ in range(7))
    apply = package.DerivedFunction.apply
    assert torch.autograd.gradcheck(apply, inputs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(apply, inputs)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_the_header_compiles_with_hostile_names(hostile: Path) -> None:
    for name in ("torch", "nn", "derived"):
        main = hostile / f"{name}.cpp"
        main.write_text(f'#include "{name}/maths.h"\nint main() {{}}\n')
        command = ["g++", "-std=c++17", "-fsyntax-only", "-Wall", "-Werror", str(main)]
        subprocess.run(command, check=True)


def test_text_of_users_cannot_leave_its_docstring(tmp_path: Path) -> None:
    @formula
    def sneaky(x):  # type: ignore[no-untyped-def]
        return x

    sneaky.__doc__ = 'A """ + __import__("os").system("true") + """ \\ */ #error\n\nmore {x!r} %s'
    package = generate(sneaky.definition)
    for path in ("op.py", "maths.py", "__init__.py"):
        compile(package.text(path), path, "exec")
    assert "*/" not in package.text("maths.h").split("#pragma once")[0]


def test_choices_may_be_any_string() -> None:
    @formula
    def odd(x, mode: Literal['a"b', "it's", '"""', "{x}", "back\\slash"] = 'a"b'):  # type: ignore[no-untyped-def]
        return 2 * x if mode == "it's" else x

    package = generate(odd.definition)
    for path in ("op.py", "maths.py"):
        compile(package.text(path), path, "exec")


def test_from_expr_takes_symbols_in_alphabetical_order() -> None:
    import sympy

    b, x, a = sympy.symbols("b x a")
    made = Formula.from_expr(x * b + a, "affine", {"a": 2.0}).definition
    assert [leaf.name for leaf in made.leaves] == ["b", "x", "a"]


def test_an_int_is_no_fraction(tmp_path: Path) -> None:
    @formula
    def raised(x, n: int = 2):  # type: ignore[no-untyped-def]
        return x**n

    package = generate(raised.definition, search=False)
    write(package, tmp_path / "raised")
    made = imported(tmp_path, "raised")
    x = torch.tensor([-2.0, 3.0])
    assert made.raised(x, 3).tolist() == made.raised(x, 3.0).tolist() == [-8.0, 27.0]
    with pytest.raises(ValueError, match=r"^raised: n is an int, not 2\.5$"):
        made.raised(x, 2.5)
