"""What the certificate's parent sends the process that measures: data only."""

from __future__ import annotations

from dataclasses import dataclass

from autofn.verify.job import Key, Signature

Entry = tuple[str, ...]
"""(output,), (output, leaf) or (output, leaf, leaf)."""


@dataclass(frozen=True)
class Truths:
    """Points of one variant, exact in `dtype`, and the truth as the sum of two float64 columns.

    NaN: no finite truth, or one that nobody asked for. Of limits the truth may be infinite.
    """

    key: Key
    dtype: str
    numbers: dict[str, float | int]
    points: dict[str, list[float]]
    high: dict[Entry, list[float]]
    low: dict[Entry, list[float]]


@dataclass(frozen=True)
class Sweep:
    """Points that the measuring process makes itself: bit patterns of the tensors' dtype.

    `parameters` and `numbers` are at their defaults; `domain` bounds a tensor (low, high, and
    whether the ends belong).
    """

    key: Key
    tensors: tuple[str, ...]
    parameters: dict[str, float]
    numbers: dict[str, float | int]
    domain: dict[str, tuple[float, float, bool, bool]]


@dataclass(frozen=True)
class Job:
    folder: str
    class_name: str
    signature: Signature
    truths: tuple[Truths, ...]
    sweeps: tuple[Sweep, ...]
    limits: tuple[Truths, ...]
    level: str
    backends: tuple[str, ...]
