"""A small transformer under FSDP2 and tensor parallel on four processes, against one process.

    python examples/distributed/train.py

Its feed-forward layers are gated by `generated.swiglu`, and `generated.dyt` stands in place of its
normalisations. Four processes on gloo, a mesh of 2 x 2: FSDP2 over the batch, tensor parallel over
heads, hidden features and, around the norms, positions. Prints the losses of both trainings; the
exit code is 1 where they differ, or do not fall.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, multiprocessing, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from generated.dyt import Dyt
from generated.swiglu import swiglu

TOKENS, POSITIONS, WIDTH, HIDDEN, HEADS, LAYERS = 32, 24, 48, 96, 4, 2
BATCH, STEPS = 16, 30
DATA, TENSOR = 2, 2
TOLERANCE = 1e-3  # of a loss, relative: sums are in another order, and 30 steps apart


# --- the model: nothing in it knows of processes ------------------------------------------------


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        def heads(y: Tensor) -> Tensor:  # of this process
            return y.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)

        mixed = F.scaled_dot_product_attention(
            heads(self.query(x)), heads(self.key(x)), heads(self.value(x)), is_causal=True
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(swiglu(self.gate(x), self.up(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = Dyt(WIDTH), Dyt(WIDTH)
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = Dyt(WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


# --- over a mesh -------------------------------------------------------------------------------


def parallel(model: Transformer, mesh: DeviceMesh) -> Transformer:
    """Tensor parallel within a row of the mesh, FSDP2 over the rows."""
    whole = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    parallelize_module(
        model,
        mesh["tensor"],
        {
            "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        },
    )
    for block in model.blocks:
        plan = {
            # Dyt is given DTensors of positions; its parameters are replicas.
            "norm1": SequenceParallel(),
            "norm2": SequenceParallel(),
            "attention": whole,
            **{f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")},
            "attention.out": RowwiseParallel(output_layouts=Shard(1)),
            # swiglu is given DTensors of hidden features.
            "feed_forward": whole,
            "feed_forward.gate": ColwiseParallel(use_local_output=False),
            "feed_forward.up": ColwiseParallel(use_local_output=False),
            "feed_forward.down": RowwiseParallel(output_layouts=Shard(1)),
        }
        parallelize_module(block, mesh["tensor"], plan)
        fully_shard(block, mesh=mesh["data"])
    return fully_shard(model, mesh=mesh["data"])


# --- training ----------------------------------------------------------------------------------


def batch(step: int) -> Tensor:
    """Sequences that count by some number: what comes next is in what came before."""
    generator = torch.Generator().manual_seed(step)
    start = torch.randint(TOKENS, (BATCH, 1), generator=generator)
    stride = torch.randint(1, 4, (BATCH, 1), generator=generator)
    return (start + stride * torch.arange(POSITIONS + 1)) % TOKENS


def train(mesh: DeviceMesh | None) -> list[float]:
    """The loss of each step, over the whole batch."""
    torch.manual_seed(0)
    model = Transformer()
    part = slice(None)
    if mesh is not None:
        model = parallel(model, mesh)
        row, size = mesh["data"].get_local_rank(), BATCH // DATA
        part = slice(row * size, (row + 1) * size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        tokens = batch(step)[part]
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        shown = loss.detach()
        if mesh is not None:
            dist.all_reduce(shown, dist.ReduceOp.AVG, group=mesh["data"].get_group())
        losses.append(shown.item())
    return losses


def one_process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    # Of logits that are modified in place, as they are not.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
    world = DATA * TENSOR
    store = dist.FileStore(os.path.join(folder, "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (DATA, TENSOR), mesh_dim_names=("data", "tensor"))
    losses = train(mesh)
    if rank == 0:
        torch.save(losses, os.path.join(folder, "losses.pt"))
    dist.destroy_process_group()


def main() -> int:
    torch.set_num_threads(1)
    alone = train(None)
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(one_process, (folder,), nprocs=DATA * TENSOR)
        many = torch.load(os.path.join(folder, "losses.pt"))
    print("step   one process   FSDP2 x tensor parallel")
    for step in [*range(0, STEPS, 5), STEPS - 1]:
        print(f"{step:4}   {alone[step]:11.6f}   {many[step]:11.6f}")
    apart = max(abs(a - b) / a for a, b in zip(alone, many, strict=True))
    print(f"largest relative difference: {apart:.1e}")
    return int(apart > TOLERANCE or many[-1] > 0.8 * many[0])


if __name__ == "__main__":
    sys.exit(main())
