"""The float32 primitives: their documented bounds, and that nvcc takes them."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import mpmath
import numpy as np
import pytest

TEXTS = Path(__file__).resolve().parent.parent / "templates" / "primitives"
NAMES = sorted(
    p.stem
    for p in TEXTS.glob("*.h")
    if re.search(rf"AUTOFN_FN double {p.stem}\(", p.read_text(encoding="utf-8"))
    and not p.stem.startswith(("times_", "rounded"))
)
BINARY = {"pow", "atan2"}
WAVES = ("sin_near", "cos_near")
FLAGS = "-std=c++17 -O2 -fopenmp-simd -fno-math-errno -fno-trapping-math -ffp-contract=off".split()
NVCC = "-std=c++17 -arch=sm_90 -Xptxas -v -Werror all-warnings".split()
SPECIAL = [0.0, 1e-45, 2.0**-126, 0.5, 1.0, 2.0, 3.0, 89.0, 104.0, 2.0**24, 3.4028235e38, np.inf]

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def comment(name):
    own = (TEXTS / f"{name}.h").read_text(encoding="utf-8")
    lines = re.match(r"(//.*\n)+", own)[0]
    return re.sub(r"\s*\n// ?", " ", lines.replace("// ", "", 1))


def text(name, seen):
    if name in seen:
        return ""
    seen.add(name)
    own = (TEXTS / f"{name}.h").read_text(encoding="utf-8")
    needs = re.match(r"// needs: (.*)\n", own)
    return (
        "".join(text(n, seen) for n in needs[1].split(", ")) * bool(needs) + own if needs else own
    )


def everything():
    seen = set()
    body = "".join(text(n, seen) for n in ("in_double", *NAMES))
    return f'#include "prelude.h"\nnamespace autofn {{\n{body}\n}}\n'


def bound(name):
    """As the comment has it; what only calls the C library has glibc's."""
    said = re.search(r"[Aa]t most ([\d.]+) ULP", comment(name))
    assert said, f"{name}.h states no bound"
    return float(said[1])


def test_quick_functions_in_double(tmp_path):
    """Each to 2^-36 at one float32 in 1009."""
    command = ["g++", *FLAGS, "-march=native", f"-I{TEXTS}"]
    command += [f'-DAUTOFN_TEXT="{TEXTS / "in_double.h"}"']
    command += [str(TEXTS.parents[1] / "benchmarks" / "in_double.cpp"), "-o", str(tmp_path / "run")]
    made = subprocess.run([*command, "-lmvec"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    done = subprocess.run([tmp_path / "run", "1009"], capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == "exp decay times_exp expm1 tanh log sin cos log1p".split()
    assert all(float(error) < -36 for _, error, _ in rows), done.stdout


LIKELIHOOD = """
extern "C" void run(const float* x, const float* k, float* y, float number, long n) {
#pragma omp simd
  for (long i = 0; i < n; ++i) {
    const double r = number, u = x[i], l0 = autofn::log<autofn::kQuick>(r);
    const bool c = r > 0.0;
    const double v0 = u >= 2.0 ? 2.0 : u, v1 = c ? l0 : 0.0, v2 = c ? 1.0 / r : 1.0;
    const double l1 = autofn::log1p<autofn::kQuick>(autofn::quick_times_exp(v2, v0));
    const double near = autofn::log<autofn::kQuick>(r + autofn::exp<autofn::kQuick>(v0));
    y[i] = float((r + k[i]) * (c ? v1 + l1 : near) - r * l0 - u * k[i]);
  }
}
"""


def test_quick_logarithms_of_a_number_leave_a_loop_vectorised(tmp_path):
    """A negative binomial likelihood: with nested conditions it took twelve times as long."""
    (tmp_path / "loop.cpp").write_text(everything() + LIKELIHOOD)
    command = ["g++", *FLAGS, "-O3", "-march=native", "-fno-tree-pre", "-fno-thread-jumps"]
    command += ["-fopt-info-vec-optimized", f"-I{TEXTS}", "-c", str(tmp_path / "loop.cpp")]
    command += ["-o", str(tmp_path / "loop.o")]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert re.search(r"loop\.cpp:\d+:\d+: optimized: loop vectorized", made.stderr), made.stderr


@pytest.fixture(scope="session")
def values(tmp_path_factory):
    """Runs a primitive over arrays, vectorised, beside the C library's function in double."""
    folder = tmp_path_factory.mktemp("primitives")
    source = everything()
    for name in NAMES:
        args = "x[i], w[i]" if name in BINARY else "x[i]"
        double = "(double)x[i], (double)w[i]" if name in BINARY else "(double)x[i]"
        source += f"""
extern "C" void run_{name}(const float* x, const float* w, float* y, double* z, int n) {{
#pragma omp simd
    for (int i = 0; i < n; ++i) y[i] = autofn::{name}({args});
    for (int i = 0; i < n; ++i) z[i] = autofn::{name}({double});
}}
"""
    for name in WAVES:
        source += f"""
extern "C" double one_{name}(double x, double rest) {{ return autofn::{name}(x, rest); }}
"""
    for name in ("sin", "cos"):
        source += f"""
extern "C" float sum_{name}(float x, float rest) {{ return autofn::{name}(x, rest); }}
"""
    (folder / "all.cpp").write_text(source)
    library = folder / "all.so"
    command = ["g++", *FLAGS, "-march=native", "-shared", "-fPIC", f"-I{TEXTS}"]
    command += [str(folder / "all.cpp"), "-o", str(library), "-lmvec", "-lm"]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    loaded = ctypes.CDLL(str(library))

    for name in WAVES:
        getattr(loaded, f"one_{name}").restype = ctypes.c_double

    def run(name, x, w):
        if name.startswith("sum_"):
            function = getattr(loaded, name)
            function.restype = ctypes.c_float
            pairs = zip(x.tolist(), w.tolist(), strict=True)
            return [function(ctypes.c_float(a), ctypes.c_float(b)) for a, b in pairs]
        if name in WAVES and x.dtype == np.float64:
            function = getattr(loaded, f"one_{name}")
            pairs = zip(x.tolist(), w.tolist(), strict=True)
            return [function(ctypes.c_double(a), ctypes.c_double(b)) for a, b in pairs]
        y, z = np.empty_like(x), np.empty(x.size)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, w, y, z)]
        getattr(loaded, f"run_{name}")(*pointers, ctypes.c_int(x.size))
        return y, z

    return run


def arguments(name):
    """Any bits, ordinary numbers, numbers near 1, the special ones and their neighbours."""
    rng = np.random.default_rng(sum(map(ord, name)))
    n = 200_000
    special = np.array(SPECIAL, np.float32)
    with np.errstate(all="ignore"):
        near = np.concatenate(
            [special] + [np.nextafter(special, np.float32(t)) for t in (0, np.inf)]
        )
    special = np.concatenate([near, -near, np.array([np.nan, 0.0], np.float32)])
    drawn = np.concatenate(
        [
            rng.integers(0, 1 << 32, 2 * n, np.uint64).astype(np.uint32).view(np.float32),
            rng.uniform(-12, 12, n).astype(np.float32),
            rng.uniform(-100, 100, n).astype(np.float32),
            (1 + rng.uniform(-0.01, 0.01, n)).astype(np.float32),
            special,
        ]
    )
    if name.endswith("_near"):
        drawn = drawn[~(np.abs(drawn) > 2.0**17)]
    if name not in BINARY:
        return drawn, drawn
    pairs = np.array(np.meshgrid(special, special), np.float32).reshape(2, -1)
    x = np.concatenate([drawn, np.abs(drawn), pairs[0]])
    w = np.concatenate([rng.permutation(drawn), rng.permutation(drawn), pairs[1]])
    return x, w


def errors(y, z):
    """In units of float32's last place at z; wrong signs and NaN against a number: infinite."""
    top = 2.0**128
    wide, ref = np.clip(y.astype(float), -top, top), np.clip(z, -top, top)
    exponent = np.clip(np.frexp(np.where(np.isfinite(ref), ref, 1))[1] - 1, -126, 127)
    wrong = np.abs(wide - ref) * 2.0 ** (23.0 - exponent)
    wrong[np.signbit(y) != np.signbit(z)] = np.inf
    wrong[np.isnan(y) != np.isnan(z)] = np.inf
    wrong[np.isnan(y) & np.isnan(z)] = 0
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_error(name, values):
    x, w = arguments(name)
    with np.errstate(all="ignore"):
        y, z = values(name, x, w)
        wrong = errors(y, z)
    worst = int(np.argmax(wrong))
    at = float(x[worst]), float(w[worst])
    assert wrong[worst] <= bound(name), (name, at, float(y[worst]), float(z[worst]))


@pytest.mark.parametrize("name", WAVES)
def test_near_sines_in_double(name, values):
    """Any size up to 2^17, next to multiples of pi / 2 too, with what an argument lost."""
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [
            rng.uniform(-4, 4, 1000),
            rng.uniform(-(2.0**17), 2.0**17, 1000),
            2.0 ** rng.uniform(-1000, 17, 500),
            rng.integers(-83000, 83000, 1500) * (np.pi / 2),
        ]
    )
    rest = x * rng.uniform(-1, 1, x.size) * 2.0**-54
    function = getattr(mpmath, name.removesuffix("_near"))
    said = re.search(r"double likewise, at most ([\d.]+) ULP", (TEXTS / f"{name}.h").read_text())
    for given in (np.zeros_like(x), rest):
        for a, b, got in zip(x.tolist(), given.tolist(), values(name, x, given), strict=True):
            with mpmath.workprec(1200):
                truth = function(mpmath.mpf(a) + mpmath.mpf(b))
                unit = mpmath.mpf(2) ** (mpmath.mag(truth) - 53)
                # The last digit of what was lost may be lost again.
                assert abs(got - truth) <= float(said[1]) * unit + abs(b) * 2.0**-52, (a, b)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sines_of_large_sums(name, values):
    """Both numbers of any size, their sum next to multiples of pi / 2 too."""
    rng = np.random.default_rng(0)
    sizes = 2.0 ** rng.uniform(17.1, 127, 2000)
    x = (sizes * rng.choice([-1, 1], sizes.size)).astype(np.float32)
    any_size = (2.0 ** rng.uniform(-140, 127, 1000) * rng.choice([-1, 1], 1000)).astype(np.float32)
    with mpmath.workprec(300):
        to_root = [float(-(mpmath.mpf(v) % (mpmath.pi / 2))) for v in x[1000:].tolist()]
    rest = np.concatenate([any_size, np.array(to_root, np.float32)])
    function = getattr(mpmath, name)
    for a, b, got in zip(x.tolist(), rest.tolist(), values(f"sum_{name}", x, rest), strict=True):
        with mpmath.workprec(400):
            truth = function(mpmath.mpf(a) + mpmath.mpf(b))
            unit = mpmath.mpf(2) ** (mpmath.mag(truth) - 24)
            # Each argument in turns is right to the last place of a double.
            assert abs(got - truth) <= unit + 2.0**-50, (a, b)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in BINARY])
def test_reference(name, values):
    """The C library's double against mpmath, or the test above would prove nothing."""
    function = getattr(mpmath, {"normcdf": "ncdf"}.get(name, name.removesuffix("_near")))
    if name == "cbrt":

        def function(a):
            return mpmath.sign(a) * mpmath.cbrt(abs(a))

    x, _ = arguments(name)
    x = np.ascontiguousarray(x[np.abs(x) < 1e3][::20_000])
    with np.errstate(all="ignore"):
        _, z = values(name, x, x)
    for a, value in zip(x.tolist(), z.tolist(), strict=True):
        if np.isfinite(value):
            assert mpmath.almosteq(function(mpmath.mpf(a)), value, 1e-13, 1e-300), (name, a)


def test_no_undefined_behaviour(tmp_path):
    """Bits of negative numbers and NaN wrap around; a signed sum of them would overflow."""
    calls = [f"autofn::{name}({'x, w' if name in BINARY else 'x'})" for name in NAMES]
    for name in ("exp", "expm1", "log", "log1p", "sin", "cos"):
        calls.append(f"autofn::quick_{name}(double(x))")
    calls.append("autofn::quick_times_exp(double(x), double(w))")
    source = (
        everything()
        + f"""
#include <cstdio>
int main() {{
  float a[2];
  volatile float y;
  for (float &x = a[0], &w = a[1]; std::fread(a, sizeof a, 1, stdin) == 1;) {{
    {" ".join(f"y = {call};" for call in calls)}
  }}
}}
"""
    )
    (tmp_path / "all.cpp").write_text(source)
    checked = ["-fsanitize=undefined", "-fno-sanitize-recover=undefined"]
    command = ["g++", *FLAGS, *checked, f"-I{TEXTS}", "all.cpp", "-o", "all", "-lmvec", "-lm"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if "cannot find" in made.stderr:
        pytest.skip("g++ has no sanitizers here")
    assert made.returncode == 0, made.stderr
    x, w = arguments("pow")
    pairs = np.stack([x, w], 1).tobytes()
    done = subprocess.run([tmp_path / "all"], input=pairs, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_needs():
    for name in (p.stem for p in TEXTS.glob("*.h")):
        own = (TEXTS / f"{name}.h").read_text(encoding="utf-8")
        assert own.isascii() and max(map(len, own.splitlines())) <= 100, name
        needs = re.match(r"// needs: (.*)\n", own)
        for other in needs[1].split(", ") if needs else []:
            assert (TEXTS / f"{other}.h").exists(), (name, other)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_nvcc(tmp_path):
    source = everything()
    for name in NAMES:
        for kind in ("float", "double"):
            args = "x[i], y[i]" if name in BINARY else "x[i]"
            source += (
                f"__global__ void {name}_{kind}(const {kind}* x, {kind}* y) {{\n"
                "    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                f"    y[i] = autofn::{name}({args});\n}}\n"
            )
    source += """
template <typename T, autofn::Way kWay> AUTOFN_FN T quick(T x) {
    return T(autofn::exp<autofn::in_double<T>(kWay)>(double(x)));
}
__global__ void quick_exp(const float* x, float* y) { *y = quick<float, autofn::kFull>(*x); }
"""
    (tmp_path / "all.cu").write_text(source)
    made = subprocess.run(
        ["nvcc", *NVCC, f"-I{TEXTS}", "-cubin", "all.cu"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    spills = re.findall(r"(\d+) bytes spill", made.stderr)
    assert len(spills) >= 4 * len(NAMES)
    assert set(spills) == {"0"}, made.stderr
