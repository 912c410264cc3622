"""Under torch.compile on one CPU thread: the formula, the generated op, and the op on its kernels.

`python benchmarks/compiled.py [FORMULA...]` measures all formulas with a special function or a
division, or those named, and writes compiled.md; it takes half an hour, most of it in Inductor's
C++ compiler. Rows are kept in build/compiled.json, so that it goes on where it was stopped;
--fresh measures anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from common import HERE, ROOT, library

from autofn.bench.records import Mode, Setting
from autofn.bench.sketch import Drawn

BOTH = (
    "mish", "gelu", "gelu_tanh", "softplus", "swish", "sigmoid", "tanh", "dyt", "swiglu",
)  # fmt: skip
"""Formulas of which the forward pass is measured too."""
Row = tuple[str, str, float | None, float, float, float]
SETTING = Setting(1 << 20, "float32")
MODES: tuple[Mode, ...] = ("forward", "forward+backward")
SECONDS = 3.0
"""For all rounds of a formula in a mode."""

KEPT = ROOT / "build" / "compiled.json"
HEAD = (
    "| | | written | best | fused | kernels | written/fused | best/fused | best/kernels |",
    "|---|---|" + "--:|" * 7,
)

TEXT = """\
float32, 2^20 elements, one thread; microseconds of CPU time, which a busy machine disturbs least,
the median of interleaved rounds, in which results lie now here, now there. All are under
`torch.compile(fullgraph=True)`.

- written: the formula as its author wrote it, in PyTorch operations; empty where that is best too
- best: PyTorch's own operator where there is one, else the formula in a stable form
- fused: the generated op, as it compiles by default
- kernels: the generated op with `AUTOFN_COMPILE=kernels`

What costs more than in the rival is the price of digits. As written, log(1 + exp(x)) in softplus,
serf, focal and logsigmoid overflows, which costs nothing, and log_cosh, bce_with_logits and
tanh_exp lose their digits or overflow likewise. gelu: F.gelu is Inductor's erf, with an absolute
error of 1e-7, and is 0 below -5.5; the generated op is a quotient of polynomials beside an
exponential.
sigmoid, swish: the rivals' derivatives have 1 - sigmoid(x), exactly 0 from 17 on; the
generated ops select sigmoid(-x). elu, celu, selu, xielu: Inductor's expm1 is exp(x) - 1, which is 0
near 0; the generated ops have a polynomial there. xielu also takes the exponential of its
derivative anew.
"""


def functions(drawn: Drawn) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The rivals of a formula, each a function of its operands."""
    from autofn.bench import subjects
    from autofn.package import imported

    sketch = drawn.sketch
    rivals = [*subjects.eager(sketch), *subjects.native(sketch)]
    if len(rivals) > 1:
        yield "written", rivals[0].function
    yield "best", rivals[-1].function
    for label, calls_kernels in (("fused", False), ("kernels", True)):
        module = imported(Path(drawn.folder), f"autofn_{label}")
        sys.modules[f"{module.__name__}._runtime"].IN_GRAPHS = calls_kernels  # type: ignore[attr-defined]
        yield label, getattr(module, sketch.function)


def measure(drawn: Drawn) -> list[Row]:
    """The rows of a formula, one in each mode."""
    import torch

    from autofn.bench import subjects
    from autofn.bench.measure import Sample, Statement, ballast, interleaved, quick_look

    def sample(each: Statement) -> Sample:
        setup = f"{each.setup}\nheld = ballast()\n{each.text}"
        names = {**each.names, "ballast": lambda: ballast(SETTING.size)}
        return timeit.Timer(each.text, setup, time.process_time, names).timeit

    torch._dynamo.reset()  # operators are wrapped by one code object, compiled eight times at most
    data, rows = subjects.data_for(drawn.sketch, SETTING), []
    contenders = {
        label: subjects.Contender(label, "", torch.compile(function, fullgraph=True, dynamic=False))
        for label, function in functions(drawn)
    }
    for mode in MODES if drawn.sketch.name in BOTH else MODES[1:]:
        samples = {
            label: sample(subjects.statement(each, drawn.sketch, data, mode))
            for label, each in contenders.items()
        }
        looks = {label: quick_look(each) for label, each in samples.items()}
        series = interleaved(samples, looks, SECONDS)
        times = {label: 1e6 * statistics.median(found.seconds) for label, found in series.items()}
        three = (times["best"], times["fused"], times["kernels"])
        rows.append((drawn.sketch.name, mode, times.get("written"), *three))
        print(line(rows[-1]), flush=True)
    return rows


def line(row: Row) -> str:
    name, mode, written, best, fused, kernels = row
    first = "" if written is None else f"{written:.0f}"
    ratio = "" if written is None else f"{written / fused:.2f}"
    ratios = f"{ratio} | {best / fused:.2f} | {best / kernels:.2f}"
    return f"| {name} | {mode} | {first} | {best:.0f} | {fused:.0f} | {kernels:.0f} | {ratios} |"


def key(drawn: Drawn) -> str:
    """Rows are kept for as long as the package is the same."""
    files = sorted(Path(drawn.folder).glob("*.*"))
    return hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()


def main() -> None:
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    names = [each for each in sys.argv[1:] if each != "--fresh"]
    formulas = [each for each in library() if each.sketch.costly]
    formulas = [each for each in formulas if not each.sketch.forms[-1].own_gradient]
    import torch

    from autofn.bench.measure import keep_freed_memory
    from autofn.bench.run import environment

    torch.set_num_threads(1)
    keeps = keep_freed_memory()
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    for each in formulas:
        wanted = not names or each.sketch.name in names
        old = kept.get(each.sketch.name, {}).get("key") == key(each) and "--fresh" not in sys.argv
        if wanted and not old:
            kept[each.sketch.name] = {"key": key(each), "rows": measure(each)}
            KEPT.parent.mkdir(exist_ok=True)
            KEPT.write_text(json.dumps(kept), encoding="utf-8")
    rows = [row for each in formulas for row in kept.get(each.sketch.name, {}).get("rows", [])]
    both = [row for row in rows if row[1] == MODES[1]]
    against = {"written": [(row[2] or row[3]) / row[4] for row in both],
               "best": [row[3] / row[4] for row in both]}  # fmt: skip
    lines = ["# Generated ops under torch.compile, CPU", "", TEXT]
    lines += [f"- {label}: {value}" for label, value in environment(kept=keeps)]
    lines += [
        "",
        *(f"Forward and backward, fused is as fast as {name} (within 5 %) or faster in "
          f"{sum(each > 0.95 for each in ratios)} of {len(ratios)}; the median of {name}/fused is "
          f"{statistics.median(ratios):.2f}." for name, ratios in against.items()),
        "", *HEAD, *map(line, rows),
    ]  # fmt: skip
    (HERE / "compiled.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
