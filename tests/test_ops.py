"""The table of operations: every backend has every operation, and all agree with mpmath."""

from __future__ import annotations

import ctypes
import math
import random
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

import gmpy2
import mpmath
import pytest
import sympy
import torch
import torch.nn.functional as F

from autofn import precise
from autofn.backends import primitives
from autofn.derive import Differentiator
from autofn.ops import BY_CLASS, CPP_HELPERS, OPS, TORCH_HELPERS, Op, quick_ulp
from autofn.recognise import recognise
from autofn.resources import templates
from autofn.rewrite.formats import DOUBLE, SINGLE
from autofn.rewrite.simulate import EXPONENTIAL_OF_SUM, PAST
from autofn.rewrite.truth import FAILS, _exact

PARAMETRISED = {
    "powi": (1, 2, 3, 5, 12),
    "polygamma": (1, 2, 3),
    "spherical_bessel": (1, 2, 3),
    "spherical_bessel_of_sum": (1, 2, 3),
    "spherical_bessel_pi": (1, 2, 3),
    "spherical_bessel_pi_of_sum": (1, 2, 3),
    "phi": (1, 2, 3),
    "polynomial": (0,),
    "exp_within": (21, 64),
    "exp_within_of_sum": (21, 64),
}
LOGICAL = {"and", "or", "not"}
CASES = [(name, n) for name, op in OPS.items() if op.cpp for n in PARAMETRISED.get(name, (None,))]
TORCH_CASES = [(name, n) for name, n in CASES if OPS[name].torch]
IDS = [name if n is None else f"{name}{n}" for name, n in CASES]


def arity(op: Op) -> int:
    return 1 + max(int(each) for each in re.findall(r"{(\d)}", op.cpp))


def points(op: Op, count: int = 40) -> list[tuple[float, ...]]:
    """Arguments inside the operation's domain; the first of a select and all of logic are bools."""
    rng = random.Random(op.name)
    low, high = op.domain
    found = []
    for _ in range(count):
        args = [rng.uniform(low, high) for _ in range(arity(op))]
        if op.name in LOGICAL:
            args = [float(rng.random() < 0.5) for _ in args]
        elif op.name == "select":
            args[0] = float(args[0] > 0)
        elif op.name.endswith("_of_sum"):
            args[-1] *= 1e-7  # what the argument before it lost in rounding
        elif op.name == "pow_in_parts":
            args[2:] = [each * 1e-8 for each in args[:2]]
        elif op.name == "clamp":
            args[1:] = sorted(args[1:])
        elif "normal_mass" in op.name:
            args[0] = args[1] + abs(args[0] - args[1])
            args[2] = args[0] - args[1]
        elif op.name.endswith("_split"):
            args[2:4] = halves(*args[:2])
        elif op.name in ("eq", "ne", "le", "ge", "max", "min") and rng.random() < 0.3:
            args[1] = args[0]
        found.append(tuple(args))
    return found


def halves(u: Any, v: Any) -> list[Any]:
    return [(u + v) / 2, (u - v) / 2]


def exact(op: Op, n: int | None, args: tuple[float, ...]) -> float:
    with mpmath.workdps(40):
        values = [mpmath.mpf(arg) for arg in args]
        return float(op.exact(*values) if n is None else op.exact(*values, n))


def torch_value(op: Op, n: int | None, columns: list[torch.Tensor]) -> torch.Tensor:
    space: dict[str, Any] = {"torch": torch, "F": F, "math": math}
    for helper in TORCH_HELPERS.values():
        exec(helper, space)
    if op.name in LOGICAL:
        columns = [column.bool() for column in columns]
    elif op.name == "select":
        columns = [columns[0].bool(), *columns[1:]]
    names = [f"a{i}" for i in range(len(columns))]
    return eval(op.torch.format(*names, n=n), {**space, **dict(zip(names, columns, strict=True))})


@pytest.mark.parametrize(("name", "n"), TORCH_CASES)
def test_pytorch_agrees_with_mpmath(name: str, n: int | None) -> None:
    op = OPS[name]
    args = points(op)
    columns = [torch.tensor(column, dtype=torch.float64) for column in zip(*args, strict=True)]
    got = torch_value(op, n, columns)
    want = torch.tensor([exact(op, n, each) for each in args], dtype=torch.float64)
    torch.testing.assert_close(got.double(), want, rtol=5e-13, atol=1e-15)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Every operation's C++ spelling as a function of doubles and one of floats."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    spelled = "\n".join([*CPP_HELPERS.values(), *(op.cpp for op in OPS.values())])
    text = [
        primitives.prelude().replace("#pragma once", ""),
        "namespace autofn {",
        *map(primitives.text, primitives.used(spelled)),
        "}",
        "constexpr auto kWay = autofn::kFull;",
        *CPP_HELPERS.values(),
    ]
    for (name, n), label in zip(CASES, IDS, strict=True):
        op = OPS[name]
        names = [f"a[{i}]" for i in range(arity(OPS[name]))]
        if name in LOGICAL:
            names = [f"bool({each})" for each in names]
        elif name == "select":
            names[0] = f"bool({names[0]})"
        for kind in ("double", "float"):
            body = op.cpp.format(*names, n=n)
            text.append(
                f'extern "C" double {label}_{kind}(const double* x) {{ using T = {kind}; '
                f"const T a[5] = {{T(x[0]), T(x[1]), T(x[2]), T(x[3]), T(x[4])}}; (void)a; "
                f"return {body}; }}"
            )
    folder = tmp_path_factory.mktemp("ops")
    source = folder / "ops.cpp"
    source.write_text("\n".join(text))
    target = folder / "ops.so"
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "-Wall", "-Werror",
             "-Wno-unused-function"]  # fmt: skip
    subprocess.run([compiler, *flags, str(source), "-o", str(target), "-lm"], check=True)
    return ctypes.CDLL(str(target))


@pytest.mark.parametrize("kind", ["double", "float"])
@pytest.mark.parametrize(("name", "n"), CASES, ids=IDS)
def test_cpp_agrees_with_mpmath(library: ctypes.CDLL, name: str, n: int | None, kind: str) -> None:
    op = OPS[name]
    function = library[f"{name if n is None else f'{name}{n}'}_{kind}"]
    function.restype = ctypes.c_double
    rtol, atol = (1e-12, 1e-15) if kind == "double" else (3e-5, 2e-6)
    for args in points(op):
        if name.endswith("_of_sum") and kind == "double":
            args = (*args[:-1], args[-1] * 1e-8)
        got = function((ctypes.c_double * 5)(*args))
        assert got == pytest.approx(exact(op, n, args), rel=rtol, abs=atol), args


def test_powers_make_use_of_what_base_and_exponent_lost(library: ctypes.CDLL) -> None:
    rng, op = random.Random(5), OPS["pow_in_parts"]
    for kind, of_kind, bits in (("float", ctypes.c_float, 24), ("double", ctypes.c_double, 53)):
        function = library[f"pow_in_parts_{kind}"]
        function.restype = ctypes.c_double
        for _ in range(400):
            x, y = 10 ** rng.uniform(-20, 20), rng.uniform(-1.8, 1.8)
            if rng.random() < 0.5:
                x, y = 1 + rng.uniform(-1, 1) * 1e-4, rng.uniform(-1e4, 1e4)
            args = [of_kind(each).value for each in (x, y)]
            args += [of_kind(each * rng.uniform(-1, 1) * 2.0**-bits).value for each in args]
            got = function((ctypes.c_double * 5)(*args))
            with mpmath.workprec(200):
                off = got / op.exact(*map(mpmath.mpf, args)) - 1
                assert abs(off) < 1.1 * 2.0 ** (1 - bits), (kind, args, got)
            for zeros in (
                (x, 0.0, 0.0, 0.0),
                (0.0, 2.5, 0.0, math.nan),
                (math.inf, y, math.nan, 0),
            ):
                args = [of_kind(each).value for each in zeros]
                assert function((ctypes.c_double * 5)(*args)) == math.pow(*args[:2])


# Of 1 + x, float32 has few of the digits of x or none: they are raised to the power as well.
DEEP = [
    ("pow1pm1", (-0.9161608815193176, -2.937978971218058e-09)),
    ("pow1pm1", (-0.99, 1e-6)),
    ("softplus_rise", (-104.0, 63.9)),
    ("softplus_rise", (-84.5, -57.9)),
    ("softplus_rise", (-120.0, 40.0)),
    ("softplus_rise", (-30.0, 1e-3)),
    ("softplus_rise", (3.0, -50.0)),
    ("softplus_divergence", (-3.6e-8, 1.01262)),
    ("softplus_divergence", (0.5, -0.51)),
    ("softplus_divergence", (-40.0, 3.0)),
    ("softplus_divergence", (1.5e-3, -0.06)),
]


@pytest.mark.parametrize(("name", "args"), DEEP)
def test_heads_keep_their_bounds(library: ctypes.CDLL, name: str, args: tuple[float, ...]) -> None:
    """Where parts of them cancel, or are subnormal, in single precision and in PyTorch's."""
    args = tuple(ctypes.c_float(each).value for each in args)
    op, want = OPS[name], exact(OPS[name], None, args)
    function = library[f"{name}_float"]
    function.restype = ctypes.c_double
    _, exponent = math.frexp(want)
    got = function((ctypes.c_double * 5)(*args))
    assert abs(got - want) <= op.ulp * math.ldexp(1, exponent - 24)
    columns = [torch.tensor([each], dtype=torch.float64) for each in args]
    assert torch_value(op, None, columns).item() == pytest.approx(want, rel=1e-13)
    columns = [torch.tensor([each], dtype=torch.float32) for each in args]
    if name != "softplus_divergence":
        assert torch_value(op, None, columns).item() == pytest.approx(want, rel=2e-6)


COMPOUND = [(1e-9, 3e9), (-7.7e-9, 1.4e11), (3e-4, 2e5), (-0.03, 1500.0), (2.5, 40.0), (-1.0, 3.0)]


@pytest.mark.parametrize("args", COMPOUND)
def test_powers_of_1_and_more(library: ctypes.CDLL, args: tuple[float, float]) -> None:
    x, y = (ctypes.c_float(each).value for each in args)
    want = exact(OPS["pow1pm1"], None, (x, y))
    for kind, bound in (("float", 1e-6), ("double", 1e-13)):
        function = library[f"pow1pm1_{kind}"]
        function.restype = ctypes.c_double
        got = function((ctypes.c_double * 5)(x, y))
        assert got == pytest.approx(want, rel=bound * (1 + abs(math.log(abs(want) + 1))))
    columns = [torch.tensor([each], dtype=torch.float64) for each in (x, y)]
    got = torch_value(OPS["pow1pm1"], None, columns).item()
    assert got == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("at", [-1e-12, 1e-12, -1 - 1e-9, -3 + 1e-9, -0.5, -2.75])
def test_digamma_next_to_its_poles(library: ctypes.CDLL, at: float) -> None:
    function = library["digamma_double"]
    function.restype = ctypes.c_double
    want = float(mpmath.digamma(mpmath.mpf(at)))
    # The recurrence from 1 - x rounds at most to the last place of 1, where the value is ~ 1.
    assert function((ctypes.c_double * 5)(at, 0.0, 0.0)) == pytest.approx(
        want, rel=1e-14, abs=1e-14
    )


NAN_IN_NAN_OUT = [
    (name, n)
    for name, n in CASES
    if not OPS[name].boolean and name != "select" and arity(OPS[name]) == 1
]


@pytest.mark.parametrize(("name", "n"), NAN_IN_NAN_OUT)
def test_nan_stays_nan(library: ctypes.CDLL, name: str, n: int | None) -> None:
    op = OPS[name]
    column = torch.tensor([math.nan], dtype=torch.float64)
    if op.torch:
        assert torch_value(op, n, [column]).isnan().all()
    function = library[f"{name if n is None else f'{name}{n}'}_double"]
    function.restype = ctypes.c_double
    assert math.isnan(function((ctypes.c_double * 5)(math.nan, math.nan, math.nan)))


SMOOTH = sorted(
    name
    for name, op in OPS.items()
    if op.partials is not None
    and name not in ("sign", "floor", "ceil", "clamp", "phi")
    and not name.startswith("spherical_bessel")
)


@pytest.mark.parametrize("name", SMOOTH)
def test_partials_agree_with_numeric_differentiation(name: str) -> None:
    op = OPS[name]
    symbols = sympy.symbols("a b c", real=True)
    kind = next(kind for kind, each in BY_CLASS.items() if each is op)
    extra = (sympy.Integer(1),) if name == "polygamma" else ()
    of_difference = "normal_mass" in name  # u, v and u - v
    of_halves = name.endswith("_split")  # u, v, the halves of their sum and difference, and c
    count = 2 if of_difference else 3 if of_halves else arity(op)

    def given(values: Sequence[Any]) -> list[Any]:
        if of_halves:
            return [*values[:2], *halves(*values[:2]), values[2]]
        return [*values, *([values[0] - values[1]] if of_difference else [])]

    expr = kind(*extra, *given(symbols[:count]))
    d = Differentiator(symbols)
    for index in range(count):
        derivative = d(expr, symbols[index])
        for args in (each[:count] for each in points(op, 10)):
            with mpmath.workdps(40):
                values = [mpmath.mpf(arg) for arg in args]

                def along(x: Any, index: int = index, values: list[Any] = values) -> Any:
                    moved = [*values[:index], x, *values[index + 1 :]]
                    return op.exact(*given(moved), *map(int, extra))

                want = mpmath.diff(along, values[index])
                shown = {s: sympy.Float(str(v), 40) for s, v in zip(symbols, values, strict=False)}
                got = derivative.xreplace(shown).evalf(30)
            assert float(got) == pytest.approx(float(want), rel=1e-12, abs=1e-14), args


@pytest.mark.parametrize("kind", ["double", "float"])
def test_normal_masses_keep_their_digits(library: ctypes.CDLL, kind: str) -> None:
    """In both tails, between them, and of narrow places: to 4 ULP in double, to one in single."""
    digits, most, least = (53, 4.0, 1e-290) if kind == "double" else (24, 0.6, 1e-36)
    rng = random.Random(kind)
    for name in ("log_normal_mass", "normal_mass_upper", "normal_mass_lower", "normal_mass_mean"):
        function = library[f"{name}_{kind}"]
        function.restype = ctypes.c_double
        for _ in range(200):
            centre = rng.choice([0, 0.3, 1, 3, 7.9, 9, 15, 37, 60, 1e3, 1e5]) * rng.choice([1, -1])
            width = rng.choice([1e-6, 1e-3, 0.1, 0.5, 1, 1.5, 3, 20, 100]) * rng.uniform(0.5, 1.5)
            low, high = centre - rng.choice([0, 0.5, 1]) * width, centre + width
            u, v = (_of_digits(each, digits - 3) for each in (high, low))
            if u - v != _of_digits(u - v, digits) or u == v:
                continue
            with mpmath.workprec(200):
                want = OPS[name].exact(*map(mpmath.mpf, (u, v, u - v)))
            if abs(want) > least:
                got = function((ctypes.c_double * 5)(u, v, u - v))
                assert abs(got - want) <= most * 2.0 ** (1 - digits) * abs(want), (name, u, v)


def _of_digits(value: float, digits: int) -> float:
    """Rounded to so many binary digits."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(mantissa * 2.0**digits), exponent - digits)


ODD = (
    0.0, 1.0, -1.0, 2.0, -3.0, 0.5, -0.5, 1e-30, -1e-30, 1.4e-45, 100.0, -700.5, -20.5, -21.0,
    1.5e19, -3e38, 1e25, math.inf, -math.inf,
)  # fmt: skip
"""Zeros, poles, branch points, and what overflows in MPFR."""


@pytest.mark.parametrize(("name", "n"), CASES, ids=IDS)
def test_both_kinds_of_numbers_agree(name: str, n: int | None) -> None:
    """MPFR's numbers and mpmath's, at poles and beyond branch points as well."""
    if name in (*LOGICAL, "select", "polynomial"):
        pytest.skip("takes what is no number, or any number of them")
    rng, op = random.Random(3), OPS[name]
    for k in range(80):
        args = [
            rng.choice(ODD) if rng.random() < 0.6 else rng.uniform(-9, 9) for _ in range(arity(op))
        ]
        args[0] = ODD[k % len(ODD)] if len(args) == 1 else args[0]

        def computed(number: precise.Make, args: list[float] = args) -> Any:
            try:
                value = _exact(name, n, *(number(arg) for arg in args))
            except FAILS:
                value = math.nan
            return precise.bounded(number(value) if type(value) in (int, float) else value)

        got = precise.evaluated(300, computed)
        assert isinstance(got, bool | mpmath.mpf | gmpy2.mpfr), type(got)
        with mpmath.mp.workprec(300):
            got, want = precise.wide(got), computed(precise.wide)
            alike = got == want or (mpmath.isnan(got) and mpmath.isnan(want))
            assert alike or abs(got - want) <= abs(want) * mpmath.mpf(2) ** -200, args


@pytest.mark.parametrize("bits", [113, 240, 400])
def test_erfc_is_that_of_mpfr(bits: int) -> None:
    """To the last digit, where MPFR's takes long, and where it is used."""
    for x in (-3.0, 1.9, 2.1, 3.7, 6.5, 11.0, 16.0, 17.3, 18.5, 21.0, 27.3, 49.0, 51.0):
        with precise.in_bits(bits):
            got = precise.erfc(gmpy2.mpfr(x))
        with precise.in_bits(bits + 60):
            want = gmpy2.erfc(gmpy2.mpfr(x))
            assert abs(got / want - 1) < precise.power_of_two(-bits), x


@pytest.mark.parametrize("name", ["sin", "cos", "tan", "sinc"])
def test_waves_of_what_no_float_is(name: str) -> None:
    """As many digits of pi would take for ever."""
    with precise.in_bits(400):
        found = _exact(name, None, precise.power_of_two(10**9))
    assert found == 0 if name == "sinc" else found != found


@pytest.mark.parametrize("n", [1, 2, 3])
def test_polygamma_takes_no_step_per_integer(n: int) -> None:
    args = [-0.3, -3.7, -20.3, -1e9 - 0.25, -1e15 - 0.25, 1e30]
    column = torch.tensor(args, dtype=torch.float64)
    got = torch_value(OPS["polygamma"], n, [column])
    want = [exact(OPS["polygamma"], n, (arg,)) for arg in args]
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=1e-12, atol=0)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", ["spherical_bessel", "phi"])
def test_derivative_stays_in_the_family(name: str, order: int) -> None:
    x = sympy.Symbol("x", real=True)
    kind = OPS[name].sympy
    assert kind is not None
    derivative = Differentiator([x])(kind(sympy.Integer(order), x), x)
    exact_value = OPS[name].exact
    for point in (0.3, 1.7, 4.2):
        with mpmath.workdps(40):
            want = mpmath.diff(lambda t: exact_value(t, order), mpmath.mpf(point))
            got = derivative.xreplace({x: sympy.Float(str(point), 40)}).evalf(30)
        assert float(got) == pytest.approx(float(want), rel=1e-12)


def test_every_supported_sympy_function_reaches_an_operation() -> None:
    """What recognition rewrites (sec, Mod, factorial, ...) ends in operations of the table."""
    x, y = sympy.symbols("x y", real=True)
    written = [
        sympy.sec(x), sympy.csc(x), sympy.cot(x), sympy.asec(x), sympy.acsc(x), sympy.acot(x),
        sympy.sech(x), sympy.csch(x), sympy.coth(x), sympy.asech(x), sympy.acsch(x),
        sympy.acoth(x), sympy.frac(x), sympy.Mod(x, y), sympy.factorial(x), sympy.beta(x, y),
        sympy.sinc(x), sympy.Heaviside(x), sympy.digamma(x), sympy.trigamma(x), x**y, 2**x,
        x ** sympy.Rational(2, 3), sympy.Piecewise((x, sympy.Xor(x > 0, y > 0)), (y, True)),
        sympy.Piecewise((x, sympy.ITE(x > 0, y > 0, y < 1)), (y, True)),
    ]  # fmt: skip
    for expr in written:
        for node in sympy.preorder_traversal(recognise(expr)):
            known = isinstance(node, (*BY_CLASS, sympy.Add, sympy.Mul, sympy.Pow, sympy.Piecewise))
            pair = sympy.functions.elementary.piecewise.ExprCondPair
            assert known or not node.args or isinstance(node, pair), (expr, node)


@pytest.mark.parametrize("kind", ["double", "float"])
@pytest.mark.parametrize("name", sorted(EXPONENTIAL_OF_SUM & {op for op, _ in CASES}))
def test_what_an_overflowed_argument_lost_is_not_looked_at(
    library: ctypes.CDLL, name: str, kind: str
) -> None:
    """As simulation has it: a*(x - y) may be infinite, and what it lost NaN."""
    function = library[f"{name}_{kind}"]
    function.restype = ctypes.c_double
    past = PAST[SINGLE if kind == "float" else DOUBLE]
    first = [0.7] * (arity(OPS[name]) - 2)
    for x in (-math.inf, -1e30, -1.5 * past, 1.5 * past, 1e30, math.inf):
        if x < 0 and name.startswith("decay"):
            continue
        want, *got = (
            function((ctypes.c_double * 5)(*(*first, x, rest, 0.0)[:3]))
            for rest in (0.0, math.nan, math.inf, -math.inf)
        )
        assert not math.isnan(want) and got == [want] * 3, x


QUICK_OPS = [name for name in OPS if quick_ulp(name, 1)]
EXTREMES = (-0.0, 1e-30, -3e-5, 0.3, 0.6, -0.7, 1.4, -2.5, 6.0, -11.0, 30.0, -60.0, 86.0, -87.5)


@pytest.fixture(scope="session", params=[-1, 1])
def quick(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The quick ways of a GPU on the host, its approximations as wrong as they may be."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    spelled = "\n".join([*CPP_HELPERS.values(), *(op.cpp for op in OPS.values())])
    wrong = f" * (1.0f + {request.param} * 0x1p-22f)"
    given = "\n".join(map(primitives.text, primitives.used(spelled)))
    given = given.replace("return std::exp2(x);", f"return std::exp2(x){wrong};")
    given = given.replace("return 1.0f / x;", f"return 1.0f / x{wrong};")
    given = given.replace(
        "return std::log2(x);", f"return std::log2(x) + {request.param} * 0x1p-22f;"
    )
    assert given.count("0x1p-22f") == 3
    text = ['#include "cuda_on_host.h"', primitives.prelude().replace("#pragma once", ""),
            "namespace autofn {", given, "}", "constexpr auto kWay = autofn::kQuick;",
            *CPP_HELPERS.values()]  # fmt: skip
    for name in QUICK_OPS:
        body = OPS[name].cpp.format("a[0]", "a[1]", "a[2]")
        text.append(
            f'extern "C" double quick_{name}(const double* x) {{ using T = float; '
            f"const T a[3] = {{T(x[0]), T(x[1]), T(x[2])}}; (void)a; return {body}; }}"
        )
    folder = tmp_path_factory.mktemp("quick")
    (folder / "ops.cpp").write_text("\n".join(text))
    host = templates() / "host"
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-ffp-contract=off", f"-I{host}"]
    subprocess.run(
        [compiler, *flags, str(folder / "ops.cpp"), "-o", str(folder / "ops.so")], check=True
    )
    return ctypes.CDLL(str(folder / "ops.so"))


@pytest.mark.parametrize("name", QUICK_OPS)
def test_quick_ways_keep_their_bounds(quick: ctypes.CDLL, name: str) -> None:
    op, function = OPS[name], quick[f"quick_{name}"]
    function.restype = ctypes.c_double
    count = arity(op)
    for args in [*points(op), *(((each,) * count) for each in EXTREMES)]:
        single = [ctypes.c_float(arg).value for arg in args]
        if name.endswith("_of_sum"):
            single[-1] = ctypes.c_float(single[-2] * 2.0**-25).value
        if name.startswith("decay"):
            single[0] = abs(single[0])
        with mpmath.workprec(200):
            exactly = [mpmath.mpf(arg) for arg in single]
            want = op.exact(*exactly)
            factor = op.exact(mpmath.mpf(1), *exactly[1:]) if name.startswith("times_") else want
        if isinstance(want, mpmath.mpc) or not mpmath.isfinite(want) or abs(want) > 3e38:
            continue
        got = function((ctypes.c_double * 5)(*(*single, 0.0, 0.0, 0.0)[:3]))
        allowed = (op.ulp + quick_ulp(name, factor)) * abs(want) * 2.0**-23 + 2.0**-149
        assert abs(got - want) <= allowed, (single, got, float(want))
