"""Dtypes and automatic mixed precision."""

from __future__ import annotations

import torch
from torch import Tensor

from citizen.autograd import energy, grad
from citizen.feature import NotApplicable, feature
from citizen.subject import Subject, many, normal

ROUNDING = {torch.float32: 2.0**-18, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-9}


def rounded(s: Subject, tensors: torch.dtype, parameters: torch.dtype) -> tuple[Tensor, ...]:
    return tuple(t.to(parameters if k in s.parameters else tensors)
                 for k, t in enumerate(s.inputs))  # fmt: skip


def against_float64(s: Subject, inputs: tuple[Tensor, ...], dtype: torch.dtype) -> None:
    """Outputs and gradients of these inputs against the reference on the same values in float64."""
    leaves = tuple(t.clone().requires_grad_() for t in inputs)
    exact = tuple(t.double().requires_grad_() for t in inputs)
    out, want = many(s.op(*leaves)), many(s.reference(*exact))
    cotangents = [normal(*o.shape, seed=k).to(dtype) for k, o in enumerate(out)]
    tolerance = ROUNDING[dtype]
    for o, w in zip(out, want, strict=True):
        assert o.dtype is dtype, f"{o.dtype} of {dtype} tensors"
        near(o, w, tolerance)
    found = grad(out, leaves, cotangents)
    expected = grad(want, exact, [c.double() for c in cotangents])
    for g, e, leaf in zip(found, expected, leaves, strict=True):
        assert g.dtype is leaf.dtype
        near(g, e, tolerance)


def near(got: Tensor, want: Tensor, tolerance: float) -> None:
    """To a dtype's rounding of the largest value: an input's error is carried along."""
    size = max(1e-3, want.abs().max().item())
    torch.testing.assert_close(got.double(), want.double(), rtol=tolerance, atol=tolerance * size)


@feature("dtypes and AMP", "float32, bfloat16, float16")
def dtypes(s: Subject) -> None:
    for dtype in ROUNDING:
        against_float64(s, rounded(s, dtype, dtype), dtype)


@feature("dtypes and AMP", "float32 parameters")
def float32_parameters(s: Subject) -> None:
    """Beside tensors of 16 bits, as under mixed precision: they never promote."""
    if not s.parameters:
        raise NotApplicable("no parameters")
    for dtype in (torch.bfloat16, torch.float16):
        against_float64(s, rounded(s, dtype, torch.float32), dtype)


@feature("dtypes and AMP", "autocast")
def autocast(s: Subject) -> None:
    """Behind a linear layer, in bfloat16, backward too; amp="float32" stays in float32."""
    linear = torch.nn.Linear(4, 4)
    wide = s.definition.options.amp == "float32"
    inputs = tuple(t.clone().requires_grad_() for t in rounded(s, torch.float32, torch.float32))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        middle = linear(inputs[0])
        assert middle.dtype is torch.bfloat16
        middle = middle.sigmoid() if s.name in ("logit", "lennard_jones", "polar") else middle
        args = [t.bfloat16() if k not in s.parameters else t for k, t in enumerate(inputs)]
        out = many(s.op(middle, *args[1:]))
        expected = torch.float32 if wide else torch.bfloat16
        assert {o.dtype for o in out} == {expected}, f"{out[0].dtype} under autocast"
    exact = tuple(t.detach().double() for t in (middle, *args[1:]))
    for o, w in zip(out, many(s.reference(*exact)), strict=True):
        near(o, w, ROUNDING[expected])
    grad(sum(o.float().sum() for o in out), (*linear.parameters(), *inputs))


@feature("dtypes and AMP", "GradScaler")
def grad_scaler(s: Subject) -> None:
    """Gradients scaled and unscaled are those of the loss; an overflow skips the step."""
    inputs = tuple(torch.nn.Parameter(t) for t in rounded(s, torch.float32, torch.float32))
    optimizer = torch.optim.SGD(inputs, lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    value = energy(s.op)(*inputs)
    if not value.requires_grad:
        raise NotApplicable
    expected = grad(value, inputs, retain_graph=True)
    scaler.scale(value).backward()
    scaler.unscale_(optimizer)
    for t, e in zip(inputs, expected, strict=True):
        near(torch.zeros_like(t) if t.grad is None else t.grad, e, 2.0**-20)
    scaler.step(optimizer)
    scaler.update()
