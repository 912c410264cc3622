"""Folding of long lines of generated Python, at brackets and commas, as black would."""

from __future__ import annotations

WIDTH = 100

_OR = " or "

_PAIRS = {"(": ")", "[": "]", "{": "}"}


def fold(text: str) -> str:
    """The text with its long lines of code folded; docstrings and comments stay as they are."""
    lines: list[str] = []
    quoted = False
    for line in text.split("\n"):
        inside = quoted or line.lstrip().startswith("#")
        if line.count('"""') % 2:
            quoted = not quoted
        if inside or '"""' in line:
            lines.append(line)
        else:
            lines += _folded(line)
    return "\n".join(lines)


def _folded(line: str) -> list[str]:
    if len(line) <= WIDTH:
        return [line]
    pairs = sorted(_brackets(line), key=lambda pair: (pair[0] - pair[1], pair[0]))
    # The longest pair that leaves a short enough end: what follows it stays on its line.
    for start, end in pairs:
        if end - start > 8 and len(line) - end < WIDTH // 2:
            indent = " " * (len(line) - len(line.lstrip()))
            head, content, tail = line[: start + 1], line[start + 1 : end], line[end:]
            body = f"{indent}    {content.strip()}"
            items = _split(content)
            if len(body) > WIDTH or (content.rstrip().endswith(",") and len(items) > 1):
                lines = [f"{indent}    {item}," for item in items]
                if len(items) == 1 and (" for " in content or head.endswith((" (", "(("))):
                    # No comma: it would make a tuple of what is in brackets.
                    lines = [f"{indent}    {each}" for each in content.strip().split(_OR)]
                    lines[1:] = [f"{indent}    or {each.lstrip()}" for each in lines[1:]]
            else:
                lines = [body]
            folded = [each for new in lines for each in _folded(new)]
            return [*_folded(head), *folded, indent + tail]
    margin, word, condition = line.partition("if ")
    if word and not margin.strip() and condition.endswith(":"):
        return _folded(f"{margin}if ({condition[:-1]}):")
    return [line]


def _brackets(line: str) -> list[tuple[int, int]]:
    """Matching brackets outside of strings, as positions."""
    found: list[tuple[int, int]] = []
    stack: list[int] = []
    quote = ""
    for index, char in enumerate(line):
        if quote:
            quote = "" if char == quote and line[index - 1] != "\\" else quote
        elif char in "\"'":
            quote = char
        elif char in _PAIRS:
            stack.append(index)
        elif stack and char == _PAIRS[line[stack[-1]]]:
            found.append((stack.pop(), index))
    return found


def _split(content: str) -> list[str]:
    """The items between the commas of the outermost level."""
    closed = dict(_brackets(content))
    items, start, index, quote = [], 0, 0, ""
    while index < len(content):
        char = content[index]
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif index in closed:
            index = closed[index]
        elif char == ",":
            items.append(content[start:index].strip())
            start = index + 1
        index += 1
    last = content[start:].strip()
    return [*items, last] if last else items
