"""A formula as PyTorch operations, by walking its expressions as the user wrote them.

Nothing of what autofn derives, rewrites or prints is in it; autograd differentiates it. It is
exact enough in float64 at moderate points away from kinks, which is where it is asked.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from sympy import Symbol
from torch import Tensor

from autofn.model import Definition, Kind, Variant

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": torch.abs,
    "Heaviside": lambda x, at_zero=0.5: torch.where(x > 0, 1.0, torch.where(x < 0, 0.0, at_zero)),
    "sign": torch.sign,
    "Max": lambda *args: functools.reduce(torch.maximum, args),
    "Min": lambda *args: functools.reduce(torch.minimum, args),
}

_RELATIONS = {
    "StrictLessThan": operator.lt,
    "LessThan": operator.le,
    "StrictGreaterThan": operator.gt,
    "GreaterThan": operator.ge,
    "Equality": operator.eq,
    "Unequality": operator.ne,
    "And": operator.and_,
    "Or": operator.or_,
}


def evaluate(expression: Any, values: Mapping[Symbol, Any]) -> Any:
    """The value of an expression; symbols stand for tensors or Python numbers."""
    known: dict[Any, Any] = dict(values)

    def tensor(value: Any) -> Tensor:
        return value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)

    def at(e: Any) -> Any:
        if e not in known:
            known[e] = found(e)
        return known[e]

    def found(e: Any) -> Any:
        kind = type(e).__name__
        if e in (sympy.true, sympy.false):
            return torch.tensor(e == sympy.true)
        if e.is_Number or e.is_NumberSymbol:
            return int(e) if e.is_Integer else float(e)
        args = [at(arg) for arg in e.args] if kind not in ("Piecewise", "ExprCondPair") else []
        if e.is_Add or e.is_Mul:
            return functools.reduce(operator.add if e.is_Add else operator.mul, args)
        if e.is_Pow:
            root = e.exp == sympy.Rational(1, 2)
            return torch.sqrt(tensor(args[0])) if root else args[0] ** args[1]
        if kind == "Piecewise":
            value = tensor(float("nan"))
            for branch, condition in reversed(e.args):
                value = torch.where(tensor(at(condition)), tensor(at(branch)), value)
            return value
        if kind in _RELATIONS:
            return functools.reduce(_RELATIONS[kind], map(tensor, args))
        return (_FUNCTIONS.get(kind) or getattr(torch, kind))(*map(tensor, args))

    return at(expression)


def own(variant: Variant, definition: Definition) -> type[torch.autograd.Function]:
    """A Function with the user's own gradient, differentiable any number of times."""
    (output,) = variant.outputs
    (grad,) = definition.grads
    symbols = [leaf.symbol for leaf in definition.differentiable]

    def gradients(cotangent: Any, tensors: tuple[Tensor, ...], numbers: Any) -> tuple[Any, ...]:
        values = {**dict(zip(symbols, tensors, strict=True)), **numbers, grad: cotangent}
        return tuple(
            None if entry is None else (evaluate(entry, values) + 0 * t.sum()).sum_to_size(t.shape)
            for entry, t in zip(variant.gradient or (), tensors, strict=True)
        )

    class Own(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(numbers: Any, *tensors: Tensor) -> Tensor:
            values = {**dict(zip(symbols, tensors, strict=True)), **numbers}
            return evaluate(output, values) + 0 * sum(tensors)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.numbers, *tensors = inputs
            ctx.save_for_backward(*tensors)
            ctx.save_for_forward(*tensors)

        @staticmethod
        def backward(ctx: Any, cotangent: Tensor) -> Any:
            return None, *gradients(cotangent, ctx.saved_tensors, ctx.numbers)

        @staticmethod
        def jvp(ctx: Any, _: Any, *tangents: Any) -> Tensor:
            tensors = ctx.saved_tensors
            one = torch.ones_like(sum(tensors))
            values = {**dict(zip(symbols, tensors, strict=True)), **ctx.numbers, grad: one}
            total = 0 * one
            for entry, tangent in zip(variant.gradient or (), tangents, strict=True):
                if entry is not None and tangent is not None:
                    total = total + evaluate(entry, values) * tangent
            return total

    return Own


def reference(definition: Definition, variant: Variant, numbers: Mapping[Symbol, Any]) -> Any:
    """The formula over tensors in signature order; one tensor, or a tuple of several."""
    leaves = definition.differentiable
    function = own(variant, definition) if variant.gradient is not None else None

    def aligned(tensors: tuple[Tensor, ...]) -> list[Tensor]:
        dims = max(t.dim() for t, leaf in zip(tensors, leaves, strict=True) if leaf.symbol
                   and leaf.kind in (Kind.TENSOR, Kind.OPTIONAL))  # fmt: skip
        found = []
        for t, leaf in zip(tensors, leaves, strict=True):
            if leaf.kind is Kind.LEARNABLE or (leaf.kind is Kind.PER_CHANNEL and t.numel() == 1):
                t = t.reshape(())
            elif leaf.kind is Kind.PER_CHANNEL:
                t = t.reshape(-1, *(1,) * (dims - 1 - leaf.parameter.dim % dims))
            found.append(t)
        return found

    def call(*tensors: Tensor) -> Any:
        given = aligned(tensors)
        if function is not None:
            return function.apply(dict(numbers), *given)
        values = {leaf.symbol: t for leaf, t in zip(leaves, given, strict=True)}
        shape = torch.broadcast_shapes(*(t.shape for t in given))
        outputs = [evaluate(e, {**values, **numbers}) for e in variant.outputs]
        outputs = [torch.broadcast_to(torch.as_tensor(o, dtype=given[0].dtype), shape)
                   for o in outputs]  # fmt: skip
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return call
