"""`op.py`: the Functions, the function and the module around the maths."""

from __future__ import annotations

from typing import Any

from autofn.emit.declarations import (
    annotation_of_choice,
    literal,
    settings_class,
    signature,
    tuple_text,
    unpacked,
)
from autofn.emit.environment import rendered
from autofn.emit.identifiers import ALWAYS_GIVEN, Names
from autofn.emit.leaves import (
    direct_backward,
    direct_call,
    direct_gradients,
    direct_test,
    leaves_text,
)
from autofn.emit.module import module_context
from autofn.emit.words import function_doc, title
from autofn.model import (
    TENSORS,
    Definition,
    Kind,
    Leaf,
)
from autofn.plan import Kernel, Plan, is_alike


def op_text(made: Plan, names: Names, kernels: tuple[Kernel, ...], header: str) -> str:
    definition = made.definition
    differentiable = definition.differentiable
    tensors = [names.of[leaf.name] for leaf in differentiable]
    slots = [i for i, leaf in enumerate(differentiable) if leaf.kind in TENSORS]
    first = next(i for i, leaf in enumerate(differentiable) if leaf.kind is Kind.TENSOR)
    dims = {leaf.name: _layout(leaf) for leaf in differentiable}
    has_layout = any(dim != "..." for dim in dims.values())
    arguments = [names.arguments[p.name] for p in definition.parameters]
    places = [
        i
        for i, p in enumerate(definition.parameters)
        for leaf in differentiable
        if leaf.name == p.name
    ]
    forward_names = [*arguments, "aligned"] if has_layout else arguments
    grads = [names.of[name] for name in made.grads]
    saved = [names.of[name] for name in made.saved]
    saved_dims = [dims.get(name, "...") for name in made.saved]
    extra = ["aligned"] if has_layout else []
    backward_names = ["needs", *grads, *saved, "values", "likes", *extra]
    value_exprs = [_value_expr(leaf, names) for leaf in definition.leaves
                   if leaf.kind not in ALWAYS_GIVEN]  # fmt: skip
    aligned_vmap = ["True" if name == "aligned" else name for name in forward_names]
    active = _active(made)
    wide = {d.pass_name for v in made.variants for d in v.decisions if d.fails_as_derived}
    context: dict[str, Any] = {
        "header": header,
        "title": title(definition),
        "function": definition.name,
        "function_name": names.function,
        "camel": names.camel,
        "typing": ", ".join(_typing(definition)),
        "layout": ", ".join(dims.values()) if has_layout else "",
        "settings_classes": [
            settings_class(p) for p in definition.parameters if p.kind is Kind.SETTINGS
        ],
        "outputs": list(definition.output_names),
        "values": names.values(definition),
        "leaves": leaves_text(made, names, kernels),
        "tensor_names": tuple_text([literal(leaf.name) for leaf in differentiable]),
        "value_names": tuple_text(
            [literal(leaf.path) for leaf in definition.leaves if leaf.kind not in ALWAYS_GIVEN]
        ),
        "tensor_slots": ", ".join(f"tensors[{i}]" for i in slots),
        "a_tensor": f"tensors[{first}]",
        "wide": bool(wide - {"double_backward"}),
        "wide_second": bool(wide),
        "public_args": ", ".join(p.name for p in definition.parameters),
        "forward_parameters": ", ".join([*arguments, *(["aligned=False"] if has_layout else [])]),
        "forward_names": forward_names,
        "value_exprs": tuple_text(value_exprs)[1:-1],
        "differentiable": tensors,
        "tuple": lambda items: tuple_text(list(items))[1:-1],
        "unpack": unpacked,
        "saved_exprs": [_saved_expr(name, made, names, places) for name in made.saved],
        "prunes": any("needs" in _saved_expr(n, made, names, places) for n in made.saved),
        "needs_exprs": tuple_text(
            [
                f"ctx.needs_input_grad[{place}]" if leaf.name in active else "False"
                for place, leaf in zip(places, differentiable, strict=True)
            ]
        )[1:-1],
        "places": tuple_text([str(place) for place in places]),
        "has_jvp": all(variant.jvp is not None for variant in made.variants),
        "tangent_slots": tuple_text([f"tangents[{place}]" for place in places])[1:-1],
        "dim_slots": tuple_text([f"in_dims[{place}]" for place in places])[1:-1],
        "vmap_args": ", ".join(aligned_vmap),
        "cotangents": len(grads),
        "grads": grads,
        "saved": saved,
        "saved_layout": tuple_text(saved_dims),
        "backward_layout": tuple_text(["..."] * len(grads) + saved_dims),
        "backward_names": backward_names,
        "traced_names": arguments,
        "checks": _checks(definition, names),
        "alike": is_alike(definition) and len(grads) == 1 and bool(active),
        "direct": direct_call(made, names, kernels),
        "direct_backward": direct_backward(made, names, kernels),
        "direct_gradients": direct_gradients(made, kernels),
        "direct_test": direct_test(definition, names),
        "own": definition.own_gradient,
        "amp": definition.options.amp == "float32",
        "reduction": definition.options.reduction,
        "signature": signature(definition),
        "returns": f"{names.camel}Output" if len(definition.output_names) > 1 else "Tensor",
        "doc": function_doc(made),
        "call_args": ", ".join(p.name for p in definition.parameters),
        **module_context(made, names),
    }
    return rendered("op.py.j2", **context)


def _layout(leaf: Leaf) -> str:
    if leaf.kind is Kind.LEARNABLE:
        return "None"
    return str(leaf.parameter.dim) if leaf.kind is Kind.PER_CHANNEL else "..."


def _value_expr(leaf: Leaf, names: Names) -> str:
    if leaf.kind is Kind.OPTIONAL:
        return f"{names.of[leaf.name]} is not None"
    return names.argument(leaf)


def _active(made: Plan) -> set[str]:
    """Leaves that take a gradient in some variant: a user's own may give none."""
    return {
        symbol.name
        for variant in made.variants
        for symbol, entry in zip(variant.derivation.variables, variant.derivation.vjp, strict=True)
        if entry is not None
    }


def _saved_expr(name: str, made: Plan, names: Names, places: list[int]) -> str:
    """What is saved: the value, unless no gradient that is wanted needs it."""
    outputs = made.outputs
    many = len(outputs) > 1
    value = names.of[name]
    if name in outputs:
        value = f"output[{outputs.index(name)}]" if many else "output"
    wanting = [
        place for place, (_, needed) in zip(places, made.saved_for, strict=True) if name in needed
    ]
    if len(wanting) == len([1 for _, needed in made.saved_for]):
        return value
    tests = " or ".join(f"needs[{place}]" for place in wanting)
    return f"{value} if {tests} else None"


def _typing(definition: Definition) -> list[str]:
    found = []
    if any(leaf.kind is Kind.CHOICE and annotation_of_choice(leaf.parameter) != "bool"
           for leaf in definition.leaves) or definition.options.reduction:  # fmt: skip
        found.append("Literal")
    if len(definition.output_names) > 1 or any(
        p.kind is Kind.SETTINGS for p in definition.parameters
    ):
        found.append("NamedTuple")
    return found


def _checks(definition: Definition, names: Names) -> list[dict[str, str]]:
    """What choices and whole numbers may not be, and the error's text, which the value follows."""
    checks = []
    for leaf in definition.choices:
        values = leaf.parameter.values
        value = _value_expr(leaf, names)
        what = f"is one of {', '.join(map(repr, values))}"
        allowed = tuple_text([literal(v) for v in values])
        checks.append((leaf, value, f"{value} not in {allowed}", what))
    for leaf in definition.numbers:
        if leaf.kind is Kind.INT:
            value = _value_expr(leaf, names)
            fraction = f"isinstance({value}, float) and not {value}.is_integer()"
            checks.append((leaf, value, fraction, "is an int"))
    return [
        {
            "value": value,
            "fails": fails,
            "message": literal(f"{definition.name}: {leaf.path} {what}, not "),
        }
        for leaf, value, fails, what in checks
    ]
