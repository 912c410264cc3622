"""Under torch.compile on one CPU thread: the formula, the generated op, and the op on its kernels.

`python benchmarks/compiled.py` measures and writes compiled.md; it takes some minutes, most of them
in Inductor's C++ compiler.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from common import HERE, library

from autofn.bench.records import Mode, Setting
from autofn.bench.sketch import Drawn

FORMULAS = (
    "mish", "gelu", "gelu_tanh", "softplus", "swish", "sigmoid", "tanh", "dyt", "swiglu",
)  # fmt: skip
SETTING = Setting(1 << 20, "float32")
MODES: tuple[Mode, ...] = ("forward", "forward+backward")
SECONDS = 6.0
"""For all rounds of a formula in a mode."""

TEXT = """\
float32, 2^20 elements, one thread; microseconds of CPU time, which a busy machine disturbs least,
the median of interleaved rounds. All are under `torch.compile(fullgraph=True)`.

- formula: PyTorch's own operator where there is one, else the formula in a stable form
- fused: the generated op, as it compiles by default
- kernels: the generated op with `AUTOFN_COMPILE=kernels`

gelu: F.gelu is Inductor's erf, with an absolute error of 1e-7, and is 0 below -5.5; the generated
op has its digits there too. sigmoid, tanh, dyt: autograd takes derivatives from the saved output,
exactly 0 from 9 (tanh) or 17 (sigmoid) on; the generated op computes them from the input.
"""


def functions(drawn: Drawn) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The rivals of a formula, each a function of its operands."""
    from autofn.bench import subjects
    from autofn.package import imported

    sketch = drawn.sketch
    yield "formula", [*subjects.eager(sketch), *subjects.native(sketch)][-1].function
    for label, calls_kernels in (("fused", False), ("kernels", True)):
        module = imported(Path(drawn.folder), f"autofn_{label}")
        sys.modules[f"{module.__name__}._runtime"].IN_GRAPHS = calls_kernels  # type: ignore[attr-defined]
        yield label, getattr(module, sketch.function)


def measure(drawn: Drawn) -> list[str]:
    """The rows of a formula, one in each mode."""
    import torch

    from autofn.bench import subjects
    from autofn.bench.measure import Sample, Statement, interleaved, quick_look

    def sample(each: Statement) -> Sample:
        setup = f"{each.setup}\n{each.text}"
        return timeit.Timer(each.text, setup, time.process_time, dict(each.names)).timeit

    torch._dynamo.reset()  # operators are wrapped by one code object, compiled eight times at most
    data, rows = subjects.data_for(drawn.sketch, SETTING), []
    contenders = {
        label: subjects.Contender(label, "", torch.compile(function, fullgraph=True, dynamic=False))
        for label, function in functions(drawn)
    }
    for mode in MODES:
        samples = {
            label: sample(subjects.statement(each, drawn.sketch, data, mode))
            for label, each in contenders.items()
        }
        looks = {label: quick_look(each) for label, each in samples.items()}
        series = interleaved(samples, looks, SECONDS)
        times = {label: 1e6 * statistics.median(found.seconds) for label, found in series.items()}
        rival, fused, kernels = (times[label] for label in ("formula", "fused", "kernels"))
        rows.append(
            f"| {drawn.sketch.name} | {mode} | {rival:.0f} | {fused:.0f} | {kernels:.0f} "
            f"| {rival / fused:.2f} | {rival / kernels:.2f} |"
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    formulas = library(sys.argv[1:] or FORMULAS)
    import torch

    from autofn.bench.run import environment

    torch.set_num_threads(1)
    head = "| | | formula | fused | kernels | formula/fused | formula/kernels |"
    rows = [row for each in formulas for row in measure(each)]
    lines = ["# Generated ops under torch.compile, CPU", "", TEXT]
    lines += [f"- {key}: {value}" for key, value in environment()]
    lines += ["", head, "|---|---|" + "--:|" * 5, *rows]
    (HERE / "compiled.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
