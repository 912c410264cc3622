"""Double-double numbers: their operations against mpmath, and what float64 needs them for."""

from __future__ import annotations

import ctypes
import math
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import mpmath
import pytest
import sympy
from mpmath import mp
from test_ops import CASES, IDS, LOGICAL, arity, points

from autofn import formula
from autofn.backends import primitives
from autofn.ops import DOUBLE_DOUBLE, DOUBLE_DOUBLE_BOUND, OPS
from autofn.pipeline import generate
from autofn.plan import Plan, kernels, plan
from autofn.program import Program

DD_CASES = [
    (case, label) for case, label in zip(CASES, IDS, strict=True) if case[0] in DOUBLE_DOUBLE
]
FLAGS = "-std=c++17 -O1 -shared -fPIC -ffp-contract=off -Wall -Werror -Wno-unused-function".split()
MAGNIFIED = {"pow", "pow1pm1", "times_normcdf", "normcdf", "erfc"}
EXACT_AT = (0.0, -0.0, math.inf, -math.inf, math.nan)

Pair = tuple[float, float]


def texts() -> str:
    """All that is needed of the primitives."""
    spelled = [each.format(*"abcde", n=1) for each in DOUBLE_DOUBLE.values()]
    needed = primitives.used("\n".join(["autofn::rounded(", *spelled]))
    return "\n".join(map(primitives.text, needed))


def source() -> str:
    """Every operation's spelling as a function of pairs of doubles."""
    text = [primitives.prelude().replace("#pragma once", ""), "namespace autofn {", texts(), "}"]
    for (name, n), label in DD_CASES:
        names = [f"a[{i}]" for i in range(arity(OPS[name]))]
        if name in LOGICAL or name == "select":
            names[: len(names) if name in LOGICAL else 1] = [
                f"(a[{i}].high != 0.0)" for i in range(len(names) if name in LOGICAL else 1)
            ]
        body = DOUBLE_DOUBLE[name].format(*names, n=n)
        made = f"T(double({body}))" if OPS[name].boolean else body
        text.append(
            f'extern "C" void run_{label}(const double* x, double* y) {{'
            " using T = autofn::DoubleDouble;"
            f" const T a[5] = {{{', '.join(f'T(x[{2 * i}], x[{2 * i + 1}])' for i in range(5))}}};"
            " (void)a;"
            f" const T r = {made}; y[0] = r.high; y[1] = r.low; }}"
        )
    return "\n".join(text)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("double_double")
    (folder / "all.cpp").write_text(source())
    command = [compiler, *FLAGS, str(folder / "all.cpp"), "-o", str(folder / "all.so"), "-lm"]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(folder / "all.so"))


def computed(library: ctypes.CDLL, label: str, args: list[Pair]) -> Pair:
    flat = [part for pair in args for part in pair]
    found = (ctypes.c_double * 2)()
    library[f"run_{label}"]((ctypes.c_double * 10)(*flat), found)
    return found[0], found[1]


def exact(name: str, n: int | None, args: list[Any]) -> Any:
    if name in LOGICAL or name == "select":
        args = [bool(args[0]), *(args[1:] if name == "select" else map(bool, args[1:]))]
    value = OPS[name].exact(*args) if n is None else OPS[name].exact(*args, n)
    return mp.mpf(int(value)) if isinstance(value, bool) else value


@pytest.mark.parametrize(("case", "label"), DD_CASES, ids=[label for _, label in DD_CASES])
def test_operations_keep_their_bound(
    library: ctypes.CDLL, case: tuple[str, int | None], label: str
) -> None:
    """At ordinary numbers that no double is, small ones and large ones."""
    (name, n), rng = case, random.Random(label)
    with mp.workprec(500):
        for k, args in enumerate(points(OPS[name], 60)):
            scale = (1.0, 2.0**-40, 2.0**-90, 9.0)[k % 4] if OPS[name].domain[0] < 0 else 1.0
            if name in ("asin", "acos", "atanh", "log1p", "xlog1py", "log1pmx") and scale > 1:
                scale = 1.0
            whole = name in LOGICAL or name in ("select", "clamp")
            pairs = [
                (v * scale, 0.0 if whole else v * scale * rng.uniform(-1, 1) * 2.0**-54)
                for v in args
            ]
            want = exact(name, n, [mp.mpf(high) + mp.mpf(low) for high, low in pairs])
            if isinstance(want, mpmath.mpc) or not mp.isfinite(want):
                continue
            if 0 < abs(want) < 2.0**-900:
                continue  # the rest is subnormal
            high, low = computed(library, label, pairs)
            size = (2 + abs(mp.mag(want))) if name in MAGNIFIED and want else 1
            off = abs(mp.mpf(high) + mp.mpf(low) - want)
            # What cancels in a sum or a maximum's own terms is exact to the terms' last digits.
            terms = max(abs(high) for high, _ in pairs) * 2.0**-98 if name in ("add", "sub") else 0
            assert off <= DOUBLE_DOUBLE_BOUND * size * abs(want) + terms, (pairs, high, low, want)
            assert abs(low) <= abs(high) * 2.0**-52


ENDS = (
    "exp expm1 log log1p sigmoid softplus tanh sinh cosh sech2 sqrt atan erf erfc normcdf asinh "
    "abs floor logcosh".split()
)


@pytest.mark.parametrize("name", ENDS)
def test_at_the_ends(library: ctypes.CDLL, name: str) -> None:
    """Infinities, NaN and zeros, as the operation of doubles has them; nothing lost in the rest."""
    for x in (*EXACT_AT, 1e300, -1e300, 5e-324):
        high, low = computed(library, name, [(x, 0.0)])
        with mp.workprec(500):
            try:
                want = exact(name, None, [mp.mpf(x)])
            except (ValueError, ZeroDivisionError, OverflowError, mpmath.libmp.NoConvergence):
                continue
        if isinstance(want, mpmath.mpc) or math.isnan(x) or mp.isnan(want):
            assert math.isnan(high) or mp.isfinite(want), (x, high)
        elif abs(want) < 2.0**-1021:
            assert abs(high - want) <= 2.0**-1073, (x, high)
        elif abs(x) < 1e299 or name != "sinh":
            assert high == float(want), (x, high, want)
        assert low == low, (x, low)


@pytest.mark.parametrize("name", [each for each in DOUBLE_DOUBLE if each.startswith("times_exp")])
@pytest.mark.parametrize("x", [-0.2, 0.0, 0.2, 0.6])
def test_an_infinite_factor(library: ctypes.CDLL, name: str, x: float) -> None:
    rest = [(x, 0.0)] * (arity(OPS[name]) - 1)
    assert computed(library, name, [(math.inf, 0.0), *rest]) == (math.inf, 0.0)


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize("x", [(2.0**40 + 1, 2.0**-13.5), (4.48e38, 1.7e22), (-7.1e55, -3.3e38)])
def test_waves_far_out(library: ctypes.CDLL, name: str, x: Pair) -> None:
    """The low part of a large number is large itself."""
    with mp.workprec(500):
        want = exact(name, None, [mp.mpf(x[0]) + mp.mpf(x[1])])
    assert abs(computed(library, name, [x])[0] - want) < 1e-14


def kernel_programs(made: Plan) -> dict[str, Program]:
    return {kernel.pass_name: program for kernel, program in kernels(made)}


def test_only_where_double_does_not_do() -> None:
    """exp of an exponential is magnified by its argument, 700 at most; a gate is not."""

    @formula
    def gompertz(x):  # type: ignore[no-untyped-def]
        return sympy.exp(-2 * sympy.exp(-x * 3 / 2))

    @formula
    def gate(x):  # type: ignore[no-untyped-def]
        return x / (1 + sympy.exp(-x))

    found = kernel_programs(plan(gompertz.definition))
    assert {each.wide and each.wide.arithmetic for each in found.values()} == {"double-double"}
    assert all(each.wide is None for each in kernel_programs(plan(gate.definition)).values())


def test_float32_does_not_call_them() -> None:
    """What it computes again in double is no double-double number; and the file is its own."""

    @formula
    def gompertz(x):  # type: ignore[no-untyped-def]
        return sympy.exp(-2 * sympy.exp(-x * 3 / 2))

    files = dict(generate(gompertz.definition).files)
    assert "DoubleDouble" not in files["kernels.cpp"]
    assert "gompertz_forward_block_double_double" in files["kernels_double_double.cpp"]
    scalar = re.findall(r"namespace scalar {(.*?)}  // namespace scalar", files["maths.h"], re.S)
    assert scalar and not any("double_double" in each for each in scalar)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_nvcc(tmp_path: Path) -> None:
    kernels = "\n".join(
        f"__global__ void run_{name}(const double* x, double* y) {{ "
        f"const int i = blockIdx.x * blockDim.x + threadIdx.x; using T = autofn::DoubleDouble; "
        f"y[i] = autofn::rounded({DOUBLE_DOUBLE[name].format('T(x[i])', 'T(y[i])', n=2)}); }}"
        for name in (
            "exp log sin pow normcdf atan2 phi spherical_bessel softplus_rise softplus_divergence"
        ).split()
    )
    header = f"{primitives.prelude()}\nnamespace autofn {{\n{texts()}\n}}\n"
    (tmp_path / "primitives.h").write_text(header)
    (tmp_path / "all.cu").write_text(f'#include "primitives.h"\n{kernels}')
    flags = "-std=c++17 -arch=sm_90 -fmad=false -Xptxas -v -Werror all-warnings -cubin".split()
    made = subprocess.run(["nvcc", *flags, "all.cu"], cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert set(re.findall(r"(\d+) bytes spill", made.stderr)) == {"0"}, made.stderr
