"""torch.compile, torch.export and what they stand on: FakeTensors, opcheck, torch.fx.

Packages on their kernels call them from compiled graphs (AUTOFN_COMPILE=kernels); those on the
PyTorch leaf are fused.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, func
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad

from citizen.autograd import Way, derivatives, energy, grad, tangents
from citizen.feature import NotApplicable, feature, raised
from citizen.functional import batches, everything, flat, tupled
from citizen.precision import near, rounded
from citizen.subject import KERNEL, PYTORCH, Subject, close, many, normal, sized

INDUCTOR = {
    PYTORCH: ("dyt", "gate", "huber", "mish", "polar", "surrogate", "swiglu"),
    KERNEL: ("dyt", "mish"),
}


def compiled(f: Way, **options: Any) -> Way:
    return torch.compile(f, fullgraph=True, **{"backend": "aot_eager", **options})


def same_compiled(s: Subject, transform: Callable[[Way], Way], inputs: Any = None) -> None:
    """The transformed op, compiled as one graph, and the transformed reference, eager."""
    inputs = s.inputs if inputs is None else inputs
    close(flat(compiled(transform(s.op))(*inputs)), flat(transform(s.reference)(*inputs)))


@feature("torch.compile", "forward and backward", slow=True)
def forward_and_backward(s: Subject) -> None:
    """As the reference; and to the last bit as eager where both call the kernel."""
    f = compiled(s.op)

    def values(op: Way) -> Any:
        inputs = s.leaves()
        out = many(op(*inputs))
        found = grad(out, inputs, [normal(*o.shape, seed=k) for k, o in enumerate(out)])
        return (*out, *found, *many(op(*s.inputs)))

    got = values(f)
    close(got, values(s.reference))
    if s.native:
        assert all(map(torch.equal, got, values(s.op))), "other bits than eager"
    with torch.no_grad():
        close(many(f(*s.leaves())), many(s.reference(*s.inputs)))


def pulled(f: Way) -> Way:
    def call(*xs: Tensor) -> Any:
        out, pull = func.vjp(tupled(f), *xs)
        return pull(tuple(o.cos() for o in out))

    return call


def per_sample(f: Way, dims: Any) -> Way:
    """Values and gradients of every sample."""
    return func.vmap(lambda *xs: (*many(f(*xs)), func.grad(energy(f))(*xs)), dims)


@feature("torch.compile", "grad, vjp, jvp, vmap inside", slow=True)
def first_order(s: Subject) -> None:
    """In one graph; vmap with everything batched, and with the last input alone."""
    count, directions = len(s.inputs), tangents(s)
    whole, all_dims = batches(s, (True,) * count)
    part, last_dim = batches(s, (*(False,) * (count - 1), True))

    def transform(f: Way) -> Way:
        return lambda *xs: (
            func.grad(energy(f), everything(s))(*xs[:count]),
            pulled(f)(*xs[:count]),
            func.jvp(tupled(f), xs[:count], directions)[1],
            per_sample(f, all_dims)(*xs[count : 2 * count]),
            per_sample(f, last_dim)(*xs[2 * count :]),
        )

    same_compiled(s, transform, (*s.inputs, *whole, *part))


@feature("torch.compile", "hessian, grad of grad inside", slow=True)
def second_order(s: Subject) -> None:
    def transform(f: Way) -> Way:
        first = func.grad(energy(f), everything(s))
        penalty = func.grad(lambda *xs: sum((g * g).sum() for g in first(*xs)), everything(s))
        return lambda *xs: (func.hessian(energy(f))(*xs), *penalty(*xs))

    same_compiled(s, transform)


@feature("torch.compile", "double backward through a graph", slow=True)
def compiled_double_backward(s: Subject) -> str | None:
    """PyTorch has none: its own error, and never a number."""
    says = "torch.compile with aot_autograd does not currently support double backward"
    return raised(RuntimeError, says, lambda: derivatives(compiled(s.op), s.inputs, 2))


@feature("torch.compile", "dual tensors into a graph", slow=True)
def dual_tensors(s: Subject) -> str:
    """forward_ad around a compiled op: as one graph an error; else the op runs eager, right."""

    def pushed(f: Way) -> list[Tensor]:
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(*xt) for xt in zip(s.inputs, tangents(s), strict=True)]
            found = [forward_ad.unpack_dual(o) for o in many(f(*duals))]
            return [0 * f.primal if f.tangent is None else f.tangent.clone() for f in found]

    if not s.native:  # it would be the same, and takes its time
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the graph breaks
            close(pushed(torch.compile(s.op, backend="aot_eager")), pushed(s.reference))
        torch._dynamo.reset()
    close(many(compiled(s.op)(*s.inputs)), many(s.reference(*s.inputs)))
    says = "a compiled graph loses the tangents of dual tensors"
    return raised(Exception, says, lambda: pushed(compiled(s.op)))


@feature("torch.compile", "dynamic shapes", slow=True)
def dynamic_shapes(s: Subject) -> None:
    """One graph for all sizes; without dynamic=True a second one at the first change, as ever."""
    for dynamic, order in ((True, 0), (True, 1), (None, 0))[: 2 if s.native else 3]:
        torch._dynamo.reset()
        counter = CompileCounterWithBackend("aot_eager")
        f = compiled(s.op, backend=counter, dynamic=dynamic)
        counts = []
        for n, m in ((2, 4), (3, 5), (6, 7), (4, 9)):
            inputs = sized(s.definition, n, m)
            if order:
                inputs = tuple(t.requires_grad_() for t in inputs)
                value, other = energy(f)(*inputs), energy(s.reference)(*inputs)
                close(grad(value, inputs), grad(other, inputs))
            else:
                close(many(f(*inputs)), many(s.reference(*inputs)))
            counts.append(counter.frame_count)
        later = counts[-1] - counts[0]
        assert later == (0 if dynamic else 1), f"{later} recompilations, dynamic={dynamic}"


@feature("torch.compile", "Inductor", slow=True)
def inductor(s: Subject) -> None:
    """Forward and backward among pointwise neighbours: fused with them, or calling kernels.

    Of some formulas, since Inductor's compiler takes its time.
    """
    if s.name not in INDUCTOR[s.leaf]:
        raise NotApplicable("Inductor is tried on some formulas")
    from torch._inductor.utils import run_fw_bw_and_get_code

    def block(*xs: Tensor) -> Tensor:
        return sum(o + 1 for o in many(s.op(*(2 * x for x in xs))))  # type: ignore[return-value]

    inputs = tuple(t.requires_grad_() for t in rounded(s, torch.float32, torch.float32))
    f = compiled(block, backend="inductor")
    with torch._inductor.config.patch(compile_threads=1):
        out, code = run_fw_bw_and_get_code(lambda: f(*(t / 2 for t in inputs)))
    got = [out, *grad(f(*(t / 2 for t in inputs)).sum(), inputs)]
    exact = tuple(t.detach().double().requires_grad_() for t in inputs)
    want = sum(o + 1 for o in many(s.reference(*exact)))
    for one, other in zip(got, [want, *grad(want.sum(), exact)], strict=True):
        near(one, other, 2.0**-16)
    forward = code[0]
    if s.native:
        assert f"torch.ops.{s.runtime.namespace()}.forward" in forward, "no kernel is called"
        return
    kernels = forward.count("cpp_pybinding(")
    assert kernels == 1 and "extern_kernels." not in forward, f"{kernels} kernels, not fused into 1"


@feature("torch.compile", "export", slow=True)
def export(s: Subject) -> None:
    """With a dynamic batch, strict and not, through a file; the program needs no package."""
    module, inputs = s.module(), s.module_inputs()
    batch = torch.export.Dim("batch", min=2, max=64)
    dims = tuple({0: batch} if t.dim() == 3 else {} for t in inputs)
    for strict in (False, True):
        program = torch.export.export(module, inputs, dynamic_shapes=dims, strict=strict)
        assert s.runtime.namespace() not in str(program.graph)
        file = io.BytesIO()
        torch.export.save(program, file)
        file.seek(0)
        loaded = torch.export.load(file).module()
        close(many(loaded(*inputs)), many(s.reference(*s.inputs)))
        larger = tuple(torch.cat([t, t]) if t.dim() == 3 else t for t in inputs)
        close(many(loaded(*larger)), many(module(*larger)))


@feature("torch.compile", "FakeTensor and meta")
def fake_tensors(s: Subject) -> None:
    """Shapes, strides and dtypes without data, of outputs and gradients."""

    def layouts(tensors: Any) -> Any:
        return [(t.shape, t.stride(), t.dtype) for t in tensors]

    def first(inputs: Any) -> Any:
        inputs = [t.detach().requires_grad_() for t in inputs]
        out = many(s.op(*inputs))
        return [*out, *grad(out, inputs, [torch.ones_like(o) for o in out])]

    expected = layouts(first(s.inputs))
    mode = FakeTensorMode()
    with mode:
        assert layouts(first([mode.from_tensor(t) for t in s.inputs])) == expected
    found = first([t.to("meta") for t in s.inputs])
    assert layouts(found) == expected and all(t.is_meta for t in found)


@feature("torch.compile", "opcheck", slow=True)
def opcheck(s: Subject) -> None:
    """torch.library.opcheck of every op that the first two orders call, as it is called."""
    if not s.native:
        raise NotApplicable("there are no ops")
    namespace = getattr(torch.ops, s.runtime.namespace())
    seen: dict[str, Any] = {}
    kernels = vars(s.runtime._LOADED["cpu"])
    for name, kernel in list(kernels.items()):

        def recording(*args: Any, name: str = name, kernel: Any = kernel) -> Any:
            seen.setdefault(name, args)
            return kernel(*args)

        kernels[name] = recording
    derivatives(s.op, s.inputs, 2)
    assert "forward" in seen or len(kernels) > 3
    for name, args in seen.items():
        args = tuple(a.detach() if isinstance(a, Tensor) else a for a in args)
        torch.library.opcheck(getattr(namespace, name).default, args)


@feature("torch.compile", "torch.fx")
def fx(s: Subject) -> None:
    """symbolic_trace has the op as one call; make_fx has its operations."""
    from torch.fx.experimental.proxy_tensor import make_fx

    module = s.module()
    traced = torch.fx.symbolic_trace(module)
    assert [n.target for n in traced.graph.nodes].count(s.ops._call) == 1
    close(many(traced(*s.module_inputs())), many(s.reference(*s.inputs)))
    derivative = make_fx(func.grad(energy(s.op), everything(s)))(*s.inputs)
    inputs = tuple(0.9 * t for t in s.inputs)
    close(derivative(*inputs), func.grad(energy(s.reference), everything(s))(*inputs))


@feature("torch.compile", "torch.jit.trace")
def jit_trace(s: Subject) -> None:
    """Traced where nothing needs a gradient, a module has its gradients, for other tensors too."""
    module, inputs = s.module(), s.module_inputs()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the shapes that it takes for constants
        traced = torch.jit.trace(module, inputs)
    found = []
    for each in (traced, module):
        leaves = [(0.9 * t).requires_grad_() for t in inputs]
        out = many(each(*leaves))
        found.append([*out, *grad(out, [*leaves, *module.parameters()], list(map(torch.cos, out)))])
    close(*found)
