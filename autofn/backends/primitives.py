"""`primitives.h`: the scalar functions that a formula's maths stands on, and no others.

Each is a file of `templates/primitives`: text that compilers vectorise on a CPU, proven over every
float32; CUDA's own function on a GPU. A file may give several, of which it says the names, and what
files it needs before it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from autofn.resources import templates

_CALL = re.compile(r"\bautofn::(\w+)(?:<[\w, ]+>)?\(")
_STATED = re.compile(r"^// (needs|gives): (.*)\n", re.MULTILINE)


def used(text: str) -> tuple[str, ...]:
    """The primitives that a C++ text calls, with those that they need before them."""
    found: list[str] = []

    def add(name: str) -> None:
        name = _files()[name]
        if name not in found:
            for needed in _stated("needs", _source(name)):
                add(needed)
            found.append(name)

    # Overloads for double are to be seen where templates that call them are defined.
    for name in sorted(set(_CALL.findall(text)), key=lambda name: (name != "in_double", name)):
        add(name)
    return tuple(found)


@functools.cache
def _files() -> Mapping[str, str]:
    """The file of each function."""
    files = [path.stem for path in sorted((templates() / "primitives").glob("*.h"))]
    given = {name: file for file in files for name in _stated("gives", _source(file))}
    return given | dict(zip(files, files, strict=True))


def _stated(what: str, source: str) -> list[str]:
    said = (each[1] for each in _STATED.findall(source) if each[0] == what)
    return [name.strip() for names in said for name in names.split(",")]


def prelude() -> str:
    return _source("prelude").rstrip("\n")


def text(name: str) -> str:
    """The C++ of a primitive."""
    return _STATED.sub("", _source(name)).strip("\n")


def _source(name: str) -> str:
    return (templates() / "primitives" / f"{name}.h").read_text(encoding="utf-8")
