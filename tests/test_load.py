"""Loading formula files: what they give, what is wrong with them and where, what stays behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from autofn import FormulaError
from autofn.load import ExprSource, FileSource, load_file, opened

GOOD = """
from sympy import exp
from autofn import formula

@formula
def first(x, beta: float = 1.0):
    '''The first.'''
    return helper(x, beta)

def helper(x, beta):
    return x / (1 + exp(-beta * x))

@formula
def second(x):
    return 2 * x
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str | bytes, name: str = "f.py") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())
        return str(path)

    return write


def test_formulas_come_in_order_with_their_place(write) -> None:
    path = write(GOOD)
    formulas = load_file(path)
    assert [formula.name for formula in formulas] == ["first", "second"]
    first = formulas[0].definition
    assert (first.where.file, first.where.line) == (path, 6)
    assert first.doc == "The first."
    assert first.source == "f.py"


def test_nothing_stays_behind(write, tmp_path: Path) -> None:
    write("from autofn import formula\nVALUE = 3\n", "sibling.py")
    write("OTHER = 4\n", "pack/__init__.py")
    path = write(
        """
        import sibling, pack
        from autofn import formula
        @formula
        def f(x):
            import sibling as again
            return again.VALUE * x
        """
    )
    before = (list(sys.path), set(sys.modules), set(sys.path_importer_cache))
    formulas = load_file(path)
    assert (list(sys.path), set(sys.modules), set(sys.path_importer_cache)) == before
    assert not list(tmp_path.rglob("__pycache__"))
    assert str(formulas[0].definition.variants[0].outputs[0]) == "3*x"


def test_a_file_is_read_again(write) -> None:
    path = write("from autofn import formula\n@formula\ndef f(x): return x\n")
    assert [formula.name for formula in load_file(path)] == ["f"]
    write("\n\nfrom autofn import formula\n@formula\ndef longer_name(x): return x\n")
    (again,) = load_file(path)
    assert (again.name, again.where.line) == ("longer_name", 5)


def test_formulas_of_other_files_are_not_this_file_s(write) -> None:
    write("from autofn import formula\n@formula\ndef other(x): return x\n", "lib.py")
    path = write(
        """
        from lib import other
        from autofn import formula
        @formula
        def mine(x):
            return other(x) + 1
        """
    )
    assert [formula.name for formula in load_file(path)] == ["mine"]


def test_formulas_made_by_from_expr(write) -> None:
    path = write(
        """
        from sympy import symbols
        from autofn import Formula
        x, y = symbols("x y", real=True)
        made = [Formula.from_expr(x * y**n, f"f{n}") for n in (1, 2)]
        """
    )
    assert [formula.name for formula in load_file(path)] == ["f1", "f2"]


def test_dataclasses_and_postponed_annotations(write) -> None:
    path = write(
        """
        from __future__ import annotations
        from dataclasses import dataclass
        from autofn import formula
        @dataclass
        class Settings:
            scale: float = 2.0
        @formula
        def f(x, cfg: Settings = Settings()):
            return cfg.scale * x
        """
    )
    (formula,) = load_file(path)
    assert formula.definition.leaf("cfg_scale").parameter.default == 2.0


def test_a_bad_formula_raises_when_it_is_asked_for(write) -> None:
    path = write(
        """
        from autofn import formula
        @formula
        def bad(x): return None
        @formula
        def good(x): return x
        """
    )
    bad, good = load_file(path)
    assert good.definition.name == "good"
    for _ in range(2):
        with pytest.raises(FormulaError, match="returns None") as caught:
            _ = bad.definition
        assert caught.value.where is not None
        assert caught.value.where.line == 4


BAD = {
    "syntax": ("x = 1\ny = (\n", 2, "syntax error"),
    "indentation": ("def f():\npass\n", 2, "syntax error"),
    "exception": ("x = 1\n\ny = x / 0\n", 3, "ZeroDivisionError: division by zero"),
    "in a helper": ("def f():\n    return [][1]\nf()\n", 2, "IndexError"),
    "name": ("x = 1\ny = exp(1)\n", 2, "NameError.*\n.*from sympy import exp"),
    "head": ("y = softplus(1)\n", 1, "from autofn.functions import softplus"),
    "decorator": ("@formula\ndef f(x): return x\n", 1, "from autofn import formula"),
    "module": ("import no_such_module_here\n", 1, "install no_such_module_here"),
    "exit": ("import sys\nsys.exit(3)\n", 2, "ends the program: SystemExit\\(3\\)"),
    "base": ("raise BaseException('x')\n", 1, "BaseException: x"),
    "group": ("class E(BaseException): pass\nraise E\n", 2, "E: "),
    "recursion": ("def f():\n    return f()\n\nf()\n", 2, "recurses without an end"),
    "memory": ("x = 1\nx = bytearray(1 << 60)\n", 2, "out of memory"),
    "none": ("x = 1\n", 1, "no formula\n.*@formula"),
    "empty": ("", 1, "no formula"),
    "options": ("from autofn import formula\n@formula(amp=3)\ndef f(x): return x\n", 3, "amp"),
    "twice": (
        "from autofn import formula\n@formula\ndef f(x): return x\n@formula\ndef f(x): return x\n",
        5,
        "two formulas are named 'f': here and in line 3",
    ),
    "latin": ("x = 1\n# \xe9\n".encode("latin-1"), 2, "not UTF-8"),
    "utf-16": ("x = 1\n".encode("utf-16"), 1, "UTF-8"),
    "null": (b"x = 1\x00\n", 1, "syntax error"),
    "encoding": (b"# coding: no-such-thing\n", 1, "no-such-thing"),
    "nested": ("x = " + "(" * 5000, 1, "syntax error|nested"),
    "deep": ("x = " + "-" * 100_000 + "1", 1, "nested"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(case: str, write) -> None:
    text, line, message = BAD[case]
    path = write(text)
    with pytest.raises(FormulaError, match=message) as caught:
        load_file(path)
    assert caught.value.where is not None
    assert (caught.value.where.file, caught.value.where.line) == (path, line)


def test_an_error_in_an_imported_file_names_that_file_s_line(write) -> None:
    broken = write("x = (\n", "broken.py")
    path = write("import broken\n")
    with pytest.raises(FormulaError, match="syntax error") as caught:
        load_file(path)
    assert caught.value.where is not None
    assert caught.value.where.file == broken


def test_files_that_cannot_be_read(tmp_path: Path, write, monkeypatch) -> None:
    folder = tmp_path / "folder.py"
    folder.mkdir()
    for path, message in (
        (tmp_path / "missing.py", "no such file"),
        (folder, "is a folder"),
        (write("x = 1", "notes.txt"), "not a Python file"),
        (str(tmp_path / "nul\0.py"), "cannot be read"),
    ):
        with pytest.raises(FormulaError, match=message) as caught:
            load_file(path)
        assert caught.value.remedy

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    path = write(GOOD)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(FormulaError, match="cannot be read: Permission denied"):
        load_file(path)


def test_someone_s_ctrl_c_is_not_the_file_s(write) -> None:
    with pytest.raises(KeyboardInterrupt):
        load_file(write("raise KeyboardInterrupt\n"))


def test_the_working_directory_does_not_matter(write, tmp_path: Path, monkeypatch) -> None:
    write(GOOD)
    monkeypatch.chdir(tmp_path)
    assert [formula.where.file for formula in load_file("f.py")] == ["f.py", "f.py"]
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    relative = os.path.join("..", "f.py")
    assert load_file(relative)[0].definition.source == "f.py"


def test_one_formula_of_a_file(write) -> None:
    with opened(FileSource(write(GOOD), only="second")) as formulas:
        assert [formula.name for formula in formulas] == ["second"]


def test_an_optional_file_may_have_none(write) -> None:
    with opened(FileSource(write("x = 1\n"), optional=True)) as formulas:
        assert formulas == []


def test_expressions() -> None:
    with opened(ExprSource("y*x**n + gamma", "f", (("n", 2), ("gamma", 1.5)))) as (formula,):
        definition = formula.definition
    assert [leaf.name for leaf in definition.leaves] == ["x", "y", "n", "gamma"]
    assert definition.source == "--expr"
