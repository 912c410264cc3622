"""What a misspelt name was meant to be."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_OURS = ("Tensor", "Learnable", "PerChannel", "formula")

_OPTIONS = ("domain", "reduction", "amp", "save", "budget")
"""Those of @formula."""


def close(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The name nearest to one, whatever its case; None where none is near."""
    known = {each.lower(): each for each in sorted(names, reverse=True)}
    found = difflib.get_close_matches(name.lower(), known, n=3, cutoff=cutoff)
    # Two letters in each other's place are a slip more often than two others.
    found.sort(key=lambda each: sorted(each) != sorted(name.lower()))
    return known[found[0]] if found else None


def for_exception(error: BaseException) -> str | None:
    """The remedy for a name that is missing in a user's file, where one comes to mind."""
    if isinstance(error, NameError):
        if _name(error) == "sympy":
            return "add: import sympy"
        return _SYMPYS if _name(error) in _LIBRARIES else _function(_name(error))
    if isinstance(error, AttributeError):
        obj = getattr(error, "obj", None)
        meant = close(_name(error), _names(obj), 0.7)
        return f"did you mean {meant}?" if meant else _method(obj, _name(error))
    text = str(error)
    if isinstance(error, ImportError):
        found = re.match(r"cannot import name '(\w+)' from '([\w.]+)'", text)
        return _function(found[1]) if found and found[2] in _MODULES else None
    found = re.search(r"unexpected keyword argument '(\w+)'", text)
    if isinstance(error, TypeError) and found and text.startswith("formula()"):
        meant = close(found[1], _OPTIONS)
        return (f"did you mean {meant}? " if meant else "") + f"options: {', '.join(_OPTIONS)}"
    return None


def in_body(error: BaseException, parameters: Iterable[str], code: str) -> str:
    """The remedy for what was raised on symbols; `code` is the text that raised, where known."""
    if isinstance(error, NameError):
        name = _name(error)
        meant = close(name, parameters)
        if meant:
            return f"did you mean {meant}?"
        return for_exception(error) or (
            f"add it to the signature (`{name}: float = 1.0`, or `{name}` for a tensor), "
            "or define or import it"
        )
    found = for_exception(error)
    if found:
        return found
    for pattern, remedy in _ON_SYMBOLS:
        if re.search(pattern, f"{type(error).__name__}: {error} in {code}", re.DOTALL):
            return remedy
    return "the body must run on SymPy symbols and return an expression"


_PIECEWISE = "write Piecewise((a, x > 0), (b, True))"
_SYMPYS = "use SymPy's functions (from sympy import exp), not those of math, numpy or torch"
_ELEMENTWISE = "a formula is elementwise: x stands for one element, and has no shape"

_ON_SYMBOLS = (
    (r"truth value.* in (max|min)\b", "write Max(a, b) or Min(a, b) (from sympy import Max, Min)"),
    (r"truth value.* in [^<>]*[<>][^<>]*[<>]", "write And(0 < x, x < 1) (from sympy import And)"),
    (r"truth value", f"symbols have no truth value: {_PIECEWISE} for `if`"),
    (r"must be a Boolean|ExprCondPair", f"{_PIECEWISE}: pairs of a value and its condition"),
    (r"for \^", "write x**2 for a power"),
    (r"not subscriptable|not iterable|has no len|for @", _ELEMENTWISE),
    (r"round symbolic|symbols to int", "write floor(x) or ceiling(x) (from sympy import floor)"),
    (r"ufunc|must be Tensor|float|real number", _SYMPYS),
    (r"\btakes\b.*argument|argument.*given|missing.*argument", "correct the arguments of the call"),
    (r"ZeroDivisionError", "look for a division by zero in the formula"),
)
"""What exceptions, and the code that raised them, look like, and what to do about them."""

_LIBRARIES = ("F", "cmath", "jnp", "math", "nn", "np", "numpy", "torch")

_SHAPES = (
    *("T", "dim", "flatten", "max", "mean", "min", "norm", "numel", "permute", "reshape", "shape"),
    *("size", "softmax", "std", "sum", "unsqueeze", "squeeze", "transpose", "var", "view"),
)


def _method(obj: object, name: str) -> str | None:
    """x.exp() of PyTorch as a function of SymPy."""
    import sympy

    if not isinstance(obj, sympy.Basic):
        return None
    if name in _SHAPES:
        return _ELEMENTWISE
    found = _function(name)
    if found and found.startswith("add: "):
        return f"write {name}(x) ({found.removeprefix('add: ')})"
    return found


_MODULES = ("sympy", "autofn", "autofn.functions")


def _function(name: str) -> str | None:
    """The import that a name lacks, or the nearest name with its import."""
    import sympy

    from autofn import functions, parse

    places = {
        **dict.fromkeys(dir(sympy), "sympy"),
        **dict.fromkeys(functions.__all__, "autofn.functions"),
        **dict.fromkeys(_OURS, "autofn"),
    }
    if name in ("where", "cond"):  # an expression's `if` is no formula file's
        return f"{_PIECEWISE} (from sympy import Piecewise)"
    if name in parse.OTHER_NAMES:
        return f"write {parse.OTHER_NAMES[name]}"
    if name in places:
        return f"add: from {places[name]} import {name}"
    # Functions that formulas are made of, before everything else that SymPy has.
    formulas = [each for each in places if each in parse.function_table() or each in _OURS]
    meant = close(name, formulas, 0.65) or close(name, places, 0.8)
    return f"did you mean {meant}? (from {places[meant]} import {meant})" if meant else None


def _name(error: NameError | AttributeError) -> str:
    return getattr(error, "name", None) or ""


def _names(thing: object) -> list[str]:
    try:
        return [name for name in dir(thing) if not name.startswith("_")]
    except Exception:  # a user's own __dir__
        return []
