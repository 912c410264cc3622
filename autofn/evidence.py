"""What the compiler says of a package's CUDA kernels, without a GPU: resources and operations.

Needs nvcc, and nvdisasm of the toolkit or of the Triton package.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autofn.backends.cuda import STORAGE
from autofn.package import MANIFEST
from autofn.verify import nvcc

SIMPLE, SPECIAL, BYTES = 30, 4, 4
"""What a memory-bound kernel may spend on an element for that many bytes read and written.

A 16-bit element in and one out on an H100: 132 multiprocessors at 1.75 GHz issue 128 simple and 16
special-function operations a clock, or 35 and 4.4 per element at 3.35 TB/s. An H200 has 4.8 TB/s,
and less room by 30 %.
"""

LOOPS = ("flat", "strided", "tile")

_SIZE = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
_COMPUTE = {"float64": 8, "float32": 4, "bfloat16": 4, "float16": 4}


@dataclass(frozen=True)
class Loop:
    """One kernel function as compiled: a loop of loops.cuh for one kernel and dtype.

    `local` is in bytes of stack and spills per thread.
    """

    kernel: str
    loop: str
    dtype: str
    registers: int
    local: int


@dataclass(frozen=True)
class Body:
    """The body of a kernel's flat loop: operations per element, without calls of slow paths.

    `wide` is whether every access of a tensor is of 128 bits. `simple_budget` and `special_budget`
    are what a memory-bound kernel may spend; tensors count, parameters come from a cache.
    """

    kernel: str
    dtype: str
    wide: bool
    simple: float
    special: float
    simple_budget: float
    special_budget: float

    @property
    def within(self) -> bool:
        return self.simple <= self.simple_budget and self.special <= self.special_budget


@dataclass(frozen=True)
class Evidence:
    loops: tuple[Loop, ...]
    bodies: tuple[Body, ...]


@dataclass(frozen=True)
class Tools:
    nvcc: str
    nvdisasm: str


def tools() -> Tools | str:
    """The compiler and the disassembler, or which one is missing."""
    compiler = nvcc.find()
    if compiler is None:
        return "nvcc not found"
    disassembler = _disassembler(compiler)
    return Tools(compiler, disassembler) if disassembler else "nvdisasm not found"


def _disassembler(compiler: str) -> str | None:
    folders = [os.path.dirname(os.path.realpath(compiler))]
    if home := os.environ.get("CUDA_HOME"):
        folders.append(f"{home}/bin")
    spec = importlib.util.find_spec("triton")
    if spec is not None and spec.origin is not None:
        folders.append(f"{os.path.dirname(spec.origin)}/backends/nvidia/bin")
    return shutil.which("nvdisasm") or next(
        filter(None, (shutil.which(f"{folder}/nvdisasm") for folder in folders)), None
    )


def measure(found: Tools, package: Path, architecture: str = "90") -> Evidence:
    """Compiles the kernels of a generated package, and reads what came out.

    Raises RuntimeError with the tool's output where one fails.
    """
    described = json.loads((package / MANIFEST).read_text(encoding="utf-8"))["kernels"]
    with tempfile.TemporaryDirectory(prefix="autofn_evidence_") as folder:
        cubin = f"{folder}/kernels.cubin"
        target = f"-gencode=arch=compute_{architecture},code=sm_{architecture}"
        source = str(package / "kernels.cu")
        said = _output([found.nvcc, *nvcc.FLAGS, target, "-cubin", "-o", cubin, source])
        text = _output([found.nvdisasm, "-c", cubin])
    code = dict(_functions(text))
    loops: list[Loop] = []
    bodies: list[Body] = []
    for mangled, registers, local in _resources(said):
        for kernel in described:
            for dtype, storage in STORAGE.items():
                loop = _loop_of(mangled, kernel["function"], storage)
                if loop:
                    loops.append(Loop(kernel["function"], loop, dtype, registers, local))
                if loop == "flat":
                    bodies.append(_body(kernel, dtype, code[mangled]))
        if "fold_kernel" in mangled:
            dtype = "float64" if "IdE" in mangled else "float32"
            loops.append(Loop("", "fold", dtype, registers, local))
    return Evidence(tuple(loops), tuple(bodies))


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=nvcc.TIMEOUT)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


# --- what ptxas says ---------------------------------------------------------------------------


def _resources(said: str) -> Iterator[tuple[str, int, int]]:
    """Per function its mangled name, registers, and bytes of stack and spills."""
    for part in said.split("Compiling entry function '")[1:]:
        registers = re.search(r"Used (\d+) registers", part)
        stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores", part)
        assert registers is not None
        assert stack is not None
        yield (
            part.partition("'")[0],
            int(registers.group(1)),
            max(int(stack.group(1)), int(stack.group(2))),
        )


def _loop_of(mangled: str, function: str, storage: str) -> str:
    """Which loop of which kernel a mangled name is; empty if it is not of this one."""
    name = f"{function}_op"
    # <length><name>I<storage>E: builtin types are a letter, others <length><name>.
    letter = {"double": "d", "float": "f"}.get(storage, f"{len(storage)}{storage}")
    of_kernel = f"{len(name)}{name}I{letter}E" in mangled
    found = [loop for loop in LOOPS if f"{loop}_kernelI" in mangled]
    return found[0] if of_kernel and found else ""


# --- what the disassembler says ----------------------------------------------------------------


@dataclass(frozen=True)
class _Line:
    """A label, or an instruction with its operands."""

    label: str
    operation: str
    rest: str


def _functions(text: str) -> Iterator[tuple[str, list[_Line]]]:
    """Each function's name and lines."""
    for part in re.split(r"^\s*\.section\s+\.text\.", text, flags=re.MULTILINE)[1:]:
        name = re.split(r"[,\s]", part, maxsplit=1)[0].strip('"')
        lines: list[_Line] = []
        for line in part.splitlines():
            if found := re.match(r"(\.L_\w+):", line):
                lines.append(_Line(found.group(1), "", ""))
            elif found := re.match(r"\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([\w.]+)(.*);", line):
                lines.append(_Line("", found.group(1), found.group(2)))
        yield name, lines


def _body(kernel: dict[str, list[list[str]]], dtype: str, lines: list[_Line]) -> Body:
    name = str(kernel["function"])
    size, compute = _SIZE[dtype], _COMPUTE[dtype]
    operations = Counter(_without_calls(_packs(lines)))
    # Tables of library functions are read as constants, the operands of a kernel never are.
    memory = ("LDG", "STG", "LD.", "ST.")
    accesses = {
        op: n
        for op, n in operations.items()
        if op.startswith(memory) and not op.endswith("CONSTANT")
    }
    stores = sum(n for op, n in accesses.items() if op.startswith("STG"))
    loads = sum(n for op, n in accesses.items() if op.startswith("LDG") and "128" in op)
    narrow = [op for op in accesses if "128" not in op]
    roles = [role for _, role in kernel["inputs"]]
    tensors = roles.count("tensor") + [role for _, role in kernel["outputs"]].count("tensor")
    of_a_pack = sum(1 if role == "tensor" else compute // size for _, role in kernel["outputs"])
    packs = stores / of_a_pack
    elements = packs * (16 // size)
    if "parameter" in roles:  # whose values are read one by one
        narrow = [op for op in narrow if not op.startswith("LDG")]
    special = sum(n for op, n in operations.items() if op.startswith("MUFU"))
    simple = sum(operations.values()) - special - operations["NOP"]
    share = tensors * size / BYTES
    return Body(
        kernel=name,
        dtype=dtype,
        wide=stores > 0 and not narrow and loads >= packs,
        simple=simple / elements if elements else float("inf"),
        special=special / elements if elements else float("inf"),
        simple_budget=SIMPLE * share,
        special_budget=SPECIAL * share,
    )


def _packs(lines: list[_Line]) -> list[_Line]:
    """What a flat loop does for whole packs: up to its last wide store; the rest is the tail's."""
    wide = [at for at, line in enumerate(lines) if _is_store(line) and "128" in line.operation]
    return lines[: wide[-1] + 1] if wide else []


def _is_store(line: _Line) -> bool:
    return line.operation.startswith(("STG", "ST."))


def _without_calls(lines: list[_Line]) -> Iterator[str]:
    """The operations of the blocks that call no function: those are slow paths."""
    block: list[str] = []
    for line in [*lines, _Line("end", "", "")]:
        if line.operation:
            block.append(line.operation)
        if line.label or line.operation.startswith(("BRA", "CALL")):
            if not any(operation.startswith("CALL") for operation in block):
                yield from block
            block = []
