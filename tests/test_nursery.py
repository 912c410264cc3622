"""Processes that are forked from one that has imported torch: what they get, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from autofn.verify import host, nursery
from autofn.verify.nursery import Nursery, Process

pytestmark = pytest.mark.skipif(not nursery.POSSIBLE, reason="nurseries are of Linux")

Starts = Callable[..., Process]


@pytest.fixture(scope="module")
def born() -> Iterator[Nursery]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        found = Nursery(None, ())
    yield found
    found.close()


@pytest.fixture
def errors(tmp_path: Path) -> Iterator[IO[str]]:
    with (tmp_path / "child.err").open("w+") as file:
        yield file


@pytest.fixture
def start(born: Nursery, errors: IO[str]) -> Iterator[Starts]:
    started: list[Process] = []

    def start(what: str, of: Nursery = born) -> Process:
        variables = {"GIVEN": what, "PATH": os.environ["PATH"]}
        started.append(of.fork("child_of_a_nursery", [what], variables, errors))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        assert process.stdout is not None
        process.stdout.close()


def told(process: Process) -> Any:
    """The next line that it writes."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def is_there(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def has_ended(process: int) -> bool:
    """Whether it has, within some seconds."""
    end = time.monotonic() + 10
    while is_there(process) and time.monotonic() < end:
        time.sleep(0.02)
    return not is_there(process)


def test_a_child_has_its_folder_environment_and_streams(start: Starts, errors: IO[str]) -> None:
    process = start("echo")
    here = told(process)
    assert here["folder"] == str(Path(errors.name).parent)
    assert here["variables"] == {"GIVEN": "echo", "PATH": os.environ["PATH"]}
    assert process.stdin is not None
    process.stdin.write("1\n")
    process.stdin.flush()
    assert told(process) == 1
    assert process.wait() == 0


def test_how_a_child_ended_is_told(start: Starts, errors: IO[str]) -> None:
    failed, crashed = start("fail"), start("crash")
    assert failed.wait() == 1
    assert crashed.wait() == -signal.SIGSEGV
    errors.seek(0)
    assert "ValueError: as it was told" in errors.read()
    lasting = start("echo")
    with pytest.raises(subprocess.TimeoutExpired):
        lasting.wait(0.1)


def test_what_a_child_has_started_ends_with_it(start: Starts) -> None:
    one, other = start("compile"), start("compile")
    told(one), told(other)
    its, others = told(one), told(other)
    one.kill()
    assert one.wait() == -signal.SIGKILL
    assert has_ended(its)
    assert is_there(others)


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_children_end_with_whoever_opened_the_nursery(tmp_path: Path, how: str) -> None:
    """Also where it is killed: nobody holds the other end of the socket any more."""
    code = f"""
import os, signal
from autofn.verify.nursery import Nursery
born = Nursery(None, ())
with open({str(tmp_path / "child.err")!r}, "w+") as errors:
    process = born.fork("child_of_a_nursery", ["compile"], dict(os.environ), errors)
    print(process.stdout.readline(), process.stdout.readline(), flush=True)
    if {how == "killed"}:
        os.kill(os.getpid(), signal.SIGKILL)
    born.close()
"""
    path = os.pathsep.join(map(str, (Path(__file__).parent, Path(__file__).parents[1])))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == (-signal.SIGKILL if how == "killed" else 0)
    child, its = (json.loads(line) for line in done.stdout.split("\n") if line)
    assert has_ended(child["process"])
    assert has_ended(its)


def test_a_nursery_that_does_not_come_up_says_why(start: Starts, errors: IO[str]) -> None:
    """As where a sanitizer's runtime cannot be preloaded."""
    tools = host.Toolchain("g++", (), ("", ""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nursery, "environment", lambda *_: {"PYTHONHOME": "nowhere"})
        dead = Nursery(tools)
    process = start("echo", dead)
    assert process.wait() == 1
    assert not dead.prepare()
    dead.close()
    errors.seek(0)
    assert "encodings" in errors.read()


def test_where_the_open_one_has_died_processes_import_torch_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errors: IO[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    dead = Nursery(None, ())
    dead.close()
    monkeypatch.setattr(nursery, "_opened", dead)
    with nursery.running("child_of_a_nursery", ["echo"], os.environ, errors) as process:
        assert told(process)["folder"] == str(tmp_path)


def test_the_open_one_is_shared_by_who_can_do_with_its_sanitizer() -> None:
    with nursery.opened():
        open_one = nursery.shared(None)
        assert open_one is not None
        assert nursery.shared(open_one.tools) is open_one
        assert nursery.shared(host.Toolchain("another", (), ("", ""))) is None
        with nursery.opened():
            assert nursery.shared(None) is open_one
        assert nursery.shared(None) is open_one
