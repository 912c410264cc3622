"""What users write: `@formula` and `Formula`."""

from __future__ import annotations

import inspect
import keyword
import os
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from sympy import Interval

from autofn import places
from autofn.annotations import Tensor
from autofn.errors import FormulaError, Location, about
from autofn.model import (
    Definition,
    Options,
)
from autofn.signature import refuse_reserved
from autofn.trace import as_expr, trace

if TYPE_CHECKING:
    from autofn.notebook import Op, Picture, Shown


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

    def compile(self, *, verify: bool = False) -> Op:
        """The op at once: the package that `autofn gen` writes, in the user's cache, imported.

        verify: check it first, as `autofn gen` does; that takes seconds.

        Raises FormulaError where the formula cannot be generated, VerificationError where it is
        wrong.
        """
        from autofn.notebook import compiled

        return compiled(self.definition, verify=verify)

    def plot(self) -> Picture:
        """The formula with its first and second derivatives, kinks marked; as `autofn plot`.

        Raises FormulaError where it cannot be generated, UsageError without matplotlib.
        """
        from autofn.notebook import picture

        return picture(self.definition)

    def show(self) -> Shown:
        """What is computed, saved for backward and what that costs; as `autofn show`."""
        from autofn import pipeline
        from autofn.notebook import Shown

        return Shown(pipeline.explain(self.definition))

    def _repr_latex_(self) -> str | None:
        """Typeset in a notebook; a formula that is none says so when it is used."""
        from autofn.notebook import typeset

        try:
            return typeset(self.definition)
        except FormulaError:
            return None

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
                self._definition = trace(self)
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
        expr = as_expr(expr, name, where)
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
            refuse_reserved(each, where)
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
    budget: float | None = ...,
) -> Callable[[Callable[..., Any]], Formula]: ...
def formula(
    body: Callable[..., Any] | None = None,
    /,
    *,
    domain: Mapping[str, Interval] | None = None,
    reduction: bool = False,
    amp: Literal["float32"] | None = None,
    save: Literal["output"] | None = None,
    budget: float | None = None,
) -> Formula | Callable[[Callable[..., Any]], Formula]:
    """Decorator: the function of SymPy symbols is a formula.

    Args:
        body: the function; with options it comes later, as for any decorator.
        domain: per tensor or parameter, the interval its values lie in; outside it results are
            unspecified.
        reduction: the generated function takes `reduction="none" | "mean" | "sum"`, for losses.
        amp: "float32" keeps the op in float32 under autocast.
        save: "output" saves outputs in place of inputs for backward, also where that costs
            accuracy.
        budget: ULP of float32 that values and gradients may be off by away from roots, for
            `autofn verify --full`, whose exit code is 3 past it.

    Raises:
        FormulaError: an option is not one of those above, with the line of the function.
    """

    def decorate(body: Callable[..., Any]) -> Formula:
        where = places.of_definition(body)
        options = Options(
            domain=_domain_option(domain, where),
            reduction=_one_of("reduction", reduction, (True, False), where),
            amp=_one_of("amp", amp, ("float32", None), where),
            save=_one_of("save", save, ("output", None), where),
            budget=_budget_option(budget, where),
        )
        return Formula(body, options, where, source=os.path.basename(where.file))

    if body is None:
        return decorate
    if not inspect.isfunction(body):
        raise FormulaError(
            "@formula takes its options by keyword",
            remedy="write @formula or @formula(domain=..., reduction=..., amp=..., save=..., "
            "budget=...)",
        )
    return decorate(body)


@about("options")
def _one_of(name: str, value: Any, allowed: tuple[Any, ...], where: Location) -> Any:
    if not any(value is each or value == each for each in allowed):
        raise FormulaError(
            f"@formula({name}={value!r}) is not an option",
            where=where,
            remedy=f"{name} is one of {', '.join(map(repr, allowed))}",
        )
    return value


@about("options")
def _budget_option(budget: Any, where: Location) -> float | None:
    if budget is None:
        return None
    # Not bool, which is an int.
    if type(budget) not in (int, float) or not 0.5 <= budget < float("inf"):
        raise FormulaError(
            f"@formula(budget={budget!r}) is not an error in ULP",
            where=where,
            remedy="budget is a number from 0.5 on, such as 4.0",
        )
    return float(budget)


@about("options")
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
