"""The process that runs a package's checks: `python -m autofn.verify.worker torch|native|cuda`.

It alone imports torch. One process runs the PyTorch path and the CUDA text on the host, another the
CPU kernels as users' processes do, a third the CUDA kernels where there is a GPU. The first has the
address sanitizer preloaded where the kernels are built with it, so it may die in any check; hence
it says which check it begins. Lines of JSON go out: `["ready"]`, `["begin", backend, check]`,
`["row", backend, check, status, detail]`, `["done"]`. The kernels' library, or why there is none,
comes in as one line of JSON.
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
import torch._dynamo  # torch.func.grad imports it: the better, the sooner

from autofn.verify.checks import agreement, contract, known, numeric, transforms, truth
from autofn.verify.checks.compare import Mismatch, NotRun
from autofn.verify.checks.context import Context
from autofn.verify.job import Job
from autofn.verify.leaves import DeviceLeaves, KernelLeaves
from autofn.verify.report import (
    AGREEMENT,
    ALL_CHECKS,
    BUILDS,
    CHECKS,
    CPU,
    GPU,
    HOST,
    KNOWN,
    LOADS,
    TORCH,
)
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


def main(arguments: Sequence[str]) -> None:
    backend = {"torch": TORCH, "native": CPU, "cuda": GPU}[arguments[0]]
    assert tuple(BY_NAME) == CHECKS
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
        channel.send("row", backend, LOADS, "failed", f"{type(error).__name__}: {error}")
        raise
    if backend == CPU:
        on_cpu(channel, context)
    elif backend == GPU:
        on_gpu(channel, context)
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
    with_leaves(channel, HOST, context, leaves)


def with_leaves(
    channel: Sends, backend: str, context: Context, leaves: KernelLeaves | DeviceLeaves
) -> None:
    """All checks with these in place of PyTorch's leaves."""
    double = leaves.double_backward if isinstance(leaves, DeviceLeaves) else None
    kernels = functools.partial(context.subject.leaves, leaves.forward, leaves.backward, double)
    with kernels():
        for name, check in BY_NAME.items():
            run(channel, backend, name, functools.partial(check, context))
    run(channel, backend, AGREEMENT, functools.partial(agreement.agreement, context, kernels))


def on_gpu(channel: Channel, context: Context) -> None:
    """The package's own leaves on the device, its CUDA kernels built as a user's process does."""
    runtime = context.subject.op._rt
    if not torch.cuda.is_available():
        channel.send("row", GPU, ALL_CHECKS, "not run", "this PyTorch finds no CUDA GPU")
        return
    try:
        runtime._build.nvcc()
        missing = not has_compiler()
    except RuntimeError:
        missing = True
    if not builds(channel, GPU, runtime, "cuda", missing=missing):
        return
    runtime._LOADED["cpu"] = None  # all else in PyTorch operations
    with_leaves(channel, GPU, context, DeviceLeaves(context.subject.op))


def has_compiler() -> bool:
    return any(map(shutil.which, ("g++", "c++", "clang++", os.environ.get("CXX", ""))))


def builds(channel: Channel, backend: str, runtime: Any, device: str, *, missing: bool) -> bool:
    """Whether the package has kernels for the device; a row says so. missing: a compiler is."""
    channel.send("begin", backend, BUILDS)
    try:
        runtime.kernels(device)
    except RuntimeError as error:
        channel.send("row", backend, BUILDS, "not run" if missing else "failed", str(error))
        for name in (*CHECKS, AGREEMENT):
            channel.send("row", backend, name, "not run", "the kernels were not built")
        return False
    channel.send("row", backend, BUILDS, "passed", "")
    return True


def on_cpu(channel: Channel, context: Context) -> None:
    """The package's own leaves, which run the CPU kernels here."""
    runtime = context.subject.op._rt
    if not builds(channel, CPU, runtime, "cpu", missing=not has_compiler()):
        return
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
    main(sys.argv[1:])
