"""The line of the user's text that an error is about, with carets under what is meant."""

from __future__ import annotations

import io
import tokenize
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

if TYPE_CHECKING:
    from autofn.errors import Location

_LEAST = 20
"""Columns of the line that are shown in the narrowest of terminals."""


def snippet(where: Location, width: int) -> Text:
    """Lines that begin with a line end; nothing where there is no line to show.

    A line that is wider than `width` is cut around what is meant.
    """
    line = None if where.whole else _line(where)
    if line is None or not line.strip():
        return Text()
    begin, end = _span(where, line)
    number = "" if where.text is not None else str(where.line)
    gutter = f"  {number} | "
    before, meant, after = _cut(line, begin, end, max(_LEAST, width - len(gutter)))
    text = Text()
    text.append(f"\n{gutter}", "bright_black")
    text.append(before).append(meant, "bold").append(after)
    text.append(f"\n  {' ' * len(number)} | ", "bright_black")
    text.append(" " * cell_len(before))
    text.append("^" * max(1, cell_len(meant)), "bold red")
    return text


def _line(where: Location) -> str | None:
    """The line, its tabs as blanks, so that every character of it has its place below."""
    text = where.text
    if text is None:
        try:
            with open(where.file, "rb") as file:
                data = file.read()
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            text = data.decode(encoding, "replace").splitlines()[where.line - 1]
        except (OSError, SyntaxError, LookupError, IndexError, ValueError):
            return None
    return "".join(character if character.isprintable() else " " for character in text)


def _span(where: Location, line: str) -> tuple[int, int]:
    """Begin and end of what is meant, within the line."""
    least = len(line) - len(line.lstrip())
    most = len(line.rstrip())
    if where.span is None:
        return least, most
    begin = min(max(where.span[0], 0), most)
    return begin, max(begin, min(where.span[1], most))


def _cut(line: str, begin: int, end: int, width: int) -> tuple[str, str, str]:
    """What is before, within and after the span, as much of it as has room."""
    line = line.rstrip()
    if cell_len(line) <= width:
        return line[:begin], line[begin:end], line[end:]
    room = width - 2  # for the dots on either side
    first = max(0, min(begin - room // 3, len(line) - room))
    while cell_len(line[first : first + room]) > room:
        room -= 1
    last = first + room
    before, after = "…" if first else "", "…" if last < len(line) else ""
    inside = line[begin : min(end, last)]
    return before + line[first:begin], inside, line[begin + len(inside) : last] + after
