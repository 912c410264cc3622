"""A package's CUDA kernels as its forward and backward leaves, of tensors on the CPU.

Runs in the worker. The arguments are those of the generated `forward_leaf` and `backward_leaf`.
`KernelLeaves` are the host build of kernels.cu, called as the binding calls them. `DeviceLeaves`
are the package's own, on a GPU.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

MAX_DIMS, MAX_OPERANDS = 16, 32
"""`kMaxDims` and `kMaxOperands` of kernel.h."""

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
"""In the order of `Dtype` in kernel.h."""

Shape = tuple[int, ...]
Like = tuple[Shape, torch.dtype] | None


class _Operand(ctypes.Structure):
    """`Operand` of kernel.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("strides", ctypes.c_int64 * MAX_DIMS),
    )


class _Call(ctypes.Structure):
    """`Call` of kernel.h."""

    _fields_ = (
        ("compute", ctypes.c_int32),
        ("dims", ctypes.c_int),
        ("sizes", ctypes.c_int64 * MAX_DIMS),
        ("elements", ctypes.c_int64),
        ("inputs", _Operand * MAX_OPERANDS),
        ("outputs", _Operand * MAX_OPERANDS),
        ("numbers", ctypes.POINTER(ctypes.c_double)),
    )


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
        self.result_type: Callable[..., torch.dtype] = op._t.result_type
        self.fallback = op.forward_leaf, op.backward_leaf
        self.library = ctypes.CDLL(str(path))
        self.library.autofn_workspace.restype = ctypes.c_int64
        self.manifest = manifest
        self.kinds = kinds

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
        likes = dict.fromkeys(self.manifest["outputs"], (tuple(shape), dtype))
        outputs = self._launch(kernel, operands, shape, dtype, likes)
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
        wanted = {
            name: like
            for name, need, like in zip(names, needs, likes, strict=True)
            if need and like is not None
        }
        if not wanted:
            return tuple(None for _ in names)
        results = self._launch(kernel, operands, some.shape, some.dtype, wanted)
        return tuple(
            results[name].to(wanted[name][1]) if name in results and name in wanted else None
            for name in names
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
        self,
        kernel: dict[str, Any],
        operands: dict[str, Any],
        shape: Sequence[int],
        dtype: torch.dtype,
        likes: dict[str, tuple[Shape, torch.dtype]],
    ) -> dict[str, Tensor]:
        """The outputs that `likes` names: of that shape, and of that dtype where summed."""
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
        order = _order(inputs, shape)
        outputs: dict[str, Tensor] = {}
        for name, role in kernel["outputs"]:
            if name in likes:
                size, stored = likes[name]
                full = math.prod(size) == math.prod(shape)
                outputs[name] = _dense(size, order, types[role] if full else stored)
        spread = [_spread(outputs.get(name), shape) for name, _ in kernel["outputs"]]
        if math.prod(shape) == 0:
            return {name: output.zero_() for name, output in outputs.items()}
        call = _call(inputs, spread, order, shape)
        call.compute = DTYPES.index(compute)
        call.numbers = (ctypes.c_double * max(1, len(numbers)))(*numbers)
        self._run(kernel, call)
        return outputs

    def _run(self, kernel: dict[str, Any], call: _Call) -> None:
        number = self.manifest["kernels"].index(kernel)
        size = self.library.autofn_workspace(number, ctypes.byref(call))
        # NaN in every dtype, to the byte: an element that is not written is seen.
        workspace = torch.full((size,), 0xFF, dtype=torch.uint8)
        pointer = ctypes.c_void_p(workspace.data_ptr() or None)
        error = self.library.autofn_run(number, ctypes.byref(call), pointer)
        if error:
            raise RuntimeError(f"{kernel['function']}: CUDA error {error}")


class DeviceLeaves:
    """The leaves of one package on a device, of tensors on the CPU and with results there.

    The kernels meet tensors of the same strides and offsets. `op` is the package's module.
    """

    def __init__(self, op: Any, device: str = "cuda") -> None:
        self.leaves = op.forward_leaf, op.backward_leaf, op.double_backward_leaf
        self.device = device

    def forward(
        self, tensors: Sequence[Tensor | None], values: Sequence[Any]
    ) -> tuple[Tensor, ...]:
        """`forward_leaf`: every output at the full broadcast shape."""
        forward, _, _ = self.leaves
        if _without_memory(tensors):
            return tuple(forward(tensors, values))
        return tuple(output.cpu() for output in forward(self._moved(tensors), values))

    def backward(
        self,
        needs: Sequence[bool],
        grads: Sequence[Tensor | None],
        saved: Sequence[Tensor | None],
        values: Sequence[Any],
        likes: Sequence[Like],
    ) -> tuple[Tensor | None, ...]:
        """`backward_leaf`: the gradients that are needed, summed to the shapes of `likes`."""
        _, backward, _ = self.leaves
        return self._gradients(backward, needs, grads, saved, values, likes)

    def double_backward(
        self,
        needs: Sequence[bool],
        directions: Sequence[Tensor | None],
        tensors: Sequence[Tensor | None],
        values: Sequence[Any],
        likes: Sequence[Like],
    ) -> tuple[Tensor | None, ...]:
        """`double_backward_leaf`: the gradients of `tensors` that are needed."""
        _, _, double = self.leaves
        return self._gradients(double, needs, directions, tensors, values, likes)

    def _gradients(
        self,
        leaf: Callable[..., Any],
        needs: Sequence[bool],
        first: Sequence[Tensor | None],
        second: Sequence[Tensor | None],
        values: Sequence[Any],
        likes: Sequence[Like],
    ) -> tuple[Tensor | None, ...]:
        if torch._C._functorch.maybe_current_level() is not None or _without_memory(
            (*first, *second)
        ):
            return tuple(leaf(needs, first, second, values, likes))
        found = leaf(needs, self._moved(first), self._moved(second), values, likes)
        return tuple(None if gradient is None else gradient.cpu() for gradient in found)

    def _moved(self, tensors: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        return tuple(None if tensor is None else self._copy(tensor) for tensor in tensors)

    def _copy(self, tensor: Tensor) -> Tensor:
        """All of its memory, and the same part of that."""
        tensor = tensor.detach()
        elements = tensor.untyped_storage().nbytes() // tensor.element_size()
        memory = tensor.as_strided((elements,), (1,), 0).to(self.device)
        return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _call(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor | None],
    order: Sequence[int],
    shape: Sequence[int],
) -> _Call:
    """The call over `shape`, to which all operands are expanded, its dimensions in this order."""
    given = [*inputs, *(output for output in outputs if output is not None)]
    dims = _collapsed([[tensor.stride(d) for tensor in given] for d in order if shape[d] > 1],
                      [shape[d] for d in order if shape[d] > 1])  # fmt: skip
    call = _Call(dims=len(dims), elements=math.prod(shape))
    call.sizes[: len(dims)] = [size for size, _ in dims]
    column = iter(range(len(given)))
    for array, tensors in ((call.inputs, inputs), (call.outputs, outputs)):
        for operand, tensor in zip(array, tensors, strict=False):
            if tensor is not None:
                k = next(column)
                operand.data = tensor.data_ptr()
                operand.dtype = DTYPES.index(tensor.dtype)
                operand.strides[: len(dims)] = [strides[k] for _, strides in dims]
    return call


def _without_memory(tensors: Sequence[Tensor | None]) -> bool:
    """Whether some are batched by torch.autograd.grad(is_grads_batched=True)."""
    legacy: Callable[[Tensor], bool] = torch._C._functorch.is_legacy_batchedtensor
    return any(tensor is not None and legacy(tensor) for tensor in tensors)


def broadcast_shape(shapes: Sequence[torch.Size]) -> torch.Size:
    return torch.Size(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]


def _order(inputs: Sequence[Tensor], shape: Sequence[int]) -> list[int]:
    """The dimensions by falling strides of the first input that broadcasts along none."""
    wide = [d for d, size in enumerate(shape) if size > 1]
    for tensor in inputs:
        strides = tensor.stride()
        if all(strides[d] for d in wide):
            return sorted(range(len(shape)), key=lambda d: -strides[d])
    return list(range(len(shape)))


def _dense(size: Sequence[int], order: Sequence[int], dtype: torch.dtype) -> Tensor:
    """NaN in memory of this order, of whose dimensions it may lack leading ones."""
    absent = len(order) - len(size)
    places = [d - absent for d in order if d >= absent]
    strides, stride = [1] * len(size), 1
    for d in reversed(places):
        strides[d] = stride
        stride *= max(1, size[d])
    return torch.empty_strided(size, strides, dtype=dtype).fill_(math.nan)


def _spread(output: Tensor | None, shape: Sequence[int]) -> Tensor | None:
    return None if output is None else output.expand(shape)


def _collapsed(
    strides: Sequence[Sequence[int]], sizes: Sequence[int]
) -> list[tuple[int, Sequence[int]]]:
    """Per dimension its size and strides, after merging those that run on in every operand."""
    dims: list[tuple[int, Sequence[int]]] = []
    for size, steps in zip(sizes, strides, strict=True):
        if dims and all(a == b * size for a, b in zip(dims[-1][1], steps, strict=True)):
            dims[-1] = (dims[-1][0] * size, steps)
        else:
            dims.append((size, steps))
    return dims
