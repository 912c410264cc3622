"""What tests/test_distributed.py runs: generated ops over several processes, against one process.

    python distributed_worker.py FOLDER LEAF...

FOLDER holds the formula file's package `blend` and gets `results.json`: a list of comparisons.
The processes are forks of one that has imported everything, so that a world costs little.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import multiprocessing
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor, all_gather_tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.nn.parallel import DistributedDataParallel

WORLDS = (2, 4)
NAMES = ("swish", "swiglu", "prelu", "dyt", "swish_beta", "two_outputs", "blend")


# --- comparisons -----------------------------------------------------------------------------


@dataclass
class Comparison:
    """One quantity of one case: the largest relative difference, and whether every bit is equal."""

    world: int
    leaf: str
    case: str
    quantity: str
    error: float
    same: bool


@dataclass
class Run:
    """One process of a world, with one leaf."""

    world: int
    leaf: str
    ops: dict[str, ModuleType]
    kernel_calls: list[str] = field(default_factory=list)
    found: list[Comparison] = field(default_factory=list)

    def compare(self, case: str, quantity: str, actual: Tensor, expected: Tensor) -> None:
        if isinstance(actual, DTensor):
            actual = actual.full_tensor()
        actual, expected = actual.detach(), expected.detach()
        assert actual.shape == expected.shape, f"{case} {quantity}: {actual.shape}"
        assert actual.dtype == expected.dtype, f"{case} {quantity}: {actual.dtype}"
        scale = expected.abs().max().item() if expected.numel() else 0.0
        error = (actual - expected).abs().max().item() if expected.numel() else 0.0
        same = torch.equal(actual, expected)
        self.found.append(
            Comparison(self.world, self.leaf, case, quantity, error / (scale or 1.0), same)
        )

    @contextlib.contextmanager
    def expect_kernels(self, case: str) -> Iterator[None]:
        """With the compiled leaf, kernels run in this case."""
        before = len(self.kernel_calls)
        yield
        if self.leaf == "native":
            assert len(self.kernel_calls) > before, f"{case}: no kernel was called"


def mesh_of(*shape: int) -> DeviceMesh:
    return init_device_mesh("cpu", shape, mesh_dim_names=("data", "tensor")[: len(shape)])


def distributed(x: Tensor, mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
    """`x`, which every process has, as a DTensor; a partial sum has it on the first one."""
    if any(p.is_partial() for p in placements):
        mine = x if dist.get_rank() == 0 else torch.zeros_like(x)
        return DTensor.from_local(mine, mesh, placements)
    return distribute_tensor(x, mesh, placements, src_data_rank=None)


def random(*shape: int, seed: int = 0) -> Tensor:
    """Multiples of 1/8, so that sums of a few products are exact."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-24, 24, shape, generator=generator) / 8 + 1 / 16


def all_orders(
    op: Callable[..., Any], inputs: Sequence[Tensor], mesh: DeviceMesh | None = None
) -> dict[str, Tensor]:
    """Outputs, gradients and second derivatives of an op, along fixed cotangents."""

    def place(x: Tensor) -> Tensor:
        return x if mesh is None else distributed(x, mesh, [Replicate()] * mesh.ndim)

    outputs = op(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    cotangents = [place(random(*y.shape, seed=90 + k)) for k, y in enumerate(outputs)]
    grads = torch.autograd.grad(outputs, inputs, cotangents, create_graph=True)
    along = [place(random(*x.shape, seed=80 + k)) for k, x in enumerate(inputs)]
    moving = [(g, v) for g, v in zip(grads, along, strict=True) if g.requires_grad]
    seconds: Sequence[Tensor | None] = ()
    if moving:
        seconds = torch.autograd.grad(
            [g for g, _ in moving], inputs, [v for _, v in moving], allow_unused=True
        )
    return {
        **{f"output {k}": y for k, y in enumerate(outputs)},
        **{f"gradient {k}": g for k, g in enumerate(grads)},
        **{f"second {k}": g for k, g in enumerate(seconds) if g is not None},
    }


# --- DTensors ----------------------------------------------------------------------------------

BLEND = {"gain": 1.5}


def layouts(world: int) -> Iterator[tuple[str, DeviceMesh, dict[str, Sequence[Placement]]]]:
    """Ways to lay out x, a second tensor y and a parameter w; of 5 x 6 x 7, so of uneven shards."""
    line = mesh_of(world)
    yield "rows", line, {"x": [Shard(0)], "y": [Shard(0)], "w": [Replicate()]}
    yield "middle", line, {"x": [Shard(1)], "y": [Shard(1)], "w": [Shard(0)]}
    yield "features", line, {"x": [Shard(2)], "y": [Shard(2)], "w": [Shard(0)]}
    yield "other layouts", line, {"x": [Shard(0)], "y": [Shard(2)], "w": [Replicate()]}
    yield "replicas", line, {"x": [Replicate()], "y": [Replicate()], "w": [Replicate()]}
    yield "partial", line, {"x": [Partial()], "y": [Replicate()], "w": [Replicate()]}
    if world == 4:
        square = mesh_of(2, 2)
        yield (
            "a square",
            square,
            {
                "x": [Shard(0), Shard(2)],
                "y": [Shard(0), Shard(2)],
                "w": [Replicate(), Shard(0)],
            },
        )
        twice = {
            "x": [Shard(0), Shard(0)],
            "y": [Shard(1), Shard(0)],
            "w": [Shard(0), Replicate()],
        }
        yield "one dimension twice", square, twice


def cases(ops: dict[str, ModuleType]) -> Iterator[tuple[str, Callable[..., Any], list[Any], str]]:
    """Per case its name, op, inputs, and which layout each input has."""
    x, y = random(5, 6, 7, seed=1), random(5, 6, 7, seed=2)
    one, middle, last = random(1, seed=3), random(6, seed=4), random(7, seed=5)
    yield "swish", ops["swish"].swish, [x], "x"
    yield "swiglu", ops["swiglu"].swiglu, [x, y], "xy"
    yield "swiglu, rows", ops["swiglu"].swiglu, [x, y[:1]], "xr"
    yield "swiglu, columns and rows", ops["swiglu"].swiglu, [x[:, :, :1], y[0]], "rr"
    yield "prelu", ops["prelu"].prelu, [x, middle], "xw"
    yield "swish_beta", ops["swish_beta"].swish_beta, [x, one], "xr"
    yield "dyt", ops["dyt"].dyt, [x, one, last, last.flip(0)], "xrww"
    yield "two_outputs", ops["two_outputs"].two_outputs, [x], "x"
    soft = ops["blend"].blend

    def without(x: Tensor, y: Tensor, scale: Tensor, shift: Tensor) -> Any:
        return soft(x, y, None, scale, shift, mode="hard", **BLEND)

    yield "blend", lambda *a: soft(*a, **BLEND), [x, y, y[:, :1], one, last], "xyrrw"
    yield "blend, no bias", without, [x, y[0, 0], one, last], "xrrw"


def tensors_over_a_mesh(run: Run) -> None:
    for layout, mesh, placements in layouts(run.world):
        replicated = [Replicate()] * mesh.ndim
        for name, op, inputs, letters in cases(run.ops):
            case = f"{name}, {layout}"
            ways = [placements.get(letter, replicated) for letter in letters]
            whole = [x.clone().requires_grad_() for x in inputs]
            parts = [
                distributed(x, mesh, way).requires_grad_()
                for x, way in zip(inputs, ways, strict=True)
            ]
            expected = all_orders(op, whole)
            with run.expect_kernels(case):
                actual = all_orders(op, parts, mesh)
            assert actual.keys() == expected.keys(), case
            for quantity, value in expected.items():
                run.compare(case, quantity, actual[quantity], value)


def placements(run: Run) -> None:
    """Outputs lie as the inputs do; gradients of what broadcasts are partial sums."""
    mesh = mesh_of(run.world)
    x = distributed(random(5, 6, 7), mesh, [Shard(0)]).requires_grad_()
    w = distributed(random(6), mesh, [Replicate()]).requires_grad_()
    y = run.ops["prelu"].prelu(x, w)
    y.sum().backward()
    assert (y.placements, x.grad.placements) == ((Shard(0),), (Shard(0),))
    assert w.grad.placements == (Partial(),), w.grad
    x = distributed(random(5, 6, 7), mesh, [Shard(1)])
    w = distributed(random(6), mesh, [Shard(0)]).requires_grad_()
    y = run.ops["prelu"].prelu(x, w)
    y.backward(torch.ones_like(y))
    assert (y.placements, w.grad.placements) == ((Shard(1),), (Shard(0),))
    flat = distributed(random(4, 6, 7), mesh, [Shard(1)])
    assert run.ops["swish"].swish(flat.flatten(0, 1)).placements == flat.flatten(0, 1).placements
    channels = random(2, 6, 7, 3).to(memory_format=torch.channels_last)
    y = run.ops["swish"].swish(DTensor.from_local(channels, mesh, [Shard(0)]))
    for each in (y, y.to_local()):
        assert each.is_contiguous(memory_format=torch.channels_last)


def what_is_refused(run: Run) -> None:
    mesh, prelu = mesh_of(run.world), run.ops["prelu"].prelu
    x, w = random(5, 6, 7), random(6)
    rows = distributed(x, mesh, [Shard(0)])
    with pytest.raises(RuntimeError, match="Tensor and DTensor"):
        prelu(rows, w)
    with pytest.raises(RuntimeError, match="Tensor and DTensor"):
        prelu(x, distributed(w, mesh, [Shard(0)]))
    if run.world == 4:
        other = distributed(w, mesh_of(2, 2), [Replicate(), Replicate()])
        with pytest.raises(RuntimeError, match="different meshes"):
            prelu(rows, other)


def what_has_yet_to_arrive(run: Run) -> None:
    """The result of a collective that nothing has waited for is no tensor with memory."""
    x = random(3, 4, seed=dist.get_rank())
    gathered = all_gather_tensor(x, 0, mesh_of(run.world))
    assert isinstance(gathered, AsyncCollectiveTensor)
    whole = torch.cat([random(3, 4, seed=rank) for rank in range(run.world)])
    with run.expect_kernels("gathered"):
        y = run.ops["swish"].swish(gathered)
    run.compare("gathered", "output 0", y, run.ops["swish"].swish(whole))


def transforms(run: Run) -> None:
    """torch.func and torch.compile over DTensors."""
    if (run.world, run.leaf) != (WORLDS[0], "torch"):
        return  # compiled, an op is PyTorch operations, and to compile takes its time
    swish, mesh = run.ops["swish"].swish, mesh_of(run.world)
    whole = random(5, 6, seed=7)
    part = distributed(whole, mesh, [Shard(0)])

    def third(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        y = swish(x).sum()
        for _ in range(3):
            (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y

    run.compare("third order", "third", third(part), third(whole))
    by = torch.func.grad(lambda x: swish(x).sum())
    run.compare("func.grad", "gradient 0", by(part), by(whole))
    by = torch.func.vmap(swish)
    run.compare("vmap", "output 0", by(part), by(whole))
    compiled = torch.compile(run.ops["prelu"].prelu, backend="aot_eager", fullgraph=True)
    inputs = [whole, random(6, seed=8)]
    ones = [x.clone().requires_grad_() for x in inputs]
    parts = [distributed(x, mesh, [Replicate()]).requires_grad_() for x in inputs]
    parts[0] = distributed(whole, mesh, [Shard(0)]).requires_grad_()
    run.ops["prelu"].prelu(*ones).sum().backward()
    y = compiled(*parts)
    y.sum().backward()
    run.compare("compile", "output 0", y, run.ops["prelu"].prelu(*ones))
    for k, (x, part) in enumerate(zip(ones, parts, strict=True)):
        run.compare("compile", f"gradient {k}", part.grad, x.grad)


# --- wrappers of modules -----------------------------------------------------------------------


def model(ops: dict[str, ModuleType]) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 5), ops["dyt"].Dyt(5), nn.Linear(5, 5), ops["prelu"].Prelu(5),
        ops["swish_beta"].SwishBeta(), nn.Linear(5, 3),
    )  # fmt: skip


def steps(net: nn.Module, x: Tensor, count: int = 3) -> list[float]:
    """Losses of a few steps of SGD."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def same_training(
    run: Run, case: str, wrap: Callable[[nn.Module], nn.Module], part: int, parts: int
) -> None:
    """Each process trains on its part of the batch; one process on all of it."""
    whole = random(4 * parts, 6, seed=6)
    alone = model(run.ops)
    steps(alone, whole)
    wrapped = wrap(model(run.ops))
    with run.expect_kernels(case):
        steps(wrapped, whole.chunk(parts)[part])
    inner = wrapped.module if isinstance(wrapped, DistributedDataParallel) else wrapped
    for (name, parameter), expected in zip(
        inner.named_parameters(), alone.parameters(), strict=True
    ):
        run.compare(case, name, parameter, expected)


def data_parallel(run: Run) -> None:
    same_training(run, "DDP", DistributedDataParallel, dist.get_rank(), run.world)


def sharded_over(mesh: DeviceMesh, net: nn.Module) -> nn.Module:
    for part in net.children():
        fully_shard(part, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def fully_sharded(run: Run) -> None:
    mesh = mesh_of(run.world)
    wrap = functools.partial(sharded_over, mesh)
    same_training(run, "FSDP2", wrap, dist.get_rank(), run.world)


def fully_sharded_and_tensor_parallel(run: Run) -> None:
    """FSDP2 over the rows of a mesh; in a row the first layers have shards of their features."""
    if run.world != 4:
        return
    mesh = mesh_of(2, 2)
    row = mesh["tensor"]

    def partition(name: str, module: nn.Module, mesh: DeviceMesh) -> None:
        for key, parameter in module.named_parameters(recurse=False):
            sharded = name in ("0", "1") and parameter.numel() > 1
            placement = Shard(0) if sharded else Replicate()
            part = distribute_tensor(parameter.detach(), mesh, [placement])
            module.register_parameter(key, nn.Parameter(part))

    def wrap(net: nn.Module) -> nn.Module:
        net = distribute_module(
            net,
            row,
            partition,
            lambda net, inputs, mesh: DTensor.from_local(inputs[0], mesh, [Replicate()]),
            lambda net, output, mesh: output.full_tensor(),
        )
        return sharded_over(mesh["data"], net)

    same_training(run, "FSDP2 and tensor parallel", wrap, mesh["data"].get_local_rank(), 2)


# --- processes ---------------------------------------------------------------------------------


def use(ops: dict[str, ModuleType], leaf: str) -> None:
    """Which leaf the packages use from here on, whatever they have loaded."""
    for package in ops.values():
        package._runtime.BACKEND = leaf
        package._runtime._LOADED.clear()
        package._runtime.kernels("cpu")


def counting(run: Run) -> None:
    """Notes each call of a compiled op; it is given tensors with memory of their own."""
    for name, package in run.ops.items():
        tensors = package._tensors
        find = getattr(tensors.ops, "counted", tensors.ops)

        def ops(*given: Tensor, find: Callable[..., Any] = find, name: str = name) -> Any:
            if found := find(*given):
                assert all(type(t) in (Tensor, nn.Parameter) for t in given)
                run.kernel_calls.append(name)
            return found

        ops.counted = find  # type: ignore[attr-defined]
        tensors.ops = ops


PARTS = (
    tensors_over_a_mesh, placements, what_is_refused, what_has_yet_to_arrive, transforms,
    data_parallel, fully_sharded, fully_sharded_and_tensor_parallel,
)  # fmt: skip


def one_process(rank: int, world: int, leaves: list[str], folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    store = dist.FileStore(str(folder / f"store{world}"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    ops = packages()
    found: list[Comparison] = []
    try:
        for leaf in leaves:
            use(ops, leaf)
            run = Run(world, leaf, ops, found=found)
            counting(run)
            for part in PARTS:
                part(run)
        if rank == 0:
            content = [asdict(each) for each in found]
            (folder / f"world{world}.json").write_text(json.dumps(content), encoding="utf-8")
        dist.barrier()
    except BaseException:
        (folder / f"error{world}-{rank}.txt").write_text(traceback.format_exc(), encoding="utf-8")
        raise
    dist.destroy_process_group()


def packages() -> dict[str, ModuleType]:
    return {
        name: importlib.import_module(name if name == "blend" else f"generated.{name}")
        for name in NAMES
    }


def main(folder: Path, leaves: list[str]) -> int:
    sys.path[:0] = [str(folder), str(Path(__file__).resolve().parent.parent)]
    for package in packages().values():
        if "native" in leaves:
            package._runtime.kernels("cpu")  # builds it once, before there are many
    fork = multiprocessing.get_context("fork")
    for world in WORLDS:
        processes = [
            fork.Process(target=one_process, args=(rank, world, leaves, folder))
            for rank in range(world)
        ]
        for each in processes:
            each.start()
        for each in processes:
            each.join(120)
            if each.exitcode != 0:
                for other in processes:
                    other.kill()
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
