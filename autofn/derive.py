"""Derivation: from a user's expressions to those of every program.

Expressions are first recognised in stable heads, so that their derivatives are stable as well.
`derive` gives, per variant, the expressions of forward, vjp and jvp; `second_order` and
`pushed_forward` those of the vjp of the vjp (double backward) and of its jvp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

import sympy
from sympy import (
    Add,
    And,
    Basic,
    Eq,
    Expr,
    Integer,
    Max,
    Min,
    Mul,
    Piecewise,
    Pow,
    S,
    Symbol,
)
from sympy.core.relational import Relational

from autofn import functions as heads
from autofn import trees
from autofn.compact import compact, elementary
from autofn.errors import FormulaError
from autofn.model import TENSORS, Definition, Variant
from autofn.ops import BY_CLASS
from autofn.recognise import check_supported, recognise
from autofn.rewrite.heads import polynomial
from autofn.rewrite.near_zero import series, with_regimes
from autofn.rewrite.phi_quotients import bounded
from autofn.rewrite.removable import is_same, poles_in_exponents
from autofn.rewrite.within import chosen, known_in, settled, unbounded


def moves(expr: Basic, variables: frozenset[Symbol]) -> bool:
    """Whether `expr` has a gradient at all: floor(x) and sign(x) have none."""
    if isinstance(expr, sympy.floor | sympy.ceiling | sympy.sign | sympy.Heaviside):
        return False
    if isinstance(expr, Symbol):
        return expr in variables
    if isinstance(expr, Piecewise):
        return any(moves(value, variables) for value, _ in expr.args)
    return any(moves(arg, variables) for arg in expr.args)


class Differentiator:
    """Partial derivatives with the gradient conventions of PyTorch at kinks.

    `variables` are all symbols that take a gradient: what does not depend on them is "something
    without a gradient" in a tie of Max or Min. Never a DiracDelta, never a Derivative. `scales` are
    parameters that are hardly ever 0.
    """

    def __init__(self, variables: Iterable[Symbol], scales: Iterable[Symbol] = ()):
        self._variables = frozenset(variables)
        self._scales = frozenset(scales)
        self._seen: dict[tuple[Basic, Symbol], Expr] = {}

    def __call__(self, expr: Expr, symbol: Symbol) -> Expr:
        key = (expr, symbol)
        if key not in self._seen:
            self._seen[key] = self._partial(expr, symbol)
        return self._seen[key]

    def _partial(self, expr: Expr, symbol: Symbol) -> Expr:
        if expr == symbol:
            return S.One
        if symbol not in trees.symbols(expr):
            return S.Zero
        if isinstance(expr, Add):
            return Add(*(self(term, symbol) for term in expr.args))
        if isinstance(expr, Mul):
            if (mean := _log1p_over(expr)) is not None:
                return self._of_log1p_over(expr, *mean, symbol)
            if (powers := self._of_powers_over_poles(expr, symbol)) is not None:
                return powers
            terms = []
            for i, factor in enumerate(expr.args):
                by = self(factor, symbol)
                if by != 0:
                    terms.append(Mul(by, *(f for j, f in enumerate(expr.args) if j != i)))
            return Add(*terms)
        if isinstance(expr, Pow | heads.power):
            times = self._times(expr, symbol)
            if times is not None:
                return times * expr.args[1] * expr / symbol
        if isinstance(expr, Pow):
            base, exponent = expr.args  # a number: others are heads by now
            return exponent * base ** (exponent - 1) * self(base, symbol)
        if isinstance(expr, Piecewise):
            return self._of_branches(expr, symbol)
        if isinstance(expr, Max | Min):
            return Add(
                *(
                    _share(expr, arg, self._variables) * self(arg, symbol)
                    for arg in expr.args
                    if moves(arg, self._variables)
                )
            )
        if isinstance(expr, polynomial):
            return expr.slope() * self(expr.args[1], symbol)
        partials = BY_CLASS[expr.func].partials
        if partials is None:
            raise FormulaError(f"{expr.func.__name__} has no derivative")
        terms = []
        for arg, partial in zip(expr.args, partials(*expr.args), strict=True):
            if partial != 0:
                by = self(arg, symbol)
                if by != 0:
                    terms.append(partial * by)
        return Add(*terms)

    def _of_powers_over_poles(self, expr: Mul, symbol: Symbol) -> Expr | None:
        """Of u**n/n, where n may be 0, or such a term in a sum: u**(n - 1) times that of u."""
        poles = [f.base for f in expr.args if f.is_Pow and f.exp == -1]
        poles = [pole for pole in poles if symbol not in trees.symbols(pole) and pole.free_symbols]
        for factor in expr.args if poles else ():
            rest = expr / factor
            if isinstance(factor, heads.power) and symbol not in trees.symbols(factor.args[1]):
                u, n = factor.args
                for pole in poles:
                    if (ratio := sympy.cancel(n / pole)).is_number and symbol in trees.symbols(u):
                        slope = heads.power(u, n - 1) * self(u, symbol)
                        return slope * ratio * rest * pole + factor * self(rest, symbol)
            elif isinstance(factor, Add) and any(_is_power_of(poles, term) for term in factor.args):
                return Add(*(self(term * rest, symbol) for term in factor.args))
        return None

    def _of_branches(self, expr: Piecewise, symbol: Symbol) -> Expr:
        if (slope := self._of_far_branch(expr, symbol)) is not None:
            return slope
        first = series(expr)
        branches: list[tuple[Expr, Basic]] = []
        for (value, where), known in zip(expr.args, known_in(expr), strict=True):
            if first is not None and not branches:
                slope = first.slope(self(first.factor, symbol), self(first.u, symbol))
            else:
                slope = chosen(self(unbounded(value, known), symbol), known)
            branches.append((slope, where))
        return _piecewise(*branches)

    def _of_far_branch(self, expr: Piecewise, symbol: Symbol) -> Expr | None:
        """Of powers over poles in their exponents, with regimes there: of them as they are, which
        is shorter, where it has no such poles, or can have regimes.
        """
        *regimes, (far, _) = expr.args
        poles = poles_in_exponents(far)
        if not poles or symbol in poles or not all(is_same(near, far) for near, _ in regimes):
            return None
        slope = self(far, symbol)
        return slope if not poles_in_exponents(slope) or with_regimes(slope) != slope else None

    def _of_log1p_over(self, expr: Mul, m: Expr, n: Expr, symbol: Symbol) -> Expr:
        y = heads.log1p(n * m)
        whole = m / heads.phi(S.One, y)
        by_n = -(whole**2) * heads.phi(Integer(2), -y)
        slope = self(m, symbol) / (1 + n * m) + by_n * self(n, symbol)
        rest = expr / whole
        return self(rest, symbol) * whole + rest * slope

    def _times(self, power: Expr, symbol: Symbol) -> Expr | None:
        """k where a power's base is v * symbol**k, and its derivative is k/symbol times itself.

        So it is where v may be 0 and the symbol not, a divisor or a scale: v times the power less
        1 is 0 times infinity there.
        """
        base, exponent = power.args
        if not isinstance(base, Mul) or symbol in trees.symbols(exponent):
            return None
        rest, factor = base.as_independent(symbol, as_Add=False)
        of, k = factor.as_base_exp()
        if of != symbol or not k.is_Rational or not rest.free_symbols:
            return None
        vanishes = exponent.is_Rational is not True or exponent < 1
        return k if k < 0 or (vanishes and symbol in self._scales) else None


def _is_power_of(poles: list[Expr], term: Expr) -> bool:
    """Whether a term has a power with a multiple of one of these as its exponent."""
    return any(
        isinstance(factor, heads.power) and sympy.cancel(factor.args[1] / pole).is_number
        for factor in Mul.make_args(term)
        for pole in poles
    )


def _log1p_over(expr: Mul) -> tuple[Expr, Expr] | None:
    """m and n of log1p(n*m)/n as m over phi_1 of it, by whose derivative it is no longer."""
    for factor in expr.args:
        base, power = factor.as_base_exp()
        if power == -1 and isinstance(base, heads.phi) and isinstance(base.args[1], heads.log1p):
            (product,) = base.args[1].args
            for m in expr.args:
                n = product / m
                if isinstance(m, Add) and base.args[0] == 1 and not n.has(m):
                    return m, n
    return None


def _piecewise(*branches: tuple[Expr, Basic]) -> Expr:
    values = {value for value, _ in branches}
    if len(values) == 1 and branches[-1][1] == True:  # noqa: E712
        return branches[0][0]
    return Piecewise(*branches, evaluate=False)


def _share(node: Expr, arg: Expr, variables: frozenset[Symbol]) -> Expr:
    """The derivative of Max (Min) by one argument: 1 where it wins, a share where it ties."""
    rivals = [other for other in node.args if other != arg]
    moving = [other for other in rivals if moves(other, variables)]
    fixed = [other for other in rivals if not moves(other, variables)]
    beats = sympy.StrictGreaterThan if isinstance(node, Max) else sympy.StrictLessThan
    holds = sympy.GreaterThan if isinstance(node, Max) else sympy.LessThan
    loses = [_relation(holds, arg, other) for other in moving]
    wins = [_relation(beats, *_unrounded(arg, other)) for other in fixed]
    if not moving:
        return _piecewise((S.One, And(*wins, evaluate=False) if len(wins) > 1 else wins[0]),
                          (S.Zero, True))  # fmt: skip
    if len(moving) == 1:
        tied = _relation(Eq, arg, moving[0])
        first = [_relation(beats, arg, moving[0]), *wins]
        return _piecewise((S.One, _all(first)), (S.Half, _all([tied, *wins])), (S.Zero, True))
    ties = Add(
        S.One,
        *(_piecewise((S.One, _relation(Eq, arg, other)), (S.Zero, True)) for other in moving),
    )
    return _piecewise((1 / ties, _all([*loses, *wins])), (S.Zero, True))


def _relation(kind: type[Relational], a: Expr, b: Expr) -> Relational:
    """A comparison; of the difference where SymPy would turn its sides round without end."""
    plain = kind(a, b, evaluate=False)
    turned = plain.canonical
    return plain if turned.canonical == turned else kind(a - b, S.Zero, evaluate=False)


def _unrounded(arg: Expr, other: Expr) -> tuple[Expr, Expr]:
    """A comparison with a number, of what rounds least: x < 3 for Max(x + 3, 0) < 6.

    x + 3 may round to 6 for an x below 3. In a tie or beyond, nothing changes.
    """
    while other.is_number:
        if isinstance(arg, Max | Min):
            numbers = [each for each in arg.args if each.is_number]
            rest = [each for each in arg.args if not each.is_number]
            above = isinstance(arg, Max)
            clear = all((other > each) if above else (other < each) for each in numbers)
            if len(rest) != 1 or not numbers or not clear:
                break
            (arg,) = rest
        elif isinstance(arg, Add) and arg.args[0].is_Rational:
            constant, rest = arg.as_coeff_Add()
            arg, other = rest, other - constant
        else:
            break
    return arg, other


def _all(conditions: list[Basic]) -> Basic:
    return And(*conditions, evaluate=False) if len(conditions) > 1 else conditions[0]


@dataclass(frozen=True)
class Term:
    """A summand of a linear program's output: what one direction contributes to it."""

    output: int
    direction: int
    expr: Expr


@dataclass(frozen=True)
class Derivation:
    """The expressions of one variant. `variables` are its differentiable symbols.

    vjp: one per variable, in the variables and `grads` (None: no gradient, by the user's word).
    jvp: its terms, in the variables and `tangents`; None if a user's own gradient is not linear
        in `grad`, so that it has no transpose.
    own: whether the gradient is the user's own.
    """

    variables: tuple[Symbol, ...]
    grads: tuple[Symbol, ...]
    tangents: tuple[Symbol, ...]
    forward: tuple[Expr, ...]
    vjp: tuple[Expr | None, ...]
    jvp: tuple[Term, ...] | None
    own: bool


def direction(symbol: Symbol) -> Symbol:
    """The tangent (in a jvp) or the cotangent (in a vjp's vjp) that belongs to `symbol`."""
    return Symbol(f"_d_{symbol.name.lstrip('_')}", real=True)


def derive(definition: Definition, variant: Variant) -> Derivation:
    """The expressions of a variant's forward, vjp and jvp, in heads.

    Raises FormulaError for a function that no backend has.
    """
    key = dict(variant.key)
    leaves = [leaf for leaf in definition.differentiable if key.get(leaf.name, True)]
    variables = tuple(leaf.symbol for leaf in leaves if leaf.symbol is not None)
    grads = definition.grads
    tangents = tuple(direction(symbol) for symbol in variables)

    forward = tuple(_prepared(output, definition) for output in variant.outputs)
    if variant.gradient is not None:
        entries = [
            entry
            for leaf, entry in zip(definition.differentiable, variant.gradient, strict=True)
            if leaf in leaves
        ]
        vjp = tuple(None if e is None else _prepared(e, definition) for e in entries)
        jvp = transposed(vjp, grads, tangents, parameters_of(definition))
        return Derivation(variables, grads, tangents, forward, vjp, jvp, own=True)
    parameters = parameters_of(definition)
    d = Differentiator((*variables, *grads), scales_of(definition))
    jacobian = [[_tidied(d(y, x), parameters) for x in variables] for y in forward]
    vjp = tuple(
        compact(Add(*(g * row[i] for g, row in zip(grads, jacobian, strict=True))))
        for i in range(len(variables))
    )
    jvp = _terms(
        (j, i, t * by)
        for j, row in enumerate(jacobian)
        for i, (t, by) in enumerate(zip(tangents, row, strict=True))
    )
    return Derivation(variables, grads, tangents, forward, vjp, jvp, own=False)


def parameters_of(definition: Definition) -> frozenset[Symbol]:
    """The symbols of numbers and learnable parameters."""
    return frozenset(
        leaf.symbol for leaf in definition.leaves if leaf.symbol and leaf.kind not in TENSORS
    )


def scales_of(definition: Definition) -> frozenset[Symbol]:
    """The parameters with a default that is not 0: what they scale is 0 before they are."""
    return frozenset(
        leaf.symbol
        for leaf in definition.leaves
        if leaf.symbol and leaf.kind not in TENSORS
        if isinstance(leaf.parameter.default, float | int) and leaf.parameter.default != 0
    )


def _prepared(expr: Expr, definition: Definition) -> Expr:
    try:
        parameters = parameters_of(definition)
        prepared = with_regimes(compact(recognise(expr, parameters)))
    except FormulaError as error:
        raise error.at(definition.where) from None
    check_supported(prepared, definition)
    return prepared


def second_order(
    vjp: tuple[Expr | None, ...],
    inputs: tuple[Symbol, ...],
    directions: tuple[Symbol, ...],
    parameters: frozenset[Symbol] = frozenset(),
    scales: frozenset[Symbol] = frozenset(),
    variables: tuple[Symbol, ...] = (),
) -> tuple[Term, ...]:
    """The vjp of a vjp: output k is the gradient of sum(directions * vjp) by `inputs[k]`.

    variables: by which the vjp's entries are the gradients of one function, if they are.
    """
    d = Differentiator((*inputs, *directions), scales)
    slope = _slopes(d, vjp, variables, parameters)
    return _terms(
        (k, i, direction * slope(i, each))
        for k, each in enumerate(inputs)
        for i, direction in enumerate(directions)
        if vjp[i] is not None
    )


def pushed_forward(
    values: tuple[Expr | None, ...],
    inputs: tuple[Symbol, ...],
    tangents: tuple[Symbol, ...],
    parameters: frozenset[Symbol] = frozenset(),
    scales: frozenset[Symbol] = frozenset(),
    variables: tuple[Symbol, ...] = (),
) -> tuple[Term, ...]:
    """The jvp of `values`: output k is the tangent of `values[k]`.

    variables: by which the values are the gradients of one function, if they are.
    """
    d = Differentiator((*inputs, *tangents), scales)
    slope = _slopes(d, values, variables, parameters)
    return _terms(
        (k, i, t * slope(k, each))
        for k, entry in enumerate(values)
        if entry is not None
        for i, (t, each) in enumerate(zip(tangents, inputs, strict=True))
    )


def _slopes(
    d: Differentiator,
    values: tuple[Expr | None, ...],
    variables: tuple[Symbol, ...],
    parameters: frozenset[Symbol],
) -> Callable[[int, Symbol], Expr]:
    """The derivative of a value, by its number, by a symbol.

    Of two gradients of one function, by each other's variable, the first stands for both: what is
    the same in fact is then the same in a program, too.
    """

    @cache
    def slope(number: int, symbol: Symbol) -> Expr:
        if symbol in variables[:number]:
            other = variables.index(symbol)
            if values[other] is not None:
                return slope(other, variables[number])
        value = values[number]
        assert value is not None
        return bounded(_tidied(d(value, symbol), parameters))

    return slope


def transposed(
    vjp: tuple[Expr | None, ...],
    grads: tuple[Symbol, ...],
    tangents: tuple[Symbol, ...],
    parameters: frozenset[Symbol] = frozenset(),
) -> tuple[Term, ...] | None:
    """Forward mode of a user's own gradient: its transpose; None if not linear in `grads`."""
    d = Differentiator(grads)
    terms: list[tuple[int, int, Expr]] = []
    for i, (t, entry) in enumerate(zip(tangents, vjp, strict=True)):
        if entry is None:
            continue
        column = [_tidied(d(entry, g), parameters) for g in grads]
        at_zero = recognise(entry.xreplace(dict.fromkeys(grads, S.Zero)))
        if _nonzero(at_zero) or any(trees.symbols(c) & set(grads) for c in column):
            return None
        terms.extend((j, i, t * by) for j, by in enumerate(column))
    return _terms(terms)


def _nonzero(expr: Expr) -> bool:
    if isinstance(expr, Piecewise):
        return any(_nonzero(value) for value, _ in expr.args)
    return bool(expr != 0)


def _terms(entries: Iterable[tuple[int, int, Expr]]) -> tuple[Term, ...]:
    return tuple(Term(k, i, compact(expr)) for k, i, expr in entries if expr != 0)


@lru_cache(maxsize=10_000)
def _signs_multiplied_out(node: Expr) -> Expr:
    """Signs times sums with terms that have them: the slope of sign(u)*f(|u|) is that of f at 0."""
    if not any(isinstance(each, sympy.sign) for each in trees.nodes(node)):
        return node
    found: Expr = trees.rebuilt(node, [_signs_multiplied_out(arg) for arg in node.args])
    for sign in (each for each in Mul.make_args(found) if isinstance(each, sympy.sign)):
        for total in (each for each in found.args if each.is_Add):
            if any(sign in Mul.make_args(term) for term in total.args):
                terms = [Mul(*_without_square(term, sign)) for term in total.args]
                return Mul(*(each for each in found.args if each not in (sign, total)), Add(*terms))
    return found


def _without_square(term: Expr, sign: Expr) -> list[Expr]:
    """The factors of a term times a sign, which squared is 1."""
    factors = list(Mul.make_args(term))
    return [each for each in factors if each != sign] if sign in factors else [*factors, sign]


def _tidied(derivative: Expr, parameters: frozenset[Symbol]) -> Expr:
    # Differentiation makes new products: exp(u)*sigmoid(-u), x*sign(x).
    tidied = compact(settled(recognise(elementary(derivative), parameters)))
    tidied = recognise(tidied, parameters)
    if (signed := _signs_multiplied_out(tidied)) != tidied:
        tidied = recognise(signed, parameters)
    return with_regimes(settled(tidied))
