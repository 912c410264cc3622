"""First steps."""

from typing import Literal, NamedTuple

from sympy import tanh

from autofn import formula


class Settings(NamedTuple):
    """What `affine_settings` is told beside its tensor."""

    scale: float = 2.0
    shift: float = 0.5
    squash: Literal["none", "tanh"] = "none"


DEFAULTS = Settings()


@formula
def affine_settings(x, settings: Settings = DEFAULTS):
    """Affine map scale * x + shift, through tanh if the settings say so (an example)."""
    y = settings.scale * x + settings.shift
    return tanh(y) if settings.squash == "tanh" else y
