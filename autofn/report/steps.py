"""From what was written to what is computed, a step at a time, each with its cost and error."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from sympy import Expr, S

from autofn.bench.sketch import lowered, plain, written
from autofn.derive import Differentiator
from autofn.errors import FormulaError
from autofn.model import Definition, Variant
from autofn.package import Package
from autofn.plan import Pass, Plan, VariantPlan, kernels
from autofn.program import Program, Result
from autofn.report.model import Step
from autofn.report.simulate import simulated
from autofn.report.truth import Column, Truth, error

WRITTEN = ("As written", "In the author's words; the gradient by the chain rule alone.")
HEADS = (
    "Stable functions",
    "Known functions are found before anything is differentiated, and derivatives stay among them. "
    "The PyTorch path computes this.",
)
KERNEL = (
    "Kernel",
    "Cheaper forms, products that vanish rounded once, and beside the arguments of exp, sigmoid "
    "and sin what they lost in rounding. The compiled kernels compute this.",
)

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
    forms: list[tuple[tuple[str, str], Expr | None, str, Program | None]] = [
        (WRITTEN, variant.outputs[0], "", written(definition, variant, made)),
        (HEADS, derivation.forward[0], "", planned.forward),
        (KERNEL, None, *_kernel("forward", made, planned, package)),
    ]
    value = _measured(forms, name, truth, truth.columns[first,], planned, made)
    slope = derivation.vjp[derivation.variables.index(truth.axis.symbol)]
    forms = [
        (WRITTEN, *_chain_rule(definition, variant, made, truth)),
        (HEADS, slope, "", planned.vjp),
        (KERNEL, None, *_kernel("backward", made, planned, package)),
    ]
    gradient = _measured(forms, axis, truth, truth.columns[first, axis], planned, made)
    return (first, value), (f"∂{first}/∂{axis}", gradient)


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
    forms: Sequence[tuple[tuple[str, str], Expr | None, str, Program | None]],
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
        saved = {
            o: math.nan if y is None else y for o, y in zip(made.outputs, outputs, strict=True)
        }
        grads = {grad: float(j == 0) for j, grad in enumerate(made.grads)}
        inputs.append({**truth.points[k], **saved, **grads})
    found = []
    for (rule, why), expr, code, program in forms:
        if program is None:
            continue
        at = [output.name for output in program.outputs].index(name)
        errors = [
            error(simulated(program, values)[at], column.values[k])
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
