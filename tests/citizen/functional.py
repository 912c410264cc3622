"""torch.func: every transform, eager."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, func

from citizen.autograd import Way, energy, grad, same, tangents
from citizen.feature import NotApplicable, feature, raised
from citizen.subject import Subject, close, many, normal

Transform = Callable[[Way], Callable[..., Any]]


def everything(s: Subject) -> tuple[int, ...]:
    return tuple(range(len(s.inputs)))


def tupled(f: Way) -> Way:
    """Outputs as a plain tuple: what transforms make of a named one is not looked at here."""
    return lambda *xs: many(f(*xs))


@feature("torch.func", "grad")
def func_grad(s: Subject) -> None:
    same(s, lambda f: func.grad(energy(f), everything(s))(*s.inputs))


@feature("torch.func", "vjp")
def vjp(s: Subject) -> None:
    def way(f: Way) -> Any:
        out, pull = func.vjp(tupled(f), *s.inputs)
        return (*out, *pull(tuple(normal(*o.shape, seed=4) for o in out)))

    same(s, way)


@feature("torch.func", "jvp")
def jvp(s: Subject) -> None:
    def way(f: Way) -> Any:
        out, pushed = func.jvp(tupled(f), s.inputs, tangents(s))
        return (*out, *pushed)

    same(s, way)


@feature("torch.func", "linearize")
def linearize(s: Subject) -> None:
    def way(f: Way) -> Any:
        out, push = func.linearize(tupled(f), *s.inputs)
        return (*out, *push(*tangents(s)))

    same(s, way)


def flat(found: Any) -> list[Tensor]:
    return [found] if isinstance(found, Tensor) else [t for each in found for t in flat(each)]


@feature("torch.func", "jacrev")
def jacrev(s: Subject) -> None:
    same(s, lambda f: flat(func.jacrev(tupled(f), everything(s))(*s.inputs)))


@feature("torch.func", "jacfwd")
def jacfwd(s: Subject) -> None:
    same(s, lambda f: flat(func.jacfwd(tupled(f), everything(s))(*s.inputs)))


@feature("torch.func", "hessian")
def hessian(s: Subject) -> None:
    """Forward over reverse, by all pairs of inputs."""
    same(s, lambda f: flat(func.hessian(energy(f), everything(s))(*s.inputs)))


@feature("torch.func", "jacrev of jacrev")
def jacrev_of_jacrev(s: Subject) -> None:
    same(s, lambda f: flat(func.jacrev(func.jacrev(energy(f)))(*s.inputs)))


@feature("torch.func", "grad of jvp")
def grad_of_jvp(s: Subject) -> None:
    """Reverse over forward."""

    def way(f: Way) -> Any:
        pushed = lambda *xs: func.jvp(energy(f), xs, tangents(s))[1]  # noqa: E731
        return func.grad(pushed, everything(s))(*s.inputs)

    same(s, way)


@feature("torch.func", "jvp of jvp")
def jvp_of_jvp(s: Subject) -> str | None:
    def way(f: Way) -> Any:
        pushed = lambda *xs: func.jvp(energy(f), xs, tangents(s))[1]  # noqa: E731
        return func.jvp(pushed, s.inputs, tangents(s))[1]

    if s.own:
        says = "PyTorch loses second tangents through a Function"
        return raised(NotImplementedError, says, lambda: way(s.op))
    return same(s, way)


def batches(s: Subject, which: Any, size: int = 3) -> tuple[tuple[Tensor, ...], tuple[Any, ...]]:
    """Inputs with a batch at varying dimensions, and their in_dims; `which` of them have one."""
    found, dims = [], []
    for k, (t, batched) in enumerate(zip(s.inputs, which, strict=True)):
        dim = (0, -1, 1)[k % 3] if t.dim() else 0
        scales = [1 - 0.1 * i for i in range(size)]
        found.append(torch.stack([t * c for c in scales], dim) if batched else t)
        dims.append(dim if batched else None)
    return tuple(found), tuple(dims)


def choices(s: Subject, most: int = 8) -> list[tuple[bool, ...]]:
    """Which inputs are batched: all, each alone, and others up to a number."""
    count = len(s.inputs)
    every = [w for w in itertools.product((True, False), repeat=count) if any(w)]
    first = [w for w in every if sum(w) in (1, count)]
    return [*first, *(w for w in every if w not in first)][: max(most, len(first))]


def vmapped(s: Subject, transform: Transform) -> None:
    for which in choices(s):
        inputs, dims = batches(s, which)
        same(s, lambda f, i=inputs, d=dims: flat(func.vmap(transform(f), d)(*i)))


@feature("torch.func", "vmap")
def vmap(s: Subject) -> None:
    """Every choice of batched inputs, parameters among them, along any dimension."""
    vmapped(s, tupled)
    inputs, dims = batches(s, [True] * len(s.inputs))
    same(s, lambda f: flat(func.vmap(tupled(f), dims, out_dims=1, chunk_size=2)(*inputs)))


@feature("torch.func", "nested vmap")
def nested_vmap(s: Subject) -> None:
    """One input batched twice; and two inputs by a level each."""
    last = len(s.inputs) - 1
    for outer in {0, last}:
        for inner in {0, last}:
            stacked = list(s.inputs)
            stacked[inner] = torch.stack([stacked[inner] * c for c in (1.0, 0.9)], -1)
            stacked[outer] = torch.stack([stacked[outer] * c for c in (1.0, 0.8, 0.7)])
            inside = tuple(-1 if k == inner else None for k in everything(s))
            outside = tuple(0 if k == outer else None for k in everything(s))
            for transform in (tupled, lambda f: func.grad(energy(f), everything(s))):

                def way(f: Way, t: Any = transform, a: Any = inside, b: Any = outside) -> Any:
                    return flat(func.vmap(func.vmap(t(f), a), b)(*stacked))  # noqa: B023

                same(s, way)


@feature("torch.func", "vmap of grad")
def vmap_of_grad(s: Subject) -> None:
    """Gradients per sample: those of what is not batched too, never summed over the batch."""
    vmapped(s, lambda f: func.grad(energy(f), everything(s)))


@feature("torch.func", "vmap of hessian")
def vmap_of_hessian(s: Subject) -> None:
    inputs, dims = batches(s, [True] * len(s.inputs), 2)
    same(s, lambda f: flat(func.vmap(func.hessian(energy(f)), dims)(*inputs)))


@feature("torch.func", "vmap of jvp")
def vmap_of_jvp(s: Subject) -> None:
    def pushed(f: Way) -> Way:
        return lambda *xs: func.jvp(tupled(f), xs, tuple(x.cos() for x in xs))[1]

    vmapped(s, pushed)


@feature("torch.func", "grad of vmap")
def grad_of_vmap(s: Subject) -> None:
    """And autograd through vmap, to the second order."""
    for which in choices(s, 4):
        inputs, dims = batches(s, which)

        def way(f: Way, inputs: Any = inputs, dims: Any = dims) -> Any:
            over = lambda *xs: func.vmap(energy(f), dims)(*xs).square().sum()  # noqa: E731
            leaves = tuple(t.clone().requires_grad_() for t in inputs)
            first = grad(over(*leaves), leaves, create_graph=True)
            second = grad(sum((g * g).sum() for g in first), leaves)
            return (*func.grad(over, everything(s))(*inputs), *first, *second)

        same(s, way, rtol=1e-7)


@feature("torch.func", "vmap is one call")
def vmap_is_one_call(s: Subject) -> None:
    """Of the kernel, forward and backward, and not one per sample."""
    inputs, dims = batches(s, [True] * len(s.inputs), 5)
    with s.counted() as calls:
        func.vmap(tupled(s.op), dims)(*inputs)
        assert len(calls) == 1, f"{calls} for 5 samples"
        calls.clear()
        func.vmap(func.grad(energy(s.op), everything(s)), dims)(*inputs)
        assert len(calls) <= 3 and calls, f"{calls} for the gradients of 5 samples"


@feature("torch.func", "functional_call")
def functional_call(s: Subject) -> None:
    """The module with other parameters; per-sample gradients; an ensemble."""
    module = s.module()
    names = [s.tensor_names[k] for k in s.parameters]
    data = s.module_inputs()
    if not names:
        close(many(func.functional_call(module, {}, data)), many(s.reference(*s.inputs)))
        raise NotApplicable("no parameters")

    def by_module(parameters: dict[str, Tensor]) -> Tensor:
        return energy(lambda *xs: func.functional_call(module, parameters, xs))(*data)

    def by_reference(parameters: dict[str, Tensor]) -> Tensor:
        given = [parameters.get(n, t) for n, t in zip(s.tensor_names, s.inputs, strict=True)]
        return energy(s.reference)(*given)

    values = {n: s.inputs[k] * 0.9 for n, k in zip(names, s.parameters, strict=True)}
    stacked = {n: torch.stack([t, 1.1 * t]) for n, t in values.items()}
    for one, other in (
        (by_module(values), by_reference(values)),
        (func.grad(by_module)(values), func.grad(by_reference)(values)),
        (func.vmap(by_module)(stacked), func.vmap(by_reference)(stacked)),
        (func.vmap(func.grad(by_module))(stacked), func.vmap(func.grad(by_reference))(stacked)),
    ):
        if isinstance(one, dict):
            one, other = list(one.values()), list(other.values())
        close(one, other)
