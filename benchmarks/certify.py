"""The certificate of the library: errors in ULP of every formula, against the bars.

    python benchmarks/certify.py [NAME...] [--gpu] [--level quick|full] [--jobs N] [--output DIR]
                                 [--json FILE]

Writes certificate.md, and of the kernels on a GPU (--gpu) gpu_certificate.md; all findings into
FILE. About ten minutes on two cores. `autofn verify --full FILE` does the same for one formula.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FORMULAS, GENERATED = HERE.parent / "formulas", HERE.parent / "generated"
sys.path.insert(0, str(HERE.parent))

INTRODUCTION = """# Errors of the library in units in the last place

Written by `make certify` (`python benchmarks/certify.py`).

Largest errors away from roots, in ULP of the result's dtype (subnormal spacing at 0), of values and
of gradients by tensors and parameters, at default parameter values. Float32 and float64: against
mpmath at hard points, kinks, all magnitudes and ordinary numbers; float32 also at 2^20 bit patterns
and the 16-bit types at all of theirs (formulas of one tensor) or 2^16 draws, against the float64
form, the worst of those once more against mpmath. "bad": points where the result is not finite and
the truth is. PyTorch's own op stands beside where the formula equals one.
"""

COLUMNS = (
    ("float32", "value"),
    ("float32", "gradient"),
    ("float64", "value"),
    ("float64", "gradient"),
    ("bfloat16", "value"),
    ("bfloat16", "gradient"),
    ("float16", "value"),
    ("float16", "gradient"),
    ("float32", "second derivative"),
)
CPU, HOST, GPU = "CPU kernel", "CUDA kernel on host", "CUDA kernel on GPU"
SHORT = {"value": "value", "gradient": "gradient", "second derivative": "second"}


def measured(task: tuple[str, str, Sequence[str]]) -> dict[str, Any]:
    """The certificate of one formula of the library as it is committed, as plain data."""
    from autofn import load
    from autofn.certificate.run import certify
    from autofn.package import Package

    name, level, backends = task
    (formula,) = (f for f in load.load_file(FORMULAS / f"{name}.py") if f.name == name)
    folder = GENERATED / name
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    files = tuple((path, (folder / path).read_text(encoding="utf-8")) for path in listed)
    package = Package(name, f"{name}.py", files)
    return certify(package, formula.definition, level, backends=backends).to_json()


def largest(data: dict[str, Any], backend: str, dtype: str, quantity: str) -> str:
    """A cell: the largest error of all entries, in bold past its bar."""
    found = [
        each
        for each in data["findings"]
        if (each["backend"], each["dtype"], each["quantity"]) == (backend, dtype, quantity)
    ]
    if not found:
        return ""
    bad = sum(each["bad"] for each in found)
    worst = max(each["max_ulp"] for each in found)
    text = f"{bad} bad" if bad else f"{worst:.2f}" if worst < 1000 else f"{worst:.0e}"
    return text if all(each["ok"] for each in found) else f"**{text}**"


def table(results: dict[str, dict[str, Any]], backend: str) -> list[str]:
    heads = [f"{dtype} {SHORT[quantity]}" for dtype, quantity in COLUMNS]
    lines = [f"| formula | {' | '.join(heads)} |", "|---|" + "---:|" * len(COLUMNS)]
    for name, data in sorted(results.items()):
        cells = [largest(data, backend, dtype, quantity) for dtype, quantity in COLUMNS]
        if any(cells):
            label = name
            if backend == "PyTorch's own":
                label = f"{name} ({', '.join(data['equals'])})"
            lines.append(f"| {label} | {' | '.join(cells)} |")
    return lines


def report(results: dict[str, dict[str, Any]]) -> str:
    """certificate.md"""
    kernels = {
        name: [m for m in data["misses"] if m.startswith(CPU)]
        for name, data in sorted(results.items())
    }
    clean = sum(not misses for misses in kernels.values())
    lines = [
        INTRODUCTION,
        f"{date.today()}, {platform.machine()}, {len(results)} formulas; the CPU kernels of "
        f"{clean} meet every bar: 4 ULP for values and 8 for gradients in float32, 8 and 8 in "
        "float64, 0.51 in the 16-bit types, 64 for second derivatives; nothing bad; the right "
        "limits.",
        "",
        "## CPU kernels",
        "",
        *table(results, CPU),
        "",
        "## PyTorch's own ops",
        "",
        *table(results, "PyTorch's own"),
        "",
        "## The PyTorch path",
        "",
        "PyTorch's own functions composed: what runs without a compiler, and under torch.compile.",
        "",
        *table(results, "PyTorch path"),
        "",
        "## CUDA kernels, on the host",
        "",
        "Their own text with the C library's functions in place of CUDA's, exact where the GPU's",
        "approximations of 2^x, log2 and 1/x are wrong by 2^-22 (tests/test_ops.py has those).",
        "",
        *table(results, HOST),
        "",
    ]
    for backend, kind in ((CPU, "CPU"), (HOST, "CUDA")):
        lines += [f"## What the {kind} kernels miss", "", *missed(results, backend), ""]
    lines.pop()
    return "\n".join(lines) + "\n"


def missed(results: dict[str, dict[str, Any]], backend: str) -> Iterator[str]:
    """What misses a bar, an item of a list each."""
    for name, data in sorted(results.items()):
        for miss in data["misses"]:
            if miss.startswith(f"{backend}, "):
                yield f"- {name}: {miss.removeprefix(f'{backend}, ')}"


def gpu_report(results: dict[str, dict[str, Any]]) -> str:
    """gpu_certificate.md"""
    import torch

    misses = list(missed(results, GPU))
    clean = len(results) - len({miss.partition(":")[0] for miss in misses})
    lines = [
        INTRODUCTION.replace("library in", "library on a GPU in").replace(
            "`make certify` (`python benchmarks/certify.py`)",
            "`python benchmarks/certify.py --gpu`",
        ),
        f"{date.today()}, {torch.cuda.get_device_name()}, PyTorch {torch.__version__}, "
        f"{len(results)} formulas; the CUDA kernels of {clean} meet every bar.",
        "",
        *table(results, GPU),
        "",
        "## What misses a bar",
        "",
        *misses,
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--gpu", action="store_true", help="CUDA kernels on a GPU alone")
    parser.add_argument("--level", default="full", choices=("quick", "full"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=HERE)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    names = given.names or sorted(path.stem for path in FORMULAS.glob("*.py"))
    host = [HOST] if given.level == "full" else []
    backends = [GPU] if given.gpu else ["PyTorch path", CPU, *host]
    results: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(given.jobs) as pool:
        for data in pool.map(measured, [(name, given.level, backends) for name in names]):
            results[data["name"]] = data
            if given.json is not None:  # as far as it has come
                given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            print(f"{data['name']}: {len(data['misses'])} misses", flush=True)
    page = ("gpu_certificate.md", gpu_report) if given.gpu else ("certificate.md", report)
    (given.output / page[0]).write_text(page[1](results), encoding="utf-8")


if __name__ == "__main__":
    main()
