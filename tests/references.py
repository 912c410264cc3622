"""An independent PyTorch reference and sample inputs for every formula of the library.

A reference has the signature of the generated function and stands on PyTorch's own operators:
the native one where there is one, else a stable composition that autograd differentiates twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, dtype

Inputs = dict[str, Any]
"""Arguments by name in signature order: tensors, then numbers."""
InputsFunction = Callable[[Generator, dtype], Inputs]

SHAPE = (3, 4, 5)
EXTREMES = (-104.0, -89.0, -17.0, 17.0, 89.0, 104.0)
"""Where float32's exp, tanh or a sigmoid saturates; NaN there is what a naive form gives."""


@dataclass(frozen=True)
class Points:
    """Given points, and the gradient of the sum of the outputs there.

    `inputs` has one list per tensor. `gradients` is written out where autograd of the reference
    would give another one, else it is the reference's.
    """

    inputs: Inputs
    gradients: dict[str, Any] | None = None


@dataclass(frozen=True)
class Reference:
    """How one formula is tested.

    second: autograd differentiates the reference twice.
    native: the PyTorch operator that the reference is.
    kinks: where the derivative jumps, or where a formula only looks as if it did.
    """

    function: Callable[..., Any]
    inputs: InputsFunction
    second: bool = True
    native: str | None = None
    kinks: Points | None = None


# --- sample inputs -------------------------------------------------------------------------


def normal(
    generator: Generator,
    dtype: dtype,
    shape: Sequence[int] = SHAPE,
    *,
    scale: float = 2.0,
    avoid: Sequence[float] = (),
    margin: float = 0.125,
) -> Tensor:
    """Normal numbers, none within `margin` of the points to `avoid`."""
    x = torch.randn(tuple(shape), generator=generator, dtype=torch.float64) * scale
    for point in avoid:
        side = torch.where(x < point, -margin, margin)
        x = torch.where((x - point).abs() < margin, point + side, x)
    return x.to(dtype)


def uniform(
    generator: Generator, dtype: dtype, shape: Sequence[int], low: float, high: float
) -> Tensor:
    x = torch.rand(tuple(shape), generator=generator, dtype=torch.float64)
    return (low + (high - low) * x).to(dtype)


def parameter(generator: Generator, dtype: dtype, size: int, low: float, high: float) -> Tensor:
    """A learnable parameter: float32 beside 16-bit tensors, as under mixed precision."""
    wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    return uniform(generator, wide, (size,), low, high)


def unary(
    *,
    scale: float = 2.0,
    avoid: Sequence[float] = (),
    extremes: Sequence[float] = EXTREMES,
    **numbers: float,
) -> InputsFunction:
    """One tensor `x`, its first elements the extremes, and numbers."""

    def inputs(generator: Generator, dtype: dtype) -> Inputs:
        x = normal(generator, dtype, scale=scale, avoid=avoid)
        x.view(-1)[: len(extremes)] = torch.tensor(extremes, dtype=dtype)
        return {"x": x, **numbers}

    return inputs


def broadcast(*names: str, scale: float = 2.0, **numbers: float) -> InputsFunction:
    """Several tensors that broadcast to SHAPE, and numbers."""
    shapes = [SHAPE, (4, 1), (3, 1, 5), (5,)]

    def inputs(generator: Generator, dtype: dtype) -> Inputs:
        tensors = {
            name: normal(generator, dtype, shapes[i % len(shapes)], scale=scale)
            for i, name in enumerate(names)
        }
        return {**tensors, **numbers}

    return inputs


def errors(
    first: str, second: str, *, avoid: Sequence[float] = (), **numbers: float
) -> InputsFunction:
    """Two tensors whose difference is away from the points to `avoid`."""

    def inputs(generator: Generator, dtype: dtype) -> Inputs:
        # In eighths, so that the difference is exact in every dtype.
        target = torch.round(normal(generator, torch.float64, (4, 1)) * 8) / 8
        error = torch.round(normal(generator, torch.float64, avoid=avoid, margin=0.25) * 8) / 8
        return {first: (target + error).to(dtype), second: target.to(dtype), **numbers}

    return inputs


def labelled(**numbers: float) -> InputsFunction:
    """Logits and targets in (0, 1)."""

    def inputs(generator: Generator, dtype: dtype) -> Inputs:
        logits = normal(generator, dtype)
        logits.view(-1)[: len(EXTREMES)] = torch.tensor(EXTREMES, dtype=dtype)
        return {"input": logits, "target": uniform(generator, dtype, (3, 1, 5), 0, 1), **numbers}

    return inputs


def with_parameters(
    *,
    avoid: Sequence[float] = (),
    scale: float = 2.0,
    dim: int = 1,
    learnable: dict[str, tuple[float, float]] | None = None,
    channel: dict[str, tuple[float, float]] | None = None,
    **numbers: float,
) -> InputsFunction:
    """One tensor `x`, learnable numbers and per-channel parameters by their ranges, numbers."""

    def inputs(generator: Generator, dtype: dtype) -> Inputs:
        x = normal(generator, dtype, scale=scale, avoid=avoid)
        sizes = [(name, 1, span) for name, span in (learnable or {}).items()]
        sizes += [(name, SHAPE[dim], span) for name, span in (channel or {}).items()]
        drawn = {n: parameter(generator, dtype, size, *span) for n, size, span in sizes}
        return {"x": x, **drawn, **numbers}

    return inputs


def distances(generator: Generator, dtype: dtype) -> Inputs:
    return {
        "x": uniform(generator, dtype, (3, 4), 0.75, 2.5),
        "epsilon": parameter(generator, dtype, 1, 0.5, 2.0),
        "sigma": parameter(generator, dtype, 1, 0.75, 1.25),
    }


def radii(generator: Generator, dtype: dtype) -> Inputs:
    return {
        "x": uniform(generator, dtype, (6, 3), 0.25, 4.5),
        "n": parameter(generator, dtype, 3, 0.5, 3.5),
        "cutoff": 4.0,
    }


def probabilities(generator: Generator, dtype: dtype) -> Inputs:
    return {"x": uniform(generator, dtype, SHAPE, 0.05, 0.95)}


def biased(generator: Generator, dtype: dtype) -> Inputs:
    return {
        "x": normal(generator, dtype),
        "bias": normal(generator, dtype, (5,)),
        "scale": 1.5,
    }


def settled(generator: Generator, dtype: dtype) -> Inputs:
    return {"x": normal(generator, dtype), "settings": Settings(1.5, -0.25, "tanh")}


# --- references ----------------------------------------------------------------------------


def along(values: Tensor, x: Tensor, dim: int = 1) -> Tensor:
    """A per-channel parameter as it broadcasts against x."""
    shape = [1] * x.ndim
    shape[dim] = -1
    return values.view(shape)


def swish(x, beta=1.0):
    return x * torch.sigmoid(beta * x)


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


def relu_squared(x):
    return F.relu(x) ** 2


def star_relu(x, scale, bias):
    return scale * F.relu(x) ** 2 + bias


def softplus(x):
    # Not F.softplus, which is linear above its threshold: off by 2e-9 at 20.
    return -F.logsigmoid(-x)


def squareplus(x, b=4.0):
    root = torch.sqrt(x**2 + b)
    return torch.where(x < 0, b / (root - x), root + x) / 2


def elu(x, alpha=1.0):
    return F.elu(x, alpha=alpha)


def celu(x, alpha=1.0):
    return F.celu(x, alpha=alpha)


def leaky_relu(x, alpha=0.01):
    return F.leaky_relu(x, negative_slope=alpha)


def hard_sigmoid(x):
    # F.hardsigmoid has no double backward.
    return F.relu6(x + 3) / 6


def lisht(x):
    return x * torch.tanh(x)


def tanh_exp(x):
    return x * torch.tanh(torch.exp(x))


def serf(x):
    return x * torch.erf(softplus(x))


def phish(x):
    return x * torch.tanh(F.gelu(x))


def logish(x):
    return x * torch.log1p(torch.sigmoid(x))


def snake(x, alpha):
    # sin(a)**2 / a = a * (sin(a) / a)**2 stays finite at 0.
    a = along(alpha, x)
    return x + a * (x * torch.sinc(a * x / math.pi)) ** 2


def snake_beta(x, alpha, beta):
    a, b = along(alpha, x), along(beta, x)
    return x + torch.sin(x * torch.exp(a)) ** 2 / (torch.exp(b) + 1e-9)


def xielu(x, alpha_p, alpha_n, beta=0.5, eps=-1e-6):
    positive, negative = softplus(alpha_p), beta + softplus(alpha_n)
    below = torch.expm1(torch.minimum(x, torch.full_like(x, eps))) - x
    return torch.where(x > 0, positive * x**2 + beta * x, negative * below + beta * x)


def dyt(x, alpha, gamma, beta):
    return along(gamma, x, -1) * torch.tanh(alpha * x) + along(beta, x, -1)


def softcap(x, cap=50.0):
    return cap * torch.tanh(x / cap)


def sine(x, omega=30.0):
    return torch.sin(omega * x)


def glu(x, gate):
    x, gate = torch.broadcast_tensors(x, gate)
    return F.glu(torch.cat([x, gate], dim=-1), dim=-1)


def swiglu(gate, x):
    return F.silu(gate) * x


def geglu(gate, x):
    return F.gelu(gate, approximate="tanh") * x


def huber(input, target, delta=1.0):
    input, target = torch.broadcast_tensors(input, target)
    return F.huber_loss(input, target, reduction="none", delta=delta)


def smooth_l1(input, target, beta=1.0):
    input, target = torch.broadcast_tensors(input, target)
    return F.smooth_l1_loss(input, target, reduction="none", beta=beta)


def charbonnier(input, target, epsilon=1e-3):
    return torch.sqrt((input - target) ** 2 + epsilon**2)


def log_cosh(input, target):
    error = input - target
    return torch.logaddexp(error, -error) - math.log(2)


def pinball(input, target, quantile=0.9):
    error = target - input
    return torch.maximum(quantile * error, (quantile - 1) * error)


def bce_with_logits(input, target):
    input, target = torch.broadcast_tensors(input, target)
    return F.binary_cross_entropy_with_logits(input, target, reduction="none")


def focal(input, target, alpha=0.25, gamma=2.0):
    log_p, log_q = F.logsigmoid(input), F.logsigmoid(-input)
    positive = alpha * target * torch.exp(gamma * log_q) * log_p
    return -positive - (1 - alpha) * (1 - target) * torch.exp(gamma * log_p) * log_q


def dpo(chosen, rejected, beta=0.1):
    return -F.logsigmoid(beta * (chosen - rejected))


def gaussian_nll(input, target, log_var):
    return ((input - target) ** 2 * torch.exp(-log_var) + log_var) / 2


def laplace_nll(input, target, log_scale):
    return (input - target).abs() * torch.exp(-log_scale) + log_scale


class TruncExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.exp(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * torch.exp(x.clamp(-15, 15))


class SteSign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sign(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1)


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x)
        ctx.alpha = alpha
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.alpha / 2 / (1 + (math.pi / 2 * ctx.alpha * x) ** 2), None


def trunc_exp(x):
    return TruncExp.apply(x)


def ste_sign(x):
    return SteSign.apply(x)


def spike(x, alpha=2.0):
    return Spike.apply(x, alpha)


def quaternion_product(aw, ax, ay, az, bw, bx, by, bz):
    """a * b as the 4x4 matrix of a times the vector b."""
    a = torch.broadcast_tensors(aw, ax, ay, az, bw, bx, by, bz)
    (aw, ax, ay, az), b = a[:4], torch.stack(a[4:], dim=-1)
    rows = [(aw, -ax, -ay, -az), (ax, aw, -az, ay), (ay, az, aw, -ax), (az, -ay, ax, aw)]
    matrix = torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)
    return (matrix @ b.unsqueeze(-1)).squeeze(-1).unbind(-1)


def lennard_jones(x, epsilon, sigma):
    attraction = (sigma / x) ** 6
    return 4 * epsilon * attraction * (attraction - 1)


def bessel_basis(x, n, cutoff=5.0):
    k = along(n, x, -1) / cutoff
    return math.sqrt(2 / cutoff) * math.pi * k * torch.sinc(k * x)


def quadratic(x, y):
    return 10 * (x + y) ** 2


def quadratic_terms(x, y):
    x, y = torch.broadcast_tensors(x, y)
    return 10 * (x + y) ** 2, x**2, y**2, x * y


def two_outputs(x):
    return x**2, 3 * x


def scaled_bias(x, bias=None, scale=2.0):
    return scale * x if bias is None else scale * x + bias


class Settings(NamedTuple):
    """As in the formula `affine_settings`."""

    scale: float = 2.0
    shift: float = 0.5
    squash: Literal["none", "tanh"] = "none"


def affine_settings(x, settings=Settings()):  # noqa: B008 (immutable)
    y = settings.scale * x + settings.shift
    return torch.tanh(y) if settings.squash == "tanh" else y


# --- the table -----------------------------------------------------------------------------


def at(*x: float, grad: Sequence[float] | None = None, **numbers: float) -> Points:
    """Points of a formula of one tensor."""
    gradients = None if grad is None else {"x": list(grad)}
    return Points({"x": list(x), **numbers}, gradients)


def between(input: list[float], target: list[float], **more: Any) -> Points:
    """Points of a loss, whose gradient is the reference's."""
    return Points({"input": input, "target": target, **more})


QUATERNIONS = ("aw", "ax", "ay", "az", "bw", "bx", "by", "bz")

REFERENCES: dict[str, Reference] = {
    # activations
    "swish": Reference(swish, unary(beta=1.5)),
    "mish": Reference(F.mish, unary(), native="F.mish"),
    "gelu": Reference(F.gelu, unary(), native="F.gelu"),
    "gelu_tanh": Reference(gelu_tanh, unary(), native="F.gelu"),
    "quick_gelu": Reference(quick_gelu, unary()),
    "relu_squared": Reference(relu_squared, unary(avoid=[0]), kinks=at(0.0)),
    "softplus": Reference(softplus, unary(), native="F.softplus"),
    "squareplus": Reference(squareplus, unary(b=2.5)),
    "elu": Reference(elu, unary(avoid=[0], alpha=0.75), native="F.elu", kinks=at(0.0, alpha=0.75)),
    "celu": Reference(
        celu, unary(avoid=[0], alpha=0.75), native="F.celu", kinks=at(0.0, alpha=0.75)
    ),
    "selu": Reference(F.selu, unary(avoid=[0]), native="F.selu", kinks=at(0.0)),
    "leaky_relu": Reference(
        leaky_relu, unary(avoid=[0], alpha=0.125), native="F.leaky_relu", kinks=at(0.0)
    ),
    "hard_sigmoid": Reference(hard_sigmoid, unary(avoid=[-3, 3]), kinks=at(-3.0, 3.0)),
    "hard_swish": Reference(
        F.hardswish, unary(avoid=[-3, 3]), native="F.hardswish", kinks=at(-3.0, 3.0, grad=[0, 1])
    ),
    "hardtanh": Reference(
        F.hardtanh, unary(avoid=[-1, 1]), native="F.hardtanh", kinks=at(-1.0, 1.0)
    ),
    "softsign": Reference(F.softsign, unary(avoid=[0]), native="F.softsign", kinks=at(0.0)),
    "tanhshrink": Reference(F.tanhshrink, unary(avoid=[0]), native="F.tanhshrink"),
    "softshrink": Reference(
        F.softshrink, unary(avoid=[-0.5, 0.5]), native="F.softshrink", kinks=at(-0.5, 0.5)
    ),
    "logsigmoid": Reference(F.logsigmoid, unary(), native="F.logsigmoid"),
    "lisht": Reference(lisht, unary()),
    "tanh_exp": Reference(tanh_exp, unary()),
    "serf": Reference(serf, unary()),
    "phish": Reference(phish, unary()),
    "logish": Reference(logish, unary()),
    "softcap": Reference(softcap, unary(cap=30.0)),
    "sine": Reference(sine, unary(scale=0.5, extremes=(), omega=20.0)),
    "relu": Reference(F.relu, unary(avoid=[0]), native="F.relu", kinks=at(0.0)),
    "sigmoid": Reference(torch.sigmoid, unary(), native="torch.sigmoid"),
    "tanh": Reference(torch.tanh, unary(), native="torch.tanh"),
    "relu6": Reference(F.relu6, unary(avoid=[0, 6]), native="F.relu6", kinks=at(0.0, 6.0)),
    "threshold": Reference(
        F.threshold,
        unary(avoid=[0.25], threshold=0.25, value=20.0),
        native="F.threshold",
        kinks=at(0.25, threshold=0.25, value=20.0),
    ),
    "hardshrink": Reference(
        F.hardshrink, unary(avoid=[-0.5, 0.5]), native="F.hardshrink", kinks=at(-0.5, 0.5)
    ),
    "logit": Reference(torch.logit, probabilities, native="torch.logit"),
    # activations with parameters
    "swish_beta": Reference(swish, with_parameters(learnable={"beta": (0.5, 2)})),
    "star_relu": Reference(
        star_relu,
        with_parameters(avoid=[0], learnable={"scale": (0.5, 2), "bias": (-1, 1)}),
        kinks=Points({"x": [0.0], "scale": [0.75], "bias": [0.5]}),
    ),
    "prelu": Reference(
        F.prelu,
        with_parameters(avoid=[0], channel={"weight": (0.1, 0.9)}),
        native="F.prelu",
        kinks=Points({"x": [[0.0, 0.0]], "weight": [0.25, 0.5]}),
    ),
    "snake": Reference(
        snake,
        with_parameters(channel={"alpha": (0.5, 2)}),
        # The limits at alpha = 0.
        kinks=Points({"x": [[1.5, -0.5], [0.0, 2.0]], "alpha": [0.0, 0.0]}),
    ),
    "snake_beta": Reference(
        snake_beta, with_parameters(channel={"alpha": (-1, 1), "beta": (-1, 1)})
    ),
    "xielu": Reference(
        xielu,
        with_parameters(avoid=[0], learnable={"alpha_p": (-1, 1), "alpha_n": (-1, 1)}, beta=0.25),
        kinks=Points({"x": [0.0], "alpha_p": [0.5], "alpha_n": [-0.5]}),
    ),
    "dyt": Reference(
        dyt,
        with_parameters(
            dim=-1, learnable={"alpha": (0.25, 1)}, channel={"gamma": (0.5, 2), "beta": (-1, 1)}
        ),
    ),
    # gated activations
    "glu": Reference(glu, broadcast("x", "gate"), native="F.glu"),
    "swiglu": Reference(swiglu, broadcast("gate", "x")),
    "geglu": Reference(geglu, broadcast("gate", "x")),
    # losses
    "huber": Reference(
        huber,
        errors("input", "target", avoid=[-1.5, 1.5], delta=1.5),
        native="F.huber_loss",
        kinks=between([1.5, -1.5, 0.0], [0.0, 0.0, 0.0], delta=1.5),
    ),
    "smooth_l1": Reference(
        smooth_l1,
        errors("input", "target", avoid=[-1.5, 1.5], beta=1.5),
        native="F.smooth_l1_loss",
        kinks=between([1.5, -1.5, 0.0], [0.0, 0.0, 0.0], beta=1.5),
    ),
    "charbonnier": Reference(
        charbonnier,
        errors("input", "target", epsilon=0.01),
        kinks=between([0.5], [0.5]),
    ),
    "log_cosh": Reference(
        log_cosh, errors("input", "target", avoid=[0]), kinks=between([0.5], [0.5])
    ),
    "pinball": Reference(
        pinball,
        errors("input", "target", avoid=[0], quantile=0.75),
        # Both sides have a gradient, so each has half of it.
        kinks=Points({"input": [0.5], "target": [0.5]}, {"input": [-0.4], "target": [0.4]}),
    ),
    "bce_with_logits": Reference(
        bce_with_logits,
        labelled(),
        native="F.binary_cross_entropy_with_logits",
        kinks=between([0.0], [0.25]),
    ),
    "focal": Reference(focal, labelled(alpha=0.375, gamma=1.5), kinks=between([0.0], [0.25])),
    "dpo": Reference(dpo, errors("chosen", "rejected", beta=0.25)),
    "gaussian_nll": Reference(gaussian_nll, broadcast("input", "target", "log_var")),
    "laplace_nll": Reference(
        laplace_nll,
        lambda generator, dtype: {
            **errors("input", "target", avoid=[0])(generator, dtype),
            "log_scale": normal(generator, dtype, (3, 1, 5)),
        },
        kinks=between([0.5], [0.5], log_scale=[-1.0]),
    ),
    # gradients of one's own
    "trunc_exp": Reference(
        trunc_exp, unary(scale=4, extremes=(-20.0, -16.0, 16.0, 20.0)), kinks=at(-15.0, 15.0)
    ),
    "ste_sign": Reference(
        ste_sign, unary(avoid=[-1, 0, 1]), kinks=at(-1.0, 0.0, 1.0, grad=[1, 1, 1])
    ),
    "spike": Reference(spike, unary(avoid=[0], extremes=(), alpha=3.0), kinks=at(0.0, grad=[1])),
    # several outputs
    "quaternion_product": Reference(quaternion_product, broadcast(*QUATERNIONS)),
    "quadratic_terms": Reference(quadratic_terms, broadcast("x", "y")),
    "two_outputs": Reference(two_outputs, unary()),
    # physics
    "lennard_jones": Reference(lennard_jones, distances),
    "bessel_basis": Reference(
        bessel_basis,
        radii,
        # The limit at x = 0.
        kinks=Points({"x": [[0.0, 0.0, 0.0]], "n": [1.0, 2.0, 3.5], "cutoff": 4.0}),
    ),
    # first steps
    "exp": Reference(torch.exp, unary(extremes=(-80.0, 80.0)), native="torch.exp"),
    "quadratic": Reference(quadratic, broadcast("x", "y")),
    "scaled_bias": Reference(scaled_bias, biased),
    "affine_settings": Reference(affine_settings, settled),
}
