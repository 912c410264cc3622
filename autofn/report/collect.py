"""From a definition to its page, in the formula's own process."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from sympy import Expr, S, Symbol

from autofn import saving, trees
from autofn.derive import Derivation, direction, parameters_of, second_order
from autofn.emit import emit
from autofn.emit.words import LONGEST, condition
from autofn.isolate import VERIFICATION_LIMIT, Stage
from autofn.model import REQUIRED, Definition, Kind, Parameter, Variant
from autofn.package import Package
from autofn.plan import Plan, plan
from autofn.records import digest
from autofn.report import model
from autofn.report.accuracy import measuring
from autofn.report.curves import drawings
from autofn.report.steps import steps
from autofn.report.truth import Truth, places, truth
from autofn.verify.job import DTYPES

VARIANTS = 4
"""Variants that a page shows; of more, the first ones."""

SOURCES = ("maths.h", "maths.py", "op.py", "kernels.cpp", "kernels.cu", "primitives.h")
"""The files that a page has: what is of the formula, and not the same in every package."""


@dataclass(frozen=True)
class Collect:
    """The action of a formula's own process; certificates are looked for in `root`.

    `known` maps digests of packages to what `autofn gen` found in `dtypes`, which are also those
    to verify.
    """

    root: str
    verify: bool
    known: Mapping[str, str] = field(default_factory=dict)
    dtypes: tuple[str, ...] = DTYPES

    def __call__(self, definition: Definition, stage: Stage) -> model.Page:
        return page(definition, stage, self)


def page(definition: Definition, stage: Stage, asked: Collect) -> model.Page:
    """The page of a formula, without what `autofn bench` measures.

    Raises FormulaError where the formula cannot be generated.
    """
    made = plan(definition)
    package = emit(made)
    stage("drawing", VERIFICATION_LIMIT)
    shown = list(zip(definition.variants, made.variants, strict=True))[:VARIANTS]
    looked = [(variant, planned, places(definition, variant)) for variant, planned in shown]
    variants: list[model.Variant] = []
    truths: list[Truth] = []
    with measuring(definition, made, package, looked) as measured:
        for variant, planned, there in looked:
            truths.append(truth(definition, variant, there))
            variants.append(
                model.Variant(
                    label=condition(variant.key, definition) if variant.key else "",
                    formulas=_formulas(definition, variant, planned.derivation),
                    drawings=drawings(definition, variant, planned.derivation),
                    steps=steps(definition, variant, made, planned, package, truths[-1]),
                    lines=(),
                )
            )
        stage("measuring errors", VERIFICATION_LIMIT)
        found = measured(truths)
    return model.Page(
        name=definition.name,
        signature=", ".join(_signature(each) for each in definition.parameters),
        doc=definition.doc,
        source=definition.source,
        facts=_facts(definition),
        variants=tuple(
            dataclasses.replace(each, lines=lines)
            for each, lines in zip(variants, found.lines, strict=True)
        ),
        left_out=len(made.variants) - len(shown),
        saved=_saved(definition, made),
        kept=found.kept,
        equals=found.equals,
        notes=found.notes,
        verification=_verified(package, definition, asked.dtypes, stage)
        if asked.verify
        else _certified(definition, asked.root) or _before(package, asked.known),
        bench=None,
        sources=tuple((path, text) for path, text in package.files if path in SOURCES),
    )


def _signature(parameter: Parameter) -> str:
    if parameter.default is REQUIRED:
        return parameter.name
    return f"{parameter.name}={parameter.default!r}"


def _facts(definition: Definition) -> tuple[tuple[str, str], ...]:
    options = definition.options
    names = {Kind.SETTINGS: "settings", Kind.CHOICE: "static choice"}
    facts = [
        (each.name, names.get(each.kind, each.kind.value))
        for each in definition.parameters
        if each.kind is not Kind.TENSOR
    ]
    facts += [(name, f"in {interval}") for name, interval in options.domain]
    if options.budget is not None:
        facts.append(("budget", f"{options.budget:g} ULP"))
    if definition.own_gradient:
        facts.append(("gradient", "the formula's own"))
    return tuple(facts)


def _formulas(
    definition: Definition, variant: Variant, derivation: Derivation
) -> tuple[model.Typeset, ...]:
    """The outputs, their gradients and, of the first tensor, the second derivative."""
    many = len(definition.output_names) > 1
    found = [
        _typeset(name, "value", (), expr)
        for name, expr in zip(definition.output_names, variant.outputs, strict=True)
    ]
    if not many:
        names = tuple(p.name for p in definition.parameters)
        found = [dataclasses.replace(found[0], of=definition.name, by=names)]
    # The derivative itself; what backward returns where that is more than the derivative.
    ones = {} if many or derivation.own else {derivation.grads[0]: 1}
    kind = "gradient" if ones else "backward"
    found += [
        _typeset(definition.name, kind, (symbol.name,), entry, ones)
        for symbol, entry in zip(derivation.variables, derivation.vjp, strict=True)
    ]
    symbol, entry = derivation.variables[0], derivation.vjp[0]
    if entry is not None and ones:
        along = direction(symbol)
        terms = second_order((entry,), (symbol,), (along,), parameters_of(definition))
        bend = next((term.expr for term in terms), S.Zero)
        found.append(
            _typeset(definition.name, "second", (symbol.name,) * 2, bend, {**ones, along: 1})
        )
    return tuple(found)


def _typeset(
    of: str,
    kind: str,
    by: tuple[str, ...],
    expr: Expr | None,
    fixed: Mapping[Symbol, int] = MappingProxyType({}),
) -> model.Typeset:
    if expr is None:
        return model.Typeset(of, kind, by, None, "no gradient")
    size = trees.size(expr)
    if size > LONGEST:
        return model.Typeset(of, kind, by, None, f"an expression of {size} operations")
    return model.Typeset(of, kind, by, expr.xreplace(fixed) if fixed else expr)


def _saved(definition: Definition, made: Plan) -> tuple[model.Saving, ...]:
    variant = made.variants[0]
    tensors = {leaf.name for leaf in definition.tensors} | set(made.outputs)
    return tuple(
        model.Saving(
            tensors=" and ".join(option.tensors) or "nothing",
            bytes=option.bytes,
            exact=saving.accuracy(definition, variant.derivation, option),
            chosen=set(option.tensors) == set(made.saved) & tensors,
        )
        for option in saving.options(definition, variant.derivation, made.outputs)
    )


# --- verification ------------------------------------------------------------------------------


def _verified(
    package: Package, definition: Definition, dtypes: Sequence[str], stage: Stage
) -> model.Verification:
    from autofn.verify import verify_package
    from autofn.verify.report import telling

    stage("verifying (compiling kernels)", VERIFICATION_LIMIT)
    report = verify_package(
        package,
        definition,
        level="quick",
        dtypes=dtypes,
        on_row=telling(stage),
    )
    rows = tuple(model.Check(r.backend, r.check, r.status, r.detail) for r in report.rows)
    return model.Verification("verified with this report", rows)


def _before(package: Package, known: Mapping[str, str]) -> model.Verification | None:
    """What `autofn gen` found of the same package."""
    found = known.get(digest(package))
    return model.Verification("by autofn gen", (), found) if found else None


def _certified(definition: Definition, root: str) -> model.Verification | None:
    """The rows of the package's certificate, where there is one that can be read."""
    path = Path(root) / f"{definition.name}.certificate.json"
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["verified"]
        checks = [
            model.Check(*(str(row[key]) for key in ("backend", "check", "status", "detail")))
            for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return model.Verification(f"from {path.name}", tuple(checks))
