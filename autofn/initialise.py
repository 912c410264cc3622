"""What `autofn init` writes into a project: settings, a hook, a CI workflow, attributes for git.

Each step adds what is missing and says what it did; what is there already is never replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from autofn import __version__
from autofn.errors import UsageError
from autofn.project import FILE, TABLE, table_of

PRE_COMMIT = ".pre-commit-config.yaml"
WORKFLOW = ".github/workflows/autofn.yml"
CHECK = "autofn gen --check"


@dataclass(frozen=True)
class Step:
    """One thing that was done, or why it was not; `wanting` is left to the user."""

    path: str
    what: str
    wanting: bool = False


def settings(root: Path, sources: Sequence[str], output: str) -> Step:
    """`[tool.autofn]`, all else in the file as it was."""
    text = _read(root / FILE)
    if table_of(text or "", Path(FILE)) is not None:
        return Step(FILE, f"has [{TABLE}] already")
    listed = ", ".join(json.dumps(each, ensure_ascii=False) for each in sources)
    table = (
        f"[{TABLE}]\n"
        f"sources = [{listed}]\n"
        f"output = {json.dumps(output, ensure_ascii=False)}\n"
        '# dtypes = ["float32", "bfloat16"]  # that packages are verified and measured in\n'
        '# architectures = ["80", "90"]  # CUDA libraries that `autofn build` builds\n'
        "# budgets = { swish = 4.0 }  # errors in ULP that `autofn verify --full` allows\n"
    )
    try:
        table_of(f"{text or ''}\n{table}", Path(FILE))
    except UsageError:  # `tool` is an inline table
        add = f"is not understood; add by hand: sources = [{listed}], output = {output!r}"
        return Step(FILE, add, wanting=True)
    _append(root / FILE, text, table, blank=True)
    return Step(FILE, f"{'added' if text else 'written with'} [{TABLE}]")


FORMULA = re.compile(r"^@(?:autofn\.)?formula\b", re.MULTILINE)


def sources(root: Path) -> tuple[str, ...]:
    """Where formulas are: a folder of that name, or else the files here that have one."""
    if (root / "formulas").exists():
        return ("formulas",)
    found = [path.name for path in sorted(root.glob("*.py")) if FORMULA.search(_text(path))]
    return tuple(found) or ("formulas",)


def _text(path: Path) -> str:
    """What a file says, as far as it can be read: it need not be the user's concern here."""
    with contextlib.suppress(OSError):
        return path.read_bytes().decode(errors="replace")
    return ""


def attributes(root: Path, output: str) -> Step:
    """Generated code is folded in reviews, and has the same bytes on Windows."""
    path = ".gitattributes"
    pattern = f"{output.replace(os.sep, '/').strip('/')}/**"
    if " " in pattern:
        pattern = f'"{pattern}"'
    text = _read(root / path)
    if any(line.startswith(f"{pattern} ") for line in (text or "").splitlines()):
        return Step(path, f"speaks of {pattern} already")
    _append(root / path, text, f"{pattern} linguist-generated=true text eol=lf\n")
    return Step(path, f"{'added' if text else 'written with'} {pattern}, as generated code")


def hook(root: Path, *, pre_commit: bool) -> Step:
    """`gen --check` before a commit: for pre-commit where that is used, else for git."""
    text = _read(root / PRE_COMMIT)
    if text is not None or pre_commit:
        return _pre_commit(root, text)
    return _git_hook(root)


def workflow(root: Path) -> Step:
    """The same in CI, on GitHub's runners."""
    if (root / WORKFLOW).exists():
        return Step(WORKFLOW, "is there already")
    path, (autofn, known) = root / WORKFLOW, _autofn()
    requirements = f"{shlex.quote(autofn)} sympy=={metadata.version('sympy')}"
    _make(path)
    _write(path, _WORKFLOW.format(requirements=requirements))
    what = f"written: {CHECK} for pushes and pull requests"
    if not known:
        what += f"; CI will pip install {autofn}: correct that line if it cannot"
    return Step(WORKFLOW, what, wanting=not known)


_WORKFLOW = """\
# Written by autofn init: generated code is what its formulas say.
name: autofn

on:
  push:
  pull_request:

jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      # The versions that generated the packages: others may give other texts.
      - run: python -m pip install {requirements}
      - run: autofn gen --check
"""

_HOOK = """\
- repo: local
  hooks:
    - id: autofn
      name: generated code is what its formulas say
      entry: autofn gen --check --quiet
      language: system
      pass_filenames: false
      always_run: true
"""


def _autofn() -> tuple[str, bool]:
    """This autofn as a requirement, and whether another machine can follow it."""
    released = f"autofn=={__version__}"
    try:
        origin = json.loads(metadata.distribution("autofn").read_text("direct_url.json") or "{}")
        if not origin:
            return released, True
        kind, commit = origin["vcs_info"]["vcs"], origin["vcs_info"]["commit_id"]
        return f"autofn @ {kind}+{origin['url']}@{commit}", True
    except (metadata.PackageNotFoundError, ValueError, KeyError):
        return released, False


def _pre_commit(root: Path, text: str | None) -> Step:
    if text is None:
        _write(root / PRE_COMMIT, f"repos:\n{_indented(_HOOK, '  ')}")
        return Step(PRE_COMMIT, "written; pre-commit install makes git use it")
    if "autofn gen" in text:
        return Step(PRE_COMMIT, f"runs {CHECK} already")
    lines = text.splitlines(keepends=True)
    begin = next((i for i, line in enumerate(lines) if re.match(r"repos:\s*(#.*)?$", line)), None)
    items = [re.match(r"(\s*)-\s", line) for line in lines[(begin or 0) + 1 :]]
    first = next(filter(None, items), None)
    if begin is None or first is None:
        add = " ".join(_HOOK.split())
        return Step(PRE_COMMIT, f"is not understood; add by hand: {add}", wanting=True)
    end = next(
        (i for i in range(begin + 1, len(lines)) if re.match(r"[^\s#-]", lines[i])), len(lines)
    )
    while not lines[end - 1].strip():
        end -= 1
    newline = "\r\n" if "\r\n" in text else "\n"
    if not lines[end - 1].endswith("\n"):
        lines[end - 1] += newline
    lines.insert(end, _indented(_HOOK, first[1]).replace("\n", newline))
    _write(root / PRE_COMMIT, "".join(lines))
    return Step(PRE_COMMIT, f"added a local hook: {CHECK}")


def _git_hook(root: Path) -> Step:
    shown = ".git/hooks/pre-commit"
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "--git-path", "hooks"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return Step(shown, "not written: git does not run here", wanting=True)
    if asked.returncode:
        why = "not written: this is no git repository; git init, then autofn init again"
        return Step(shown, why, wanting=True)
    path = root / asked.stdout.strip() / "pre-commit"
    shown = os.path.relpath(path, root)
    text = _read(path)
    if text is not None:
        if "gen --check" in text:
            return Step(shown, f"runs {CHECK} already")
        return Step(shown, f"is yours; add the line: {CHECK} || exit 1", wanting=True)
    _make(path)
    folder = shlex.quote(os.path.relpath(os.path.realpath(root), _top(root)))
    _write(
        path,
        "#!/bin/sh\n"
        "# Written by autofn init: generated code is what its formulas say.\n"
        f"cd {folder} || exit 1\n"
        f"python={shlex.quote(sys.executable)}\n"
        '[ -x "$python" ] || python=python3\n'
        'exec "$python" -m autofn gen --check --quiet\n',
    )
    path.chmod(0o755)
    return Step(shown, f"written: {CHECK} before each commit")


def _top(root: Path) -> str:
    """Where git runs hooks."""
    asked = subprocess.run(
        ["git", "rev-parse", "--show-toplevel"], cwd=root, capture_output=True, text=True
    )
    return asked.stdout.strip() or str(root)


# --- files ---------------------------------------------------------------------------------


def _indented(text: str, by: str) -> str:
    return "".join(f"{by}{line}" for line in text.splitlines(keepends=True))


def _read(path: Path) -> str | None:
    """A file's text with its own line ends; None where there is none."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise UsageError(f"{path.name} is not UTF-8 text", remedy="save it as UTF-8") from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", remedy="look at its permissions"
        ) from None


def _append(path: Path, before: str | None, text: str, *, blank: bool = False) -> None:
    if before:
        newline = "\r\n" if "\r\n" in before else "\n"
        text = text.replace("\n", newline)
        if not before.endswith("\n"):
            before += newline
        before += newline if blank else ""
    _write(path, (before or "") + text)


def _make(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from None


def _write(path: Path, text: str) -> None:
    """In one step, so that what was there is not lost half way."""
    beside = path.with_name(f".{path.name}.autofn")
    try:
        beside.write_bytes(text.encode())
        if path.exists():
            beside.chmod(path.stat().st_mode)
        os.replace(beside, path.resolve())
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"{path} cannot be written: {error.strerror}", remedy="go to a folder of yours"
    )
