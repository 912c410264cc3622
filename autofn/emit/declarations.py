"""Signatures, annotations and defaults of what users call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from autofn.model import (
    REQUIRED,
    Definition,
    Kind,
    Parameter,
)

REDUCTION = 'reduction: Literal["none", "mean", "sum"] = "none"'


def literal(value: object) -> str:
    """A Python literal, strings in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def annotation_of_choice(parameter: Parameter) -> str:
    if set(map(repr, parameter.values)) == {"False", "True"}:
        return "bool"
    return f"Literal[{', '.join(map(literal, parameter.values))}]"


def _annotation(parameter: Parameter) -> str:
    if parameter.kind is Kind.CHOICE:
        return annotation_of_choice(parameter)
    return {
        Kind.TENSOR: "Tensor",
        Kind.OPTIONAL: "Tensor | None",
        Kind.LEARNABLE: "Tensor",
        Kind.PER_CHANNEL: "Tensor",
        Kind.FLOAT: "float",
        Kind.INT: "int",
        Kind.SETTINGS: parameter.type_name,
    }[parameter.kind]


def _default(parameter: Parameter) -> str | None:
    """The default in the functional form, as text."""
    if parameter.kind in (Kind.LEARNABLE, Kind.PER_CHANNEL) or parameter.default is REQUIRED:
        return None
    if parameter.kind is Kind.SETTINGS:
        return f"{parameter.type_name}()"
    return literal(parameter.default)


def declared(parameters: Sequence[Parameter], tail: Sequence[str] = ()) -> list[str]:
    """The parts of a signature; a default before a required argument is dropped, as it must be."""
    plain = [p for p in parameters if not p.keyword_only]
    keyword = [p for p in parameters if p.keyword_only]
    required = max((i for i, p in enumerate(plain) if _default(p) is None), default=-1)
    parts = []
    for i, p in enumerate(plain):
        default = _default(p) if i > required else None
        parts.append(f"{p.name}: {_annotation(p)}" + (f" = {default}" if default else ""))
    if keyword or tail:
        parts.append("*")
    for p in keyword:
        default = _default(p)
        parts.append(f"{p.name}: {_annotation(p)}" + (f" = {default}" if default else ""))
    return [*parts, *tail]


def signature(definition: Definition) -> str:
    tail = [REDUCTION] if definition.options.reduction else []
    return ", ".join(declared(definition.parameters, tail))


def settings_class(parameter: Parameter) -> dict[str, Any]:
    fields = []
    for field in parameter.fields:
        default = "" if field.default is REQUIRED else f" = {literal(field.default)}"
        fields.append(f"{field.name}: {_annotation(field)}{default}")
    return {"name": parameter.type_name, "parameter": parameter.name, "fields": fields}


def tuple_text(items: list[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def unpacked(items: Sequence[str]) -> str:
    """The left side of an assignment from a tuple; in brackets, to be folded, where it is long."""
    text = tuple_text(list(items))
    return text if len(text) > 80 else text[1:-1]
