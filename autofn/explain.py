"""What autofn does with a formula, in words and numbers: the text of `autofn show`."""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from autofn import saving
from autofn.emit.words import formula_lines, readable
from autofn.model import Definition
from autofn.plan import Plan, VariantPlan, plan
from autofn.rewrite.steps import stages


@dataclass(frozen=True)
class Explanation:
    """Sections of a title and a text of one or more lines."""

    name: str
    sections: tuple[tuple[str, str], ...]


def explain(definition: Definition, *, steps: bool = False) -> Explanation:
    """What is written, what is computed in its place, and what that costs and saves.

    steps: with each rule that was applied, and the candidates among which each kernel was chosen.
    Raises FormulaError where the formula cannot be generated.
    """
    made = plan(definition)
    sections = [
        ("Formula and gradient", "\n".join(formula_lines(made))),
        ("Computed as", "\n".join(_heads(made))),
        ("Saved for backward", _saved(made)),
        ("Scalar operations per element", "\n".join(_operations(made))),
    ]
    if steps:
        sections += [
            ("Rewriting, with operations and error in simulated float32", "\n".join(_steps(made))),
            ("Candidates for kernels", "\n".join(_candidates(made))),
        ]
    return Explanation(definition.name, tuple(sections))


def _steps(made: Plan) -> list[str]:
    lines: list[str] = []
    for variant, source in zip(made.variants, made.definition.variants, strict=True):
        prefix = f"[{_label(variant)}] " if variant.key else ""
        for k, name in enumerate(made.definition.output_names):
            for stage in stages(made.definition, source, k):
                if stage.step is None:
                    lines.append(f"{prefix}{name} = {readable(stage.expr)}  (as written)")
                else:
                    before, after = readable(stage.step.before), readable(stage.step.after)
                    lines.append(f"  {stage.step.rule}: {before} -> {after}")
                    lines.append(f"    because {stage.step.why}")
                if stage.operations is not None:
                    error = "" if stage.error is None else f", {stage.error}"
                    lines.append(f"    {stage.operations} operations{error}")
    return lines


def _candidates(made: Plan) -> list[str]:
    lines: list[str] = []
    for variant in made.variants:
        prefix = f"[{_label(variant)}] " if variant.key else ""
        for decision in variant.decisions:
            pass_name = decision.pass_name.replace("_", " ")
            lines.append(f"{prefix}{pass_name}, at most {decision.budget:g} ULP:")
            for k, each in enumerate(decision.candidates):
                mark = "*" if k == decision.chosen else " "
                lines.append(
                    f"{mark} {each.name}: {each.operations} operations, "
                    f"cost {each.cost:g}, {each.error or 'dearer, so not measured'}"
                )
            if decision.first_try:
                lines.append(f"  on CPUs first: {decision.first_try}")
    return lines


def _label(variant: VariantPlan) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in variant.key)


def _heads(made: Plan) -> list[str]:
    lines: list[str] = []
    for variant, source in zip(made.variants, made.definition.variants, strict=True):
        prefix = f"[{_label(variant)}] " if variant.key else ""
        for name, new, old in zip(
            made.definition.output_names, variant.derivation.forward, source.outputs, strict=True
        ):
            changed = "" if new != old else "  (as written)"
            lines.append(f"{prefix}{name} = {readable(new)}{changed}")
    return lines


def _saved(made: Plan) -> str:
    definition = made.definition
    tensors = {leaf.name for leaf in definition.tensors} | set(made.outputs)
    lines = [] if made.saved else ["nothing: the gradient needs neither inputs nor outputs"]
    for name in made.saved:
        what = "output" if name in made.outputs else "input"
        size = "one value per element" if name in tensors else "a parameter"
        lines.append(f"{name} ({what}, {size})")
    variant = made.variants[0]
    prefix = f"[{_label(variant)}] " if variant.key else ""
    options = saving.options(definition, variant.derivation, made.outputs)
    if len(made.variants) > 1:
        lines.append(f"{prefix}the options:")
    for option in options:
        what = " and ".join(option.tensors) or "nothing"
        exact = saving.accuracy(definition, variant.derivation, option)
        mark = " (chosen)" if set(option.tensors) == set(made.saved) & tensors else ""
        lines.append(f"{prefix}{what}: {option.bytes} bytes per element in float32, {exact}{mark}")
    if len(options) > 1 and not options[-1].lossless and definition.options.save != "output":
        lines.append('the last with @formula(save="output")')
    return "\n".join(lines)


def _operations(made: Plan) -> list[str]:
    """Before: counts of what was written and of its sympy.diff, nothing shared."""
    lines = []
    for variant, source in zip(made.variants, made.definition.variants, strict=True):
        prefix = f"[{_label(variant)}] " if variant.key else ""
        written = sum(int(sympy.count_ops(output)) for output in source.outputs)
        naive = sum(
            int(sympy.count_ops(output.diff(symbol)))
            for output in source.outputs
            for symbol in variant.derivation.variables
        )
        own = " (the formula's own gradient)" if variant.derivation.own else ""
        lines.append(f"{prefix}forward:  {written} as written, {variant.forward.operations} now")
        lines.append(f"{prefix}backward: {naive} by sympy.diff, {variant.vjp.operations} now{own}")
    return lines
