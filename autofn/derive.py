"""Derivation, heads first: from a user's expressions to those of every program.

`recognise` turns what was written into stable heads *before* anything is differentiated, so that
the derivatives stay stable as well. `derive` gives, per variant, the expressions of the five
programs: forward, vjp, its own vjp (double backward), jvp, and the jvp of the vjp.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import sympy
from sympy import (
    Add,
    And,
    Basic,
    Eq,
    Expr,
    Max,
    Min,
    Mul,
    Piecewise,
    Pow,
    S,
    Symbol,
    exp,
    log,
    sin,
    sqrt,
    tanh,
)

from autofn import functions as heads
from autofn import trees
from autofn.errors import FormulaError
from autofn.model import TENSORS, Definition, Variant
from autofn.ops import BY_CLASS, STRUCTURAL

# --- recognition ---------------------------------------------------------------------------


def recognise(expr: Expr, parameters: frozenset[Symbol] = frozenset()) -> Expr:
    """The same function with its heads found: `1/(1 + exp(-x))` becomes `sigmoid(x)`.

    Values are equal wherever what was written is finite. Kinks stay where they are. `parameters`
    are symbols of moderate values, numbers and learnable parameters.
    """
    seen: dict[Basic, Basic] = {}

    def visit(node: Basic) -> Basic:
        if node in seen:
            return seen[node]
        if not node.args or node.is_Number:
            result = node
        else:
            args = [visit(arg) for arg in node.args]
            rebuilt = (
                node
                if all(a is b for a, b in zip(args, node.args, strict=True))
                else (_rebuild(node, args))
            )
            result = _rewritten(rebuilt, parameters)
        seen[node] = result
        return result

    return visit(expr)


def _rebuild(node: Basic, args: list[Basic]) -> Basic:
    if isinstance(node, Piecewise):
        # Evaluation would reorder and simplify conditions, at a price and to no gain.
        return Piecewise(*args, evaluate=False)
    return node.func(*args)


def _rewritten(node: Basic, parameters: frozenset[Symbol]) -> Basic:
    for kind, rule in _RULES:
        if isinstance(node, kind):
            new = rule(node)
            if new is not None and new != node:
                # A rule's result may be open to others: log(sigmoid) gives softplus.
                return recognise(new, parameters) if new.args else new
    return _guarded(node, parameters) if isinstance(node, Mul) else node


def _guarded(product: Mul, parameters: frozenset[Symbol]) -> Expr:
    """v * exp(u) as one head where exp may overflow while the product does not."""
    growing = [
        f for f in product.args if isinstance(f, exp) and not _bounded(f.args[0], parameters)
    ]
    if not growing:
        return product
    vanishing = [f for f in product.args if f is not growing[0] and _varies(f, parameters)]
    if not vanishing:
        return product
    rest = [f for f in product.args if f is not growing[0] and f not in vanishing]
    return Mul(*rest, heads.times_exp(Mul(*vanishing), growing[0].args[0]))


def _bounded(exponent: Expr, parameters: frozenset[Symbol]) -> bool:
    """Whether the exponent is never positive, taking parameters to be positive."""
    positive = {p: Symbol(p.name, positive=True) for p in parameters}
    return bool(exponent.xreplace(positive).is_nonpositive)


def _varies(factor: Expr, parameters: frozenset[Symbol]) -> bool:
    """Whether a factor depends on a tensor other than a cotangent or tangent (`_grad`, `_d_x`)."""
    return any(not s.name.startswith("_") for s in trees.symbols(factor) - parameters)


def _alias(definition: Callable[..., Expr]) -> Callable[[Basic], Basic]:
    return lambda node: definition(*node.args)


def _log(node: Basic) -> Basic | None:
    (u,) = node.args
    if isinstance(u, heads.sigmoid):
        return -heads.softplus(-u.args[0])
    if isinstance(u, sympy.cosh):
        return heads.logcosh(u.args[0])
    if isinstance(u, Add) and u.args[0] == 1:
        rest = u - 1
        if isinstance(rest, exp):
            return heads.softplus(rest.args[0])
        return heads.log1p(rest)
    return None


def _add(node: Basic) -> Basic | None:
    """Rules on `constant + coefficient * head`, which would cancel, and softplus in two parts."""
    constant, rest = node.as_coeff_Add()
    terms = list(Add.make_args(rest))
    for index, term in enumerate(terms):
        k, head = term.as_coeff_Mul()
        others = terms[:index] + terms[index + 1 :]
        new: Expr | None = None
        if constant != 0 and abs(constant) == abs(k):
            u = head.args[0] if head.args else S.Zero
            plus = constant == k
            if isinstance(head, exp) and not plus:
                new = k * heads.expm1(u)
            elif isinstance(head, heads.sigmoid) and not plus:
                new = -k * heads.sigmoid(-u)
            elif isinstance(head, sympy.erf):
                # Not erfc(-u): SymPy would turn that into 2 - erfc(u), which cancels.
                new = 2 * k * heads.normcdf(sqrt(2) * u) if plus else -k * sympy.erfc(u)
            elif isinstance(head, tanh):
                new = 2 * k * heads.sigmoid(2 * u if plus else -2 * u)
                new = new if plus else -new
        if constant != 0 and constant == -2 * k and isinstance(head, sympy.erfc):
            new = constant * heads.normcdf(sqrt(2) * head.args[0])
        if new is not None:
            return Add(*others, new)
        if isinstance(head, Max) and len(head.args) == 2 and 0 in head.args:
            # max(u, 0) + log(1 + exp(-|u|)) is softplus(u), smooth at 0.
            u = Add(*head.args)
            twin = k * heads.softplus(-sympy.Abs(u))
            if twin in others:
                others.remove(twin)
                return Add(constant, *others, k * heads.softplus(u))
            # max(u, 0) + min(c*expm1(u/c), 0) never adds two parts: both have the sign of u.
            for other in others:
                scale, low = other.as_coeff_Mul()
                if scale == k and isinstance(low, Min) and len(low.args) == 2 and 0 in low.args:
                    v = Add(*low.args)
                    if _signed_as(v, u):
                        others.remove(other)
                        joined = Piecewise((u, u > 0), (v, True), evaluate=False)
                        return Add(constant, *others, k * joined)
    return None


def _signed_as(v: Expr, u: Expr) -> bool:
    """Whether v is c*expm1(u/c), which has the sign of u for any c."""
    found = v.atoms(heads.expm1)
    if len(found) != 1:
        return False
    (head,) = found
    c = v / head
    return not c.has(head) and sympy.expand_mul(c * head.args[0] - u) == 0


def _mul(node: Basic) -> Basic | None:
    factors = list(node.args)
    for i, factor in enumerate(factors):
        if isinstance(factor, exp):
            # exp(u) * sigmoid(-u) = sigmoid(u)
            for j, other in enumerate(factors):
                base, power = other.as_base_exp()
                if not (isinstance(base, heads.sigmoid) and power.is_Integer and power >= 1):
                    continue
                if _opposite(factor.args[0], base.args[0]):
                    rest = [f for n, f in enumerate(factors) if n not in (i, j)]
                    return Mul(*rest, heads.sigmoid(factor.args[0]), base ** (power - 1))
        base, power = factor.as_base_exp()
        if isinstance(base, sin) and power.is_Integer and power >= 1:
            # sin(c*d) / d = c * sinc(c*d): the limit at d = 0 is a value like any other.
            for j, other in enumerate(factors):
                d, down = other.as_base_exp()
                if not (down.is_Integer and down <= -1 and d.free_symbols):
                    continue
                ratio = base.args[0] / d
                if not ratio.free_symbols & d.free_symbols:
                    rest = [f for n, f in enumerate(factors) if n not in (i, j)]
                    sinc = heads.sinc(base.args[0])
                    return Mul(*rest, ratio, sinc, base ** (power - 1), d ** (down + 1))
        if isinstance(factor, sympy.sign) and factor.args[0] in factors:
            rest = [f for f in factors if f not in (factor, factor.args[0])]
            return Mul(*rest, sympy.Abs(factor.args[0]))
    return None


def _opposite(u: Expr, v: Expr) -> bool:
    return bool(u == -v or (trees.size(u) < LIMIT and sympy.expand_mul(u + v) == 0))


def _pow(node: Basic) -> Basic | None:
    base, exponent = node.args
    if base is S.Exp1:
        return exp(exponent, evaluate=False)
    if not exponent.is_number:
        return _power(base, exponent)
    if exponent.is_Integer and exponent < 0 and isinstance(base, Add):
        constant, rest = base.as_coeff_Add()
        k, head = rest.as_coeff_Mul()
        if constant != 0 and constant == k and isinstance(head, exp):
            # 1 / (1 + exp(u)) = sigmoid(-u)
            return k**exponent * heads.sigmoid(-head.args[0]) ** (-exponent)
    if exponent.is_Rational and exponent.q == 3:
        return heads.cbrt(base) ** exponent.p
    return None


def _power(base: Expr, exponent: Expr) -> Expr:
    if isinstance(base, Add) and base.args[0] == 1 and isinstance(base - 1, exp):
        # SymPy writes sigmoid(x)**g as (1 + exp(-x))**(-g), which overflows.
        return exp(exponent * heads.softplus((base - 1).args[0]))
    if isinstance(base, heads.sigmoid):
        return exp(-exponent * heads.softplus(-base.args[0]))
    if base.is_number and base.is_positive:
        return exp(exponent * log(base))
    return heads.power(base, exponent)


def _heaviside(node: Basic) -> Basic:
    u, at_zero = node.args
    # Last the argument itself: neither above, below nor at 0, it is NaN, and stays so.
    return Piecewise(
        (S.One, u > 0), (S.Zero, u < 0), (at_zero, Eq(u, 0)), (sympy.sign(u), True),
        evaluate=False,
    )  # fmt: skip


def _polygamma(node: Basic) -> Basic | None:
    if not (node.args[0].is_Integer and node.args[0] >= 0):
        raise FormulaError(
            f"polygamma of order {node.args[0]}",
            remedy="the order is a whole number known when the formula is written",
        )
    return None


_RULES: tuple[tuple[type, Callable[[Basic], Basic | None]], ...] = (
    (log, _log),
    (Add, _add),
    (Mul, _mul),
    (Pow, _pow),
    (sympy.Heaviside, _heaviside),
    (sympy.sinc, _alias(heads.sinc)),
    (sympy.sec, _alias(lambda u: 1 / sympy.cos(u))),
    (sympy.csc, _alias(lambda u: 1 / sympy.sin(u))),
    (sympy.cot, _alias(lambda u: 1 / sympy.tan(u))),
    (sympy.asec, _alias(lambda u: sympy.acos(1 / u))),
    (sympy.acsc, _alias(lambda u: sympy.asin(1 / u))),
    (sympy.acot, _alias(lambda u: sympy.atan(1 / u))),
    (sympy.sech, _alias(lambda u: 1 / sympy.cosh(u))),
    (sympy.csch, _alias(lambda u: 1 / sympy.sinh(u))),
    (sympy.coth, _alias(lambda u: 1 / tanh(u))),
    (sympy.asech, _alias(lambda u: sympy.acosh(1 / u))),
    (sympy.acsch, _alias(lambda u: sympy.asinh(1 / u))),
    (sympy.acoth, _alias(lambda u: sympy.atanh(1 / u))),
    (sympy.frac, _alias(lambda u: u - sympy.floor(u))),
    (sympy.Mod, _alias(lambda a, b: a - b * sympy.floor(a / b))),
    (sympy.factorial, _alias(lambda u: sympy.gamma(u + 1))),
    (sympy.digamma, _alias(lambda u: sympy.polygamma(0, u))),
    (sympy.trigamma, _alias(lambda u: sympy.polygamma(1, u))),
    (sympy.polygamma, _polygamma),
    (sympy.beta, _alias(lambda a, b, *_: exp(sympy.loggamma(a) + sympy.loggamma(b)
                                             - sympy.loggamma(a + b)))),
    (sympy.Xor, lambda node: node.rewrite(And)),
    (sympy.ITE, lambda node: node.to_nnf(simplify=False)),
    (sympy.Implies, lambda node: node.to_nnf(simplify=False)),
    (sympy.Equivalent, lambda node: node.to_nnf(simplify=False)),
    (sympy.Derivative, lambda node: node.doit()),
)  # fmt: skip


SUPPORTED_NAMES = sorted(
    {kind.__name__ for kind in BY_CLASS}
    | {kind.__name__ for kind, _ in _RULES}
    | {"sqrt", "Max", "Min", "Piecewise", "Rational", "pi", "E", *heads.__all__}
)
"""What a formula may call, for error messages."""


def check_supported(expr: Expr, definition: Definition) -> None:
    """Raises FormulaError, naming the function and the nearest supported one, or the number."""
    for number in _numbers(expr):
        _check_number(number, definition)
    for node in trees.nodes(expr):
        if node.is_Symbol or (node.is_number and not node.has(sympy.Function)):
            continue
        if isinstance(
            node, (*STRUCTURAL, *BY_CLASS, sympy.functions.elementary.piecewise.ExprCondPair)
        ):
            continue
        if node in (S.true, S.false):
            continue
        name = node.func.__name__
        if name in ("DiracDelta", "SingularityFunction"):
            remedy = "it has no value at its peak; leave it out, derivatives of steps are 0"
        else:
            close = difflib.get_close_matches(name, SUPPORTED_NAMES, 1, 0.0)
            remedy = f"the nearest supported one is {close[0]}; write it out of supported functions"
            if name in ("Sum", "Product", "Integral", "Limit"):
                remedy = "write it out as an expression; Python's own loops and sum() work"
        raise FormulaError(
            f"{definition.name} uses {name}, which autofn does not support",
            where=definition.locate(name),
            remedy=remedy,
        )


def _numbers(expr: Basic) -> Iterator[Expr]:
    """The largest subexpressions that are numbers: computed when the package is generated."""
    seen: set[Basic] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            if isinstance(node, Expr) and not trees.symbols(node):
                yield node
            else:
                stack.extend(node.args)


def _check_number(number: Expr, definition: Definition) -> None:
    value = number if number.is_Integer or number.is_infinite else number.evalf(15)
    if value.has(S.ImaginaryUnit):
        what, remedy = "is not real", "a formula is real for real inputs: take a real form of it"
    elif value.is_number and value.is_finite and abs(value) > LARGEST:
        what, remedy = "is beyond the largest float64", "scale the formula"
    else:
        return
    text = str(number)
    shown = text if len(text) <= 40 else f"{text[:37]}..."
    raise FormulaError(
        f"{definition.name} contains {shown}, which {what}", where=definition.where, remedy=remedy
    )


LARGEST = 2**1024 - 2**970
"""The largest finite float64."""


# --- differentiation -----------------------------------------------------------------------


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
    without a gradient" in a tie of Max or Min. Never a DiracDelta, never a Derivative.
    """

    def __init__(self, variables: Iterable[Symbol]):
        self._variables = frozenset(variables)
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
            terms = []
            for i, factor in enumerate(expr.args):
                by = self(factor, symbol)
                if by != 0:
                    terms.append(Mul(by, *(f for j, f in enumerate(expr.args) if j != i)))
            return Add(*terms)
        if isinstance(expr, Pow):
            base, exponent = expr.args  # a number: others are heads by now
            return exponent * base ** (exponent - 1) * self(base, symbol)
        if isinstance(expr, Piecewise):
            return _piecewise(*((self(value, symbol), where) for value, where in expr.args))
        if isinstance(expr, Max | Min):
            return Add(
                *(
                    _share(expr, arg, self._variables) * self(arg, symbol)
                    for arg in expr.args
                    if moves(arg, self._variables)
                )
            )
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
    loses = [holds(arg, other, evaluate=False) for other in moving]
    wins = [beats(arg, other, evaluate=False) for other in fixed]
    if not moving:
        return _piecewise((S.One, And(*wins, evaluate=False) if len(wins) > 1 else wins[0]),
                          (S.Zero, True))  # fmt: skip
    if len(moving) == 1:
        tied = Eq(arg, moving[0], evaluate=False)
        first = [beats(arg, moving[0], evaluate=False), *wins]
        return _piecewise((S.One, _all(first)), (S.Half, _all([tied, *wins])), (S.Zero, True))
    ties = Add(
        S.One,
        *(_piecewise((S.One, Eq(arg, other, evaluate=False)), (S.Zero, True)) for other in moving),
    )
    return _piecewise((1 / ties, _all([*loses, *wins])), (S.Zero, True))


def _all(conditions: list[Basic]) -> Basic:
    return And(*conditions, evaluate=False) if len(conditions) > 1 else conditions[0]


# --- the programs --------------------------------------------------------------------------


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
    d = Differentiator((*variables, *grads))
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


def _prepared(expr: Expr, definition: Definition) -> Expr:
    try:
        prepared = recognise(expr, parameters_of(definition))
        prepared = compact(prepared)
    except FormulaError as error:
        raise error.at(definition.where) from None
    check_supported(prepared, definition)
    return prepared


def second_order(
    vjp: tuple[Expr | None, ...],
    inputs: tuple[Symbol, ...],
    directions: tuple[Symbol, ...],
    parameters: frozenset[Symbol] = frozenset(),
) -> tuple[Term, ...]:
    """The vjp of a vjp: output k is the gradient of sum(directions * vjp) by `inputs[k]`."""
    d = Differentiator((*inputs, *directions))
    return _terms(
        (k, i, direction * _tidied(d(entry, each), parameters))
        for k, each in enumerate(inputs)
        for i, (direction, entry) in enumerate(zip(directions, vjp, strict=True))
        if entry is not None
    )


def pushed_forward(
    values: tuple[Expr | None, ...],
    inputs: tuple[Symbol, ...],
    tangents: tuple[Symbol, ...],
    parameters: frozenset[Symbol] = frozenset(),
) -> tuple[Term, ...]:
    """The jvp of `values`: output k is the tangent of `values[k]`."""
    d = Differentiator((*inputs, *tangents))
    return _terms(
        (k, i, t * _tidied(d(entry, each), parameters))
        for k, entry in enumerate(values)
        if entry is not None
        for i, (t, each) in enumerate(zip(tangents, inputs, strict=True))
    )


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


def _tidied(derivative: Expr, parameters: frozenset[Symbol]) -> Expr:
    # Differentiation makes new products: exp(u)*sigmoid(-u), x*sign(x).
    return compact(recognise(derivative, parameters))


LIMIT = 60
"""Operations beyond which rearranging an expression costs more time than it can save."""


def compact(expr: Expr) -> Expr:
    """The cheapest of: as it stands, common factors pulled out, one reduced fraction.

    What functions are applied to stays as it is: the same in forward and in every gradient, it is
    computed once.
    """
    if isinstance(expr, Piecewise):
        return _compact_piecewise(expr)
    if not isinstance(expr, Add | Mul):
        return expr
    hidden, shown = _skeleton(expr)
    candidates = [sympy.factor_terms(hidden, sign=False), hidden]
    if trees.size(hidden) <= LIMIT and _divides_by_sum(hidden):
        candidates.append(_fraction(hidden))
    return min(candidates, key=_size).xreplace(shown)


def _compact_piecewise(expr: Piecewise) -> Expr:
    return Piecewise(*((compact(value), where) for value, where in expr.args), evaluate=False)


def _skeleton(expr: Expr) -> tuple[Expr, dict[Symbol, Expr]]:
    """Its sums, products and whole powers; what they are made of stands hidden behind symbols."""
    hidden: dict[Expr, Symbol] = {}
    deepest = 3 if trees.size(expr) > 5 * LIMIT else LIMIT

    def visit(node: Expr, depth: int) -> Expr:
        if not node.args or node.is_Number:
            return node
        if isinstance(node, Add | Mul) and depth < deepest:
            return node.func(*(visit(arg, depth + 1) for arg in node.args))
        if isinstance(node, Pow) and node.exp.is_Rational and depth < deepest:
            return visit(node.base, depth) ** node.exp
        return hidden.setdefault(node, Symbol(f"_s{len(hidden)}", real=True))

    skeleton = visit(expr, 0)
    return skeleton, {symbol: _compact_inside(node) for node, symbol in hidden.items()}


def _compact_inside(node: Expr) -> Expr:
    """The parts of a function that differentiation has made, and not the user."""
    if isinstance(node, Piecewise):
        return _compact_piecewise(node)
    if isinstance(node, heads.times_exp):
        return heads.times_exp(compact(node.args[0]), node.args[1])
    return node


def _divides_by_sum(expr: Expr) -> bool:
    return isinstance(expr, Add | Mul) and any(
        power.exp.is_negative and isinstance(power.base, Add) and power.base.free_symbols
        for power in expr.atoms(Pow)
    )


VARIABLES = 8
"""Variables beyond which reducing a fraction takes too long."""


def _fraction(expr: Expr) -> Expr:
    """One fraction in lowest terms, its roots opaque; the expression itself if that fails."""
    if expr.has(sympy.Float):
        # Polynomial arithmetic on floats is inexact.
        return expr
    roots = sorted(
        (power for power in expr.atoms(Pow) if not power.exp.is_Integer), key=sympy.default_sort_key
    )
    opaque = {root: Symbol(f"_h{k}", real=True) for k, root in enumerate(roots)}
    hidden = expr.xreplace(opaque)
    if len(hidden.free_symbols) > VARIABLES:
        return expr
    shown = {symbol: root for root, symbol in opaque.items()}
    return sympy.factor(sympy.together(hidden)).xreplace(shown).xreplace(shown)


def _size(expr: Expr) -> int:
    return int(sympy.count_ops(expr))
