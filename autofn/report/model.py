"""A page as data: what was found of one formula, before it has a form."""

from __future__ import annotations

from dataclasses import dataclass

from sympy import Expr

Points = tuple[tuple[float, float], ...]
"""Places and values in order; a value may be NaN or infinite."""


@dataclass(frozen=True)
class Curve:
    """One function over the range: `title` is a name of few letters, `label` says what it is."""

    title: str
    label: str
    points: Points


@dataclass(frozen=True)
class Mark:
    """A kink or singularity along the axis.

    what: "kink", "pole or end", "jump" and the like. `value` is f there, `slope` the gradient that
    backward returns, `below` and `above` the gradients on either side. NaN: none.
    """

    at: float
    what: str
    guard: Expr
    value: float
    slope: float
    below: float
    above: float


@dataclass(frozen=True)
class Slider:
    """An input beside the axis. `step` is 1 for an integer, 0 where any number will do."""

    name: str
    kind: str
    start: float
    low: float
    high: float
    step: float


@dataclass(frozen=True)
class Drawing:
    """One output of one variant along one tensor: f, f' and f'', with all else at its start.

    `script` is a JavaScript function of the axis' value and the sliders' values that returns the
    three; `guards` one that returns what is zero at a kink. Empty: the sliders have no effect.
    """

    output: str
    axis: str
    low: float
    high: float
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...]
    sliders: tuple[Slider, ...]
    script: str
    guards: str
    reach: tuple[tuple[float, float], ...]
    """Of each curve the values that are worth showing, wherever the sliders stand."""


@dataclass(frozen=True)
class Step:
    """A rewriting step: the expression it gives, or its code. `cost` is in additions per element.

    error: largest error in ULP of float32, simulated, at `points` points; `bad`: points where the
    result is not finite and the truth is.
    """

    rule: str
    why: str
    expr: Expr | None
    code: str
    operations: int
    cost: float
    error: float
    bad: int
    points: int


@dataclass(frozen=True)
class Series:
    """Errors in ULP of one way to compute one quantity, at float32 numbers in order.

    Infinite: the result is not finite and the truth is.
    """

    name: str
    errors: Points

    @property
    def worst(self) -> tuple[float, float] | None:
        """The largest finite error and where it is."""
        finite = [(e, x) for x, e in self.errors if e < float("inf")]
        return max(finite, default=None)

    @property
    def bad(self) -> int:
        return sum(1 for _, error in self.errors if error == float("inf"))


@dataclass(frozen=True)
class Line:
    """The errors of one quantity over the whole number line, or as much of it as the domain has."""

    quantity: str
    axis: str
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Saving:
    """A set of tensors that backward can be computed from."""

    tensors: str
    bytes: int
    exact: str
    chosen: bool


@dataclass(frozen=True)
class Bar:
    """One contender's time in seconds, with its quartiles."""

    contender: str
    form: str
    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Timing:
    """All contenders in one setting and mode; `missing` says who is not there, and why."""

    title: str
    bars: tuple[Bar, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Bench:
    """Measured figures, and on what. `speedup`: the best rival's time over the op's."""

    environment: tuple[tuple[str, str], ...]
    timings: tuple[Timing, ...]
    speedup: float | None


@dataclass(frozen=True)
class Check:
    """A row of the verification table."""

    backend: str
    check: str
    status: str
    detail: str


@dataclass(frozen=True)
class Verification:
    """The rows, and where they are from; a `summary` where only that is known."""

    origin: str
    rows: tuple[Check, ...]
    summary: str = ""


@dataclass(frozen=True)
class Typeset:
    """A left-hand side and an expression; None: the expression is `absent`."""

    of: str
    kind: str
    by: tuple[str, ...]
    expr: Expr | None
    absent: str = ""


@dataclass(frozen=True)
class Variant:
    """The formula under one combination of choices; `label` is empty where there is only one."""

    label: str
    formulas: tuple[Typeset, ...]
    drawings: tuple[Drawing, ...]
    steps: tuple[tuple[str, tuple[Step, ...]], ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Page:
    """All that a page shows. `equals`: PyTorch's functions of the same values."""

    name: str
    signature: str
    doc: str
    source: str
    facts: tuple[tuple[str, str], ...]
    variants: tuple[Variant, ...]
    left_out: int
    saved: tuple[Saving, ...]
    kept: tuple[tuple[str, float], ...]
    equals: tuple[str, ...]
    notes: tuple[str, ...]
    verification: Verification | None
    bench: Bench | None
    sources: tuple[tuple[str, str], ...]
