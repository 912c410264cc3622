"""Under torch.compile on one CPU thread: the formula, the generated op, and the op on its kernels.

`python benchmarks/compiled.py` measures and writes compiled.md; it takes some ten minutes, most of
them in Inductor's C++ compiler.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from common import HERE, library

from autofn.bench.records import Mode, Setting
from autofn.bench.sketch import Drawn

FORMULAS = ("mish", "gelu_tanh", "softplus", "swish", "dyt", "swiglu")
SETTING = Setting(1 << 20, "float32")
MODES: tuple[Mode, ...] = ("forward", "forward+backward")
SECONDS = 6.0
"""For all rounds of a formula in a mode."""

TEXT = """\
float32, 2^20 elements, one thread; microseconds, the median of interleaved rounds. All are under
`torch.compile(fullgraph=True)`.

- formula: PyTorch operations, the faster of the formula as written and in a stable form, and
  PyTorch's own operator where there is one
- fused: the generated op, as it compiles by default
- kernels: the generated op with `AUTOFN_COMPILE=kernels`
- block: `op(x + 1) * 2`, where a fused op saves two passes over memory
"""


def functions(drawn: Drawn) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The rivals of a formula, each a function of its operands."""
    from autofn.bench import subjects
    from autofn.package import imported

    sketch = drawn.sketch
    for each in (*subjects.eager(sketch), *subjects.native(sketch)):
        yield "formula", each.function
    for label, calls_kernels in (("fused", False), ("kernels", True)):
        module = imported(Path(drawn.folder), f"autofn_{label}")
        sys.modules[f"{module.__name__}._runtime"].IN_GRAPHS = calls_kernels  # type: ignore[attr-defined]
        yield label, getattr(module, sketch.function)


def block(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *rest: function(x + 1, *rest) * 2


def measure(drawn: Drawn) -> list[str]:
    """The rows of a formula, alone and in a block, in each mode."""
    import torch

    from autofn.bench import subjects
    from autofn.bench.measure import CpuClock, interleaved, quick_look

    data, rows = subjects.data_for(drawn.sketch, SETTING), []
    for place, around in (("alone", lambda f: f), ("block", block)):
        contenders = {
            f"{label} {number}": subjects.Contender(
                label, "", torch.compile(around(function), fullgraph=True, dynamic=False)
            )
            for number, (label, function) in enumerate(functions(drawn))
        }
        for mode in MODES:
            samples = {
                name: CpuClock().sample(subjects.statement(each, drawn.sketch, data, mode))
                for name, each in contenders.items()
            }
            looks = {name: quick_look(sample) for name, sample in samples.items()}
            series = interleaved(samples, looks, SECONDS)
            times: dict[str, float] = {}
            for name, found in series.items():
                label, median = name.split()[0], 1e6 * statistics.median(found.seconds)
                times[label] = min(median, times.get(label, median))
            rival, fused, kernels = (times[label] for label in ("formula", "fused", "kernels"))
            rows.append(
                f"| {drawn.sketch.name} | {place} | {mode} | {rival:.0f} | {fused:.0f} "
                f"| {kernels:.0f} | {rival / fused:.2f} | {rival / kernels:.2f} |"
            )
            print(rows[-1], flush=True)
        torch._dynamo.reset()
    return rows


def main() -> None:
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    formulas = library(sys.argv[1:] or FORMULAS)
    import torch

    from autofn.bench.run import environment

    torch.set_num_threads(1)
    head = "| | | | formula | fused | kernels | formula/fused | formula/kernels |"
    rows = [row for each in formulas for row in measure(each)]
    lines = ["# Generated ops under torch.compile, CPU", "", TEXT]
    lines += [f"- {key}: {value}" for key, value in environment()]
    lines += ["", head, "|---|---|---|" + "--:|" * 5, *rows]
    (HERE / "compiled.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
