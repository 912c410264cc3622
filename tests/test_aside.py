"""Tasks in forks: where they are done, what they give, and what becomes of those that die."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autofn.aside import aside

ROOT = Path(__file__).resolve().parent.parent


def test_without_permission_a_task_is_done_here_when_it_is_asked_for() -> None:
    done: list[int] = []
    result = aside(lambda: done.append(os.getpid()))
    assert not done
    result()
    assert done == [os.getpid()]


# Processes of their own: this one has threads.
PERMITTED = """
import os, signal, sys
from autofn import aside as module
from autofn.aside import aside, permit
os.sched_getaffinity = lambda _: {0, 1}
permit()
here = os.getpid()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks are safe on Linux alone")
@pytest.mark.parametrize(
    "text",
    [
        # Side by side, not one after the other; forks do not fork.
        """
read, write = os.pipe()
waits = aside(lambda: (os.read(read, 1), os.getpid(), module._forks))
writes = aside(lambda: (os.write(write, b"x"), os.getpid(), module._forks))
first, second = waits(), writes()
assert first[0] == b"x" and len({here, first[1], second[1]}) == 3
assert not first[2] and not second[2]
""",
        # An error is raised where the result is asked for, and a fork that dies changes nothing.
        """
def fails():
    raise ValueError(os.getpid())
result = aside(fails)
try:
    result()
except ValueError as error:
    assert error.args == (here,)
else:
    raise AssertionError

def dies():
    return here if os.getpid() == here else os.kill(os.getpid(), signal.SIGKILL)
assert aside(dies)() == here
""",
        # It ends itself where its parent's guard would have ended that.
        """
import time
signal.setitimer(signal.ITIMER_REAL, 100)
left = aside(lambda: signal.getitimer(signal.ITIMER_REAL)[0])()
assert 50 < left <= 100
""",
    ],
    ids=["side by side", "failures", "guard"],
)
def test_with_permission_tasks_are_done_in_forks(text: str) -> None:
    subprocess.run([sys.executable, "-c", PERMITTED + text], check=True, cwd=ROOT, timeout=60)


GENERATED = """
from autofn.load import load_file
from autofn.pipeline import generate
from autofn.records import digest
(formula,) = load_file("formulas/swish_beta.py")
print(digest(generate(formula.definition)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks are safe on Linux alone")
def test_a_package_is_the_same_in_forks(tmp_path: Path) -> None:
    found = []
    for k, text in enumerate(("", PERMITTED)):
        environment = {**os.environ, "AUTOFN_CACHE_DIR": str(tmp_path / str(k))}
        done = subprocess.run(
            [sys.executable, "-c", text + GENERATED],
            check=True, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300,
        )  # fmt: skip
        found.append(done.stdout)
    assert found[0] and found[0] == found[1]
