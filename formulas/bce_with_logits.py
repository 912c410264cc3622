"""Loss."""

from sympy import Abs, Max, exp, log

from autofn import formula


@formula(reduction=True)
def bce_with_logits(input, target):
    """Binary cross-entropy between sigmoid(input) and target (torch.nn.BCEWithLogitsLoss)."""
    return Max(input, 0) - input * target + log(1 + exp(-Abs(input)))
