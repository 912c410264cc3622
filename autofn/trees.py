"""Facts about expressions as graphs: a subexpression that occurs often is looked at once.

SymPy's own `free_symbols`, `has` and `count_ops` walk the tree, which is exponentially larger
than the graph for a deep composition.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from sympy import Basic, Symbol

_CACHE = 100_000


@lru_cache(maxsize=_CACHE)
def symbols(expr: Basic) -> frozenset[Symbol]:
    """The free symbols."""
    if isinstance(expr, Symbol):
        return frozenset({expr})
    return frozenset[Symbol]().union(*(symbols(arg) for arg in expr.args))


@lru_cache(maxsize=_CACHE)
def size(expr: Basic) -> int:
    """How many operations it takes, each occurrence counted: the size of its text."""
    if not expr.args or expr.is_Number:
        return 0
    own = len(expr.args) - 1 if expr.is_Add or expr.is_Mul else 1
    return own + sum(size(arg) for arg in expr.args)


def nodes(*exprs: Basic) -> Iterator[Basic]:
    """Every distinct subexpression once, arguments after what they are arguments of."""
    seen: set[Basic] = set()
    stack = list(reversed(exprs))
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack.extend(reversed(node.args))
