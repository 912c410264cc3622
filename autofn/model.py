"""What a traced formula is: parameters, options and one set of expressions per variant."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sympy import Expr, Interval, Symbol

from autofn.errors import Location

Choice = str | bool | int
"""A value of a static choice."""


class Kind(enum.Enum):
    """How a parameter of a formula reaches the generated function."""

    TENSOR = "tensor"
    OPTIONAL = "optional tensor"
    LEARNABLE = "learnable scalar"
    PER_CHANNEL = "per-channel parameter"
    FLOAT = "float"
    INT = "int"
    CHOICE = "choice"
    SETTINGS = "settings"


DIFFERENTIABLE = frozenset({Kind.TENSOR, Kind.OPTIONAL, Kind.LEARNABLE, Kind.PER_CHANNEL})
TENSORS = frozenset({Kind.TENSOR, Kind.OPTIONAL})
NUMBERS = frozenset({Kind.FLOAT, Kind.INT})


class Required(enum.Enum):
    """The default of a parameter that has none."""

    REQUIRED = "required"

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = Required.REQUIRED


@dataclass(frozen=True)
class Parameter:
    """One parameter of a formula.

    `default` is the start value of a LEARNABLE or PER_CHANNEL, the default of a number or a
    choice, None for an OPTIONAL, `REQUIRED` where there is none. `dim` is the channel dimension
    of a PER_CHANNEL. `values` are those of a CHOICE, the first of them first written. `fields`
    and `type_name` belong to SETTINGS; a field's own name has no prefix.
    """

    name: str
    kind: Kind
    default: Any = REQUIRED
    keyword_only: bool = False
    dim: int = 1
    values: tuple[Choice, ...] = ()
    fields: tuple[Parameter, ...] = ()
    type_name: str = ""

    @property
    def differentiable(self) -> bool:
        return self.kind in DIFFERENTIABLE


@dataclass(frozen=True)
class Leaf:
    """A value that the formula's body sees: a parameter, or one field of its SETTINGS.

    `path` is how generated Python reaches it (`beta`, `cfg.beta`), `name` a single identifier
    (`beta`, `cfg_beta`), `symbol` what stands for it in expressions (None for a choice).
    """

    name: str
    path: str
    parameter: Parameter
    symbol: Symbol | None

    @property
    def kind(self) -> Kind:
        return self.parameter.kind


@dataclass(frozen=True)
class Variant:
    """The formula's body under one combination of choices and given/absent optional tensors.

    `key` maps leaf names to the chosen value; for an optional tensor, whether it is given.
    `outputs` are the user's expressions. `gradient` is the user's own: one expression per
    differentiable parameter in signature order, in the leaf symbols and the symbols of
    `Definition.grads`; None where there is none.
    """

    key: tuple[tuple[str, Choice], ...]
    outputs: tuple[Expr, ...]
    gradient: tuple[Expr | None, ...] | None = None


@dataclass(frozen=True)
class Options:
    """The options of `@formula`."""

    domain: tuple[tuple[str, Interval], ...] = ()
    reduction: bool = False
    amp: str | None = None
    save: str | None = None
    budget: float | None = None
    """ULP of float32 that values and gradients may be off by; past it the certificate fails."""


@dataclass(frozen=True)
class Definition:
    """A formula as traced: all that the later stages need, and nothing of the user's Python."""

    name: str
    parameters: tuple[Parameter, ...]
    leaves: tuple[Leaf, ...]
    output_names: tuple[str, ...]
    """Names of the outputs: those of the dict, or `out`, or `out0`, `out1`, ..."""
    named_outputs: bool
    variants: tuple[Variant, ...]
    doc: str
    options: Options
    source: str
    """Base name of the file, or `--expr`."""
    where: Location
    calls: tuple[tuple[str, Location], ...] = ()
    """Where the body first calls what, by the callee's last name: for error messages."""

    def leaf(self, name: str) -> Leaf:
        return next(leaf for leaf in self.leaves if leaf.name == name)

    @property
    def differentiable(self) -> tuple[Leaf, ...]:
        """The leaves that take a gradient, in signature order."""
        return tuple(leaf for leaf in self.leaves if leaf.parameter.differentiable)

    @property
    def tensors(self) -> tuple[Leaf, ...]:
        return tuple(leaf for leaf in self.leaves if leaf.kind in TENSORS)

    @property
    def numbers(self) -> tuple[Leaf, ...]:
        return tuple(leaf for leaf in self.leaves if leaf.kind in NUMBERS)

    @property
    def choices(self) -> tuple[Leaf, ...]:
        return tuple(leaf for leaf in self.leaves if leaf.kind is Kind.CHOICE)

    @property
    def grads(self) -> tuple[Symbol, ...]:
        """The cotangent of each output, as it stands in a user's own gradient."""
        return grad_symbols(self.output_names)

    @property
    def own_gradient(self) -> bool:
        return any(variant.gradient is not None for variant in self.variants)

    def locate(self, name: str) -> Location:
        """The line that calls `name`, as far as the source tells; else the formula's own."""
        return dict(self.calls).get(name, self.where)

    def symbols(self) -> Iterator[Symbol]:
        for leaf in self.leaves:
            if leaf.symbol is not None:
                yield leaf.symbol


def grad_symbols(output_names: tuple[str, ...]) -> tuple[Symbol, ...]:
    """Cotangent symbols; a leading underscore keeps them apart from users' parameters."""
    if len(output_names) == 1:
        return (Symbol("_grad", real=True),)
    return tuple(Symbol(f"_grad_{name}", real=True) for name in output_names)
