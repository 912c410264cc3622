"""What MkDocs is told beside mkdocs.yml: pages that lie outside docs/.

Links are written as they work in the repository (`../benchmarks/cpu.md`); in the site these files
are pages of the folder of their name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = (
    "CHANGELOG.md",
    "benchmarks/**/*.md",
    "benchmarks/**/*.png",
    "examples/*/*.md",
    "examples/*/results.json",
    "examples/*/results.png",
)


def on_files(files: Files, config: Any) -> Files:
    """Adds what lies outside docs/."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to them, from pages that lie in docs/ itself."""
    return markdown if "/" in page.file.src_uri else markdown.replace("](../", "](")
