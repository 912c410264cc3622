"""The library on a CPU, against the bars: writes cpu.json, cpu.md and cpu.png.

    python benchmarks/cpu.py [NAME...] [--section NAME]... [--resume] [--render] [--output DIR]

Sections: base (float32, 2^20 elements, one thread), bfloat16, threads (two), large (2^24), small
(64). The report is written after each formula, and --resume goes on where a run was ended; names
and sections limit what is measured, never what is in the report already. About an hour for all;
most of it is torch.compile's. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import common
from bars import BOTH, bars_table, cpu_bars
from common import HERE, Section

from autofn.bench.records import Setting, write

SECTIONS = {
    "base": Section(Setting(1 << 20), ("forward", BOTH)),
    "bfloat16": Section(Setting(1 << 20, "bfloat16"), (BOTH,)),
    "threads": Section(Setting(1 << 20, threads=2), (BOTH,)),
    "large": Section(Setting(1 << 24), (BOTH,)),
    "small": Section(Setting(64), ("no_grad", "plain", BOTH)),
}

INTRODUCTION = """
Written by `python benchmarks/cpu.py`; the data is cpu.json.

All contenders of a formula run in turn in one loop; a figure is the median of microseconds per
call, beside it half the distance between the quartiles. Eager is the formula in PyTorch
operations, differentiated by autograd: the faster of what its author wrote and the same in
PyTorch's own functions (sigmoid, softplus, ...). Compile is torch.compile of these. Native is
PyTorch's own operator. Rival is the fastest of the three. Limit is the time of copying the bytes
that must move: every input read and every output written once; in backward the incoming and the
saved tensors are read and the gradients written. Every tensor and parameter gets a gradient. A
costly formula has a special function or a division. What a contender frees stays with the process
(`mallopt`): page faults, which glibc causes as the heap happens to lie, are in no figure. In each
round results lie elsewhere: what is the same modulo 4096 takes up to three times as long.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="formulas; all of the library by default")
    parser.add_argument("--section", action="append", choices=list(SECTIONS))
    parser.add_argument("--seconds", type=float, default=2.0, help="per formula, section and mode")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--resume", action="store_true", help="measure what is missing only")
    parser.add_argument("--render", action="store_true", help="measure nothing, write the page")
    parser.add_argument("--output", type=Path, default=HERE, help="folder of what is written")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "cpu.json"
    if not options.render:
        sections = {name: SECTIONS[name] for name in options.section or SECTIONS}
        common.run(
            sections,
            common.library(options.names),
            path,
            compiled=not options.no_compile,
            seconds=options.seconds,
            resume=options.resume,
        )
    report = common.load(path)
    bars = cpu_bars(report)
    # The picture shows what the bars are about; the page has all tables.
    shown = [each for each in report.results if each.setting == Setting(1 << 20)]
    if shown:
        from autofn.bench.plot import plot

        plot(dataclasses.replace(report, results=tuple(shown)), options.output / "cpu.png")
    picture = "cpu.png" if shown else None
    page = common.page("Generated ops on a CPU", INTRODUCTION, report, bars_table(bars), picture)
    write(options.output / "cpu.md", page)
    common.say_bars(bars)


if __name__ == "__main__":
    main()
