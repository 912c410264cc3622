"""What autograd keeps between forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from autofn.bench.records import EAGER, GENERATED, NATIVE, Saved, Setting
from autofn.bench.subjects import Data, Subject, data_for, eager, generated, native, statement


def saved_bytes(call: Callable[[], Any], parameters: Iterable[Tensor] = ()) -> int:
    """Bytes of the storages that a call saves for its backward, each counted once.

    The storages of `parameters` do not count: they are kept anyway.
    """
    kept = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    found: dict[int, int] = {}
    held: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in kept:
            found[storage.data_ptr()] = storage.nbytes()
        # Held, so that no later storage gets the address of one that was counted.
        held.append(tensor.detach())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = call()
    del result
    return sum(found.values())


def saved_for_backward(subject: Subject, setting: Setting) -> Saved:
    """Bytes per element that the generated op, eager and the native operator keep.

    Eager is the formula as written; PyTorch's own functions keep less, where they have one.
    """
    sketch = subject.sketch
    data = data_for(sketch, setting)
    contenders = [generated(subject), next(eager(sketch)), *native(sketch)]
    labels = (GENERATED, EAGER, NATIVE)
    parameters = [data.tensors[o.name] for o in sketch.operands if o.place != "tensor"]
    found: list[tuple[str, float]] = []
    for label, contender in zip(labels, contenders, strict=False):
        shown = statement(contender, sketch, data, "plain")
        names = {**shown.names, **_with_gradients(data)}

        def call(text: str = shown.text, names: dict[str, Any] = names) -> Any:
            return eval(text, names)

        found.append((label, saved_bytes(call, parameters) / data.elements))
    return Saved(sketch.name, setting.dtype, tuple(found))


def _with_gradients(data: Data) -> dict[str, Tensor]:
    return {f"a{number}": tensor for number, tensor in enumerate(data.tensors.values())}
