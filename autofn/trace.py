"""Running a formula's body on symbols: from a `Formula` to its `Definition`."""

from __future__ import annotations

import fractions
import functools
import inspect
import itertools
import keyword
import math
import typing
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import sympy
from sympy import Expr, Symbol

from autofn import places, suggest
from autofn.errors import FormulaError, Location, about
from autofn.model import (
    Choice,
    Definition,
    Kind,
    Leaf,
    Parameter,
    Variant,
    grad_symbols,
)
from autofn.names import camel_case
from autofn.signature import leaves_of, parameters_of

if TYPE_CHECKING:
    from autofn.api import Formula

MAX_VARIANTS = 16

FINEST, LARGEST = 100, 10**6
"""The denominator and the numerator up to which a decimal number is a fraction."""

FINEST_BELOW = 10**6
"""The denominator of one in a sum that divides: what it is divided by it is reduced."""

PLAIN = 10**5
"""The denominator up to which a number that rounds to a float64 is that fraction: 4*0.3/9 is 2/15,
which SymPy has multiplied out already. By chance one of a million is."""

KINKED = (
    sympy.Max, sympy.Min, sympy.Abs, sympy.sign, sympy.Heaviside, sympy.floor, sympy.ceiling,
    sympy.core.relational.Relational,
)  # fmt: skip


def trace(formula: Formula) -> Definition:
    name, where = formula.name, formula.where
    parameters = parameters_of(formula)
    leaves = leaves_of(parameters, formula.options)
    _check_names(name, parameters, where)
    unknown = sorted({n for n, _ in formula.options.domain} - {leaf.name for leaf in leaves})
    if unknown:
        raise FormulaError(
            f"the domain names {unknown[0]!r}, which is no parameter of {name}",
            where=where,
            remedy=f"parameters are: {', '.join(leaf.name for leaf in leaves)}",
        )
    if not any(leaf.kind is Kind.TENSOR for leaf in leaves):
        first = leaves[0].name if leaves and leaves[0].path == leaves[0].name else "x"
        raise FormulaError(
            f"{name} has no tensor that is always given",
            where=where,
            remedy=f"its first parameter is a tensor, without a default: `{first}`",
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
    _check_truth(formula, leaves)
    names: tuple[str, ...] | None = None
    named = False
    variants: list[Variant] = []
    for key in itertools.product(*axes):
        values = _values(parameters, leaves, dict(key), formula)
        returned = _run(lambda: formula.body(**values), name, where, values)  # noqa: B023
        outputs, got_names, named = _outputs(returned, name, where, formula.body)
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
            _check_symbols(output, allowed, name, formula.body)
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
        calls=tuple(places.of_calls(formula.body, where.file).items()),
    )


@about("signature")
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


@about("body")
def _check_truth(formula: Formula, leaves: tuple[Leaf, ...]) -> None:
    """SymPy's symbols are true, whatever they stand for, and equal to none: `x and 2*x` is 2*x."""
    always = frozenset(
        leaf.path for leaf in leaves if leaf.symbol is not None and leaf.kind is not Kind.OPTIONAL
    )
    for find, what, remedy in MISREAD:
        where = find(formula.body, always)
        if where is not None:
            raise FormulaError(f"{places.text_at(where)} {what}", where=where, remedy=remedy)


MISREAD = (
    (
        places.of_truth,
        "stands for true or false, which it is not when the formula is written",
        "compare it, in Piecewise or And: And(x > 0, y > 0)",
    ),
    (
        places.of_equality,
        "is decided when the formula is written, and a symbol equals only itself",
        "write Piecewise((value, Eq(n, 0)), (other, True)); what is to select code is a choice: "
        '`mode: Literal["a", "b"]`',
    ),
)
"""What Python decides of symbols in a body: where it is found, what it is, and what to write."""


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


@about("body")
def _run(
    body: Callable[[], Any], name: str, where: Location, parameters: Iterable[str] = ()
) -> Any:
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
        line = places.of_exception(error, where.file) or where
        what = f"{name} raised {type(error).__name__}: {' '.join(str(error).split())}"
        remedy = suggest.in_body(error, parameters, places.text_at(line))
        raise FormulaError(what, where=line, remedy=remedy) from None


@about("returns")
def as_expr(value: Any, name: str, where: Location, body: Callable[..., Any] | None = None) -> Expr:
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
    elif hasattr(value, "gradient_body"):
        what = f"{name} returns the formula {value.name} itself"
        remedy = f"call it: {value.name}(x)"
    elif not isinstance(value, Expr):
        what = f"{name} returns {_shown(value)}, a {type(value).__name__}"
    if what is None and value.has(sympy.nan, sympy.zoo):
        what = f"{name} is undefined: {_undefined(value)}"
        remedy = "look for a division by zero in the formula"
        where = (places.of_zero(body) if body else None) or where
    elif what is None and (value.has(sympy.I) or (value.is_real is False and value.is_finite)):
        what = f"{name} is complex: {_shown(value)}"
        remedy = "a formula is real for real inputs: take a real form of it"
    if what is not None:
        raise FormulaError(what, where=where, remedy=remedy)
    return _with_fractions(typing.cast(Expr, value))


def _with_fractions(expr: Expr) -> Expr:
    """The expression with 1/2 for 0.5, exactly: x**0.5 is a square root; and with 1/10 for 0.1.

    That is not what Python's 0.1 is, but what adds up. It is left in exponents, which would need a
    common denominator, and in what says where a kink is: a float64 may be 0.1, and never 1/10.
    """
    kept = {each.exp for each in expr.atoms(sympy.Pow)}
    kept |= {number for node in expr.atoms(*KINKED) for number in node.atoms(sympy.Float)}
    divisors = [each.base for each in expr.atoms(sympy.Pow) if each.exp.is_negative]
    below = {number for each in divisors if each.is_Add for number in _coefficients(each)}
    short = {}
    for number in expr.atoms(sympy.Float):
        if not math.isfinite(float(number)):
            continue
        fraction = _fraction(float(number), FINEST_BELOW if number in below else FINEST)
        if fraction is not None and (fraction.q.bit_count() == 1 or number not in kept):
            short[number] = fraction
    return expr.xreplace(short)


@functools.lru_cache(maxsize=1000)
def _coefficients(node: sympy.Basic) -> frozenset[sympy.Float]:
    """The numbers in sums, products and whole powers, not in what functions are applied to."""
    if isinstance(node, sympy.Float):
        return frozenset({node})
    inside = node.is_Add or node.is_Mul or (node.is_Pow and node.exp.is_Integer)
    return frozenset().union(*map(_coefficients, node.args if inside else ()))


def _fraction(number: float, finest: int) -> sympy.Rational | None:
    """The decimal fraction that a number is written as, or one that it is the rounded value of."""
    found = sympy.Rational(repr(number))
    if found.q > finest and finest > FINEST:
        found = sympy.Rational(fractions.Fraction(number).limit_denominator(PLAIN))
        if abs(float(found) - number) > math.ulp(number):
            return None
    return found if found.q <= finest and abs(found.p) <= finest * LARGEST // FINEST else None


def _undefined(value: Expr) -> str:
    """The innermost part that holds SymPy's names for what is no number."""
    names = {sympy.zoo: "infinity without a sign", sympy.nan: "not a number"}
    part: sympy.Basic = value
    while inner := [each for each in part.args if each.args and each.has(*names)]:
        part = inner[0]
    found = next(each for each in names if part.has(each))
    return f"it contains {_shown(part)}, and {found} is {names[found]}"


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


@about("returns")
def _outputs(
    returned: Any, name: str, where: Location, body: Callable[..., Any]
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
    return tuple(as_expr(value, name, where, body) for value in values), names, named


@about("symbols")
def _check_symbols(expr: Expr, allowed: set[Any], name: str, body: Callable[..., Any]) -> None:
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
            where=places.of_symbol(body, str(symbol)) or places.of_definition(body),
            remedy=remedy,
        )


@about("gradient")
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
    where, name = places.of_definition(body), f"the gradient of {formula.name}"
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
    taken = {p: values[p] for p in params[1:]}
    returned = _run(lambda: body(cotangent, **taken), name, where, params)
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
        expr = as_expr(entry, name, where, body)
        _check_symbols(expr, allowed, name, body)
        checked.append(expr)
    return tuple(checked)
