"""Which rule an expression is rewritten by: the first that a pattern or a procedure finds."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import sympy
from sympy import Add, Basic, Expr, Mul, Pow, Symbol

from autofn import functions as heads
from autofn import trees
from autofn.rewrite.by_hand import (
    beside_logarithms,
    exponentials,
    kinks,
    logarithms,
    powers,
    quotients,
    roots,
)
from autofn.rewrite.match import as_whole, in_power, in_product, in_sum
from autofn.rewrite.rule import Rule, U, V
from autofn.rewrite.rules import (
    ANGLES,
    AREAS,
    LOGARITHMS,
    NAMED,
    NAMES,
    POWERS,
    PRODUCTS,
    REMOVABLE,
    SIGNS,
    SUMS,
)

T = TypeVar("T")

Parameters = frozenset[Symbol]

Found = tuple[Rule, Expr]
"""A rule, and what it makes of an expression."""

Finder = Callable[[Any, Parameters], "Found | None"]
"""Looks for a rule at the top of an expression."""

PAIRED = 30
"""Sums of at most so many terms are looked at pair by pair."""


def rewritten(node: Basic, parameters: Parameters) -> Found | None:
    """The first rule of which the pattern is found at the top of an expression, and what it makes.

    `parameters` are symbols of moderate values, numbers and learnable parameters.
    """
    if not trees.symbols(node) and node.func not in _BY_NAME:
        return None  # a number, whatever its form
    finders = next((finders for kind, finders in _FINDERS if isinstance(node, kind)), (_by_name,))
    for finder in finders:
        if (found := finder(node, parameters)) is not None:
            return found
    return None


def _given(procedure: Callable[..., T | None]) -> Callable[[Any, Parameters], T | None]:
    """A procedure, which looks at the parameters or does not, as one that is given them."""
    if len(inspect.signature(procedure).parameters) == 1:
        return lambda node, _: procedure(node)
    return procedure


def _by_several(procedure: Callable[..., Found | None]) -> Finder:
    """Rules that are found by one procedure."""
    return _given(procedure)


def _by(name: str, procedure: Callable[..., Expr | None]) -> Finder:
    """A rule that is found by a procedure."""
    rule, look = NAMED[name], _given(procedure)

    def find(node: Expr, parameters: Parameters) -> Found | None:
        new = look(node, parameters)
        return None if new is None else (rule, new)

    return find


def _table(
    find: Callable[[Rule, Any, Parameters], Expr | None], rules: Sequence[Rule]
) -> Sequence[Finder]:
    """Rules that are found by their patterns, one after another."""
    return [_by(rule.name, functools.partial(find, rule)) for rule in rules]


def _if_short(finder: Finder) -> Finder:
    return lambda node, parameters: finder(node, parameters) if len(node.args) <= PAIRED else None


def _inside(finder: Finder) -> Finder:
    """Looks at what a function is of."""
    return lambda node, parameters: finder(node.args[0], parameters)


def _or_nothing(finder: Finder) -> Finder:
    def find(node: Mul, parameters: Parameters) -> Found | None:
        found = finder(node, parameters)
        return found and (found[0], beside_logarithms.of_nothing(found[1]))

    return find


_BY_NAME = {rule.pattern.func: rule for rule in NAMES}
assert len(_BY_NAME) == len(NAMES)


def _by_name(node: Expr, _: Parameters) -> Found | None:
    if (rule := _BY_NAME.get(node.func)) is None:
        return None
    # Further arguments are those that SymPy adds: beta(a, b) has four.
    return rule, rule.replacement.xreplace(dict(zip((U, V), node.args, strict=False)))


_OF_PAIRS = (
    _by("sum less the root of nearly its square", roots.less_root_of_its_square),
    _by("sum less the root of its difference", roots.less_root_of_difference),
    _by("root of a sum - that of the difference", roots.root_split),
    _by("slopes of a difference of roots", roots.one_share),
    _by("powers of a sum that differ by 1", powers.with_lesser_power),
    _by("square of a quotient with a root less 1", roots.square_less_1),
    _by("share of a root's square less its rest", roots.share_of_rest),
    _by_several(roots.with_mean_root),
    _by("1 - a part over the whole", quotients.whole_less_part),
    _by("quotient - 1, less its log", beside_logarithms.less_its_log),
    _by("sum with exp over exp, less 1", exponentials.exp_over_exp_less_1),
    _by("exp - 1 - u", exponentials.expm1_less_terms),
)

_OF_SUMS = (
    _by("u less the log of a sum of exps", beside_logarithms.log_of_share),
    _by("v times log", beside_logarithms.of_one_nothing),
    *map(_if_short, _OF_PAIRS),
    *_table(in_sum, SUMS),
    _by("from one to the other by a sigmoid", exponentials.between),
    _by_several(exponentials.less_half),
)

_OF_PRODUCTS = (
    _by_several(exponentials.scaled_tail),
    _by("slope of a power times its base", powers.base_times_slope),
    _by("power over powers of its base", powers.over_its_base),
    _by("beside what is 0 below", quotients.beside_hinge),
    _by("over a pole, what is 0 about it", quotients.hinge_over_pole),
    _by("sign times pieces with |u|", quotients.sign_in_pieces),
    _by("exp over a sum of two", exponentials.share_of_sum),
    _by("v times exp, over what the exponent is", exponentials.over_exponent),
    _by("v times a power of 1 + u/v, less 1", powers.times_pow1pm1),
    _by("exp times the least of its inverse and others", exponentials.into_extremum),
    _by("mean by the sizes of exps", exponentials.mean_by_exps),
    _by("acos over its sine", quotients.over_sine),
    _by_several(quotients.difference_quotient),
    _by("power over a sum with it", powers.power_times_lesser),
    _by_several(exponentials.less_exp),
    _by("quotient of sums of exps", exponentials.over_one_exp),
    _by("exp - 1 over a sum with it", exponentials.over_growing_sum),
    _by("sum with exp over exp - 1", exponentials.sum_over_expm1),
    *map(_or_nothing, _table(in_product, PRODUCTS[:-1])),
    _by_several(roots.mean_root_over),
    *map(_or_nothing, _table(quotients.removed, REMOVABLE)),
    _by("v times log", beside_logarithms.times_logs),
    *map(_or_nothing, _table(in_product, PRODUCTS[-1:])),
)

_POWER_OF_SIDE = _by("power of a sum less the size of one with it", kinks.power_of_side)

_OF_POWERS = (
    _POWER_OF_SIDE,
    _by_several(roots.root_of_square),
    _by("cube root", roots.cube_root),
    _by("power mean", powers.power_mean),
    *_table(in_power, POWERS[:-1]),
    _by("power of 1 + a multiple of exp", powers.power_with_exp),
    *_table(in_power, POWERS[-1:]),
)

_OF_LOGARITHMS = (
    _inside(_by("log of a sum less the size of one with it", kinks.log_of_side)),
    _inside(_by_several(logarithms.logs_of_factors)),
    _inside(_by("log of an inverse", logarithms.log_of_inverse)),
    *_table(as_whole, LOGARITHMS[:-1]),
    _inside(_by("log of a part over the whole", logarithms.log_of_part)),
    _inside(_by_several(logarithms.log_of_product)),
    _inside(_by("log of a sum of exps", logarithms.log_of_sum)),
    _inside(_by("log of a quotient of sums of exps", logarithms.log_of_quotient)),
    _inside(_by("log of a sum with a multiple of exp", logarithms.log_with_exp)),
    _inside(_by("log of an integral of normcdf", logarithms.log_of_integral)),
    *_table(as_whole, LOGARITHMS[-1:]),
)

_OF_ODDS = [
    NAMED["log of 1 + a quotient of positive exp - 1"],
    NAMED["log of 1 + a quotient of exp - 1"],
]

_FINDERS: Sequence[tuple[Any, Sequence[Finder]]] = (
    (Add, _OF_SUMS),
    (Mul, _OF_PRODUCTS),
    (Pow, _OF_POWERS),
    (sympy.log, _OF_LOGARITHMS),
    (sympy.sin | sympy.cos, _table(as_whole, ANGLES)),
    (sympy.sign, _table(as_whole, SIGNS)),
    (heads.power, [_POWER_OF_SIDE]),
    (heads.log1p, _table(as_whole, _OF_ODDS)),
    (heads.log1mexp, [_by_several(logarithms.log1mexp_of_exp)]),
    (sympy.asinh | sympy.acosh, _table(as_whole, AREAS)),
)
