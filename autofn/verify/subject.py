"""The package under test, loaded in the worker: its Function, its leaves, how it is called."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from autofn.package import imported
from autofn.verify.job import Signature

Values = Mapping[str, Any]
"""A value per leaf of the formula: a tensor or None, a number, a choice."""


class Where(Protocol):
    """What a job says of the package."""

    @property
    def folder(self) -> str: ...
    @property
    def class_name(self) -> str: ...
    @property
    def signature(self) -> Signature: ...


class Subject:
    """One generated package.

    `names` are the differentiable leaves in signature order, `outputs` the outputs' names.
    """

    def __init__(self, job: Where) -> None:
        self.folder = Path(job.folder)
        self.signature: Signature = job.signature
        self.manifest = json.loads((self.folder / "manifest.json").read_text(encoding="utf-8"))
        self.package = imported(self.folder, "autofn_under_test")
        self.op: Any = sys.modules[f"{self.package.__name__}.op"]
        self.function = getattr(self.op, f"{job.class_name}Function")
        self.names: tuple[str, ...] = tuple(self.manifest["differentiable"])
        self.outputs: tuple[str, ...] = tuple(self.manifest["outputs"])

    @contextlib.contextmanager
    def leaves(self, forward: Any, backward: Any, double: Any = None) -> Iterator[None]:
        """Within it, the Functions compute with these leaves instead of their own.

        double: the leaf of double backward; its own by default.
        """
        op = self.op
        kept = op.forward_leaf, op.backward_leaf, op.double_backward_leaf
        op.forward_leaf, op.backward_leaf = forward, backward
        op.double_backward_leaf = double or op.double_backward_leaf
        try:
            yield
        finally:
            op.forward_leaf, op.backward_leaf, op.double_backward_leaf = kept

    def arguments(self, values: Values) -> list[Any]:
        """Positional arguments of the Function, in signature order."""
        arguments: list[Any] = []
        for argument in self.signature.arguments:
            if argument.fields:
                settings = getattr(self.op, argument.type_name)
                chosen = {field: values[leaf] for field, leaf in argument.fields}
                arguments.append(settings(**chosen))
            else:
                arguments.append(values[argument.name])
        return arguments

    def apply(self, values: Values) -> tuple[Tensor, ...]:
        """The Function's outputs, as a tuple also where there is one."""
        result = self.function.apply(*self.arguments(values))
        return (result,) if isinstance(result, Tensor) else tuple(result)

    def values(self, values: Values) -> list[Any]:
        """The leaves' argument `values`: numbers, choices, and whether an optional is given."""
        return [
            values[name] is not None if name in self.names else values[name]
            for name in self.manifest["values"]
        ]

    def leaf_gradients(
        self,
        tensors: Sequence[Tensor | None],
        values: Sequence[Any],
        outputs: Sequence[Tensor],
        grads: Sequence[Tensor],
    ) -> dict[str, Tensor | None]:
        """The backward leaf called by hand: gradients of each tensor's own shape and dtype.

        `tensors` are those that the forward leaf took for `outputs`; they broadcast to the
        shape of the outputs, or have it, and then their gradients are not summed.
        """
        known = dict(zip(self.names, tensors, strict=True))
        known.update(zip(self.outputs, outputs, strict=True))
        saved = tuple(known[name] for name in self.manifest["saved"])
        likes = tuple(None if t is None else (tuple(t.shape), t.dtype) for t in tensors)
        needs = tuple(tensor is not None for tensor in tensors)
        found = self.op.backward_leaf(needs, tuple(grads), saved, tuple(values), likes)
        return dict(zip(self.names, found, strict=True))

    def over(self, values: Values, names: Sequence[str]) -> Any:
        """The Function as a function of the leaves `names`, all else as in `values`."""

        def call(*tensors: Tensor) -> tuple[Tensor, ...]:
            return self.apply({**values, **dict(zip(names, tensors, strict=True))})

        return call
