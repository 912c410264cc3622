"""The leaves of `op.py`: which compiled op computes a pass, and what it is given."""

from __future__ import annotations

from collections.abc import Mapping

from autofn.emit.declarations import literal, tuple_text, unpacked
from autofn.emit.identifiers import Names
from autofn.model import TENSORS, Choice, Definition
from autofn.passes import Pass, direction_name
from autofn.plan import Kernel, Plan, is_alike


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
    """The call of the forward op where nothing needs to be chosen; else empty."""
    definition = made.definition
    if len(made.variants) > 1:
        return ""
    forward = next((kernel for kernel in kernels if kernel.pass_name == "forward"), None)
    if forward is None:
        return ""
    given = {names.of[leaf.name]: names.argument(leaf) for leaf in definition.numbers}
    tensors = [names.of[leaf.name] for leaf in definition.differentiable]
    dtype = [] if forward.alike else [f"_t.CODES[{tensors[0]}.dtype]"]
    return _call(forward, names, dtype, given)


def direct_backward(made: Plan, names: Names, kernels: tuple[Kernel, ...]) -> str:
    """The call of the backward op where nothing needs to be chosen; else empty."""
    kernel = _only_backward(made, kernels)
    if kernel is None:
        return ""
    if kernel.alike:
        return _call(kernel, names, [])
    leaves = [leaf.name for leaf in made.definition.differentiable]
    at = [leaves.index(operand.name) for operand in kernel.outputs]
    whole = len(at) == len(leaves)
    needs = "needs" if whole else tuple_text([f"needs[{i}]" for i in at])
    likes = "ctx.likes" if whole else tuple_text([f"ctx.likes[{i}]" for i in at])
    first = names.of[kernel.inputs[0].name]
    return _call(kernel, names, [f"_t.bits({needs})", f"_t.like_codes({first}, {likes})"])


def direct_gradients(made: Plan, kernels: tuple[Kernel, ...]) -> list[str]:
    """What `direct_backward` found, by argument of the formula: None where nothing is needed."""
    kernel = _only_backward(made, kernels)
    if kernel is None:
        return []
    leaves = [leaf.name for leaf in made.definition.differentiable]
    found = {operand.name: f"found[{i}]" for i, operand in enumerate(kernel.outputs)}
    if len(found) == 1:  # an op of one result returns it, and is not called where it is not needed
        return ["found" if p.name in found else "None" for p in made.definition.parameters]
    return [
        f"{found[p.name]} if needs[{leaves.index(p.name)}] else None" if p.name in found else "None"
        for p in made.definition.parameters
    ]


def _only_backward(made: Plan, kernels: tuple[Kernel, ...]) -> Kernel | None:
    backward = [kernel for kernel in kernels if kernel.pass_name == "backward"]
    return backward[0] if len(made.variants) == 1 and len(backward) == 1 else None


def direct_test(definition: Definition, names: Names) -> str:
    """That the op takes these tensors, and there is nothing that a call has to refuse."""
    tensors = ", ".join(names.of[leaf.name] for leaf in definition.differentiable)
    find = f"ops := _t.direct({tensors})"
    more = [f"not isinstance({names.argument(leaf)}, Tensor)" for leaf in definition.numbers]
    if any(leaf.kind not in TENSORS for leaf in definition.differentiable):
        more.append(f"_t.fit(({tensors}), _LAYOUT)")
    return " and ".join([f"({find})", *more]) if more else find


def _call(
    kernel: Kernel,
    names: Names,
    extra: list[str],
    given: Mapping[str, str] | None = None,
) -> str:
    """Calls the op of a kernel; `given`: what stands for numbers."""
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
