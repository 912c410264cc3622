"""The Python identifiers inside a package."""

from __future__ import annotations

from autofn.model import (
    DIFFERENTIABLE,
    Definition,
    Kind,
    Leaf,
)
from autofn.names import Namer, camel_case, python_name
from autofn.passes import direction_name
from autofn.plan import Plan

_OP_GLOBALS = frozenset({"torch", "Tensor", "Function", "maths", "forward_leaf", "backward_leaf",
                         "NamedTuple", "Literal", "annotations"})  # fmt: skip


ALWAYS_GIVEN = DIFFERENTIABLE - {Kind.OPTIONAL}


class Names:
    """The Python identifiers inside a package: of every leaf, output, cotangent and direction."""

    def __init__(self, made: Plan):
        definition = made.definition
        namer = Namer()
        self.arguments = {p.name: namer(python_name(p.name)) for p in definition.parameters}
        self.of: dict[str, str] = {}
        for leaf in definition.leaves:
            self.of[leaf.name] = (
                self.arguments[leaf.name] if leaf.name in self.arguments else namer(leaf.name)
            )
        for name in (*made.outputs, *made.grads):
            # A cotangent named `grad` is no conflict: maths.py's own names are in `python_name`.
            self.of[name] = namer(name if name in made.grads else python_name(name))
        for name in list(self.of):
            self.of[direction_name(name)] = namer(f"d_{self.of[name]}")
        self.given = {
            leaf.name: namer(f"{self.of[leaf.name]}_given")
            for leaf in definition.leaves
            if leaf.kind is Kind.OPTIONAL
        }
        self.camel = camel_case(definition.name)
        plain = python_name(definition.name) if definition.name in _OP_GLOBALS else definition.name
        self.function = plain

    def values(self, definition: Definition) -> list[str]:
        """Names of `values`: numbers and choices, and whether an optional tensor is given."""
        return [self.value(leaf) for leaf in definition.leaves if leaf.kind not in ALWAYS_GIVEN]

    def argument(self, leaf: Leaf) -> str:
        """A number or choice among the function's arguments, where it may be a setting's field."""
        head, _, field = leaf.path.partition(".")
        return f"{self.arguments[head]}.{field}" if field else self.arguments[head]

    def value(self, leaf: Leaf) -> str:
        return self.given[leaf.name] if leaf.kind is Kind.OPTIONAL else self.of[leaf.name]
