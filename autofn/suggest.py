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
        return _function(_name(error))
    if isinstance(error, AttributeError):
        meant = close(_name(error), _names(getattr(error, "obj", None)), 0.7)
        return f"did you mean {meant}?" if meant else None
    text = str(error)
    if isinstance(error, ImportError):
        found = re.match(r"cannot import name '(\w+)' from '([\w.]+)'", text)
        return _function(found[1]) if found and found[2] in _MODULES else None
    found = re.search(r"unexpected keyword argument '(\w+)'", text)
    if isinstance(error, TypeError) and found and text.startswith("formula()"):
        meant = close(found[1], _OPTIONS)
        return (f"did you mean {meant}? " if meant else "") + f"options: {', '.join(_OPTIONS)}"
    return None


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
