"""From what was written to what is computed, a step at a time, each with its cost and error."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sympy import Expr, S

from autofn.bench.sketch import lowered, plain, written
from autofn.derive import Differentiator
from autofn.errors import FormulaError
from autofn.model import Definition, Variant
from autofn.package import Package
from autofn.passes import Pass
from autofn.plan import Plan, VariantPlan, kernels
from autofn.program import Program, Result
from autofn.report.model import Step
from autofn.report.truth import Column, Truth, error
from autofn.rewrite.simulate import simulated
from autofn.rewrite.steps import stages

WRITTEN = ("As written", "In the author's words; the gradient by the chain rule alone.")
HEADS = (
    "Stable functions",
    "Known functions are found before anything is differentiated, and derivatives stay among them. "
    "The PyTorch path computes this.",
)
Form = tuple[tuple[str, str], Expr | None, str, Program | None]
"""A rule and why, what it gives as an expression or as code, and its program."""

EVERY = 2
"""Of the points over the number line every so many are simulated."""


def steps(
    definition: Definition,
    variant: Variant,
    made: Plan,
    planned: VariantPlan,
    package: Package,
    truth: Truth,
) -> tuple[tuple[str, tuple[Step, ...]], ...]:
    """The steps of the first output and of its gradient along the axis, under their titles."""
    name, axis = made.outputs[0], truth.axis.name
    first, derivation = definition.output_names[0], planned.derivation
    forms: list[Form] = [
        (WRITTEN, variant.outputs[0], "", written(definition, variant, made)),
        *_rules(definition, variant, name),
        (HEADS, derivation.forward[0], "", planned.forward),
        (_chosen("forward", planned), None, *_kernel("forward", made, planned, package)),
    ]
    value = _measured(forms, name, truth, truth.columns[first,], planned, made)
    slope = derivation.vjp[derivation.variables.index(truth.axis.symbol)]
    forms = [
        (WRITTEN, *_chain_rule(definition, variant, made, truth)),
        (HEADS, slope, "", planned.vjp),
        (_chosen("backward", planned), None, *_kernel("backward", made, planned, package)),
    ]
    gradient = _measured(forms, axis, truth, truth.columns[first, axis], planned, made)
    return (first, value), (f"∂{first}/∂{axis}", gradient)


def _rules(definition: Definition, variant: Variant, name: str) -> list[Form]:
    """What each rule made of the first output, but for the last: that is what comes next."""
    found: list[Form] = []
    for stage in stages(definition, variant, 0)[:-1]:
        if stage.step is not None:
            program = lowered(
                [Result(name, plain(stage.expr, definition))], definition, variant, {}
            )
            rule = f"Rule: {stage.step.rule}"
            found.append(((rule, f"Because {stage.step.why}."), stage.expr, "", program))
    return found


def _chosen(pass_name: Pass, planned: VariantPlan) -> tuple[str, str]:
    """How the kernel came about."""
    why = "The compiled kernels compute this."
    for decision in planned.decisions:
        if decision.pass_name == pass_name and len(decision.candidates) > 1:
            chosen, count = decision.candidates[decision.chosen], len(decision.candidates)
            why = f"Chosen by cost and error among {count} candidates: {chosen.name}. {why}"
    return "Kernel", why


def _chain_rule(
    definition: Definition, variant: Variant, made: Plan, truth: Truth
) -> tuple[Expr | None, str, Program | None]:
    """The gradient as PyTorch's autograd finds it; the user's own where there is one."""
    cotangents = dict(zip(definition.grads, made.grads, strict=True))
    index = definition.differentiable.index(truth.axis)
    try:
        if variant.gradient is not None:
            entry = variant.gradient[index]
            entry = None if entry is None else plain(entry, definition)
        else:
            variables = [leaf.symbol for leaf in definition.differentiable if leaf.symbol]
            d = Differentiator([*variables, *definition.grads])
            by = d(plain(variant.outputs[0], definition), truth.axis.symbol)
            entry = definition.grads[0] * by
    except (FormulaError, KeyError):
        return None, "", None
    results = [Result(truth.axis.name, entry)]
    return entry, "", lowered(results, definition, variant, cotangents)


def _kernel(
    pass_name: Pass, made: Plan, planned: VariantPlan, package: Package
) -> tuple[str, Program | None]:
    """A kernel's scalar function in C++, and its program."""
    for kernel, program in kernels(made):
        if kernel.pass_name == pass_name and kernel.key == planned.key:
            text = package.text("maths.h")
            start = rf"template <[^\n]*\s*AUTOFN_FN \w+ {re.escape(kernel.function)}\("
            found = re.search(rf"^{start}.*?^}}$", text, re.MULTILINE | re.DOTALL)
            return found[0] if found else "", program
    return "", None


def _measured(
    forms: Sequence[Form],
    name: str,
    truth: Truth,
    column: Column,
    planned: VariantPlan,
    made: Plan,
) -> tuple[Step, ...]:
    picked = [k for k in range(0, len(truth.points), EVERY) if not column.near[k]]
    inputs: list[Mapping[str, float]] = []
    for k in picked:
        outputs = simulated(planned.forward, truth.points[k])
        saved = {o: float(y) for o, y in zip(made.outputs, outputs, strict=True) if y is not None}
        grads = {grad: float(j == 0) for j, grad in enumerate(made.grads)}
        inputs.append({**truth.points[k], **saved, **grads})
    found = []
    for (rule, why), expr, code, program in forms:
        if program is None:
            continue
        at = [output.name for output in program.outputs].index(name)
        errors = [
            error(_number(simulated(program, values)[at]), column.values[k])
            for k, values in zip(picked, inputs, strict=True)
        ]
        known = [each for each in errors if not math.isnan(each)]
        worst = max((each for each in known if math.isfinite(each)), default=0.0)
        bad = sum(map(math.isinf, known))
        if expr is not None and len(made.grads) == 1 and not planned.derivation.own:
            expr = expr.xreplace({made.definition.grads[0]: S.One})
        found.append(
            Step(rule, why, expr, code, program.operations, program.cost, worst, bad, len(known))
        )
    return tuple(found)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
