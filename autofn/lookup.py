"""What kernels of 16-bit types look up instead of computing it.

Such a type has 65,536 values. Where all outputs of a kernel are functions of one tensor, but for
other tensors that are factors of them (a gradient is that of the incoming one), the functions are
computed once per value, by the kernel itself with 1 for the factors, and then looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autofn.plan import Kernel
from autofn.program import Node, Program

LOOKED_UP, MULTIPLIED = 16.0, 24.0
"""What it costs to look a value up, and to multiply it by one factor, as computing is priced."""

Factors = frozenset[str]
"""The tensors that multiply a value, which is linear in each of them."""

NONE: Factors = frozenset()

_PRODUCTS = frozenset(
    f"{op}{parts}"
    for op in "times_exp times_exp_product times_lower times_normcdf times_sech2 times_sigmoid "
    "times_sigmoid_minus".split()
    for parts in ("", "_of_sum")
)
"""What is linear in its first argument."""


@dataclass(frozen=True)
class Lookup:
    """argument: the tensor that outputs are functions of. factors: of each output."""

    argument: str
    factors: tuple[Factors, ...]


def looked_up(kernel: Kernel, program: Program) -> Lookup | None:
    """How the kernel's outputs are looked up; None if they are not, or computing is as fast."""
    computing = replace(program, arithmetic=program.arithmetic16).cost
    tensors = [each.name for each in kernel.inputs if each.role == "tensor"]
    for argument in tensors:
        factors = _factors(program, frozenset(tensors) - {argument})
        if factors is not None:
            cost = sum(LOOKED_UP + MULTIPLIED * len(each) for each in factors)
            return Lookup(argument, factors) if computing >= cost else None
    return None


def _factors(program: Program, tensors: frozenset[str]) -> tuple[Factors, ...] | None:
    """The factors of each output among these tensors; None if one is no such product."""
    found: list[Factors | None] = []
    for node in program.nodes:
        terms = [k for k in node.args if not _is_zero(program.nodes[k])]
        known = [factors for k in terms if (factors := found[k]) is not None]
        found.append(_factors_of(node, known, tensors) if len(known) == len(terms) else None)
    outputs = [None if each.node is None else found[each.node] for each in program.outputs]
    known = [each for each in outputs if each is not None]
    return tuple(known) if len(known) == len(outputs) else None


def _factors_of(node: Node, args: Sequence[Factors], tensors: frozenset[str]) -> Factors | None:
    """Of one value, from those of its arguments but zeros; None where it is no product."""
    if node.input is not None:
        return frozenset({node.input} & tensors)
    first, rest = (args[0], args[1:]) if args else (NONE, ())
    others = NONE.union(*rest)
    if node.op == "mul" and not first & others:
        return first | others
    if node.op == "neg" or (not others and (node.op == "div" or node.op in _PRODUCTS)):
        return first
    if node.op in ("add", "sub") and len(set(args)) == 1:
        return first
    if node.op == "select" and not first and len(set(rest)) == 1:
        return others
    if node.op == "along" and first <= others:
        return others
    return None if first or others else NONE


def _is_zero(node: Node) -> bool:
    return node.constant is not None and node.constant.is_zero is True
