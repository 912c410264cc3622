"""Programs: a formula's expressions as statements in static single assignment.

Every value has a set of named axes: a plain tensor runs over ELEMENT, a per-channel parameter
over CHANNEL, a learnable scalar and a number over none. A `map` node applies one scalar operation
to values that broadcast; `reduce` sums a value over the axes that a given input lacks, the
transpose of that broadcasting, and so the last step of an input's gradient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import sympy
from sympy import Add, Basic, Dummy, Expr, Max, Min, Mul, Piecewise, Pow, Rational, S, Symbol
from sympy.logic.boolalg import BooleanFunction

from autofn import functions as heads
from autofn import trees
from autofn.derive import moves
from autofn.ops import BY_CLASS, OPS, WAVES
from autofn.rewrite.heads import along, choose, decay, exp_within, inverse, offset, polynomial

ELEMENT = "element"
CHANNEL = "channel"

Axes = frozenset[str]

Arithmetic = Literal[
    "quick", "single", "rescued", "wary", "quick double", "double", "double-double"
]
"""How a kernel computes elements of float32 or 16-bit types: in single precision, on a GPU with
functions of 16-bit types' digits; in single precision; in double where that gives no finite number,
or a tiny one; or 0 either; all in double, with functions of more digits than single precision has;
or all in double. Those of float64 are computed in double, or in numbers of two doubles."""

OVERHEAD = {
    "quick": (1.0, 0.0),
    "single": (1.0, 0.0),
    "rescued": (1.0, 3.0),
    "wary": (1.0, 4.0),
    "quick double": (2.0, 2.0),
    "double": (2.5, 2.0),
    "double-double": (40.0, 0.0),
}
"""What an arithmetic makes of a cost in single precision: a factor, and a summand."""


@dataclass(frozen=True)
class Input:
    """An input of a program. A `number` is one Python number, else it is a tensor."""

    name: str
    axes: Axes
    number: bool = False


@dataclass(frozen=True)
class Node:
    """One value: an input, a constant, or an operation of `ops.OPS` on earlier values.

    `n` is the static parameter of powi, polygamma, Bessel functions, phi and polynomial. `number`
    says that the value depends on Python numbers alone.
    """

    op: str
    args: tuple[int, ...] = ()
    n: int | None = None
    constant: Expr | None = None
    input: str | None = None
    axes: Axes = frozenset()
    number: bool = False

    def of(self, args: tuple[int, ...]) -> Node:
        """The same of other values."""
        if args == self.args:
            return self
        return Node(self.op, args, self.n, self.constant, self.input, self.axes, self.number)


def operation(nodes: Sequence[Node], op: str, args: tuple[int, ...], n: int | None = None) -> Node:
    """An operation on some of these values."""
    parents = [nodes[arg] for arg in args]
    axes = frozenset[str]().union(*(parent.axes for parent in parents))
    return Node(op, args, n, axes=axes, number=all(parent.number for parent in parents))


SHARED = 12.0
"""What sin, cos and sinc of the same argument have in common: all but the choice of polynomial."""


def _cost(node: Node) -> float:
    if node.op == "polynomial":
        return max(1, len(node.args) - 2 - (node.n or 0))
    return OPS[node.op].cost if node.op in OPS else 0.0


@dataclass(frozen=True)
class Output:
    """A result, or one summand of it.

    `like` names the input to whose axes it is summed (`reduce`), if any. In a linear program,
    `direction` names the tangent or cotangent that this summand belongs to: a direction that is
    absent contributes nothing, and its summand is not computed.
    """

    name: str
    node: int | None
    like: str | None = None
    direction: str | None = None


@dataclass(frozen=True)
class Program:
    """Inputs, values in order of definition, and outputs (node None: no value, `None`).

    arithmetic: of elements of float32; arithmetic16: of 16-bit types, whose results are rounded to
    so few digits that they may do with less. Never more than the first. wide: the program of
    float64, where that is another one. first: what CPUs try before this one, of float32; where a
    result of it is not finite, this one's is taken.
    """

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]
    arithmetic: Arithmetic = "single"
    arithmetic16: Arithmetic = "single"
    wide: Program | None = None
    first: Program | None = None

    @property
    def tries_first(self) -> bool:
        """Whether `first` is tried: not where 16-bit types do with another arithmetic."""
        if self.first is None:
            return False
        return self.is_in_double if self.first.is_in_double else self.arithmetic == "single"

    @property
    def is_in_double(self) -> bool:
        """Whether elements of float32 are computed in double, all of them."""
        return self.arithmetic in ("quick double", "double")

    @property
    def operations(self) -> int:
        """How many scalar operations an element costs."""
        return sum(1 for node in self.nodes if node.op in OPS)

    @property
    def cost(self) -> float:
        factor, summand = OVERHEAD[self.arithmetic]
        waves = [node.args for node in self.nodes if node.op in WAVES]
        saved = SHARED * (len(waves) - len(set(waves)))
        return factor * (sum(_cost(node) for node in self.nodes) - saved) + summand

    def used(self) -> frozenset[str]:
        """Names of the inputs that the outputs depend on."""
        return frozenset(node.input for node in self.nodes if node.input is not None)


@dataclass(frozen=True)
class Result:
    """An `Output` before lowering: its expression; None where there is no value."""

    name: str
    expr: Expr | None
    like: str | None = None
    direction: str | None = None

    def changed(self, change: Callable[[Expr], Expr]) -> Result:
        """The result with its expression changed, if it has one."""
        return self if self.expr is None else replace(self, expr=change(self.expr))


def lower(
    inputs: Sequence[tuple[Symbol, Input]],
    outputs: Sequence[Result],
    without_gradient: frozenset[Symbol] = frozenset(),
    *,
    for_kernels: bool = False,
) -> Program:
    """The program of several expressions, common subexpressions computed once.

    inputs: per input its symbol. `without_gradient`: the symbols that take none, which
    decides how Max and Min print (a tie against such a value has gradient 0). `for_kernels`: with
    the operations that PyTorch lacks, products with functions that may be subnormal.
    """
    given = [result.expr for result in outputs if result.expr is not None]
    shared = _shared(given)
    lowering = _Lowering(dict(inputs), without_gradient, for_kernels)
    for symbol, expr in shared.definitions:
        lowering.define(symbol, expr)
    reduced = iter(shared.expressions)
    results = [
        Output(
            result.name,
            None if result.expr is None else lowering.value(next(reduced)),
            result.like,
            result.direction,
        )
        for result in outputs
    ]
    return pruned(tuple(each for _, each in inputs), lowering.nodes, results)


def summed(program: Program) -> Program:
    """A linear program where every direction is given: the summands of an output added up.

    Of several directions, one that is absent is given as zeros: what belongs to it is 0 then,
    whatever it is multiplied by.
    """
    nodes = list(program.nodes)
    totals: dict[str, Output] = {}
    given = {node.input: k for k, node in enumerate(nodes)}
    several = len({output.direction for output in program.outputs} - {None}) > 1

    def added(op: str, *args: int) -> int:
        nodes.append(operation(nodes, op, args))
        return len(nodes) - 1

    for output in program.outputs:
        node = output.node
        if several and node is not None and output.direction is not None:
            node = added("along", given[output.direction], node)
        before = totals.get(output.name)
        if before is not None and before.node is not None:
            node = before.node if node is None else added("add", before.node, node)
        totals[output.name] = Output(output.name, node, output.like)
    return replace(program, nodes=tuple(nodes), outputs=tuple(totals.values()))


_FOLDED: Mapping[str, Callable[..., Expr]] = {
    "add": Add,
    "sub": lambda a, b: a - b,
    "mul": Mul,
    "neg": lambda a: -a,
}
"""Operations that constants do before the program is written: sqrt(2) / sqrt(pi) is one number."""


@dataclass(frozen=True)
class _Shared:
    definitions: tuple[tuple[Symbol, Expr], ...]
    expressions: tuple[Expr, ...]


def _shared(expressions: list[Expr]) -> _Shared:
    """Joint elimination of common subexpressions, products and sums in part too."""
    parts, outer = _parted(expressions)
    names = sympy.numbered_symbols("_c", real=True)
    definitions, reduced = sympy.cse(
        [*(expr for _, expr in parts), *outer], symbols=names, order="canonical"
    )
    found = [(symbol, expr) for (symbol, _), expr in zip(parts, reduced, strict=False)]
    numbers: dict[Basic, Basic] = {}
    kept: list[tuple[Symbol, Expr]] = []
    for symbol, expr in _in_order([*definitions, *found]):
        expr = expr.xreplace(numbers) if numbers else expr
        if expr.free_symbols:
            kept.append((symbol, expr))
        else:
            numbers[symbol] = expr  # a function of it would be computed at run time
    results = reduced[len(parts) :]
    if numbers:
        results = [expr.xreplace(numbers) for expr in results]
    return _Shared(tuple(kept), tuple(results))


PART = 60
"""Operations beyond which a subexpression that occurs in several places is a part of its own."""


def _parted(expressions: list[Expr]) -> tuple[list[tuple[Symbol, Expr]], list[Expr]]:
    """The expressions with large shared parts named: sympy.cse walks trees, and theirs are huge."""
    uses = Counter(arg for node in trees.nodes(*expressions) for arg in node.args)
    parts: dict[Basic, Symbol] = {}
    seen: dict[Basic, Basic] = {}
    definitions: list[tuple[Symbol, Expr]] = []

    def visit(node: Basic) -> Basic:
        if trees.size(node) <= PART:
            return node
        if node not in seen:
            args = [visit(arg) for arg in node.args]
            # As it was, but for the names: evaluation might rearrange a Piecewise.
            options = {"evaluate": False} if isinstance(node, Piecewise) else {}
            result = node.func(*args, **options)
            if uses[node] > 1 and isinstance(node, Expr):
                symbol = parts[node] = Symbol(f"_p{len(parts)}", real=True)
                definitions.append((symbol, result))
                result = symbol
            seen[node] = result
        return seen[node]

    outer = [visit(expression) for expression in expressions]
    return definitions, outer


def _in_order(definitions: list[tuple[Symbol, Expr]]) -> tuple[tuple[Symbol, Expr], ...]:
    """Each definition after those that it needs."""
    waiting = dict(definitions)
    ordered: list[tuple[Symbol, Expr]] = []

    def place(symbol: Symbol) -> None:
        expr = waiting.pop(symbol)
        for needed in sorted(trees.symbols(expr), key=lambda each: each.name):
            if needed in waiting:
                place(needed)
        ordered.append((symbol, expr))

    for symbol, _ in definitions:
        if symbol in waiting:
            place(symbol)
    return tuple(ordered)


class _Lowering:
    """Expressions to nodes; equal nodes are one."""

    def __init__(
        self,
        inputs: Mapping[Symbol, Input],
        without_gradient: frozenset[Symbol],
        for_kernels: bool,
    ):
        self._inputs = inputs
        self._for_kernels = for_kernels
        self._definitions: dict[Basic, Expr] = {}
        self._index: dict[Node, int] = {}
        self._seen: dict[Basic, int] = {}
        self._moving = frozenset(inputs) - without_gradient
        self.nodes: list[Node] = []

    def define(self, symbol: Symbol, expr: Expr) -> None:
        if moves(expr, self._moving):
            self._moving |= {symbol}
        self._definitions[symbol] = expr
        self._seen[symbol] = self.value(expr)

    def value(self, expr: Basic) -> int:
        if expr not in self._seen:
            self._seen[expr] = self._lowered(expr)
        return self._seen[expr]

    def _add(self, node: Node) -> int:
        if node not in self._index:
            self._index[node] = len(self.nodes)
            self.nodes.append(node)
        return self._index[node]

    def _op(self, op: str, *args: int, n: int | None = None) -> int:
        parents = [self.nodes[arg] for arg in args]
        if op == "neg" and parents[0].op == "neg":
            return parents[0].args[0]
        if self._for_kernels and op in ("sigmoid", "times_sigmoid") and parents[-1].op == "neg":
            return self._op(f"{op}_minus", *args[:-1], parents[-1].args[0])
        if op in _FOLDED:
            constants = [parent.constant for parent in parents if parent.constant is not None]
            if len(constants) == len(parents):
                return self.constant(_FOLDED[op](*constants))
        if op in ("add", "mul") and args[0] > args[1] and self._plain(args):
            args = (args[1], args[0])
        return self._add(operation(self.nodes, op, args, n))

    def _plain(self, args: tuple[int, ...]) -> bool:
        """Whether two operands may change places without hurting the reader: a * x, not x * 2."""
        return all(self.nodes[arg].op not in ("constant",) for arg in args)

    def constant(self, value: Expr) -> int:
        return self._add(Node("constant", constant=value, number=True))

    def _lowered(self, expr: Basic) -> int:
        if isinstance(expr, Symbol):
            each = self._inputs[expr]
            return self._add(Node("input", input=each.name, axes=each.axes, number=each.number))
        if expr in (S.true, S.false):
            return self.constant(expr)
        if isinstance(expr, Expr) and not expr.free_symbols:
            return self.constant(expr)
        if isinstance(expr, Add):
            return self._sum(expr)
        if isinstance(expr, Mul):
            return self._product(expr)
        if isinstance(expr, Pow):
            return self._pow(expr)
        if isinstance(expr, Piecewise):
            return self._select(list(expr.args))
        if isinstance(expr, Max | Min):
            return self._extremum(expr)
        if isinstance(expr, sympy.And | sympy.Or):
            op = "and" if isinstance(expr, sympy.And) else "or"
            first, *rest = expr.args
            result = self.value(first)
            for arg in rest:
                result = self._op(op, result, self.value(arg))
            return result
        if isinstance(expr, inverse):
            return self._op("div", self.constant(S.One), self.value(expr.args[0]))
        if isinstance(expr, choose):
            u, below, above = expr.args
            return self._select([(below, u < 0), (above, S.true)])
        if isinstance(expr, offset):
            x, high, low = expr.args
            return self._less(self._less(self.value(x), high), low)
        if isinstance(expr, polynomial):
            cut, *args = expr.args
            if self._for_kernels:
                return self._op("polynomial", *map(self.value, args), n=int(cut))
            t, first, *rest = args
            at, value = self.value(t), self.value(first)
            for term in rest:
                op = "sub" if term.is_negative else "add"
                value = self._op(op, self._op("mul", at, value), self.value(abs(term)))
            return value
        if isinstance(expr, decay):
            if not self._for_kernels:
                return self.value(sympy.exp(-sympy.Abs(expr.args[0])))
            return self._op("decay", self._op("abs", self.value(expr.args[0])))
        if isinstance(expr, along):
            return self._op("along", *map(self.value, expr.args))
        if isinstance(expr, exp_within):
            limit, u = expr.args
            return self._op("exp_within", self.value(u), n=int(limit))
        if isinstance(expr, sympy.exp) and (square := _scaled_square(expr.args[0])):
            factor, base = square
            at = self.value(base)
            other = self._op("neg", at) if factor == -1 else self._factors(factor, [base])
            return self._op("exp_product", at, other)
        if isinstance(expr, BooleanFunction) and expr.func not in BY_CLASS:
            # ITE, of a piece within a condition; Xor and the like.
            return self.value(expr.to_nnf(simplify=False))
        op = BY_CLASS[expr.func].name
        if op in ("polygamma", "spherical_bessel", "spherical_bessel_pi", "phi"):
            order, *args = expr.args
            if order == 0:
                return self._op("digamma", *map(self.value, args))
            return self._op(op, *map(self.value, args), n=int(order))
        return self._op(op, *(self.value(arg) for arg in expr.args))

    def _less(self, value: int, constant: Expr) -> int:
        if constant == 0:
            return value
        if constant.is_negative:
            return self._op("add", value, self.constant(-constant))
        return self._op("sub", value, self.constant(constant))

    def _sum(self, expr: Expr) -> int:
        terms = expr.as_ordered_terms()
        fixed = [term for term in terms if self._is_fixed(term)]
        signs = {term.could_extract_minus_sign() for term in fixed}
        if len(signs) == 2 and len(fixed) < len(terms):
            # 1 - p of parameters is exact near 0, and has no digits left beside what is small.
            together = Dummy("fixed")
            self._seen[together] = self.value(Add(*fixed))
            terms = [together, *(term for term in terms if term not in fixed)]
        signed = [(term.could_extract_minus_sign(), term) for term in terms]
        # A positive term first, so that the sum needs no negation.
        signed.sort(key=lambda pair: pair[0])
        negative, first = signed[0]
        result = self.value(first)
        for negative, term in signed[1:]:
            result = self._op("sub" if negative else "add", result,
                              self.value(-term if negative else term))  # fmt: skip
        return result

    def _is_fixed(self, term: Expr) -> bool:
        """Whether a term has no tensor in it, numbers and parameters alone."""
        return all(ELEMENT not in self._axes(each) for each in term.free_symbols)

    def _axes(self, symbol: Symbol) -> Axes:
        known = self._inputs.get(symbol)
        return self.nodes[self._seen[symbol]].axes if known is None else known.axes

    def _product(self, expr: Expr) -> int:
        for factor in expr.args:
            chosen = self._definitions.get(factor, factor)
            if isinstance(chosen, Piecewise) and _has_zero(chosen):
                # g * where(c, v, 0) as where(c, g * v, 0): inf * 0 must not make a NaN of the 0.
                rest = Mul(*(f for f in expr.args if f is not factor))
                branches = [(S.Zero if v == 0 else Mul(rest, v), c) for v, c in chosen.args]
                return self._select(branches)
        if self._for_kernels and (tail := self._tail(expr)) is not None:
            return tail
        constant, above, below = S.One, [], []
        for factor in expr.as_ordered_factors():
            if not factor.free_symbols:
                constant *= factor
                continue
            base, exponent = factor.as_base_exp()
            if isinstance(factor, Pow) and exponent.is_number and exponent.is_negative:
                below.append(Pow(base, -exponent))
            else:
                above.append(factor)
        negative = bool(constant.is_negative)
        constant = -constant if negative else constant
        constant, above, below = self._with_number(constant, above, below)
        ratio = self._ratio(above, below) if len(above) > 2 else None
        result = self._factors(constant if above or not below else S.One, above)
        if below:
            if not above:
                result = self.constant(constant)
            result = self._op("div", result, self._factors(S.One, below))
        result = result if ratio is None else self._op("mul", result, ratio)
        return self._op("neg", result) if negative else result

    def _with_number(
        self, constant: Expr, above: list[Expr], below: list[Expr]
    ) -> tuple[Expr, list[Expr], list[Expr]]:
        """The numbers of a quotient as one: it is the same for all elements, and of moderate size.

        4*g*x/(g + 1) overflows before it is divided.
        """
        numbers, divisors = (
            [each for each in factors if self._is_number(each)] for factors in (above, below)
        )
        if not numbers or not divisors or len(numbers) == len(above):
            return constant, above, below
        number = Dummy("number")
        quotient = self._op("div", self._factors(constant, numbers), self._factors(S.One, divisors))
        self._seen[number] = quotient
        above = [number, *(each for each in above if each not in numbers)]
        return S.One, above, [each for each in below if each not in divisors]

    def _is_number(self, factor: Expr) -> bool:
        """Whether all that is in it are numbers known at run time."""
        known = [self._inputs.get(each) for each in factor.free_symbols]
        return bool(known) and all(each is not None and each.number for each in known)

    def _ratio(self, above: list[Expr], below: list[Expr]) -> int | None:
        """u/root_sum(u, c), taken out of a quotient: the product of all above might overflow."""
        for base in below:
            root = self._definitions.get(base, base)
            if isinstance(root, heads.root_sum) and root.args[0] in above:
                above.remove(root.args[0])
                below.remove(base)
                return self._op("div", self.value(root.args[0]), self.value(base))
        return None

    def _tail(self, product: Mul) -> int | None:
        """A product v * f(u) whose f may be subnormal, or 0, where the product is not."""
        found: tuple[int, Expr, Expr] | None = None
        factors = self._flattened(product)
        for k, factor in enumerate(factors):
            coefficient, head = self._definitions.get(factor, factor).as_coeff_Mul()
            rank = list(_TAILS).index(type(head)) if type(head) in _TAILS else None
            if rank is None or (found is not None and found[0] <= rank):
                continue
            if isinstance(head, choose) and self._power_of_decay(head) is None:
                continue
            # It may be there more than once, from two of the products that were taken apart.
            rest = Mul(coefficient, *factors[:k], *factors[k + 1 :])
            if rest.free_symbols:
                found = rank, head, rest
        if found is None:
            return None
        _, head, rest = found
        u = head.args[0]
        if isinstance(head, choose):
            u = Mul(self._power_of_decay(head), u)
        if isinstance(head, sympy.exp) and (square := _scaled_square(u)):
            scale, base = square
            args = (self.value(rest), self.value(base), self._factors(scale, [base]))
            return self._op("times_exp_product", *args)
        return self._op(_TAILS[type(head)], self.value(rest), self.value(u))

    def _power_of_decay(self, head: Expr) -> Expr | None:
        """k of choose(u, decay(u)**k, 1), which is exp(k*u) below zero, else 1."""
        u, below, above = head.args
        below = self._definitions.get(below, below)
        if above != 1:
            return None
        base, power = below.as_base_exp()
        return power if self._definitions.get(base, base) in (decay(u), decay(-u)) else None

    def _flattened(self, product: Expr) -> list[Expr]:
        """The factors, shared products that contain such an f taken apart: it comes last."""
        factors: list[Expr] = []
        for factor in Mul.make_args(product):
            shared = self._definitions.get(factor, factor)
            if factor is not shared and isinstance(shared, Mul) and self._vanishes(shared):
                factors += self._flattened(shared)
            else:
                factors.append(factor)
        return factors

    def _vanishes(self, product: Mul) -> bool:
        heads_of = (self._definitions.get(factor, factor) for factor in product.args)
        return any(
            type(head.as_coeff_Mul()[1]) in _TAILS
            or (head is not product and isinstance(head, Mul) and self._vanishes(head))
            for head in heads_of
        )

    def _factors(self, constant: Expr, factors: list[Expr]) -> int:
        squares = [each for each in factors if each.as_base_exp()[1] == 2]
        parameters = [each for each in factors if self._is_parameter(each)]
        alone = len(squares) == 1 and len(factors) == 1 + len(parameters)
        if self._for_kernels and alone and (parameters or _halves(constant)):
            # c*x*x is finite where x**2 no longer is; what is moderate comes before x.
            factors = [*parameters, *[squares[0].base] * 2]
        result = None if constant == 1 else self.constant(constant)
        for factor in factors:
            value = self.value(factor)
            result = value if result is None else self._op("mul", result, value)
        return self.constant(S.One) if result is None else result

    def _is_parameter(self, factor: Expr) -> bool:
        """Whether it is a learnable parameter or a number, which have moderate values."""
        found = self._inputs.get(factor)
        return found is not None and ELEMENT not in found.axes

    def _pow(self, expr: Pow) -> int:
        base, exponent = expr.args
        if exponent.is_negative:
            if exponent == -S.Half:
                return self._op("rsqrt", self.value(base))
            return self._op("div", self.constant(S.One), self.value(Pow(base, -exponent)))
        if exponent.is_Integer:
            return self._powi(self.value(base), int(exponent))
        if exponent.is_Rational and exponent.q == 2:
            root = self._op("sqrt", self.value(base))
            if exponent.p == 1:
                return root
            whole = self.value(Pow(base, (exponent.p - 1) // 2))
            return self._op("mul", whole, root)
        return self._op("pow", self.value(base), self.constant(exponent))

    def _powi(self, base: int, n: int) -> int:
        return self._op("square", base) if n == 2 else self._op("powi", base, n=n)

    def _select(self, branches: list[tuple[Expr, Basic]]) -> int:
        (value, condition), *rest = branches
        if condition == True:  # noqa: E712
            return self.value(value)
        otherwise = self._select(rest) if rest else self.constant(S.NaN)
        then = self.value(value)
        if then == otherwise:
            return then
        return self._op("select", self.value(condition), then, otherwise)

    def _extremum(self, expr: Max | Min) -> int:
        name = "max" if isinstance(expr, Max) else "min"
        fixed: list[Expr] = []
        moving: list[Expr] = []
        for arg in expr.args:
            (moving if moves(arg, self._moving) else fixed).append(arg)
        if not moving:
            moving, fixed = fixed[:1], fixed[1:]
        result = self.value(moving[0])
        for arg in moving[1:]:
            result = self._op(name, result, self.value(arg))
        for arg in fixed:
            if name == "max" and arg == 0:
                result = self._op("relu", result)
            else:
                # Written as a select: the tie then goes to the side without a gradient.
                value = self.value(arg)
                tie = self._op("le" if name == "max" else "ge", result, value)
                result = self._op("select", tie, value, result)
        return result


_TAILS: Mapping[type, str] = {
    sympy.exp: "times_exp",
    choose: "times_lower",
    heads.normcdf: "times_normcdf",
    heads.sech2: "times_sech2",
    heads.sigmoid: "times_sigmoid",
}
"""Functions that vanish somewhere, and their products. Of several, the first goes last."""


def _scaled_square(exponent: Basic) -> tuple[Expr, Expr] | None:
    """k and u of k*u**2 with k a power of two, up to its sign; its rounding can be made up for."""
    factor, rest = exponent.as_coeff_Mul()
    if not (isinstance(rest, Pow) and rest.exp == 2 and factor.is_Rational):
        return None
    p, q = abs(factor.p), factor.q
    return (factor, rest.base) if p & (p - 1) == 0 and q & (q - 1) == 0 else None


def _halves(constant: Expr) -> bool:
    """Whether a product with it is exact, and smaller: 1/2, 1/4 ... 1/1024."""
    q = constant.q if isinstance(constant, Rational) and constant.p == 1 else 1
    return 1 < q <= 1024 and q & (q - 1) == 0


def _has_zero(piecewise: Piecewise) -> bool:
    return any(value == 0 for value, _ in piecewise.args)


def pruned(inputs: tuple[Input, ...], nodes: list[Node], outputs: Sequence[Output]) -> Program:
    """Without the nodes that no output needs, renumbered in order of definition."""
    needed: set[int] = set()
    stack = [output.node for output in outputs if output.node is not None]
    while stack:
        index = stack.pop()
        if index not in needed:
            needed.add(index)
            stack.extend(nodes[index].args)
    order = {old: new for new, old in enumerate(sorted(needed))}
    kept = tuple(nodes[old].of(tuple(order[a] for a in nodes[old].args)) for old in order)
    renamed = tuple(
        Output(o.name, None if o.node is None else order[o.node], o.like, o.direction)
        for o in outputs
    )
    return Program(inputs, kept, renamed)
