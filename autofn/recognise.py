"""Recognition of stable heads in what users write, before anything is differentiated."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator

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
    exp,
    log,
    sin,
    sqrt,
    tanh,
)

from autofn import functions as heads
from autofn import trees
from autofn.compact import LIMIT
from autofn.errors import FormulaError
from autofn.model import Definition
from autofn.ops import BY_CLASS, STRUCTURAL


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
    if isinstance(node, Pow) and (root := _root(node, parameters)) is not None:
        return root
    for kind, rule in _RULES:
        if isinstance(node, kind):
            new = rule(node)
            if new is not None and new != node:
                # A rule's result may be open to others: log(sigmoid) gives softplus.
                return recognise(new, parameters) if new.args else new
    return _guarded(node, parameters) if isinstance(node, Mul) else node


def _root(node: Pow, parameters: frozenset[Symbol]) -> Expr | None:
    """(a**2 + c)**(n/2) as a power of `root_sum`, c > 0 of numbers and parameters alone."""
    base, exponent = node.args
    if not (exponent.is_Rational and exponent.q == 2 and isinstance(base, Add)):
        return None
    fixed = [term for term in base.args if trees.symbols(term) <= parameters]
    moving = [term for term in base.args if term not in fixed]
    if len(moving) != 1 or not fixed:
        return None
    positive = {p: Symbol(p.name, positive=True) for p in parameters}
    a = _square_root(moving[0])
    if a is None or not Add(*fixed).xreplace(positive).is_positive:
        return None
    return heads.root_sum(a, Add(*fixed)) ** (2 * exponent)


def _square_root(square: Expr) -> Expr | None:
    """a of a product a**2 of whole powers: x / delta of x**2 / delta**2."""
    factors = []
    for factor in Mul.make_args(square):
        base, exponent = factor.as_base_exp()
        if factor.is_number and factor.is_positive:
            factors.append(sqrt(factor))
        elif exponent.is_Integer and exponent % 2 == 0:
            factors.append(base ** (exponent // 2))
        else:
            return None
    return Mul(*factors)


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
    if isinstance(u, Add) and len(u.args) == 2 and all(isinstance(t, exp) for t in u.args):
        a, b = (term.args[0] for term in u.args)
        return heads.logaddexp(a, b)
    return None


def _add(node: Basic) -> Basic | None:
    """Rules on `constant + coefficient * head`, which would cancel, and softplus in two parts."""
    constant, rest = node.as_coeff_Add()
    terms = list(Add.make_args(rest))
    for index, term in enumerate(terms):
        k, head = term.as_coeff_Mul()
        others = terms[:index] + terms[index + 1 :]
        new: Expr | None = None
        if isinstance(head, sympy.atan) and k * sympy.pi / 2 in others:
            # The angle from the other side, which does not cancel.
            others.remove(k * sympy.pi / 2)
            return Add(constant, *others, k * sympy.atan2(1, -head.args[0]))
        if isinstance(head, sympy.atan) and -k * sympy.pi / 2 in others:
            others.remove(-k * sympy.pi / 2)
            return Add(constant, *others, -k * sympy.atan2(1, head.args[0]))
        if isinstance(head, heads.root_sum):
            a, c = head.args
            if c.is_number and -k * sqrt(c) in [constant, *others]:
                # sqrt(a**2 + c) - sqrt(c), which cancels for small a.
                left = [each for each in [constant, *others] if each != -k * sqrt(c)]
                return Add(*left, k * heads.root_rest(a, c))
            for sign in (1, -1):
                if k * sign * a in others:
                    others.remove(k * sign * a)
                    return Add(constant, *others, 2 * k * heads.mean_root(sign * a, c))
        if isinstance(head, heads.sigmoid) and -k * heads.sigmoid(-head.args[0]) in others:
            u = head.args[0]
            others.remove(-k * heads.sigmoid(-u))
            return Add(constant, *others, k * tanh(u / 2))
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
            elif isinstance(head, heads.sech2) and not plus:
                new = -k * tanh(u) ** 2
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
        if isinstance(base, sin | heads.expm1) and power.is_Integer:
            new = _removed(factors, i)
            if new is not None:
                return new
        if isinstance(factor, sympy.sign) and factor.args[0] in factors:
            rest = [f for f in factors if f not in (factor, factor.args[0])]
            return Mul(*rest, sympy.Abs(factor.args[0]))
    return None


def _removed(factors: list[Basic], i: int) -> Expr | None:
    """sin(c*d) / d = c * sinc(c*d), (exp(c*d) - 1) / d = c * phi_1(c*d), and their inverses.

    So the limit at d = 0 is a value like any other, in every derivative too.
    """
    base, power = factors[i].as_base_exp()
    u = base.args[0]
    head = heads.sinc(u) if isinstance(base, sin) else heads.phi(Integer(1), u)
    sign = 1 if power > 0 else -1
    for j, other in enumerate(factors):
        d, exponent = other.as_base_exp()
        if not (exponent.is_Integer and exponent * sign <= -1 and d.free_symbols):
            continue
        ratio = u / d
        if j != i and not ratio.free_symbols & d.free_symbols:
            rest = [f for n, f in enumerate(factors) if n not in (i, j)]
            whole = (ratio * head) ** sign
            return Mul(*rest, whole, base ** (power - sign), d ** (exponent + sign))
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
