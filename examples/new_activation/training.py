"""One run: a small network with an activation, trained on scikit-learn's digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from activations.leaky_silu import LeakySilu
from activations.log_gate import LogGate
from activations.root_gate import RootGate
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F

CANDIDATES: dict[str, Callable[[], nn.Module]] = {
    "root_gate": RootGate,
    "log_gate": LogGate,
    "leaky_silu": LeakySilu,
}
BASELINES: dict[str, Callable[[], nn.Module]] = {"ReLU": nn.ReLU, "GELU": nn.GELU, "SiLU": nn.SiLU}
ACTIVATIONS = {**CANDIDATES, **BASELINES}

RATES = (0.003, 0.01, 0.03)
HELD_OUT = 0.2
"""Share of the data in the validation part, and again in the test part."""


@dataclass(frozen=True)
class Run:
    """What one run came to; losses are cross-entropies, accuracies shares of 1."""

    activation: str
    seed: int
    rate: float
    validation_loss: float
    test_loss: float
    test_accuracy: float


@dataclass(frozen=True)
class Part:
    """Some of the digits: `images` (n, 64) in [0, 1], `labels` (n,)."""

    images: Tensor
    labels: Tensor


@lru_cache(maxsize=2)
def parts(seed: int) -> tuple[Part, Part, Part]:
    """Training, validation and test data, drawn anew for each seed, each digit in proportion."""
    images, labels = load_digits(return_X_y=True)
    share = HELD_OUT / (1 - HELD_OUT)
    rest, test = train_test_split(
        range(len(labels)), test_size=HELD_OUT, stratify=labels, random_state=seed
    )
    training, validation = train_test_split(
        rest, test_size=share, stratify=labels[rest], random_state=seed
    )
    first, second, third = (
        Part(torch.tensor(images[i] / 16, dtype=torch.float32), torch.tensor(labels[i]))
        for i in (training, validation, test)
    )
    return first, second, third


def network(activation: Callable[[], nn.Module], hidden: int = 4, width: int = 64) -> nn.Module:
    """A perceptron of 64 inputs and 10 outputs without normalisation: it hides nothing."""
    layers: list[nn.Module] = []
    for index in range(hidden):
        layers += [nn.Linear(64 if index == 0 else width, width), activation()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def train(activation: str, seed: int, rate: float, epochs: int = 30, batch: int = 64) -> Run:
    """Trains with Adam and a cosine schedule.

    Data, first weights and the order of batches depend on the seed alone, so that runs of one
    seed can be compared in pairs.
    """
    training, validation, test = parts(seed)
    torch.manual_seed(seed)
    model = network(ACTIVATIONS[activation])
    order = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    steps = epochs * -(-len(training.labels) // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(training.labels), generator=order).split(batch):
            optimiser.zero_grad()
            F.cross_entropy(model(training.images[rows]), training.labels[rows]).backward()
            optimiser.step()
            schedule.step()
    validation_loss, _ = _evaluate(model, validation)
    test_loss, accuracy = _evaluate(model, test)
    return Run(activation, seed, rate, validation_loss, test_loss, accuracy)


@torch.no_grad()
def _evaluate(model: nn.Module, part: Part) -> tuple[float, float]:
    out = model(part.images)
    right = (out.argmax(1) == part.labels).float().mean()
    return F.cross_entropy(out, part.labels).item(), right.item()
