"""The candidates for the kernel of one pass: its expressions in several forms, lowered."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import sympy
from sympy import Basic, Dummy, Expr, Mul, Piecewise, Rational, Symbol

from autofn import functions as heads
from autofn import trees
from autofn.program import Program, Result
from autofn.rewrite.branches import merged
from autofn.rewrite.compensate import compensated
from autofn.rewrite.far_out import far_out
from autofn.rewrite.forms import (
    over_one_denominator,
    with_far_powers,
    with_inverses,
    with_linear_start,
    with_normal_tails,
    with_phi_far,
    with_phi_ratios_far,
    with_sines,
    with_sines_far,
    with_sines_of_half,
    with_softplus_in_parts,
    with_tails,
)
from autofn.rewrite.heads import HUGE, exp_within
from autofn.rewrite.near_root import Branch, about_roots
from autofn.rewrite.near_zero import for_kernels
from autofn.rewrite.normal_form import direct_form, normal_form, with_horner_arguments
from autofn.rewrite.one_regime import in_one_regime, of_size
from autofn.rewrite.search import Candidate

Form = Callable[[Expr, frozenset[Symbol]], Expr]
"""From an expression and the symbols of the tensors in it to an equal expression."""

FORMS: Sequence[tuple[str, Form]] = (
    ("tails", lambda expr, _: with_tails(expr)),
    ("powers far out", with_far_powers),
    ("linear start", with_linear_start),
    ("sines but at 0", lambda expr, _: with_sines(expr)),
    ("sines far from 0", lambda expr, _: with_sines_far(expr)),
    ("sines of half", lambda expr, _: with_sines_of_half(expr)),
    ("exponential integrators far from 0", lambda expr, _: with_phi_far(expr)),
    ("their quotients far from 0", lambda expr, _: with_phi_ratios_far(expr)),
    ("normal tails", lambda expr, _: with_normal_tails(expr)),
    ("over one denominator", over_one_denominator),
    ("exponential normal form", normal_form),
    ("softplus in parts", lambda expr, _: with_softplus_in_parts(expr)),
    ("powers of reciprocals", lambda expr, _: with_inverses(expr)),
)
"""Applied in this order, each or not. The first make regimes, in whose branches others follow."""

PARTS = "arguments in two parts"
SUMS = "sums in two parts"

LIMIT = 2000
"""Operations, each occurrence counted, beyond which an expression stays as derived."""

MOST = 12
"""Expressions in so many forms are enough; those with the fewest forms come first."""


REACHES = (Rational(1, 4), Rational(3, 8), Rational(1, 2), Rational(3, 4), Rational(1))
"""How far polynomials about roots reach, of the distance from zero: less far, less long."""

EDGES = (64, 8, 2)
"""Where polynomials in 1/x begin: at the first exponentials have vanished."""


class Candidates:
    """The programs of a pass."""

    def __init__(
        self,
        results: list[Result],
        lowered: Callable[[list[Result]], Program],
        tensors: frozenset[Symbol],
    ):
        self._derived = _mapped(lambda expr, _: with_horner_arguments(expr), results, tensors)
        self._derived = [each.changed(for_kernels) for each in self._derived]
        self._lowered = lowered
        self._tensors = tensors
        self._seen: set[Program] = set()

    @functools.cached_property
    def _forms(self) -> list[tuple[tuple[str, ...], list[Result]]]:
        """The expressions as derived, and in other forms."""
        forms: list[tuple[tuple[str, ...], list[Result]]] = [((), self._derived)]
        for name, form in FORMS:
            for names, before in list(forms):
                after = _mapped(form, before, self._tensors)
                if after != before:
                    forms.append(((*names, name), after))
        forms.sort(key=lambda each: len(each[0]))
        return forms[:MOST]

    def plain(self) -> list[Candidate]:
        """The distinct programs, the one as derived first."""
        return [each for names, form in self._forms for each in self._of(names, form)]

    def direct(self, *, in_double: bool = False) -> Iterator[Candidate]:
        """Those in exp(u) or exp(-u) as they are, NaN where |u| is large.

        in_double: those in one regime, too, NaN where results are small.
        """
        one = [each.changed(self._in_one_regime) for each in self._derived] if in_double else []
        for sign, name in ((-1, "in exp(-u)"), (1, "in exp(u)")):
            form = functools.partial(direct_form, sign=sign)
            if (found := _mapped(form, self._derived, self._tensors)) != self._derived:
                yield from self._of((name,), _within_one_limit(found))
            form = functools.partial(form, expm1_too=True)
            if one != self._derived and (found := _mapped(form, one, self._tensors)) != one:
                limited = _within_one_limit(found)
                # In conditions, which `of_size` makes of them, SymPy multiplies pieces out.
                if not any(each.expr is not None and each.expr.has(Piecewise) for each in limited):
                    sized = [each.changed(of_size) for each in limited]
                    yield from self._of(("in one regime", name), sized)

    def _in_one_regime(self, expr: Expr) -> Expr:
        return in_one_regime(expr, self._lowered) if expr.has(Piecewise) else expr

    def forms(self, lowered: Callable[[list[Result]], Program]) -> Iterator[Program]:
        """Each form as a program of another backend."""
        return (lowered(form) for _, form in self._forms)

    def in_regimes(self) -> Iterator[list[Candidate]]:
        """Those with polynomials far out or about roots, which take time to find."""
        yield from self._far_out()
        yield from self._about_roots()

    def _far_out(self) -> Iterator[list[Candidate]]:
        """Those with polynomials in 1/x, from ever nearer on."""
        for edge in EDGES:
            branches = [
                [] if each.expr is None else far_out(each.expr, self._tensors, edge)
                for each in self._derived
            ]
            if any(branches):
                yield [
                    each
                    for names, form in self._forms
                    for each in self._of(("polynomials far out", *names), _before(branches, form))
                ]

    def _about_roots(self) -> Iterator[list[Candidate]]:
        """Those with polynomials about roots, which take time to find; ever longer ones."""
        for reach in REACHES:
            branches = [
                [] if each.expr is None else about_roots(each.expr, self._tensors, reach)
                for each in self._derived
            ]
            if not any(branches):
                return
            yield [
                each
                for names, form in self._forms
                for each in self._of(("polynomials about roots", *names), _before(branches, form))
            ]

    def _of(self, names: tuple[str, ...], results: list[Result]) -> Iterator[Candidate]:
        plain = self._lowered(results)
        for label, made in (
            (names, plain),
            ((*names, PARTS), compensated(plain)),
            ((*names, PARTS, SUMS), compensated(plain, sums=True)),
        ):
            if made in self._seen:
                continue
            program = merged(made)
            known = program in self._seen
            self._seen |= {made, program}
            if not known:
                yield Candidate(", ".join(label) or "as derived", program)


def _within_one_limit(results: list[Result]) -> list[Result]:
    """With the same exponentials in all results. They are NaN where a clamp would matter."""
    found = {
        node for each in results if each.expr is not None for node in each.expr.atoms(exp_within)
    }
    least = min(node.args[0] for node in found)
    alike = {node: exp_within(least, _unclamped(node.args[1])) for node in found}
    return [each.changed(lambda expr: expr.xreplace(alike)) for each in results]


def _unclamped(u: Expr) -> Expr:
    clamped = (
        each for each in u.atoms(heads.clamp) if each.args[1] <= -HUGE <= HUGE <= each.args[2]
    )
    return u.xreplace({each: each.args[0] for each in clamped})


def _before(branches: list[list[Branch]], results: list[Result]) -> list[Result]:
    """The results, each with branches before it."""
    return [
        dataclasses.replace(each, expr=Piecewise(*first, (each.expr, True), evaluate=False))
        if first
        else each
        for first, each in zip(branches, results, strict=True)
    ]


def _mapped(form: Form, results: list[Result], tensors: frozenset[Symbol]) -> list[Result]:
    return [each.changed(lambda expr: _in_form(form, expr, tensors)) for each in results]


# Most forms leave most results as they are, and are asked for the same again by other forms.
@functools.lru_cache(maxsize=1000)
def _in_form(form: Form, expr: Expr, tensors: frozenset[Symbol]) -> Expr:
    """The expression in a form, branch by branch; a clamped input is an input."""
    if isinstance(expr, Piecewise):
        branches = [(_in_form(form, value, tensors), where) for value, where in expr.args]
        return Piecewise(*branches, evaluate=False)
    if trees.size(expr) > LIMIT:
        return expr
    pieces = [each for each in Mul.make_args(expr) if isinstance(each, Piecewise)]
    if len(pieces) == 1:
        beside = Mul(*(each for each in Mul.make_args(expr) if each != pieces[0]))
        branches = [(beside * value, where) for value, where in pieces[0].args]
        inside = Piecewise(*branches, evaluate=False)
        formed = _in_form(form, inside, tensors)
        return formed if formed != inside else expr
    inputs = sorted(
        (each for each in expr.atoms(heads.clamp) if each.args[0].is_Symbol),
        key=sympy.default_sort_key,
    )
    hidden = _hidden(tuple(inputs))
    formed = form(trees.replaced(expr, hidden), tensors)
    return trees.replaced(formed, {dummy: each for each, dummy in hidden.items()})


@functools.cache
def _hidden(inputs: tuple[Expr, ...]) -> dict[Basic, Basic]:
    """What stands for them: the same in all forms, so that what is replaced is remembered."""
    return {each: Dummy(f"clamped{k}", real=True) for k, each in enumerate(inputs)}
