"""Bad input, case by case: what, where and remedy, exit code 2, no traceback, nothing written."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import click.testing
import pytest

from autofn.cli import cli

ROOT = Path(__file__).resolve().parent.parent

HEAD = """\
from sympy import *
from autofn import Learnable, PerChannel, Tensor, formula
x_, y_ = symbols("x y", real=True)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def gen(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli, ["gen", *arguments])


def refused(result: click.testing.Result, *messages: str) -> None:
    """Exit code 2; what and the remedy are told, without a traceback."""
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert "remedy: " in result.stderr
    for message in messages:
        assert message in result.stderr, result.stderr
    assert result.stdout == ""


def patience(message: str) -> list[str]:
    """Options: a second for what never ends; the rest ends by itself, also on a slow machine."""
    return ["--timeout", "1"] if "took longer" in message else []


FILES = {
    "syntax error": ("x = (1,\n", ":1: syntax error"),
    "exception": ("x = 1\ny = x / 0\n", ":2: ZeroDivisionError: division by zero"),
    "no formula": ("def swish(x):\n    return x\n", ":1: the file has no formula"),
    "not Python": ("<html>", ":1: syntax error"),
    "recursion on import": ("def f():\n    return f()\nf()\n", ":2: the file recurses"),
    "recursion in C": (
        "x = []\nfor _ in range(10**5): x = [x]\nrepr(x)\n",
        ":3: the file recurses",
    ),
    "loop": ("while True: pass\n", ":1: loading took longer than 1 s"),
    "loop in C": ("x = 9**9**9\n", ":1: loading took longer than 1 s"),
    "sys.exit": ("import sys\nsys.exit(0)\n", ":2: the file ends the program"),
    "os._exit": ("import os\nos._exit(0)\n", ":1: the process ended itself with exit code 0"),
    "crash": ("import ctypes\nctypes.string_at(0)\n", ":2: the process was killed by SIGSEGV"),
}


@pytest.mark.parametrize("case", FILES)
def test_files(case: str, here: Path) -> None:
    text, message = FILES[case]
    (here / "f.py").write_text(text)
    refused(gen("f.py", *patience(message)), f"f.py{message}")
    assert os.listdir(here) == ["f.py"]


# The body of a function whose `def` is in line 5; the line of the error, and what it says.
BODIES = {
    "None": ("def f(x): pass", 5, "f returns None"),
    "string": ("def f(x): return 'x**2'", 5, "f returns the string 'x**2'"),
    "Matrix": ("def f(x): return Matrix([x, 2*x])", 5, "f returns a matrix"),
    "list of lists": ("def f(x): return [[x]]", 5, "f returns"),
    "condition": ("def f(x): return x > 0", 5, "f returns the condition"),
    "number that is no number": ("def f(x): return nan", 5, "f is undefined"),
    "equation": ("def f(x): return Eq(x, 1)", 5, "f returns the condition"),
    "function": ("def f(x): return exp", 5, "f returns"),
    "nothing": ("def f(x): return ()", 5, "f returns nothing"),
    "complex": ("def f(x): return x + I", 5, "f is complex"),
    "complex for all x": ("def f(x): return sqrt(-1 - x**2)", 5, "f is complex"),
    "division by zero": ("def f(x): return x/0", 5, "f"),
    "undeclared symbol": (
        "def f(x): return x * Symbol('k')",
        5,
        "f uses the symbol 'k', which is not its parameter",
    ),
    "undeclared symbol of a parameter's name": ("def f(x): return x * Symbol('x')", 5, "'x'"),
    "unsupported function": ("def f(x): return besselj(0, x)", 5, "besselj"),
    "undefined function": ("def f(x): return Function('g')(x)", 5, "g"),
    "integral": ("def f(x): return Integral(exp(-x**2), x)", 5, "f"),
    "sum": ("def f(x, n: int = 3): return Sum(x**n, (n, 0, 9))", 5, "f"),
    "*args": ("def f(*args): return args[0]", 5, "*args: a formula has a fixed list"),
    "**options": ("def f(x, **options): return x", 5, "**options"),
    "positional only": ("def f(x, /): return x", 5, "positional-only"),
    "no parameter": ("def f(): return pi", 5, "f has no tensor"),
    "no tensor": ("def f(b: float = 1.0): return b", 5, "f has no tensor"),
    "default that is a string": ("def f(x, b='one'): return x", 5, "'b' is 'one', not a number"),
    "default that is a list": ("def f(x, b: float = []): return x", 5, "'b' is [], not a number"),
    "default nan": ("def f(x, b: float = float('nan')): return x", 5, "'b' is nan"),
    "default inf": ("def f(x, b: float = float('inf')): return x", 5, "'b' is inf"),
    "default of a tensor": ("def f(x: Tensor = 1.0): return x", 5, "tensor 'x' has the default"),
    "int with a fraction": ("def f(x, n: int = 1.5): return x", 5, "'n' is an int"),
    "annotation": ("def f(x: str): return x", 5, "'x' is annotated str"),
    "annotation that is not there": ("def f(x: Tensr): return x", None, "Tensr"),
    "order": ("def f(b: float, x): return x", 5, "'x' follows 'b'"),
    "underscore": ("def f(_x): return _x", 5, "'_x' starts with an underscore"),
    "reserved": ("def f(x, device: float = 1.0): return x", 5, "'device'"),
    "truth value": ("def f(x):\n    return x if x > 0 else 0", 6, "Piecewise"),
    "equality": ("def f(x, n: int = 2):\n    return x if n == 0 else x**n", 6, "n == 0 is decided"),
    "equality of what came of it": (
        "def f(x):\n    t = log(x)\n    if t != 0: return x / t\n    return x",
        7,
        "t != 0 is decided",
    ),
    "math.exp": ("def f(x):\n    import math\n    return math.exp(x)", 7, "from sympy import"),
    "exception": ("def f(x):\n    y = [x]\n    return y[1]", 7, "f raised IndexError"),
    "recursion": ("def f(x):\n    return g(x)\ndef g(x):\n    return f(x)", 5, "f recurses"),
    "sys.exit": ("def f(x):\n    import sys\n    sys.exit(0)", 7, "SystemExit"),
    "quit": ("def f(x):\n    raise KeyboardInterrupt", None, "KeyboardInterrupt"),
    "loop": ("def f(x):\n    while True: x = x", 6, "loading took longer than 1 s"),
    "loop in C": ("def f(x):\n    return x * 9**9**9", 6, "loading took longer than 1 s"),
    "os._exit": ("def f(x):\n    import os\n    os._exit(1)", 5, "ended itself with exit code 1"),
    "too many variants": (
        "def f(x, a: bool, b: bool, c: bool, d: bool, e: bool): return x",
        5,
        "32 combinations",
    ),
    "class case": ("def F(x): return x", 5, "leaves no name for its module"),
}


@pytest.mark.parametrize("case", BODIES)
def test_formulas(case: str, here: Path) -> None:
    body, line, message = BODIES[case]
    (here / "f.py").write_text(f"{HEAD}@formula\n{body}\n")
    result = gen("f.py", "--no-verify", *patience(message))
    refused(result, message, f"f.py:{line}: " if line else "f.py:")
    assert os.listdir(here) == ["f.py"]


def test_a_formula_without_a_name(here: Path) -> None:
    (here / "f.py").write_text(f"{HEAD}\nf = formula(lambda x: x)\n")
    refused(gen("f.py", "--no-verify"), "f.py:5: ", "<lambda>")


def test_an_unsupported_function_is_named_with_the_nearest_supported_one(here: Path) -> None:
    (here / "f.py").write_text(f"{HEAD}@formula\ndef f(x): return loggamma(x) + erfinv(x)\n")
    refused(gen("f.py", "--no-verify"), "f.py:5: ", "erfinv", "erf")


def test_two_formulas_of_one_name(here: Path) -> None:
    text = f"{HEAD}@formula\ndef f(x): return x\n@formula\ndef f(x): return 2*x\n"
    (here / "f.py").write_text(text)
    refused(gen("f.py", "--no-verify"), "f.py:7: two formulas are named 'f': here and in line 5")
    assert os.listdir(here) == ["f.py"]


# --- names -----------------------------------------------------------------------------------

NAMES = """
    double float int half long short auto template typename struct union volatile register
    INFINITY NAN NULL M_PI HUGE_VAL EOF RAND_MAX errno linux unix major minor signbit
    threadIdx blockIdx blockDim gridDim warpSize dim3 float4 __global__ x y I
    ctx torch nn math self cls grad Tensor Function Module forward backward apply result
    saved output inputs out grad_output match type print β Ωμέγα 变量 й
""".split()


@pytest.mark.slow
def test_names_that_other_languages_keep_for_themselves(here: Path) -> None:
    """Each is generated, or refused with a remedy; never a broken package."""
    for name in NAMES:
        (here / "f.py").write_text(
            f"from autofn import formula\n@formula\ndef f({name}, other: float = 2.0):\n"
            f"    return other * {name}**2\n"
            f"@formula\ndef g(other, {name}: float = 2.0):\n    return {name} * other**2\n"
        )
        result = gen("f.py", "--no-verify")
        if name.startswith("_"):
            refused(result, f"'{name}' starts with an underscore")
        else:
            assert result.exit_code == 0, f"{name}: {result.output}"
            for path in (here / "generated").rglob("*.py"):
                compile(path.read_bytes(), str(path), "exec")


def test_such_names_compile_and_compute(here: Path) -> None:
    """The verification compiles the kernels and calls the functions."""
    (here / "f.py").write_text(
        dedent(
            """
            from autofn import Learnable, formula
            @formula
            def int_(double, ctx, torch: Learnable = 1.5, β: float = 1.0,
                     INFINITY: float = 2.0, half: float = 2.0, threadIdx: float = 1.5,
                     NULL: float = 0.5, self: float = 1.0):
                return (double * INFINITY + ctx * torch + β * half) * threadIdx + NULL
            """
        )
    )
    result = gen("f.py")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", ["double", "template", "torch", "print", "βήτα", "σ", "test"])
def test_formulas_of_such_names(name: str, here: Path) -> None:
    (here / "f.py").write_text(
        f"from autofn import formula\n@formula\ndef {name}(x): return x**2\n"
    )
    result = gen("f.py", "--no-verify")
    if result.exit_code:
        refused(result, name)
    else:
        assert (here / "generated" / name / "__init__.py").is_file()


# --- hostile expressions ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch owned')",
        "().__class__.__base__.__subclasses__()",
        "(lambda: open('owned', 'w'))()",
        "[open('owned', 'w') for x in (1,)]",
        'f\'{open("owned", "w")}\'',
        "9**9**9",
        "x**9**9**9",
        "10**10**10",
        "(2*x)**(10**9)",
        "gamma(10**9)",
        "(" * 10_000 + "x" + ")" * 10_000,
        "-" * 10_000 + "x",
        "[" * 3_000,
        "exp(" * 900,
        "x" + "+x" * 100_000,
        "'" + "x" * 100_000,
        "\ud800",
        "x\0y",
    ],
    ids=lambda text: text[:20].encode("ascii", "backslashreplace").decode().replace("\0", "0"),
)
def test_hostile_expressions(text: str, here: Path) -> None:
    begun = time.monotonic()
    refused(gen("--expr", text, "--name", "f"), "the expression")
    assert time.monotonic() - begun < 30
    assert not list(here.iterdir())


# --- output folders --------------------------------------------------------------------------


@pytest.fixture
def square(here: Path) -> str:
    text = "from autofn import formula\n@formula\ndef square(x): return {}\n"
    (here / "square.py").write_text(text.format("x**2"))
    return "square.py"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }


def test_an_output_folder_that_is_a_file(square: str, here: Path) -> None:
    (here / "generated").write_text("mine")
    refused(gen(square, "--no-verify"), "generated is a file, not a folder")
    (here / "out").mkdir()
    (here / "out" / "square").write_text("mine")
    refused(gen(square, "--no-verify", "-o", "out"), "square is a file, not a folder")
    assert (here / "generated").read_text() == (here / "out" / "square").read_text() == "mine"


def test_a_hand_written_file_of_that_name(square: str, here: Path) -> None:
    place = here / "generated" / "square" / "__init__.py"
    place.parent.mkdir(parents=True)
    place.write_text("mine\n")
    before = contents(here)
    refused(gen(square, "--no-verify"), "__init__.py was not generated by autofn")
    refused(gen(square, "--no-verify", "--force"), "__init__.py was not generated by autofn")
    assert contents(here) == before


def test_a_read_only_output_folder(square: str, here: Path, monkeypatch) -> None:
    out = here / "out"
    out.mkdir(mode=0o555)
    if os.access(out, os.W_OK):  # root may write everywhere

        def refuse(folder: Path) -> None:
            raise PermissionError(errno.EACCES, "Permission denied", str(out))

        monkeypatch.setattr("autofn.install._sibling", refuse)
    refused(gen(square, "--no-verify", "-o", "out"), "cannot be written: Permission denied")
    assert not list(out.iterdir())


@pytest.mark.parametrize("kind", ["full disk", "Ctrl-C"])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_the_old_version_survives(
    kind: str, call: int, square: str, here: Path, monkeypatch
) -> None:
    """A full disk and Ctrl-C, in the middle of the writing and of the moving."""
    assert gen(square, "--no-verify").exit_code == 0
    before = contents(here / "generated")
    (here / square).write_text((here / square).read_text().replace("x**2", "x**2 + sin(x)"
        ).replace("import formula", "import formula\nfrom sympy import sin"))  # fmt: skip
    error = OSError(errno.ENOSPC, "No space left on device")
    for owner, name in ((os, "replace"), (Path, "write_bytes")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, _failing(getattr(owner, name), call, kind, error))
            result = gen(square, "--no-verify")
        assert contents(here / "generated") == before
        if kind == "Ctrl-C":
            assert result.exit_code == 130
            assert "interrupted" in result.stderr
        else:
            refused(result, "No space left on device", "free some space")
    assert gen(square, "--no-verify").exit_code == 0
    assert contents(here / "generated") != before


def _failing(original, fail_at: int, kind: str, error: OSError):
    count = 0

    def call(*args, **options):
        nonlocal count
        count += 1
        if count == fail_at:
            raise error if kind == "full disk" else KeyboardInterrupt
        return original(*args, **options)

    return call


@pytest.mark.skipif(sys.platform != "linux", reason="needs a small file system of its own")
def test_a_disk_that_is_really_full(square: str, here: Path) -> None:
    """In a file system of 64 KiB, where this process may make one."""
    script = f"""
        set -e
        mkdir small
        mount -t tmpfs -o size=224k,nr_inodes=64 tmpfs small
        {sys.executable} -m autofn gen {square} --no-verify -q -o small
        cp -r small before
        sed -i 's/x\\*\\*2/x**3/' {square}
        head -c 1000000 /dev/zero > small/filler || true
        {sys.executable} -m autofn gen {square} --no-verify -q -o small && exit 9
        rm small/filler
        diff -r small before
        test "$(ls -A small)" = square
    """
    # A mount namespace of its own needs no privileges where the kernel lets users have one.
    result = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "bash", "-c", dedent(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    if "unshare" in result.stderr or "mount:" in result.stderr:
        pytest.skip(f"no file system to be had: {result.stderr.strip()}")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "No space left on device" in result.stderr
    assert "remedy: free some space" in result.stderr
