"""`autofn new`: a formula file to start from."""

from __future__ import annotations

import keyword
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from autofn import project
from autofn.errors import UsageError

_TEXT = '''"""Activation."""

import sympy

from autofn import formula

# Tensors come first: `y` alone is one with a gradient. Then what else the op needs:
#   bias: Tensor | None = None         an optional tensor
#   alpha: Learnable = 0.25            a learnable number, an nn.Parameter of the module
#   alpha: PerChannel = 0.25           one for each channel
#   beta: float = 1.0                  a number given at run time
#   mode: Literal["a", "b"] = "a"      a choice; the body runs once for each value
# (from autofn import Learnable, PerChannel, Tensor). Write the formula as the paper does, with
# SymPy's functions or those of autofn.functions; return a tuple or a dict for several outputs.


@formula
def {name}(x, beta: float = 1.0):
    """{title}: x * sigmoid(beta * x); say here what it is, and where it is from."""
    return x / (1 + sympy.exp(-beta * x))
'''


@click.command()
@click.argument("name")
def new(name: str) -> None:
    """Write NAME.py, a commented formula file that generates as it is.

    In a project (autofn init) it goes into the folder of its sources.
    """
    name = name.removesuffix(".py")
    _check_name(name)
    found = project.find()
    here = found if found and found.root == Path.cwd() else None
    path = _folder(here) / f"{name}.py"
    text = _TEXT.format(name=name, title=name.replace("_", " ").capitalize())
    try:
        path.parent.mkdir(exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(
            f"{path} exists and is not overwritten", remedy="choose another name, or edit it"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", remedy="go to a folder of yours"
        ) from None
    click.echo(f"wrote {path}; next: autofn gen {path}")
    if here and here.sources and not _is_within(path, here.sources):
        click.echo(
            f"gen, --check and the hook pass over it by themselves: add {path.as_posix()!r} to "
            "`sources` in [tool.autofn] of pyproject.toml"
        )


def _is_within(path: Path, sources: Iterable[str]) -> bool:
    return any(source == path or source in path.parents for source in map(Path, sources))


def _folder(here: project.Project | None) -> Path:
    """The first folder of formulas of the project whose root this is; else this one."""
    folders = [Path(each) for each in here.sources if not each.endswith(".py")] if here else []
    return folders[0] if folders else Path()


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise UsageError(
            f"{name!r} is no name for a formula", remedy="use a Python identifier: my_activation"
        )
    if name.startswith("_") or name[:1].isupper():
        raise UsageError(
            f"{name!r} leaves no name for the module's class",
            remedy=f"write it in lower case: {name.strip('_').lower() or 'my_activation'}",
        )
    if name in sys.stdlib_module_names or name in ("autofn", "sympy", "torch", "numpy"):
        raise UsageError(
            f"a file {name}.py would hide the module {name}", remedy=f"call it {name}_op, say"
        )
