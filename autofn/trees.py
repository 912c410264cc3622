"""Facts about expressions as graphs: a subexpression that occurs often is looked at once.

SymPy's own `free_symbols`, `has`, `xreplace` and `count_ops` walk the tree, which is exponentially
larger than the graph for a deep composition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from sympy import Basic, Expr, Piecewise, Symbol, srepr

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


@lru_cache(maxsize=_CACHE)
def digest(expr: Basic) -> str:
    """What tells expressions apart in any process: equal for equal graphs."""
    if not expr.args:
        return hashlib.sha256(srepr(expr).encode()).hexdigest()
    parts = [type(expr).__name__, *map(digest, expr.args)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def digests(exprs: Iterable[Basic | None]) -> list[str | None]:
    """The digest of each, of which some may be None."""
    return [None if each is None else digest(each) for each in exprs]


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


def same(new: Sequence[Basic], old: Sequence[Basic]) -> bool:
    """Whether arguments are equal, so that a node need not be rebuilt: 2*(a - b) would become
    2*a - 2*b. By their hashes: `==` walks trees, and an equal one may come from a cache.
    """
    return all(
        a is b or (type(a) is type(b) and hash(a) == hash(b)) for a, b in zip(new, old, strict=True)
    )


def rebuilt(node: Basic, args: Sequence[Basic]) -> Basic:
    """The node with other arguments; itself where they are equal.

    Evaluation of a Piecewise would reorder and simplify its conditions, at a price and to no gain.
    """
    if same(args, node.args):
        return node
    options = {"evaluate": False} if isinstance(node, Piecewise) else {}
    return node.func(*args, **options)


def replaced(expr: Expr, by: Mapping[Basic, Basic]) -> Expr:
    """As `xreplace`."""
    new = _replaced(expr, tuple(by.items()))
    assert isinstance(new, Expr)
    return new


# Remembered between expressions, as results are where parts of one stand in others: what was one
# object stays one. Comparing equal graphs that share nothing walks trees.
@lru_cache(maxsize=_CACHE)
def _replaced(node: Basic, by: tuple[tuple[Basic, Basic], ...]) -> Basic:
    for old, new in by:
        if node == old:
            return new
    args = [_replaced(arg, by) for arg in node.args]
    return node if same(args, node.args) else node.func(*args)
