"""Tables that pages quote from the reports in benchmarks/, kept as they are there.

    python docs/figures.py

rewrites what stands between `<!-- figures: REPORT | SECTION | ROW, ROW, ... -->` and
`<!-- end -->`: the rows of that table of the report, below the line that says when and where they
were measured.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent
BENCHMARKS = DOCS.parent / "benchmarks"

_QUOTED = re.compile(r"(<!-- figures: (.+?) \| (.+?) \| (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def updated(page: str) -> str:
    """The page with its quoted tables as the reports have them. Raises KeyError for a lost row."""

    def table(match: re.Match[str]) -> str:
        opening, report, section, rows, closing = match.groups()
        text = (BENCHMARKS / report).read_text(encoding="utf-8")
        return f"{opening}{_quote(text, section, rows.split(', '))}{closing}"

    return _QUOTED.sub(table, page)


def _quote(report: str, section: str, rows: list[str]) -> str:
    _, found, rest = report.partition(f"## {section}\n")
    if not found:
        raise KeyError(section)
    lines = [line for line in re.split(r"^#", rest, flags=re.MULTILINE)[0].splitlines() if line]
    lines = [line for line in lines if line.startswith("|")]
    # A row is found by its first cell, or the first word of it.
    by_name = {cell.split(" (")[0]: line for line in lines for cell in [line.split(" | ")[0][2:]]}
    return "\n".join([f"{_when(report)}:", "", *lines[:2], *(by_name[row] for row in rows), "", ""])


def _when(report: str) -> str:
    facts = dict(re.findall(r"^- (date|cpu|gpu|torch): (.*)$", report, re.MULTILINE))
    if facts:
        where = facts.get("gpu", facts["cpu"])
        return f"{facts['date']}, {where}, torch {facts['torch']}"
    (line,) = re.findall(r"^(\d{4}-\d\d-\d\d, [^;\n]*);", report, re.MULTILINE)
    return str(line)


def main() -> None:
    for path in sorted(DOCS.glob("*.md")):
        before = path.read_text(encoding="utf-8")
        after = updated(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(f"{path.name} updated")


if __name__ == "__main__":
    main()
