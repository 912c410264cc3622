"""`maths.py`: the programs of a plan as PyTorch functions."""

from __future__ import annotations

from autofn.backends import pytorch
from autofn.emit.environment import rendered
from autofn.emit.identifiers import Names
from autofn.emit.leaves import condition as variant_test
from autofn.emit.words import condition, formula_lines, title
from autofn.model import (
    Kind,
)
from autofn.passes import direction_name
from autofn.plan import Plan, VariantPlan
from autofn.program import Program

_DOCS = {
    "forward": "The formula.",
    "vjp": "The gradient of each input, where `needs` asks for it.",
    "double_vjp": "The gradient of sum(d_x * (gradient of x)), for double backward.",
    "jvp": "The tangent of each output.",
    "vjp_jvp": "The tangent of each gradient.",
}


def maths_text(made: Plan, names: Names, header: str) -> str:
    definition = made.definition
    functions: list[str] = []
    for kind in _DOCS:
        made_of_kind = [
            text for text in (_maths_function(made, names, v, kind) for v in made.variants) if text
        ]
        functions += [function.text for function in made_of_kind]
        if len(made.variants) > 1 and made_of_kind:
            functions.append(_dispatcher(made, names, kind))
    body = "\n\n\n".join(functions)
    helpers = pytorch.helpers(body)
    everything = "\n".join([body, *helpers])
    lines: list[str] = []
    if "math." in everything:
        lines += ["import math", ""]
    torch_lines = []
    if "torch." in everything:
        torch_lines.append("import torch")
    if "F." in everything:
        torch_lines.append("import torch.nn.functional as F")
    lines += torch_lines
    runtime = list(pytorch.imports(everything))
    if runtime:
        lines += [""] * bool(torch_lines) + [f"from ._tensors import {', '.join(runtime)}"]
    return rendered(
        "maths.py.j2",
        header=header,
        title=title(definition),
        formulas=formula_lines(made),
        imports=lines,
        helpers=helpers,
        functions=functions,
    )


def _program(variant: VariantPlan, kind: str) -> Program | None:
    program: Program | None = getattr(variant, kind)
    return program


def _parameters(made: Plan, names: Names, kind: str) -> list[str]:
    """Parameters of a maths function, values apart."""
    primals = [leaf.name for leaf in made.definition.differentiable]
    inputs = [*made.grads, *made.saved]
    tensors = {
        "forward": primals,
        "vjp": inputs,
        "double_vjp": [*(direction_name(name) for name in primals), *inputs],
        "jvp": [*(direction_name(name) for name in primals), *primals],
        "vjp_jvp": [*(direction_name(name) for name in inputs), *inputs],
    }[kind]
    needs = ["needs"] if kind in ("vjp", "double_vjp", "vjp_jvp") else []
    return needs + [names.of[name] for name in tensors]


def _results(made: Plan, kind: str) -> list[str]:
    if kind in ("forward", "jvp"):
        return list(made.outputs)
    if kind == "double_vjp":
        return [*made.grads, *made.saved]
    return [leaf.name for leaf in made.definition.differentiable]


def _maths_function(
    made: Plan, names: Names, variant: VariantPlan, kind: str
) -> pytorch.Function | None:
    program = _program(variant, kind)
    if program is None:
        return None
    definition = made.definition
    values = names.values(definition)
    if len(made.variants) > 1:
        values = [names.of[leaf.name] for leaf in definition.numbers]
    reference = made.grads[0]
    if kind in ("forward", "jvp"):
        reference = next(leaf.name for leaf in definition.leaves if leaf.kind is Kind.TENSOR)
    doc = _DOCS[kind]
    if variant.key:
        doc = f"{doc[:-1]}, where {condition(variant.key, definition)}."
    return pytorch.function(
        f"{kind}{_python_suffix(variant)}",
        doc,
        program,
        names.of,
        [*_parameters(made, names, kind), *values],
        results=_results(made, kind),
        prefix={"vjp": "grad_", "vjp_jvp": "d_grad_", "double_vjp": "grad_", "jvp": "d_"}.get(
            kind, ""
        ),
        reference=reference,
        directions=_directions(made, variant, kind),
        needs=kind in ("vjp", "double_vjp", "vjp_jvp"),
    )


def _directions(made: Plan, variant: VariantPlan, kind: str) -> list[str]:
    """The directions of a linear program that may be given or not."""
    if kind == "vjp_jvp":
        return [direction_name(name) for name in (*made.grads, *made.saved)]
    if kind in ("double_vjp", "jvp"):
        return [direction_name(symbol.name) for symbol in variant.derivation.variables]
    return []


def _python_suffix(variant: VariantPlan) -> str:
    return variant.suffix


def _dispatcher(made: Plan, names: Names, kind: str) -> str:
    """The function that picks the variant, with the signature that all variants share."""
    definition = made.definition
    tensors = _parameters(made, names, kind)
    parameters = [*tensors, *names.values(definition)]
    call = ", ".join([*tensors, *(names.of[leaf.name] for leaf in definition.numbers)])
    lines = [f"def {kind}({', '.join(parameters)}):", f'    """{_DOCS[kind]}"""']
    for variant in made.variants:
        target = f"return {kind}{_python_suffix(variant)}({call})"
        if variant is made.variants[-1]:
            lines.append(f"    {target}")
        else:
            lines += [
                f"    if {variant_test(variant.key, definition, names)}:",
                f"        {target}",
            ]
    return "\n".join(lines)
