"""Compensation: what an argument lost in rounding, given to the functions that magnify it.

exp(u) has as many roundings of u as u is large, sin(u) as many as it has turns. For kernels, a
program computes beside such a u what its roundings lost, as sums and products tell exactly, and
calls the function with both. A result that is itself such a sum may get back what it lost too.
"""

from __future__ import annotations

from collections.abc import Iterable

from sympy import Expr, Integer, Rational

from autofn.program import Node, Output, Program

MAGNIFYING = {
    "exp": 0,
    "exp_within": 0,
    "sigmoid": 0,
    "softplus": 0,
    "sech2": 0,
    "sin": 0,
    "cos": 0,
    "sinc": 0,
    "spherical_bessel": 0,
    "sinpi": 0,
    "cospi": 0,
    "sincpi": 0,
    "spherical_bessel_pi": 0,
    "times_exp": 1,
    "times_lower": 1,
    "times_sigmoid": 1,
    "times_sech2": 1,
    "decay": 0,
    "sigmoid_minus": 0,
    "times_sigmoid_minus": 1,
    "sinh": 0,
    "cosh": 0,
    "expm1": 0,
    "erfc": 0,
    "normcdf": 0,
    "times_normcdf": 1,
}
"""Functions with a variant `_of_sum`, and which of their arguments is in two parts there."""


def compensated(program: Program, *, sums: bool = False) -> Program:
    """The program with the arguments of magnifying functions in two parts where they round.

    sums: so are the sums that are results, whose terms may cancel.
    """
    return _Compensation(program).run(sums)


FINITE = Integer(2**126)
"""Results from here on stay as they are: what an overflowing sum lost is not a number."""


class _Compensation:
    def __init__(self, program: Program):
        self._program = program
        self._nodes: list[Node] = []
        self._index: dict[Node, int] = {}
        self._rests: dict[int, int | None] = {}

    def run(self, sums: bool) -> Program:
        new: list[int] = []
        for node in self._program.nodes:
            args = tuple(new[arg] for arg in node.args)
            if node.op == "pow":
                new.append(self._power(*args))
                continue
            position = MAGNIFYING.get(node.op)
            rest = None if position is None else self._rest(args[position])
            if rest is None:
                new.append(self._add(node.op, args, node.n, node))
            else:
                if node.op == "decay":
                    # exp(-|u|) of what is left of -|u|.
                    rest = self._add("neg", (rest,))
                new.append(self._add(f"{node.op}_of_sum", (*args, rest), node.n))
        kept = self._restored if sums else lambda index: index
        outputs = tuple(
            Output(o.name, None if o.node is None else kept(new[o.node]), o.like, o.direction)
            for o in self._program.outputs
        )
        return Program(self._program.inputs, tuple(self._nodes), outputs)

    def _power(self, base: int, exponent: int) -> int:
        """A power, of what its base and its exponent lost too."""
        rests = self._rest(base), self._rest(exponent)
        if rests == (None, None):
            return self._add("pow", (base, exponent))
        zero = self._add("constant", old=Node("constant", constant=Integer(0), number=True))
        parts = (zero if rest is None else rest for rest in rests)
        return self._add("pow_in_parts", (base, exponent, *parts))

    def _add(
        self, op: str, args: tuple[int, ...] = (), n: int | None = None, old: Node | None = None
    ) -> int:
        parents = [self._nodes[arg] for arg in args]
        node = Node(
            op,
            args,
            n,
            None if old is None else old.constant,
            None if old is None else old.input,
            frozenset[str]().union(*(p.axes for p in parents)) if parents or not old else old.axes,
            all(p.number for p in parents) if parents or not old else old.number,
        )
        if node not in self._index:
            self._index[node] = len(self._nodes)
            self._nodes.append(node)
        return self._index[node]

    def _restored(self, index: int) -> int:
        """A sum with what it lost; any other value as it is."""
        rest = self._rest(index) if self._nodes[index].op in ("add", "sub") else None
        if rest is None:
            return index
        most = self._add("constant", old=Node("constant", constant=FINITE, number=True))
        finite = self._add("lt", (self._add("abs", (index,)), most))
        return self._add("select", (finite, self._add("add", (index, rest)), index))

    def _rest(self, index: int) -> int | None:
        """What the value lacks; None where that is nothing, or not known."""
        if index not in self._rests:
            self._rests[index] = self._lost(index, self._nodes[index])
        return self._rests[index]

    def _lost(self, index: int, node: Node) -> int | None:
        if node.op == "constant":
            assert node.constant is not None
            if _is_exact(node.constant):
                return None
            return self._add("constant_rest", old=node)
        if node.op in ("add", "sub"):
            a, b = node.args
            if node.op == "sub":
                b = self._add("neg", (b,))
            return self._total([self._add("sum_rest", (a, b)), self._rest(a), self._rest(b)])
        if node.op in ("mul", "square"):
            a, b = node.args if node.op == "mul" else node.args * 2
            if (power := self._scale(a, b)) is not None:
                scale, other = power
                rest = self._rest(other)
                return None if rest is None else self._add("mul", (scale, rest))
            return self._product_lost(a, b)
        if node.op == "powi" and node.n == 3:
            # powi<3> multiplies the square by x.
            (x,) = node.args
            square = self._add("square", (x,))
            return self._product_lost(square, x)
        if node.op == "neg":
            rest = self._rest(node.args[0])
            return None if rest is None else self._add("neg", (rest,))
        if node.op == "abs":
            (u,) = node.args
            if (rest := self._rest(u)) is None:
                return None
            zero = self._add("constant", old=Node("constant", constant=Integer(0), number=True))
            below = self._add("lt", (u, zero))
            return self._add("select", (below, self._add("neg", (rest,)), rest))
        if node.op == "along":
            direction, v = node.args
            rest = self._rest(v)
            return None if rest is None else self._add("along", (direction, rest))
        if node.op == "select":
            condition, a, b = node.args
            rests = (self._rest(a), self._rest(b))
            if rests == (None, None):
                return None
            zero = self._add("constant", old=Node("constant", constant=Integer(0), number=True))
            return self._add("select", (condition, *(zero if r is None else r for r in rests)))
        if node.op == "div" and self._rest(node.args[1]) is None:
            a, b = node.args
            # a - q b is exact.
            left = self._add("neg", (self._add("product_rest", (index, b)),))
            exact = self._add("sub", (a, self._add("mul", (index, b))))
            total = self._total([exact, left, self._rest(a)])
            assert total is not None
            if not self._nodes[b].number:
                return self._add("div", (total, b))
            # Dividing by a number is one reciprocal for all elements.
            one = self._add("constant", old=Node("constant", constant=Integer(1), number=True))
            return self._add("mul", (total, self._add("div", (one, b))))
        return None

    def _product_lost(self, a: int, b: int) -> int:
        total = self._add("product_rest", (a, b))
        for value, other in ((a, b), (b, a)):
            if (rest := self._rest(other)) is not None:
                total = self._add("fma", (value, rest, total))
        return total

    def _scale(self, a: int, b: int) -> tuple[int, int] | None:
        """The factor that is a power of two, by which a product is exact, and the other."""
        for scale, other in ((a, b), (b, a)):
            constant = self._nodes[scale].constant
            if constant is not None and _is_power_of_two(constant):
                return scale, other
        return None

    def _total(self, parts: Iterable[int | None]) -> int | None:
        total: int | None = None
        for part in parts:
            if part is not None:
                total = part if total is None else self._add("add", (total, part))
        return total


def _is_exact(constant: Expr) -> bool:
    """Whether the constant is a number of single precision."""
    if not isinstance(constant, Rational):
        return False
    q = int(constant.q)
    return q & (q - 1) == 0 and abs(int(constant.p)) < 2**24


def _is_power_of_two(constant: Expr) -> bool:
    if not isinstance(constant, Rational) or constant == 0:
        return False
    p, q = abs(int(constant.p)), int(constant.q)
    return p & (p - 1) == 0 and q & (q - 1) == 0
