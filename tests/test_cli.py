"""The command line: what each command prints, writes and exits with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import click.testing
import pytest

import autofn
from autofn.cli import cli
from autofn.package import Package
from autofn.verify.report import Report, Row, telling

ROOT = Path(__file__).resolve().parent.parent

SWISH = """
from sympy import exp
from autofn import formula

@formula
def swish(x, beta: float = 1.0):
    '''Swish.'''
    return x / (1 + exp(-beta * x))
"""

FORMULA = "from autofn import formula\n@formula\ndef {name}(x):\n    return {body}\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(here: Path):
    def write(name: str, text: str | None = None, body: str = "2 * x") -> str:
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            dedent(text) if text is not None else FORMULA.format(name=path.stem, body=body)
        )
        return name

    return write


def call(*arguments: str) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, list(arguments))
    assert "Traceback" not in result.output
    return result


def process(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    command = [sys.executable, "-m", "autofn", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, **options)


def verified(*rows: Row):
    """A stand-in for verification: the row is the same for every package."""

    def verify_package(package: Package, definition, *, on_row=None, **_) -> Report:
        for row in rows:
            if on_row:
                on_row(row)
        return Report(package.name, rows)

    return verify_package


PASSED = Row("PyTorch", "gradcheck", "passed", "6 cases")
NOT_RUN = Row("CUDA kernel on GPU", "all checks", "not run", "no GPU here")
FAILED = Row("PyTorch", "vmap", "failed", "out: x=1: expected 2, got 3")


@pytest.fixture
def green(monkeypatch) -> None:
    monkeypatch.setattr("autofn.verify.verify_package", verified(PASSED, NOT_RUN))


@pytest.fixture
def red(monkeypatch) -> None:
    monkeypatch.setattr("autofn.verify.verify_package", verified(PASSED, FAILED))


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# --- the group -------------------------------------------------------------------------------


def test_help_and_version() -> None:
    assert call("--version").stdout == f"autofn, version {autofn.__version__}\n"
    result = call("--help")
    assert result.exit_code == 0
    for command in ("gen", "verify", "show", "list", "new"):
        assert command in result.stdout
        assert call(command, "--help").exit_code == 0


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom autofn.cli import cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        "cli.main(['list'], standalone_mode=False)\n"
        "assert not {'torch', 'sympy', 'jinja2', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)


def test_generating_without_verification_needs_no_torch(write, here: Path) -> None:
    write("nowhere/torch.py", "raise ImportError('torch is not to be imported')\n")
    path = os.pathsep.join([str(here / "nowhere"), str(ROOT)])
    result = process("gen", write("swish.py", SWISH), "--no-verify", env={"PYTHONPATH": path})
    assert result.returncode == 0, result.stderr
    assert (here / "generated" / "swish" / "__init__.py").is_file()


def test_usage_errors() -> None:
    for arguments in (
        ["gen"],
        ["nonsense"],
        ["gen", "--nonsense"],
        ["gen", "swish", "-j", "0"],
        ["gen", "swish", "--timeout", "0"],
        ["gen", "swish", "--expr", "x"],
        ["gen", "swish", "--name", "f"],
        ["gen", "--expr", "x*b", "--param", "b=one"],
        ["gen", "--expr", "x*b", "--param", "1=2"],
        ["verify"],
        ["show"],
    ):
        result = call(*arguments)
        assert result.exit_code == 2, arguments
        assert result.stderr.startswith("error: "), arguments
        assert "remedy: " in result.stderr


def test_a_defect_is_one_line_and_exit_code_70(write, here: Path, monkeypatch) -> None:
    def defect(definition, *extras, **options) -> None:
        raise ZeroDivisionError("oh\nno")

    monkeypatch.setattr("autofn.pipeline.generate", defect)
    monkeypatch.delenv("AUTOFN_DEBUG", raising=False)
    result = call("gen", write("f.py"), "--no-verify")
    assert result.exit_code == 70
    assert result.stderr == (
        "f.py:3: internal error in f: ZeroDivisionError: oh; please report it "
        "(AUTOFN_DEBUG=1 shows the traceback)\n"
    )
    monkeypatch.setenv("AUTOFN_DEBUG", "1")
    shown = click.testing.CliRunner().invoke(cli, ["gen", "f.py", "--no-verify"])
    assert "Traceback" in shown.stderr
    assert shown.exit_code == 70


def test_a_defect_of_the_command_itself(monkeypatch) -> None:
    def defect() -> None:
        raise ZeroDivisionError("oh no")

    monkeypatch.setattr("autofn.cli.library.library", defect)
    result = call("list")
    assert result.exit_code == 70
    assert "internal error: ZeroDivisionError: oh no; please report it" in result.stderr


def test_a_closed_pipe_is_no_error(here: Path) -> None:
    command = f"{sys.executable} -m autofn list | head -n 1"
    result = subprocess.run(
        command, shell=True, cwd=here, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.stderr == ""
    assert len(result.stdout.splitlines()) == 1


# --- gen -------------------------------------------------------------------------------------


def test_gen_writes_a_package(write, here: Path) -> None:
    result = call("gen", write("swish.py", SWISH), "--no-verify")
    assert result.exit_code == 0
    assert result.stdout.startswith("generated/swish: ")
    assert "not verified" in result.stdout
    assert result.stderr == ""
    before = files(here)
    assert "generated/swish/manifest.json" in before
    again = call("gen", "swish.py", "--no-verify")
    assert "unchanged" in again.stdout
    assert files(here) == before
    assert os.listdir(here / "generated") == ["swish"]


def test_gen_into_another_folder_quietly(write, here: Path) -> None:
    result = call("gen", write("swish.py", SWISH), "--no-verify", "-o", "a/b", "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    assert (here / "a" / "b" / "swish").is_dir()
    assert not (here / "generated").exists()


@pytest.mark.usefixtures("green")
def test_gen_verifies_and_shows_the_table(write, here: Path) -> None:
    result = call("gen", write("swish.py", SWISH))
    assert result.exit_code == 0
    assert "gradcheck" in result.stdout
    assert "not run" in result.stdout
    assert "no GPU here" in result.stdout
    assert "verified: 1 passed, 1 not run" in result.stdout
    assert "\x1b" not in result.output


@pytest.mark.usefixtures("green")
def test_gen_of_several_files_shows_a_line_each(write) -> None:
    result = call("gen", write("f.py"), write("g.py"))
    assert result.exit_code == 0
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == [
        "generated/f",
        "generated/g",
    ]


@pytest.mark.usefixtures("red")
def test_a_failed_verification_is_not_installed(write, here: Path) -> None:
    call("gen", write("f.py"), "--no-verify")
    before = files(here / "generated")
    result = call("gen", write("f.py", body="3 * x"))
    assert result.exit_code == 3
    assert "expected 2, got 3" in result.stdout
    assert "gradcheck" in result.stdout
    assert "f failed its verification and was not written" in result.stderr
    assert "remedy" in result.stderr
    assert files(here / "generated") == before
    several = call("gen", "f.py", write("g.py"))
    assert several.exit_code == 3
    assert "expected 2, got 3" in several.stdout
    assert "gradcheck" not in several.stdout


def test_gen_of_a_library_name(here: Path) -> None:
    result = call("gen", "mish", "--no-verify")
    assert result.exit_code == 0, result.output
    assert (here / "generated" / "mish" / "__init__.py").is_file()
    assert '"source": "mish.py"' in (here / "generated" / "mish" / "manifest.json").read_text()


def test_a_path_wins_over_a_library_name(here: Path) -> None:
    (here / "mish").write_text("not Python")
    result = call("gen", "mish", "--no-verify")
    assert result.exit_code == 2
    assert "mish is not a Python file" in result.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("swihs", "did you mean swish?"),
        ("quick-gelu", "did you mean quick_gelu?"),
        ("nothing_like_it_at_all", "autofn list"),
        ("missing.py", "no such file: missing.py\n  remedy: check the path"),
        ("mish.py", "for the library's formula: autofn gen mish"),
        (os.path.join("no", "where"), "no such file"),
    ],
)
def test_unknown_names(name: str, message: str, here: Path) -> None:
    result = call("gen", name)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not list(here.iterdir())


def test_each_formula_stands_alone(write, here: Path) -> None:
    write("good.py")
    write("bad.py", body="None")
    write("worse.py", "x = (\n")
    result = call("gen", "missing.py", "bad.py", "good.py", "worse.py", "--no-verify", "-j2")
    assert result.exit_code == 2
    assert os.listdir(here / "generated") == ["good"]
    for message in ("no such file", "bad.py:3: bad returns None", "worse.py:1: syntax error"):
        assert message in result.stderr


def test_gen_of_a_folder(write, here: Path) -> None:
    write("lib/b.py")
    write("lib/a.py", "import helper\nfrom autofn import formula\n@formula\n"
          "def a(x): return helper.two(x)\n@formula\ndef a2(x): return x\n")  # fmt: skip
    write("lib/helper.py", "from autofn.functions import relu\ndef two(x): return relu(x)\n")
    write("lib/train.py", "raise SystemExit('this file is not to be executed')\n")
    write("lib/notes.txt", "")
    result = call("gen", "lib", "--no-verify", "-j", "2")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == [
        "generated/a",
        "generated/a2",
        "generated/b",
    ]
    assert not list((here / "lib").glob("__pycache__"))


def test_a_folder_without_formulas(write, here: Path) -> None:
    write("empty/train.py", "x = 1\n")
    assert "no formula file in empty" in call("gen", "empty").stderr
    write("helpers/h.py", "import autofn\n")
    result = call("gen", "helpers")
    assert result.exit_code == 2
    assert "no formula was found" in result.stderr


def test_two_formulas_of_one_name(write, here: Path) -> None:
    write("a.py", FORMULA.format(name="f", body="x"))
    write("b.py", FORMULA.format(name="f", body="2*x"))
    result = call("gen", "a.py", "b.py", "--no-verify", "-j2")
    assert result.exit_code == 2
    assert "b.py:1: two formulas are named 'f': the one of a.py was taken" in result.stderr
    assert "a.py" in (here / "generated" / "f" / "manifest.json").read_text()


def test_a_file_named_twice_is_generated_once(write) -> None:
    write("f.py")
    result = call("gen", "f.py", os.path.join(".", "f.py"), "--no-verify")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 1


def test_another_source_needs_force(write, here: Path) -> None:
    write("a.py", FORMULA.format(name="f", body="x"))
    write("b.py", FORMULA.format(name="f", body="2*x"))
    assert call("gen", "a.py", "--no-verify").exit_code == 0
    refused = call("gen", "b.py", "--no-verify")
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    drift = call("gen", "b.py", "--check")
    assert drift.exit_code == 1
    assert "source: generated/f was generated from a.py, not from b.py" in drift.stdout
    assert "it was generated from another file" in drift.stderr
    assert "replace it with --force" in drift.stderr
    assert call("gen", "b.py", "--no-verify", "--force").exit_code == 0


def test_check(write, here: Path) -> None:
    write("f.py")
    missing = call("gen", "f.py", "--check")
    assert missing.exit_code == 1
    assert "missing: generated/f does not exist" in missing.stdout
    assert "generated/f is not what f.py gives: it was never generated" in missing.stderr
    assert "remedy: autofn gen f.py writes it" in missing.stderr
    assert not (here / "generated").exists()

    call("gen", "f.py", "--no-verify")
    same = call("gen", "f.py", "--check")
    assert (same.exit_code, same.stdout) == (0, "generated/f: up to date\n")

    edited = here / "generated" / "f" / "__init__.py"
    edited.write_text(edited.read_text() + "# by hand\n")
    before = files(here)
    drift = call("gen", "f.py", "--check", "--quiet")
    assert drift.exit_code == 1
    assert "\n-# by hand\n" in drift.stdout
    assert "error: generated/f is not what f.py gives: it was edited by hand\n" in drift.stderr
    assert "autofn explain drift" in drift.stderr
    assert files(here) == before
    call("gen", "f.py", "--no-verify")

    write("f.py", body="3 * x")
    changed = call("gen", "f.py", "--check")
    assert changed.exit_code == 1
    assert "generated/f is not what f.py gives: the formula was changed" in changed.stderr
    assert "+    f(x) = 3*x\n" in changed.stdout
    assert "kernel.h" not in changed.stdout
    assert "files differ in the formula's hash only\n" in changed.stdout

    elsewhere = call("gen", "f.py", "--check", "-o", "other")
    assert "remedy: autofn gen f.py -o other writes it" in elsewhere.stderr

    bad = call("gen", "f.py", write("bad.py", body="None"), "--check")
    assert bad.exit_code == 2


def test_progress_names_checks_that_ran() -> None:
    told: list[str] = []
    on_row = telling(lambda doing, seconds: told.append(doing))
    for row in (NOT_RUN, PASSED, NOT_RUN):
        on_row(row)
    assert told == ["verifying (so far: PyTorch, gradcheck)"]


def test_without_a_command_the_help_is_shown() -> None:
    result = call()
    assert result.exit_code == 2
    assert result.output.startswith("Usage: ")
    assert "error" not in result.output.split("Commands:")[0]


def test_without_a_file_and_a_project() -> None:
    result = call("gen")
    assert result.exit_code == 2
    assert "no FILE is given, and this folder is in no project" in result.stderr
    assert "autofn init" in result.stderr.partition("remedy: ")[2]


def test_expressions(here: Path) -> None:
    result = call("gen", "--expr", "x*tanh(b*exp(x))", "--name", "te", "--param", "b=1.0",
                  "--no-verify")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert (here / "generated" / "te" / "manifest.json").is_file()
    assert call("gen", "--expr", "gamma*x", "--param", "gamma=2", "--no-verify").exit_code == 0
    assert (here / "generated" / "f").is_dir()
    assert call("gen", "--expr", "k*x", "--param", "k", "--no-verify", "-q").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--expr", "x^2"], "column 1 of the expression: `^` is not a power"),
        (["--expr", "9**9**9*x"], "too large"),
        (["--expr", "x", "--name", "a b"], "'a b' is no name for a formula"),
        (["--expr", "x", "--name", "class"], "'class' is no name"),
        (["--expr", "x", "--name", "Swish"], "swish"),
        (["--expr", "x", "--param", "b=1"], "'b' does not occur"),
        (["--expr", "b*x", "--param", "b=nan"], "nan"),
        (["--expr", "b*x", "--param", "b=1", "--param", "b=2"], "--param gives b twice"),
        (["--expr", "gelu(x, approximate='tanh')"], "options are for a formula file"),
        (["--expr", "dtype*x"], "--expr:1: 'dtype' is an argument that the generated module has"),
        (["--expr", "3", "--name", "c"], "no tensor"),
        (["--expr", "class*x"], "cannot be read"),
    ],
)
def test_bad_expressions(arguments: list[str], message: str, here: Path) -> None:
    result = call("gen", *arguments, "--no-verify")
    assert result.exit_code == 2
    assert message in result.stderr
    assert "remedy" in result.stderr
    assert not list(here.iterdir())


def test_output_does_not_depend_on_seed_folder_or_jobs(write, here: Path) -> None:
    write("one/swish.py", SWISH)
    write("one/g.py", FORMULA.format(name="g", body="x**3 + 4*x"))
    shutil.copytree(here / "one", here / "two")
    process("gen", "one", "--no-verify", "-o", "a", cwd=here, env={"PYTHONHASHSEED": "1"})
    process("gen", "g.py", "swish.py", "--no-verify", "-j2", "-o", "../b", cwd=here / "two",
            env={"PYTHONHASHSEED": "2"})  # fmt: skip
    assert len(files(here / "a")) > 8
    assert files(here / "a") == files(here / "b")


# --- verify, show, list, new -----------------------------------------------------------------


@pytest.mark.usefixtures("green")
def test_verify(write, here: Path) -> None:
    write("f.py")
    fresh = call("verify", "f.py")
    assert fresh.exit_code == 0
    assert "f (as generated now): 1 passed, 1 not run" in fresh.stdout
    missing = call("verify", "f.py", "-o", "generated")
    assert missing.exit_code == 2
    assert "autofn gen" in missing.stderr
    call("gen", "f.py", "--no-verify", "-q")
    assert "f (generated/f): 1 passed" in call("verify", "f.py", "--full").stdout
    assert call("verify", "f.py", "-q").output == ""
    (here / "generated" / "f" / "__init__.py").unlink()
    assert "__init__.py is missing" in call("verify", "f.py").stderr


@pytest.mark.usefixtures("red")
def test_verify_that_fails(write) -> None:
    result = call("verify", write("f.py"), write("g.py"), write("bad.py", body="None"), "-q")
    assert result.exit_code == 2
    assert result.stdout.count("expected 2, got 3") == 2
    assert call("verify", "f.py").exit_code == 3


def test_verify_looks_at_the_files_as_they_are(write, here: Path, monkeypatch) -> None:
    def look(package: Package, definition, *, on_row=None, **_) -> Report:
        status = "failed" if "tampered" in package.text("__init__.py") else "passed"
        return Report(package.name, (Row("PyTorch", "values", status),))

    monkeypatch.setattr("autofn.verify.verify_package", look)
    call("gen", write("f.py"), "--no-verify")
    assert call("verify", "f.py").exit_code == 0
    path = here / "generated" / "f" / "__init__.py"
    path.write_text(path.read_text() + "# tampered\n")
    assert call("verify", "f.py").exit_code == 3


def test_show(write, here: Path) -> None:
    result = call("show", write("swish.py", SWISH))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "beta" in result.stdout
    assert not (here / "generated").exists()
    assert call("show", "--expr", "x*tanh(exp(x))").exit_code == 0
    assert call("show", "mish").exit_code == 0
    # Its gradient from the saved output has heads in it.
    assert "out: 4 bytes per element in float32, loses digits" in call("show", "tanh").stdout
    assert call("show", write("bad.py", body="None")).exit_code == 2


def test_list() -> None:
    result = call("list")
    assert result.exit_code == 0
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert any(line.startswith("swish ") and "arXiv:1710.05941" in line for line in lines)
    assert {"Activation", "Loss", "Physics"} <= set(lines)
    assert all(line == line.rstrip() for line in result.stdout.splitlines())
    names = [path.stem for path in (ROOT / "formulas").glob("*.py")]
    assert all(any(line.split(" ")[0] == name for line in lines) for name in names)


def test_new(here: Path) -> None:
    result = call("new", "my_op")
    assert result.exit_code == 0
    assert result.stdout == "wrote my_op.py; next: autofn gen my_op.py\n"
    before = (here / "my_op.py").read_text()
    again = call("new", "my_op.py")
    assert again.exit_code == 2
    assert "my_op.py exists" in again.stderr
    assert (here / "my_op.py").read_text() == before
    assert call("gen", "my_op.py", "--no-verify").exit_code == 0
    assert (here / "generated" / "my_op").is_dir()


@pytest.mark.parametrize("name", ["exp", "x", "beta", "formula", "β_act", "a1"])
def test_new_works_for_any_name(name: str, here: Path) -> None:
    assert call("new", name).exit_code == 0
    result = call("gen", f"{name}.py", "--no-verify")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    "name", ["", "1a", "a-b", "class", "a b", "../a", "a/b", "_a", "Swish", "random", "torch"]
)
def test_new_refuses_names(name: str, here: Path) -> None:
    result = call("new", name)
    assert result.exit_code == 2
    assert "remedy" in result.stderr
    assert not list(here.iterdir())


def test_new_generates_and_verifies_as_it_is(here: Path) -> None:
    """The real verification, once."""
    assert process("new", "my_op", cwd=here).returncode == 0
    result = process("gen", "my_op.py", cwd=here)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "gradcheck" in result.stdout
    assert (here / "generated" / "my_op" / "__init__.py").is_file()


# --- terminals -------------------------------------------------------------------------------


def in_terminal(arguments: list[str], here: Path, **env: str) -> str:
    """What a command prints to a terminal, both streams together."""
    pty = pytest.importorskip("pty")
    main, side = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **env}
    child = subprocess.Popen(
        [sys.executable, "-m", "autofn", *arguments],
        cwd=here, env=environment, stdin=side, stdout=side, stderr=side,
    )  # fmt: skip
    os.close(side)
    shown = b""
    while True:
        try:
            data = os.read(main, 65536)
        except OSError:  # Linux, at the end
            break
        if not data:
            break
        shown += data
    os.close(main)
    child.wait()
    return shown.decode()


def test_progress_and_colour_on_terminals_only(write, here: Path, monkeypatch) -> None:
    for variable in ("NO_COLOR", "FORCE_COLOR", "CI"):
        monkeypatch.delenv(variable, raising=False)
    write("slow.py", "import time\ntime.sleep(1.5)\n" + FORMULA.format(name="slow", body="None"))
    arguments = ["gen", "slow.py", "--no-verify"]
    shown = in_terminal(arguments, here)
    assert "loading" in shown
    assert "\x1b[1;31merror: " in shown
    plain = in_terminal(arguments, here, NO_COLOR="1")
    assert "\x1b[1;31m" not in plain
    assert "error: slow.py:5: slow returns None" in plain
    quiet = in_terminal([*arguments, "--quiet"], here)
    assert "loading" not in quiet
    piped = process(*arguments, cwd=here)
    assert "\x1b" not in piped.stdout + piped.stderr
    assert "loading" not in piped.stderr


def test_names_that_the_terminal_cannot_show(write, here: Path) -> None:
    write("f.py", FORMULA.format(name="β_act", body="None"))
    result = process("gen", "f.py", "--no-verify", cwd=here, env={"PYTHONIOENCODING": "ascii"})
    assert result.returncode == 2
    assert "\\u03b2_act returns None" in result.stderr
