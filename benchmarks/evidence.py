"""What the compiler says of the CUDA kernels of the formula library, without a GPU.

    python benchmarks/evidence.py [NAME...] [--architecture 90]

Writes benchmarks/evidence.md, for the whole library; with names, prints the table of those.
Needs nvcc and nvdisasm (the toolkit's, or that of the Triton package).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from autofn import evidence
from autofn.load import load_file
from autofn.pipeline import generate

ROOT = Path(__file__).resolve().parent.parent
SHOWN = ("bfloat16", "float32")

HEAD = """\
# CUDA kernels without a GPU: what the compiler says

`python benchmarks/evidence.py` compiles every kernel of the formula library for sm_{architecture}
and reads ptxas and the machine code. Per kernel:

- **registers** and **local**: the most of all its loops (flat, strided, tiles) and dtypes; local
  memory in bytes per thread, spills included, should be 0.
- **128-bit**: whether every access of the flat loops is of 128 bits.
- **simple** and **special**: operations per element in the body of the flat loop, slow paths of
  library functions left out where they are calls; of the budget of a kernel that memory bounds
  ({simple} simple and {special} special ones for {bytes} bytes read and written by tensors).
  Everything that is no special function is simple, loads and addresses included. Bold: over it.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--architecture", default="90")
    options = parser.parse_args()
    tools = evidence.tools()
    if isinstance(tools, str):
        sys.exit(tools)
    names = options.names or sorted(path.stem for path in (ROOT / "formulas").glob("*.py"))
    rows: list[str] = []
    notes = Notes()
    for name in names:
        found = measured(tools, name, options.architecture)
        rows += table(found, notes)
        print(f"{name}: {len(found.loops)} functions", file=sys.stderr, flush=True)
    columns = ["kernel", "registers", "local", "128-bit"]
    columns += [f"{what} {dtype}" for dtype in SHOWN for what in ("simple", "special")]
    lines = [f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 1), *rows]
    text = "\n".join(lines) + "\n" + notes.text()
    if options.names:
        print(text)
        return
    head = HEAD.format(
        architecture=options.architecture,
        simple=evidence.SIMPLE,
        special=evidence.SPECIAL,
        bytes=evidence.BYTES,
    )
    (ROOT / "benchmarks" / "evidence.md").write_text(f"{head}\n{text}", encoding="utf-8")


def measured(tools: evidence.Tools, name: str, architecture: str) -> evidence.Evidence:
    (formula,) = load_file(ROOT / "formulas" / f"{name}.py")
    with tempfile.TemporaryDirectory() as folder:
        for path, text in generate(formula.definition).files:
            (Path(folder) / path).write_text(text, encoding="utf-8")
        return evidence.measure(tools, Path(folder), architecture)


class Notes:
    """What is worth saying below the table."""

    def __init__(self) -> None:
        self.kernels = 0
        self.local: list[str] = []
        self.over: dict[str, list[str]] = {dtype: [] for dtype in SHOWN}
        self.forward: list[str] = []

    def text(self) -> str:
        lines = ["", f"{self.kernels} kernels, each for four dtypes.", ""]
        said = [("Local memory", self.local)]
        said.append(("Forward over the budget of a bfloat16 element", self.forward))
        said += [(f"Over the budget in {dtype}, any pass", self.over[dtype]) for dtype in SHOWN]
        for what, kernels in said:
            names = ", ".join(kernels) or "none"
            lines.append(f"- {what} ({len(kernels)}): {names}.")
        return "\n".join(lines) + "\n"


def table(found: evidence.Evidence, notes: Notes) -> list[str]:
    rows: list[str] = []
    for kernel in dict.fromkeys(loop.kernel for loop in found.loops if loop.kernel):
        loops = [loop for loop in found.loops if loop.kernel == kernel]
        bodies = {body.dtype: body for body in found.bodies if body.kernel == kernel}
        local = max(loop.local for loop in loops)
        wide = all(body.wide for body in bodies.values())
        cells = [kernel, str(max(loop.registers for loop in loops))]
        cells += [str(local) if local == 0 else f"**{local}**", "yes" if wide else "**no**"]
        for dtype in SHOWN:
            body = bodies[dtype]
            cells.append(_of(body.simple, body.simple_budget))
            cells.append(_of(body.special, body.special_budget))
            if not body.within:
                notes.over[dtype].append(kernel)
        notes.kernels += 1
        if local:
            notes.local.append(kernel)
        if "_forward" in kernel and not bodies["bfloat16"].within:
            notes.forward.append(kernel)
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _of(used: float, budget: float) -> str:
    text = f"{used:.1f} of {budget:.0f}"
    return text if used <= budget else f"**{text}**"


if __name__ == "__main__":
    main()
