"""From a formula file, or the text of an expression, to `Formula`s, in this process.

A formula file is the user's own Python and is executed. Errors in it become `FormulaError`s that
name the line; what loops for ever or kills its process is the business of `worker`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import linecache
import os
import signal
import sys
import types
from collections.abc import Iterator
from pathlib import Path

from autofn import places, suggest
from autofn.api import Formula, collect_formulas
from autofn.errors import AutofnError, FormulaError, Location, about
from autofn.parse import parse_expression
from autofn.source import EXPR_SOURCE, ExprSource, FileSource, Source


def load_file(path: str | os.PathLike[str]) -> list[Formula]:
    """The formulas defined in a formula file, in order, each traced already.

    A formula that cannot be traced raises its FormulaError from `definition`. Raises FormulaError
    where the file cannot be read or executed, has no formula, or two of one name. Nothing stays
    behind in `sys.path` and `sys.modules`.
    """
    with opened(FileSource(os.fspath(path))) as formulas:
        for formula in formulas:
            with contextlib.suppress(FormulaError):
                _ = formula.definition
    return formulas


@contextlib.contextmanager
def opened(source: Source) -> Iterator[list[Formula]]:
    """The formulas of a source, not traced yet; a file's own folder is importable within it."""
    if isinstance(source, ExprSource):
        params = dict(source.params)
        expr = parse_expression(source.text, params)
        yield [Formula.from_expr(expr, source.name, params, source=EXPR_SOURCE)]
        return
    path = source.path
    code = _compiled(path)
    module = types.ModuleType(f"autofn_formula_file_{Path(path).stem}")
    module.__file__ = os.path.abspath(path)
    with _importable(module):
        with collect_formulas() as made:
            _execute(code, module, path)
        own = [f for f in made if f.where.file == path or f.body.__module__ == module.__name__]
        if own or not source.optional:
            _check_names(own, path)
        yield [f for f in own if source.only in (None, f.name)]


@about("file")
def _compiled(path: str) -> types.CodeType:
    text = _read(path)
    try:
        return compile(text, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise _syntax_error(error, path) from None
    except (MemoryError, RecursionError):
        raise FormulaError(
            "the file is nested too deeply for Python to read",
            where=Location(path, 1, whole=True),
            remedy="split the expression",
        ) from None
    except ValueError as error:  # null bytes, before Python 3.12
        raise FormulaError(
            f"syntax error: {error}",
            where=Location(path, 1, whole=True),
            remedy="save it as UTF-8 text",
        ) from None


def _read(path: str) -> str:
    where = Location(path, 1, whole=True)
    if os.path.isdir(path):
        raise FormulaError(f"{path} is a folder", remedy="name a formula file in it")
    if not path.endswith(".py"):
        raise FormulaError(f"{path} is not a Python file", remedy="name it with .py at the end")
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise FormulaError(
            f"no such file: {path}", remedy="check the path; autofn new NAME writes a first one"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FormulaError(f"{path} cannot be read: {reason}", remedy="check the path") from None
    try:
        if b"coding" not in data[:200]:
            # Python's own message does not say so of the first two lines.
            data.decode("utf-8-sig")
        return importlib.util.decode_source(data)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise FormulaError(
            f"the file is not {error.encoding.upper().removesuffix('-SIG')} text",
            where=Location(path, line),
            remedy="save it as UTF-8",
        ) from None
    except (SyntaxError, LookupError) as error:  # the encoding that the file itself declares
        raise FormulaError(f"{error}", where=where, remedy="save it as UTF-8") from None


@about("loading")
def _execute(code: types.CodeType, module: types.ModuleType, path: str) -> None:
    # getsource must see the file as it is now.
    linecache.checkcache(path)
    try:
        exec(code, module.__dict__)
    except AutofnError as error:
        raise error.at(_line_in(error, path)) from None
    except SyntaxError as error:  # in a file that this one imports
        raise _syntax_error(error, path) from None
    except RecursionError as error:
        raise FormulaError(
            "the file recurses without an end",
            where=_line_in(error, path),
            remedy="give the recursion a fixed depth",
        ) from None
    except MemoryError as error:
        raise FormulaError("the file ran out of memory", where=_line_in(error, path)) from None
    except SystemExit as error:
        raise FormulaError(
            f"the file ends the program: SystemExit({error.code!r})",
            where=_line_in(error, path),
            remedy="remove the call of sys.exit; the file is imported, not run",
        ) from None
    except KeyboardInterrupt as error:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            raise  # someone's Ctrl-C
        raise FormulaError(
            "the file raises KeyboardInterrupt", where=_line_in(error, path), remedy="remove it"
        ) from None
    except BaseException as error:
        raise FormulaError(
            f"{type(error).__name__}: {error}",
            where=_line_in(error, path),
            remedy=_remedy_for(error),
        ) from None


def _line_in(error: BaseException, path: str) -> Location:
    return places.of_exception(error, path) or Location(path, 1, whole=True)


def _syntax_error(error: SyntaxError, path: str) -> FormulaError:
    where = places.of_syntax(error, path)
    found = FormulaError(f"syntax error: {error.msg}", where=where, remedy="correct the line")
    found.kind = "syntax"
    return found


def _remedy_for(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"install {error.name}, or remove the import"
    return suggest.for_exception(error) or "a formula file must run as plain Python"


@about("no-formula")
def _check_names(formulas: list[Formula], path: str) -> None:
    if not formulas:
        raise FormulaError(
            "the file has no formula",
            where=Location(path, 1, whole=True),
            remedy="put @formula (from autofn import formula) above a function of SymPy symbols",
        )
    first: dict[str, Formula] = {}
    for formula in formulas:
        if formula.name in first:
            raise FormulaError(
                f"two formulas are named {formula.name!r}: here and in "
                f"line {first[formula.name].where.line}",
                where=formula.where,
                remedy="rename one of them",
            )
        first[formula.name] = formula


@contextlib.contextmanager
def _importable(module: types.ModuleType) -> Iterator[None]:
    """The module and what lies beside it can be imported within; nothing of it stays."""
    assert module.__file__ is not None
    folder = os.path.dirname(module.__file__)
    path, modules = list(sys.path), set(sys.modules)
    caches, bytecode = set(sys.path_importer_cache), sys.dont_write_bytecode
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    # Dataclasses and annotations look their module up.
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        sys.path[:] = path
        sys.dont_write_bytecode = bytecode
        beside = {n for n in sys.modules if n not in modules and _lies_in(n, folder)}
        for name in beside | {module.__name__}:
            sys.modules.pop(name, None)
        if folder not in caches:
            sys.path_importer_cache.pop(folder, None)


def _lies_in(name: str, folder: str) -> bool:
    """Whether the module's top-level package lies directly in the folder."""
    top = sys.modules.get(name.partition(".")[0])
    places = [getattr(top, "__file__", None), *getattr(top, "__path__", ())]
    return any(
        os.path.dirname(os.path.abspath(place)) == folder
        or (
            os.path.basename(place) == "__init__.py"
            and os.path.dirname(os.path.dirname(os.path.abspath(place))) == folder
        )
        for place in places
        if place
    )
