"""The generated nn.Modules, their options and the environment, as users meet them."""

from __future__ import annotations

import copy
import importlib
import io
import math
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch.nn.utils import parametrize

from autofn import Learnable, formula

ROOT = Path(__file__).resolve().parent.parent


def package(name: str) -> ModuleType:
    return importlib.import_module(f"generated.{name}")


@pytest.fixture
def dyt() -> torch.nn.Module:
    module: torch.nn.Module = package("dyt").Dyt(6)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.rand_like(parameter))
    return module


def test_state_dict_goes_round(dyt: torch.nn.Module) -> None:
    other = package("dyt").Dyt(6)
    other.load_state_dict(dyt.state_dict())
    x = torch.randn(3, 6)
    torch.testing.assert_close(other(x), dyt(x), rtol=0, atol=0)
    assert list(dyt.state_dict()) == ["alpha", "gamma", "beta"]
    assert dyt.state_dict()["alpha"].shape == (1,)


def test_copies_pickles_and_safe_files(dyt: torch.nn.Module) -> None:
    x = torch.randn(3, 6)
    for other in (copy.deepcopy(dyt), pickle.loads(pickle.dumps(dyt))):
        torch.testing.assert_close(other(x), dyt(x), rtol=0, atol=0)
    file = io.BytesIO()
    torch.save(dyt.state_dict(), file)
    file.seek(0)
    other = package("dyt").Dyt(6)
    other.load_state_dict(torch.load(file, weights_only=True))
    torch.testing.assert_close(other(x), dyt(x), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dyt: torch.nn.Module, dtype: torch.dtype) -> None:
    x = torch.randn(3, 6, dtype=dtype, requires_grad=True)
    assert dyt(x).dtype == dtype  # parameters never promote
    moved = dyt.to(dtype)
    moved(x).sum().backward()
    assert x.grad is not None
    assert {p.grad.dtype for p in moved.parameters() if p.grad is not None} == {dtype}


def test_construction_on_meta() -> None:
    module = package("prelu").Prelu(4, device="meta", dtype=torch.float64)
    assert module.weight.is_meta
    module.to_empty(device="cpu")
    module.reset_parameters()
    torch.testing.assert_close(module.weight.detach(), torch.full((4,), 0.25, dtype=torch.float64))
    x = torch.randn(2, 4, 3, dtype=torch.float64)
    torch.testing.assert_close(module(x), F.prelu(x, module.weight))


def test_parametrized(dyt: torch.nn.Module) -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

    x = torch.randn(3, 6)
    gamma = dyt.gamma
    assert isinstance(gamma, torch.Tensor)
    expected = 2 * (dyt(x) - dyt.beta) + dyt.beta
    parametrize.register_parametrization(dyt, "gamma", Twice())
    torch.testing.assert_close(dyt(x), expected)


def test_extra_repr() -> None:
    assert str(package("leaky_relu").LeakyRelu(alpha=0.2)) == "LeakyRelu(alpha=0.2)"
    assert "num_channels=3" in str(package("prelu").Prelu(3))
    assert "reduction='sum'" in str(package("huber").Huber(reduction="sum"))


def test_reduction() -> None:
    huber = package("huber")
    x, y = torch.randn(2, 5), torch.randn(5)
    each = F.huber_loss(x, y.expand(2, 5), reduction="none")
    torch.testing.assert_close(huber.huber(x, y), each)
    torch.testing.assert_close(huber.huber(x, y, reduction="mean"), each.mean())
    torch.testing.assert_close(huber.Huber(reduction="sum")(x, y), each.sum())
    with pytest.raises(ValueError, match="median"):
        huber.huber(x, y, reduction="median")


def test_wrong_arguments_say_what_is_wrong() -> None:
    swish, prelu = package("swish"), package("prelu")
    x = torch.randn(2, 3)
    with pytest.raises(TypeError, match="beta"):
        swish.swish(x, torch.tensor(1.0))
    with pytest.raises(TypeError, match="complex"):
        swish.swish(x.to(torch.complex64))
    with pytest.raises((ValueError, RuntimeError)):
        prelu.prelu(x, torch.rand(2))
    settings = package("affine_settings")
    with pytest.raises(ValueError, match="squash"):
        settings.affine_settings(x, settings.Settings(squash="sine"))


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)


CALL = (
    "import torch; from generated.swish import swish; "
    "x = torch.ones(3, requires_grad=True); swish(x).sum().backward(); print(x.grad.tolist())"
)


def test_backend_is_chosen_by_the_environment(tmp_path: Path) -> None:
    assert run(CALL, AUTOFN_BACKEND="torch").returncode == 0
    refused = run(CALL, AUTOFN_BACKEND="native", CXX="no-such-compiler", AUTOFN_CACHE_DIR=tmp_path)
    assert refused.returncode != 0
    assert "AUTOFN_BACKEND=native" in refused.stderr
    assert "no-such-compiler" in refused.stderr


def test_debug_logs_inputs_path_and_gradients() -> None:
    done = run(CALL, AUTOFN_DEBUG="1")
    assert done.returncode == 0, done.stderr
    assert "swish" in done.stderr
    assert "torch.float32" in done.stderr
    assert "gradient" in done.stderr


def test_a_package_needs_torch_and_nothing_else(tmp_path: Path) -> None:
    for name in ("swish", "prelu", "quadratic_terms"):
        shutil.copytree(ROOT / "generated" / name, tmp_path / "mine" / name)
    code = (
        "import sys; sys.modules['autofn'] = None\n"
        "import torch\n"
        "from mine.swish import Swish\n"
        "from mine.prelu import Prelu\n"
        "from mine.quadratic_terms import quadratic_terms\n"
        "torch.manual_seed(0)\n"
        "net = torch.nn.Sequential(torch.nn.Linear(4, 16), Swish(), torch.nn.Linear(16, 8), "
        "Prelu(8), torch.nn.Linear(8, 1))\n"
        "x = torch.randn(64, 4); y = x.prod(1, keepdim=True)\n"
        "optimizer = torch.optim.SGD(net.parameters(), 0.05)\n"
        "losses = []\n"
        "for _ in range(30):\n"
        "    loss = quadratic_terms(net(x), -y).z.mean() / 10\n"
        "    optimizer.zero_grad(); loss.backward(); optimizer.step(); losses.append(loss.item())\n"
        "assert losses[-1] < losses[0], losses\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_amp_option_keeps_float32(tmp_path: Path) -> None:
    from autofn import Formula
    from autofn.load import load_file
    from autofn.pipeline import generate

    (tmp_path / "steady.py").write_text(
        "from sympy import exp\nfrom autofn import formula\n\n\n"
        "@formula(amp='float32')\ndef steady(x, y):\n    return x * exp(-y)\n"
    )
    made: Formula = load_file(tmp_path / "steady.py")[0]
    folder = tmp_path / "amp_packages" / "steady"
    folder.mkdir(parents=True)
    for path, text in generate(made.definition).files:
        (folder / path).write_text(text)
    sys.path.insert(0, str(tmp_path))
    try:
        steady = importlib.import_module("amp_packages.steady").steady
    finally:
        sys.path.remove(str(tmp_path))
    x = torch.randn(4, dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert steady(x, x).dtype == torch.float32
    assert steady(x, x).dtype == torch.bfloat16


def test_slopes_are_0_where_an_exponential_of_a_squared_logarithm_vanishes(  # type: ignore[no-untyped-def]
    tmp_path, monkeypatch
) -> None:
    """Of densities of a logarithm, and of log(x/(1 - x)), at the ends of their ranges."""
    from autofn.pipeline import generate

    @formula
    def of_log(x, m: float = 0.0, s: float = 1.0):  # type: ignore[no-untyped-def]
        density = sympy.exp(-((sympy.log(x) - m) ** 2) / (2 * s**2))
        return density / (x * s * sympy.sqrt(2 * sympy.pi))

    @formula
    def of_logit(x, m: float = 0.0, s: float = 1.0):  # type: ignore[no-untyped-def]
        z = (sympy.log(x / (1 - x)) - m) / s
        return sympy.exp(-(z**2) / 2) / (s * x * (1 - x))

    @formula
    def of_square(x):  # type: ignore[no-untyped-def]
        return x**2 * sympy.exp(-(sympy.log(x) ** 2))

    monkeypatch.setenv("AUTOFN_BACKEND", "torch")
    monkeypatch.syspath_prepend(tmp_path)
    for made, ends in ((of_log, [0.0]), (of_logit, [0.0, 1.0]), (of_square, [0.0])):
        name = made.definition.name
        (tmp_path / name).mkdir()
        for path, text in generate(made.definition, search=False).files:
            (tmp_path / name / path).write_text(text, encoding="utf-8")
        op = getattr(importlib.import_module(name), name)
        x = torch.tensor([*ends, 0.3, math.nan], requires_grad=True)
        op(x).sum().backward()
        assert x.grad is not None
        assert x.grad[: len(ends)].tolist() == [0.0] * len(ends)
        assert x.grad[-2].isfinite() and x.grad[-2] != 0 and x.grad[-1].isnan()


def test_gradients_that_have_vanished_near_0_are_0(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Birnbaum's and Saunders' distribution: infinity times exp(-1/t), which is NaN in PyTorch."""
    from autofn.pipeline import generate

    @formula(domain={"t": sympy.Interval(0, sympy.oo)})
    def fatigue(t, a: Learnable = 0.5, b: Learnable = 1.0):  # type: ignore[no-untyped-def]
        z = (sympy.sqrt(t / b) - sympy.sqrt(b / t)) / a
        return (1 + sympy.erf(z / sympy.sqrt(2))) / 2

    package = tmp_path / "fatigue"
    package.mkdir()
    for path, text in generate(fatigue.definition, search=False).files:
        (package / path).write_text(text, encoding="utf-8")
    monkeypatch.setenv("AUTOFN_BACKEND", "torch")
    monkeypatch.syspath_prepend(tmp_path)
    made = importlib.import_module("fatigue").fatigue
    for dtype in (torch.float32, torch.bfloat16):
        t = torch.tensor([1e-37, 3e-28, 1e-20, 1e-9, 1.0], dtype=dtype, requires_grad=True)
        a, b = torch.tensor(0.5), torch.tensor(1.0)
        made(t, a, b).sum().backward()
        assert t.grad is not None
        assert t.grad[:4].tolist() == [0.0] * 4
        assert t.grad[4] > 0.7
        unknown = made(t.detach().requires_grad_(), a, torch.tensor(math.nan))
        assert unknown.isnan().all()
