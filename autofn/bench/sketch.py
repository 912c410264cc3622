"""What a benchmark needs to know of a formula: how it is called, and its plain PyTorch text.

Drawn from the definition in the formula's own process; data only, so neither torch nor SymPy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sympy import Basic, Expr, Heaviside, Max, Min, Piecewise, Pow, Symbol, oo

from autofn import functions as heads
from autofn.backends import pytorch
from autofn.emit import fingerprint
from autofn.emit.identifiers import Names
from autofn.model import NUMBERS, REQUIRED, Definition, Kind, Leaf, Parameter, Variant
from autofn.ops import OPS
from autofn.passes import AXES
from autofn.plan import Plan, VariantPlan, plan
from autofn.program import ELEMENT, Input, Program, Result, lower

if TYPE_CHECKING:
    from autofn.isolate import Stage
    from autofn.package import Package

WRITTEN = "as written"
"""The form that spells out what the formula's author wrote: x / (1 + torch.exp(-x))."""

FUNCTIONS = "functions"
"""The form in PyTorch's own functions, as a practised user writes it: x * torch.sigmoid(x)."""

Place = Literal["tensor", "scalar", "channel"]


@dataclass(frozen=True)
class Operand:
    """A differentiable input. `start`: mean of a parameter's values; `low`, `high`: its domain."""

    name: str
    argument: str
    place: Place
    keyword_only: bool
    dim: int
    start: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Setter:
    """An argument that must be given and is no tensor: a number, a choice or a settings object.

    `fields` are those of a settings object of the package's class `type_name`.
    """

    argument: str
    value: Any = None
    type_name: str = ""
    fields: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Form:
    """The formula in PyTorch operations: `formula(*operands, *numbers)` in the text.

    A `gradient` of the user's own is `gradient(*cotangents, *operands, *numbers)` there.
    """

    label: str
    text: str
    own_gradient: bool = False


@dataclass(frozen=True)
class Sketch:
    """One formula, in the variant that its defaults select, optional tensors given.

    outputs: how many there are. numbers: the values of the run-time numbers, in order.
    saved: operands that the backward pass reads again, and for each saved output "".
    costly: whether an element costs a special function or a division.
    """

    name: str
    function: str
    digest: str
    operands: tuple[Operand, ...]
    setters: tuple[Setter, ...]
    numbers: tuple[float, ...]
    outputs: int
    saved: tuple[str, ...]
    costly: bool
    forms: tuple[Form, ...]


@dataclass(frozen=True)
class Drawn:
    """A sketch, and the folder of its package, or the package where there is no folder."""

    sketch: Sketch
    folder: str
    package: Package | None


@dataclass(frozen=True)
class Draw:
    """The action of a formula's own process; packages are looked for in `root`."""

    root: str

    def __call__(self, definition: Definition, stage: Stage) -> Drawn:
        from autofn import pipeline

        folder = Path(self.root) / definition.name
        package = None if folder.is_dir() else pipeline.generate(definition)
        return Drawn(sketch(definition), str(folder), package)


def sketch(definition: Definition, made: Plan | None = None) -> Sketch:
    """The sketch of a definition, with its plan or a new one.

    Raises FormulaError where it has no plan.
    """
    made = made or plan(definition)
    names = Names(made)
    variant, planned = default_variant(definition, made)
    key = dict(variant.key)
    operands = tuple(
        _operand(leaf, names, definition)
        for leaf in definition.differentiable
        if key.get(leaf.name, True)
    )
    given = {operand.name for operand in operands}
    return Sketch(
        name=definition.name,
        function=definition.name,
        digest=fingerprint(definition),
        operands=operands,
        setters=_setters(definition),
        numbers=tuple(_number(leaf.parameter) for leaf in definition.numbers),
        outputs=len(definition.output_names),
        saved=tuple(
            name if name in given else ""
            for name in made.saved
            if name in given or name in made.outputs
        ),
        costly=_costly(planned.forward) or _costly(planned.vjp),
        forms=forms(definition, variant, made, planned, names),
    )


def default_variant(definition: Definition, made: Plan) -> tuple[Variant, VariantPlan]:
    """The variant that the defaults select, optional tensors given."""
    chosen = {leaf.name: _choice(leaf.parameter) for leaf in definition.choices}
    for variant, planned in zip(definition.variants, made.variants, strict=True):
        if all(chosen.get(name, True) == value for name, value in variant.key):
            return variant, planned
    raise AssertionError("some variant has the default choices")


def _choice(parameter: Parameter) -> Any:
    return parameter.values[0] if parameter.default is REQUIRED else parameter.default


def _number(parameter: Parameter) -> float:
    return 1 if parameter.default is REQUIRED else parameter.default


def _operand(leaf: Leaf, names: Names, definition: Definition) -> Operand:
    places: dict[Kind, Place] = {Kind.LEARNABLE: "scalar", Kind.PER_CHANNEL: "channel"}
    place = places.get(leaf.kind, "tensor")
    start = 0.0 if place == "tensor" else float(_number(leaf.parameter))
    interval = dict(definition.options.domain).get(leaf.name)
    ends = (None, None) if interval is None else (interval.start, interval.end)
    low, high = (None if end is None or end.is_infinite else float(end) for end in ends)
    parameter = leaf.parameter
    return Operand(
        leaf.name, parameter.name, place, parameter.keyword_only, parameter.dim, start, low, high
    )


def _setters(definition: Definition) -> tuple[Setter, ...]:
    """What a call must name beside its tensors; defaults are left to the op, as users do."""
    found: list[Setter] = []
    for p in definition.parameters:
        if p.differentiable or p.default is not REQUIRED:
            continue
        if p.kind is Kind.SETTINGS:
            fields = tuple((field.name, _setting(field)) for field in p.fields)
            found.append(Setter(p.name, type_name=p.type_name, fields=fields))
        else:
            found.append(Setter(p.name, _setting(p)))
    return tuple(found)


def _setting(parameter: Parameter) -> Any:
    return _choice(parameter) if parameter.kind is Kind.CHOICE else _number(parameter)


def _costly(program: Program) -> bool:
    """Whether an element costs an operation that is as dear as a division.

    A division by what all elements share is a multiplication.
    """
    return any(
        node.op in OPS
        and OPS[node.op].cost >= OPS["div"].cost
        and ELEMENT in node.axes
        and (node.op != "div" or ELEMENT in program.nodes[node.args[1]].axes)
        for node in program.nodes
    )


# --- the formula in PyTorch operations -----------------------------------------------------


def forms(
    definition: Definition, variant: Variant, made: Plan, planned: VariantPlan, names: Names
) -> tuple[Form, ...]:
    """The different ones of: as written, and in PyTorch's own functions."""
    # A formula that cannot be lowered as written (coth, say) has the second form only.
    plain = written(definition, variant, made)
    programs = [(WRITTEN, plain)] if plain is not None else []
    programs.append((FUNCTIONS, planned.forward))
    own = _own_gradient(definition, variant, made, names)
    found: dict[str, Form] = {}
    for label, program in programs:
        body = _function(
            "formula", program, definition, names, (), made.outputs, _keys(definition, variant)
        )
        text = "\n\n\n".join([body, *([own] if own else [])])
        if label == WRITTEN:
            text = text.replace("_sign(", "torch.sign(")  # the op's own keeps NaN, users' does not
        text = "\n\n\n".join([*pytorch.helpers(text, in_graphs=False), text]) + "\n"
        found.setdefault(text, Form(label, text, own is not None))
    return tuple(found.values())


def _keys(definition: Definition, variant: Variant) -> tuple[Leaf, ...]:
    key = dict(variant.key)
    return tuple(leaf for leaf in definition.differentiable if key.get(leaf.name, True))


def _function(
    name: str,
    program: Program,
    definition: Definition,
    names: Names,
    cotangents: Sequence[str],
    results: Sequence[str],
    leaves: Sequence[Leaf],
) -> str:
    identifiers = [names.of[leaf.name] for leaf in (*leaves, *definition.numbers)]
    reference = next(leaf.name for leaf in definition.leaves if leaf.kind is Kind.TENSOR)
    made = pytorch.function(
        name,
        definition.name,
        program,
        names.of,
        [*(names.of[each] for each in cotangents), *identifiers],
        results=results,
        prefix="result_",
        reference=reference,
        in_graphs=False,
    )
    aligned = [
        f"{names.of[leaf.name]} = {_aligned(names.of[leaf.name], leaf, names.of[reference])}"
        for leaf in leaves
        if leaf.kind is Kind.PER_CHANNEL and leaf.parameter.dim != -1
    ]
    return dataclasses.replace(made, body=(*aligned, *made.body)).text


def _aligned(name: str, leaf: Leaf, reference: str) -> str:
    """A per-channel parameter as users make it broadcast."""
    dim = leaf.parameter.dim
    ones = f"(1,) * {-1 - dim}" if dim < 0 else f"(1,) * ({reference}.ndim - {dim + 1})"
    return f"{name}.view(-1, *{ones})"


def written(definition: Definition, variant: Variant, made: Plan) -> Program | None:
    """What the author wrote as a program, nothing recognised; None where no operation has it."""
    results = [
        Result(name, plain(expr, definition))
        for name, expr in zip(made.outputs, variant.outputs, strict=True)
    ]
    return lowered(results, definition, variant, {})


def _own_gradient(definition: Definition, variant: Variant, made: Plan, names: Names) -> str | None:
    if variant.gradient is None:
        return None
    given = dict(variant.key)
    leaves = _keys(definition, variant)
    results = [
        Result(leaf.name, None if entry is None else plain(entry, definition))
        for leaf, entry in zip(definition.differentiable, variant.gradient, strict=True)
        if given.get(leaf.name, True)
    ]
    cotangents = dict(zip(definition.grads, made.grads, strict=True))
    program = lowered(results, definition, variant, cotangents)
    if program is None:
        return None
    return _function(
        "gradient",
        program,
        definition,
        names,
        made.grads,
        [leaf.name for leaf in leaves],
        leaves,
    )


def lowered(
    results: Sequence[Result],
    definition: Definition,
    variant: Variant,
    cotangents: Mapping[Symbol, str],
) -> Program | None:
    key = dict(variant.key)
    inputs: list[tuple[Symbol, Input]] = [
        (symbol, Input(name, frozenset({ELEMENT}))) for symbol, name in cotangents.items()
    ]
    for leaf in definition.leaves:
        if leaf.symbol is not None and key.get(leaf.name, True):
            axes = AXES.get(leaf.kind, frozenset())
            inputs.append((leaf.symbol, Input(leaf.name, axes, leaf.kind in NUMBERS)))
    numbers = frozenset(leaf.symbol for leaf in definition.numbers if leaf.symbol is not None)
    try:
        return lower(inputs, results, numbers)
    except KeyError:  # a function that only recognition writes in terms of others
        return None


def plain(expr: Expr, definition: Definition) -> Expr:
    """The expression as users write it in PyTorch: nothing recognised, bounds by clamp."""
    fixed = {leaf.symbol for leaf in definition.numbers}

    def visit(node: Basic) -> Basic:
        if not node.args or node.is_Number:
            return node
        args = [visit(arg) for arg in node.args]
        if isinstance(node, Max | Min):
            return _bounded(node, args, fixed)
        if isinstance(node, Heaviside):
            return _step(*args)
        if isinstance(node, Pow) and not args[1].is_number:
            return heads.power(*args)
        if all(a is b for a, b in zip(args, node.args, strict=True)):
            return node
        # As it was: evaluation would rearrange what the user wrote.
        return node.func(*args, evaluate=False) if _takes_evaluate(node) else node.func(*args)

    return visit(expr)


def _step(u: Basic, at_zero: Basic) -> Basic:
    if at_zero == 0:
        return Piecewise((1, u > 0), (0, True))
    return Piecewise((1, u > 0), (0, u < 0), (at_zero, True))


def _takes_evaluate(node: Basic) -> bool:
    return isinstance(node, Expr) or node.is_Boolean


def _bounded(node: Basic, args: Sequence[Basic], fixed: Iterable[Any]) -> Basic:
    """Max or Min of a value and a number as a clamp; relu stays what it is."""
    symbols = set(fixed)
    bounds = [arg for arg in args if arg.free_symbols <= symbols]
    values = [arg for arg in args if arg not in bounds]
    if len(bounds) != 1 or len(values) != 1 or (isinstance(node, Max) and bounds[0] == 0):
        return node.func(*args, evaluate=False)
    (bound,), (value,) = bounds, values
    if isinstance(node, Max):
        return heads.clamp(value, bound, oo)
    if isinstance(value, heads.clamp) and value.args[2] is oo:
        return heads.clamp(value.args[0], value.args[1], bound)
    if isinstance(value, Max) and len(value.args) == 2 and 0 in value.args:
        (inner,) = (arg for arg in value.args if arg != 0)
        return heads.clamp(inner, 0, bound)
    return heads.clamp(value, -oo, bound)
