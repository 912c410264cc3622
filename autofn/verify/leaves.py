"""A package's compiled kernels as its forward and backward leaves.

Runs in the worker. The arguments are those of the generated `forward_leaf` and `backward_leaf`;
the kernels are the host build of kernels.cu. Launch shapes vary from call to call, so that tails
and grid strides are met and a result that depends on the grid is not deterministic.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

MAX_DIMS = 8
"""`kMaxDims` of loops.cuh."""

GRIDS = ((1, 1), (3, 7), (2, 5), (1, 32), (5, 1))
"""Launches, as (blocks, threads per block)."""

Shape = tuple[int, ...]
Like = tuple[Shape, torch.dtype] | None


class KernelLeaves:
    """The leaves of one package over the library at `path`.

    `manifest` and the module `op` are the package's; `kinds` maps each differentiable leaf to its
    kind and channel dimension. Tensors without memory go to the package's own leaves.
    """

    def __init__(
        self,
        path: Path,
        manifest: dict[str, Any],
        kinds: dict[str, tuple[str, int]],
        op: Any,
    ):
        self.result_type: Callable[..., torch.dtype] = op._rt.result_type
        self.fallback = op.forward_leaf, op.backward_leaf
        self.library = ctypes.CDLL(str(path))
        self.manifest = manifest
        self.kinds = kinds
        self.grids = itertools.cycle(GRIDS)

    def forward(
        self, tensors: Sequence[Tensor | None], values: Sequence[Any]
    ) -> tuple[Tensor, ...]:
        """`forward_leaf`: every output at the full broadcast shape."""
        if _without_memory(tensors):
            return tuple(self.fallback[0](tensors, values))
        names = self.manifest["differentiable"]
        operands: dict[str, Any] = dict(zip(names, tensors, strict=True))
        promoting = [
            tensor
            for name, tensor in operands.items()
            if tensor is not None and self.kinds[name][0] in ("TENSOR", "OPTIONAL")
        ]
        dtype = self.result_type(*promoting)
        shape = broadcast_shape([t.shape for t in tensors if t is not None])
        chosen = dict(zip(self.manifest["values"], values, strict=True))
        operands.update((name, value) for name, value in chosen.items() if name not in names)
        kernel = self._kernel("forward", chosen)
        assert kernel is not None
        outputs = self._launch(kernel, operands, shape, dtype)
        return tuple(outputs[name] for name in self.manifest["outputs"])

    def backward(
        self,
        needs: Sequence[bool],
        grads: Sequence[Tensor | None],
        saved: Sequence[Tensor | None],
        values: Sequence[Any],
        likes: Sequence[Like],
    ) -> tuple[Tensor | None, ...]:
        """`backward_leaf`: the gradients that are needed, summed to the shapes of `likes`."""
        if _without_memory((*grads, *saved)):
            return tuple(self.fallback[1](needs, grads, saved, values, likes))
        names, outputs = self.manifest["differentiable"], self.manifest["outputs"]
        chosen = dict(zip(self.manifest["values"], values, strict=True))
        kernel = self._kernel("backward", chosen)
        if kernel is None:
            return tuple(None for _ in names)
        operands: dict[str, Any] = dict(chosen)
        operands.update(zip(self.manifest["saved"], saved, strict=True))
        cotangents = [name for name, _ in kernel["inputs"][: len(outputs)]]
        operands.update(zip(cotangents, grads, strict=True))
        some = next(grad for grad in grads if grad is not None)
        results = self._launch(kernel, operands, some.shape, some.dtype)
        return tuple(
            self._summed(results[name], like)
            if need and like is not None and name in results
            else None
            for name, need, like in zip(names, needs, likes, strict=True)
        )

    def _kernel(self, pass_name: str, chosen: dict[str, Any]) -> dict[str, Any] | None:
        """The kernel of the variant that the values select: choices, and which tensors are given.

        None for a backward that has no gradients at all.
        """
        for kernel in self.manifest["kernels"]:
            key = kernel["key"].items()
            if kernel["pass"] == pass_name and all(chosen[name] == value for name, value in key):
                found: dict[str, Any] = kernel
                return found
        return None

    def _launch(
        self, kernel: dict[str, Any], operands: dict[str, Any], shape: Sequence[int], dtype: Any
    ) -> dict[str, Tensor]:
        compute = torch.float64 if dtype == torch.float64 else torch.float32
        types = {"tensor": dtype, "parameter": compute}
        inputs: list[Tensor] = []
        numbers: list[float] = []
        for name, role in kernel["inputs"]:
            value = operands[name]
            if role == "number":
                numbers.append(float(value))
            elif value is None:  # pruned: its gradients are computed and thrown away
                inputs.append(torch.zeros((), dtype=types[role]).expand(shape))
            else:
                inputs.append(value.to(types[role]).expand(shape))
        strides = _common_layout(inputs, shape)
        flat = strides is not None
        # NaN, so that an element that no thread writes is seen.
        outputs = {
            name: torch.empty_strided(shape, strides or _dense(shape), dtype=types[role]).fill_(
                math.nan
            )
            for name, role in kernel["outputs"]
        }
        elements = math.prod(shape)
        dims, sizes, layout = (-1, [], []) if flat else _collapsed(inputs, shape)
        if dims > MAX_DIMS:
            inputs = [tensor.contiguous() for tensor in inputs]
            dims, sizes, layout = _collapsed(inputs, shape)
        entry = getattr(self.library, f"{kernel['function']}_{str(dtype).removeprefix('torch.')}")
        pointers = [tensor.data_ptr() for tensor in (*inputs, *outputs.values())]
        blocks, threads = next(self.grids)
        if elements:
            entry(
                ctypes.c_uint(blocks),
                ctypes.c_uint(threads),
                ctypes.c_int64(elements),
                ctypes.c_int(dims),
                (ctypes.c_int64 * MAX_DIMS)(*sizes),
                (ctypes.c_int64 * max(1, len(layout)))(*layout),
                (ctypes.c_void_p * max(1, len(pointers)))(*pointers),
                (ctypes.c_double * max(1, len(numbers)))(*numbers),
            )
        return outputs

    def _summed(self, grad: Tensor, like: tuple[Shape, torch.dtype]) -> Tensor:
        """The gradient of a broadcast input: summed in the compute type, rounded once."""
        shape, dtype = like
        if tuple(grad.shape) != tuple(shape):
            wide = grad if grad.dtype == torch.float64 else grad.float()
            grad = wide.sum_to_size(shape)
        return grad.to(dtype)


def _without_memory(tensors: Sequence[Tensor | None]) -> bool:
    """Whether some are batched by torch.autograd.grad(is_grads_batched=True)."""
    legacy: Callable[[Tensor], bool] = torch._C._functorch.is_legacy_batchedtensor
    return any(tensor is not None and legacy(tensor) for tensor in tensors)


def broadcast_shape(shapes: Sequence[torch.Size]) -> torch.Size:
    return torch.Size(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]


def _dense(shape: Sequence[int]) -> list[int]:
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * max(1, shape[d + 1])
    return strides


def _common_layout(inputs: Sequence[Tensor], shape: Sequence[int]) -> list[int] | None:
    """The strides that all inputs share if they are dense, in whatever order of dimensions."""
    if not inputs:
        return _dense(shape)
    wide = [d for d, size in enumerate(shape) if size > 1]
    first = inputs[0].stride()
    if any(tensor.stride(d) != first[d] for tensor in inputs for d in wide):
        return None
    expected = 1
    for d in sorted(wide, key=lambda d: first[d]):
        if first[d] != expected:
            return None
        expected *= shape[d]
    return list(first)


def _collapsed(inputs: Sequence[Tensor], shape: Sequence[int]) -> tuple[int, list[int], list[int]]:
    """The dimensions left after merging those that run on in every input; MAX_DIMS strides each."""
    sizes: list[int] = []
    strides: list[list[int]] = [[] for _ in inputs]
    for d, size in enumerate(shape):
        if size == 1:
            continue
        steps = [tensor.stride(d) for tensor in inputs]
        if sizes and all(
            mine[-1] == step * size for mine, step in zip(strides, steps, strict=True)
        ):
            sizes[-1] *= size
            for mine, step in zip(strides, steps, strict=True):
                mine[-1] = step
        else:
            sizes.append(size)
            for mine, step in zip(strides, steps, strict=True):
                mine.append(step)
    rows = [mine + [0] * (MAX_DIMS - len(mine)) for mine in strides]
    return len(sizes), sizes, [step for row in rows for step in row]
