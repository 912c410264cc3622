"""From a Plan to the text of a package: contexts here, structure in `templates/`."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import jinja2
import sympy
from sympy import Expr, Symbol

from autofn import __version__, resources, trees
from autofn.backends import cpp, cuda, pytorch
from autofn.backends.fold import fold
from autofn.model import (
    DIFFERENTIABLE,
    REQUIRED,
    TENSORS,
    Definition,
    Kind,
    Leaf,
    Parameter,
)
from autofn.names import Namer, attribute_name, camel_case, cpp_name, python_name
from autofn.package import FORMAT, MANIFEST, MARKER, Package
from autofn.plan import Kernel, Plan, VariantPlan, direction_name, kernels
from autofn.program import Program

_OP_GLOBALS = frozenset({"torch", "Tensor", "Function", "maths", "forward_leaf", "backward_leaf",
                         "NamedTuple", "Literal", "annotations"})  # fmt: skip


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.templates()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _rendered(template: str, **context: Any) -> str:
    text = _environment().get_template(template).render(**context)
    return fold(text) if template.endswith(".py.j2") else text


def emit(made: Plan) -> Package:
    """The package of a plan: the same bytes on every machine."""
    definition = made.definition
    digest = fingerprint(definition)
    header = f"{MARKER} from {definition.source} (format {FORMAT}, sha256:{digest}). DO NOT EDIT."
    names = _Names(made)
    scalar = kernels(made)
    files = {
        "__init__.py": _init(definition, names, header),
        "_runtime.py": _rendered(
            "_runtime.py.j2", header=f"{MARKER} (format {FORMAT}). DO NOT EDIT."
        ),
        "maths.py": _maths(made, names, header),
        "op.py": _op(made, names, header),
        "maths.h": _header(made, scalar, header),
        **cuda.files(definition.name, tuple(kernel for kernel, _ in scalar), header),
    }
    files[MANIFEST] = _manifest(made, digest, scalar, [*files, MANIFEST])
    return Package(definition.name, definition.source, tuple(sorted(files.items())))


def fingerprint(definition: Definition) -> str:
    """sha256 over signature, options, docstring and the srepr of what the formula returns."""
    content = [
        definition.name,
        repr(definition.parameters),
        repr([(name, sympy.srepr(interval)) for name, interval in definition.options.domain]),
        repr((definition.options.reduction, definition.options.amp, definition.options.save)),
        definition.doc,
        repr((definition.output_names, definition.named_outputs)),
    ]
    for variant in definition.variants:
        content.append(repr(variant.key))
        content += [sympy.srepr(output) for output in variant.outputs]
        content += [sympy.srepr(entry) for entry in variant.gradient or ()]
    return hashlib.sha256("\0".join(content).encode()).hexdigest()


class _Names:
    """The Python identifiers inside a package: of every leaf, output, cotangent and direction."""

    def __init__(self, made: Plan):
        definition = made.definition
        namer = Namer()
        self.arguments = {p.name: namer(python_name(p.name)) for p in definition.parameters}
        self.of: dict[str, str] = {}
        for leaf in definition.leaves:
            self.of[leaf.name] = (
                self.arguments[leaf.name] if leaf.name in self.arguments else namer(leaf.name)
            )
        for name in (*made.outputs, *made.grads):
            # A cotangent named `grad` is no conflict: maths.py's own names are in `python_name`.
            self.of[name] = namer(name if name in made.grads else python_name(name))
        for name in list(self.of):
            self.of[direction_name(name)] = namer(f"d_{self.of[name]}")
        self.given = {
            leaf.name: namer(f"{self.of[leaf.name]}_given")
            for leaf in definition.leaves
            if leaf.kind is Kind.OPTIONAL
        }
        self.camel = camel_case(definition.name)
        plain = python_name(definition.name) if definition.name in _OP_GLOBALS else definition.name
        self.function = plain

    def values(self, definition: Definition) -> list[str]:
        """Names of `values`: numbers and choices, and whether an optional tensor is given."""
        return [self.value(leaf) for leaf in definition.leaves if leaf.kind not in _REQUIRED]

    def value(self, leaf: Leaf) -> str:
        return self.given[leaf.name] if leaf.kind is Kind.OPTIONAL else self.of[leaf.name]


_REQUIRED = DIFFERENTIABLE - {Kind.OPTIONAL}


# --- what the formula is, in words ------------------------------------------------------------


def _title(definition: Definition) -> str:
    """The docstring's first line, or the formula itself where there is none."""
    line = definition.doc.splitlines()[0].strip() if definition.doc else ""
    return _safe(line) or f"{definition.name}, generated from a formula."


def _safe(text: str) -> str:
    """Users' words inside a docstring or comment: nothing in them may end it."""
    return text.replace("\\", "\\\\").replace('"""', "'''").replace("*/", "* /").rstrip()


def _condition(key: Sequence[tuple[str, Any]], definition: Definition) -> str:
    parts = []
    for name, value in key:
        if definition.leaf(name).kind is Kind.OPTIONAL:
            parts.append(f"{name} given" if value else f"{name} is None")
        else:
            parts.append(f"{definition.leaf(name).path} = {value!r}")
    return ", ".join(parts)


LONGEST = 200
"""Operations beyond which a formula is no help to read."""


def formula_lines(made: Plan) -> list[str]:
    """The formula and its gradient, as they are read."""
    definition = made.definition
    signature = ", ".join(parameter.name for parameter in definition.parameters)
    head = f"{definition.name}({signature})"
    many = len(definition.output_names) > 1
    lines: list[str] = []
    for variant, source in zip(made.variants, definition.variants, strict=True):
        if variant.key:
            lines.append(f"where {_condition(variant.key, definition)}:")
        indent = "    " if variant.key else ""
        for name, expr in zip(definition.output_names, source.outputs, strict=True):
            label = f"{head}.{name}" if many else head
            lines += _wrapped(f"{indent}{label} = {readable(expr)}")
        for symbol, entry in zip(variant.derivation.variables, variant.derivation.vjp, strict=True):
            shown = "none" if entry is None else readable(entry)
            lines += _wrapped(f"{indent}grad {symbol.name} = {shown}")
    return [_safe(line) for line in lines]


def readable(expr: Expr) -> str:
    operations = trees.size(expr)
    if operations > LONGEST:
        return f"an expression of {operations} operations"
    renamed = {
        symbol: Symbol(symbol.name.lstrip("_"))
        for symbol in expr.free_symbols
        if symbol.name.startswith("_")
    }
    # A Piecewise evaluated anew would be simplified: only names change here.
    return str(expr.xreplace(renamed))


def _wrapped(line: str, width: int = 92) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    lines: list[str] = []
    while len(line) > width:
        cut = line.rfind(" ", len(indent) + 1, width)
        if cut <= len(indent):
            break
        lines.append(line[:cut])
        line = indent + line[cut + 1 :]
    return [*lines, line]


# --- maths.py -----------------------------------------------------------------------------------


_DOCS = {
    "forward": "The formula.",
    "vjp": "The gradient of each input, where `needs` asks for it.",
    "double_vjp": "The gradient of sum(d_x * (gradient of x)), for double backward.",
    "jvp": "The tangent of each output.",
    "vjp_jvp": "The tangent of each gradient.",
}


def _maths(made: Plan, names: _Names, header: str) -> str:
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
        lines += [""] * bool(torch_lines) + [f"from ._runtime import {', '.join(runtime)}"]
    return _rendered(
        "maths.py.j2",
        header=header,
        title=_title(definition),
        formulas=formula_lines(made),
        imports=lines,
        helpers=helpers,
        functions=functions,
    )


def _program(variant: VariantPlan, kind: str) -> Program | None:
    program: Program | None = getattr(variant, kind)
    return program


def _parameters(made: Plan, names: _Names, kind: str) -> list[str]:
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
    made: Plan, names: _Names, variant: VariantPlan, kind: str
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
        doc = f"{doc[:-1]}, where {_condition(variant.key, definition)}."
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


def _dispatcher(made: Plan, names: _Names, kind: str) -> str:
    """The function that picks the variant, with the signature that all variants share."""
    definition = made.definition
    tensors = _parameters(made, names, kind)
    parameters = [*tensors, *names.values(definition)]
    call = ", ".join([*tensors, *(names.of[leaf.name] for leaf in definition.numbers)])
    lines = [f"def {kind}({', '.join(parameters)}):", f'    """{_DOCS[kind]}"""']
    for variant in made.variants:
        tests = []
        for name, value in variant.key:
            test = names.value(definition.leaf(name))
            if isinstance(value, bool):
                tests.append(test if value else f"not {test}")
            else:
                tests.append(f"{test} == {value!r}")
        target = f"return {kind}{_python_suffix(variant)}({call})"
        if variant is made.variants[-1]:
            lines.append(f"    {target}")
        else:
            lines += [f"    if {' and '.join(tests)}:", f"        {target}"]
    return "\n".join(lines)


# --- op.py --------------------------------------------------------------------------------------


def _op(made: Plan, names: _Names, header: str) -> str:
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
                   if leaf.kind not in _REQUIRED]  # fmt: skip
    aligned_vmap = ["True" if name == "aligned" else name for name in forward_names]
    active = _active(made)
    context: dict[str, Any] = {
        "header": header,
        "title": _title(definition),
        "function": definition.name,
        "function_name": names.function,
        "camel": names.camel,
        "typing": ", ".join(_typing(definition)),
        "layout": ", ".join(dims.values()) if has_layout else "",
        "settings_classes": [
            _settings_class(p) for p in definition.parameters if p.kind is Kind.SETTINGS
        ],
        "outputs": list(definition.output_names),
        "values": names.values(definition),
        "tensor_names": _tuple([repr(leaf.name) for leaf in differentiable]),
        "value_names": _tuple(
            [repr(leaf.path) for leaf in definition.leaves if leaf.kind not in _REQUIRED]
        ),
        "tensor_slots": ", ".join(f"tensors[{i}]" for i in slots),
        "a_tensor": f"tensors[{first}]",
        "public_args": ", ".join(p.name for p in definition.parameters),
        "forward_parameters": ", ".join([*arguments, *(["aligned=False"] if has_layout else [])]),
        "forward_names": forward_names,
        "value_exprs": _tuple(value_exprs)[1:-1],
        "differentiable": tensors,
        "tuple": lambda items: _tuple(list(items))[1:-1],
        "unpack": _unpacked,
        "saved_exprs": [_saved_expr(name, made, names, places) for name in made.saved],
        "prunes": any("needs" in _saved_expr(n, made, names, places) for n in made.saved),
        "needs_exprs": _tuple(
            [
                f"ctx.needs_input_grad[{place}]" if leaf.name in active else "False"
                for place, leaf in zip(places, differentiable, strict=True)
            ]
        )[1:-1],
        "places": _tuple([str(place) for place in places]),
        "has_jvp": all(variant.jvp is not None for variant in made.variants),
        "tangent_slots": _tuple([f"tangents[{place}]" for place in places])[1:-1],
        "dim_slots": _tuple([f"in_dims[{place}]" for place in places])[1:-1],
        "vmap_args": ", ".join(aligned_vmap),
        "cotangents": len(grads),
        "grads": grads,
        "saved": saved,
        "saved_layout": _tuple(saved_dims),
        "backward_layout": _tuple(["..."] * len(grads) + saved_dims),
        "backward_names": backward_names,
        "traced_names": arguments,
        "choice_checks": _choice_checks(definition, names),
        "own": definition.own_gradient,
        "amp": definition.options.amp == "float32",
        "reduction": definition.options.reduction,
        "signature": _signature(definition),
        "returns": f"{names.camel}Output" if len(definition.output_names) > 1 else "Tensor",
        "doc": _function_doc(made),
        "call_args": ", ".join(p.name for p in definition.parameters),
        **_module_context(made, names),
    }
    return _rendered("op.py.j2", **context)


def _tuple(items: list[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _unpacked(items: Sequence[str]) -> str:
    """The left side of an assignment from a tuple; in brackets, to be folded, where it is long."""
    text = _tuple(list(items))
    return text if len(text) > 80 else text[1:-1]


def _layout(leaf: Leaf) -> str:
    if leaf.kind is Kind.LEARNABLE:
        return "None"
    return str(leaf.parameter.dim) if leaf.kind is Kind.PER_CHANNEL else "..."


def _value_expr(leaf: Leaf, names: _Names) -> str:
    if leaf.kind is Kind.OPTIONAL:
        return f"{names.of[leaf.name]} is not None"
    head, _, field = leaf.path.partition(".")
    return f"{names.arguments[head]}.{field}" if field else names.arguments[head]


def _active(made: Plan) -> set[str]:
    """Leaves that take a gradient in some variant: a user's own may give none."""
    return {
        symbol.name
        for variant in made.variants
        for symbol, entry in zip(variant.derivation.variables, variant.derivation.vjp, strict=True)
        if entry is not None
    }


def _saved_expr(name: str, made: Plan, names: _Names, places: list[int]) -> str:
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
    if any(leaf.kind is Kind.CHOICE and _annotation_of_choice(leaf.parameter) != "bool"
           for leaf in definition.leaves) or definition.options.reduction:  # fmt: skip
        found.append("Literal")
    if len(definition.output_names) > 1 or any(
        p.kind is Kind.SETTINGS for p in definition.parameters
    ):
        found.append("NamedTuple")
    return found


def _annotation_of_choice(parameter: Parameter) -> str:
    if set(map(repr, parameter.values)) == {"False", "True"}:
        return "bool"
    return f"Literal[{', '.join(map(repr, parameter.values))}]"


def _annotation(parameter: Parameter) -> str:
    if parameter.kind is Kind.CHOICE:
        return _annotation_of_choice(parameter)
    return {
        Kind.TENSOR: "Tensor",
        Kind.OPTIONAL: "Tensor | None",
        Kind.LEARNABLE: "Tensor",
        Kind.PER_CHANNEL: "Tensor",
        Kind.FLOAT: "float",
        Kind.INT: "int",
        Kind.SETTINGS: parameter.type_name,
    }[parameter.kind]


def _default(parameter: Parameter) -> str | None:
    """The default in the functional form, as text."""
    if parameter.kind in (Kind.LEARNABLE, Kind.PER_CHANNEL) or parameter.default is REQUIRED:
        return None
    if parameter.kind is Kind.SETTINGS:
        return f"{parameter.type_name}()"
    return repr(parameter.default)


def _declared(parameters: Sequence[Parameter], tail: Sequence[str] = ()) -> list[str]:
    """The parts of a signature; a default before a required argument is dropped, as it must be."""
    plain = [p for p in parameters if not p.keyword_only]
    keyword = [p for p in parameters if p.keyword_only]
    required = max((i for i, p in enumerate(plain) if _default(p) is None), default=-1)
    parts = []
    for i, p in enumerate(plain):
        default = _default(p) if i > required else None
        parts.append(f"{p.name}: {_annotation(p)}" + (f" = {default}" if default else ""))
    if keyword or tail:
        parts.append("*")
    for p in keyword:
        default = _default(p)
        parts.append(f"{p.name}: {_annotation(p)}" + (f" = {default}" if default else ""))
    return [*parts, *tail]


_REDUCTION = 'reduction: Literal["none", "mean", "sum"] = "none"'


def _signature(definition: Definition) -> str:
    tail = [_REDUCTION] if definition.options.reduction else []
    return ", ".join(_declared(definition.parameters, tail))


def _settings_class(parameter: Parameter) -> dict[str, Any]:
    fields = []
    for field in parameter.fields:
        default = "" if field.default is REQUIRED else f" = {field.default!r}"
        fields.append(f"{field.name}: {_annotation(field)}{default}")
    return {"name": parameter.type_name, "parameter": parameter.name, "fields": fields}


def _choice_checks(definition: Definition, names: _Names) -> list[dict[str, str]]:
    checks = []
    for leaf in definition.choices:
        values = leaf.parameter.values
        checks.append(
            {
                "value": _value_expr(leaf, names),
                "label": leaf.path,
                "allowed": _tuple([repr(v) for v in values]),
                "shown": ", ".join(repr(v) for v in values).replace("{", "{{").replace("}", "}}"),
            }
        )
    return checks


def _function_doc(made: Plan) -> str:
    definition = made.definition
    lines = [_safe(line) for line in definition.doc.splitlines()] or [_title(definition)]
    lines += ["", *(f"    {line}" for line in formula_lines(made)), ""]
    for parameter in definition.parameters:
        lines.append(f"{parameter.name}: {_describe(parameter)}")
    if definition.options.reduction:
        lines.append('reduction: "none", "mean" or "sum" over all elements.')
    if definition.options.domain:
        inside = ", ".join(f"{n} in {interval}" for n, interval in definition.options.domain)
        lines.append(f"Defined for {inside}; outside it results are unspecified.")
    lines.append("The result has the common broadcast shape and the promoted dtype of the tensors.")
    return "\n".join(_indented(lines, "    "))


def _describe(parameter: Parameter) -> str:
    if parameter.kind is Kind.PER_CHANNEL:
        return f"1-D tensor along dimension {parameter.dim} of the result, or of one element."
    if parameter.kind is Kind.CHOICE:
        return f"one of {', '.join(map(repr, parameter.values))}."
    return {
        Kind.TENSOR: "tensor of any shape; tensors broadcast.",
        Kind.OPTIONAL: "tensor of any shape, or None.",
        Kind.LEARNABLE: "tensor of one element.",
        Kind.FLOAT: "number, without a gradient.",
        Kind.INT: "integer, without a gradient.",
        Kind.SETTINGS: f"a {parameter.type_name}, or any object with its fields.",
    }[parameter.kind]


def _indented(lines: list[str], indent: str) -> list[str]:
    return [lines[0], *(f"{indent}{line}".rstrip() for line in lines[1:]), indent]


def _module_context(made: Plan, names: _Names) -> dict[str, Any]:
    definition = made.definition
    parameters = definition.parameters
    taken = {p.name for p in parameters}
    self_name = "self" if "self" not in taken else "self_"
    attributes = Namer({self_name})
    attribute = {p.name: attributes(attribute_name(p.name)) for p in parameters}
    channels = [p for p in parameters if p.kind is Kind.PER_CHANNEL]
    learned = [p for p in parameters if p.kind in (Kind.LEARNABLE, Kind.PER_CHANNEL)]
    settable = [p for p in parameters if not p.differentiable]
    started = [p for p in learned if p.default is REQUIRED]
    constructor = [self_name]
    shown = []
    values = []
    if channels:
        constructor.append("num_channels: int")
        values.append({"attribute": "num_channels", "name": "num_channels"})
        shown.append("num_channels={" + self_name + ".num_channels}")
    constructor += [f"{p.name}: float" for p in started]
    constructor += _declared(settable)
    tail = ["device=None", "dtype=None"]
    if definition.options.reduction:
        tail = [_REDUCTION, *tail]
    constructor += tail
    for p in settable:
        values.append({"attribute": attribute[p.name], "name": p.name})
        shown.append(f"{p.name}={{{self_name}.{attribute[p.name]}!r}}")
    if definition.options.reduction:
        values.append({"attribute": "reduction", "name": "reduction"})
        shown.append(f"reduction={{{self_name}.reduction!r}}")
    call = []
    for p in parameters:
        value = p.name if p.kind in TENSORS else f"{self_name}.{attribute[p.name]}"
        call.append(f"{p.name}={value}" if p.keyword_only else value)
    if definition.options.reduction:
        call.append(f"reduction={self_name}.reduction")
    tensors = [p for p in parameters if p.kind in TENSORS]
    return {
        "me": self_name,
        "constructor": ", ".join(constructor),
        "parameters": [
            {
                "attribute": attribute[p.name],
                "name": p.name,
                "shape": "1" if p.kind is Kind.LEARNABLE else "num_channels",
                "start": None if p.default is REQUIRED else repr(p.default),
            }
            for p in learned
        ],
        "module_values": values,
        "module_signature": ", ".join([self_name, *_declared(tensors)]),
        "module_call": ", ".join(call),
        "extra_repr": 'f"' + ", ".join(shown) + '"' if shown else '""',
        "module_doc": _module_doc(made, learned, settable),
    }


def _module_doc(made: Plan, learned: list[Parameter], settable: list[Parameter]) -> str:
    definition = made.definition
    lines = [_title(definition), "", *(f"    {line}" for line in formula_lines(made))]
    if learned:
        lines.append("")
    for p in learned:
        shape = "(1,)" if p.kind is Kind.LEARNABLE else "(num_channels,)"
        start = f"starts at {p.default!r}" if p.default is not REQUIRED else "its start is required"
        lines.append(f"{p.name}: learnable, of shape {shape}; {start}.")
    lines += ["", f"Generated from {definition.source}."]
    return "\n".join(_indented(lines, "    "))


# --- the other files ----------------------------------------------------------------------------


def _init(definition: Definition, names: _Names, header: str) -> str:
    exported = [definition.name, names.camel, f"{names.camel}Function"]
    alias = "" if names.function == definition.name else f" as {definition.name}"
    imports = [f"{names.function}{alias}", names.camel, f"{names.camel}Function"]
    if len(definition.output_names) > 1:
        exported.append(f"{names.camel}Output")
        imports.append(f"{names.camel}Output")
    for p in definition.parameters:
        if p.kind is Kind.SETTINGS:
            exported.append(p.type_name)
            imports.append(p.type_name)
    return _rendered(
        "__init__.py.j2",
        header=header,
        title=_title(definition),
        imports=[_imported(sorted(imports))],
        exports=", ".join(f'"{name}"' for name in sorted(exported)),
    )


def _imported(names: list[str]) -> str:
    line = f"from .op import {', '.join(names)}"
    return line if len(line) <= 100 else f"from .op import ({', '.join(names)})"


def _header(made: Plan, scalar: tuple[tuple[Kernel, Program], ...], header: str) -> str:
    definition = made.definition
    return _rendered(
        "maths.h.j2",
        header=header,
        title=_title(definition).replace("\\", "/"),
        formulas=[line.replace("\\", "/") for line in formula_lines(made)],
        cname=cpp_name(definition.name),
        helpers=cpp.helpers(program for _, program in scalar),
        functions=[cpp.function(kernel, program) for kernel, program in scalar],
    )


def _manifest(
    made: Plan,
    digest: str,
    scalar: tuple[tuple[Kernel, Program], ...],
    files: list[str],
) -> str:
    definition = made.definition
    content = {
        "format": FORMAT,
        "name": definition.name,
        "source": definition.source,
        "sha256": digest,
        "autofn": __version__,
        "sympy": sympy.__version__,
        "files": sorted(files),
        "differentiable": [leaf.name for leaf in definition.differentiable],
        "outputs": list(made.outputs),
        "values": [leaf.name for leaf in definition.leaves if leaf.kind not in _REQUIRED],
        "saved": list(made.saved),
        "kernels": [
            {
                "function": kernel.function,
                "pass": kernel.pass_name,
                "key": dict(kernel.key),
                "inputs": [[operand.name, operand.role] for operand in kernel.inputs],
                "outputs": [[operand.name, operand.role] for operand in kernel.outputs],
            }
            for kernel, _ in scalar
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
