"""What the verification's parent sends its worker; data only, so neither torch nor SymPy here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["draft", "quick", "full"]
DTYPES = ("float64", "float32", "bfloat16", "float16")
"""Those that packages are for."""

Where = Literal["regular", "kink", "hard"]
Entry = str | tuple[str, str]
COTANGENT, DIRECTION = 0.5, -2.0
"""The incoming gradients of first and second order; other than 1, so that a factor is missed.

Powers of two: results are divided by them and stay exact. A user's own gradient may be anything
but linear in them.
"""

Key = tuple[tuple[str, str | bool | int], ...]


@dataclass(frozen=True)
class Argument:
    """A parameter of the Function; `fields` are (field, leaf) pairs where it is a settings."""

    name: str
    type_name: str = ""
    fields: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Signature:
    """How the Function is called; `kinds` maps differentiable leaves to kind and channel dim."""

    arguments: tuple[Argument, ...]
    kinds: dict[str, tuple[str, int]]
    own_gradient: bool


@dataclass(frozen=True)
class Array:
    """A tensor's values in row-major order, and how the worker is to lay it out in memory."""

    shape: tuple[int, ...]
    data: tuple[float, ...]
    layout: Literal["dense", "transposed", "sliced"] = "dense"


@dataclass(frozen=True)
class Case:
    """One call of one variant, off the formula's kinks in every element of its output.

    `values` has every leaf: an Array, or None for an absent tensor, or a number or choice.
    """

    name: str
    key: Key
    values: dict[str, Array | float | int | str | bool | None]


@dataclass(frozen=True)
class Table:
    """Points of one variant and dtype, and what is true there.

    The points are exact in the dtype that each leaf has; `numbers` are those of all points.
    `truth` has a column per output and one per (output, leaf): the gradient for COTANGENT, over
    COTANGENT. `wobble` is how far an entry moves with a few roundings of the leaves, `smooth` what
    it is at a kink that is none of the function. `strained` points are those where the formula as
    written leaves the range of the arithmetic. `seconds` has a column per (output, leaf, leaf),
    likewise for COTANGENT and DIRECTION. NaN: not known.
    """

    where: Where
    key: Key
    dtype: str
    numbers: dict[str, float | int]
    points: dict[str, list[float]]
    truth: dict[Entry, list[float]]
    wobble: dict[Entry, list[float]]
    smooth: dict[Entry, list[float]]
    strained: list[bool]
    seconds: dict[tuple[str, str, str], list[float]]


@dataclass(frozen=True)
class Job:
    """One package to check: where it lies, how to call it, with what, and what is true."""

    folder: str
    class_name: str
    signature: Signature
    cases: tuple[Case, ...]
    tables: tuple[Table, ...]
    level: Level
