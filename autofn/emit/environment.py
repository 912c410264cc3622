"""The Jinja environment of the templates."""

from __future__ import annotations

import functools
from typing import Any

import jinja2

from autofn import resources
from autofn.backends.fold import fold


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.templates()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def rendered(template: str, **context: Any) -> str:
    text = _environment().get_template(template).render(**context)
    return fold(text) if template.endswith(".py.j2") else text
