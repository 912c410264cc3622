"""The nn.Module of a package."""

from __future__ import annotations

from typing import Any

from autofn.emit.declarations import REDUCTION, declared
from autofn.emit.identifiers import Names
from autofn.emit.words import formula_lines, indented, title
from autofn.model import (
    REQUIRED,
    TENSORS,
    Kind,
    Parameter,
)
from autofn.names import Namer, attribute_name
from autofn.plan import Plan


def module_context(made: Plan, names: Names) -> dict[str, Any]:
    definition = made.definition
    parameters = definition.parameters
    taken = {p.name for p in parameters}
    self_name = "self" if "self" not in taken else "self_"
    attributes = Namer({self_name})
    attribute = {p.name: attributes(attribute_name(p.name)) for p in parameters}
    channels = [p for p in parameters if p.kind is Kind.PER_CHANNEL]
    learned = [p for p in parameters if p.kind in (Kind.LEARNABLE, Kind.PER_CHANNEL)]
    settable = [p for p in parameters if not p.differentiable]
    started = [p for p in learned if p.default is REQUIRED]
    constructor = [self_name]
    shown = []
    values = []
    if channels:
        constructor.append("num_channels: int")
        values.append({"attribute": "num_channels", "name": "num_channels"})
        shown.append("num_channels={" + self_name + ".num_channels}")
    constructor += [f"{p.name}: float" for p in started]
    constructor += declared(settable)
    tail = ["device=None", "dtype=None"]
    if definition.options.reduction:
        tail = [REDUCTION, *tail]
    constructor += tail
    for p in settable:
        values.append({"attribute": attribute[p.name], "name": p.name})
        shown.append(f"{p.name}={{{self_name}.{attribute[p.name]}!r}}")
    if definition.options.reduction:
        values.append({"attribute": "reduction", "name": "reduction"})
        shown.append(f"reduction={{{self_name}.reduction!r}}")
    call = []
    for p in parameters:
        value = p.name if p.kind in TENSORS else f"{self_name}.{attribute[p.name]}"
        call.append(f"{p.name}={value}" if p.keyword_only else value)
    if definition.options.reduction:
        call.append(f"reduction={self_name}.reduction")
    tensors = [p for p in parameters if p.kind in TENSORS]
    return {
        "me": self_name,
        "constructor": ", ".join(constructor),
        "parameters": [
            {
                "attribute": attribute[p.name],
                "name": p.name,
                "shape": "1" if p.kind is Kind.LEARNABLE else "num_channels",
                "start": None if p.default is REQUIRED else repr(p.default),
            }
            for p in learned
        ],
        "module_values": values,
        "module_signature": ", ".join([self_name, *declared(tensors)]),
        "module_call": ", ".join(call),
        "extra_repr": 'f"' + ", ".join(shown) + '"' if shown else '""',
        "module_doc": _module_doc(made, learned, settable),
    }


def _module_doc(made: Plan, learned: list[Parameter], settable: list[Parameter]) -> str:
    definition = made.definition
    lines = [title(definition), "", *(f"    {line}" for line in formula_lines(made))]
    if learned:
        lines.append("")
    for p in learned:
        shape = "(1,)" if p.kind is Kind.LEARNABLE else "(num_channels,)"
        start = f"starts at {p.default!r}" if p.default is not REQUIRED else "its start is required"
        lines.append(f"{p.name}: learnable, of shape {shape}; {start}.")
    lines += ["", f"Generated from {definition.source}."]
    return "\n".join(indented(lines, "    "))
