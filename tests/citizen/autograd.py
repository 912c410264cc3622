"""Autograd: derivatives of any order, and all that users hang on a graph."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from citizen.feature import NotApplicable, feature, raised
from citizen.subject import Subject, close, many, normal

Way = Callable[..., Any]


def energy(f: Way) -> Callable[..., Tensor]:
    """A scalar function of the op, whose cotangents differ and depend on the outputs."""

    def call(*inputs: Tensor) -> Tensor:
        total: Any = 0
        for out in many(f(*inputs)):
            weights = torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).reshape(out.shape)
            total = total + (weights * out + out * out / 8).sum()
        return total

    return call


def grad(value: Any, inputs: Any, *args: Any, **options: Any) -> tuple[Tensor, ...]:
    return torch.autograd.grad(value, inputs, *args, materialize_grads=True, **options)


def derivatives(f: Way, inputs: tuple[Tensor, ...], order: int) -> tuple[Tensor, ...]:
    """The gradients of an order, each contracted with a direction to make the next one."""
    inputs = tuple(t.detach().clone().requires_grad_() for t in inputs)
    value, found = energy(f)(*inputs), ()
    for k in range(order):
        if not value.requires_grad:  # a polynomial, at its end
            return tuple(0 * t for t in inputs)
        found = grad(value, inputs, create_graph=True)
        value = sum((g * normal(*g.shape, seed=k)).sum() for g in found)  # type: ignore[assignment]
    return found


def same(s: Subject, way: Callable[[Way], Any], rtol: float = 1e-8) -> None:
    """The op and its reference agree under the same use."""
    close(way(s.op), way(s.reference), rtol)


@feature("autograd", "gradients")
def gradients(s: Subject) -> None:
    close(many(s.op(*s.inputs)), many(s.reference(*s.inputs)))
    same(s, lambda f: derivatives(f, s.inputs, 1))
    out = many(s.op(*s.leaves()))
    with torch.no_grad():
        raw = out[0].grad_fn.apply(*(torch.ones_like(o) for o in out))  # type: ignore[union-attr]
    for g, like in zip(many(raw), s.inputs, strict=False):
        assert g is None or (g.shape, g.dtype) == (like.shape, like.dtype), "repaired by autograd"


@feature("autograd", "double backward")
def double_backward(s: Subject) -> None:
    same(s, lambda f: derivatives(f, s.inputs, 2))


@feature("autograd", "triple backward")
def triple_backward(s: Subject) -> None:
    same(s, lambda f: derivatives(f, s.inputs, 3), rtol=1e-7)


@feature("autograd", "gradient penalty")
def gradient_penalty(s: Subject) -> None:
    def way(f: Way) -> tuple[Tensor, ...]:
        inputs = s.leaves()
        found = grad(energy(f)(*inputs), inputs, create_graph=True)
        (energy(f)(*inputs) + sum(g.pow(2).sum() for g in found)).backward()
        return tuple(t.grad for t in inputs)  # type: ignore[misc]

    same(s, way)


@feature("autograd", "retain_graph twice")
def retain_graph(s: Subject) -> None:
    inputs = s.leaves()
    value = energy(s.op)(*inputs)
    found = [grad(value, inputs, retain_graph=keep) for keep in (True, True, False)]
    for each in found:
        close(each, derivatives(s.reference, s.inputs, 1))
    if many(s.op(*inputs))[0].grad_fn._raw_saved_tensors:  # type: ignore[union-attr]
        raised(RuntimeError, "second time", lambda: grad(value, inputs))


@feature("autograd", "retain_grad")
def retain_grad(s: Subject) -> None:
    def way(f: Way) -> list[Tensor]:
        inputs = s.leaves()
        middle = [t * 1 for t in inputs]
        out = many(f(*middle))
        for each in (*middle, *out):
            if each.requires_grad:
                each.retain_grad()
        sum((o * o).sum() for o in out).backward()  # type: ignore[union-attr]
        return [0 * t if t.grad is None else t.grad for t in (*middle, *out)]

    same(s, way)


@feature("autograd", "backward(gradient)")
def backward_gradient(s: Subject) -> None:
    """Dense, expanded and transposed ones."""
    shape = many(s.op(*s.inputs))[0].shape
    dense = normal(*shape, seed=5)
    transposed = normal(*shape[:-2], shape[-1], shape[-2], seed=6).transpose(-1, -2)
    for cotangent in (dense, normal(1, seed=7).expand(shape), transposed):

        def way(f: Way, cotangent: Tensor = cotangent) -> list[Tensor]:
            inputs = s.leaves()
            many(f(*inputs))[0].backward(cotangent)
            return [0 * t if t.grad is None else t.grad for t in inputs]

        same(s, way)


@feature("autograd", "hooks")
def hooks(s: Subject) -> None:
    def way(f: Way) -> list[Tensor]:
        seen: list[Tensor] = []
        inputs = s.leaves()
        inputs[0].register_hook(lambda g: 3 * g)
        inputs[-1].register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
        out = many(f(*inputs))
        out[0].register_hook(lambda g: seen.append(g) or 2 * g)
        if len(out) == 1:  # of several, PyTorch's operations have a node each
            node = out[0].grad_fn
            assert node is not None
            node.register_prehook(lambda grads: tuple(g if g is None else g / 2 for g in grads))
        sum((o * o).sum() for o in out).backward()  # type: ignore[union-attr]
        return [*seen, *(0 * t if t.grad is None else t.grad for t in inputs)]

    same(s, way)


@feature("autograd", "subsets of gradients")
def needed_subsets(s: Subject) -> None:
    """Gradients for some of the inputs, to the second order; at most sixteen subsets."""
    count = len(s.inputs)
    subsets = [w for w in itertools.product((False, True), repeat=count) if any(w)]
    for which in subsets[:: max(1, len(subsets) // 16)]:

        def way(f: Way, which: Any = which) -> Any:
            inputs = [t.clone().requires_grad_(need)
                      for t, need in zip(s.inputs, which, strict=True)]  # fmt: skip
            wanted = [t for t in inputs if t.requires_grad]
            first = grad(energy(f)(*inputs), wanted, create_graph=True)
            return (*first, *grad(sum((g * g).sum() for g in first), wanted))

        same(s, way)


@feature("autograd", "unused outputs")
def unused_outputs(s: Subject) -> None:
    """Each output alone; and no gradient at all gives None."""
    count = len(many(s.op(*s.inputs)))
    for k in range(count):

        def way(f: Way, k: int = k) -> Any:
            inputs = s.leaves()
            out = many(f(*inputs))[k]
            return grad((out * out).sum(), inputs) if out.requires_grad else ()

        same(s, way)
    node = many(s.op(*s.leaves()))[0].grad_fn
    with torch.no_grad():
        assert all(g is None for g in many(node.apply(*[None] * count) or ()))  # type: ignore


def tangents(s: Subject) -> tuple[Tensor, ...]:
    return tuple(normal(*t.shape, seed=9 + k) for k, t in enumerate(s.inputs))


@feature("autograd", "forward_ad")
def forward_mode(s: Subject) -> None:
    """Tangents of all inputs, and of each alone."""
    count = len(s.inputs)
    for which in (range(count), *([k] for k in range(count))):

        def way(f: Way, which: Any = which) -> list[Tensor]:
            with forward_ad.dual_level():
                duals = [
                    forward_ad.make_dual(x, t) if k in which else x
                    for k, (x, t) in enumerate(zip(s.inputs, tangents(s), strict=True))
                ]
                found = [forward_ad.unpack_dual(o) for o in many(f(*duals))]
                return [0 * f.primal if f.tangent is None else f.tangent.clone() for f in found]

        same(s, way)


@feature("autograd", "forward over reverse")
def forward_over_reverse(s: Subject) -> None:
    def way(f: Way) -> list[Tensor]:
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(x.clone().requires_grad_(), t)
                     for x, t in zip(s.inputs, tangents(s), strict=True)]  # fmt: skip
            found = [forward_ad.unpack_dual(g) for g in grad(energy(f)(*duals), duals)]
            return [0 * g.primal if g.tangent is None else g.tangent.clone() for g in found]

    same(s, way)


@feature("autograd", "anomaly mode")
def anomaly_mode(s: Subject) -> None:
    expected = derivatives(s.reference, s.inputs, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly(check_nan=True):
            close(derivatives(s.op, s.inputs, 2), expected)


@feature("autograd", "saved tensor hooks")
def saved_tensor_hooks(s: Subject) -> None:
    """Everything saved goes through the hooks: what they give back is what backward sees."""
    packed: list[Tensor] = []

    def pack(t: Tensor) -> Any:
        packed.append(t)
        return t.detach().clone().numpy()

    expected = derivatives(s.reference, s.inputs, 2)
    with saved_tensors_hooks(pack, torch.from_numpy):
        close(derivatives(s.op, s.inputs, 2), expected)
    assert packed
    with save_on_cpu():
        close(derivatives(s.op, s.inputs, 2), expected)


@feature("autograd", "checkpoint")
def checkpointing(s: Subject) -> None:
    expected = derivatives(s.reference, s.inputs, 1)
    for reentrant in (False, True):
        inputs = s.leaves()
        checkpoint(energy(s.op), *inputs, use_reentrant=reentrant).backward()
        close([0 * t if t.grad is None else t.grad for t in inputs], expected)


@feature("autograd", "changed saved tensors")
def changed_saved_tensors(s: Subject) -> None:
    """An input or output changed in place before backward: an error, or the gradient there was."""
    shape = many(s.op(*s.inputs))[0].shape
    for k in range(len(s.inputs) + 1):
        inputs = s.leaves()
        middle = [t * 1 for t in inputs]
        out = many(s.op(*middle))[0]
        if not out.requires_grad:
            continue
        changed = (*middle, out)[k]
        with torch.no_grad():
            changed.add_(1)
        try:
            found = grad(out, inputs, normal(*shape, seed=3))
        except RuntimeError as error:
            if "modified by an inplace operation" not in str(error):
                raise
            continue
        again = s.leaves()
        close(found, grad(many(s.reference(*again))[0], again, normal(*shape, seed=3)))


@feature("autograd", "batched gradients")
def batched_gradients(s: Subject) -> None:
    """grad(is_grads_batched=True), which is vmap of a backward."""

    def way(f: Way) -> Any:
        inputs = s.leaves()
        out = many(f(*inputs))[0]
        return grad(out, inputs, normal(3, *out.shape), is_grads_batched=True)

    if not many(s.op(*s.leaves()))[0].requires_grad:
        raise NotApplicable
    same(s, way)
