"""The way from what was written to what is computed, rule by rule, with operations and errors."""

from __future__ import annotations

from dataclasses import dataclass

import sympy
from sympy import Expr

from autofn import functions as heads
from autofn import trees
from autofn.derive import parameters_of
from autofn.errors import FormulaError
from autofn.model import TENSORS, Definition, Variant
from autofn.program import ELEMENT, Input, Program, Result, lower
from autofn.recognise import Step, recognise
from autofn.rewrite import sample
from autofn.rewrite.judge import Error, Sample, error, sampled


@dataclass(frozen=True)
class Stage:
    """An expression on the way. `step`: the rule that led to it, None for what was written.

    operations, error: of a program that computes it in float32 as it stands; None where an
    operation has no such program.
    """

    step: Step | None
    expr: Expr
    operations: int | None
    error: Error | None


def stages(definition: Definition, variant: Variant, output: int) -> tuple[Stage, ...]:
    """Every stage of one output, the first as written, the last with all heads recognised."""
    steps: list[Step] = []
    written = variant.outputs[output]
    final = recognise(written, parameters_of(definition), steps)
    exprs: list[tuple[Step | None, Expr]] = [(None, written)]
    for step in steps:
        before = exprs[-1][1]
        after = _replaced(before, step)
        if after != before:
            exprs.append((step, after))
    if exprs[-1][1] != final:
        exprs.append((Step("rearranged", exprs[-1][1], final, "as SymPy orders it"), final))
    measure = _Measure(definition, variant, final)
    return tuple(Stage(step, expr, *measure(expr)) for step, expr in exprs)


def _replaced(expr: Expr, step: Step) -> Expr:
    """What a rule made of a part, put in its place."""
    try:
        return expr.xreplace({step.before: step.after})
    except (TypeError, ValueError):
        return expr


class _Measure:
    def __init__(self, definition: Definition, variant: Variant, final: Expr) -> None:
        leaves = [leaf for leaf in definition.leaves if leaf.symbol in trees.symbols(final)]
        self._inputs = [
            (leaf.symbol, Input(leaf.name, frozenset({ELEMENT})))
            for leaf in leaves
            if leaf.symbol is not None
        ]
        tensors = [leaf.name for leaf in leaves if leaf.kind in TENSORS]
        self._sample: Sample | None = None
        program = self._lowered(final)
        if tensors and program is not None:
            points = sample.of(definition, tensors)
            self._sample = sampled(program, points, frozenset(tensors))

    def __call__(self, expr: Expr) -> tuple[int | None, Error | None]:
        program = self._lowered(expr)
        if program is None:
            return None, None
        if self._sample is None:
            return program.operations, None
        return program.operations, error(program, self._sample)

    def _lowered(self, expr: Expr) -> Program | None:
        try:
            return lower(self._inputs, [Result("y", _with_run_time_powers(expr))])
        except (KeyError, FormulaError, TypeError):
            return None


def _with_run_time_powers(expr: Expr) -> Expr:
    """Of all of them, those within others too."""
    return expr.replace(
        lambda node: isinstance(node, sympy.Pow) and not node.exp.is_number,
        lambda node: heads.power(node.base, node.exp),
    )
