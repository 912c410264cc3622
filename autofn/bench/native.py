"""PyTorch's own operator for formulas of the library, by name: a rival, and nothing else.

The one place where a name decides anything. An operator that gives other values than the
generated op is not measured, so that a user's formula of the same name does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Operator = Callable[..., Any]

NATIVE: dict[str, tuple[str, Operator]] = {
    "bce_with_logits": (
        "F.binary_cross_entropy_with_logits",
        lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
    ),
    "celu": ("F.celu", F.celu),
    "elu": ("F.elu", F.elu),
    "exp": ("torch.exp", torch.exp),
    "gelu": ("F.gelu", F.gelu),
    "gelu_tanh": ("F.gelu", lambda x: F.gelu(x, approximate="tanh")),
    "hard_sigmoid": ("F.hardsigmoid", F.hardsigmoid),
    "hard_swish": ("F.hardswish", F.hardswish),
    "hardshrink": ("F.hardshrink", F.hardshrink),
    "hardtanh": ("F.hardtanh", F.hardtanh),
    "huber": ("F.huber_loss", lambda x, y: F.huber_loss(x, y, reduction="none")),
    "leaky_relu": ("F.leaky_relu", F.leaky_relu),
    "logit": ("torch.logit", torch.logit),
    "logsigmoid": ("F.logsigmoid", F.logsigmoid),
    "mish": ("F.mish", F.mish),
    "prelu": ("F.prelu", F.prelu),
    "relu": ("F.relu", F.relu),
    "relu6": ("F.relu6", F.relu6),
    "selu": ("F.selu", F.selu),
    "sigmoid": ("torch.sigmoid", torch.sigmoid),
    "smooth_l1": ("F.smooth_l1_loss", lambda x, y: F.smooth_l1_loss(x, y, reduction="none")),
    "softplus": ("F.softplus", F.softplus),
    "softshrink": ("F.softshrink", F.softshrink),
    "softsign": ("F.softsign", F.softsign),
    "swish": ("F.silu", F.silu),
    "tanh": ("torch.tanh", torch.tanh),
    "tanhshrink": ("F.tanhshrink", F.tanhshrink),
    "threshold": ("F.threshold", lambda x: F.threshold(x, 1.0, 1.0)),
}
"""Label and operator on the formula's tensors; numbers as in the formula's defaults."""

BASELINE: tuple[str, Operator] = ("F.silu", F.silu)
"""What every small call is compared with."""
