"""What backward can be computed from: the inputs, or outputs in their place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import mpmath
import sympy
from sympy import Expr, Piecewise, S, Symbol
from sympy.core.relational import Relational

from autofn import functions as heads
from autofn import trees
from autofn.derive import Derivation
from autofn.model import Definition, Kind

Vjp = tuple[Expr | None, ...]


@dataclass(frozen=True)
class Option:
    """A vjp, and the tensors that it needs; outputs under their `output_symbol`.

    Lossless: equal to the derivative at every number, however the output was rounded.
    """

    vjp: Vjp
    tensors: tuple[str, ...]
    lossless: bool

    @property
    def bytes(self) -> int:
        """Kept per element in float32."""
        return 4 * len(self.tensors)


def output_symbol(name: str) -> Symbol:
    """The saved value of an output, where backward is written in it."""
    return Symbol(f"_out_{name}", real=True)


def options(
    definition: Definition, derivation: Derivation, outputs: tuple[str, ...]
) -> tuple[Option, ...]:
    """Ways to save, from what the derivative contains to those that keep more of the outputs.

    Each has fewer input tensors than those before it. Outputs take the place of inputs where the
    derivative has them as they are (exp), or asks on which side of a kink its input is (relu);
    last, where identities give it, with an output's rounding magnified (tanh).
    """
    inputs = {leaf.symbol for leaf in definition.tensors}
    kept = {output_symbol(name): name for name in outputs}

    def option(vjp: Vjp, *, lossless: bool) -> Option:
        free = {symbol for entry in vjp if entry is not None for symbol in trees.symbols(entry)}
        names = [leaf.name for leaf in definition.tensors if leaf.symbol in free]
        names += [name for symbol, name in kept.items() if symbol in free]
        return Option(vjp, tuple(names), lossless)

    found = [option(derivation.vjp, lossless=True)]
    if derivation.own:
        return tuple(found)
    exact = _in_outputs(_sides(derivation, outputs), derivation.forward, outputs)
    rewritten = tuple(None if e is None else _through_outputs(e) for e in derivation.vjp)
    lossy = _in_outputs(rewritten, derivation.forward, outputs)
    plain = all(entry is None or _is_plain(entry, derivation.grads, kept) for entry in exact)
    for vjp, lossless in ((exact, plain), (lossy, False)):
        if _count(vjp, inputs) < _count(found[-1].vjp, inputs):
            found.append(option(vjp, lossless=lossless))
    return tuple(found)


def _count(vjp: Vjp, inputs: set[Symbol | None]) -> int:
    free: set[Symbol] = set()
    for entry in vjp:
        free |= frozenset() if entry is None else trees.symbols(entry)
    return len(free & inputs)


def _is_plain(entry: Expr, grads: tuple[Symbol, ...], kept: Mapping[Symbol, str]) -> bool:
    """Whether outputs are in it as they are, or decide alone: three times a rounded one is not what
    three times the exact one rounds to.
    """
    decided = {
        relation: sympy.Dummy("c", real=True) > 0
        for relation in entry.atoms(Relational)
        if not kept.keys().isdisjoint(relation.free_symbols)
    }
    value = entry.xreplace(decided)
    used = kept.keys() & value.free_symbols
    return not used or any(value in (g * y, -g * y) for y in used for g in grads)


def _in_outputs(vjp: Vjp, forward: tuple[Expr, ...], names: tuple[str, ...]) -> Vjp:
    swaps = {
        output: output_symbol(name)
        for output, name in zip(forward, names, strict=True)
        if output.args
    }
    return tuple(None if entry is None else entry.xreplace(swaps) for entry in vjp)


def _through_outputs(entry: Expr) -> Expr:
    """Heads by identities that outputs can stand in: sech(u)**2 = 1 - tanh(u)**2."""
    return entry.replace(heads.sech2, lambda u: 1 - sympy.tanh(u) ** 2).replace(
        lambda e: isinstance(e, heads.sigmoid) and e.args[0].could_extract_minus_sign(),
        lambda e: 1 - heads.sigmoid(-e.args[0]),
    )


# --- which side of a kink ----------------------------------------------------------------------


def _sides(derivation: Derivation, outputs: tuple[str, ...]) -> Vjp:
    """The vjp with relations of the input replaced by relations of the output, where equivalent."""
    if len(derivation.forward) != 1 or len(derivation.variables) != 1:
        return derivation.vjp
    (forward,), (x,) = derivation.forward, derivation.variables
    if any(each.args[-1].cond != True for each in forward.atoms(Piecewise)):  # noqa: E712
        return derivation.vjp  # there is no output to tell by where no piece is
    pieces = list(_pieces(forward, x))
    if not pieces or not all(piece == x or piece.is_number for piece in pieces):
        return derivation.vjp  # where a piece rounds, an output may be on a kink's other side
    y = output_symbol(outputs[0])

    def swapped(entry: Expr) -> Expr:
        swaps = {}
        for relation in entry.atoms(Relational):
            c = relation.rhs
            if relation.lhs == x and c.is_number:
                other = relation.func(y, forward.subs(x, c))
                if _same(relation, other, forward, x, y):
                    swaps[relation] = other
        return entry.xreplace(swaps)

    return tuple(None if entry is None else swapped(entry) for entry in derivation.vjp)


def _pieces(expr: Expr, x: Symbol) -> Iterator[Expr]:
    """The functions that a formula of Max, Min and Piecewise is made of."""
    if isinstance(expr, sympy.Max | sympy.Min):
        for arg in expr.args:
            yield from _pieces(arg, x)
    elif isinstance(expr, Piecewise):
        for value, _ in expr.args:
            yield from _pieces(value, x)
    else:
        yield expr


def _same(relation: Relational, other: Relational, forward: Expr, x: Symbol, y: Symbol) -> bool:
    """Whether two relations agree: between kinks they are constant, so points there tell."""
    kinks = {S.Zero, *forward.atoms(sympy.Number), *relation.atoms(sympy.Number)}
    step = S(1) / 10**9
    points = {k + d for k in kinks for d in (-step, S.Zero, step)}
    points |= {(a + b) / 2 for a in kinks for b in kinks} | {S(-(10**9)), S(10**9)}
    return all(
        relation.subs(x, p) == other.subs(y, forward.subs(x, p)) for p in points if p.is_finite
    )


# --- accuracy ------------------------------------------------------------------------------------


def accuracy(definition: Definition, derivation: Derivation, option: Option) -> str:
    """What the rounding of a saved output in float32 does to the gradient of a unary formula."""
    if option.lossless:
        return "exact"
    unary = [leaf.kind for leaf in definition.differentiable] == [Kind.TENSOR]
    if not unary or len(derivation.forward) != 1:
        return "loses digits where the output is close to a limit"
    (x,), (forward,) = derivation.variables, derivation.forward
    (exact,), (lossy,) = derivation.vjp, option.vjp
    assert exact is not None and lossy is not None
    (y,) = [s for s in trees.symbols(lossy) if s.name.startswith("_out_")]
    numbers = {leaf.symbol: leaf.parameter.default for leaf in definition.numbers if leaf.symbol}
    grad = derivation.grads[0]
    settled = {**numbers, grad: S.One}
    value = sympy.lambdify(x, _plain(forward.subs(numbers).doit()), "mpmath")
    truth = sympy.lambdify(x, _plain(exact.subs(settled)), "mpmath")
    saved = sympy.lambdify((x, y), _plain(lossy.subs(settled)), "mpmath")
    good = 0.0
    with mpmath.workdps(60):
        for quarter in range(-40, 40):
            magnitude = 2.0 ** (quarter / 4)
            for point in (magnitude, -magnitude):
                want = truth(point)
                got = saved(point, mpmath.mpf(_float32(value(point))))
                if abs(got - want) > 8 * 2.0**-24 * abs(want):
                    return f"loses digits from |{x.name}| = {good:.2g} on"
            good = magnitude
    return "within 8 roundings"


def _plain(expr: Expr) -> Expr:
    """Heads by their definitions, which mpmath knows."""
    return expr.replace(lambda e: isinstance(e, heads.Head), lambda e: e.definition(*e.args))


def _float32(value: object) -> float:
    """Rounded to 24 bits."""
    number = mpmath.mpf(value)
    if number == 0:
        return 0.0
    exponent = max(int(mpmath.floor(mpmath.log(abs(number), 2))) - 23, -149)
    return math.ldexp(int(mpmath.nint(mpmath.ldexp(number, -exponent))), exponent)
