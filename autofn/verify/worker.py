"""The process that runs a package's checks: `python -m autofn.verify.worker torch|native`.

It alone imports torch. One process runs the PyTorch path and the CUDA text on the host, another the
CPU kernels as users' processes do. The first has the address sanitizer preloaded where the kernels
are built with it, so it may die in any check; hence it says which check it begins. Lines of JSON
go out: `["ready"]`, `["begin", backend, check]`, `["row", backend, check, status, detail]`,
`["done"]`. The kernels' library, or why there is none, comes in as one line of JSON.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
import torch._dynamo  # torch.func.grad imports it: the better, the sooner

from autofn.verify.checks import agreement, contract, known, numeric, transforms, truth
from autofn.verify.checks.compare import Mismatch, NotRun
from autofn.verify.checks.context import Context
from autofn.verify.job import Job
from autofn.verify.leaves import KernelLeaves
from autofn.verify.report import AGREEMENT, BUILDS, CHECKS, CPU, HOST, KNOWN, LOADS, TORCH
from autofn.verify.subject import Subject

Check = Callable[[Context], str]

BY_NAME: dict[str, Check] = {
    "values": truth.values,
    "gradients": truth.gradients,
    "second derivatives": truth.seconds,
    "gradcheck": numeric.first_order,
    "gradgradcheck": numeric.second_order,
    "forward mode": numeric.forward_mode,
    "vmap": transforms.vmap,
    "shapes and dtypes": contract.shapes_and_dtypes,
    "needed gradients only": contract.needed_subsets,
    "incoming gradients": contract.incoming_gradients,
    "determinism": contract.determinism,
}


class Sends(Protocol):
    """Where rows go."""

    def send(self, *message: Any) -> None: ...


class Channel:
    """Rows to the parent; what checks print goes to stderr instead."""

    def __init__(self) -> None:
        self.out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def send(self, *message: Any) -> None:
        self.out.write(json.dumps(message) + "\n")
        self.out.flush()


def run(channel: Sends, backend: str, name: str, check: Callable[[], str]) -> None:
    """One check, its outcome one row whatever happens in Python."""
    channel.send("begin", backend, name)
    try:
        channel.send("row", backend, name, "passed", check())
    except NotRun as why:
        channel.send("row", backend, name, "not run", str(why))
    except Mismatch as error:
        channel.send("row", backend, name, "failed", str(error))
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(last.filename)}:{last.lineno}"
        channel.send("row", backend, name, "failed", f"{type(error).__name__}: {error} ({where})")


def main() -> None:
    native = sys.argv[1] == "native"
    channel = Channel()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    channel.send("ready")
    with open(sys.stdin.readline().rstrip("\n"), "rb") as file:
        job: Job = pickle.load(file)
    torch.manual_seed(0)
    try:
        context = Context(Subject(job), job)
    except Exception as error:
        backend = CPU if native else TORCH
        channel.send("row", backend, LOADS, "failed", f"{type(error).__name__}: {error}")
        raise
    if native:
        on_cpu(channel, context)
    else:
        in_pytorch(channel, context)
        library = json.loads(sys.stdin.readline())
        if library:
            on_host(channel, context, library)
    channel.send("done")


def in_pytorch(channel: Channel, context: Context) -> None:
    for name, check in BY_NAME.items():
        run(channel, TORCH, name, functools.partial(check, context))
    run(channel, TORCH, KNOWN, functools.partial(known.pytorch_function, context))


def on_host(channel: Channel, context: Context, library: str) -> None:
    """The CUDA kernels' own text, built for this machine."""
    subject = context.subject
    kinds = context.job.signature.kinds
    leaves = KernelLeaves(Path(library), subject.manifest, kinds, subject.op)
    with context.subject.leaves(leaves.forward, leaves.backward):
        for name, check in BY_NAME.items():
            run(channel, HOST, name, functools.partial(check, context))
    kernels = functools.partial(context.subject.leaves, leaves.forward, leaves.backward)
    run(channel, HOST, AGREEMENT, functools.partial(agreement.agreement, context, kernels))


def on_cpu(channel: Channel, context: Context) -> None:
    """The package's own leaves, which run the CPU kernels here."""
    channel.send("begin", CPU, BUILDS)
    runtime = context.subject.op._rt
    try:
        runtime.kernels("cpu")
    except RuntimeError as error:
        missing = not any(map(shutil.which, ("g++", "c++", "clang++", os.environ.get("CXX", ""))))
        channel.send("row", CPU, BUILDS, "not run" if missing else "failed", str(error))
        for name in (*CHECKS, AGREEMENT):
            channel.send("row", CPU, name, "not run", "the kernels were not built")
        return
    channel.send("row", CPU, BUILDS, "passed", "")
    for name, check in BY_NAME.items():
        run(channel, CPU, name, functools.partial(check, context))

    compiled, runtime._LOADED["cpu"] = runtime._LOADED["cpu"], None

    @contextlib.contextmanager
    def kernels() -> Iterator[None]:
        runtime._LOADED["cpu"] = compiled
        yield
        runtime._LOADED["cpu"] = None

    agrees = functools.partial(agreement.agreement, context, kernels, agreement.ON_CPU)
    run(channel, CPU, AGREEMENT, agrees)


if __name__ == "__main__":
    assert tuple(BY_NAME) == CHECKS
    main()
