"""Functions that exclude each other: one of them is computed, of the argument that is asked for.

A loop over vectors has no branches, so where a program chooses between log(u) and log(v) it pays
for both. log(c ? u : v) is the same number.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

from autofn.ops import OPS
from autofn.program import ELEMENT, Node, Program, operation, pruned


class _Fact(NamedTuple):
    """What a condition, by number of its node, is known to be."""

    condition: int
    holds: bool


Case = frozenset[_Fact]
"""Facts that hold together; none: always."""

CASES = 8
"""In how many cases a value may be needed before it counts as always needed."""

WORTH = 11.0
"""The cost from which on a function is worth a choice between its arguments: exp(u) is, no root or
quotient, which the reader had rather find where they belong."""


def merged(program: Program) -> Program:
    """The program with functions that are never needed together computed once."""
    while (shorter := _once_merged(program)) is not None:
        program = shorter
    return program


def _once_merged(program: Program) -> Program | None:
    alike: dict[tuple[str, int | None], list[int]] = {}
    for index, node in enumerate(program.nodes):
        # What depends on parameters alone is computed once for many elements.
        if ELEMENT in node.axes and node.op in OPS and OPS[node.op].cost >= WORTH:
            alike.setdefault((node.op, node.n), []).append(index)
    if not any(len(each) > 1 for each in alike.values()):
        return None
    facts = _Facts(program.nodes)
    cases = _cases(program, facts)
    cost = program.cost
    for each in alike.values():
        for one, other in combinations(each, 2):
            for first, second in ((one, other), (other, one)):
                told = _telling(cases[first], cases[second], facts)
                found = _with_one(program, first, second, told) if told else None
                if found is not None and found.cost < cost:
                    return found
    return None


def _telling(one: Iterable[Case], other: Iterable[Case], facts: _Facts) -> list[_Fact]:
    """What all holds whenever the first is needed, and never when the second is; else nothing."""
    ones, left = list(one), list(other)
    always = frozenset[_Fact]()
    if not ones or not left or always in ones or always in left:
        return []
    told: list[_Fact] = []
    common = frozenset.intersection(*ones)
    for fact in sorted(common, key=lambda each: (len(_possible(left, each, facts)), each)):
        possible = _possible(left, fact, facts)
        if len(possible) < len(left):
            told.append(fact)
            left = possible
        if not left:
            return told
    return []


def _possible(cases: Iterable[Case], fact: _Fact, facts: _Facts) -> list[Case]:
    return [case for case in cases if not any(facts.exclude(fact, each) for each in case)]


# --- when a value is needed ---------------------------------------------------------------------


def _cases(program: Program, facts: _Facts) -> list[set[Case]]:
    """Per node the cases in which an output depends on it; none where it never does."""
    cases: list[set[Case]] = [set() for _ in program.nodes]
    for output in program.outputs:
        if output.node is not None:
            cases[output.node] = {frozenset()}
    for index in reversed(range(len(program.nodes))):
        node, mine = program.nodes[index], cases[index]
        if len(mine) > CASES:
            mine = {frozenset()}
        for position, arg in enumerate(node.args):
            if node.op == "select" and position > 0:
                known = facts.of(_Fact(node.args[0], position == 1))
                cases[arg] |= {case | known for case in mine if facts.agree(case, known)}
            else:
                cases[arg] |= mine
    return cases


class _Facts:
    """What facts imply, and which exclude each other."""

    def __init__(self, nodes: tuple[Node, ...]):
        self._nodes = nodes
        self._ranges = [_range(node, nodes) for node in nodes]

    def of(self, fact: _Fact) -> Case:
        """The fact, and what it says of the conditions that its own is made of."""
        node = self._nodes[fact.condition]
        found = {fact}
        if node.op == ("and" if fact.holds else "or"):
            for arg in node.args:
                found |= self.of(_Fact(arg, fact.holds))
        if node.op == "not":
            found |= self.of(_Fact(node.args[0], not fact.holds))
        return frozenset(found)

    def agree(self, one: Case, other: Case) -> bool:
        return not any(self.exclude(a, b) for a in one for b in other)

    def exclude(self, one: _Fact, other: _Fact) -> bool:
        if one.condition == other.condition:
            return one.holds != other.holds
        if not (one.holds and other.holds):
            return False
        a, b = self._ranges[one.condition], self._ranges[other.condition]
        return a is not None and b is not None and a.of == b.of and not a.meets(b)


class _Range(NamedTuple):
    """Where a value is, that of a node."""

    of: int
    low: float
    high: float
    closed: bool

    def meets(self, other: _Range) -> bool:
        low, high = max(self.low, other.low), min(self.high, other.high)
        return low < high or (low == high and self.closed and other.closed)


def _range(node: Node, nodes: tuple[Node, ...]) -> _Range | None:
    """What a condition says, if it compares a value with a constant."""
    if node.op not in ("lt", "le", "gt", "ge", "eq"):
        return None
    value, bound = node.args
    constant = nodes[bound].constant
    if constant is None or not constant.is_comparable:
        return None
    at = float(constant)
    low = -math.inf if node.op in ("lt", "le") else at
    high = math.inf if node.op in ("gt", "ge") else at
    return _Range(value, low, high, node.op in ("le", "ge", "eq"))


# --- the program with one in place of two -------------------------------------------------------


def _with_one(program: Program, one: int, other: int, told: list[_Fact]) -> Program | None:
    """The program with one function in place of two, of the arguments of the first where all that
    holds; None where it would need itself."""
    nodes = list(program.nodes)
    known = {(node.op, node.args, node.n): k for k, node in enumerate(nodes)}

    def added(op: str, args: tuple[int, ...], n: int | None = None) -> int:
        found = known.setdefault((op, args, n), len(nodes))
        if found == len(nodes):
            nodes.append(operation(nodes, op, args, n))
        return found

    args: list[int] = []
    for a, b in zip(nodes[one].args, nodes[other].args, strict=True):
        value = a
        for fact in told if a != b else ():
            chosen = (value, b) if fact.holds else (b, value)
            value = added("select", (fact.condition, *chosen))
        args.append(value)
    together = added(nodes[one].op, tuple(args), nodes[one].n)

    instead = {one: together, other: together}
    wanted = [tuple(instead.get(arg, arg) for arg in node.args) for node in nodes]
    count = len(program.nodes)
    places = [*range(count), *[max(one, other)] * (len(nodes) - count)]
    order = _order(wanted, places)
    if order is None:
        return None
    ordered: dict[Node, int] = {}
    at: dict[int, int] = {}
    for old in order:
        node = nodes[old].of(tuple(at[arg] for arg in wanted[old]))
        if node.op == "select" and node.args[1] == node.args[2]:
            at[old] = node.args[1]
        else:
            at[old] = ordered.setdefault(node, len(ordered))
    outputs = [
        replace(each, node=None if each.node is None else at[instead.get(each.node, each.node)])
        for each in program.outputs
    ]
    found = pruned(program.inputs, list(ordered), outputs)
    return replace(program, nodes=found.nodes, outputs=found.outputs)


def _order(wanted: list[tuple[int, ...]], places: list[int]) -> list[int] | None:
    """All numbers, each after those that it wants, else by place; None if that cannot be."""
    users: list[list[int]] = [[] for _ in wanted]
    missing = [len(set(args)) for args in wanted]
    for number, args in enumerate(wanted):
        for arg in set(args):
            users[arg].append(number)
    ready = [(places[k], k) for k, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, number = heapq.heappop(ready)
        order.append(number)
        for user in users[number]:
            missing[user] -= 1
            if missing[user] == 0:
                heapq.heappush(ready, (places[user], user))
    return order if len(order) == len(wanted) else None
