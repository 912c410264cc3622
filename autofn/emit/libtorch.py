"""The C++ target: a header with a `torch::autograd::Function`, the kernels as one source file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from autofn.backends.cpp import wrapped
from autofn.backends.cpu import DOUBLE_DOUBLE, takes
from autofn.emit.environment import rendered
from autofn.emit.identifiers import Names
from autofn.emit.words import condition, formula_lines, title
from autofn.errors import FormulaError
from autofn.model import REQUIRED, Choice, Definition, Kind, Leaf, Parameter
from autofn.names import Namer, cpp_name
from autofn.passes import direction_name
from autofn.plan import Kernel, Plan
from autofn.resources import templates

SHARED = "autofn_autograd.hpp"

FLAGS = (
    "Flags: -O3 -fopenmp-simd -fno-math-errno -fno-trapping-math -ffp-contract=off,",
    "and -march=native, or the instruction set that it is to run on.",
)

_UNIT = ("ops.cpp", "kernels.cpp", DOUBLE_DOUBLE, "cpu.cpp", "binding.cpp")
"""What a program's one translation unit is made of."""

# What the header itself calls things, and what is in its namespace.
_TAKEN = ("autograd", "formula", "variant", "forward", "backward", "ctx", "grads", "found", "table",
          "outputs", "apply", "Tensor", "AutogradContext", "variable_list", "kTensor",
          "kScalar")  # fmt: skip


def files(
    made: Plan,
    names: Names,
    kernels: tuple[Kernel, ...],
    sources: Mapping[str, str],
    header: str,
) -> dict[str, str]:
    """The files of the C++ target; `sources` are the package's other files, path to text.

    Their names end in .hpp and .cc: the package's hash is over its .h and .cpp files.
    """
    definition = made.definition
    stem = cpp_name(definition.name)
    digest = sources_digest(sources)
    namespace = f"{_ascii(definition.name)}_{digest[:10]}"
    shared = (templates() / "cpp" / SHARED).read_text(encoding="utf-8")
    return {
        SHARED: f"// {header}\n{shared}",
        f"{stem}.hpp": rendered(
            "cpp/formula.hpp.j2",
            header=header,
            namespace=_string(namespace),
            ops_file=f"{stem}_ops.cc",
            guard=f"AUTOFN_{stem.upper()}_{digest[:10].upper()}",
            **_context(made, names, kernels),
        ),
        f"{stem}_ops.cc": rendered(
            "cpp/ops.cc.j2",
            header=header,
            function=definition.name.replace("\\", "/"),
            flags=FLAGS,
            namespace=_string(namespace),
            sources=_string(digest),
            renamed=f"autofn_{stem}_ops",
            files=[name for name in _UNIT if name in sources],
        ),
    }


def sources_digest(files: Mapping[str, str]) -> str:
    """The hash of the package's C++ and CUDA files that `_runtime.sources` computes."""
    found = hashlib.sha256()
    for name in sorted(files):
        if name.endswith((".h", ".cpp", ".cu", ".cuh")):
            for part in (name.encode(), files[name].encode()):
                found.update(b"%d:" % len(part) + part)
    return found.hexdigest()


def _ascii(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", lambda found: f"u{ord(found[0]):04x}", name)


def _string(text: str) -> str:
    return json.dumps(text)


def _context(made: Plan, names: Names, kernels: tuple[Kernel, ...]) -> dict[str, Any]:
    definition = made.definition
    namer = Namer(_TAKEN)
    arguments = {p.name: namer(cpp_name(p.name)) for p in definition.parameters}
    values = {leaf.name: _value(leaf, arguments) for leaf in definition.leaves}
    outputs = Namer(_TAKEN)
    camel = cpp_name(names.camel)
    function = Namer(_TAKEN)(cpp_name(definition.name))
    several = len(made.outputs) > 1
    passed = [_passed(p, arguments, definition) for p in definition.parameters]
    start = "const auto outputs =" if several else "return"
    returns = f"{camel}Output" if several else "at::Tensor"
    return {
        "title": title(definition).replace("\\", "/"),
        "formulas": [line.replace("\\", "/") for line in formula_lines(made)],
        "function": function,
        "camel": camel,
        "outputs": [outputs(cpp_name(name)) for name in definition.output_names],
        "settings_classes": [
            {
                "name": cpp_name(p.type_name),
                "fields": [f"{_held(f)} {cpp_name(f.name)}{_initial(f)}" for f in p.fields],
            }
            for p in definition.parameters
            if p.kind is Kind.SETTINGS
        ],
        **_table(made, kernels),
        **_variants(definition, made, values),
        **_forward(definition, arguments, values, several),
        "function_head": wrapped(
            f"inline {returns} {function}(", _declared(definition, arguments, camel), ") {", 0
        ),
        "function_call": wrapped(f"{start} {camel}Function::apply(", passed, ");", 2),
    }


def _forward(
    definition: Definition, arguments: dict[str, str], values: dict[str, str], several: bool
) -> dict[str, str]:
    """The Function's own methods."""
    leaves = definition.differentiable
    chosen = [_variant_argument(leaf, values) for leaf in _choosing(definition)]
    tensors = [
        f"{values[leaf.name]}.value_or(Tensor())"
        if leaf.kind is Kind.OPTIONAL
        else values[leaf.name]
        for leaf in leaves
    ]
    numbers = [f"double({values[leaf.name]})" for leaf in definition.numbers]
    given = [
        "ctx",
        "formula()",
        f"variant({', '.join(chosen)})" if chosen else "0",
        f"{{{', '.join(tensors)}}}",
        f"{{{', '.join(numbers)}}}",
    ]
    order = [leaf.name for leaf in leaves]
    gradients = [
        f"found[{order.index(p.name)}]" if p.differentiable else "Tensor()"
        for p in definition.parameters
    ]
    declared = [f"{_type(p)} {arguments[p.name]}" for p in definition.parameters]
    returned = "variable_list" if several else "Tensor"
    return {
        "forward_head": wrapped(
            f"static {returned} forward(", ["AutogradContext* ctx", *declared], ") {", 2
        ),
        "forward_call": wrapped(
            "return autograd::forward(", given, ");" if several else ")[0];", 4
        ),
        "gradients": wrapped("return {", gradients, "};", 4),
    }


def _table(made: Plan, kernels: tuple[Kernel, ...]) -> dict[str, Any]:
    """The entries of the formula's table."""
    definition = made.definition
    leaves = definition.differentiable
    places = _places(made)
    saved = [_saved(name, made, places) for name in made.saved]
    passes = ("forward", "backward", "double_backward")
    return {
        "table_name": _string(_ascii(definition.name)),
        "inputs": wrapped("{", [_string(_ascii(leaf.name)) for leaf in leaves], "},", 8),
        "layout": wrapped("{", [_layout(leaf) for leaf in leaves], "},", 8),
        "saved": wrapped("{", saved, "},", 8),
        "variants": [
            {
                "comment": condition(variant.key, definition).replace("\\", "/"),
                "ops": [_op(variant.key, each, kernels, definition, places) for each in passes],
            }
            for variant in made.variants
        ],
    }


def _variants(definition: Definition, made: Plan, values: dict[str, str]) -> dict[str, Any]:
    """The function that finds the variant."""
    parameters = [_variant_parameter(leaf, values) for leaf in _choosing(definition)]
    return {
        "tests": [
            {"index": k, "condition": _test(variant.key, values)}
            for k, variant in enumerate(made.variants)
            if variant.key
        ],
        "variant_head": wrapped("static int variant(", parameters, ") {", 2),
        "refusal": _string(_refusal(definition)),
    }


def _choosing(definition: Definition) -> list[Leaf]:
    """The leaves that tell the variant."""
    return [leaf for leaf in definition.leaves if leaf.kind in (Kind.OPTIONAL, Kind.CHOICE)]


def _places(made: Plan) -> dict[str, int]:
    """Where `autofn_autograd.hpp` has a value, by what the plan calls it."""
    leaves = [leaf.name for leaf in made.definition.differentiable]
    order = [*leaves, *made.outputs, *made.grads, *map(direction_name, leaves)]
    return {name: place for place, name in enumerate(order)}


def _op(
    key: tuple[tuple[str, Choice], ...],
    pass_name: str,
    kernels: tuple[Kernel, ...],
    definition: Definition,
    places: dict[str, int],
) -> str:
    kernel = next((k for k in kernels if k.pass_name == pass_name and k.key == key), None)
    if kernel is None:
        return " " * 16 + "{},"
    order = [leaf.name for leaf in definition.numbers]
    alike = "true" if takes(kernel) == "nothing" else "false"
    given = [] if pass_name == "forward" else [places[each.name] for each in kernel.outputs]
    lists = (
        [places[each.name] for each in kernel.tensors],
        [order.index(each.name) for each in kernel.numbers],
        given,
    )
    shown = [f"{{{', '.join(map(str, each))}}}" for each in lists]
    return wrapped("{", [_string(kernel.op), alike, *shown], "},", 16)


def _saved(name: str, made: Plan, places: dict[str, int]) -> str:
    needing = [str(places[leaf]) for leaf, needed in made.saved_for if name in needed]
    return f"{{{places[name]}, {{{', '.join(needing)}}}}}"


def _layout(leaf: Leaf) -> str:
    if leaf.kind is Kind.PER_CHANNEL:
        return str(leaf.parameter.dim)
    return "kScalar" if leaf.kind is Kind.LEARNABLE else "kTensor"


# --- signatures ------------------------------------------------------------------------------


def _choice_type(parameter: Parameter) -> type:
    kinds = {type(value) for value in parameter.values}
    if len(kinds) > 1:
        raise FormulaError(
            f"the choices of {parameter.name!r} have several types, which C++ cannot take",
            remedy="let all be strings, or leave out --target cpp",
        )
    return kinds.pop()


def _type(parameter: Parameter) -> str:
    if parameter.kind is Kind.CHOICE:
        found = {str: "const std::string&", bool: "bool", int: "std::int64_t"}
        return found[_choice_type(parameter)]
    return {
        Kind.TENSOR: "const at::Tensor&",
        Kind.OPTIONAL: "const std::optional<at::Tensor>&",
        Kind.LEARNABLE: "const at::Tensor&",
        Kind.PER_CHANNEL: "const at::Tensor&",
        Kind.FLOAT: "double",
        Kind.INT: "std::int64_t",
        Kind.SETTINGS: f"const {cpp_name(parameter.type_name)}&",
    }[parameter.kind]


def _default(parameter: Parameter) -> str:
    """The default in C++, empty where there is none."""
    kind, value = parameter.kind, parameter.default
    if kind in (Kind.LEARNABLE, Kind.PER_CHANNEL, Kind.TENSOR):
        return ""
    if kind is Kind.SETTINGS:
        return "{}" if all(map(_default, parameter.fields)) else ""
    if value is REQUIRED:
        return ""
    if kind is Kind.OPTIONAL:
        return "std::nullopt"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _string(value) if isinstance(value, str) else repr(value)


def _held(field: Parameter) -> str:
    """The type of a member, which holds what an argument refers to."""
    return _type(field).removeprefix("const ").removesuffix("&")


def _initial(field: Parameter) -> str:
    default = _default(field)
    return f" = {default}" if default else ""


def _declared(definition: Definition, arguments: dict[str, str], camel: str) -> list[str]:
    """The parts of a signature; what comes before a required argument has no default."""
    found: list[str] = []
    open_end = True
    for p in reversed(definition.parameters):
        default = _default(p) if open_end else ""
        open_end = bool(default)
        scope = f"const {camel}Function::" if p.kind is Kind.SETTINGS else ""
        kind = f"{scope}{_type(p).removeprefix('const ')}" if scope else _type(p)
        found.append(f"{kind} {arguments[p.name]}" + (f" = {default}" if default else ""))
    return found[::-1]


def _passed(parameter: Parameter, arguments: dict[str, str], definition: Definition) -> str:
    """An argument on its way to the Function."""
    name = arguments[parameter.name]
    if definition.options.amp != "float32" or not parameter.differentiable:
        return name
    if parameter.kind is Kind.OPTIONAL:
        return f"{name} ? std::optional(autograd::to_float32(*{name})) : std::nullopt"
    return f"autograd::to_float32({name})"


def _value(leaf: Leaf, arguments: dict[str, str]) -> str:
    head, _, field = leaf.path.partition(".")
    return f"{arguments[head]}.{cpp_name(field)}" if field else arguments[head]


# --- variants --------------------------------------------------------------------------------


def _flat(leaf: Leaf, values: dict[str, str]) -> str:
    return values[leaf.name].replace(".", "_")


def _variant_parameter(leaf: Leaf, values: dict[str, str]) -> str:
    kind = "bool" if leaf.kind is Kind.OPTIONAL else _type(leaf.parameter)
    return f"{kind} {_flat(leaf, values)}"


def _variant_argument(leaf: Leaf, values: dict[str, str]) -> str:
    value = values[leaf.name]
    # An undefined tensor is none, as everywhere in LibTorch.
    return f"{value} && {value}->defined()" if leaf.kind is Kind.OPTIONAL else value


def _test(key: tuple[tuple[str, Choice], ...], values: dict[str, str]) -> str:
    tests = []
    for name, value in key:
        flat = values[name].replace(".", "_")
        if isinstance(value, bool):
            tests.append(flat if value else f"!{flat}")
        else:
            tests.append(f"{flat} == {_string(value) if isinstance(value, str) else value}")
    return " && ".join(tests)


def _refusal(definition: Definition) -> str:
    allowed = [
        f"{leaf.path} is one of {', '.join(map(repr, leaf.parameter.values))}"
        for leaf in definition.choices
    ]
    return _ascii_text(f"{definition.name}: {'; '.join(allowed)}")


def _ascii_text(text: str) -> str:
    return text.encode("ascii", "replace").decode()
