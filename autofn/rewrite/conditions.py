"""What rules ask of the expressions that their wildcards stand for."""

from __future__ import annotations

from collections.abc import Iterable

import sympy
from sympy import Abs, Add, Expr, Max, Min, Piecewise, S, Symbol, log

from autofn import trees
from autofn.compact import LIMIT
from autofn.functions import expm1, phi, power
from autofn.rewrite.rule import Bindings, C, U, V, minus


def signed_alike(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether V is c*expm1(U/c), which has the sign of U for any c."""
    u, v = found[U], found[V]
    heads = v.atoms(expm1)
    if len(heads) != 1:
        return False
    (head,) = heads
    c = v / head
    return not c.has(head) and sympy.expand_mul(c * head.args[0] - u) == 0


def is_of_both_signs(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether U is not a negative multiple of what is absolute."""
    factor, size = found[U].as_coeff_Mul()
    return not (factor.is_negative and isinstance(size, Abs))


def are_no_numbers(found: Bindings, _: frozenset[Symbol]) -> bool:
    return not (found[U].is_number or found[V].is_number)


def grows(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether V times what grows with U is positive where that is large, and not done yet."""
    return not (found[V].could_extract_minus_sign() or found[U].has(Min))


def is_no_tensor(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    return not varies(found[V], parameters)


def is_run_time(found: Bindings, _: frozenset[Symbol]) -> bool:
    return not found[V].is_number


def are_of_run_time(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether C and V are of numbers and parameters, not both of numbers, beside a tensor's U."""
    numbers = found[C] - found[V]
    return varies(found[U], parameters) and not (numbers.is_number or varies(numbers, parameters))


def is_greater(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether U is greater than V everywhere, taking parameters to be positive."""
    return bool(with_positive(minus(found[U], found[V]), parameters).is_positive)


def is_near(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether U is V and a number or parameter, or V is one, or they share a term of a tensor.

    Else U is not to be had from V.
    """
    u, v = found[U], found[V]
    if any(varies(each, parameters) for each in {*Add.make_args(u)} & {*Add.make_args(v)}):
        return True
    return not (varies(minus(u, v), parameters) and varies(v, parameters))


def are_of_one_tensor(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether U and V are polynomials of the same tensors, that meet somewhere."""
    u, v = found[U], found[V]
    tensors = [trees.symbols(each) - parameters for each in (u, v)]
    return tensors[0] == tensors[1] != set() and minus(u, v).is_polynomial(*tensors[0])


def share_a_term(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether U and V are sums with a term in common, that of a tensor: x + y and x."""
    u, v = ({*Add.make_args(sympy.expand_mul(found[each]))} for each in (U, V))
    return any(varies(each, parameters) for each in u & v)


def share_a_term_of_their_own(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """The same, where neither is bounded yet."""
    return share_a_term(found, parameters) and not (found[U].has(Max) or found[V].has(Max))


def is_summand(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether V is a sum that all terms of U are in, of tensors."""
    u, v = ({*Add.make_args(found[each])} for each in (U, V))
    return u < v and varies(found[V], parameters)


def is_part(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """The same, and some of those terms are of a tensor."""
    return is_summand(found, parameters) and varies(found[U], parameters)


def are_nearly_alike(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether U - V has fewer terms than either: 2*x of 1 + x and 1 - x."""
    u, v, rest = (Add.make_args(e) for e in (found[U], found[V], minus(found[U], found[V])))
    return len(rest) < min(len(u), len(v))


def are_close(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether U and V are alike where a tensor is large, or where it is small."""
    return share_a_term(found, parameters) or (
        varies(minus(found[U], found[V]), parameters) and are_nearly_alike(found, parameters)
    )


def are_a_step_apart(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether U is V and a number or parameter."""
    u, v = found[U], found[V]
    return varies(v, parameters) and not varies(minus(u, v), parameters)


def add_up(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether U + V has fewer terms than U and V have."""
    u, v = (sympy.expand_mul(found[each]) for each in (U, V))
    return len(Add.make_args(u + v)) < len(Add.make_args(u)) + len(Add.make_args(v))


def is_multiple(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether U is V times a number, or times one of run time, and 0 where V is."""
    u, v = found[U], found[V]
    return varies(v, parameters) and not varies(sympy.cancel(u / v), parameters)


def is_new_quadratic(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether the factor C may vanish by itself, and U is not bounded yet."""
    symbols = trees.symbols(found[C])
    return bool(symbols) and symbols.isdisjoint(trees.symbols(found[V])) and not found[U].has(Max)


def is_new_multiple(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    return is_multiple(found, parameters) and not isinstance(found[U], Max)


def is_run_time_beside(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether V is known at run time, and U is a tensor's."""
    u, v = found[U], found[V]
    fixed = not v.is_number and not varies(v, parameters)
    return fixed and varies(u, parameters) and not isinstance(u, Min)


def vanish_together(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    return vanishes_with(found[V], found[U], parameters)


def vanishes_with(product: Expr, u: Expr, parameters: frozenset[Symbol]) -> bool:
    """Whether u is 0 where a factor of the product is, or is a tensor's probability."""
    if _vanishes_slowly(product, u):
        return False
    powers = [each.as_base_exp() for each in sympy.Mul.make_args(product)]
    if any(base == log(u) for base, _ in powers):
        return False
    if any(each in (u, 1 - u) for each in u.free_symbols - parameters):
        poles = [base for base, exponent in powers if exponent.is_negative]
        return varies(product, parameters) and u not in poles
    return has_zero_of(powers, u, parameters)


def has_zero_of(
    powers: Iterable[tuple[Expr, Expr]], u: Expr, parameters: frozenset[Symbol]
) -> bool:
    """Whether one of these powers, each a base and an exponent, is 0 where u is."""
    return any(
        exponent.is_positive and base.free_symbols and _is_zero_where(base, u, parameters)
        for base, exponent in powers
    )


def _vanishes_slowly(v: Expr, u: Expr) -> bool:
    """Whether v is 0 where u is but infinite when multiplied by log(u), or finite, as 1/log(u)."""
    if isinstance(v, phi) or (isinstance(v, sympy.Pow) and v.exp.is_negative):
        return bool(v.has(log(u)))
    if isinstance(v, sympy.Function):
        return False
    return any(_vanishes_slowly(each, u) for each in v.args)


def _is_zero_where(base: Expr, u: Expr, parameters: frozenset[Symbol]) -> bool:
    if u.xreplace({base: S.Zero}) == 0:
        return True
    for x in sorted(base.free_symbols - parameters, key=str):
        line = sympy.Poly(base, x) if base.is_polynomial(x) else None
        if line is None or line.degree() != 1 or trees.size(u) > LIMIT:
            continue
        slope, start = line.all_coeffs()
        if not slope.is_number or not u.is_rational_function(x):
            continue
        if sympy.cancel(u.xreplace({x: -start / slope})) == 0:
            return True
    return False


def is_large(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether exp(U) may overflow beside a factor that depends on a tensor."""
    return not is_bounded(found[U], parameters) and varies(found[V], parameters)


def is_bounded(exponent: Expr, parameters: frozenset[Symbol]) -> bool:
    """Whether the exponent is never positive, taking parameters to be positive."""
    return bool(with_positive(exponent, parameters).is_nonpositive)


def with_positive(expr: Expr, parameters: frozenset[Symbol]) -> Expr:
    """The expression of parameters that are positive."""
    return expr.xreplace({p: Symbol(p.name, positive=True) for p in parameters})


def varies(factor: Expr, parameters: frozenset[Symbol]) -> bool:
    """Whether a factor depends on a tensor other than a cotangent or tangent (`_grad`, `_d_x`)."""
    return any(not s.name.startswith("_") for s in trees.symbols(factor) - parameters)


def is_of_no_branch(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether U is not yet kept within a branch, whose Max it would have."""
    return not found[U].has(Max)


def is_a_small_step(found: Bindings, parameters: frozenset[Symbol]) -> bool:
    """Whether U is V and a number of at most four, and not done yet."""
    step = minus(found[U], found[V])
    small = step.is_number and bool(step > 0) and bool(step <= 4)
    return small and varies(found[V], parameters) and not found[V].has(Min)


def is_not_bounded(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether U has no bound yet, and takes one: SymPy leaves it out of what is negative."""
    return not isinstance(found[U], Min) and isinstance(Min(found[U], 1), Min)


def are_positive(found: Bindings, _: frozenset[Symbol]) -> bool:
    return bool(found[U].is_positive and found[V].is_positive)


def is_of_no_lesser_power(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether it is not done yet, and there is no other power to compare it with."""
    others = found[C].atoms(power) if not found[C].is_Symbol else ()
    return not found[U].has(Piecewise) and all(each.args[1] != found[V] for each in others)


def is_of_run_time_exponent(found: Bindings, _: frozenset[Symbol]) -> bool:
    """Whether no polynomial serves near 0, as it does for a known one."""
    return bool(found[V].free_symbols)
