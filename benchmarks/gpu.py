"""The library on a GPU, against the bars: writes gpu.json, gpu.md and gpu.png.

    python benchmarks/gpu.py [NAME...] [--section bfloat16|float32]... [--resume] [--render]
                             [--output DIR]

2^26 elements, forward and backward each by themselves and together. Without a GPU it says so and
ends well: there is nothing to measure.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import common
from bars import BOTH, bars_table, gpu_bars
from common import HERE, Section

from autofn.bench.records import Setting, write

SECTIONS = {
    dtype: Section(Setting(1 << 26, dtype, device="cuda"), ("forward", "backward", BOTH))
    for dtype in ("bfloat16", "float32")
}

INTRODUCTION = """
Written by `python benchmarks/gpu.py`; the data is gpu.json.

All contenders of a formula run in turn in one loop, timed by events on the device with its L2
cache cold; a figure is the median of microseconds per call, beside it half the distance between
the quartiles. Limit is the time of copying the bytes that must move, `of copy` the op's bytes per
second over those of that copy. The contenders are those of cpu.md.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="formulas; all of the library by default")
    parser.add_argument("--section", action="append", choices=list(SECTIONS))
    parser.add_argument("--seconds", type=float, default=1.0, help="per formula, section and mode")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--resume", action="store_true", help="measure what is missing only")
    parser.add_argument("--render", action="store_true", help="measure nothing, write the page")
    parser.add_argument("--output", type=Path, default=HERE, help="folder of what is written")
    options = parser.parse_args()
    path = options.output / "gpu.json"
    # All of them: the bars need to know who has parameters. torch is imported after.
    library = common.library()
    parametrised = [
        each.sketch.name
        for each in library
        if any(operand.place != "tensor" for operand in each.sketch.operands)
    ]
    if not options.render:
        import torch

        if not torch.cuda.is_available():
            print("no CUDA GPU here: nothing was measured")
            return
        common.run(
            {name: SECTIONS[name] for name in options.section or SECTIONS},
            [each for each in library if each.sketch.name in options.names or not options.names],
            path,
            compiled=not options.no_compile,
            seconds=options.seconds,
            resume=options.resume,
        )
    report = common.load(path)
    if not report.results:
        print(f"{path.name} has no results yet")
        return
    bars = gpu_bars(report, parametrised)
    from autofn.bench.plot import plot

    plot(report, options.output / "gpu.png")
    title = "Generated ops on a GPU"
    page = common.page(title, INTRODUCTION, report, bars_table(bars), "gpu.png")
    write(options.output / "gpu.md", page)
    common.say_bars(bars)


if __name__ == "__main__":
    main()
