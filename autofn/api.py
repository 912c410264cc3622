"""What users write: `@formula` and its annotations, and how it is traced into a `Definition`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import keyword
import math
import os
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import sympy
from sympy import Expr, Interval, Symbol

from autofn.errors import FormulaError, Location
from autofn.model import (
    NUMBERS,
    REQUIRED,
    Choice,
    Definition,
    Kind,
    Leaf,
    Options,
    Parameter,
    Variant,
    grad_symbols,
)

MAX_VARIANTS = 16


class Tensor:
    """Annotation of a tensor that takes a gradient; `Tensor | None` for an optional one."""


class Learnable:
    """Annotation of one learnable number; the default is its start value."""


class PerChannel:
    """Annotation of a learnable 1-D tensor along dimension `dim` of the output.

    `alpha: PerChannel = 0.25` runs along dimension 1, `PerChannel(dim=-1)` along the last.
    """

    def __init__(self, dim: int = 1):
        if isinstance(dim, bool) or not isinstance(dim, int):
            raise FormulaError(
                f"PerChannel(dim={dim!r}): the dimension must be an int",
                remedy="write PerChannel(dim=1) or PerChannel(dim=-1)",
            )
        self.dim = dim


class Formula:
    """A forward formula in SymPy, from which autofn generates a differentiable op.

    Made by `@formula` or by `Formula.from_expr`. Calling it with SymPy expressions evaluates its
    body, so formulas can be used in one another.
    """

    def __init__(
        self, body: Callable[..., Any], options: Options, where: Location, *, source: str
    ) -> None:
        self.name = body.__name__
        self.__doc__ = body.__doc__
        self.body = body
        self.options = options
        self.where = where
        self.source = source
        self.gradient_body: Callable[..., Any] | None = None
        self._definition: Definition | FormulaError | None = None
        for registry in _registries:
            registry.append(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.body(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<autofn formula {self.name}>"

    def gradient(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: a gradient of one's own, in place of the derivative.

        `body` receives the cotangent first (a tuple for several outputs), then any of the
        formula's parameters by name, and returns one expression per tensor and learnable
        parameter in signature order (None: no gradient; bare where there is only one).
        """
        self.gradient_body = body
        self._definition = None
        return body

    @property
    def definition(self) -> Definition:
        """The traced formula. Raises FormulaError where the body cannot be used."""
        if self._definition is None:
            try:
                self._definition = _trace(self)
            except FormulaError as error:
                # Kept: the folder of the file may not be importable the next time.
                self._definition = error
        if isinstance(self._definition, FormulaError):
            raise self._definition
        return self._definition

    @classmethod
    def from_expr(
        cls,
        expr: Any,
        name: str = "f",
        params: Mapping[str, float | int | None] | None = None,
        *,
        source: str = "from_expr",
    ) -> Formula:
        """The formula of a raw SymPy expression.

        Free symbols are tensors in alphabetical order, save those named in `params`: numbers
        given at run time, with these defaults (None: a required argument). Raises FormulaError
        for a name that is no identifier, a parameter that the expression lacks, or an expression
        that is not real.
        """
        frame = inspect.currentframe()
        caller = frame.f_back if frame else None
        where = Location(source, 1)
        if caller is not None and source == "from_expr":
            where = Location(caller.f_code.co_filename, caller.f_lineno)
            source = os.path.basename(caller.f_code.co_filename)
        if not name.isidentifier() or keyword.iskeyword(name):
            raise FormulaError(
                f"{name!r} is no name for a formula",
                where=where,
                remedy="use a Python identifier, tanhexp say",
            )
        expr = _as_expr(expr, name, where)
        params = dict(params or {})
        names = {symbol.name for symbol in expr.free_symbols}
        for missing in sorted(set(params) - names):
            raise FormulaError(
                f"parameter {missing!r} does not occur in the expression",
                where=where,
                remedy=f"the expression's symbols are: {', '.join(sorted(names)) or 'none'}",
            )
        for each in sorted(names):
            if not each.isidentifier() or keyword.iskeyword(each):
                raise FormulaError(
                    f"symbol {each!r} is no Python identifier", where=where, remedy="rename it"
                )
        tensors = sorted(names - set(params))

        def body(**values: Any) -> Any:
            return expr.xreplace({s: values[s.name] for s in expr.free_symbols})

        body.__name__ = name
        body.__doc__ = None
        empty = inspect.Parameter.empty
        annotations = {
            p: int if isinstance(v, int) and not isinstance(v, bool) else float
            for p, v in params.items()
        }
        body.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Tensor)
                for n in tensors
            ]
            + [
                inspect.Parameter(
                    p,
                    inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    annotation=annotations[p],
                    default=v if v is not None else empty,
                )
                for p, v in params.items()
            ]
        )
        return cls(body, Options(), where, source=source)


_registries: list[list[Formula]] = []


@contextmanager
def collect_formulas() -> Iterator[list[Formula]]:
    """Within it, every formula that is made is appended to the list it gives, in order."""
    made: list[Formula] = []
    _registries.append(made)
    try:
        yield made
    finally:
        # By identity: lists of formulas that are equal need not be the same.
        _registries[:] = [each for each in _registries if each is not made]


@typing.overload
def formula(body: Callable[..., Any], /) -> Formula: ...
@typing.overload
def formula(
    *,
    domain: Mapping[str, Interval] | None = ...,
    reduction: bool = ...,
    amp: Literal["float32"] | None = ...,
    save: Literal["output"] | None = ...,
) -> Callable[[Callable[..., Any]], Formula]: ...
def formula(
    body: Callable[..., Any] | None = None,
    /,
    *,
    domain: Mapping[str, Interval] | None = None,
    reduction: bool = False,
    amp: Literal["float32"] | None = None,
    save: Literal["output"] | None = None,
) -> Formula | Callable[[Callable[..., Any]], Formula]:
    """Decorator: the function of SymPy symbols is a formula.

    domain: per tensor or parameter, the interval its values lie in; outside it results are
        unspecified.
    reduction: the generated function takes `reduction="none" | "mean" | "sum"`, for losses.
    amp: "float32" keeps the op in float32 under autocast.
    save: "output" saves outputs in place of inputs for backward, also where that costs accuracy.
    """

    def decorate(body: Callable[..., Any]) -> Formula:
        where = _where(body)
        options = Options(
            domain=_domain_option(domain, where),
            reduction=_one_of("reduction", reduction, (True, False), where),
            amp=_one_of("amp", amp, ("float32", None), where),
            save=_one_of("save", save, ("output", None), where),
        )
        return Formula(body, options, where, source=os.path.basename(where.file))

    if body is None:
        return decorate
    if not inspect.isfunction(body):
        raise FormulaError(
            "@formula takes its options by keyword",
            remedy="write @formula or @formula(domain=..., reduction=..., amp=..., save=...)",
        )
    return decorate(body)


def _one_of(name: str, value: Any, allowed: tuple[Any, ...], where: Location) -> Any:
    if not any(value is each or value == each for each in allowed):
        raise FormulaError(
            f"@formula({name}={value!r}) is not an option",
            where=where,
            remedy=f"{name} is one of {', '.join(map(repr, allowed))}",
        )
    return value


def _domain_option(
    domain: Mapping[str, Interval] | None, where: Location
) -> tuple[tuple[str, Interval], ...]:
    for name, interval in (domain or {}).items():
        if not isinstance(interval, Interval) or interval.is_empty:
            raise FormulaError(
                f"the domain of {name!r} is {interval}, not an interval",
                where=where,
                remedy="write domain={'x': Interval.open(0, oo)}, Interval from sympy",
            )
    return tuple((domain or {}).items())


def _where(body: Callable[..., Any]) -> Location:
    """The line of `def`, which `co_firstlineno` is not where there are decorators."""
    code = body.__code__
    line = code.co_firstlineno
    try:
        lines, start = inspect.getsourcelines(body)
    except (OSError, TypeError, SyntaxError):
        return Location(code.co_filename, line)
    for offset, text in enumerate(lines):
        if re.match(r"\s*(async\s+)?def\s", text):
            return Location(code.co_filename, start + offset)
    return Location(code.co_filename, line)


# --- the signature -------------------------------------------------------------------------


def _parameters(formula: Formula) -> tuple[Parameter, ...]:
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
    parameters = tuple(_parameter(p, where) for p in signature.parameters.values())
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
                where=where,
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
    if p.name in RESERVED_PARAMETERS:
        raise FormulaError(
            f"{p.name!r} is an argument that the generated module has already",
            where=where,
            remedy=f"rename it, {p.name}_ say",
        )
    default = REQUIRED if p.default is p.empty else p.default
    annotation = _inferred(default, p.name, where) if p.annotation is p.empty else p.annotation
    parameter = _annotated(p.name, annotation, default, where)
    return dataclasses.replace(parameter, keyword_only=p.kind is p.KEYWORD_ONLY)


RESERVED_PARAMETERS = frozenset({"num_channels", "device", "dtype", "reduction"})


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


def _leaves(parameters: tuple[Parameter, ...], options: Options) -> tuple[Leaf, ...]:
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


# --- the body ------------------------------------------------------------------------------


def camel_case(name: str) -> str:
    """The class name of a formula: `gelu_tanh` -> `GeluTanh`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_") if part)


def _trace(formula: Formula) -> Definition:
    name, where = formula.name, formula.where
    parameters = _parameters(formula)
    leaves = _leaves(parameters, formula.options)
    _check_names(name, parameters, where)
    unknown = sorted({n for n, _ in formula.options.domain} - {leaf.name for leaf in leaves})
    if unknown:
        raise FormulaError(
            f"the domain names {unknown[0]!r}, which is no parameter of {name}",
            where=where,
            remedy=f"parameters are: {', '.join(leaf.name for leaf in leaves)}",
        )
    if not any(leaf.kind is Kind.TENSOR for leaf in leaves):
        raise FormulaError(
            f"{name} has no tensor that is always given",
            where=where,
            remedy="its first parameter is a tensor: `x`",
        )
    axes = [
        [(leaf.name, value) for value in _choices_of(leaf)]
        for leaf in leaves
        if leaf.kind in (Kind.CHOICE, Kind.OPTIONAL)
    ]
    count = math.prod(len(axis) for axis in axes)
    if count > MAX_VARIANTS:
        raise FormulaError(
            f"{name} has {count} combinations of choices and optional tensors; "
            f"{MAX_VARIANTS} at most",
            where=where,
            remedy="split it into several formulas",
        )
    names: tuple[str, ...] | None = None
    named = False
    variants: list[Variant] = []
    for key in itertools.product(*axes):
        values = _values(parameters, leaves, dict(key), formula)
        returned = _run(lambda: formula.body(**values), name, where)  # noqa: B023
        outputs, got_names, named = _outputs(returned, name, where)
        if names is not None and names != got_names:
            raise FormulaError(
                f"{name} returns {len(names)} outputs ({', '.join(names)}) in one variant and "
                f"{len(got_names)} ({', '.join(got_names)}) in another",
                where=where,
                remedy="every choice must return the same outputs",
            )
        names = got_names
        allowed = {leaf.symbol for leaf in leaves if leaf.symbol is not None}
        for output in outputs:
            _check_symbols(output, allowed, name, where)
        gradient = _own_gradient(formula, values, leaves, dict(key), names)
        variants.append(Variant(tuple(key), outputs, gradient))
    assert names is not None
    return Definition(
        name=name,
        parameters=parameters,
        leaves=leaves,
        output_names=names,
        named_outputs=named,
        variants=tuple(variants),
        doc=inspect.cleandoc(formula.__doc__ or "").strip(),
        options=formula.options,
        source=formula.source,
        where=where,
        calls=_calls(formula.body, where),
    )


def _calls(body: Callable[..., Any], where: Location) -> tuple[tuple[str, Location], ...]:
    try:
        lines, start = inspect.getsourcelines(body)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return ()
    found: dict[str, Location] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            callee = node.func
            name = callee.id if isinstance(callee, ast.Name) else getattr(callee, "attr", "")
            found.setdefault(name, Location(where.file, start + node.lineno - 1))
    return tuple(found.items())


def _check_names(name: str, parameters: tuple[Parameter, ...], where: Location) -> None:
    if not name.isidentifier():
        raise FormulaError(
            f"{name!r} is no name for a formula",
            where=where,
            remedy="write it as a function: def my_formula(x): ...",
        )
    camel = camel_case(name)
    if camel == name or not camel.isidentifier():
        raise FormulaError(
            f"formula {name!r} leaves no name for its module",
            where=where,
            remedy=f"write it in lower case: {name.lower().strip('_') or 'formula'}",
        )
    for parameter in parameters:
        if parameter.type_name == camel:
            raise FormulaError(
                f"the settings class {camel} has the name of the formula's module",
                where=where,
                remedy=f"rename the class, {camel}Settings say",
            )
        if parameter.name.startswith("_"):
            raise FormulaError(
                f"parameter {parameter.name!r} starts with an underscore",
                where=where,
                remedy="those names are the generated code's own; drop the underscore",
            )


def _choices_of(leaf: Leaf) -> tuple[Choice, ...]:
    return (True, False) if leaf.kind is Kind.OPTIONAL else leaf.parameter.values


def _values(
    parameters: tuple[Parameter, ...],
    leaves: tuple[Leaf, ...],
    key: dict[str, Choice],
    formula: Formula,
) -> dict[str, Any]:
    """What the body receives under one key."""
    by_path: dict[str, Any] = {}
    for leaf in leaves:
        if leaf.kind is Kind.CHOICE:
            by_path[leaf.path] = key[leaf.name]
        elif leaf.kind is Kind.OPTIONAL and not key[leaf.name]:
            by_path[leaf.path] = None
        else:
            by_path[leaf.path] = leaf.symbol
    values: dict[str, Any] = {}
    for p in parameters:
        if p.kind is Kind.SETTINGS:
            cls = inspect.signature(formula.body, eval_str=True).parameters[p.name].annotation
            fields = {field.name: by_path[f"{p.name}.{field.name}"] for field in p.fields}
            values[p.name] = _run(lambda: cls(**fields), formula.name, formula.where)  # noqa: B023
        else:
            values[p.name] = by_path[p.name]
    return values


def _run(body: Callable[[], Any], name: str, where: Location) -> Any:
    """`body()`, its exceptions turned into errors that name the line in the user's file."""
    try:
        return body()
    except FormulaError as error:
        raise error.at(where) from None
    except RecursionError:
        raise FormulaError(
            f"{name} recurses without an end",
            where=where,
            remedy="a formula builds one expression; give the recursion a fixed depth",
        ) from None
    except MemoryError:
        raise FormulaError(f"{name} ran out of memory", where=where) from None
    except (Exception, SystemExit) as error:
        line = _line_in(error, where)
        what = f"{name} raised {type(error).__name__}: {error}"
        raise FormulaError(what, where=line, remedy=_remedy_for(error)) from None


def _line_in(error: BaseException, where: Location) -> Location:
    """The innermost line of the user's own file in the traceback."""
    found, trace = where, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == where.file:
            found = Location(where.file, trace.tb_lineno)
        trace = trace.tb_next
    return found


def _remedy_for(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, TypeError) and "truth value" in text:
        return "symbols have no truth value: write Piecewise((a, x > 0), (b, True)) for `if`"
    if isinstance(error, TypeError) and ("float" in text or "real number" in text):
        return "use SymPy's functions (from sympy import exp), not those of math or numpy"
    return "the body must run on SymPy symbols and return an expression"


def _as_expr(value: Any, name: str, where: Location) -> Expr:
    what: str | None = None
    remedy = "return a SymPy expression, a tuple of them, or a dict of names and expressions"
    if value is None:
        what = f"{name} returns None"
        remedy = "add a `return` with the expression"
    elif isinstance(value, str):
        what = f"{name} returns the string {value!r}"
        remedy = "return the expression itself, without quotes"
    elif isinstance(value, bool | sympy.logic.boolalg.Boolean) and not isinstance(value, Symbol):
        what = f"{name} returns the condition {value}"
        remedy = "write Piecewise((1, condition), (0, True))"
    elif isinstance(value, int | float):
        value = sympy.sympify(value)
    elif isinstance(value, sympy.MatrixBase | sympy.MatrixExpr | sympy.NDimArray):
        what = f"{name} returns a matrix"
        remedy = "a formula is elementwise: return its entries as a tuple"
    elif isinstance(value, Formula):
        what = f"{name} returns the formula {value.name} itself"
        remedy = f"call it: {value.name}(x)"
    elif not isinstance(value, Expr):
        what = f"{name} returns {_shown(value)}, a {type(value).__name__}"
    if what is None and value.has(sympy.nan, sympy.zoo):
        what = f"{name} is undefined: it contains {_shown(value)}"
        remedy = "look for a division by zero in the formula"
    elif what is None and (value.has(sympy.I) or (value.is_real is False and value.is_finite)):
        what = f"{name} is complex: {_shown(value)}"
        remedy = "a formula is real for real inputs: take a real form of it"
    if what is not None:
        raise FormulaError(what, where=where, remedy=remedy)
    return typing.cast(Expr, value)


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _outputs(
    returned: Any, name: str, where: Location
) -> tuple[tuple[Expr, ...], tuple[str, ...], bool]:
    if isinstance(returned, dict):
        for key in returned:
            if not isinstance(key, str) or not key.isidentifier() or keyword.iskeyword(key):
                raise FormulaError(
                    f"{key!r} is no name for an output", where=where, remedy="use an identifier"
                )
            if key.startswith("_") or key in ("count", "index"):
                raise FormulaError(
                    f"output {key!r} is no name for a named tuple's field",
                    where=where,
                    remedy="rename it",
                )
        names, values = tuple(returned), tuple(returned.values())
    elif isinstance(returned, tuple | list):
        values = tuple(returned)
        names = ("out",) if len(values) == 1 else tuple(f"out{i}" for i in range(len(values)))
    else:
        names, values = ("out",), (returned,)
    if not values:
        raise FormulaError(f"{name} returns nothing", where=where, remedy="return an expression")
    named = isinstance(returned, dict)
    return tuple(_as_expr(value, name, where) for value in values), names, named


def _check_symbols(expr: Expr, allowed: set[Any], name: str, where: Location) -> None:
    for symbol in sorted(expr.free_symbols - allowed, key=str):
        same = [each for each in allowed if each.name == str(symbol)]
        remedy = (
            f"use the parameter {symbol} itself: it is passed to the body, do not make a "
            "Symbol of that name"
            if same
            else f"add it to the signature: `{symbol}: float = 1.0`, or `{symbol}` for a tensor"
        )
        raise FormulaError(
            f"{name} uses the symbol {str(symbol)!r}, which is not its parameter",
            where=where,
            remedy=remedy,
        )


def _own_gradient(
    formula: Formula,
    values: dict[str, Any],
    leaves: tuple[Leaf, ...],
    key: dict[str, Choice],
    output_names: tuple[str, ...],
) -> tuple[Expr | None, ...] | None:
    body = formula.gradient_body
    if body is None:
        return None
    where, name = _where(body), f"the gradient of {formula.name}"
    grads = grad_symbols(output_names)
    params = list(inspect.signature(body).parameters)
    if not params:
        raise FormulaError(f"{name} takes no argument", where=where, remedy="its first is `grad`")
    unknown = [p for p in params[1:] if p not in values]
    if unknown:
        raise FormulaError(
            f"{name} takes {unknown[0]!r}, which is no parameter of the formula",
            where=where,
            remedy=f"parameters are: {', '.join(values)}",
        )
    cotangent = grads[0] if len(grads) == 1 else grads
    returned = _run(lambda: body(cotangent, **{p: values[p] for p in params[1:]}), name, where)
    entries = tuple(returned) if isinstance(returned, tuple | list) else (returned,)
    differentiable = [leaf for leaf in leaves if leaf.parameter.differentiable]
    if len(entries) != len(differentiable):
        raise FormulaError(
            f"{name} returns {len(entries)} expressions for {len(differentiable)} inputs "
            f"({', '.join(leaf.name for leaf in differentiable)})",
            where=where,
            remedy="return one per tensor and learnable parameter, None for no gradient",
        )
    allowed: set[Any] = {leaf.symbol for leaf in leaves} | set(grads)
    checked: list[Expr | None] = []
    for leaf, entry in zip(differentiable, entries, strict=True):
        if entry is None or (leaf.kind is Kind.OPTIONAL and not key[leaf.name]):
            checked.append(None)
            continue
        expr = _as_expr(entry, name, where)
        _check_symbols(expr, allowed, name, where)
        checked.append(expr)
    return tuple(checked)
