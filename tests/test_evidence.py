"""What the compiler says of the CUDA kernels: no spills, no local memory, wide accesses."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from autofn import evidence
from autofn.load import load_file
from autofn.pipeline import generate

ROOT = Path(__file__).resolve().parent.parent

# A unary formula, one with a special function and two tensors, parameters, several outputs.
REPRESENTATIVE = ("quick_gelu", "swiglu", "dyt", "quadratic_terms")


@functools.cache
def found(name: str, folder: Path) -> evidence.Evidence:
    tools = evidence.tools()
    if isinstance(tools, str):
        pytest.skip(tools)
    (formula,) = load_file(ROOT / "formulas" / f"{name}.py")
    package = folder / name
    for path, text in generate(formula.definition).files:
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).write_text(text, encoding="utf-8")
    return evidence.measure(tools, package)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("evidence")


@pytest.mark.parametrize("name", REPRESENTATIVE)
def test_no_spills_and_no_local_memory(name: str, folder: Path) -> None:
    loops = found(name, folder).loops
    assert {loop.loop for loop in loops} == {*evidence.LOOPS, "fold"}
    assert {loop.dtype for loop in loops} == {"float64", "float32", "bfloat16", "float16"}
    assert not [loop for loop in loops if loop.local]
    assert all(0 < loop.registers <= 255 for loop in loops)


@pytest.mark.parametrize("name", REPRESENTATIVE)
def test_flat_loops_access_memory_in_128_bits(name: str, folder: Path) -> None:
    bodies = found(name, folder).bodies
    assert {body.dtype for body in bodies} == {"float64", "float32", "bfloat16", "float16"}
    assert not [(body.kernel, body.dtype) for body in bodies if not body.wide]


@pytest.mark.parametrize("name", REPRESENTATIVE)
def test_forward_of_16_bits_is_within_the_budget(name: str, folder: Path) -> None:
    """Each of these is bound by memory where division and exp are the compiler's."""
    bodies = [
        body
        for body in found(name, folder).bodies
        if "_forward" in body.kernel and body.dtype in ("bfloat16", "float16")
    ]
    assert bodies
    for body in bodies:
        assert body.within, body


LISTING = """
\t.section\t.text._Z4loopv,"ax",@progbits
.L_x_0:
        /*0000*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0010*/              @!P0 MUFU.EX2 R4, R4 ;
        /*0020*/               @P0 BRA `(.L_x_1) ;
        /*0030*/                   MOV R4, 0x50 ;
        /*0040*/                   CALL.REL.NOINC `($slow) ;
.L_x_1:
        /*0050*/                   FADD R4, R4, R4 ;
        /*0060*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        /*0070*/               @P1 EXIT ;
        /*0080*/                   LDG.E R4, desc[UR4][R2.64] ;
        /*0088*/                   STG.E desc[UR4][R2.64], R4 ;
.L_x_2:
        /*0090*/                   BRA `(.L_x_2);
"""


def test_slow_paths_and_the_tail_do_not_count() -> None:
    ((name, lines),) = evidence._functions(LISTING)
    assert name == "_Z4loopv"
    kernel = {"function": "f", "inputs": [["x", "tensor"]], "outputs": [["y", "tensor"]]}
    body = evidence._body(kernel, "float32", lines)
    assert body.wide
    assert (body.simple, body.special) == (4 / 4, 1 / 4)
    assert (body.simple_budget, body.special_budget) == (60, 8)
    assert body.within


def test_narrow_accesses_are_seen() -> None:
    ((_, lines),) = evidence._functions(LISTING.replace("LDG.E.128", "LDG.E.64"))
    kernel = {"function": "f", "inputs": [["x", "tensor"]], "outputs": [["y", "tensor"]]}
    assert not evidence._body(kernel, "float32", lines).wide


def test_spills_are_seen() -> None:
    said = (
        "ptxas info    : Compiling entry function '_Z1fv' for 'sm_90'\n"
        "    40 bytes stack frame, 56 bytes spill stores, 48 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 0 barriers\n"
    )
    assert list(evidence._resources(said)) == [("_Z1fv", 255, 56)]
