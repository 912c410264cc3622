"""`autofn init`: a project of the user's, set up to keep its generated code in step."""

from __future__ import annotations

from pathlib import Path

import click

from autofn.cli.console import say
from autofn.errors import UsageError


@click.command()
@click.option(
    "--sources",
    multiple=True,
    metavar="PATH",
    help="Formula files and folders of them; repeatable (default: formulas, or files here).",
)
@click.option(
    "-o", "output", default="generated", show_default=True, help="Folder of the packages."
)
@click.option("--pre-commit", is_flag=True, help="Use pre-commit, also if it is not in use yet.")
@click.option("--no-hook", is_flag=True, help="No hook for commits.")
@click.option("--no-ci", is_flag=True, help="No workflow for GitHub.")
def init(
    sources: tuple[str, ...], output: str, pre_commit: bool, no_hook: bool, no_ci: bool
) -> None:
    """Set up the project in this folder: settings, a commit hook, CI, attributes for git.

    Adds [tool.autofn] to pyproject.toml, so that autofn gen, check, watch and verify need no FILE;
    `autofn gen --check` before each commit and in CI; and marks generated code in .gitattributes.
    What is there already stays as it is.
    """
    from autofn import initialise as steps

    root = Path.cwd()
    for path in (*sources, output):
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise UsageError(f"{path} lies outside of the project", remedy="name a path below it")
    from autofn import project

    done = [steps.settings(root, sources or steps.sources(root), output)]
    # What the table says, where there was one already; an error in it shows now.
    found = project.find(root)
    output = found.output if found is not None and found.root == root else output
    done.append(steps.attributes(root, output))
    if not no_hook:
        done.append(steps.hook(root, pre_commit=pre_commit))
    if not no_ci:
        done.append(steps.workflow(root))
    for step in done:
        say(f"{step.path}: {step.what}", "yellow" if step.wanting else None)
    say("next: autofn new NAME writes a formula, autofn gen --watch generates while you edit")
