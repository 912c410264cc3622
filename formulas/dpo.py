"""Loss."""

from sympy import exp, log

from autofn import formula


@formula(reduction=True)
def dpo(chosen, rejected, beta: float = 0.1):
    """DPO loss of a pair: -log(sigmoid(beta * (chosen - rejected))) (arXiv:2305.18290).

    chosen, rejected: log of policy over reference probability of the two answers.
    """
    return log(1 + exp(-beta * (chosen - rejected)))
