"""The user's expressions, compiled to closures over scalars: mpf or dual numbers.

What is interpreted is the tree that the user wrote; nothing of the derivation, its rewrites or its
heads' derivatives is used.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import sympy
from mpmath import mp
from sympy import Basic, Expr, Piecewise, Symbol
from sympy.core.function import ArgumentIndexError
from sympy.core.relational import Relational
from sympy.logic.boolalg import BooleanFunction

from autofn.errors import FormulaError
from autofn.verify.duals import (
    FUNCTIONS,
    Real,
    Scalar,
    Watch,
    add,
    base,
    chain,
    component,
    exp,
    isnan,
    level_of,
    mul,
    perturbed,
    pow_rational,
    power,
    reciprocal,
)

WITHOUT_GRADIENT = frozenset({"sign", "floor", "ceiling", "Heaviside"})

Registers = list[Any]
Node = Callable[[Registers], Any]


class Program:
    """Expressions compiled to closures over a list of registers.

    `active` are the symbols with a gradient: they decide, as a property of the expression and not
    of the point, what a tie in Max and Min is a tie with. Raises FormulaError for an expression
    that has no value by rules known here.

    A `rounded` program moves every intermediate value, and its derivatives, by up to `size` of
    itself, in a pattern that `seed` sets: what the arithmetic of a dtype may do.
    """

    size: Real = 0
    seed: int = 0

    def __init__(
        self,
        expressions: Sequence[Basic],
        active: Collection[Symbol] = (),
        *,
        rounded: bool = False,
    ):
        self.active = frozenset(active)
        self._rounded = rounded
        self.slots: dict[Symbol, int] = {}
        self._size = 0
        self._constants: list[tuple[int, Node]] = []
        self._templates: dict[int, Registers] = {}
        self._nodes: dict[Basic, Node] = {}
        self._has_gradient: dict[Basic, bool] = {}
        self._uses: Counter[Basic] = Counter(expressions)
        seen: set[Basic] = set()
        stack = list(expressions)
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack.extend(node.args)
                self._uses.update(node.args)
        self._roots = [self._node(expression) for expression in expressions]

    def __call__(self, values: Mapping[Symbol, Scalar]) -> list[Scalar]:
        """The expressions' values at the current precision."""
        precision = mp.prec
        template = self._templates.get(precision)
        if template is None:
            template = [None] * self._size
            for slot, node in self._constants:
                template[slot] = node(template)
            self._templates[precision] = template
        registers = template.copy()
        for symbol, slot in self.slots.items():
            registers[slot] = values[symbol]
        return [root(registers) for root in self._roots]

    def _slot(self) -> int:
        self._size += 1
        return self._size - 1

    def _node(self, expr: Basic) -> Node:
        node = self._nodes.get(expr)
        if node is None:
            node = self._nodes[expr] = self._compile(expr)
        return node

    def _compile(self, expr: Basic) -> Node:
        if isinstance(expr, Symbol):
            slot = self.slots[expr] = self._slot()
            return _register(slot)
        if not expr.free_symbols and isinstance(expr, Expr):
            plain = _constant(expr) if not expr.args else self._operation(expr)
            slot = self._slot()
            self._constants.append((slot, plain))
            return _register(slot)
        plain = self._operation(expr)
        if self._rounded and isinstance(expr, Expr):
            plain = self._perturbing(plain)
        if self._uses[expr] < 2 or not isinstance(expr, Expr):
            return plain
        slot = self._slot()

        def once(registers: Registers) -> Scalar:
            value = registers[slot]
            if value is None:
                value = registers[slot] = plain(registers)
            return value

        return once

    def _perturbing(self, node: Node) -> Node:
        place = 64 * len(self._nodes)
        return lambda registers: perturbed(node(registers), self.size, self.seed + place)

    def _operation(self, expr: Basic) -> Node:
        if isinstance(expr, sympy.Add) and not self._rounded:
            expr = _with_tails(expr)
        if isinstance(expr, sympy.Add | sympy.Mul):
            return self._fold(add if isinstance(expr, sympy.Add) else mul, expr.args)
        if isinstance(expr, sympy.Pow):
            return self._pow(expr)
        if isinstance(expr, sympy.Max | sympy.Min):
            return self._extremum(expr)
        if isinstance(expr, Piecewise):
            return self._piecewise(expr)
        if isinstance(expr, sympy.Derivative | sympy.Integral | sympy.Subs | sympy.Sum):
            raise _unknown(expr)
        if isinstance(expr, Expr):
            function = _function(expr)
            return _call(function, [self._node(arg) for arg in expr.args])
        return self._condition(expr)

    def _fold(self, operation: Callable[[Scalar, Scalar], Scalar], args: Sequence[Basic]) -> Node:
        first, *rest = [self._node(arg) for arg in args]

        def fold(registers: Registers) -> Scalar:
            result = first(registers)
            for node in rest:
                result = operation(result, node(registers))
            return result

        return fold

    def _pow(self, expr: Basic) -> Node:
        below, exponent = expr.args
        x = self._node(below)
        if isinstance(exponent, sympy.Rational):
            p, q = int(exponent.p), int(exponent.q)
            if (p, q) == (-1, 1):
                return lambda registers: reciprocal(x(registers))
            return lambda registers: pow_rational(x(registers), p, q)
        y = self._node(exponent)
        if below is sympy.E:
            return lambda registers: exp(y(registers))
        return lambda registers: power(x(registers), y(registers))

    def _extremum(self, expr: Basic) -> Node:
        nodes = [self._node(arg) for arg in expr.args]
        gradients = [self._with_gradient(arg) for arg in expr.args]
        best = max if isinstance(expr, sympy.Max) else min

        def extremum(registers: Registers) -> Scalar:
            values = [node(registers) for node in nodes]
            plain = [base(value) for value in values]
            if any(isnan(each) for each in plain):
                # Its slopes are NaN as well: without any they would be 0.
                return mul(functools.reduce(add, values), mp.nan)
            top = best(plain)
            tied = [i for i, each in enumerate(plain) if each == top]
            if len(tied) == 1:
                return values[tied[0]]
            Watch.lost = True
            if not all(gradients[i] for i in tied):
                return top
            total = functools.reduce(add, (values[i] for i in tied))
            return mul(total, mp.one / len(tied))

        return extremum

    def _piecewise(self, expr: Basic) -> Node:
        branches = [
            (self._node(branch.args[0]), self._node(branch.args[1])) for branch in expr.args
        ]

        def piecewise(registers: Registers) -> Scalar:
            for value, condition in branches:
                if condition(registers):
                    return value(registers)
            return mp.nan

        return piecewise

    def _condition(self, expr: Basic) -> Node:
        if expr is sympy.true or expr is sympy.false:
            truth = expr is sympy.true
            return lambda registers: truth
        if isinstance(expr, sympy.Contains):
            return self._node(expr.args[1].as_relational(expr.args[0]))
        if isinstance(expr, Relational) and expr.rel_op in _COMPARE:
            return _compared(expr.rel_op, self._node(expr.lhs), self._node(expr.rhs))
        args = [self._node(arg) for arg in expr.args]
        if isinstance(expr, sympy.And):
            return lambda registers: all(arg(registers) for arg in args)
        if isinstance(expr, sympy.Or):
            return lambda registers: any(arg(registers) for arg in args)
        if isinstance(expr, sympy.Not):
            return lambda registers: not args[0](registers)
        if isinstance(expr, sympy.Xor):
            return lambda registers: bool(sum(map(bool, (arg(registers) for arg in args))) & 1)
        if isinstance(expr, sympy.ITE):
            return lambda registers: args[1 if args[0](registers) else 2](registers)
        if isinstance(expr, sympy.Equivalent):
            return lambda registers: len({bool(arg(registers)) for arg in args}) == 1
        if isinstance(expr, BooleanFunction):
            return self._node(expr.to_nnf(simplify=False))
        raise _unknown(expr)

    def _with_gradient(self, expr: Basic) -> bool:
        """Whether the expression depends differentiably on an active symbol."""
        known = self._has_gradient.get(expr)
        if known is None:
            if isinstance(expr, Symbol):
                known = expr in self.active
            elif not isinstance(expr, Expr) or expr.func.__name__ in WITHOUT_GRADIENT:
                known = False
            elif isinstance(expr, Piecewise):
                known = any(self._with_gradient(branch.args[0]) for branch in expr.args)
            else:
                known = any(self._with_gradient(arg) for arg in expr.args)
            self._has_gradient[expr] = known
        return known


def _with_tails(total: sympy.Add) -> Expr:
    """c + c*erf(u), c + c*tanh(u) and c - c/(1 + exp(u)) without the difference that they are.

    1 + erf(-60) has its first digit in the 1566th place: no precision worth its time has it.
    """
    numbers = [term for term in total.args if term.is_Rational]
    for term in total.args:
        c, head = term.as_coeff_Mul()
        if not numbers or abs(c) != abs(numbers[0]):
            continue
        same = c == numbers[0]
        if isinstance(head, sympy.erf):
            (u,) = head.args
            tail = sympy.erfc(-u if same else u, evaluate=False)
        elif isinstance(head, sympy.tanh):
            (u,) = head.args
            tail = 2 / (1 + sympy.exp(-2 * u if same else 2 * u))
        elif head.is_Pow and head.exp == -1 and isinstance(head.base, sympy.Add) and not same:
            exps = [each for each in head.base.args if each != 1]
            if len(exps) != 1 or not isinstance(exps[0], sympy.exp):
                continue
            tail = 1 / (1 + sympy.exp(-exps[0].args[0]))
        else:
            continue
        left = [each for each in total.args if each not in (term, numbers[0])]
        return sympy.Add(*left, sympy.Mul(numbers[0], tail, evaluate=False), evaluate=False)
    return total


def _register(slot: int) -> Node:
    return lambda registers: registers[slot]


def _call(function: Callable[..., Scalar], nodes: Sequence[Node]) -> Node:
    if len(nodes) == 1:
        node = nodes[0]
        return lambda registers: function(node(registers))
    return lambda registers: function(*[node(registers) for node in nodes])


_COMPARE: dict[str, Callable[[Real, Real], bool]] = {
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
    "==": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
}


def _compared(operator: str, left: Node, right: Node) -> Node:
    compare = _COMPARE[operator]

    def relation(registers: Registers) -> bool:
        a, b = base(left(registers)), base(right(registers))
        if a == b:
            Watch.lost = True
        return compare(a, b)

    return relation


def _constant(expr: Expr) -> Node:
    if isinstance(expr, sympy.Rational):
        p, q = int(expr.p), int(expr.q)
        return lambda registers: mp.mpf(p) / q
    if isinstance(expr, sympy.Float):
        value = mp.make_mpf(expr._mpf_)
        return lambda registers: value
    if expr is sympy.oo or expr is -sympy.oo:
        infinite = mp.inf if expr is sympy.oo else -mp.inf
        return lambda registers: infinite
    if expr is sympy.nan or expr is sympy.zoo:
        return lambda registers: mp.nan
    if isinstance(expr, sympy.NumberSymbol):
        return lambda registers: mp.make_mpf(expr._as_mpf_val(mp.prec))
    raise _unknown(expr)


def _unknown(expr: Basic) -> FormulaError:
    return FormulaError(
        f"{expr.func.__name__} is not a function that autofn can evaluate: {str(expr)[:60]}",
        remedy="write it with elementary functions of SymPy and those of autofn.functions",
    )


def _function(expr: Expr) -> Callable[..., Scalar]:
    kind = expr.func
    # A function of the user's own may have any name.
    ours = (kind.__module__ or "").split(".")[0] in ("sympy", "autofn")
    function = FUNCTIONS.get(kind.__name__) if ours else None
    return function or _library_function(expr)


def _library_function(expr: Expr) -> Callable[..., Scalar]:
    """A function of SymPy's with no entry above: SymPy's own value and derivative rules."""
    kind = expr.func
    if not isinstance(expr, sympy.Function) or not (kind.__module__ or "").startswith(
        "sympy.functions."
    ):
        raise _unknown(expr)
    fixed = [arg if arg.is_Rational else None for arg in expr.args]
    places = [i for i, arg in enumerate(fixed) if arg is None]
    dummies = {i: sympy.Dummy(f"x{i}", real=True) for i in places}
    general = kind(*[dummies.get(i, arg) for i, arg in enumerate(fixed)])

    @functools.cache
    def slope(place: int) -> Program:
        try:
            derivative = general.fdiff(place + 1)
        except (ArgumentIndexError, NotImplementedError):
            raise _unknown(general) from None
        return Program([derivative], list(dummies.values()))

    def value(args: Sequence[Real]) -> Real:
        numbers = [
            arg if arg is not None else sympy.Float._new(args[i]._mpf_, mp.prec)
            for i, arg in enumerate(fixed)
        ]
        if not all(number.is_finite for number in numbers):
            return mp.nan
        try:
            found = kind(*numbers)._to_mpmath(mp.prec + 10)
        except (ValueError, TypeError, NotImplementedError, ArithmeticError):
            return mp.nan
        return found if type(found) is mp.mpf else mp.nan

    def function(*args: Scalar) -> Scalar:
        level = max((level_of(args[i]) for i in places), default=0)
        if level == 0:
            return value(args)
        inner = [component(arg, level) for arg in args]
        at = {dummies[i]: inner[i] for i in places}
        terms = [(args[i], slope(i)(at)[0]) for i in places if level_of(args[i]) == level]
        return chain(level, function(*inner), *terms)

    return function
