"""Errors, bits and times of the float32 primitives in templates/primitives: primitives.md.

    python benchmarks/primitives.py [--quick] [NAME...]

Needs g++ and an AVX-512 CPU. Every float32 as the argument, or 2 * 10^8 pairs: the largest error,
against the same function in double, and checksums of all the values as AVX-512 and AVX2 code, of
one in 16 as scalar code; a minute each. With --quick one pattern in 1009 and fewer pairs, and
primitives.md is left alone. With names only their rows are replaced; in_double stands for the quick
functions in double.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TEXTS = HERE.parent / "templates" / "primitives"
FLAGS = "-std=c++17 -O3 -fopenmp-simd -fno-math-errno -fno-trapping-math -ffp-contract=off".split()
BUILDS = {
    "AVX-512": ["-march=native", "-mprefer-vector-width=512"],
    "AVX2": ["-mavx2", "-mfma"],
    "scalar": [
        "-mavx2",
        "-mfma",
        "-fno-openmp-simd",
        "-fno-tree-vectorize",
        "-fno-tree-slp-vectorize",
    ],
}
# The interval, or two, that timed arguments are drawn from.
RANGES = {
    "exp": (-20, 20),
    "log": (0.001, 1000),
    "log1p": (-0.9, 10),
    "expm1": (-5, 5),
    "tanh": (-5, 5),
    "erf": (-3, 3),
    "erfc": (-3, 8),
    "pow": (0.1, 10, -5, 5),
    "acosh": (1, 20),
    "acos": (-1, 1),
    "asin": (-1, 1),
    "atanh": (-1, 1),
}
# Where another range than all of float32 is meant.
LIMITS = {"sin_near": 2.0**17, "cos_near": 2.0**17, "tan_near": 2.0**17}
BINARY = {"pow", "atan2"}


def text(name, seen=None):
    """The primitive's text behind those that it needs."""
    seen = [] if seen is None else seen
    if name in seen:
        return ""
    seen.append(name)
    own = (TEXTS / f"{name}.h").read_text()
    needs = re.match(r"// needs: (.*)\n", own)
    before = "".join(text(n, seen) for n in needs[1].split(", ")) if needs else ""
    return before + own


def names():
    return sorted(
        p.stem
        for p in TEXTS.glob("*.h")
        if re.search(rf"AUTOFN_FN double {p.stem}\(", p.read_text())
    )


def library_of(name):
    """The C library's function, where the prelude declares one."""
    name = name.removesuffix("_near")
    return name if f"AUTOFN_SIMD float {name}f(" in (TEXTS / "prelude.h").read_text() else None


def build(name, kind, folder):
    header, binary = folder / f"{name}.h", folder / f"{name}-{kind}"
    header.write_text(text(name))
    library = library_of(name)
    subprocess.run(
        ["g++", *FLAGS, *BUILDS[kind], f"-I{TEXTS}", f'-DAUTOFN_TEXT="{header}"']
        + [f"-DAUTOFN_NAME={name}"]
        + ([f"-DAUTOFN_LIBRARY={library}"] if library else [])
        + (["-DAUTOFN_BINARY"] if name in BINARY else [])
        + [str(HERE / "primitives.cpp"), "-o", str(binary), "-lmvec"],
        check=True,
    )
    return binary


def output(binary, *args):
    done = subprocess.run([str(binary), *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{binary.name} {args}: {done.stdout}{done.stderr}")
    return done.stdout.split()


def measure(name, quick, folder):
    """A row of the table."""
    if name in BINARY:
        walk = [1, (4 << 20) if quick else 200_000_000, 1]
    else:
        walk = [0, 1 << 32, 1009 if quick else 1]
    # The library's own values differ with the build.
    in_float = (TEXTS / f"{name}.h").read_text().split("AUTOFN_FN double")[0]
    owned = f"return std::{name}(" not in in_float
    binaries = {k: build(name, k, folder) for k in (BUILDS if owned else ["AVX-512"])}
    limit = LIMITS.get(name, "inf")
    ulp, *where = output(binaries["AVX-512"], "ulp", *walk, limit)
    sampled = walk if name in BINARY else [0, 1 << 32, 1009 if quick else 13]
    libm = "-"
    if library_of(name):
        libm, *_ = output(binaries["AVX-512"], "library", *sampled, limit)
    same = "libmvec"
    if owned:
        # The scalar code is slow: one in 16.
        thin = sampled if name in BINARY else [0, 1 << 32, 1009 if quick else 16]
        wide, narrow = binaries["AVX-512"], binaries["AVX2"]
        pairs = [(wide, narrow, walk), (wide, binaries["scalar"], thin)]
        equal = all(output(a, "sum", *w, limit) == output(b, "sum", *w, limit) for a, b, w in pairs)
        same = "equal" if equal else "DIFFERENT"
    span = RANGES.get(name, (-10, 10))
    times = output(binaries["AVX-512"], "time", *span[:2], *(span[2:] or (0, 1)))
    if libm == "-":
        times[1] = times[4] = "-"
    at = ", ".join(str(float.fromhex(v)) for v in where[: 1 + (name in BINARY)])
    return [f"`{name}`", ulp, at, libm, same, times[3], times[4], times[0], times[1]], times


QUICK = ["", "error", "at"]
HEAD = ["", "max ULP", "at", "libmvec", "bits", "us", "libmvec", "us", "libmvec"]

PAGE = """# The float32 primitives of CPU kernels

`python benchmarks/primitives.py`, 2026-11-21, Xeon (Sapphire Rapids class), g++ 12.2, glibc 2.36.

The texts in `templates/primitives`, built with `{flags}`.

- max ULP: the largest error over every float32 (`*_near`: up to 2^17 in magnitude; `pow` and
  `atan2`: 2 * 10^8 random and special pairs), against the function in double, in units of the last
  place of float32 at the exact value, and the argument that has it. Next to it libmvec's, over one
  float32 in 13.
- bits: whether AVX-512 and AVX2 builds give the same value for every float32, and scalar builds for
  one in 16. `libmvec`: the primitive is the C library's.
- us: 2^20 elements in one thread, first from L1 (4096 elements, 256 times; a copy: {copy_l1} us),
  then from memory (a copy: {copy} us). The least of 50 runs.
- `cbrt` was measured on 2026-11-25 on an AMD EPYC without AVX-512, where copies take 86 and 185 us:
  its times compare with libmvec's beside them only, and two of the three builds were the same.

{table}

## Quick functions in double

`templates/primitives/in_double.h`, for what float32 computes in double: the largest relative error
over every float32, against the C library's function in double.

{quick}
"""


def in_double(quick, folder):
    """Rows of the quick functions in double."""
    header, binary = folder / "in_double.h", folder / "in_double"
    header.write_text(text("in_double"))
    command = ["g++", *FLAGS, *BUILDS["AVX-512"], f"-I{TEXTS}", f'-DAUTOFN_TEXT="{header}"']
    command += [str(HERE / "in_double.cpp"), "-o", str(binary), "-lmvec"]
    subprocess.run(command, check=True)
    words = output(binary, 1009 if quick else 1)
    return [
        [f"`quick_{name}`", f"2^{error}", str(float.fromhex(at))]
        for name, error, at in zip(words[::3], words[1::3], words[2::3], strict=True)
    ]


def known():
    """The rows of primitives.md by name."""
    page = HERE / "primitives.md"
    lines = page.read_text().splitlines() if page.exists() else []
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    return {row[0].strip("`"): row for row in rows}


def copying():
    """The microseconds of a copy, from L1 and from memory, of primitives.md."""
    page = HERE / "primitives.md"
    found = re.findall(r"a copy: (\d+) us", page.read_text()) if page.exists() else []
    return found or ["-", "-"]


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write(rows, copies):
    page = PAGE.format(
        table=table(HEAD, [rows[name] for name in names() if name in rows]),
        quick=table(QUICK, [row for name, row in rows.items() if name.startswith("quick_")]),
        flags=" ".join(FLAGS),
        copy_l1=copies[0],
        copy=copies[1],
    )
    (HERE / "primitives.md").write_text(page)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names or [*names(), "in_double"]:
            if name == "in_double":
                rows = in_double(options.quick, Path(folder))
                print("\n".join("  ".join(row) for row in rows), flush=True)
                if not options.quick:
                    write({**known(), **{row[0].strip("`"): row for row in rows}}, copying())
                continue
            row, times = measure(name, options.quick, Path(folder))
            print("  ".join(row), flush=True)
            if not options.quick:
                write({**known(), name: row}, [times[5], times[2]])


if __name__ == "__main__":
    main()
