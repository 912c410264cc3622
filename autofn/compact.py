"""Cheaper forms of an expression: common factors, one fraction, what is large hidden."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache

import sympy
from sympy import (
    Add,
    Basic,
    Expr,
    Mul,
    Piecewise,
    Pow,
    Symbol,
)

from autofn import functions as heads
from autofn import trees

LIMIT = 60
"""Operations beyond which rearranging an expression costs more time than it can save."""


VARIABLES = 8
"""Variables beyond which factoring a polynomial or reducing a fraction takes too long."""

FINEST = 1000
"""The denominator from which on a fraction is a decimal."""

TERMS, EXPANDED = 40, 2000
"""Terms, expanded, beyond which factoring a polynomial takes too long, or counting these does."""


@lru_cache(maxsize=10_000)
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
    hidden, decimals = _without_decimals(hidden)
    few = trees.size(hidden) <= LIMIT and len(trees.symbols(hidden)) <= VARIABLES
    if few and hidden.is_polynomial() and not hidden.has(sympy.Float):
        # x**2 + 2*x*y + y**2 cancels where (x + y)**2 does not.
        candidates.append(factored(hidden))
    if few:
        candidates += _by_signs(hidden, shown)
    if few and isinstance(hidden, Add) and _divides_by_symbol(hidden):
        fraction = _fraction(hidden)
        # With terms left it overflows before the sum of fractions does.
        candidates += [fraction] if not fraction.has(Add) else []
    roots = [symbol for symbol, node in shown.items() if isinstance(node, heads.root_sum)]
    if trees.size(hidden) <= LIMIT and (_divides_by_sum(hidden) or roots):
        fraction = _fraction(hidden)
        candidates += [fraction, _grouped(fraction), *_by_relations(fraction, shown)]
    logarithms = {s: node.args[0] for s, node in shown.items() if isinstance(node, _Logarithm)}
    for found in sorted(candidates, key=lambda e: (_size(e), len(shown.keys() & e.free_symbols))):
        if (whole := _with_logarithms(found, logarithms)) is not None:
            return whole.xreplace(decimals).xreplace(shown)
    return expr


def elementary(expr: Expr) -> Expr:
    """sinc and Bessel functions as sines and cosines again, where no division by u is left.

    They keep limits at 0, which a derivative may have no more: that of sin(u)**2/u**2 times u**2.
    """
    arguments = {symbol for u in _arguments(expr) for symbol in trees.symbols(u)}
    found = in_sines(expr)
    return expr if found is None or _divides(found, arguments) else found


def in_sines(expr: Expr) -> Expr | None:
    """sinc(u) as sin(u)/u and Bessel functions likewise; None where there are none to write so."""
    arguments = _arguments(expr)
    if not arguments or trees.size(expr) > 2 * LIMIT:
        return None
    hidden: Expr = expr
    shown: dict[Expr, Expr] = {}
    dummy = Symbol("_u")
    for k, u in enumerate(arguments):
        s, c = Symbol(f"_s{k}", real=True), Symbol(f"_c{k}", real=True)
        plain = {sympy.sin(u): s, sympy.cos(u): c, heads.sinc(u): s / u}
        for head in expr.atoms(heads.spherical_bessel):
            order, argument = head.args
            if argument == u:
                known = sympy.expand_func(sympy.jn(order, dummy))
                plain[head] = known.xreplace({sympy.sin(dummy): s, sympy.cos(dummy): c, dummy: u})
        hidden = hidden.xreplace(plain)
        shown |= {s: sympy.sin(u), c: sympy.cos(u)}
    if hidden.has(sympy.Function):
        return None
    return sympy.factor_terms(sympy.expand(hidden)).xreplace(shown)


def _arguments(expr: Expr) -> list[Expr]:
    """What sinc and Bessel functions are applied to."""
    found = {
        node.args[-1]
        for node in trees.nodes(expr)
        if isinstance(node, heads.sinc | heads.spherical_bessel)
    }
    return sorted(found, key=sympy.default_sort_key)


def _divides(expr: Expr, symbols: set[Symbol]) -> bool:
    return any(
        power.exp.is_negative and power.base.free_symbols & symbols for power in expr.atoms(Pow)
    )


def _grouped(expr: Expr) -> Expr:
    """The expression with what some terms of a sum have in common before them.

    y**2 + x*y + c cancels at x = -y where y*(x + y) + c does not.
    """
    if not isinstance(expr, Add | Mul | Pow):
        return expr
    found: Expr = trees.rebuilt(expr, list(map(_grouped, expr.args)))
    if not isinstance(found, Add):
        return found
    shared = Counter(s for term in found.args for s in _divisors(term))
    for symbol in sorted((s for s, n in shared.items() if 1 < n < len(found.args)), key=str):
        terms = [term for term in found.args if symbol in _divisors(term)]
        rest = Add(*(term for term in found.args if term not in terms))
        grouped = symbol * _grouped(Add(*(term / symbol for term in terms))) + _grouped(rest)
        if sympy.count_ops(grouped) < sympy.count_ops(found):
            return grouped
    return found


def _divisors(term: Expr) -> set[Symbol]:
    """The symbols by which a term can be divided."""
    powers = (factor.as_base_exp() for factor in Mul.make_args(term))
    return {base for base, exponent in powers if base.is_Symbol and exponent.is_positive}


def _without_decimals(expr: Expr) -> tuple[Expr, dict[Expr, Expr]]:
    """The expression with symbols for decimals that are added to what it is divided by.

    Polynomials are not exact with them, and would be multiplied by 1000000 for 1/1000000.
    """
    found = {n for total in _sums_below(expr) for n in total.args if _is_decimal(n)}
    hidden = {
        number: Symbol(f"_f{k}", real=True)
        for k, number in enumerate(sorted(found, key=sympy.default_sort_key))
    }
    return expr.xreplace(hidden), {symbol: number for number, symbol in hidden.items()}


def _is_decimal(number: Expr) -> bool:
    return bool(number.is_Float or (number.is_Rational and number.q > FINEST))


def _compact_piecewise(expr: Piecewise) -> Expr:
    return Piecewise(*((compact(value), where) for value, where in expr.args), evaluate=False)


def _skeleton(expr: Expr) -> tuple[Expr, dict[Symbol, Expr]]:
    """Its sums, products and whole powers; what they are made of stands hidden behind symbols."""
    hidden: dict[Basic, Symbol] = {}
    deepest = 3 if trees.size(expr) > 5 * LIMIT else LIMIT

    def visit(node: Expr, depth: int) -> Expr:
        if not node.args or node.is_Number:
            return node
        if isinstance(node, Add | Mul) and depth < deepest:
            return node.func(*(visit(arg, depth + 1) for arg in node.args))
        if isinstance(node, heads.xlogy) and depth < deepest:
            # v*log(u), whose v may have more in common with the rest.
            v, u = node.args
            return visit(v, depth + 1) * hidden.setdefault(
                _Logarithm(u), Symbol(f"_s{len(hidden)}", real=True)
            )
        if isinstance(node, Pow) and node.exp.is_Rational and depth < deepest:
            return visit(node.base, depth) ** node.exp
        return hidden.setdefault(node, Symbol(f"_s{len(hidden)}", real=True))

    skeleton = visit(expr, 0)
    return skeleton, {symbol: _compact_inside(node) for node, symbol in hidden.items()}


class _Logarithm(sympy.Function):  # type: ignore[misc]
    """log(u) that something is multiplied by in xlogy."""

    nargs = (1,)
    is_real = True


def _with_logarithms(found: Expr, logarithms: dict[Symbol, Expr]) -> Expr | None:
    """xlogy of what these, which stand for log(u), are factors of; None where they are not."""
    if not logarithms or found.free_symbols.isdisjoint(logarithms):
        return found
    if isinstance(found, Add):
        terms = [_with_logarithms(term, logarithms) for term in found.args]
        return None if any(term is None for term in terms) else Add(*terms)
    for factor in Mul.make_args(found):
        rest = found / factor
        if factor in logarithms:
            alone = rest.free_symbols.isdisjoint(logarithms)
            return heads.xlogy(rest, logarithms[factor]) if alone else None
        if isinstance(factor, Add) and not factor.free_symbols.isdisjoint(logarithms):
            # Sums that divide stay outside: they may vanish where the terms cancel.
            powers = [each for each in Mul.make_args(rest) if isinstance(each, Pow)]
            below = Mul(*(each for each in powers if each.exp.is_negative and each.base.is_Add))
            terms = Add(*(rest / below * term for term in factor.args))
            within = _with_logarithms(terms, logarithms)
            alone = below.free_symbols.isdisjoint(logarithms)
            return below * within if alone and within is not None else None
    return None


def _compact_inside(node: Expr) -> Expr:
    """The parts of a function that differentiation has made, and not the user."""
    if isinstance(node, Piecewise):
        return _compact_piecewise(node)
    if isinstance(node, heads.times_exp):
        return heads.times_exp(compact(node.args[0]), node.args[1])
    return node


def _divides_by_symbol(total: Add) -> bool:
    return total.has(Add) and any(
        power.exp.is_negative and isinstance(power.base, Symbol) for power in total.atoms(Pow)
    )


def _divides_by_sum(expr: Expr) -> bool:
    return isinstance(expr, Add | Mul) and bool(_sums_below(expr))


def _sums_below(expr: Expr) -> set[Expr]:
    """The sums that something in it is divided by, but for those of numbers."""
    return {
        power.base
        for power in expr.atoms(Pow)
        if power.exp.is_negative and isinstance(power.base, Add) and power.base.free_symbols
    }


def _by_signs(expr: Expr, shown: dict[Symbol, Expr]) -> list[Expr]:
    """The expression with u as sign(u)*|u|, for every u of which it has the size.

    In a*u - a*|u|*sign(u) + u*|u| the first terms are gone so, of which few digits would be left.
    """
    if expr.has(sympy.Float) or not any(isinstance(each, sympy.Abs) for each in shown.values()):
        return []
    found = [_with_signs(*in_differences(expr), shown)]
    if (signed := _with_signed_sums(expr, shown)) != expr:
        found.append(_with_signs(signed, {}, shown))
    return [each for each in found if each != expr]


def _with_signs(found: Expr, differences: dict[Expr, Expr], shown: dict[Symbol, Expr]) -> Expr:
    nodes = {node: symbol for symbol, node in shown.items()}
    hidden = {total: d for d, total in differences.items()}
    for size in (node for node in nodes if isinstance(node, sympy.Abs)):
        u, a = hidden.get(size.args[0], size.args[0]), nodes[size]
        if a not in found.free_symbols:
            continue
        s = nodes.get(sympy.sign(size.args[0]), Symbol("_s", real=True))
        top, bottom = sympy.fraction(sympy.together(_replaced_in_sums(found, u, s * a)))
        if not top.is_polynomial(s) or bottom.has(s):
            continue
        signed = factored(sympy.rem(sympy.expand(top), s**2 - 1, s) / bottom)
        if {s, a} <= {*Mul.make_args(signed)}:
            signed = signed / (s * a) * u
        if s in shown or not signed.has(s):
            found = signed
    return found.xreplace(differences)


def _with_signed_sums(expr: Expr, shown: dict[Symbol, Expr]) -> Expr:
    """The expression with sign(u)*u for the size of a sum u, of which it has the sign.

    With that (|x| + |y|)*sign(x - y) - |x - y|*sign(x) has a factor sign(x - y).
    """
    signs = {node.args[0]: symbol for symbol, node in shown.items() if isinstance(node, sympy.sign)}
    sums = {
        symbol: signs[node.args[0]] * node.args[0]
        for symbol, node in shown.items()
        if isinstance(node, sympy.Abs) and node.args[0].is_Add and node.args[0] in signs
    }
    return expr.xreplace(sums)


def _replaced_in_sums(expr: Expr, u: Expr, new: Expr) -> Expr:
    """The expression with another in place of u, also where that is part of a sum."""
    if not isinstance(u, Add):
        return expr.xreplace({u: new})
    terms = set(u.args)
    sums = {
        total: Add(new, *(term for term in total.args if term not in terms))
        for total in expr.atoms(Add)
        if terms <= set(total.args)
    }
    return expr.xreplace(sums)


def _by_relations(fraction: Expr, shown: dict[Symbol, Expr]) -> list[Expr]:
    """The fraction with r**2 = a**2 + c made use of, for every r = sqrt(a**2 + c) in it.

    1 / r - a**2 / r**3 is c / r**3 so, without a difference.
    """
    top, bottom = sympy.fraction(fraction)
    found = top
    for symbol, node in shown.items():
        if isinstance(node, heads.root_sum) and top.is_polynomial(symbol):
            a, c = node.args
            found = sympy.rem(found, symbol**2 - a**2 - c, symbol)
    return [] if found == top else [factored(found) / bottom]


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
    hidden, differences = in_differences(hidden)
    found = factored(hidden).xreplace(differences)
    return found.xreplace(shown).xreplace(shown)


def factored(expr: Expr) -> Expr:
    """One fraction in lowest terms, and its factors; not in these where that takes too long."""
    fraction = sympy.together(expr)
    if any(_has_many_terms(part) for part in sympy.fraction(fraction)):
        return fraction
    return sympy.factor(fraction)


def _has_many_terms(polynomial: Expr) -> bool:
    """Whether it has over TERMS of them, expanded."""
    most = terms_at_most(polynomial)
    if most <= TERMS or most > EXPANDED:
        return most > TERMS
    expanded = sympy.expand(polynomial)
    return len(Add.make_args(expanded)) > TERMS


def terms_at_most(polynomial: Expr) -> int:
    """How many terms a polynomial may have, expanded; other functions count as one."""
    if isinstance(polynomial, Add):
        return sum(map(terms_at_most, polynomial.args))
    if isinstance(polynomial, Mul):
        return math.prod(map(terms_at_most, polynomial.args))
    if isinstance(polynomial, Pow) and polynomial.exp.is_Integer and polynomial.exp > 0:
        terms, exponent = terms_at_most(polynomial.base), int(polynomial.exp)
        return math.comb(terms + exponent - 1, exponent)
    return 1


def in_differences(expr: Expr) -> tuple[Expr, dict[Expr, Expr]]:
    """The expression in symbols for its sums such as x - y, where it has x and y in these alone.

    Factors of polynomials would be expanded: (x - y)**2 + 1 cancels less than x**2 - 2*x*y + ...
    """
    shown: dict[Expr, Expr] = {}
    for total in sorted(expr.atoms(Add), key=sympy.default_sort_key):
        for x in sorted(total.free_symbols & set(total.args), key=sympy.default_sort_key):
            rest = total - x
            if x in rest.free_symbols or not rest.free_symbols:
                continue
            d = Symbol(f"_d{len(shown)}", real=True)
            new = expr.xreplace({x: d - rest})
            if not new.free_symbols & rest.free_symbols:
                expr, shown[d] = new, total
                break
    return expr, shown


def _size(expr: Expr) -> int:
    # A fraction is one number: 841/108*x is no product and a quotient.
    fractions: int = sum(
        bool(arg.is_Rational and not arg.is_Integer and (node.is_Add or abs(arg.p) != 1))
        for node in sympy.preorder_traversal(expr)
        if isinstance(node, Add | Mul)
        for arg in node.args
    )
    return int(sympy.count_ops(expr)) - fractions
