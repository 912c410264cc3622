"""`gen --watch`: saved files, broken files, Ctrl-C; checks before, the verification behind."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import click.testing
import pytest

from autofn import pipeline
from autofn.cli import cli
from autofn.cli.actions import Extras
from autofn.cli.gen import Run
from autofn.cli.watch import _Watcher
from autofn.install import install, read, withdraw
from autofn.load import load_file
from autofn.package import Package
from autofn.source import FileSource
from autofn.stamps import Stamps
from autofn.verify.draft import CHECKS, Checker
from autofn.verify.report import Report, Row
from autofn.verify.tables import make_job

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 120.0

FORMULA = "from autofn import formula\n@formula\ndef f(x):\n    return {}\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOFN_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "f.py").write_text(FORMULA.format("x**2"))
    return tmp_path


class Session:
    """A `gen --watch` in a process of its own, and what it prints."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "autofn", "gen", "--watch", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self.lines: queue.Queue[str] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)

    def says(self, text: str) -> str:
        """Waits for a line with the text."""
        end, seen = time.monotonic() + PATIENCE, []
        while True:
            try:
                seen.append(self.lines.get(timeout=max(0.0, end - time.monotonic())))
            except queue.Empty:
                raise AssertionError(f"no {text!r} in {seen}") from None
            if text in seen[-1]:
                return seen[-1]

    def ends(self) -> int:
        self.process.send_signal(signal.SIGINT)
        self.says("ended")
        return self.process.wait(PATIENCE)


@pytest.fixture
def session(here: Path):
    """Starts sessions; none survives the test."""
    started: list[Session] = []

    def start(*arguments: str) -> Session:
        started.append(Session(*arguments))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


def maths(here: Path) -> str:
    return (here / "generated" / "f" / "maths.py").read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_saving_in_many_ways(here: Path, session) -> None:
    watch = session("f.py", "--no-verify")
    watch.says("files written")
    first = maths(here)

    (here / "f.py").write_text("from autofn import formula\n@formula\ndef f(x:\n")
    watch.says("error: f.py:3: syntax error")
    assert maths(here) == first

    # As editors save: another file, renamed; Windows line ends; a byte order mark.
    (here / "new").write_bytes(
        b"\xef\xbb\xbf" + FORMULA.format("x**3").replace("\n", "\r\n").encode()
    )
    os.replace(here / "new", here / "f.py")
    watch.says("files written")
    assert "x**3" in maths(here)

    (here / "f.py").write_bytes(b"# \xff\n" + FORMULA.format("x").encode())
    watch.says("error: f.py:1: the file is not UTF-8 text")
    (here / "f.py").unlink()
    watch.says("f.py is gone")
    assert "x**3" in maths(here)

    (here / "f.py").write_text("from helper import h\n" + FORMULA.format("h(x)"))
    watch.says("No module named 'helper'")
    (here / "helper.py").write_text("def h(x):\n    return x**4\n")
    watch.says("files written")
    assert "x**4" in maths(here)
    (here / "helper.py").write_text("def h(x):\n    return x**5\n")
    watch.says("files written")
    assert "x**5" in maths(here)
    assert watch.ends() == 0
    assert sorted(os.listdir(here / "generated")) == ["f"]


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_a_folder(here: Path, session) -> None:
    (here / "lib").mkdir()
    (here / "lib" / "g.py").write_text(FORMULA.replace("f(", "g(").format("x"))
    watch = session("lib", "--no-verify")
    watch.says("generated/g: ")
    (here / "lib" / "h.py").write_text(FORMULA.replace("f(", "g(").format("2*x"))
    watch.says("two formulas are named 'g': the one of lib/g.py was taken")
    (here / "lib" / "h.py").write_text(FORMULA.replace("f(", "h(").format("2*x"))
    watch.says("generated/h: ")
    assert watch.ends() == 0


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_a_draft_is_there_before_its_verification(here: Path, session) -> None:
    """The real checks, in the warm process."""
    watch = session("f.py")
    assert "quick checks passed" in watch.says("generated/f: ")
    (here / "f.py").write_text(FORMULA.format("x**3"))
    assert "quick checks passed" in watch.says("generated/f: ")
    assert "x**3" in maths(here)
    watch.process.send_signal(signal.SIGINT)
    watch.says("ended")
    watch.says("generated/f is not verified")
    assert watch.process.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.py"], "no such file"),
        (["f.py", "--check"], "--check"),
        (["--expr", "x"], "--expr"),
    ],
)
def test_what_cannot_be_watched(arguments: list[str], message: str, here: Path) -> None:
    result = click.testing.CliRunner().invoke(cli, ["gen", "--watch", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


def _broken_off(*_: object) -> None:
    """As a folder's removal that Ctrl-C strikes: its file is closed twice."""
    try:
        raise KeyboardInterrupt
    finally:
        os.close(-1)


def test_what_an_interrupt_breaks_off(here: Path, monkeypatch) -> None:
    monkeypatch.setattr(_Watcher, "run", _broken_off)
    result = click.testing.CliRunner().invoke(cli, ["gen", "--watch", "f.py", "--no-verify"])
    assert (result.exit_code, result.stdout) == (0, "ended\n")
    monkeypatch.setattr(Run, "take", _broken_off)
    result = click.testing.CliRunner().invoke(cli, ["gen", "f.py", "--no-verify"])
    assert result.exit_code == 130
    assert result.stderr.startswith("interrupted")


# --- the verification behind -----------------------------------------------------------------


class Agreeable:
    """A checker that passes everything."""

    def check(self, package: Package, job: object) -> Report:
        return Report(package.name, (Row("PyTorch", "values", "passed"),))


@pytest.mark.parametrize("status", ["passed", "failed"])
@pytest.mark.parametrize("there", [True, False])
def test_a_draft_that_fails_is_taken_back(
    status: str, there: bool, here: Path, monkeypatch, capsys
) -> None:
    def verify_package(package: Package, definition, *, on_row=None, **_) -> Report:
        return Report(package.name, (Row("PyTorch", "vmap", status, "expected 2, got 3"),))

    monkeypatch.setattr("autofn.verify.verify_package", verify_package)
    if there:
        install(package_of("sin"), here / "generated")
    before = read(here / "generated" / "f") if there else None
    source = FileSource("f.py")
    watcher = _Watcher(["f.py"], "generated", Extras("generated"), Agreeable(), False, 60.0)
    watcher._begin([source])
    watcher._watch()
    watcher._draft(source)
    draft = read(here / "generated" / "f")
    assert draft != before
    watcher._verify(source)
    told = capsys.readouterr()
    if status == "passed":
        assert read(here / "generated" / "f") == draft
        assert "generated/f: unchanged; verified: 1 passed" in told.out
        assert not watcher.before
    else:
        assert "expected 2, got 3" in told.out
        assert "f failed its verification" in told.err
        if there:
            assert read(here / "generated" / "f") == before
        else:
            assert not (here / "generated" / "f").exists()
    watcher._begin([source])
    assert (source in watcher.stale) == (status == "failed")


@pytest.mark.parametrize("status", ["passed", "failed"])
def test_the_search_for_kernels_is_left_to_the_verification(
    status: str, here: Path, monkeypatch
) -> None:
    def verify_package(package: Package, definition, *, on_row=None, **_) -> Report:
        return Report(package.name, (Row("PyTorch", "vmap", status, "expected 2, got 3"),))

    monkeypatch.setattr("autofn.verify.verify_package", verify_package)
    monkeypatch.setenv("AUTOFN_CACHE_DIR", str(here / "empty"))
    (here / "f.py").write_text("from sympy import exp\n" + FORMULA.format("x / (1 + exp(-x)) ** 2"))
    source = FileSource("f.py")
    watcher = _Watcher(["f.py"], "generated", Extras("generated"), Agreeable(), False, 60.0)
    watcher._begin([source])
    watcher._watch()
    watcher._draft(source)
    draft = dict(read(here / "generated" / "f").files)
    watcher._verify(source)
    if status == "failed":
        assert not (here / "generated" / "f").exists()
        return
    wanted = dict(pipeline.generate(load_file("f.py")[0].definition).files)
    assert dict(read(here / "generated" / "f").files) == wanted
    assert draft["maths.py"] == wanted["maths.py"] and draft["maths.h"] != wanted["maths.h"]


def package_of(head: str) -> Package:
    """The package of a formula `f` in a file of the same name."""
    folder = Path("elsewhere")
    folder.mkdir(exist_ok=True)
    (folder / "f.py").write_text(f"from sympy import {head}\n" + FORMULA.format(f"{head}(x)"))
    return pipeline.generate(load_file(folder / "f.py")[0].definition)


def test_withdrawing_leaves_what_is_the_users(here: Path) -> None:
    package = package_of("exp")
    install(package, here / "generated")
    folder = here / "generated" / "f"
    (folder / "mine.py").write_text("mine")
    (folder / "op.py").write_text((folder / "op.py").read_text() + "# edited\n")
    withdraw(package, here / "generated", None)
    assert sorted(os.listdir(folder)) == ["mine.py", "op.py"]


# --- the warm process ------------------------------------------------------------------------


def test_quick_checks_bite(here: Path) -> None:
    (formula,) = load_file("f.py")
    package = pipeline.generate(formula.definition)
    job = make_job(formula.definition, "", "draft")
    checker = Checker()
    try:
        good = checker.check(package, job)
        assert good.ok
        assert [row.check for row in good.rows] == list(CHECKS)
        texts = [
            {**dict(package.files), "maths.py": package.text("maths.py").replace("2", "3")},
            {**dict(package.files), "op.py": "import nothing_of_this_name\n"},
            {**dict(package.files), "op.py": "import os\nos._exit(7)\n"},
        ]
        for files in texts:
            report = checker.check(Package("f", "f.py", tuple(files.items())), job)
            assert not report.ok
        assert "exit code 7" in report.failures[0].detail
        assert checker.check(package, job).ok
    finally:
        checker.close()


def test_stamps(here: Path) -> None:
    stamps, path = Stamps(), str(here / "f.py")
    stamps.watch([path])
    assert not stamps.changed()
    os.utime(path, (1, 1))
    assert stamps.changed() == {path}
    assert stamps.taken() == {path}
    assert not stamps.changed()
    os.unlink(path)
    assert stamps.taken() == {path}
    stamps.watch([path, str(here)])
    assert not stamps.changed()
    (here / "f.py").write_text("")
    assert stamps.taken() == {path, str(here)}
