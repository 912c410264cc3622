"""The certificate of the library: errors in ULP of every formula, against the bars.

    python benchmarks/certify.py [NAME...] [--level quick|full] [--jobs N] [--output DIR]
                                 [--json FILE]

Writes certificate.md; all findings into FILE. About ten minutes on two cores. `autofn verify --full
FILE` does the same for one formula.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FORMULAS = HERE.parent / "formulas"
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
SHORT = {"value": "value", "gradient": "gradient", "second derivative": "second"}


def measured(task: tuple[str, str]) -> dict[str, Any]:
    """The certificate of one formula of the library, as plain data."""
    from autofn import load
    from autofn.certificate.run import certify
    from autofn.pipeline import generate

    name, level = task
    (formula,) = (f for f in load.load_file(FORMULAS / f"{name}.py") if f.name == name)
    definition = formula.definition
    return certify(generate(definition), definition, level, host=level == "full").to_json()


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
        name: [m for m in data["misses"] if m.startswith("CPU kernel")]
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
        *table(results, "CPU kernel"),
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
        *table(results, "CUDA kernel on host"),
        "",
    ]
    for backend, kind in (("CPU kernel", "CPU"), ("CUDA kernel on host", "CUDA")):
        lines += [f"## What the {kind} kernels miss", ""]
        for name, data in sorted(results.items()):
            misses = [m for m in data["misses"] if m.startswith(f"{backend}, ")]
            lines += [f"- {name}: {miss.removeprefix(f'{backend}, ')}" for miss in misses]
        lines += [""]
    lines.pop()
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--level", default="full", choices=("quick", "full"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=HERE)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    names = given.names or sorted(path.stem for path in FORMULAS.glob("*.py"))
    results: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(given.jobs) as pool:
        for data in pool.map(measured, [(name, given.level) for name in names]):
            results[data["name"]] = data
            print(f"{data['name']}: {len(data['misses'])} misses", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (given.output / "certificate.md").write_text(report(results), encoding="utf-8")


if __name__ == "__main__":
    main()
