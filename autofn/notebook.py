"""What a formula offers where people look at it: typeset, compiled at once, drawn, explained."""

from __future__ import annotations

import hashlib
import html
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
from sympy import S, Symbol, latex

from autofn import pipeline, trees
from autofn.derive import derive
from autofn.emit.words import LONGEST, condition
from autofn.errors import VerificationError
from autofn.explain import Explanation
from autofn.install import install
from autofn.model import Definition
from autofn.names import camel_case
from autofn.package import imported

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Op:
    """A compiled formula; calling it is calling `function`.

    `Module` is the nn.Module, `Function` the torch.autograd.Function, `folder` the package.
    """

    name: str
    function: Callable[..., Any]
    Module: type
    Function: type
    folder: Path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<autofn op {self.name}>"


def compiled(definition: Definition, *, verify: bool) -> Op:
    """The op of a definition, from a package in the user's cache.

    Raises FormulaError where the formula cannot be generated, VerificationError where `verify`
    finds it wrong.
    """
    package = pipeline.generate(definition)
    texts = "\0".join(part for file in package.files for part in file)
    key = hashlib.sha256(texts.encode()).hexdigest()[:16]
    if verify:
        from autofn.verify import verify_package

        report = verify_package(package, definition)
        if not report.ok:
            row = report.failures[0]
            raise VerificationError(
                f"{definition.name} failed its verification: {row.backend}, {row.check}: "
                f"{row.detail}",
                where=definition.where,
                remedy="the formula may be undefined there: give it a domain",
            )
    module = sys.modules.get(f"autofn_{key}_{package.name}")
    folder = _cache() / key / package.name
    if module is None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        module = imported(install(package, folder.parent).folder, f"autofn_{key}")
    name = camel_case(definition.name)
    return Op(
        name=definition.name,
        function=getattr(module, definition.name),
        Module=getattr(module, name),
        Function=getattr(module, f"{name}Function"),
        folder=folder,
    )


def _cache() -> Path:
    """Beside the libraries that packages build; see `_runtime.py` there."""
    named = os.environ.get("AUTOFN_CACHE_DIR")
    root = Path(named) if named else platformdirs.user_cache_path("autofn", appauthor=False)
    return root / "formulas"


# --- looks -------------------------------------------------------------------------------------


def typeset(definition: Definition) -> str:
    """The formula and its gradients in LaTeX, a line each."""
    lines: list[str] = []
    names = ", ".join(latex(Symbol(each.name)) for each in definition.parameters)
    many = len(definition.output_names) > 1
    for variant in definition.variants:
        if variant.key:
            lines.append(rf"\text{{{_words(condition(variant.key, definition))}:}} &")
        for name, output in zip(definition.output_names, variant.outputs, strict=True):
            head = rf"\operatorname{{{_words(name if many else definition.name)}}}"
            lines.append(rf"{head}\left({names}\right) &= {_latex(output)}")
        derivation = derive(definition, variant)
        plain = not (many or derivation.own)
        for symbol, entry in zip(derivation.variables, derivation.vjp, strict=True):
            by = latex(symbol)
            if plain:
                above = rf"\partial \operatorname{{{_words(definition.name)}}}"
                left = rf"\frac{{{above}}}{{\partial {by}}}"
                entry = None if entry is None else entry.xreplace({derivation.grads[0]: S.One})
            else:
                left = rf"\mathrm{{grad}}_{{{by}}}"
            right = r"\text{none}" if entry is None else _latex(entry)
            lines.append(f"{left} &= {right}")
    body = " \\\\\n".join(lines)
    return f"$$\\begin{{aligned}}\n{body}\n\\end{{aligned}}$$"


def _latex(expr: Any) -> str:
    size = trees.size(expr)
    if size > LONGEST:
        return rf"\text{{an expression of {size} operations}}"
    shown = {s: Symbol(s.name.lstrip("_")) for s in expr.free_symbols if s.name.startswith("_")}
    return str(latex(expr.xreplace(shown) if shown else expr))


def _words(text: str) -> str:
    """Text inside LaTeX: nothing in it is a command."""
    return "".join(rf"\{c}" if c in "_%&#${}" else c for c in text.replace("\\", "/"))


@dataclass(frozen=True)
class Shown:
    """What `autofn show` prints, for a notebook as a table."""

    explanation: Explanation

    def __str__(self) -> str:
        lines = [self.explanation.name]
        for title, text in self.explanation.sections:
            lines += [title, *(f"  {line}" for line in text.splitlines())]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        style = "text-align: left; vertical-align: top"
        rows = "".join(
            f'<tr><th style="{style}">{html.escape(title)}</th>'
            f'<td style="{style}"><pre style="margin: 0">{html.escape(text)}</pre></td></tr>'
            for title, text in self.explanation.sections
        )
        return f"<table>{rows}</table>"


@dataclass(frozen=True)
class Picture:
    """f, f' and f''; `figure` is matplotlib's."""

    figure: Figure

    def save(self, path: str | os.PathLike[str]) -> None:
        """By the file's ending: PNG, SVG, PDF. Raises UsageError where it cannot be written."""
        from autofn.report.picture import save

        save(self.figure, Path(path))

    def _repr_png_(self) -> bytes:
        from autofn.report.picture import png

        return png(self.figure)


def picture(definition: Definition) -> Picture:
    """Raises UsageError where matplotlib is missing."""
    from autofn.report.picture import figure, require, titled

    require()
    return Picture(figure(titled(definition)))
