"""One formula in one setting: its contenders checked, measured in turn, and recorded."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from autofn.bench import subjects
from autofn.bench.measure import (
    Clock,
    CpuClock,
    CudaClock,
    Sample,
    Series,
    interleaved,
    quick_look,
)
from autofn.bench.records import (
    BASELINE,
    COMPILE,
    LIMIT,
    Mode,
    Result,
    Setting,
    Time,
)
from autofn.bench.subjects import Contender, Data, Subject

LARGE_MODES: tuple[Mode, ...] = ("forward", "forward+backward")
SMALL_MODES: tuple[Mode, ...] = ("no_grad", "plain", "forward+backward")

Step = Callable[[str], None]
"""Told what is done next: compilers take their time."""


@dataclass(frozen=True)
class Options:
    """How a run measures.

    seconds: the budget of one formula in one setting and mode. keep_memory: see
    `measure.keep_freed_memory`.
    """

    compile: bool = True
    seconds: float = 2.0
    keep_memory: bool = True
    modes: tuple[Mode, ...] = ()

    def modes_for(self, setting: Setting) -> tuple[Mode, ...]:
        return self.modes or (SMALL_MODES if setting.small else LARGE_MODES)


def measure(
    subject: Subject, setting: Setting, options: Options, step: Step = lambda doing: None
) -> list[Result]:
    """The results of one formula in one setting, one for each mode.

    Raises what the generated op raises; contenders that fail are recorded as missing.
    """
    with _threads(setting), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = subjects.data_for(subject.sketch, setting)
        run = _Run(subject, setting, options, data, step)
        return [run.result(mode) for mode in options.modes_for(setting)]


@contextlib.contextmanager
def _threads(setting: Setting) -> Iterator[None]:
    """The setting's number of threads, for PyTorch and for what torch.compile writes."""
    import torch._inductor.config as inductor

    before = torch.get_num_threads()
    torch.set_num_threads(setting.threads)
    try:
        # Inductor writes the number into its loops, where its cache must see it.
        with inductor.patch({"cpp.threads": setting.threads}):
            yield
    finally:
        torch.set_num_threads(before)


class _Run:
    def __init__(
        self, subject: Subject, setting: Setting, options: Options, data: Data, step: Step
    ) -> None:
        self.subject = subject
        self.sketch = subject.sketch
        self.setting = setting
        self.options = options
        self.data = data
        self.step = step
        torch.compiler.reset()
        self.missing = _disagreeing(subject, setting.device)
        eager = [each for each in subjects.eager(self.sketch) if _key(each) not in self.missing]
        native = [each for each in subjects.native(self.sketch) if _key(each) not in self.missing]
        self.rivals = [*eager, *native]
        if options.compile:
            self.rivals += map(subjects.compiled, eager)

    def result(self, mode: Mode) -> Result:
        clock = _clock(self.setting)
        with torch.set_grad_enabled(mode != "forward"):
            contenders, missing = self._running(mode)
            samples, forms, single = self._samples(contenders, mode, clock)
            self.step(f"measuring {mode}")
            looks = {key: quick_look(sample) for key, sample in samples.items()}
            chosen = _quickest(samples, looks)
            series = interleaved(
                {name: samples[name, form] for name, form in chosen.items()},
                {name: looks[name, form] for name, form in chosen.items()},
                self.options.seconds,
                single,
            )
        forward, backward = subjects.moved(self.sketch, self.data)
        return Result(
            self.sketch.name,
            self.setting,
            mode,
            self.data.shape,
            forward * (mode != "backward") + backward * ("backward" in mode),
            self.sketch.costly,
            tuple(_time(name, forms[name, chosen[name]], series[name]) for name in series),
            tuple(missing.items()),
        )

    def _running(self, mode: Mode) -> tuple[list[Contender], dict[str, str]]:
        """The contenders that run, each called once, and why others do not."""
        mine = subjects.generated(self.subject)
        self.step("building and calling the generated op")
        subjects.values(mine, self.sketch, self.data, mode)
        running = [mine]
        missing = {name: f"{form}: {reason}" for (name, form), reason in self.missing.items()}
        for rival in self.rivals:
            doing = "compiling" if rival.name == COMPILE else "calling"
            self.step(f"{doing} {rival.name}, {rival.form}")
            try:
                subjects.values(rival, self.sketch, self.data, mode)
                running.append(rival)
            except Exception as error:  # of any kind: a compiler that is not there, say
                missing[rival.name] = f"{rival.form}: {_reason(error)}"
        for contender in running:
            missing.pop(contender.name, None)  # another form of it runs
        return running, missing

    def _samples(
        self, contenders: Iterable[Contender], mode: Mode, clock: Clock
    ) -> tuple[dict[tuple[str, str], Sample], dict[tuple[str, str], str], list[str]]:
        statements = {
            _key(contender): subjects.statement(contender, self.sketch, self.data, mode)
            for contender in contenders
        }
        if self.setting.small:
            statements[BASELINE, BASELINE] = subjects.baseline(self.data, mode)
        else:
            statements[LIMIT, "copy_"] = subjects.limit(self.sketch, self.data, mode)
        cuda = self.setting.device != "cpu" and not self.setting.small
        single = [name for (name, _), each in statements.items() if cuda or not each.repeatable]
        samples = {key: clock.sample(each) for key, each in statements.items()}
        return samples, {key: key[1] for key in statements}, single


def _key(contender: Contender) -> tuple[str, str]:
    return contender.name, contender.form


def _disagreeing(subject: Subject, device: str) -> dict[tuple[str, str], str]:
    """The rivals that give other values than the generated op, in float32, and in what words."""
    sketch = subject.sketch
    data = subjects.data_for(sketch, Setting(4096, device=device))
    mode: Mode = "forward+backward"
    expected = subjects.values(subjects.generated(subject), sketch, data, mode)
    found: dict[tuple[str, str], str] = {}
    for rival in (*subjects.eager(sketch), *subjects.native(sketch)):
        try:
            if subjects.differs(expected, subjects.values(rival, sketch, data, mode)):
                found[_key(rival)] = "it gives other gradients"
        except Exception as error:
            found[_key(rival)] = _reason(error)
    return found


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _quickest(
    samples: Iterable[tuple[str, str]], looks: dict[tuple[str, str], float]
) -> dict[str, str]:
    """Of a contender's forms the quickest: a rival is what a user could have had."""
    chosen: dict[str, str] = {}
    for name, form in samples:
        if name not in chosen or looks[name, form] < looks[name, chosen[name]]:
            chosen[name] = form
    return chosen


def _clock(setting: Setting) -> Clock:
    if setting.device == "cpu":
        return CpuClock(setting.size)
    return CudaClock(setting.device, small=setting.small)


def _time(name: str, form: str, series: Series) -> Time:
    low, median, high = series.quartiles
    return Time(name, form, median, low, high, len(series.seconds), series.calls)


# --- the machine ---------------------------------------------------------------------------


def environment(device: str = "cpu", *, kept: bool = False) -> tuple[tuple[str, str], ...]:
    """What the figures depend on beside the code."""
    found = {
        "date": datetime.date.today().isoformat(),
        "cpu": f"{processor()}, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "backend": os.environ.get("AUTOFN_BACKEND") or "unset",
        "freed memory": "kept by the process" if kept else "left to malloc",
    }
    if device != "cpu":
        found["gpu"] = torch.cuda.get_device_name(device)
        found["cuda"] = str(torch.version.cuda)
    return tuple(found.items())


def processor() -> str:
    """The processor's name, as far as the system tells."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
