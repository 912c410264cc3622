"""vmap: the same as a loop over the batch, for values and for per-sample gradients."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from autofn.verify.checks.compare import element, require_close
from autofn.verify.checks.context import Context, in_case
from autofn.verify.job import Case

BATCH = 3
TOLERANCE = 1e-12


def vmap(context: Context) -> str:
    """vmap over all leaves, over each alone, over the last dimension; of the gradient too."""
    count = 0
    for case in context.cases("dense", "broadcast", "0-dim"):
        try:
            count += _case(context, case)
        except Exception as error:
            raise in_case(case, error) from None
    return f"{count} batchings"


def _case(context: Context, case: Case) -> int:
    values = context.values(case, requires_grad=False)
    names = context.given(values)
    # A batch of the case's own values in other orders, so that its points stay regular.
    stacked = {name: _batch(values[name], 0) for name in names}
    first = [name for name in names if not context.is_parameter(name)][:1]
    count = 0
    for mapped, dim in ((names, 0), (first, 0), (names, -1)):
        _compare(context, values, stacked, mapped, dim)
        count += 1
    _per_sample(context, values, stacked, names)
    return count + 1


def _batch(tensor: Tensor, dim: int) -> Tensor:
    return torch.stack([tensor * (1 + k / 1024) for k in range(BATCH)], dim)


def _compare(
    context: Context,
    values: dict[str, Any],
    stacked: dict[str, Tensor],
    mapped: Sequence[str],
    dim: int,
) -> None:
    call = context.subject.over(values, mapped)
    batches = [stacked[name].movedim(0, dim) for name in mapped]
    got = torch.vmap(call, in_dims=dim)(*batches)
    for b in range(BATCH):
        want = call(*(stacked[name][b] for name in mapped))
        for name, mine, theirs in zip(context.subject.outputs, got, want, strict=True):
            require_close(
                mine[b],
                theirs,
                TOLERANCE * (1 + theirs.abs()),
                f"vmap of {name} over {', '.join(mapped)}, in_dims={dim}",
                functools.partial(context.place, values, theirs.shape),
            )


def _per_sample(
    context: Context, values: dict[str, Any], stacked: dict[str, Tensor], names: Sequence[str]
) -> None:
    call = context.subject.over(values, names)

    def loss(*tensors: Tensor) -> Tensor:
        return torch.stack([output.sum() for output in call(*tensors)]).sum()

    everything = tuple(range(len(names)))
    tensors = [stacked[name] for name in names]
    got = torch.vmap(torch.func.grad(loss, argnums=everything))(*tensors)
    for b in range(BATCH):
        sample = [tensor[b].clone().requires_grad_() for tensor in tensors]
        want = torch.autograd.grad(loss(*sample), sample, materialize_grads=True)
        for name, mine, theirs in zip(names, got, want, strict=True):
            require_close(
                mine[b],
                theirs,
                TOLERANCE * (1 + theirs.abs()),
                f"per-sample gradient of {name}",
                functools.partial(element, theirs.shape),
            )
