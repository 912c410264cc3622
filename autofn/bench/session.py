"""A run over several formulas: their packages found, each measured in every setting."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autofn import isolate, pipeline  # noqa: F401  (imported once, before processes fork)
from autofn.bench.records import Report, Setting
from autofn.bench.sketch import Draw, Drawn
from autofn.errors import AutofnError, UsageError
from autofn.install import install

if TYPE_CHECKING:
    from autofn.bench.run import Options
    from autofn.isolate import Progress
    from autofn.source import Source


def drawn(
    placed: Sequence[tuple[Source, str]],
    scratch: Path,
    *,
    fresh: bool,
    timeout: float = 60.0,
    watch: Callable[[int, Sequence[Progress]], None] | None = None,
) -> Iterator[Drawn | AutofnError]:
    """Each formula's sketch and the folder of its package, or what is wrong with it.

    placed: formulas, each with the folder that its package lies in.
    fresh: generate what has no package into `scratch`; otherwise that is an error.

    Call it before torch is imported: the formulas' processes are forked from this one.
    """
    for root in dict.fromkeys(root for _, root in placed):
        sources = [source for source, place in placed if place == root]
        outcomes = isolate.run(sources, Draw(root), timeout=timeout, watch=watch)
        with contextlib.closing(outcomes):
            for outcome in outcomes:
                yield outcome.error or _with_folder(outcome.value, scratch, fresh)


def _with_folder(found: Drawn, scratch: Path, fresh: bool) -> Drawn | AutofnError:
    if found.package is None:
        return found
    if not fresh:
        return UsageError(
            f"{found.folder} does not exist",
            remedy=f"autofn gen -o {Path(found.folder).parent} generates it",
        )
    installed = install(found.package, scratch)
    return dataclasses.replace(found, folder=str(installed.folder), package=None)


def measured(
    formulas: Sequence[Drawn],
    settings: Sequence[Setting],
    options: Options,
    step: Callable[[str, str], None] = lambda name, doing: None,
) -> Generator[Report | AutofnError, None, None]:
    """A report on each formula in every setting, or what is wrong with its op.

    step: told a formula's name and what is being done with it.

    Raises UsageError where the settings' device is not there.
    """
    import torch

    from autofn.bench import subjects
    from autofn.bench.measure import keep_freed_memory
    from autofn.bench.memory import saved_for_backward
    from autofn.bench.run import environment, measure

    device = settings[0].device
    if device != "cpu" and not torch.cuda.is_available():
        raise UsageError("PyTorch finds no CUDA GPU here", remedy="leave --device out")
    kept = options.keep_memory and keep_freed_memory()
    for each in formulas:
        name = each.sketch.name
        try:
            subject = subjects.load(each.sketch, each.folder)
            results = [
                result
                for setting in settings
                for result in measure(subject, setting, options, partial(step, name))
            ]
            memory = [
                saved_for_backward(subject, Setting(4096, dtype, device=device))
                for dtype in dict.fromkeys(setting.dtype for setting in settings)
            ]
        except AutofnError as error:
            yield error
        except Exception as error:  # in the op itself: the others are measured all the same
            what = f"{name}: {type(error).__name__}: {error}"
            yield UsageError(what, remedy=f"autofn verify {name}")
        else:
            yield Report(environment(device, kept=kept), tuple(results), tuple(memory))
