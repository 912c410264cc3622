"""Verification bites: a package with one mistake turns the row red that is there to find it."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from sympy import Piecewise, exp, log, tanh

from autofn import Formula, PerChannel, formula
from autofn.package import Package
from autofn.pipeline import generate
from autofn.verify import Row, host, nvcc, verify_package

TORCH, HOST, CPU = "PyTorch", "CUDA kernel on host", "CPU kernel"


@formula
def prelu(x, weight: PerChannel = 0.25):
    """A kink, and a parameter whose gradient is a sum."""
    return Piecewise((x, x > 0), (weight * x, True))


@formula
def gate(x, y, beta: float = 1.5):
    """Two tensors that broadcast, and a number."""
    return y * x / (1 + exp(-beta * x))


@formula
def costly_gate(x, y):
    """A function that 16-bit types look up, and its factor."""
    return y * x * tanh(log(1 + exp(x)))


@dataclass(frozen=True)
class Mutation:
    """One text edit of a package, and the backend and check that must find it.

    `says` is in the failure's detail: the pair of input and output, the place, the sanitizer.
    """

    name: str
    formula: Formula
    file: str
    old: str
    new: str
    backend: str
    check: str
    says: str
    slow: bool = False  # a sibling that runs always is found by the same check


MUTATIONS = [
    Mutation("sign flip in the kernel", prelu, "maths.h", ": x * grad;", ": -x * grad;",
             HOST, "gradients", "d out / d weight"),
    Mutation("sign flip in PyTorch", prelu, "maths.py", "torch.where(c0, 0, x * grad)",
             "torch.where(c0, 0, -x * grad)", TORCH, "gradcheck", "d out / d weight"),
    Mutation("dropped factor in the kernel", prelu, "maths.h", "weight * x;", "weight;",
             HOST, "values", "out, float64", slow=True),
    Mutation("dropped factor in double backward", prelu, "maths.py", "grad_x = v0 * d_weight",
             "grad_x = v0", TORCH, "second derivatives", "d2 out / d weight d x"),
    Mutation("dropped factor in gradgradcheck", prelu, "maths.py", "grad_x = v0 * d_weight",
             "grad_x = v0", TORCH, "gradgradcheck", "d2 out"),
    Mutation("dropped factor in forward mode", prelu, "maths.py", "d_out = d_x *",
             "d_out = 2 * d_x *", TORCH, "forward mode", "dense"),
    Mutation("missing reduction", gate, "_tensors.py", "value.sum_to_size(shape).to(dtype)",
             "value.to(dtype)", TORCH, "shapes and dtypes", "backward's gradient of"),
    Mutation("wrong reduction", gate, "_tensors.py", "value.sum_to_size(shape).to(dtype)",
             "(value.sum_to_size(shape) / (value.numel() // shape.numel())).to(dtype)"
             " if shape.numel() else value.sum_to_size(shape).to(dtype)",
             TORCH, "gradcheck", "broadcast"),
    Mutation("gradient left in the compute type", gate, "_tensors.py",
             "value.sum_to_size(shape).to(dtype)", "value.sum_to_size(shape)",
             TORCH, "shapes and dtypes", "expected bfloat16"),
    Mutation("incoming gradient dropped in the kernel", gate, "maths.h",
             "= grad * y * (", "= y * (", HOST, "gradients", "d out / d", slow=True),
    Mutation("wrong kink in the kernel", prelu, "maths.h", "const bool c0 = x > T(0);",
             "const bool c0 = x >= T(0);", HOST, "gradients", "kink point x=0", slow=True),
    Mutation("wrong kink in PyTorch", prelu, "maths.py", "grad, x, weight):\n"
             '    """The gradient of each input, where `needs` asks for it."""\n    c0 = x > 0',
             "grad, x, weight):\n"
             '    """The gradient of each input, where `needs` asks for it."""\n    c0 = x >= 0',
             TORCH, "gradients", "kink point x=0"),
    Mutation("overrun of the flat loop's tail", gate, "loops.cuh",
             "threadIdx.x < elements % N", "threadIdx.x <= elements % N",
             HOST, "values", "heap-buffer-overflow"),
    Mutation("overrun of the vectors", gate, "loops.cuh", "packs = elements / N;",
             "packs = elements / N + 1;", HOST, "values", "heap-buffer-overflow", slow=True),
    Mutation("last element skipped by the flat loop", gate, "loops.cuh",
             "threadIdx.x < elements % N", "threadIdx.x + 1 < elements % N",
             HOST, "values", "NaN where the true value is finite", slow=True),
    Mutation("last element skipped by the strided loop", gate, "loops.cuh",
             "first >= elements) return", "first + 1 >= elements) return",
             HOST, "incoming gradients", "NaN where the true value is finite", slow=True),
    Mutation("strides of the wrong input", gate, "loops.cuh", "index * layout.strides[k][d]",
             "index * layout.strides[0][d]", HOST, "gradcheck", "heap-buffer-overflow"),
    Mutation("parts of two blocks overlap", gate, "loops.cuh",
             "blockIdx.x * (kThreads * kAhead<Op>)", "blockIdx.x * kThreads",
             HOST, "agreement with PyTorch", "NaN where the true value is finite"),
    Mutation("barrier forgotten", prelu, "loops.cuh",
             "    __syncthreads();\n    for (int layer", "    for (int layer",
             HOST, "gradcheck", "d out / d weight", slow=True),
    Mutation("sum past a tile's last column", prelu, "loops.cuh",
             "if (!kWide && n >= count()) terms.at[n] = T(0);", "",
             HOST, "gradcheck", "GradcheckError", slow=True),
    Mutation("partial sums on top of each other", prelu, "launch.cuh",
             "      fold.count *= size;\n", "",
             HOST, "agreement with PyTorch", "heap-buffer-overflow", slow=True),
    Mutation("a partial sum forgotten", prelu, "loops.cuh",
             "k = member; k < fold->count;", "k = member; k + 1 < fold->count;",
             HOST, "gradcheck", "d out / d weight", slow=True),
    Mutation("sum of a row cut short on the CPU", prelu, "cpu.cpp",
             "for (int l = 0; i < n; ++i, ++l)", "for (int l = 0; i + 1 < n; ++i, ++l)",
             CPU, "gradcheck", "GradcheckError"),
    Mutation("rows read from the first on the CPU", gate, "cpu.cpp",
             "data + offset, inner_, block.columns", "data + first, inner_, block.columns",
             CPU, "agreement with PyTorch", "", slow=True),
    Mutation("factor of what is looked up forgotten", costly_gate, "ops.cpp",
             "0, {0x2}}", "0, {0x0}}", CPU, "agreement with PyTorch", "large"),
    Mutation("gradient of no input on the CPU", gate, "binding.cpp",
             "operand.strides[i] = kept ? strides[d - absent] : 0;", "operand.strides[i] = 0;",
             CPU, "gradcheck", "", slow=True),
    Mutation("kernel that does not compile", gate, "maths.h", "return ", "retrun ",
             HOST, "compiles", "retrun"),
    Mutation("Python that does not import", gate, "op.py", "import torch\n", "import torhc\n",
             TORCH, "package loads", "torhc"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _only_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No nvcc: it compiles for as long as everything else takes together."""
    monkeypatch.setattr(nvcc, "find", lambda: None)


def mutated(mutation: Mutation) -> Package:
    package = generate(mutation.formula.definition)
    text = package.text(mutation.file)
    files = dict(package.files)
    files[mutation.file] = text.replace(mutation.old, mutation.new)
    return dataclasses.replace(package, files=tuple(files.items()))


def rows(found: Sequence[Row]) -> str:
    return "\n".join(f"{r.backend} | {r.check} | {r.status} | {r.detail}" for r in found)


class _Found(Exception):
    """The check that had to fail has: what comes after it need not run."""


def test_mutations_are_of_what_is_there() -> None:
    """Of the slow ones too, which few runs have."""
    gone = [m.name for m in MUTATIONS if m.old not in generate(m.formula.definition).text(m.file)]
    assert not gone


@pytest.mark.parametrize(
    "mutation",
    [pytest.param(m, id=m.name, marks=[pytest.mark.slow] if m.slow else []) for m in MUTATIONS],
)
def test_mutation_turns_verification_red(mutation: Mutation) -> None:
    if mutation.backend == HOST and isinstance(why := host.toolchain(), str):
        pytest.skip(why)
    if mutation.backend == CPU and not any(map(shutil.which, ("g++", "c++", "clang++"))):
        pytest.skip("no C++ compiler")
    seen: list[Row] = []

    def on_row(row: Row) -> None:
        seen.append(row)
        if is_it(row) and threading.current_thread() is threading.main_thread():
            raise _Found

    def is_it(row: Row) -> bool:
        where = row.backend, row.check
        return row.status == "failed" and where == (mutation.backend, mutation.check)

    without = {HOST, CPU} - {mutation.backend}
    of = mutation.formula.definition
    with contextlib.suppress(_Found):
        verify_package(mutated(mutation), of, without=without, on_row=on_row)
    found = [row for row in seen if is_it(row)]
    assert found, rows(seen)
    assert mutation.says in found[0].detail, found[0].detail
    if mutation.file in ("maths.h", "loops.cuh", "launch.cuh", "kernels.cu"):
        of_torch = [row.status for row in seen if row.backend == TORCH]
        assert "failed" not in of_torch, rows(seen)
        assert mutation.check == "compiles" or of_torch.count("passed") > 5, rows(seen)


@pytest.mark.parametrize(
    "plain",
    [pytest.param(prelu, marks=pytest.mark.slow, id="prelu"), pytest.param(gate, id="gate")],
)
def test_unmutated_package_is_green(plain: Formula) -> None:
    seen = []
    report = verify_package(generate(plain.definition), plain.definition, on_row=seen.append)
    assert report.ok, rows(report.rows)
    assert sorted(map(repr, seen)) == sorted(map(repr, report.rows))
    ran = {row.backend for row in report.rows if row.status == "passed"}
    assert TORCH in ran
    if not isinstance(host.toolchain(), str):
        assert HOST in ran


def test_without_a_compiler_the_kernels_are_not_run_and_say_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "toolchain", lambda: "g++ and clang++ not found")
    report = verify_package(generate(gate.definition), gate.definition)
    assert report.ok, rows(report.rows)
    kernels = [row for row in report.rows if row.backend == HOST]
    assert kernels
    assert {(row.status, row.detail) for row in kernels} == {
        ("not run", "g++ and clang++ not found")
    }


def test_a_hanging_package_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autofn.verify.run.LIMIT", {"quick": 5.0})
    hanging = Mutation(
        "",
        gate,
        "maths.py",
        "def forward(",
        "def forward(*args):\n    while True:\n        pass\n\n\ndef _forward(",
        TORCH,
        "",
        "",
    )
    report = verify_package(mutated(hanging), gate.definition, without={HOST, CPU})
    found = [(r.check, r.detail) for r in report.failures if r.backend == TORCH]
    assert found == [("values", "no result within 5 s")]
