"""The tests that travel with a package: `test_NAME.py` in it, with points that mpmath computed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from autofn.emit.declarations import literal
from autofn.emit.environment import rendered
from autofn.errors import UsageError
from autofn.model import REQUIRED, TENSORS, Definition, Kind, Variant
from autofn.names import camel_case

POINTS = 6
"""Points per variant."""


def path_of(name: str) -> str:
    return f"test_{name}.py"


def tests_text(definition: Definition, header: str) -> str:
    """The text of the tests.

    Raises UsageError for a package that pytest would put in the place of a module of Python's.
    """
    name, parameters = definition.name, definition.parameters
    if name in sys.stdlib_module_names or name in ("torch", "pytest"):
        raise UsageError(
            f"tests beside a package {name} would import it in place of the module {name}",
            remedy=f"rename the formula, {name}_op say, or leave --with-tests out",
        )
    learned = [p for p in parameters if p.kind in (Kind.LEARNABLE, Kind.PER_CHANNEL)]
    channels = ["num_channels"] * any(p.kind is Kind.PER_CHANNEL for p in parameters)
    started = [p.name for p in learned if p.default is REQUIRED]
    settable = [p.name for p in parameters if not p.differentiable]
    return rendered(
        "test.py.j2",
        header=header,
        name=name,
        camel=camel_case(name),
        settings_classes=[p.type_name for p in parameters if p.kind is Kind.SETTINGS],
        cases=[_case(definition, variant) for variant in definition.variants],
        learned=_texts([p.name for p in learned]),
        constructor=_texts([*channels, *started, *settable]),
        own_gradient=definition.own_gradient,
    )


def _case(definition: Definition, variant: Variant) -> dict[str, Any]:
    """A variant's points, each column by its text."""
    from autofn.verify.tables import reference

    table, units = reference(definition, variant, POINTS)
    leaves = {leaf.name: leaf for leaf in definition.leaves}
    tensors = {n: column for n, column in table.points.items() if leaves[n].kind in TENSORS}
    parameters = {n: column[0] for n, column in table.points.items() if n not in tensors}
    gradients: dict[str, list[float]] = {}
    for entry, column in table.truth.items():
        if isinstance(entry, tuple):
            # One number for all points: their gradients are summed.
            whole = column if entry[1] in tensors else [sum(column)]
            gradients[_key(entry)] = whole
    return {
        "arguments": _arguments(definition, {**table.numbers, **dict(variant.key)}),
        "tensors": [(literal(n), repr(column)) for n, column in tensors.items()],
        "parameters": [(literal(n), repr(value)) for n, value in parameters.items()],
        "values": [(_key(e), repr(c)) for e, c in table.truth.items() if isinstance(e, str)],
        "gradients": [(entry, repr(column)) for entry, column in gradients.items()],
        "units": [(_key(entry), repr(round(value, 1))) for entry, value in units.items()],
    }


def _key(entry: str | tuple[str, str]) -> str:
    return literal(entry) if isinstance(entry, str) else f"({', '.join(map(literal, entry))})"


def _arguments(definition: Definition, values: dict[str, Any]) -> str:
    """The arguments of a call that are no tensors, as a dict's text."""
    parts: list[str] = []
    for parameter in definition.parameters:
        if parameter.kind is Kind.SETTINGS:
            fields = [
                f"{leaf.parameter.name}={literal(values[leaf.name])}"
                for leaf in definition.leaves
                if leaf.path.startswith(f"{parameter.name}.")
            ]
            parts.append(f"{literal(parameter.name)}: {parameter.type_name}({', '.join(fields)})")
        elif parameter.kind is Kind.OPTIONAL:
            if not values[parameter.name]:
                parts.append(f"{literal(parameter.name)}: None")
        elif parameter.name in values:
            parts.append(f"{literal(parameter.name)}: {literal(values[parameter.name])}")
    return f"{{{', '.join(parts)}}}"


def _texts(names: Sequence[str]) -> str:
    return f"[{', '.join(map(literal, names))}]"
