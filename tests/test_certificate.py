"""The certificate: what it finds in good and in bad packages, and that its units are right."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path

import pytest
import sympy
import torch
from click.testing import CliRunner
from sympy import Float, Rational, exp, log, pi, sqrt, tanh

from autofn import Formula, formula
from autofn.certificate.measure import error_in_ulp
from autofn.certificate.model import BARS, CPU, NATIVE, TORCH, Certificate, Finding
from autofn.certificate.run import certify
from autofn.certificate.sample import _smooth_at
from autofn.cli import cli
from autofn.errors import FormulaError
from autofn.load import load_file
from autofn.package import Package
from autofn.pipeline import generate
from autofn.resources import library
from autofn.verify.known import recognised

compiled = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "c++", "clang++"))), reason="no C++ compiler"
)


@formula
def gated(x):
    """Swish as papers write it."""
    return x / (1 + exp(-x))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certify(generate(gated.definition), gated.definition, "quick")


def finding(found: Certificate, backend: str, dtype: str, entry: str) -> Finding:
    (one,) = (f for f in found.findings if (f.backend, f.dtype, f.entry) == (backend, dtype, entry))
    return one


@compiled
def test_kernels_meet_the_bars(certificate: Certificate) -> None:
    kernels = [f for f in certificate.findings if f.backend == CPU]
    assert {(f.quantity, f.dtype) for f in kernels} == set(BARS)
    assert all(f.ok for f in kernels), certificate.misses
    assert not any(miss.startswith(CPU) for miss in certificate.misses)
    assert certificate.not_run == ()


def test_every_value_of_the_16_bit_types_is_measured(certificate: Certificate) -> None:
    for dtype, finite in (("bfloat16", 65280), ("float16", 63488)):
        found = finding(certificate, TORCH, dtype, "out")
        assert finite - 1000 < found.points <= finite


def test_pytorchs_own_op_is_found_and_measured(certificate: Certificate) -> None:
    assert certificate.own == ("F.silu",)
    flushed = finding(certificate, NATIVE, "float32", "out")
    assert flushed.max_ulp > 1e6  # F.silu is 0 below -88.7
    assert flushed.worst is not None and dict(flushed.worst.point)["x"] < -88


def test_limits(certificate: Certificate) -> None:
    kernel = CPU if any(f.backend == CPU for f in certificate.findings) else TORCH
    there = {
        (each.entry, each.at): each.got
        for each in certificate.limits
        if (each.backend, each.dtype) == (kernel, "float32")
    }
    assert there == {
        ("out", -math.inf): 0,
        ("out", math.inf): math.inf,
        ("d out / d x", -math.inf): 0,
        ("d out / d x", math.inf): 1,
    }


@compiled
def test_a_wrong_last_digit_is_found() -> None:
    package = generate(gated.definition)
    worse = [
        (name, text.replace("gated_forward(T x) {\n  return ", "gated_forward(T x) {\n"
                            "  return T(1.0000007) * "))
        for name, text in package.files
    ]  # fmt: skip
    assert worse != list(package.files)
    found = certify(dataclasses.replace(package, files=tuple(worse)), gated.definition, "quick")
    assert 5 < finding(found, CPU, "float32", "out").max_ulp < 20
    assert found.beyond(4.0) and not found.beyond(1000.0)


NAIVE = {
    "soft": lambda x: log(1 + exp(x)),
    "gap": lambda x: x - tanh(x),
    "root": lambda x: (x + sqrt(x**2 + 4)) / 2,
    "bump": lambda x: sqrt(1 + x**2) - 1,
    "bell": lambda x: x * exp(-(x**2) / 2),
    "gompertz": lambda x: exp(-2 * exp(-3 * x / 2)),
    "cubic": lambda x: x * (1 + tanh(sqrt(2 / pi) * (x + Float("0.044715") * x**3))) / 2,
}


@compiled
@pytest.mark.parametrize("name", NAIVE)
def test_naive_formulas_come_out_stable(name: str) -> None:
    """Values and limits; away from what cancels in the gradient of `cubic`, gradients too."""
    definition = formula(_body(name)).definition
    found = certify(generate(definition), definition, "quick")
    missed = [each for each in found.misses if each.startswith(CPU)]
    assert [each for each in missed if "out: " in each or " at " not in each] == []
    assert name == "cubic" or not missed, missed


OUTSIDE = {
    "planck": lambda x: x**3 / (exp(x) - 1),
    "bose": lambda x: x / (exp(x) - 1),
    "langevin": lambda x: sympy.coth(x) - 1 / x,
    "shifted": lambda x: log(2 + exp(x)),
    "triple": lambda x: log(1 + exp(x) + exp(-x)),
    "lograised": lambda x: log(1 + sympy.sinh(x) ** 2),
    "halved": lambda x: sympy.sinh(x) / (1 + sympy.cosh(x)),
    "gudermann": lambda x: sympy.atan(sympy.sinh(x)),
    "smish": lambda x: x * tanh(log(1 + 1 / (1 + exp(-x)))),
    "gish": lambda x: x * log(2 - exp(-exp(x))),
    "isru": lambda x: x / sqrt(1 + x**2),
    "arctan_gate": lambda x: x * (sympy.atan(x) / pi + Rational(1, 2)),
    "swim": lambda x: x / 2 * (1 + x / sqrt(1 + x**2)),
    "cosines": lambda x: (1 - sympy.cos(x)) / x**2,
    "slow": lambda x: sympy.asinh(x) / (1 + sympy.Abs(x)),
}


@compiled
@pytest.mark.slow
@pytest.mark.parametrize("name", OUTSIDE)
def test_outside_formulas_meet_the_bars(name: str) -> None:
    definition = formula(_body(name)).definition
    found = certify(generate(definition), definition, "quick")
    missed = [each for each in found.misses if each.startswith(CPU)]
    assert not missed


FULL = ("tanh", "mish", "huber")


@compiled
@pytest.mark.parametrize("name", FULL)
def test_the_full_level(name: str) -> None:
    (made,) = load_file(library() / f"{name}.py")
    found = certify(generate(made.definition), made.definition, "full")
    assert not [each for each in found.misses if each.startswith(CPU)]
    assert found.not_run == ()


def _body(name: str):  # type: ignore[no-untyped-def]
    def body(x):  # type: ignore[no-untyped-def]
        return {**NAIVE, **OUTSIDE}[name](x)

    body.__name__ = name
    return body


def test_derivatives_at_kinks_of_what_is_smooth_and_at_poles() -> None:
    """The formula's own where no tensor is 0, though a number is; at a pole there is none."""

    @formula
    def bose(e, mu: float = 0.0):
        return 1 / (exp(e - mu) - 1)

    @formula
    def pieces(x):
        return sympy.Max(x, 0) + sympy.Min(exp(x) - 1, 0)

    @formula
    def root(x):
        return sympy.sign(x) * sqrt(sympy.Abs(x))

    def found(given: Formula, point: dict[str, float]) -> dict[tuple[str, ...], object]:
        (variant,) = given.definition.variants
        return _smooth_at(given.definition, variant, point)

    assert found(bose, {"e": 2e-44, "mu": 0.0}) == {}
    assert found(pieces, {"x": 0.0})["out", "x"] == pytest.approx(1, abs=1e-15)
    assert found(root, {"x": 0.0}) == {}


def test_units_in_the_last_place() -> None:
    high = torch.tensor([1.0, 1.0, 2.0**-149, 0.0, 3.0], dtype=torch.float64)
    got = torch.tensor([1 + 2.0**-23, 1 - 2.0**-24, 2.0**-148, 2.0**-149, 3.0], dtype=torch.float64)
    low = torch.zeros(5, dtype=torch.float64)
    assert error_in_ulp(got, high, low, "float32").tolist() == [1.0, 0.5, 1.0, 1.0, 0.0]
    assert error_in_ulp(got[:1], high[:1], torch.tensor([2.0**-24]), "float32").item() == 0.5
    assert error_in_ulp(got[:1], high[:1], low[:1], "bfloat16").item() == 2.0**-16


def test_recognition_is_by_values() -> None:
    x = torch.linspace(-4, 4, 100, dtype=torch.float64)
    assert recognised(x * torch.sigmoid(x), (x,))[0] == "F.silu"
    assert recognised(x * torch.sigmoid(1.0001 * x), (x,)) is None
    assert recognised(x - x.tanh(), (x,))[0] == "F.tanhshrink"


# --- the command, and budgets ----------------------------------------------------------------


@pytest.fixture
def sketch(monkeypatch: pytest.MonkeyPatch, certificate: Certificate):  # type: ignore[no-untyped-def]
    """`verify --full` without its minutes: a green verification, the certificate from above."""
    from autofn import certificate as _  # noqa: F401
    from autofn.certificate import run
    from autofn.verify import report

    green = report.Report("gated", (report.Row("PyTorch", "values", "passed"),))
    monkeypatch.setattr("autofn.verify.verify_package", lambda *a, **k: green)
    monkeypatch.setattr(run, "certify", lambda package, definition: certificate)


TEXT = """from sympy import exp
from autofn import formula

@formula{options}
def gated(x):
    return x / (1 + exp(-x))
"""


@pytest.mark.usefixtures("sketch")
@pytest.mark.parametrize(
    ("budget", "code"),
    [
        pytest.param("", 0, marks=pytest.mark.slow),
        pytest.param("(budget=1e9)", 0, marks=pytest.mark.slow),
        ("(budget=0.5)", 3),
    ],
)
def test_verify_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gated.py").write_text(TEXT.format(options=budget))
    runner = CliRunner()
    assert runner.invoke(cli, ["gen", "gated.py", "--no-verify", "-q"]).exit_code == 0
    done = runner.invoke(cli, ["verify", "gated.py", "--full", "--json", "out.json"])
    assert done.exit_code == code, done.output
    assert "errors in ULP" in done.output and "equals F.silu" in done.output
    assert ("past the formula's budget" in done.output) == (code == 3)
    (written,) = json.loads(Path("out.json").read_text())
    assert json.loads(Path("generated/gated.certificate.json").read_text()) == written
    assert written["certificate"]["equals"] == ["F.silu"]
    assert runner.invoke(cli, ["gen", "gated.py", "--check"]).exit_code == 0


@pytest.mark.parametrize("budget", [0, -1.0, True, "4", math.inf, math.nan])
def test_a_budget_is_a_number_of_ulp(budget: object) -> None:
    with pytest.raises(FormulaError, match="budget"):
        formula(budget=budget)(lambda x: x)  # type: ignore[call-overload]


def test_a_budget_changes_no_pytorch_code_but_its_hash() -> None:
    def body(x):  # type: ignore[no-untyped-def]
        return x * exp(x)

    def texts(made: Formula) -> dict[str, list[str]]:
        package: Package = generate(made.definition)
        return {n: t.splitlines()[1:] for n, t in package.files if n.endswith(".py")}

    plain, promised = formula(body), formula(budget=4)(body)
    assert texts(plain) == texts(promised)
    assert plain.definition != promised.definition
