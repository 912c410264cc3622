"""Formula files in processes of their own: limits, deaths, order, and what is left afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from textwrap import dedent

import pytest

from autofn import isolate
from autofn.errors import FormulaError, InternalError
from autofn.isolate import Outcome
from autofn.load import ExprSource, FileSource
from autofn.model import Definition

ROOT = Path(__file__).resolve().parent.parent

HEAD = "from autofn import formula\n"


def name_of(definition: Definition, stage: isolate.Stage) -> str:
    return definition.name


def slow(definition: Definition, stage: isolate.Stage) -> str:
    stage("verifying", 0.5)
    time.sleep(60)
    return definition.name


def defect(definition: Definition, stage: isolate.Stage) -> str:
    raise ZeroDivisionError("of autofn's own")


def search_path(definition: Definition, stage: isolate.Stage) -> list[str]:
    return list(sys.path)


def scratch_of(definition: Definition, stage: isolate.Stage) -> str:
    return tempfile.mkdtemp()


@pytest.fixture
def write(tmp_path: Path):
    def write(name: str, text: str) -> FileSource:
        path = tmp_path / f"{name}.py"
        path.write_text(dedent(text))
        return FileSource(str(path))

    return write


def run(*sources: FileSource | ExprSource, **options: object) -> list[Outcome]:
    action = options.pop("action", name_of)
    return list(isolate.run(sources, action, **options))  # type: ignore[arg-type]


DEATHS = {
    "loop": ("x = 1\nwhile True: pass\n", 2, "loading took longer than 1 s.*\n.*--timeout"),
    "loop in C": ("x = 1\n\ny = 9**9**9\n", 3, "loading took longer than 1 s"),
    "sleep": ("import time\ntime.sleep(100)\n", 2, "loading took longer"),
    "os._exit": ("import os\nos._exit(3)\n", 1, "ended itself with exit code 3"),
    "os._exit(0)": ("import os\nos._exit(0)\n", 1, "ended itself with exit code 0"),
    "segfault": ("import ctypes\nctypes.string_at(0)\n", 2, "killed by SIGSEGV"),
    "kill": ("import os\nos.kill(os.getpid(), 9)\n", 1, "killed by SIGKILL"),
    "sys.exit": ("import sys\nsys.exit()\n", 2, "ends the program"),
    "interrupt": ("raise KeyboardInterrupt\n", 1, "raises KeyboardInterrupt"),
    "threads": (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(100,)).start()\n"
        "raise ValueError('x')\n",
        3,
        "ValueError: x",
    ),
}


@pytest.mark.parametrize("case", DEATHS)
def test_deaths(case: str, write) -> None:
    text, line, message = DEATHS[case]
    source = write("f", text)
    (outcome,) = run(source, timeout=1)
    assert isinstance(outcome.error, FormulaError)
    with pytest.raises(FormulaError, match=message):
        raise outcome.error
    assert outcome.error.where is not None
    assert (outcome.error.where.file, outcome.error.where.line) == (source.path, line)
    assert outcome.error.remedy


def test_a_limit_on_memory(write, monkeypatch) -> None:
    pytest.importorskip("resource")
    megabyte = 1 << 20
    monkeypatch.setattr(os, "sysconf", lambda name: 1 if "SIZE" in name else 2 * 900 * megabyte)
    source = write("f", "x = 1\ny = bytearray(1 << 30)\n")
    (outcome,) = run(source)
    assert outcome.error is not None
    assert "out of memory" in outcome.error.what


def test_each_formula_of_a_file_stands_alone(write) -> None:
    source = write(
        "f",
        HEAD
        + """
@formula
def a(x): return x
@formula
def b(x):
    while True: pass
@formula
def c(x): return 2 * x
@formula
def d(x):
    import os
    os._exit(1)
@formula
def e(x): raise SystemExit(3)
@formula
def f(x): raise KeyboardInterrupt
@formula
def g(x): return 3 * x
""",
    )
    outcomes = run(source, timeout=1)
    assert [outcome.name for outcome in outcomes] == list("abcdefg")
    assert [outcome.value for outcome in outcomes if not outcome.error] == ["a", "c", "g"]
    lines = {o.name: o.error.where.line for o in outcomes if o.error and o.error.where}
    assert lines == {"b": 7, "d": 11, "e": 15, "f": 17}


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_outcomes_come_in_the_order_of_the_sources(workers: int, write) -> None:
    sources = [
        write(f"f{n}", f"import time\ntime.sleep({0.4 - n / 10})\n{HEAD}@formula\n"
              f"def f{n}(x): return x\n@formula\ndef g{n}(x): return x\n")
        for n in range(4)
    ]  # fmt: skip
    names = [outcome.name for outcome in run(*sources, workers=workers)]
    assert names == ["f0", "g0", "f1", "g1", "f2", "g2", "f3", "g3"]


def test_stages_have_limits_of_their_own(write) -> None:
    source = write("f", f"{HEAD}@formula\ndef f(x): return x\n@formula\ndef g(x): return x\n")
    outcomes = run(source, action=slow)
    assert [str(outcome.error.what) for outcome in outcomes if outcome.error] == [
        "verifying took longer than 0.5 s"
    ] * 2


def test_a_defect_of_autofn_is_told_apart(write) -> None:
    (outcome,) = run(write("f", f"{HEAD}@formula\ndef f(x): return x\n"), action=defect)
    assert isinstance(outcome.error, InternalError)
    assert outcome.error.what == "internal error in f: ZeroDivisionError: of autofn's own"
    assert "Traceback" in outcome.error.trace
    assert outcome.error.exit_code == 70


def test_temporary_files_go_with_the_run(write) -> None:
    (outcome,) = run(write("f", f"{HEAD}@formula\ndef f(x): return x\n"), action=scratch_of)
    assert outcome.value
    assert not Path(outcome.value).exists()


def test_what_lies_beside_a_formula_file_hides_no_module_of_autofn(write, tmp_path: Path) -> None:
    text = f"{HEAD}@formula\ndef f(x):\n    from beside import k\n    return k * x\n"
    (tmp_path / "beside.py").write_text("k = 2\n")
    (outcome,) = run(write("f", text), action=search_path)
    assert outcome.value == sys.path


def test_hostile_expressions_meet_the_limit() -> None:
    good, bad = run(ExprSource("x*tanh(exp(x))", "te"), ExprSource("9**9**9", "bomb"))
    assert good.value == "te"
    assert bad.error is not None
    assert "too large" in bad.error.what


def test_progress_is_told(write) -> None:
    seen: list[tuple[int, str, str]] = []
    isolate_run = isolate.run(
        [write("f", f"import time\ntime.sleep(0.5)\n{HEAD}@formula\ndef f(x): return x\n")],
        name_of,
        watch=lambda done, running: seen.extend((done, r.label, r.doing) for r in running),
    )
    assert len(list(isolate_run)) == 1
    assert (0, "f", "loading") in seen


def _children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_closing_kills_all_children_at_once(write) -> None:
    loop = write("loop", "import subprocess\nsubprocess.run(['sleep', '100'])\n")
    other = write("other", "while True: pass\n")
    before = set(_children(os.getpid()))
    with contextlib.closing(isolate.run([loop, other], name_of, workers=2)) as outcomes:
        pool_started = time.monotonic()
        with pytest.raises(_Stop):
            _with_alarm(outcomes)
        running = set(_children(os.getpid())) - before
    assert time.monotonic() - pool_started < 30
    assert not set(_children(os.getpid())) & running


class _Stop(Exception):
    pass


def _with_alarm(outcomes) -> None:
    """The next outcome, interrupted after half a second as Ctrl-C would."""

    def stop(number: int, frame: object) -> None:
        raise _Stop

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        next(outcomes)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    """A real SIGINT to the whole command: exit code 130, no process and no folder left."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path = tmp_path / "loop.py"
    path.write_text("import os, subprocess\nsubprocess.run(['sleep', '1000'])\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "autofn", "gen", "loop.py", "--no-verify"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    grandchildren: list[int] = []
    until = time.monotonic() + 60
    while not grandchildren and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
        with contextlib.suppress(FileNotFoundError):
            grandchildren = [g for c in _children(process.pid) for g in _children(c)]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip().startswith("interrupted")
    assert len(errors.split("\n")) <= 3
    for pid in grandchildren:
        status = Path(f"/proc/{pid}/status")
        assert not status.exists() or "zombie" in status.read_text()
    assert not list(scratch.iterdir())
    assert not (tmp_path / "generated").exists()
