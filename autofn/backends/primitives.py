"""`primitives.h`: the scalar functions that a formula's maths stands on, and no others.

Each is a file of `templates/primitives`: text that compilers vectorise on a CPU, proven over every
float32; CUDA's own function on a GPU.
"""

from __future__ import annotations

import re

from autofn.resources import templates

_CALL = re.compile(r"\bautofn::(\w+)(?:<[\w, ]+>)?\(")
_NEEDS = re.compile(r"^// needs: (.*)$", re.MULTILINE)


def used(text: str) -> tuple[str, ...]:
    """The primitives that a C++ text calls, with those that they need before them."""
    found: list[str] = []

    def add(name: str) -> None:
        if name not in found:
            for needed in _needs(name):
                add(needed)
            found.append(name)

    # Overloads for double are to be seen where templates that call them are defined.
    for name in sorted(set(_CALL.findall(text)), key=lambda name: (name != "in_double", name)):
        add(name)
    return tuple(found)


def _needs(name: str) -> list[str]:
    stated = _NEEDS.search(_source(name))
    return [each.strip() for each in stated.group(1).split(",")] if stated else []


def prelude() -> str:
    return _source("prelude").rstrip("\n")


def text(name: str) -> str:
    """The C++ of a primitive."""
    return _NEEDS.sub("", _source(name)).strip("\n")


def _source(name: str) -> str:
    return (templates() / "primitives" / f"{name}.h").read_text(encoding="utf-8")
