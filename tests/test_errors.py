"""How errors look: the line, carets, remedies, links; the page about them says what is printed."""

from __future__ import annotations

import ast
import doctest
import pickle
import re
import shlex
import sys
from pathlib import Path

import click.testing
import pytest
from rich.console import Console

from autofn import errors, suggest
from autofn.cli import cli
from autofn.cli.explain import sections
from autofn.cli.snippet import snippet
from autofn.errors import AutofnError, FormulaError, Location, about
from autofn.resources import documents

PAGE = documents() / "errors.md"
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOFN_CACHE_DIR", str(tmp_path.parent / f"{tmp_path.name}-cache"))
    return tmp_path


def call(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli, list(arguments))


# --- the page --------------------------------------------------------------------------------


def test_every_kind_has_its_section() -> None:
    """Kinds are those of the classes and those that code gives, by its syntax."""
    kinds = {
        value.kind
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, AutofnError)
    }
    for path in (ROOT / "autofn").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "about":
                kinds.add(node.args[0].value)
            if isinstance(node, ast.Assign) and any(
                getattr(each, "attr", "") == "kind" for each in node.targets
            ):
                kinds.update(value.value for value in [node.value] if type(value) is ast.Constant)
    assert {"syntax", "time", "process", "signature", "formula"} <= kinds
    assert set(sections(PAGE)) >= kinds
    # No section about what is never raised; `build` is the class of a command.
    assert set(sections(PAGE)) - {"build"} <= kinds


EXAMPLES = {
    name: (
        re.search(r'```python title="f.py"\n(.*?)```', text, re.DOTALL),
        re.search(r"```text\n\$ autofn (.*?)\n(.*?)```", text, re.DOTALL),
    )
    for name, text in sections(PAGE).items()
}


@pytest.mark.parametrize("kind", [name for name, (_, shown) in EXAMPLES.items() if shown])
def test_the_page_shows_what_is_printed(kind: str) -> None:
    source, shown = EXAMPLES[kind]
    if source:
        Path("f.py").write_text(source[1])
    result = call(*shlex.split(shown[1]))
    assert result.exit_code == 2
    assert result.stdout == ""
    more = f"  more: autofn explain {kind} (docs/errors.md#{kind})\n"
    assert result.stderr.endswith(more)
    want = shown[2]
    got = result.stderr.removesuffix(more)
    if sys.version_info < (3, 11):  # which does not know the columns of exceptions
        want, got = (re.sub(r"(?m)^.*\^+\n", "", text) for text in (want, got))
    matches = doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS)
    assert matches, f"expected:\n{want}\ngot:\n{got}"


def test_explain() -> None:
    result = call("explain", "signature")
    assert result.exit_code == 0
    assert result.stdout.startswith("signature\n=========\n")
    assert "come first" in result.stdout
    assert "\n## " not in result.stdout
    wrong = call("explain", "signatur")
    assert wrong.exit_code == 2
    assert "did you mean signature?" in wrong.stderr


# --- the line --------------------------------------------------------------------------------


def shown(where: Location, width: int = 80) -> list[str]:
    return snippet(where, width).plain.splitlines()[1:]


@pytest.mark.parametrize(
    ("line", "span", "expected"),
    [
        ("    return f(x)", (11, 15), "           ^^^^"),
        ("    return f(x)  # why", None, "    ^^^^^^^^^^^^^^^^^^"),
        ("\treturn f(x)", (8, 12), "        ^^^^"),
        ("    return 変(x) + f(x)", (18, 22), "                   ^^^^"),
        ("    βeta = f(x)", (11, 15), "           ^^^^"),
        ("x = (", (5, 6), "     ^"),
        ("short", (90, 95), "     ^"),
    ],
)
def test_carets(line: str, span: tuple[int, int] | None, expected: str) -> None:
    Path("f.py").write_text(f"# one\n{line}\n", encoding="utf-8")
    text, carets = shown(Location("f.py", 2, span))
    assert text == f"  2 | {line}".replace("\t", " ")
    assert carets == f"    | {expected}"


@pytest.mark.parametrize("width", [20, 40, 79, 80, 200])
@pytest.mark.parametrize("place", [0, 150, 390])
def test_long_lines_are_cut_around_what_is_meant(width: int, place: int) -> None:
    line = "".join(chr(ord("a") + k % 26) for k in range(400))
    text, carets = shown(Location("x", 1, (place, place + 5), line), width)
    begin = carets.index("^")
    assert text[begin : begin + 5] == line[place : place + 5]
    assert len(text) <= max(width, 26)


def test_no_line_where_there_is_none() -> None:
    Path("f.py").write_bytes(b"# \xff\n\n")
    for where in (
        Location("f.py", 2),
        Location("f.py", 9),
        Location("nowhere.py", 1),
        Location("f.py", 1, whole=True),
    ):
        assert not snippet(where, 80).plain
    Path("g.py").write_bytes("# coding: latin-1\nx = 'é' +\n".encode("latin-1"))
    assert shown(Location("g.py", 2, (9, 10)))[0] == "  2 | x = 'é' +"


def test_a_file_cannot_write_to_the_terminal() -> None:
    """Control characters of its text are blanks."""
    Path("f.py").write_bytes(b"x = '\x1b[31m' +\n")
    assert "\x1b" not in call("show", "f.py").stderr
    console = Console(force_terminal=True)
    with console.capture() as captured:
        console.print(snippet(Location("f.py", 1, (0, 1)), 80))
    assert "\x1b[31m'" not in captured.get()


def test_windows_line_ends_and_indented_bodies() -> None:
    Path("f.py").write_bytes(
        b"from autofn import formula\r\nif True:\r\n    @formula\r\n"
        b"    def f(x):\r\n        '''\xce\xb2'''\r\n        y = nothing(x)\r\n        return y\r\n"
    )
    result = call("show", "f.py").stderr
    assert "  6 |         y = nothing(x)\n    |             ^" in result


def test_calls_in_bodies_that_are_indented_or_long() -> None:
    Path("f.py").write_text(
        "from autofn import formula\nfrom sympy import besselj\n"
        "if True:\n    @formula\n    def f(x):\n        β = x\n"
        "        return (β +\n                besselj(\n                    0, x))\n"
    )
    assert (
        "  8 |                 besselj(\n    |                 ^^^^^^^^\n"
        in call("show", "f.py").stderr
    )


# --- suggestions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "remedy"),
    [
        ("tanhh(x)", "did you mean tanh? (from sympy import tanh)"),
        ("Sigmoid(x)", "did you mean sigmoid? (from autofn.functions import sigmoid)"),
        ("tanh(x)", "add: from sympy import tanh"),
        ("silu(x)", "add: from autofn.functions import silu"),
        ("sympy.exp(x)", "add: import sympy"),
        ("maximum(x, 0)", "write Max(x, y)"),
        ("arctan(x)", "write atan(x)"),
        ("math.exp(x)", "use SymPy's functions"),
        ("functions.sigmiod(x)", "did you mean sigmoid?"),
        ("nothing_like_it(x)", "add it to the signature (`nothing_like_it: float = 1.0`, or "),
        ("k * x", "add it to the signature (`k: float = 1.0`, or `k` for a tensor)"),
    ],
)
def test_misspelt_functions(body: str, remedy: str) -> None:
    Path("f.py").write_text(
        "import math\nfrom autofn import formula, functions\n"
        f"@formula\ndef f(x):\n    return {body}\n"
    )
    for command in (["gen", "--no-verify"], ["show"], ["verify"], ["bench"]):
        result = call(*command, "f.py")
        assert result.exit_code == 2
        assert f"remedy: {remedy}" in result.stderr
        assert "  5 |     return " in result.stderr


@pytest.mark.parametrize(
    ("body", "what", "remedy"),
    [
        ("slop * x", "NameError", "did you mean slope?"),
        ("x.exp()", "AttributeError", "write exp(x) (from sympy import exp)"),
        ("x.relu()", "AttributeError", "write relu(x) (from autofn.functions import relu)"),
        ("x.sum()", "AttributeError", "a formula is elementwise"),
        ("x[0]", "TypeError", "a formula is elementwise"),
        ("x^2", "TypeError", "write x**2 for a power"),
        ("where(x > 0, x, 0)", "NameError", "write Piecewise((a, x > 0), (b, True))"),
        ("np.exp(x)", "NameError", "use SymPy's functions (from sympy import exp)"),
        ("torch.exp(x)", "TypeError", "use SymPy's functions (from sympy import exp)"),
        ("sympy.exp(x, 2)", "TypeError: exp takes exactly 1", "correct the arguments of the call"),
        ("sympy.Piecewise((x, x > 0), 1)", "TypeError", "write Piecewise((a, x > 0), (b, True)): "),
        ("1 / 0 * x", "ZeroDivisionError", "look for a division by zero"),
        ("slope + x / 0", "contains zoo*x, and zoo is", "look for a division by zero"),
        ("1 / (x - x)", "contains zoo, and zoo is infinity", "look for a division by zero"),
    ],
)
def test_what_newcomers_write_in_place_of_sympy(body: str, what: str, remedy: str) -> None:
    Path("f.py").write_text(
        "import sympy\nimport torch\nfrom autofn import Learnable, formula\n@formula\n"
        f"def f(x, slope: Learnable = 0.1):\n    return {body}\n"
    )
    result = call("show", "f.py")
    assert result.exit_code == 2
    assert what in result.stderr
    assert f"remedy: {remedy}" in result.stderr


@pytest.mark.skipif(sys.version_info < (3, 11), reason="columns of exceptions are not known")
@pytest.mark.parametrize(
    ("body", "under", "remedy"),
    [
        ("max(x, 0)", "max(x, 0)", "write Max(a, b) or Min(a, b)"),
        ("2 * (0 < x < 1)", "0 < x < 1", "write And(0 < x, x < 1)"),
        ("slope + x / 0", "x / 0", "look for a division by zero"),
        ("x and 2 * slope", "x", "compare it, in Piecewise or And: And(x > 0, y > 0)"),
        ("slope if -x + 1 else x", "-x + 1", "compare it, in Piecewise or And"),
        ("not x * slope", "x * slope", "compare it"),
        (
            "x if slope == 0 else 2",
            "slope == 0",
            "write Piecewise((value, Eq(n, 0)), (other, True))",
        ),
        ("x if 2 * slope in (0, 1) else 2", "2 * slope in (0, 1)", "write Piecewise"),
        ("{1: x}.get(slope, 2 * x)", "{1: x}.get(slope, 2 * x)", "write Piecewise"),
    ],
)
def test_the_part_of_a_line_that_is_meant(body: str, under: str, remedy: str) -> None:
    Path("f.py").write_text(
        f"from autofn import formula\n@formula\ndef f(x, slope):\n    return {body}\n"
    )
    text = call("show", "f.py").stderr
    assert f"    | {' ' * (11 + body.index(under))}{'^' * len(under)}\n" in text
    assert f"remedy: {remedy}" in text


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("from sympy import exq", "did you mean exp?"),
        ("from autofn import Leanable", "did you mean Learnable? (from autofn import Learnable)"),
        (
            "from autofn import formula\n@formula(reducton=True)\ndef f(x): return x",
            "did you mean red",
        ),
        ("@formula\ndef f(x): return x", "add: from autofn import formula"),
        ("import sympy\nx = sympy.expp(1)", "did you mean exp?"),
        ("import nowhere_at_all", "install nowhere_at_all, or remove the import"),
    ],
)
def test_misspelt_names_in_a_file(text: str, remedy: str) -> None:
    Path("f.py").write_text(text + "\n")
    assert f"remedy: {remedy}" in call("show", "f.py").stderr


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["gne"], "did you mean gen? autofn --help shows all"),
        (["verfy"], "did you mean verify?"),
        (["nothing_like_it"], "autofn --help shows all"),
        (["gen", "--chekc"], "did you mean --check? autofn gen --help shows all"),
        (["verify", "--fulll", "swish"], "did you mean --full?"),
        (["bench", "--dtype", "float31", "swish"], "autofn bench --help"),
        (["new"], "autofn new --help"),
    ],
)
def test_misspelt_commands_and_options(arguments: list[str], remedy: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert f"remedy: {remedy}" in result.stderr
    assert result.stderr.endswith("more: autofn explain command (docs/errors.md#command)\n")


def test_transposed_letters_are_meant_first() -> None:
    assert suggest.close("gne", ["new", "gen", "one"]) == "gen"
    assert suggest.close("HEAVISIDE", ["Heaviside", "x"]) == "Heaviside"
    assert suggest.close("zzz", ["new", "gen"]) is None


# --- errors as data --------------------------------------------------------------------------


def test_kinds_survive_processes_and_places() -> None:
    with pytest.raises(FormulaError) as caught, about("returns"), about("symbols"):
        raise FormulaError("what", remedy="remedy")
    error = caught.value
    assert error.kind == "symbols"
    placed = error.at(Location("f.py", 3, (1, 2)))
    assert placed.kind == "symbols"
    again = pickle.loads(pickle.dumps(placed))
    assert (again.kind, again.where.span, str(again)) == ("symbols", (1, 2), str(placed))
