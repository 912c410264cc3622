"""What every check is given: the package, the cases and tables, and tensors made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autofn.verify.checks.compare import Mismatch, point
from autofn.verify.job import Array, Case, Job, Key
from autofn.verify.subject import Subject


@dataclass(frozen=True)
class Context:
    """One backend of one package; its leaves are in place while a check runs."""

    subject: Subject
    job: Job

    def cases(self, *names: str) -> Iterator[Case]:
        """The cases of these names, or all, of every variant."""
        for case in self.job.cases:
            if not names or case.name in names:
                yield case

    def is_parameter(self, leaf: str) -> bool:
        return self.job.signature.kinds[leaf][0] in ("LEARNABLE", "PER_CHANNEL")

    def values(
        self,
        case: Case,
        dtype: torch.dtype = torch.float64,
        parameters: torch.dtype | None = None,
        requires_grad: bool = True,
    ) -> dict[str, Any]:
        """The case's leaf values, tensors of `dtype` and parameters of theirs."""
        values: dict[str, Any] = {}
        for name, value in case.values.items():
            if isinstance(value, Array):
                own = (parameters or dtype) if self.is_parameter(name) else dtype
                values[name] = build(value, own).requires_grad_(requires_grad)
            else:
                values[name] = value
        return values

    def given(self, values: dict[str, Any]) -> list[str]:
        """The differentiable leaves that are there, in signature order."""
        return [name for name in self.subject.names if values[name] is not None]

    def spread(self, values: dict[str, Any], shape: torch.Size) -> dict[str, Any]:
        """The values with parameters viewed so that they broadcast to `shape`."""
        spread: dict[str, Any] = {}
        for name, value in values.items():
            if isinstance(value, Tensor) and self.is_parameter(name):
                kind, dim = self.job.signature.kinds[name]
                if value.numel() == 1:
                    value = value.reshape(())
                elif kind == "PER_CHANNEL":
                    trailing = len(shape) - 1 - (dim % len(shape))
                    value = value.reshape(-1, *[1] * trailing)
            spread[name] = value
        return spread

    def place(self, values: dict[str, Any], shape: torch.Size, index: int) -> str:
        """The point behind element `index` of an output of `shape`."""
        return point(self.spread(values, shape), index, shape)


def build(array: Array, dtype: torch.dtype) -> Tensor:
    """The array as a tensor, in the layout that it asks for."""
    dense = torch.tensor(array.data, dtype=torch.float64).to(dtype).reshape(array.shape)
    if array.layout == "transposed" and dense.dim() >= 2:
        return dense.transpose(0, -1).contiguous().transpose(0, -1)
    if array.layout == "sliced" and dense.dim() >= 1:
        wide = torch.full((*array.shape[:-1], 2 * array.shape[-1] + 1), torch.nan, dtype=dtype)
        view = wide[..., 1::2]
        view.copy_(dense)
        return view
    return dense


def variant(key: Key) -> str:
    """The variant as it stands in a failure: empty where there is only one."""
    return f" [{', '.join(f'{name}={value!r}' for name, value in key)}]" if key else ""


def label(case: Case) -> str:
    return f"{case.name}{variant(case.key)}"


def in_case(case: Case, error: Exception) -> Mismatch:
    """The error of one case as a verdict that names the case."""
    text = " ".join(str(error).split())
    what = text if isinstance(error, Mismatch) else f"{type(error).__name__}: {text}"
    return Mismatch(f"{label(case)}: {what}")
