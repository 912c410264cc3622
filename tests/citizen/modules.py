"""The nn.Module, and where ops run: threads, processes, inference mode."""

from __future__ import annotations

import copy
import functools
import importlib
import io
import multiprocessing
import os
import pickle
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parametrize

from autofn.names import camel_case
from citizen.autograd import derivatives, energy, grad
from citizen.feature import NotApplicable, feature
from citizen.subject import Subject, close, many


def outputs(module: torch.nn.Module, s: Subject) -> tuple[Tensor, ...]:
    return many(module(*s.module_inputs()))


@feature("modules and processes", "state_dict and copies")
def copies(s: Subject) -> None:
    """state_dict, deepcopy, pickle, torch.save with and without weights_only."""
    module, expected = s.module(), many(s.reference(*s.inputs))
    close(outputs(module, s), expected)
    assert list(module.state_dict()) == [s.tensor_names[k] for k in s.parameters]
    file, weights = io.BytesIO(), io.BytesIO()
    torch.save(module, file)
    torch.save(module.state_dict(), weights)
    file.seek(0), weights.seek(0)
    other = s.module()
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    other.load_state_dict(torch.load(weights, weights_only=True), strict=True)
    for each in (
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
        torch.load(file, weights_only=False),
        other,
    ):
        close(outputs(each, s), expected)
        assert repr(each) == repr(module)


@feature("modules and processes", "to, half, meta")
def moved(s: Subject) -> None:
    """to(dtype), half, and construction on meta, filled by to_empty and reset_parameters."""
    module = s.module()
    for convert, dtype in (
        (lambda m: m.to(torch.float32), torch.float32),
        (lambda m: m.half(), torch.float16),
        (lambda m: m.bfloat16(), torch.bfloat16),
    ):
        other = convert(copy.deepcopy(module))
        assert all(p.dtype is dtype for p in other.parameters())
        out = many(other(*(t.to(dtype) for t in s.module_inputs())))
        assert all(o.dtype is dtype for o in out)
    meta = s.module(device="meta")
    assert all(p.is_meta for p in meta.parameters())
    out = many(meta(*(t.to("meta") for t in s.module_inputs())))
    assert all(o.is_meta for o in out)
    assert [o.shape for o in out] == [o.shape for o in outputs(module, s)]
    meta = meta.to_empty(device="cpu")
    if s.parameters:
        meta.reset_parameters()
        fresh = getattr(s.package, camel_case(s.name))
        with torch.device("meta"):
            assert all(p.is_meta for p in s.module().parameters())
        values = [p.default for p in s.definition.parameters if p.name in meta.state_dict()]
        assert [p.flatten()[0].item() for p in meta.parameters()] == values, fresh


@feature("modules and processes", "parametrize")
def parametrized(s: Subject) -> None:
    if not s.parameters:
        raise NotApplicable("no parameters")

    class Scaled(torch.nn.Module):
        def forward(self, p: Tensor) -> Tensor:
            return 0.9 * p

    module = s.module()
    for k in s.parameters:
        parametrize.register_parametrization(module, s.tensor_names[k], Scaled())
    inputs = tuple(t * 0.9 if k in s.parameters else t for k, t in enumerate(s.inputs))
    close(outputs(module, s), many(s.reference(*inputs)))
    energy(module)(*s.module_inputs()).backward()
    wanted = derivatives(s.reference, inputs, 1)
    for k in s.parameters:
        original = getattr(module.parametrizations, s.tensor_names[k]).original
        close(original.grad, 0.9 * wanted[k])


@feature("modules and processes", "inference mode")
def inference_mode(s: Subject) -> None:
    expected = many(s.reference(*s.inputs))
    with torch.inference_mode():
        out = many(s.op(*(t.clone() for t in s.inputs)))
        assert all(o.is_inference() for o in out)
        close(out, expected)
    close(many(s.op(*out[:0], *s.inputs)), expected)
    with torch.no_grad():
        out = many(s.op(*s.leaves()))
        assert not any(o.requires_grad for o in out)
        close(out, expected)


@feature("modules and processes", "threads")
def threads(s: Subject) -> None:
    """Four at a time, forward and backward, the first use of the package among them."""
    expected, wrong = derivatives(s.reference, s.inputs, 2), []
    s.runtime._LOADED.clear()

    def work() -> None:
        try:
            for _ in range(3):
                close(derivatives(s.op, s.inputs, 2), expected)
        except BaseException as error:
            wrong.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    if wrong:
        raise wrong[0]


def first_order(op: Any, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    leaves = tuple(t.clone().requires_grad_() for t in inputs)
    return [t.detach() for t in (*many(op(*leaves)), *grad(energy(op)(*leaves), leaves))]


@feature("modules and processes", "fork")
def forked(s: Subject) -> None:
    """A child that is forked after the op was used computes the same bits."""
    expected = first_order(s.op, s.inputs)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            found = first_order(s.op, s.inputs)
            code = 0 if all(map(torch.equal, found, expected)) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


@functools.cache
def spawned() -> ProcessPoolExecutor:
    """A worker for all formulas, as a data loader's: it imports and loads what it is asked."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def in_worker(
    path: list[str], module: str, name: str, native: bool, keywords: Any, inputs: Any
) -> list[Any]:
    """Values and gradients in the worker, as arrays."""
    sys.path[:] = path
    package = importlib.import_module(module)
    runtime = sys.modules[f"{module}._runtime"]
    runtime.BACKEND = "native" if native else "torch"
    runtime._LOADED.clear()
    op = functools.partial(getattr(package, name), **keywords)
    return [t.numpy() for t in first_order(op, tuple(map(torch.from_numpy, inputs)))]


@feature("modules and processes", "spawn")
def spawn(s: Subject) -> None:
    """A worker that shares nothing computes the same bits."""
    arrays = [t.numpy() for t in s.inputs]
    job = (sys.path, s.package.__name__, s.name, s.native, s.keywords, arrays)
    found = spawned().submit(in_worker, *job).result(timeout=300)
    for got, want in zip(found, first_order(s.op, s.inputs), strict=True):
        assert torch.equal(torch.from_numpy(got), want)
