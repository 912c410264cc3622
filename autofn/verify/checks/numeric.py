"""gradcheck, gradgradcheck and forward mode, in float64 against central differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from autofn.verify.checks.compare import Mismatch, NotRun, number
from autofn.verify.checks.context import Context, in_case
from autofn.verify.job import Case

SMALL = 40
"""Input elements up to which a quick check computes the whole Jacobian, not a projection of it."""

EPS, ATOL, RTOL = 1e-6, 1e-5, 1e-3

Call = Callable[..., tuple[Tensor, ...]]


def first_order(context: Context) -> str:
    """torch.autograd.gradcheck on every case, absent output gradients and batches included."""
    if context.job.signature.own_gradient:
        raise NotRun("the formula's gradient is its own, not the derivative")
    count = 0
    for case in context.cases():
        values, names, call = _call(context, case)
        if not _run(context, case, call, values, names, check_batched_grad=True):
            continue
        count += 1
    return f"{count} cases"


def second_order(context: Context) -> str:
    """torch.autograd.gradgradcheck on every case."""
    count = 0
    for case in context.cases():
        if case.name == "empty":
            continue
        values, names, call = _call(context, case)
        tensors = [values[name] for name in names]
        if not _has_gradient(call, tensors):
            continue
        try:
            gradgradcheck(call, tensors, eps=EPS, atol=ATOL, rtol=RTOL, fast_mode=True)
        except Exception as error:
            raise in_case(case, _second_order_worst(context, call, values, names, error)) from None
        count += 1
    return f"{count} cases"


def forward_mode(context: Context) -> str:
    """gradcheck of forward-mode derivatives, and <v, J u> = <J^T v, u>."""
    count = 0
    for case in context.cases():
        if case.name == "empty":
            continue
        values, names, call = _call(context, case)
        if not context.job.signature.own_gradient:
            _run(context, case, call, values, names, check_forward_ad=True, check_backward_ad=False)
        try:
            _transpose(context, call, values, names)
        except NotImplementedError as error:
            if context.job.signature.own_gradient:
                raise NotRun("the formula's own gradient has no transpose") from None
            raise in_case(case, error) from None
        except Exception as error:
            raise in_case(case, error) from None
        count += 1
    return f"{count} cases"


def _call(context: Context, case: Case) -> tuple[dict[str, Any], list[str], Call]:
    values = context.values(case)
    names = context.given(values)
    return values, names, context.subject.over(values, names)


def _run(
    context: Context,
    case: Case,
    call: Call,
    values: dict[str, Any],
    names: Sequence[str],
    **options: bool,
) -> bool:
    tensors = [values[name] for name in names]
    if case.name == "empty":
        return False
    few = sum(tensor.numel() for tensor in tensors) <= SMALL and case.name == "dense"
    whole = few or context.job.level == "full"
    try:
        gradcheck(call, tensors, eps=EPS, atol=ATOL, rtol=RTOL, fast_mode=not whole, **options)
    except Exception as error:
        found = _worst_entry(context, call, values, names)
        raise in_case(case, found or error) from None
    return True


def _has_gradient(call: Call, tensors: Sequence[Tensor]) -> bool:
    return any(output.requires_grad for output in call(*tensors))


def _worst_entry(
    context: Context, call: Call, values: dict[str, Any], names: Sequence[str]
) -> Mismatch | None:
    """The worst entry of the Jacobian, found once gradcheck has said that there is one."""
    tensors = [values[name].detach().contiguous() for name in names]
    count = len(call(*tensors))
    worst: tuple[float, str] = (1.0, "")
    for o in range(count):
        for i, name in enumerate(names):
            leaf = tensors[i].clone().requires_grad_()
            output = call(*tensors[:i], leaf, *tensors[i + 1 :])[o]
            flat = output.reshape(-1)
            for e in range(tensors[i].numel()):
                up, down = (_moved(call, tensors, i, e, step)[o] for step in (EPS, -EPS))
                want = ((up - down) / (2 * EPS)).reshape(-1)
                for k in range(flat.numel()):
                    (row,) = torch.autograd.grad(flat[k], leaf, retain_graph=True)
                    got = row.reshape(-1)[e]
                    ratio = float(abs(got - want[k]) / (ATOL + RTOL * abs(want[k])))
                    ratio = math.inf if math.isnan(ratio) else ratio
                    if ratio > worst[0]:
                        place = context.place(values, output.shape, k)
                        worst = (
                            ratio,
                            (
                                f"d {context.subject.outputs[o]} / d {name}: {place}: "
                                f"expected {number(want[k])}, got {number(got)}"
                            ),
                        )
    return Mismatch(worst[1]) if worst[1] else None


def _moved(
    call: Call, tensors: Sequence[Tensor], i: int, e: int, step: float
) -> tuple[Tensor, ...]:
    moved = tensors[i].clone()
    moved.reshape(-1)[e] += step
    return call(*tensors[:i], moved, *tensors[i + 1 :])


def _second_order_worst(
    context: Context,
    call: Call,
    values: dict[str, Any],
    names: Sequence[str],
    error: Exception,
) -> Exception:
    """The worst second derivative of a weighted sum of one output; `error` if none stands out."""
    tensors = [values[name].detach().contiguous().requires_grad_() for name in names]
    worst: tuple[float, str] = (1.0, "")

    def gradient(o: int, i: int, at: Sequence[Tensor], graph: bool = False) -> Tensor:
        (grad,) = torch.autograd.grad(
            _weighted(call(*at)[o]), at[i], create_graph=graph, materialize_grads=True
        )
        return grad

    for o in range(len(call(*tensors))):
        for i, first in enumerate(names):
            for j, second in enumerate(names):
                grad = gradient(o, i, tensors, graph=True)
                if not grad.requires_grad:
                    got = torch.zeros_like(tensors[j])
                else:
                    (got,) = torch.autograd.grad(
                        _weighted(grad), tensors[j], materialize_grads=True
                    )
                for e in range(tensors[j].numel()):
                    sides = []
                    for step in (EPS, -EPS):
                        moved = [t.detach().clone().requires_grad_() for t in tensors]
                        with torch.no_grad():
                            moved[j].reshape(-1)[e] += step
                        sides.append(float(_weighted(gradient(o, i, moved))))
                    want = (sides[0] - sides[1]) / (2 * EPS)
                    mine = float(got.reshape(-1)[e])
                    ratio = abs(mine - want) / (ATOL + RTOL * abs(want))
                    ratio = math.inf if math.isnan(ratio) else ratio
                    if ratio > worst[0]:
                        at = number(tensors[j].reshape(-1)[e])
                        worst = (
                            ratio,
                            (
                                f"d2 {context.subject.outputs[o]} / d {first} d {second}: "
                                f"at {second}={at}: expected {number(want)}, got {number(mine)}"
                            ),
                        )
    return Mismatch(worst[1]) if worst[1] else error


def _weighted(tensor: Tensor) -> Tensor:
    """A sum that no missing factor leaves alone."""
    weights = torch.linspace(0.5, 1.5, tensor.numel(), dtype=tensor.dtype)
    return (tensor * weights.reshape(tensor.shape)).sum()


def _transpose(context: Context, call: Call, values: dict[str, Any], names: Sequence[str]) -> None:
    """Forward and reverse mode are transposes of each other."""
    generator = torch.Generator().manual_seed(0)

    def noise(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator, dtype=like.dtype)

    tensors = tuple(values[name] for name in names)
    tangents = tuple(noise(tensor) for tensor in tensors)
    jvp: Any = torch.func.jvp
    outputs, moved = jvp(call, tuple(t.detach() for t in tensors), tangents)
    cotangents = tuple(noise(output) for output in outputs)
    reverse = torch.autograd.grad(call(*tensors), tensors, cotangents, materialize_grads=True)
    left = sum(float((v * m).sum()) for v, m in zip(cotangents, moved, strict=True))
    right = sum(float((g * u).sum()) for g, u in zip(reverse, tangents, strict=True))
    scale = sum(float((v * m).abs().sum()) for v, m in zip(cotangents, moved, strict=True))
    if not abs(left - right) <= 1e-9 * max(1.0, scale):
        raise Mismatch(
            f"jvp and vjp disagree over {', '.join(names)}: "
            f"<v, J u> = {number(left)}, <J^T v, u> = {number(right)}"
        )
