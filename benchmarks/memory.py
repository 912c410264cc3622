"""What autograd keeps between forward and backward, for the whole library: writes memory.md.

python benchmarks/memory.py [NAME...] [--dtype T] [--output DIR]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import common
from common import HERE

from autofn.bench.records import EAGER, GENERATED, Setting, geometric_mean, write
from autofn.bench.tables import markdown, memory_grid

INTRODUCTION = """
Written by `python benchmarks/memory.py`.

Bytes per element of the output that autograd saves in forward for backward, every storage counted
once, learnable parameters not at all (they are kept anyway). Inputs count: they could be freed
otherwise. Every tensor and parameter gets a gradient. Eager is the formula as its author wrote it,
differentiated by autograd; native is PyTorch's own operator.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="formulas; all of the library by default")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--output", type=Path, default=HERE, help="folder of what is written")
    options = parser.parse_args()
    library = common.library(options.names)

    from autofn.bench import subjects
    from autofn.bench.memory import saved_for_backward
    from autofn.bench.run import environment

    setting = Setting(1 << 16, options.dtype)
    memory = [
        saved_for_backward(subjects.load(each.sketch, each.folder), setting) for each in library
    ]
    pairs = [(each.name, each.of(GENERATED), each.of(EAGER)) for each in memory]
    known = [(name, mine, eager) for name, mine, eager in pairs if mine and eager]
    mean = geometric_mean(eager / mine for _, mine, eager in known)
    less = [name for name, mine, eager in pairs if (mine or 0) > (eager or 0)]
    lines = ["# Memory between forward and backward", "", INTRODUCTION.strip(), ""]
    lines += [f"- {key}: {value}" for key, value in environment()]
    lines += ["", f"Geometric mean of eager over generated: {mean:.2f}." if mean else ""]
    lines += [f"Eager keeps less for: {', '.join(less) or 'none'}.", ""]
    text = "\n".join(lines) + "\n" + markdown(memory_grid(memory))
    # A part of the library, or another dtype, is for reading only.
    if options.names or options.dtype != "float32":
        print(text)
        return
    write(options.output / "memory.md", text)
    print("\n".join(lines[-3:]))


if __name__ == "__main__":
    main()
