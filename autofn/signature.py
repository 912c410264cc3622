"""From a formula's signature to its parameters and the leaves that its body sees."""

from __future__ import annotations

import dataclasses
import inspect
import math
import types
import typing
from typing import TYPE_CHECKING, Any, Literal

import sympy
from sympy import Interval, Symbol

from autofn import places
from autofn.annotations import Learnable, PerChannel, Tensor
from autofn.errors import FormulaError, Location, about
from autofn.model import (
    NUMBERS,
    REQUIRED,
    Kind,
    Leaf,
    Options,
    Parameter,
)

if TYPE_CHECKING:
    from autofn.api import Formula


@about("signature")
def parameters_of(formula: Formula) -> tuple[Parameter, ...]:
    where = formula.where
    try:
        signature = inspect.signature(formula.body, eval_str=True)
    except FormulaError as error:
        raise error.at(where) from None
    except Exception as error:
        raise FormulaError(
            f"the annotations of {formula.name} cannot be read: {error}",
            where=where,
            remedy="import the names they use at the top of the file",
        ) from None
    parameters = tuple(
        _parameter(p, places.of_parameter(formula.body, p.name))
        for p in signature.parameters.values()
    )
    number: Parameter | None = None
    for parameter in parameters:
        if parameter.keyword_only:
            continue
        if not parameter.differentiable:
            number = number or parameter
        elif number is not None:
            raise FormulaError(
                f"{parameter.kind.value} {parameter.name!r} follows {number.name!r}, "
                f"a {number.kind.value}",
                where=places.of_parameter(formula.body, parameter.name),
                remedy="tensors and learnable parameters come first, then numbers and choices",
            )
    return parameters


def _parameter(p: inspect.Parameter, where: Location) -> Parameter:
    if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
        stars = "*" if p.kind is p.VAR_POSITIONAL else "**"
        raise FormulaError(
            f"{stars}{p.name}: a formula has a fixed list of parameters",
            where=where,
            remedy="name each tensor and each number",
        )
    if p.kind is p.POSITIONAL_ONLY:
        raise FormulaError(
            f"{p.name!r} is positional-only, which a generated function is not",
            where=where,
            remedy="remove the `/` from the signature",
        )
    refuse_reserved(p.name, where)
    default = REQUIRED if p.default is p.empty else p.default
    annotation = _inferred(default, p.name, where) if p.annotation is p.empty else p.annotation
    parameter = _annotated(p.name, annotation, default, where)
    return dataclasses.replace(parameter, keyword_only=p.kind is p.KEYWORD_ONLY)


RESERVED_PARAMETERS = frozenset({"num_channels", "device", "dtype", "reduction"})


def refuse_reserved(name: str, where: Location) -> None:
    """Raises FormulaError for a parameter that the generated module's own would hide."""
    if name in RESERVED_PARAMETERS:
        raise FormulaError(
            f"{name!r} is an argument that the generated module has already",
            where=where,
            remedy=f"rename it, {name}_ say",
        )


def _inferred(default: Any, name: str, where: Location) -> Any:
    """The annotation that a bare parameter's default implies."""
    if default is REQUIRED:
        return Tensor
    if default is None:
        return Tensor | None
    if isinstance(default, bool | int | float):
        return type(default)
    raise FormulaError(
        f"the default of {name!r} is {default!r}, not a number",
        where=where,
        remedy="annotate it: float, int, bool, Literal[...], Learnable, PerChannel, "
        "or a NamedTuple of those",
    )


def _annotated(name: str, annotation: Any, default: Any, where: Location) -> Parameter:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if _is_tensor(annotation):
        if default is None:
            return Parameter(name, Kind.OPTIONAL, None)
        if default is not REQUIRED:
            raise FormulaError(
                f"tensor {name!r} has the default {default!r}",
                where=where,
                remedy=f"write `{name}: float = {default!r}` for a number, "
                f"`{name}: Learnable = {default!r}` for a learnable one",
            )
        return Parameter(name, Kind.TENSOR)
    optional = origin in (typing.Union, types.UnionType) and type(None) in args and len(args) == 2
    if optional and any(map(_is_tensor, args)):
        if default not in (None, REQUIRED):
            raise FormulaError(
                f"optional tensor {name!r} has the default {default!r}",
                where=where,
                remedy=f"write `{name}: Tensor | None = None`",
            )
        return Parameter(name, Kind.OPTIONAL, default)
    if annotation is Learnable:
        return Parameter(name, Kind.LEARNABLE, _number(name, default, float, where))
    if annotation is PerChannel or isinstance(annotation, PerChannel):
        dim = annotation.dim if isinstance(annotation, PerChannel) else 1
        return Parameter(name, Kind.PER_CHANNEL, _number(name, default, float, where), dim=dim)
    if annotation is bool:
        return _choice(name, (False, True), default, where)
    if annotation is float:
        return Parameter(name, Kind.FLOAT, _number(name, default, float, where))
    if annotation is int:
        return Parameter(name, Kind.INT, _number(name, default, int, where))
    if origin is Literal:
        return _choice(name, args, default, where)
    if isinstance(annotation, type) and (
        dataclasses.is_dataclass(annotation)
        or (issubclass(annotation, tuple) and hasattr(annotation, "_fields"))
    ):
        return _settings(name, annotation, default, where)
    shown = getattr(annotation, "__name__", None) or str(annotation)
    raise FormulaError(
        f"{name!r} is annotated {shown}, which a formula's parameter cannot be",
        where=where,
        remedy="use Tensor, Tensor | None, Learnable, PerChannel, float, int, bool, "
        "Literal[...], or a NamedTuple or dataclass of numbers and choices",
    )


def _is_tensor(annotation: Any) -> bool:
    return annotation is Tensor or getattr(annotation, "__qualname__", "") == "Tensor"


def _number(name: str, default: Any, kind: type, where: Location) -> Any:
    if default is REQUIRED:
        return default
    if isinstance(default, sympy.Expr) and default.is_number and default.is_real:
        default = int(default) if default.is_Integer else float(default)
    if isinstance(default, bool) or not isinstance(default, int | float):
        raise FormulaError(
            f"the default of {name!r} is {default!r}, not a number",
            where=where,
            remedy=f"give a finite number, `{name} = 1.0` say",
        )
    if not math.isfinite(default):
        raise FormulaError(
            f"the default of {name!r} is {default!r}", where=where, remedy="give a finite number"
        )
    if kind is int and not isinstance(default, int):
        raise FormulaError(
            f"{name!r} is an int, its default {default!r} is not",
            where=where,
            remedy=f"annotate {name} as float, or give a whole number",
        )
    try:
        return kind(default)
    except OverflowError:
        raise FormulaError(
            f"the default of {name!r} is too large for a float", where=where, remedy="smaller"
        ) from None


def _choice(name: str, values: tuple[Any, ...], default: Any, where: Location) -> Parameter:
    for value in values:
        if not isinstance(value, str | bool | int):
            raise FormulaError(
                f"{value!r} is no value for the choice {name!r}",
                where=where,
                remedy="choices are strings, ints and bools",
            )
    same = [v for v in values if type(v) is type(default) and v == default]
    if default is not REQUIRED and not same:
        raise FormulaError(
            f"the default of {name!r} is {default!r}, not one of its choices",
            where=where,
            remedy=f"choose from {', '.join(map(repr, values))}",
        )
    return Parameter(name, Kind.CHOICE, default, values=tuple(values))


def _settings(name: str, cls: type, default: Any, where: Location) -> Parameter:
    hints = typing.get_type_hints(cls)
    fields: list[Parameter] = []
    for field in _field_names(cls):
        value = getattr(default, field) if default is not REQUIRED else _field_default(cls, field)
        parameter = _annotated(field, hints[field], value, where)
        if parameter.kind not in NUMBERS | {Kind.CHOICE}:
            raise FormulaError(
                f"{cls.__name__}.{field} is a {parameter.kind.value}",
                where=where,
                remedy="settings hold numbers and choices; make it a parameter of the formula",
            )
        fields.append(parameter)
    kept = REQUIRED if default is REQUIRED else None
    return Parameter(name, Kind.SETTINGS, kept, fields=tuple(fields), type_name=cls.__name__)


def _field_names(cls: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    return tuple(cls._fields)


def _field_default(cls: Any, name: str) -> Any:
    if not dataclasses.is_dataclass(cls):
        return cls._field_defaults.get(name, REQUIRED)
    field = next(field for field in dataclasses.fields(cls) if field.name == name)
    return REQUIRED if field.default is dataclasses.MISSING else field.default


def leaves_of(parameters: tuple[Parameter, ...], options: Options) -> tuple[Leaf, ...]:
    domains = dict(options.domain)
    taken = {p.name for p in parameters}
    leaves: list[Leaf] = []
    for parameter in parameters:
        if parameter.kind is Kind.SETTINGS:
            for field in parameter.fields:
                name = f"{parameter.name}_{field.name}"
                while name in taken:
                    name += "_"
                taken.add(name)
                leaves.append(_leaf(name, f"{parameter.name}.{field.name}", field, domains))
        else:
            leaves.append(_leaf(parameter.name, parameter.name, parameter, domains))
    return tuple(leaves)


def _leaf(name: str, path: str, parameter: Parameter, domains: dict[str, Interval]) -> Leaf:
    if parameter.kind is Kind.CHOICE:
        return Leaf(name, path, parameter, None)
    assumptions: dict[str, bool] = {"integer": True} if parameter.kind is Kind.INT else {}
    assumptions["real"] = True
    if name in domains:
        assumptions.update(_sign(domains[name]))
    return Leaf(name, path, parameter, Symbol(name, **assumptions))


def _sign(interval: Interval) -> dict[str, bool]:
    """The sign assumption that a domain states, and no other."""
    if interval.start > 0 or (interval.start == 0 and interval.left_open):
        return {"positive": True}
    if interval.end < 0 or (interval.end == 0 and interval.right_open):
        return {"negative": True}
    if interval.start >= 0:
        return {"nonnegative": True}
    if interval.end <= 0:
        return {"nonpositive": True}
    return {}
