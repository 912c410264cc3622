"""Comparing tensors, and saying where they differ worst."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

EPS = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.bfloat16: 2.0**-8,
    torch.float16: 2.0**-11,
}
"""Half a unit in the last place of 1: the relative error of one rounding."""

TINY = {
    torch.float64: 2.0**-1074,
    torch.float32: 2.0**-149,
    torch.bfloat16: 2.0**-133,
    torch.float16: 2.0**-24,
}
"""The smallest positive number of each dtype."""


class Mismatch(Exception):
    """A check's verdict: what differs, and where."""


class NotRun(Exception):
    """Why a check does not apply."""


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def worst(got: Tensor, want: Tensor, tolerance: Tensor | float) -> int | None:
    """The flat index of the worst difference over `tolerance`; None if all are within it.

    A NaN where a number is wanted is worst of all; where NaN is wanted, anything will do.
    """
    if got.numel() == 0:
        return None
    ratio = _ratio(got, want, tolerance).reshape(-1)
    index = int(ratio.argmax())
    return index if ratio[index] > 1 else None


def off_by(got: Tensor, want: Tensor, tolerance: Tensor | float) -> Tensor:
    """Where the difference is over `tolerance`."""
    return _ratio(got, want, tolerance) > 1


def _ratio(got: Tensor, want: Tensor, tolerance: Tensor | float) -> Tensor:
    got, want = got.detach().double(), want.detach().double()
    error = torch.where(got == want, 0.0, (got - want).abs())
    ratio = torch.where(error == 0.0, 0.0, error / tolerance).nan_to_num(math.inf, math.inf)
    return torch.where(want.isnan(), 0.0, ratio)


def require_close(
    got: Tensor,
    want: Tensor,
    tolerance: Tensor | float,
    pair: str,
    place: Callable[[int], str],
) -> None:
    """Raises Mismatch, naming the pair and the worst point, where `got` is off."""
    if got.shape != want.shape:
        raise Mismatch(f"{pair}: expected shape {tuple(want.shape)}, got {tuple(got.shape)}")
    index = worst(got, want, tolerance)
    if index is None:
        return
    mine, theirs = number(got.reshape(-1)[index]), number(want.reshape(-1)[index])
    if mine == theirs:
        mine, theirs = (f"{float(each.reshape(-1)[index]):.17g}" for each in (got, want))
    nan = "NaN where the true value is finite: " if mine == "nan" else ""
    raise Mismatch(f"{pair}: {nan}{place(index)}: expected {theirs}, got {mine}")


def number(value: Any) -> str:
    return f"{float(value):.9g}"


def point(values: Mapping[str, Any], index: int, shape: torch.Size) -> str:
    """The leaf values behind element `index` of an output of `shape`."""
    shown: list[str] = []
    for name, value in values.items():
        if isinstance(value, Tensor):
            flat = _spread(value, shape)
            shown.append(f"{name}={number(flat[index])}" if flat is not None else name)
        elif isinstance(value, float):
            shown.append(f"{name}={number(value)}")
        else:
            shown.append(f"{name}={value!r}")
    return "at " + ", ".join(shown)


def element(shape: torch.Size, index: int) -> str:
    return f"element {index} of {tuple(shape)}"


def _spread(value: Tensor, shape: torch.Size) -> Tensor | None:
    """The elements of `value` as they broadcast to `shape`; None where they do not."""
    try:
        return value.detach().double().broadcast_to(shape).reshape(-1)
    except RuntimeError:
        return None
