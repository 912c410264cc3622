"""Infinite inputs: what is constant far out is computed there with a finite input.

x * sigmoid(x) is 0 at minus infinity, and inf * 0 is NaN; exp(-x**2)*x**2 is 0 where x**2
overflows. Where a program is constant long before, the tensor is clamped on that side; where only a
part of it is, or a part is as a function of a multiple of the tensor, that part's argument is. Done
last, so that no derivative sees it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sympy
from mpmath import mp
from sympy import Dummy, Expr, Float, Function, Integer, Piecewise, Symbol, oo

from autofn import functions as heads
from autofn import trees
from autofn.compact import LIMIT
from autofn.errors import FormulaError
from autofn.model import Definition
from autofn.program import Program, Result
from autofn.rewrite.heads import HUGE
from autofn.rewrite.near_zero import T
from autofn.rewrite.sample import defaults
from autofn.rewrite.simulate import simulated_at
from autofn.rewrite.truth import exact_at

NEAR = (Integer(16), Integer(64), Integer(1024))
"""From one of these on, exponentials of exponentials of an input, sums of exponentials with others,
or exponentials have vanished in any dtype; the input's powers have not overflowed there."""

FARTHER = Float("4e28")
"""Instead of `HUGE`, where that does and is not squared: other inputs may be that large, too."""

LARGEST = Float("3.4e38", 17)
"""Instead of `HUGE` where that is wrong beside other inputs that are larger: x/sqrt(x**2 + y**2) is
computed in double where its parts overflow."""

FAR = (4e18, 3e20, 3e25)
"""Where a program must have the same value to be constant from the first on."""

BETWEEN = tuple(2.17**k for k in range(1, 13))
"""Times the level, where it must have that value too: steps of a sine are constant for a while."""

SAME = mp.mpf(2) ** -56
NOTHING = -1080
"""Numbers below two to this are 0 in any dtype."""

LARGE = (1e9, 1e13, 1.3e19, 3.4e38)
"""Where powers overflow in single precision, squares, and multiples."""


class Finite:
    """Programs that give no NaN at an infinite tensor where the expression is constant far out.

    Nor, in single precision, where an intermediate result overflows.
    """

    def __init__(self, definition: Definition) -> None:
        domains = dict(definition.options.domain)
        self._tensors = [
            (leaf.name, leaf.symbol)
            for leaf in definition.tensors
            if leaf.symbol is not None and leaf.name not in domains
        ]
        self._defaults = defaults(definition)
        self._leaves = {leaf.name for leaf in definition.leaves}
        self._several = any(len(variant.outputs) > 1 for variant in definition.variants)
        self._looks = 0
        # A run-time number may stretch the input.
        self._levels = (*NEAR, HUGE) if len(definition.leaves) == 1 else (HUGE,)

    def __call__(
        self, lowered: Callable[[list[Result]], Program], results: list[Result]
    ) -> Program:
        return lowered(self.results(lowered, results))

    def results(
        self, lowered: Callable[[list[Result]], Program], results: list[Result]
    ) -> list[Result]:
        """The results, clamped where their program asks for it."""
        lowered = _remembering(lowered)
        for name, x in self._tensors:
            program = lowered(results)
            if not any(self._failures(program, name)):
                continue
            sides = self._sides(lowered, results, name, x, self._levels)
            kept = _clamped(results, x, sides)
            if (other := self._other_level(lowered, results, kept, x)) is not None:
                levels = [(other if a == HUGE else a, other if b == HUGE else b) for a, b in sides]
                farther = _clamped(results, x, levels)
                if farther != kept and not any(self._failures(lowered(farther), name)):
                    kept = farther
            if any(each.expr is not None and each.expr.has(*COSTLY) for each in results):
                results = kept
                continue
            # What sines have in it has no value at infinity.
            finite = len(_unwavering(results, x)) > 1
            if failures := sum(self._failures(lowered(kept), name, finite=finite)):
                self._looks = LOOKS
                within = functools.partial(self._in_parts, lowered=lowered, name=name, x=x)
                parts = [each.changed(within) for each in results]
                if sum(self._failures(lowered(parts), name, finite=finite)) < failures:
                    kept = parts
            results = kept
        return _shared(results)

    def _other_level(
        self,
        lowered: Callable[[list[Result]], Program],
        results: list[Result],
        kept: list[Result],
        x: Symbol,
    ) -> Expr | None:
        """What to clamp x at instead of `HUGE`; None where that is as good as any."""
        if not _raises(results, x):
            return FARTHER
        if kept == results or len(self._tensors) < 2:
            return None
        before, after = (self._all_large(lowered(each)) for each in (results, kept))
        return None if all(map(_is_kept, before, after)) else LARGEST

    def _all_large(self, program: Program) -> list[Any]:
        """The values where all tensors are beyond `HUGE`."""
        sizes = (1.3e19, 4.1e19, 1e25, 1e30)
        points = [
            {name: sign * size * 1.37**k for k, (name, _) in enumerate(self._tensors)}
            for size in sizes
            for sign in (-1, 1)
        ]
        rows = exact_at(program, [{**self._defaults, **point} for point in points])
        return [value for row in rows for value in row]

    def _in_parts(
        self,
        expr: Expr,
        lowered: Callable[[list[Result]], Program],
        name: str,
        x: Symbol,
    ) -> Expr:
        """The expression, with what is constant far out clamped in those of its parts that fail.

        A part is looked at as a function of x, or of the one argument u that x is in.
        """
        if x not in trees.symbols(expr) or trees.size(expr) > LIMIT:
            return expr
        finite = len(_unwavering([Result("part", expr)], x)) > 1
        try:
            failures = sum(self._failures(lowered([Result("part", expr)]), name, finite=finite))
        except (FormulaError, KeyError):  # a condition, or what belongs to its function
            return expr
        if not failures:
            return expr
        for u in [x, *_inner_arguments(expr, x)]:
            _, function = expr.xreplace({u: T}).as_independent(T, as_Add=False)
            if function.free_symbols != {T} or self._looks == 0:
                continue
            self._looks -= 1
            part = [Result("part", function.xreplace({T: x}))]
            ((low, high),) = self._sides(lowered, part, name, x, NEAR)
            new = _merged(clamped(expr.xreplace({u: T}), T, low, high).xreplace({T: u}))
            if new == expr:
                continue
            left = sum(self._failures(lowered([Result("part", new)]), name, finite=finite))
            if left < failures:
                expr, failures = new, left
                break
        if not failures or isinstance(expr, Piecewise):
            return expr
        args = [self._in_parts(arg, lowered, name, x) for arg in expr.args]
        new = trees.rebuilt(expr, args)
        if new != expr and sum(x in trees.symbols(arg) for arg in expr.args) > 1:
            # A term that is as good as constant is not where all else cancels: 1 - tanh(x). Nor is
            # a factor that is as good as 0 beside one that grows: x/(exp(x) + 2) times exp(x).
            kept = all(map(_is_kept, self._far(lowered, name, expr), self._far(lowered, name, new)))
            return new if kept else expr
        return new

    def _far(self, lowered: Callable[[list[Result]], Program], name: str, expr: Expr) -> list[Any]:
        """The values of a part far out, beyond all levels."""
        program = lowered([Result("part", expr)])
        points = [
            {**self._defaults, name: sign * float(NEAR[0]) * step}
            for sign in (-1, 1)
            for step in BETWEEN
        ]
        return [row[0] for row in exact_at(program, points)]

    def _failures(self, program: Program, name: str, *, finite: bool = False) -> Iterator[bool]:
        """Per point, at infinity too, whether some output is NaN, or not finite and should be."""
        points = [{**self._defaults, name: sign * far} for sign in (-1, 1) for far in LARGE]
        found = simulated_at(program, points)
        lost = [[k for k, value in enumerate(row) if not _is_number(value)] for row in found]
        truths = exact_at(
            program, [point for point, each in zip(points, lost, strict=True) if each]
        )
        for row, each in zip(truths, filter(None, lost), strict=True):
            yield any(_is_number(row[k]) for k in each)
        endless = [{**self._defaults, name: sign * math.inf} for sign in (-1, 1)]
        for values in exact_at(program, endless) if not finite else ():
            yield any(isinstance(value, mp.mpf) and mp.isnan(value) for value in values)

    def _sides(
        self,
        lowered: Callable[[list[Result]], Program],
        results: list[Result],
        name: str,
        x: Symbol,
        levels: Sequence[Expr],
    ) -> list[tuple[Expr | None, Expr | None]]:
        """Per output the first level beyond which it is constant, below zero and above."""
        programs = [lowered(each) for each in _unwavering(results, x)]
        columns = []
        for sign in (-1, 1):
            far = [sign * each for each in FAR]
            found: list[Expr | None] = [None] * len(results)
            # Which mostly is none: what is not constant farthest out is so from no level.
            several = len(levels) > 1
            left = self._constant(programs, name, far) if several else [True] * len(results)
            for level in levels:
                if not any(left):
                    break
                edge = sign * float(level)
                constant = self._constant(programs, name, [edge, *far])
                if any(constant):
                    # Sines, if there are any, are numbers by now: one choice of them will do.
                    steps = [edge * step for step in BETWEEN]
                    between = self._constant(programs[-1:], name, steps)
                    for k, is_constant in enumerate(map(all, zip(constant, between, strict=True))):
                        if is_constant and left[k]:
                            found[k], left[k] = level, False
            columns.append(found)
        return list(zip(*columns, strict=True))

    def _constant(self, programs: Sequence[Program], name: str, at: Sequence[float]) -> list[bool]:
        """Per output, whether it is the same at all of these, in all the programs."""
        found = [True] * len(programs[0].outputs)
        for directions in self._directions(programs[0]):
            given = {**self._defaults, **directions}
            points = [{**given, name: each} for each in at]
            rows: list[list[Any]] = []
            for program in programs:
                rows += exact_at(program, points)
                columns = zip(*rows, strict=True)
                found = [
                    each and _is_constant(column)
                    for each, column in zip(found, columns, strict=True)
                ]
                if not any(found):
                    return found
        return found

    def _directions(self, program: Program) -> list[dict[str, float]]:
        """Gradients of several outputs: all 1, and each alone, beside which another is nothing."""
        if not self._several:
            return [{}]
        others = [each.name for each in program.inputs if each.name not in self._leaves]
        alone = [{other: float(other == each) for other in others} for each in others]
        return [{}, *alone]


def _remembering(lowered: Callable[[list[Result]], Program]) -> Callable[[list[Result]], Program]:
    """The same; most results are looked at at several levels, and per tensor."""
    kept = functools.cache(lambda results: lowered([*results]))
    return lambda results: kept((*results,))


WAVERING = (sympy.sin, sympy.cos, sympy.tan, heads.sinc, heads.spherical_bessel)

PHASES = (Integer(-1), Integer(0), sympy.Rational(2, 5), Integer(1))
"""What stands for a sine, which may have any of these values as far out as one likes."""


def _unwavering(results: list[Result], x: Symbol) -> list[list[Result]]:
    """The results, with numbers in place of the sines of x that there are."""
    waves = {
        node
        for each in results
        if each.expr is not None
        for node in trees.nodes(each.expr)
        if isinstance(node, WAVERING) and x in trees.symbols(node)
    }
    if not waves:
        return [results]
    order = sorted(waves, key=sympy.default_sort_key)
    turned = [
        {node: PHASES[(k + turn) % len(PHASES)] for k, node in enumerate(order)}
        for turn in range(len(PHASES))
    ]
    # Of four sines one is 0 in each of these, and so is their product.
    turned += [
        {node: sympy.Rational((3 * k + 5 * turn) % 7 + 1, 8) for k, node in enumerate(order)}
        for turn in range(2)
    ]
    return [
        [each.changed(functools.partial(trees.replaced, by=phases)) for each in results]
        for phases in turned
    ]


def _inner_arguments(expr: Expr, x: Symbol) -> list[Expr]:
    """What functions in an expression are of, the smallest first, but for x itself."""
    found = {
        arg
        for node in trees.nodes(expr)
        if isinstance(node, Function) and not isinstance(node, Piecewise | heads.clamp)
        for arg in node.args
        if arg != x and x in trees.symbols(arg)
    }
    return sorted(found, key=lambda arg: (trees.size(arg), sympy.default_sort_key(arg)))[:ARGUMENTS]


COSTLY = (sympy.gamma, heads.loggamma, sympy.polygamma)
"""A value of one of these to all digits takes longer than a search may."""

ARGUMENTS, LOOKS = 6, 40
"""How many arguments are looked at, of a part and in all."""


def _clamped(
    results: list[Result], x: Symbol, sides: list[tuple[Expr | None, Expr | None]]
) -> list[Result]:
    # All outputs, so that they go on sharing what they are made of.
    within = next((low for low, high in sides if low is not None and low == high), None)
    return [
        each.changed(functools.partial(clamped, x=x, low=low, high=high, within=within))
        for each, (low, high) in zip(results, sides, strict=True)
    ]


def _raises(results: list[Result], x: Symbol) -> bool:
    """Whether there are powers of what is as large as x."""
    powers = (node for each in results if each.expr for node in trees.nodes(each.expr))
    return any(
        node.is_Pow and node.exp.is_number and node.exp > 1 and x in trees.symbols(node.base)
        for node in powers
    )


def _shared(results: list[Result]) -> list[Result]:
    """The results, where functions of a clamped tensor are those of the tensor, clamped after, if
    others are of the tensor as it is: they share its exponential.
    """
    found = {
        node
        for each in results
        if each.expr is not None
        for node in trees.nodes(each.expr)
        if isinstance(node, heads.softplus | heads.sigmoid)
    }
    after: dict[Expr, Expr] = {}
    for node in found:
        for sign in (1, -1):
            u = sign * node.args[0]
            if isinstance(u, heads.clamp) and all(abs(bound) >= NEAR[-1] for bound in u.args[1:]):
                x, low, high = u.args
                if {heads.softplus(x), heads.softplus(-x)} & found:
                    after[node] = _clamped_after(node.func(sign * x), high if sign > 0 else -low)
    # An exponential of a softplus is as constant as that of the clamped one.
    both = {node.args[0]: node for node in after.values() if isinstance(node, heads.clamp)}
    exponents = {
        node: node.func(*node.args[:-1], trees.replaced(node.args[-1], both))
        for each in results
        if each.expr is not None
        for node in trees.nodes(each.expr)
        if isinstance(node, sympy.exp | heads.times_exp) and not node.has(heads.clamp)
    }
    return [
        each.changed(lambda expr: trees.replaced(trees.replaced(expr, exponents), after))
        for each in results
    ]


def _clamped_after(node: Expr, most: Expr) -> Expr:
    """A sigmoid is constant where its argument is clamped, softplus is its argument there."""
    if isinstance(node, heads.sigmoid) or most == oo:
        return node
    return heads.clamp(node, -oo, most)


def _merged(expr: Expr) -> Expr:
    """The expression, with one clamp for a clamp of a clamp."""
    twice = {
        node: heads.clamp(inner, sympy.Max(low, node.args[1]), sympy.Min(high, node.args[2]))
        for node in expr.atoms(heads.clamp)
        if isinstance(node.args[0], heads.clamp)
        for inner, low, high in [node.args[0].args]
    }
    return expr.xreplace(twice)


def _is_number(value: Any) -> bool:
    """Whether it is finite, and in single precision."""
    return isinstance(value, mp.mpf) and bool(mp.isfinite(value)) and bool(mp.mag(value) < 128)


def _is_constant(values: tuple[Any, ...]) -> bool:
    if not all(isinstance(each, mp.mpf) and mp.isfinite(each) for each in values):
        return False
    values = tuple(each if mp.mag(each) > NOTHING else mp.zero for each in values)
    return bool(max(values) - min(values) <= SAME * max(map(abs, values)))


def _is_kept(value: Any, new: Any) -> bool:
    """Whether a value, where there is one, is the same as before."""
    return not isinstance(value, mp.mpf) or not mp.isfinite(value) or _is_constant((value, new))


LARGE_ARGUMENT = 100
"""Operations beyond which an argument is not looked at."""

SATURATING = (heads.sigmoid, heads.normcdf, heads.sech2, sympy.tanh, sympy.erf, sympy.erfc)


def clamped(
    expr: Expr, x: Symbol, low: Expr | None, high: Expr | None, *, within: Expr | None = None
) -> Expr:
    """The expression with x clamped on the sides asked for, at plus or minus a level.

    within: on both sides in the arguments of functions that are constant there anyway, so that
    expressions that are clamped on different sides share them.
    """
    if low is None and high is None:
        return expr
    if within is not None and (low is None or high is None):
        both = heads.clamp(x, -within, within)
        hidden = {node: Dummy(f"f{k}", real=True) for k, node in enumerate(_saturated(expr, x))}
        inner = {dummy: trees.replaced(node, {x: both}) for node, dummy in hidden.items()}
        return trees.replaced(clamped(trees.replaced(expr, hidden), x, low, high), inner)
    bounds = (-oo if low is None else -low, oo if high is None else high)
    return trees.replaced(expr, {x: heads.clamp(x, *bounds)})


def _saturated(expr: Expr, x: Symbol) -> list[Expr]:
    """The functions in an expression whose argument, a polynomial of x, is large far out."""
    return [
        node
        for node in trees.nodes(expr)
        if isinstance(node, SATURATING)
        and x in trees.symbols(node)
        and trees.size(node) <= LARGE_ARGUMENT
        and node.args[0].is_polynomial(x)
    ]
