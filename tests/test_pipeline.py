"""The pipeline's promises: the same bytes everywhere, and `generated/` as it is committed."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import sympy

from autofn import Formula
from autofn.backends import cpp, pytorch
from autofn.backends.fold import fold
from autofn.backends.text import Text
from autofn.load import load_file
from autofn.package import MARKER
from autofn.pipeline import explain, generate
from autofn.program import Node, lower

ROOT = Path(__file__).resolve().parent.parent
FORMULAS = sorted((ROOT / "formulas").glob("*.py"))

assert lower  # the stage that makes Programs


@pytest.mark.parametrize("path", FORMULAS, ids=lambda path: path.stem)
def test_committed_output_is_what_the_formula_gives(path: Path) -> None:
    for each in load_file(path):
        package = generate(each.definition)
        folder = ROOT / "generated" / package.name
        assert {file.name for file in folder.iterdir() if file.is_file()} == {
            name for name, _ in package.files
        }
        for name, text in package.files:
            assert (folder / name).read_text(encoding="utf-8") == text, f"{package.name}/{name}"


COMMITTED = [
    path for path in sorted((ROOT / "generated").glob("*/*")) if path.is_file() and path.suffix
]
"""The library's packages, of which another test says that they are what is generated."""


@pytest.mark.parametrize("path", FORMULAS, ids=lambda path: path.stem)
def test_text_is_formatted(path: Path) -> None:
    files = [each for each in COMMITTED if each.parent.name == path.stem]
    assert files
    for each in files:
        name, text = each.name, each.read_text(encoding="utf-8")
        if name.endswith(".json"):
            continue
        first, *rest = text.splitlines()
        assert MARKER in first
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
        assert all(len(line) <= 100 for line in rest), name
        assert all(line == line.rstrip() for line in text.splitlines()), name
        assert name != "_runtime.py" or len(text.splitlines()) <= 250


def test_no_line_is_too_long_whatever_the_names() -> None:
    for size in (2, 7):
        names = [f"{'x' * size}{k}" for k in range(8)]
        symbols = sympy.symbols(names, real=True)
        expr = sympy.Add(*(s**2 for s in symbols)) * sympy.Mul(*symbols)
        package = generate(Formula.from_expr(expr, "f").definition, search=False)
        for name in ("maths.py", "maths.h", "op.py"):
            text = package.text(name)
            assert all(len(line) <= 100 for line in text.splitlines()[1:]), (size, name)
            assert not re.search(r"--\w", text), name


def test_long_conditions_fold_and_stay_conditions() -> None:
    tangents = " or ".join(f"d_grad_of_output{k} is not None" for k in range(6))
    needs = " or ".join(f"needs[{k}]" for k in range(12))
    for condition in (tangents, f"({needs})", f"needs[0] and ({tangents})",
                      f"({needs}) and ({tangents})"):  # fmt: skip
        text = fold(f"    if {condition}:\n        pass")
        assert max(map(len, text.splitlines())) <= 100
        tree = ast.parse(textwrap.dedent(text))
        assert ast.dump(tree) == ast.dump(ast.parse(f"if {condition}: pass"))


def test_nothing_generated_imports_autofn_or_sympy() -> None:
    imports = ("import sympy", "from sympy", "import autofn", "from autofn")
    for path in COMMITTED:
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not line.strip().startswith(imports), path


def test_bytes_do_not_depend_on_hash_seed_or_folder(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib\n"
        "from autofn.load import load_file\n"
        "from autofn.pipeline import generate\n"
        "generated, *paths = map(pathlib.Path, sys.argv[1:])\n"
        "for path in paths:\n"
        "    for each in load_file(path):\n"
        "        for name, text in generate(each.definition).files:\n"
        "            committed = generated / each.definition.name / name\n"
        "            assert committed.read_text(encoding='utf-8') == text, committed\n"
        "            print(name)\n"
    )
    some = [
        str(p)
        for p in FORMULAS
        if p.stem in {"swish", "xielu", "pinball", "dyt", "affine_settings"}
    ]
    # It searches anew.
    env = {**os.environ, "PYTHONHASHSEED": "4242", "PYTHONPATH": str(ROOT),
           "AUTOFN_CACHE_DIR": str(tmp_path / "cache")}  # fmt: skip
    run = subprocess.run([sys.executable, "-c", script, str(ROOT / "generated"), *some],
                         cwd=tmp_path, env=env, capture_output=True, text=True)  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("maths.h") == len(some)


def test_explanation_counts_operations_before_and_after() -> None:
    (mish,) = load_file(ROOT / "formulas" / "mish.py")
    sections = dict(explain(mish.definition).sections)
    assert "softplus" in sections["Computed as"]
    assert "17 by sympy.diff" in sections["Scalar operations per element"]
    assert "4 bytes per element" in sections["Saved for backward"]
    (exp,) = load_file(ROOT / "formulas" / "exp.py")
    assert "output" in dict(explain(exp.definition).sections)["Saved for backward"]


def test_constants_of_any_size_and_two_signs() -> None:
    """Integers beyond 64 bits are no tensors of PyTorch's, and --x is a decrement in C."""
    for value in (10**39, -(3**100)):
        node = Node("constant", constant=sympy.Integer(value), number=True)
        assert pytorch._PyTorch("x").constant(node).code == repr(float(value))
        assert cpp.CPP.constant(node).code == f"T({float(value)!r})"
    infinite = Node("constant", constant=sympy.Integer(10**400), number=True)
    assert pytorch._PyTorch("x").constant(infinite).code == "math.inf"
    assert cpp.CPP.constant(infinite).code == "T(INFINITY)"
    twice = Node("neg", (0,))
    for negated in (Text("-x", 80), Text("-a * b", 70)):
        assert cpp.CPP.operation(twice, (negated,), (False,)).code == f"-({negated.code})"
        assert pytorch._PyTorch("x").operation(twice, (negated,), (False,)).code[:2] == "-("
