"""Every formula of the library, as generated, against its independent PyTorch reference."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from references import REFERENCES, Inputs, Points, Reference
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent
NAMES = sorted(REFERENCES)
LOSSES = sorted(
    path.stem for path in (ROOT / "formulas").glob("*.py") if "reduction=True" in path.read_text()
)

pytestmark = pytest.mark.usefixtures("pytorch_path")


# --- helpers -------------------------------------------------------------------------------


def package(name: str) -> ModuleType:
    return importlib.import_module(f"generated.{name}")


def camel_case(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def module_class(name: str) -> type[torch.nn.Module]:
    return getattr(package(name), camel_case(name))


def generated(name: str) -> Callable[..., Any]:
    """The generated function; a loss without its reduction."""
    function = getattr(package(name), name)
    if name not in LOSSES:
        return function
    return lambda *args, **kwargs: function(*args, **kwargs, reduction="none")


def own_settings(name: str, inputs: Inputs) -> Inputs:
    """The inputs with the package's own type of settings."""
    return {k: package(name).Settings(*v) if k == "settings" else v for k, v in inputs.items()}


def outputs(returned: Any) -> tuple[Tensor, ...]:
    return (returned,) if isinstance(returned, Tensor) else tuple(returned)


def tensors(inputs: Inputs) -> list[Tensor]:
    return [value for value in inputs.values() if isinstance(value, Tensor)]


def leaves(inputs: Inputs, dtype: torch.dtype | None = None) -> Inputs:
    """Copies that require a gradient."""
    return {
        name: value.detach().to(dtype or value.dtype, copy=True).requires_grad_()
        if isinstance(value, Tensor)
        else value
        for name, value in inputs.items()
    }


def normals(like: Iterable[Tensor], generator: torch.Generator) -> list[Tensor]:
    return [
        torch.randn(each.shape, generator=generator, dtype=torch.float64).to(each.dtype)
        for each in like
    ]


def gradients(
    outs: Sequence[Tensor], wrt: Sequence[Tensor], cotangents: Sequence[Tensor], **options: Any
) -> tuple[Tensor, ...]:
    return torch.autograd.grad(outs, wrt, cotangents, materialize_grads=True, **options)


def second_derivatives(
    function: Callable[..., Any],
    inputs: Inputs,
    cotangents: Sequence[Tensor],
    mixed: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """Gradients of <first gradients, mixed>, by the inputs and by the cotangents."""
    inputs = leaves(inputs)
    cotangents = [each.detach().clone().requires_grad_() for each in cotangents]
    wrt = tensors(inputs)
    first = gradients(outputs(function(*inputs.values())), wrt, cotangents, create_graph=True)
    return gradients(first, [*wrt, *cotangents], mixed)


def assert_all_close(
    actual: Sequence[Tensor], expected: Sequence[Tensor], rtol: float, atol: float
) -> None:
    for got, want in zip(actual, expected, strict=True):
        torch.testing.assert_close(got, want.to(got.dtype), rtol=rtol, atol=atol)


def at_points(points: Points, dtype: torch.dtype) -> Inputs:
    return {
        name: torch.tensor(value, dtype=dtype, requires_grad=True)
        if isinstance(value, list)
        else value
        for name, value in points.inputs.items()
    }


def ordered(x: Tensor) -> Tensor:
    """Integers in the order of these bfloat16 numbers, neighbours one apart."""
    bits = x.detach().contiguous().view(torch.int16).to(torch.int32)
    return torch.where(bits < 0, -(bits & 0x7FFF), bits)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def reference(name: str) -> Reference:
    return REFERENCES[name]


# --- the library ---------------------------------------------------------------------------


def test_every_formula_has_a_reference_and_a_package() -> None:
    formulas = {path.stem for path in (ROOT / "formulas").glob("*.py")}
    packages = {path.parent.name for path in (ROOT / "generated").glob("*/__init__.py")}
    assert formulas == set(REFERENCES)
    assert formulas == packages


def test_package_exports(name: str) -> None:
    made = package(name)
    camel = camel_case(name)
    assert callable(getattr(made, name))
    assert issubclass(getattr(made, camel), torch.nn.Module)
    assert issubclass(getattr(made, f"{camel}Function"), torch.autograd.Function)


def test_float64_values_and_gradients(
    name: str, reference: Reference, generator: torch.Generator
) -> None:
    inputs = leaves(reference.inputs(generator, torch.float64))
    expected = outputs(reference.function(*inputs.values()))
    actual = outputs(generated(name)(*own_settings(name, inputs).values()))
    assert_all_close(actual, expected, rtol=1e-9, atol=1e-12)
    cotangents = normals(expected, generator)
    wrt = tensors(inputs)
    assert_all_close(
        gradients(actual, wrt, cotangents),
        gradients(expected, wrt, cotangents),
        rtol=1e-9,
        atol=1e-12,
    )


@pytest.mark.parametrize("name", [name for name in NAMES if REFERENCES[name].second])
def test_float64_second_derivatives(
    name: str, reference: Reference, generator: torch.Generator
) -> None:
    inputs = reference.inputs(generator, torch.float64)
    cotangents = normals(outputs(reference.function(*inputs.values())), generator)
    mixed = normals(tensors(inputs), generator)
    expected = second_derivatives(reference.function, inputs, cotangents, mixed)
    inputs = own_settings(name, inputs)
    actual = second_derivatives(generated(name), inputs, cotangents, mixed)
    assert_all_close(actual, expected, rtol=1e-9, atol=1e-11)


def test_float32_values_and_gradients(
    name: str, reference: Reference, generator: torch.Generator
) -> None:
    # x + sqrt(x**2 + b) loses its digits where x is negative: the form is used as it is written.
    atol = 2e-6 if name == "squareplus" else 1e-6
    inputs = leaves(reference.inputs(generator, torch.float32))
    actual = outputs(generated(name)(*own_settings(name, inputs).values()))
    cotangents = normals(actual, generator)
    assert all(out.dtype == torch.float32 for out in actual)
    exact = leaves(inputs, torch.float64)
    expected = outputs(reference.function(*exact.values()))
    assert_all_close(actual, expected, rtol=1e-5, atol=atol)
    assert_all_close(
        gradients(actual, tensors(inputs), cotangents),
        gradients(expected, tensors(exact), [each.double() for each in cotangents]),
        rtol=1e-5,
        atol=1e-5,  # gradients of broadcast inputs and of parameters are sums that may cancel
    )


def test_bfloat16_values(name: str, reference: Reference, generator: torch.Generator) -> None:
    inputs = reference.inputs(generator, torch.bfloat16)
    actual = outputs(generated(name)(*own_settings(name, inputs).values()))
    exact = leaves(inputs, torch.float64)
    for got, want in zip(actual, outputs(reference.function(*exact.values())), strict=True):
        assert got.dtype == torch.bfloat16
        assert got.isfinite().all()
        # torch.sigmoid flushes results below float32's normal numbers, and the references with
        # 1 + tanh(u) lose their digits in float64 far before: judged in absolute terms.
        tiny = 1e-12 if name in ("geglu", "gelu_tanh") else 1e-36
        got, want = (torch.where(each.abs() < tiny, 0, each) for each in (got, want))
        apart = (ordered(got) - ordered(want.to(torch.bfloat16))).abs()
        assert apart.max() <= 1, f"{apart.max()} ULP"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", [name for name in NAMES if REFERENCES[name].kinks])
def test_gradients_at_kinks(name: str, reference: Reference, dtype: torch.dtype) -> None:
    assert reference.kinks is not None
    inputs = at_points(reference.kinks, dtype)
    exact = at_points(reference.kinks, torch.float64)
    actual = generated(name)(*inputs.values())
    expected = reference.function(*exact.values())
    wanted: Sequence[Tensor] = gradients([expected.sum()], tensors(exact), [torch.ones(())])
    if (written := reference.kinks.gradients) is not None:
        wanted = [torch.tensor(each, dtype=torch.float64) for each in written.values()]
    rtol, atol = (1e-12, 1e-15) if dtype == torch.float64 else (1e-6, 1e-7)
    assert_all_close([actual], [expected], rtol, atol)
    got = gradients([actual.sum()], tensors(inputs), [torch.ones((), dtype=dtype)])
    assert_all_close(got, wanted, rtol, atol)


def test_second_derivative_of_the_bessel_basis_at_zero() -> None:
    # torch.sinc, in the reference, has the wrong one there.
    x = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    n = torch.tensor([1.0, 2.5], dtype=torch.float64)
    (first,) = torch.autograd.grad(generated("bessel_basis")(x, n).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    expected = -math.sqrt(2 / 5) * (n * math.pi / 5) ** 3 / 3
    torch.testing.assert_close(second, expected.unsqueeze(0), rtol=1e-9, atol=0)


# --- infinity ------------------------------------------------------------------------------

WITHOUT_LIMIT = {"sine", "logit"}
AT_INFINITY = [
    name
    for name in NAMES
    if name not in WITHOUT_LIMIT
    and len(tensors(REFERENCES[name].inputs(torch.Generator(), torch.float64))) == 1
]


@pytest.mark.parametrize("name", AT_INFINITY)
def test_limits_at_infinity(name: str, reference: Reference, generator: torch.Generator) -> None:
    far = 1e300
    inputs = reference.inputs(generator, torch.float64)
    inputs["x"] = torch.tensor([-far, far], dtype=torch.float64)
    expected = outputs(reference.function(*inputs.values()))
    inputs["x"] = torch.tensor([-math.inf, math.inf])
    actual = outputs(generated(name)(*own_settings(name, inputs).values()))
    for got, want in zip(actual, expected, strict=True):
        want = torch.where(want.abs() > 1e290, want.sign() * math.inf, want)
        want = torch.where(want.abs() < 1e-290, 0.0, want)
        torch.testing.assert_close(got, want.float(), rtol=1e-6, atol=0)


# --- modules, outputs, reductions ----------------------------------------------------------


def build(name: str, inputs: Inputs, **options: Any) -> torch.nn.Module:
    """The module with its default numbers; those that have no default come from the inputs."""
    made = module_class(name)
    forward = inspect.signature(made.forward).parameters
    for key, p in inspect.signature(made).parameters.items():
        if key == "num_channels":
            learned = [v for k, v in inputs.items() if isinstance(v, Tensor) and k not in forward]
            options[key] = max(each.numel() for each in learned)
        elif p.default is p.empty and p.kind is not p.VAR_KEYWORD:
            options[key] = inputs[key]
    if name in LOSSES:
        options["reduction"] = "none"
    return made(**options)


def test_module_is_the_function(
    name: str, reference: Reference, generator: torch.Generator
) -> None:
    inputs = reference.inputs(generator, torch.float32)
    module = build(name, inputs)
    parameters = dict(module.named_parameters())
    given = {k: v for k, v in inputs.items() if isinstance(v, Tensor) and k not in parameters}
    defaults = inspect.signature(getattr(package(name), name)).parameters
    numbers = {
        k: v
        for k, v in inputs.items()
        if not isinstance(v, Tensor) and defaults[k].default is inspect.Parameter.empty
    }
    actual = outputs(module(*given.values()))
    expected = outputs(generated(name)(**given, **parameters, **numbers))
    assert_all_close(actual, expected, rtol=0, atol=0)
    if parameters:
        sum(out.sum() for out in actual).backward()  # type: ignore[union-attr]
        assert all(p.grad is not None and p.grad.isfinite().all() for p in parameters.values())


def test_module_habits(name: str, reference: Reference, generator: torch.Generator) -> None:
    inputs = reference.inputs(generator, torch.float32)
    module = build(name, inputs)
    parameters = dict(module.named_parameters())
    assert repr(module).startswith(f"{camel_case(name)}(")
    for key in inspect.signature(type(module)).parameters:
        if key not in ("num_channels", "device", "dtype"):
            assert f"{key}=" in module.extra_repr()
    assert list(module.state_dict()) == [key for key in inputs if key in parameters]
    if parameters:
        start = {key: value.clone() for key, value in module.state_dict().items()}
        for p in parameters.values():
            torch.nn.init.constant_(p, 7.0)
        other = build(name, inputs, dtype=torch.float64)
        assert all(p.dtype == torch.float64 for p in other.parameters())
        other.load_state_dict(module.state_dict())
        assert all((p == 7.0).all() for p in other.parameters())
        module.reset_parameters()  # type: ignore[operator]
        for key, value in module.state_dict().items():
            assert torch.equal(value, start[key])


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("quadratic_terms", ("z", "xx", "yy", "xy")),
        ("two_outputs", ("out0", "out1")),
        ("quaternion_product", ("out0", "out1", "out2", "out3")),
    ],
)
def test_several_outputs_are_a_named_tuple(
    name: str, fields: tuple[str, ...], reference: Reference, generator: torch.Generator
) -> None:
    inputs = reference.inputs(generator, torch.float64)
    expected = reference.function(*inputs.values())
    for returned in (generated(name)(*inputs.values()), module_class(name)()(*inputs.values())):
        assert isinstance(returned, tuple)
        assert getattr(returned, "_fields", None) == fields
        for field, want in zip(fields, expected, strict=True):
            torch.testing.assert_close(getattr(returned, field), want)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_reductions(
    name: str, reduction: str, reference: Reference, generator: torch.Generator
) -> None:
    inputs = leaves(reference.inputs(generator, torch.float64))
    actual = getattr(package(name), name)(*inputs.values(), reduction=reduction)
    expected = getattr(reference.function(*inputs.values()), reduction)()
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)
    one = [torch.ones((), dtype=torch.float64)]
    wrt = tensors(inputs)
    got, wanted = gradients([actual], wrt, one), gradients([expected], wrt, one)
    assert_all_close(got, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_an_unknown_reduction_is_refused(name: str, generator: torch.Generator) -> None:
    inputs = REFERENCES[name].inputs(generator, torch.float32)
    with pytest.raises(ValueError, match="average"):
        getattr(package(name), name)(*inputs.values(), reduction="average")
