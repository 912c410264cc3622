"""Activation with parameters."""

from sympy import Min, Piecewise, exp, log

from autofn import Learnable, formula


def softplus(x):
    return log(1 + exp(x))


def inverse_softplus(y):
    return log(exp(y) - 1)


START_P = inverse_softplus(0.8)
START_N = inverse_softplus(0.8 - 0.5)


@formula
def xielu(
    x,
    alpha_p: Learnable = START_P,
    alpha_n: Learnable = START_N,
    beta: float = 0.5,
    eps: float = -1e-6,
):
    """xIELU: the integral of ELU, quadratic above zero and exponential below (arXiv:2411.13010).

    The learnable numbers go through a softplus; their start values make the slopes 0.8.
    """
    positive = softplus(alpha_p)
    negative = beta + softplus(alpha_n)
    return Piecewise(
        (positive * x**2 + beta * x, x > 0),
        (negative * (exp(Min(x, eps)) - 1) - negative * x + beta * x, True),
    )
