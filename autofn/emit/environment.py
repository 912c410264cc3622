"""The Jinja environment of the templates."""

from __future__ import annotations

import functools
import re
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
    if not template.endswith(".py.j2"):
        return text
    # Parts of a template that come to nothing leave their blank lines.
    return fold(re.sub(r"\n{4,}", "\n\n\n", text))
