"""Ten formulas outside the library, each of a kind or with an option that may trip an op up."""

from typing import Literal

from sympy import Heaviside, Max, Min, Piecewise, atan2, exp, log, pi, sin, sqrt, tanh

from autofn import Learnable, PerChannel, Tensor, formula


@formula
def gompertz(x, b: float = 1.5, *, c: float):
    """Numbers, one of them required and keyword-only."""
    return exp(-b * exp(-c * x))


@formula
def isru(x, alpha: Learnable = 1.0):
    """A learnable scalar under a root."""
    return x / sqrt(1 + alpha * x**2)


@formula(reduction=True, amp="float32")
def poisson_nll(input, target):
    """A loss that stays in float32 under autocast."""
    return exp(input) - target * input


@formula
def hill(x, n: int = 3, k: float = 0.5):
    """An integer exponent given at run time."""
    return x**n / (k + x**2)


@formula
def median(x, y, z):
    """The middle one of three tensors: ties everywhere."""
    return Max(Min(x, y), Min(Max(x, y), z))


@formula
def polar(x, y):
    """Named outputs."""
    return {"radius": sqrt(x**2 + y**2), "angle": atan2(y, x)}


@formula
def pade(x, a: PerChannel(dim=-1) = 0.5, b: PerChannel = 0.25):
    """Channels along two dimensions."""
    return (x + a * x**2) / (1 + b**2 * x**2)


@formula
def gate(
    x,
    bias: Tensor | None = None,
    scale: Learnable = 1.0,
    mode: Literal["tanh", "sine"] = "tanh",
    leaky: bool = False,
):
    """An optional tensor, and choices."""
    y = scale * x if bias is None else scale * x + bias
    y = tanh(y) if mode == "tanh" else sin(y)
    return Piecewise((y, x > 0), (y / 10, True)) if leaky else y


@formula(save="output")
def softexp(x):
    """Backward from the saved output."""
    return exp(-x / 2)


@formula
def surrogate(x, y, alpha: Learnable = 2.0):
    """A gradient of its own: a step forward, a bell backward."""
    return Heaviside(x, 0) * y + log(1 + alpha**2)


@surrogate.gradient
def _(grad, x, y, alpha):
    return grad * y * exp(-((pi * x) ** 2)), grad * exp(-(x**2)), grad * alpha
