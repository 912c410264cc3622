"""The parser of `--expr`: what it builds, what it refuses, and that nothing is ever executed."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sympy import (
    Abs,
    And,
    E,
    Expr,
    Heaviside,
    Max,
    Min,
    Or,
    Piecewise,
    Rational,
    Symbol,
    atan2,
    cbrt,
    digamma,
    erf,
    erfc,
    exp,
    gamma,
    log,
    pi,
    sqrt,
    tanh,
)

from autofn import UsageError, functions
from autofn.parse import MAX_CHARACTERS, MAX_DEPTH, function_table, parse_expression

x, y, a, b = (Symbol(name, real=True) for name in "xyab")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x*tanh(exp(x))", x * tanh(exp(x))),
        ("10*(x**2 + y**2 + 2*x*y)", 10 * (x**2 + y**2 + 2 * x * y)),
        ("-x/+y - 3", -x / y - 3),
        ("0.1*x + 1e-3", x / 10 + Rational(1, 1000)),
        ("1_000.5*x", Rational(2001, 2) * x),
        ("0x10*x**0.5", 16 * sqrt(x)),
        ("x**-2", x**-2),
        ("2**x**y", 2 ** (x**y)),
        ("Rational(1, 3)*x", x / 3),
        ("pi*E*x", pi * E * x),
        ("log(x) + log(x, 2) + ln(x)", 2 * log(x) + log(x) / log(2)),
        ("abs(x) + Abs(y)", Abs(x) + Abs(y)),
        ("max(x, 0, y) + Min(x, y)", Max(x, 0, y) + Min(x, y)),
        ("atan2(y, x) + cbrt(x)", atan2(y, x) + cbrt(x)),
        ("erf(x) + erfc(x) + gamma(x) + digamma(x)", erf(x) + erfc(x) + gamma(x) + digamma(x)),
        ("Heaviside(x) + Heaviside(x, 0)", Heaviside(x) + Heaviside(x, 0)),
        ("Piecewise((x, x > 0), (a*x, True))", Piecewise((x, x > 0), (a * x, True))),
        ("x if x >= 0 else a*x", Piecewise((x, x >= 0), (a * x, True))),
        ("x if 0 < x < 1 else 0", Piecewise((x, And(x > 0, x < 1)), (0, True))),
        ("1 if x == y or x != a else 2",
         Piecewise((1, Or(sympy.Eq(x, y), sympy.Ne(x, a))), (2, True))),
        ("1 if And(x > 0, Not(y > 0)) else 2", Piecewise((1, And(x > 0, y <= 0)), (2, True))),
        ("ITE(x > 0, x, 0)", Piecewise((x, x > 0), (0, True))),
        ("1 if ITE(x > 0, y > 0, y < 0) else 0",
         Piecewise((1, sympy.ITE(x > 0, y > 0, y < 0)), (0, True))),
        ("silu(x)", functions.silu(x)),
        ("softplus(x)*clamp(x, 0, 1)", functions.softplus(x) * functions.clamp(x, 0, 1)),
        ("gelu(x)", functions.gelu(x)),
        ("  x \n + y\t", x + y),
        ("β*x", Symbol("β", real=True) * x),
        ("gamma(5) + x", 24 + x),
    ],
)  # fmt: skip
def test_builds(text: str, expected: Expr) -> None:
    assert parse_expression(text) == expected


def test_every_function_of_the_library_can_be_called() -> None:
    assert set(functions.__all__) <= set(function_table())
    for name, function in function_table().items():
        if name == "Rational":
            continue
        arguments = ", ".join("xyz"[: function.least])
        assert parse_expression(f"{name}({arguments})").has(x), name


def test_names_are_real_symbols() -> None:
    assert all(symbol.is_real for symbol in parse_expression("x*yy + ctx").free_symbols)


def test_declared_names_are_symbols_before_they_are_functions() -> None:
    gamma_, e = Symbol("gamma", real=True), Symbol("E", real=True)
    assert parse_expression("x**gamma*E", {"gamma", "E"}) == x**gamma_ * e
    with pytest.raises(UsageError, match="gamma is a function"):
        parse_expression("x**gamma")


def test_numbers_are_exact() -> None:
    assert parse_expression("0.1") == Rational(1, 10)
    assert parse_expression("1e300").is_Integer
    assert not parse_expression("3.14159*x + 2e-7").atoms(sympy.Float)


REFUSED = [
    # not an expression
    ("", "empty"),
    ("   ", "empty"),
    ("x,", "tuple"),
    ("x, y", "tuple"),
    ("y = x**2", "right-hand side"),
    ("x # comment", "column 3"),
    ("x +", "cannot be read"),
    ("(x", "cannot be read"),
    ("x y", "write `\\*`"),
    ("2x", "write `\\*`"),
    ("2(x + 1)", "write `\\*`"),
    ("(x)(y)", "write x\\*"),
    ("x(y + 1)", "write x\\*"),
    ("x!", "gamma"),
    ("x\x00", "cannot be read"),
    ("\ud800", "cannot be read"),
    # Python, but not maths
    ("x^2", "write `\\*\\*`"),
    ("x//2", "floor"),
    ("x % 2", "floor"),
    ("x & y", "`and`"),
    ("x | y", "`or`"),
    ("~x", "`not`"),
    ("x @ y", "elementwise"),
    ("x.real", "attribute"),
    ("x[0]", "subscripts"),
    ("lambda: x", "lambda"),
    ("(y := x)", ":="),
    ("'x'", "strings"),
    ("f'{x}'", "strings"),
    ("b'x'", "strings"),
    ("1j*x", "complex"),
    ("[x]", "not supported"),
    ("{x: y}", "not supported"),
    ("[x for x in y]", "not supported"),
    ("(yield)", "not supported"),
    ("await x", "not supported"),
    ("...", "not supported"),
    ("None", "not supported"),
    ("Max(*x)", "not supported"),
    ("exp(x=1)", "keywords"),
    ("x in y", "`in`"),
    ("x is y", "`is`"),
    # types
    ("x > 0", "condition where a number"),
    ("(x > 0)*x", "condition where a number"),
    ("True", "condition where a number"),
    ("x if y else 0", "number where a condition"),
    ("not x", "number where a condition"),
    ("Piecewise(x)", "pair"),
    ("Piecewise()", "no branch"),
    ("And()", "0 conditions"),
    ("ITE(x > 0, x)", "3 arguments"),
    ("ITE(x > 0, x, y > 0)", "condition where a number"),
    ("exp()", "1 arguments, not 0"),
    ("atan2(x)", "2 arguments, not 1"),
    ("log(x, 2, 3)", "1 to 2 arguments"),
    ("Rational(x, 3)", "whole numbers"),
    # names
    ("_x", "underscore"),
    ("__import__('os').system('false')", "attribute"),
    ("__import__('os')", "not a function"),
    ("x.__class__.__mro__", "attribute"),
    ("().__class__", "attribute"),
    ("eval('1')", "not a function"),
    ("exec(x)", "not a function"),
    ("open(x)", "not a function"),
    ("sympify(x)", "not a function"),
    ("S(x)", "not a function"),
    ("Function(x)", "not a function"),
    ("exp + x", "exp is a function"),
    ("oo", "finite"),
    ("nan*x", "finite"),
    ("sigmod(x)", "did you mean sigmoid"),
    ("Tanh(x)", "did you mean tanh"),
    ("arctan(x)", "atan"),
    ("where(x)", "else"),
    # values
    ("1/0", "undefined"),
    ("x/0", "undefined"),
    ("log(0)", "undefined"),
    ("log1p(-1)", "not a finite real"),
    ("sqrt(-1)", "complex"),
    ("log(-2)", "complex"),
    ("(-8)**(1/3)", "real"),
    ("asin(2)", "real"),
    ("1e400", "too large"),
    ("1e-400", "too small"),
    ("1e999999999", "too large"),
    # bombs
    ("9**9**9", "too large"),
    ("9**9**9**9**9", "too large"),
    ("10**10**10", "too large"),
    ("(2*x)**10**9", "too large"),
    ("((2*x)**1000)**1000", "too large"),
    ("((x**1000)**1000)**1000", "exponent"),
    ("sqrt(2)**10**9", "too large"),
    ("exp(10**9*log(2))", "too large"),
    ("exp(x + 10**9*log(2))", "too large"),
    ("exp(10**9*log(2*x))", "too large"),
    ("E**(10**9*log(2))", "too large"),
    ("2**(10**9*log(3)/log(2))", "too large"),
    ("exp(exp(exp(exp(10))))", "too large"),
    ("gamma(10**9)", "over 200"),
    ("loggamma(10**9)", "over 200"),
    ("digamma(10**9)", "over 200"),
    ("x if erf(1e6) < 1 else 0", "over 100"),
    ("floor(pi*1e300)*x", "over"),
    ("1"*5_000, "characters"),
    ("1"*4_000, "too large|cannot be read"),
    ("("*10_000 + "x" + ")"*10_000, "characters"),
    ("("*1_900 + "x" + ")"*1_900, "levels of brackets"),
    ("("*4_000, "levels of brackets"),
    ("exp("*100 + "x" + ")"*100, "levels of brackets"),
    ("-"*3_000 + "x", "signs"),
    ("- "*1_500 + "x", "signs"),
    ("not "*900 + "x", "signs"),
    ("x" + "**x"*500, "deep|operations"),
    ("x" + " if x > 0 else x"*200, "deep|operations"),
    ("x" + "+x"*1_500, "operations"),
    ("Max(" + "x,"*500 + "x)", "arguments"),
    ("\N{MATHEMATICAL DOUBLE-STRUCK DIGIT TWO}*x", "cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text[:30] for text, _ in REFUSED])
def test_refuses(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_expression(text)


@pytest.mark.parametrize(
    ("text", "column"),
    [("x + foo(y)", 5), ("β + foo(y)", 5), ("x\n + foo(y)", 6), ("   x^2", 4), ("x + 'a'", 5)],
)
def test_errors_name_the_column(text: str, column: int) -> None:
    with pytest.raises(UsageError, match=f"^--expr: column {column} of the expression"):
        parse_expression(text)


def test_every_error_has_a_remedy() -> None:
    for text, _ in REFUSED:
        with pytest.raises(UsageError) as caught:
            parse_expression(text)
        assert caught.value.remedy, text


def test_long_sums_are_not_deep() -> None:
    terms = 300
    assert parse_expression("+".join(["x"] * terms)) == terms * x
    assert terms > MAX_DEPTH


def test_nothing_is_executed(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for hostile in (
        "__import__('pathlib').Path('owned').touch()",
        "[c for c in ().__class__.__base__.__subclasses__()]",
        "Symbol('x').func.__init__.__globals__",
        "exp.__globals__",
        'f\'{__import__("os").mkdir("owned")}\'',
        "open('owned', 'w')",
    ):
        with pytest.raises(UsageError):
            parse_expression(hostile)
    assert not list(tmp_path.iterdir())


# --- properties ------------------------------------------------------------------------------

_leaves = st.sampled_from(
    [("x", x), ("y", y), ("2", sympy.Integer(2)), ("0.5", Rational(1, 2)), ("pi", pi)]
)


def _grow(children):
    pairs = st.tuples(children, children)
    return st.one_of(
        pairs.map(lambda p: (f"({p[0][0]} + {p[1][0]})", p[0][1] + p[1][1])),
        pairs.map(lambda p: (f"({p[0][0]} - {p[1][0]})", p[0][1] - p[1][1])),
        pairs.map(lambda p: (f"{p[0][0]}*({p[1][0]})", p[0][1] * p[1][1])),
        pairs.map(lambda p: (f"Max({p[0][0]}, {p[1][0]})", Max(p[0][1], p[1][1]))),
        children.map(lambda c: (f"tanh({c[0]})", tanh(c[1]))),
        children.map(lambda c: (f"erf({c[0]})", erf(c[1]))),
        children.map(lambda c: (f"({c[0]})**2", c[1] ** 2)),
        children.map(lambda c: (f"abs({c[0]})", Abs(c[1]))),
        children.map(lambda c: (f"-({c[0]})", -c[1])),
        pairs.map(
            lambda p: (
                f"({p[0][0]} if x > y else {p[1][0]})",
                Piecewise((p[0][1], x > y), (p[1][1], True)),
            )
        ),
    )


@settings(max_examples=60, deadline=None)
@given(st.recursive(_leaves, _grow, max_leaves=6))
def test_agrees_with_sympy(pair: tuple[str, Expr]) -> None:
    text, expected = pair
    assert parse_expression(text) == expected


_tokens = st.lists(
    st.sampled_from(
        "x y 2 0.5 1e9 9**9 ( ) ( ) [ ] , + - * / ** ^ < > == = if else and or not lambda : := . "
        "exp( log( sqrt( gamma( Max( Piecewise(( __import__ 'a' \" # \\ \n ! β \0 \ud800".split(" ")
    ),
    max_size=12,
).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=30), _tokens))
@example("x" * (MAX_CHARACTERS + 1))
def test_any_text_gives_an_expression_or_a_usage_error(text: str) -> None:
    try:
        result = parse_expression(text)
    except UsageError:
        return
    assert isinstance(result, Expr)
