"""What `gen` does not do twice, and what makes it do it again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click.testing
import pytest

from autofn import records
from autofn.cli import cli
from autofn.package import Package
from autofn.reading import Input, state
from autofn.source import ExprSource, FileSource
from autofn.verify.report import Report, Row

FORMULA = """\
from autofn import formula
from helper import twice

FACTOR = float(open("factor.txt").read())

@formula
def f(x):
    return FACTOR * twice(x)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    """A formula file that imports a module and reads a file, long since written; an own cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOFN_CACHE_DIR", str(tmp_path / "cache"))
    save("f.py", FORMULA)
    save("helper.py", "def twice(x):\n    return 2 * x\n")
    save("factor.txt", "3")
    return tmp_path


def save(path: str, text: str) -> None:
    """Written some time ago: what was written just now may still be being written."""
    Path(path).write_text(text)
    before = time.time() - 5
    os.utime(path, (before, before))


@pytest.fixture
def count(monkeypatch, tmp_path: Path):
    """How many verifications there were; they run in processes of their own."""
    done = tmp_path / "verifications"
    done.write_text("")

    def verify_package(package: Package, definition, *, on_row=None, **_) -> Report:
        with done.open("a") as file:
            file.write("x")
        failing = "fails" in definition.doc
        return Report(package.name, (Row("PyTorch", "values", "failed" if failing else "passed"),))

    monkeypatch.setattr("autofn.verify.verify_package", verify_package)
    return lambda: len(done.read_text())


def gen(*arguments: str) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, ["gen", *arguments])
    assert "Traceback" not in result.output
    return result


def test_nothing_is_done_twice(here: Path, count, monkeypatch) -> None:
    assert "files written; verified: 1 passed" in gen("f.py").stdout
    with monkeypatch.context() as patch:
        patch.setattr("autofn.isolate.run", None)  # not even loaded
        again = gen("f.py")
        assert (again.exit_code, again.stdout) == (
            0,
            "generated/f: unchanged; verified before: 1 passed\n",
        )
        assert gen("f.py", "--check").stdout == "generated/f: up to date\n"
        assert "unchanged" in gen("f.py", "--no-verify").stdout
        assert gen("f.py", "-q").output == ""
    assert count() == 1
    assert "verified: 1 passed" in gen("f.py", "--force").stdout
    assert count() == 2


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("f.py", FORMULA.replace("FACTOR * twice(x)", "FACTOR * twice(x)**2")),
        ("helper.py", "def twice(x):\n    return x + x + 1\n"),
        ("factor.txt", "4"),
    ],
)
def test_what_was_read_counts(path: str, text: str, here: Path, count) -> None:
    gen("f.py")
    save(path, text)
    assert gen("f.py", "--check").exit_code == 1
    assert "files written; verified: 1 passed" in gen("f.py").stdout
    assert count() == 2


def test_a_file_that_is_gone_counts(here: Path, count) -> None:
    gen("f.py")
    Path("helper.py").unlink()
    result = gen("f.py")
    assert result.exit_code == 2
    assert "No module named 'helper'" in result.stderr


def test_the_same_package_is_not_verified_again(here: Path, count) -> None:
    gen("f.py")
    save("f.py", f"# A comment.\n{FORMULA}")
    assert gen("f.py").stdout == "generated/f: unchanged; verified before: 1 passed\n"
    assert count() == 1


def test_what_was_not_verified_is(here: Path, count) -> None:
    assert "not verified" in gen("f.py", "--no-verify").stdout
    assert "unchanged; not verified" in gen("f.py", "--no-verify").stdout
    assert "unchanged; verified: 1 passed" in gen("f.py").stdout
    assert count() == 1


def test_a_failed_verification_is_not_done(here: Path, count) -> None:
    save("f.py", FORMULA.replace("(x):\n", "(x):\n    'It fails.'\n", 1))
    assert gen("f.py").exit_code == 3
    assert gen("f.py").exit_code == 3
    assert count() == 2
    gen("f.py", "--no-verify")
    assert gen("f.py").exit_code == 3


def test_a_hand_edited_package_is_noticed(here: Path, count) -> None:
    gen("f.py")
    path = Path("generated/f/maths.py")
    before = path.read_bytes()
    path.write_bytes(before + b"# by hand\n")
    drift = gen("f.py", "--check")
    assert drift.exit_code == 1
    assert "-# by hand" in drift.stdout
    assert "1 files written" in gen("f.py").stdout
    assert path.read_bytes() == before
    path.unlink()
    assert gen("f.py", "--check").exit_code == 1


def test_one_of_several_formulas(here: Path, count) -> None:
    two = FORMULA + "\n@formula\ndef g(x):\n    return {}\n"
    save("f.py", two.format("x"))
    gen("f.py")
    assert count() == 2
    save("f.py", two.format("x**2"))
    shown = gen("f.py").stdout.splitlines()
    assert shown[0] == "generated/f: unchanged; verified before: 1 passed"
    assert count() == 3
    save("f.py", two.format("None"))
    assert gen("f.py").exit_code == 2
    assert gen("f.py").exit_code == 2
    assert count() == 3


def test_another_folder_and_another_autofn_are_others(here: Path, count, monkeypatch) -> None:
    gen("f.py")
    gen("f.py", "-o", "there")
    assert count() == 2
    monkeypatch.setattr(records, "tool", lambda: "another")
    gen("f.py")
    assert count() == 3


def test_two_files_with_the_same_formula(here: Path, count) -> None:
    save("g.py", FORMULA)
    assert gen("f.py").exit_code == 0
    for _ in range(2):
        result = gen("f.py", "g.py")
        assert result.exit_code == 2
        assert "g.py:1: two formulas are named 'f': the one of f.py was taken" in result.stderr


def test_an_expression(here: Path, count) -> None:
    for text in ("x**2", "x**2", "x**3"):
        gen("--expr", text)
    assert count() == 2
    assert records.recall(ExprSource("x**3"), "generated").current
    assert not records.recall(ExprSource("x**4"), "generated").current


def test_what_changed_while_it_was_read_is_read_again(here: Path, count) -> None:
    Path("f.py").write_text(FORMULA)  # now
    os.utime("f.py", (time.time() + 5, time.time() + 5))
    gen("f.py")
    assert not records.recall(FileSource("f.py"), "generated").current


def test_a_cache_that_cannot_be_written(here: Path, count, monkeypatch) -> None:
    (here / "file").write_text("")
    monkeypatch.setenv("AUTOFN_CACHE_DIR", str(here / "file"))
    assert gen("f.py").exit_code == 0
    assert gen("f.py").exit_code == 0
    assert count() == 2


def test_a_damaged_record(here: Path, count) -> None:
    gen("f.py")
    (path,) = (here / "cache" / "records").iterdir()
    for damage in ("", "[]", '{"tool": 1}'):
        path.write_text(damage)
        assert records.recall(FileSource("f.py"), "generated") == records.NONE


def test_old_records_go(here: Path, count) -> None:
    gen("f.py")
    (old,) = (here / "cache" / "records").iterdir()
    os.utime(old, (1e9, 1e9))
    gen("f.py", "-o", "there")
    assert not old.exists()


def test_states_of_files(here: Path) -> None:
    assert state("f.py") == state(str(here / "f.py")) != state("helper.py")
    assert state("nowhere") == "absent"
    assert Input(str(here / "f.py"), state("f.py")).own
    assert not Input(click.__file__, state(click.__file__)).own
