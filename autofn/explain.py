"""What autofn does with a formula, in words and numbers: the text of `autofn show`."""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from autofn import saving
from autofn.emit.words import formula_lines, readable
from autofn.model import Definition
from autofn.plan import Plan, VariantPlan, plan


@dataclass(frozen=True)
class Explanation:
    """Sections of a title and a text of one or more lines."""

    name: str
    sections: tuple[tuple[str, str], ...]


def explain(definition: Definition) -> Explanation:
    """What is written, what is computed in its place, and what that costs and saves.

    Raises FormulaError where the formula cannot be generated.
    """
    made = plan(definition)
    sections = [
        ("Formula and gradient", "\n".join(formula_lines(made))),
        ("Computed as", "\n".join(_heads(made))),
        ("Saved for backward", _saved(made)),
        ("Scalar operations per element", "\n".join(_operations(made))),
    ]
    return Explanation(definition.name, tuple(sections))


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
