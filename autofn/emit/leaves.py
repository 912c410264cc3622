"""The leaves of `op.py`: which compiled op computes a pass, and what it is given."""

from __future__ import annotations

from collections.abc import Mapping

from autofn.emit.declarations import literal, tuple_text, unpacked
from autofn.emit.identifiers import Names
from autofn.model import TENSORS, Choice, Definition, Kind
from autofn.plan import Kernel, Pass, Plan, direction_name, is_alike


def leaves_text(made: Plan, names: Names, kernels: tuple[Kernel, ...]) -> str:
    """The functions `forward_leaf`, `backward_leaf` and `double_backward_leaf`."""
    by_pass: dict[Pass, list[Kernel]] = {"forward": [], "backward": [], "double_backward": []}
    for kernel in kernels:
        by_pass[kernel.pass_name].append(kernel)
    return "\n\n\n".join(
        [
            _forward(made, names, by_pass["forward"]),
            _backward(made, names, by_pass["backward"]),
            _double_backward(made, names, by_pass["double_backward"]),
        ]
    )


def condition(key: tuple[tuple[str, Choice], ...], definition: Definition, names: Names) -> str:
    """The test that a variant is the one, over the names of `values`; empty if it always is."""
    tests = []
    for name, value in key:
        test = names.value(definition.leaf(name))
        if isinstance(value, bool):
            tests.append(test if value else f"not {test}")
        else:
            tests.append(f"{test} == {literal(value)}")
    return " and ".join(tests)


def _forward(made: Plan, names: Names, kernels: list[Kernel]) -> str:
    definition = made.definition
    tensors = [leaf for leaf in definition.differentiable if leaf.kind in TENSORS]
    promoted = ", ".join(names.of[leaf.name] for leaf in tensors)
    lines = [
        *_unpack(names, [leaf.name for leaf in definition.differentiable], "tensors"),
        *_unpack_values(made, names),
    ]
    for kernel in kernels:
        dtype = [] if kernel.alike else [f"_t.CODES[_t.result_type({promoted})]"]
        call = _call(kernel, names, dtype)
        result = f"return {call}" if len(kernel.outputs) > 1 else f"return ({call},)"
        lines += _where_ops(made, names, kernel, [result])
    lines += _where_sharded("*tensors", "rules.forward(forward_leaf, tensors, values)")
    lines.append("return _torch_forward(tensors, values)")
    return _function("forward_leaf", "tensors, values", "The outputs.", lines)


def _backward(made: Plan, names: Names, kernels: list[Kernel]) -> str:
    parameters = "needs, grads, saved, values, likes"
    doc = "The gradients that `needs` asks for, None for others."
    fallback = f"_torch_backward({parameters})"
    leaves = [leaf.name for leaf in made.definition.differentiable]
    lines = [
        *_unpack(names, made.grads, "grads"),
        *_unpack(names, made.saved, _filled(made, names)),
        *_unpack_values(made, names),
    ]
    for kernel in kernels:
        lines += _where_ops(made, names, kernel, _gradients(made, names, kernel, leaves))
    lines += _where_sharded("*grads, *saved", f"rules.backward(backward_leaf, {parameters})")
    return _function("backward_leaf", parameters, doc, [*lines, f"return {fallback}"])


def _filled(made: Plan, names: Names) -> str:
    """Saved tensors; what is missing is needed by no gradient that is wanted, but has a place."""
    always = all(set(needed) == set(made.saved) for _, needed in made.saved_for)
    return "saved" if always else f"_t.filled(saved, {names.of[made.grads[0]]})"


def _double_backward(made: Plan, names: Names, kernels: list[Kernel]) -> str:
    parameters = "needs, directions, tensors, values, likes"
    doc = "The gradients of `tensors`, those of the outputs and what backward saved."
    fallback = f"_torch_double_backward({parameters})"
    if not kernels:
        return _function("double_backward_leaf", parameters, doc, [f"return {fallback}"])
    leaves = [leaf.name for leaf in made.definition.differentiable]
    inputs = [*made.grads, *made.saved]
    lines = [
        "if not _t.plain(*directions, *tensors):",
        f"    return {fallback}",
        "given = _t.given(directions, tensors[0])",
        *_unpack(names, [direction_name(name) for name in leaves], "given"),
        *_unpack(names, inputs, "tensors"),
        *_unpack_values(made, names),
    ]
    for kernel in kernels:
        lines += _where_ops(made, names, kernel, _gradients(made, names, kernel, inputs))
    shards = f"rules.backward(double_backward_leaf, {parameters})"
    lines += _where_sharded("*directions, *tensors", shards)
    return _function("double_backward_leaf", parameters, doc, [*lines, f"return {fallback}"])


def _gradients(made: Plan, names: Names, kernel: Kernel, places: list[str]) -> list[str]:
    """Calls the op, and puts each gradient at the place of its input."""
    at = [places.index(operand.name) for operand in kernel.outputs]
    first = names.of[kernel.inputs[0].name]
    if len(at) == 1:
        # An op is not called where nothing is wanted: its only gradient is.
        extra = [] if kernel.alike else ["1", f"_t.like_codes({first}, (likes[{at[0]}],))"]
        call = _call(kernel, names, extra)
        entries = [call if place == kernel.outputs[0].name else "None" for place in places]
        return [f"return {tuple_text(entries)}"]
    whole = at == list(range(len(places)))
    chosen = "likes" if whole else tuple_text([f"likes[{i}]" for i in at])
    needs = "needs" if whole else tuple_text([f"needs[{i}]" for i in at])
    likes = "[]" if is_alike(made.definition) else f"_t.like_codes({first}, {chosen})"
    call = _call(kernel, names, [f"_t.bits({needs})", likes])
    return [f"found = {call}", f"return _t.wanted(found, needs{'' if whole else f', {at}'})"]


def direct_call(made: Plan, names: Names, kernels: tuple[Kernel, ...]) -> str:
    """The call of the forward op where nothing needs to be aligned or chosen; else empty."""
    definition = made.definition
    if len(made.variants) > 1 or any(
        leaf.kind is not Kind.TENSOR for leaf in definition.differentiable
    ):
        return ""
    forward = next((kernel for kernel in kernels if kernel.pass_name == "forward"), None)
    if forward is None:
        return ""
    numbers = {names.of[leaf.name]: names.argument(leaf) for leaf in definition.numbers}
    first = names.of[forward.inputs[0].name]
    dtype = [] if forward.alike else [f"_t.CODES[{first}.dtype]"]
    return _call(forward, names, dtype, numbers)


def direct_backward(made: Plan, names: Names, kernels: tuple[Kernel, ...]) -> str:
    """The call of the backward op where it has one variant and one gradient; else empty."""
    backward = [kernel for kernel in kernels if kernel.pass_name == "backward"]
    if len(made.variants) > 1 or len(backward) != 1 or not backward[0].alike:
        return ""
    return _call(backward[0], names, [])


def direct_test(definition: Definition, names: Names) -> str:
    """That the numbers are none of those that a call has to refuse."""
    numbers = [names.argument(leaf) for leaf in definition.numbers]
    return "".join(f" and not isinstance({number}, Tensor)" for number in numbers)


def _call(
    kernel: Kernel, names: Names, extra: list[str], given: Mapping[str, str] | None = None
) -> str:
    memory = [names.of[each.name] for each in kernel.tensors]
    numbers = [names.of[each.name] for each in kernel.numbers]
    numbers = [(given or {}).get(number, number) for number in numbers]
    return f"ops.{kernel.op}({', '.join([*memory, *numbers, *extra])})"


def _where_ops(made: Plan, names: Names, kernel: Kernel, body: list[str]) -> list[str]:
    memory = ", ".join(names.of[each.name] for each in kernel.tensors)
    test = condition(kernel.key, made.definition, names)
    find = f"ops := _t.ops({memory})"
    head = f"if {test} and ({find}):" if test else f"if {find}:"
    return [head, *(f"    {line}" for line in body)]


def _where_sharded(tensors: str, call: str) -> list[str]:
    """The leaf on shards, where there are DTensors."""
    return [f"if rules := _t.sharding({tensors}):", f"    return {call}"]


def _unpack(names: Names, of: list[str] | tuple[str, ...], source: str) -> list[str]:
    return [f"{unpacked([names.of[name] for name in of])} = {source}"] if of else []


def _unpack_values(made: Plan, names: Names) -> list[str]:
    values = names.values(made.definition)
    return [f"{unpacked(values)} = values"] if values else []


def _function(name: str, parameters: str, doc: str, lines: list[str]) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f'def {name}({parameters}):\n    """{doc}"""\n{body}'
