"""What the tests share: the repository on the path, one thread per worker."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
for folder in (ROOT, ROOT / "tests"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from autofn.verify import nursery  # noqa: E402

torch.set_num_threads(1)

# As the command does, and for the same reason.
gc.set_threshold(100_000, 50, 50)

# A run in the background of a script ignores Ctrl-C, and so would the processes of its tests.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Packages run their PyTorch path, so that no test waits for a compiler, unless it asks for kernels.
# AUTOFN_BACKEND=native in the environment runs the same tests on the compiled kernels.
os.environ.setdefault("AUTOFN_BACKEND", "torch")


@pytest.fixture(autouse=True, scope="session")
def workers() -> Iterator[None]:
    """Verifications share one process that has imported torch, once there is one."""
    with nursery.opened():
        yield


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def pytorch_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generated packages run their PyTorch path, so that no test waits for a compiler.

    AUTOFN_BACKEND=native in the environment runs the same tests on the compiled kernels.
    """
    monkeypatch.setenv("AUTOFN_BACKEND", os.environ.get("AUTOFN_BACKEND", "torch"))


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A library package on its kernels."""

    def load(name: str) -> ModuleType:
        module = importlib.import_module(f"generated.{name}")
        runtime = importlib.import_module(f"generated.{name}._runtime")
        monkeypatch.setattr(runtime, "BACKEND", "native")
        monkeypatch.setattr(runtime, "_LOADED", {})
        return module

    return load
