"""The process that runs a package's checks: `python -m autofn.verify.worker JOB`.

It alone imports torch. It runs with the address sanitizer preloaded where the kernels are built
with it, so it may die in any check; hence it says which check it begins. Lines of JSON go out:
`["ready"]`, `["begin", backend, check]`, `["row", backend, check, status, detail]`, `["done"]`.
The kernels' library, or why there is none, comes in as one line of JSON.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # torch.func.grad imports it: the better, the sooner

from autofn.verify.checks import agreement, contract, numeric, transforms, truth
from autofn.verify.checks.compare import Mismatch, NotRun
from autofn.verify.checks.context import Context
from autofn.verify.job import Job
from autofn.verify.leaves import KernelLeaves
from autofn.verify.report import AGREEMENT, CHECKS, HOST, LOADS, TORCH
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


class Channel:
    """Rows to the parent; what checks print goes to stderr instead."""

    def __init__(self) -> None:
        self.out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def send(self, *message: Any) -> None:
        self.out.write(json.dumps(message) + "\n")
        self.out.flush()


def run(channel: Channel, backend: str, name: str, check: Callable[[], str]) -> None:
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
        channel.send("row", TORCH, LOADS, "failed", f"{type(error).__name__}: {error}")
        raise
    for name, check in BY_NAME.items():
        run(channel, TORCH, name, functools.partial(check, context))
    library = json.loads(sys.stdin.readline())
    if library:
        kinds = job.signature.kinds
        subject = context.subject
        leaves = KernelLeaves(Path(library), subject.manifest, kinds, subject.op)
        with context.subject.leaves(leaves.forward, leaves.backward):
            for name, check in BY_NAME.items():
                run(channel, HOST, name, functools.partial(check, context))
        run(channel, HOST, AGREEMENT, lambda: agreement.agreement(context, leaves))
    channel.send("done")


if __name__ == "__main__":
    assert tuple(BY_NAME) == CHECKS
    main()
