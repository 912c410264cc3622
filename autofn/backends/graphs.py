"""The PyTorch path in compiled graphs: what is computed there in another way than in eager.

Eager pays for every operation, a graph for special functions and divisions only: it computes all
of an argument from one exponential, which Inductor shares where texts are equal. Inductor's tanh
for CPUs takes as long as eight of its exp, its erf and expm1 have few digits near 0, its erfc goes
number by number: in single precision there are polynomials beside an exponential in their place.

The helpers ask `torch.compiler.is_compiling`. Autograd may go straight through them: on both sides
of the exponential 0 counts as negative, |x| is never used, and what overflows is kept out of both
branches. Inductor's exp is a call, and a loop that selects by a mask before and after it takes
twice the time: -|x| is a minimum, and what selects does so after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from sympy import S

from autofn.program import ELEMENT, Node, Output, Program, pruned

SPELLING: Mapping[str, str] = {
    "sigmoid_shared": "_sigmoid_shared({0})",
    "softplus_shared": "_softplus_shared({0})",
    "sigmoid_minus": "_sigmoid_minus({0})",
    "softplus_minus": "_softplus_minus({0})",
    "exp_below": "_exp_below({0})",
    "sigmoid_power": "_sigmoid_power({0}, {1}, {2})",
    "sigmoid_minus_power": "_sigmoid_minus_power({0}, {1}, {2})",
    "tanh_in_graph": "_tanh({0})",
    "erf_in_graph": "_erf({0})",
    "expm1_in_graph": "_expm1({0})",
    "tanh_softplus": "_tanh_softplus({0}, {1})",
    "sech2_softplus": "_sech2_softplus({0}, {1})",
}
"""Operations that `for_graphs` makes."""

HELPERS: Mapping[str, str] = {
    "_on_cpu": '''def _on_cpu(x):
    """Whether Inductor is to compute x in single precision on a CPU."""
    return torch.compiler.is_compiling() and x.is_cpu and x.dtype is torch.float32''',
    "_polynomial": '''def _polynomial(x, *terms):
    """The polynomial with these coefficients, the lowest first, by Estrin's scheme."""
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2])
        terms = [*(a + b * x for a, b in pairs), *terms[len(terms) // 2 * 2 :]]
        x = x * x
    return terms[0]''',
    "_decay": '''def _decay(x):
    """exp(-|x|). For derivatives 0 is negative: clamp passes them where both are equal."""
    return torch.exp(torch.clamp(x, max=-x))''',
    "_sigmoid_shared": '''def _sigmoid_shared(x):
    """1 / (1 + exp(-x)), in graphs from exp(-|x|)."""
    if not torch.compiler.is_compiling():
        return torch.sigmoid(x)
    n = _decay(x)
    r = 1 / (1 + n)
    return torch.where(x > 0, r, n * r)''',
    "_sigmoid_minus": '''def _sigmoid_minus(x):
    """sigmoid(-x), in graphs from exp(-|x|)."""
    if not torch.compiler.is_compiling():
        return torch.sigmoid(-x)
    n = _decay(x)
    r = 1 / (1 + n)
    return torch.where(x > 0, n * r, r)''',
    "_exp_below": '''def _exp_below(x):
    """exp(x) for functions that are constant far out; in graphs of a finite derivative."""
    return torch.exp(torch.clamp(x, max=8) if torch.compiler.is_compiling() else x)''',
    "_multiplied": '''def _multiplied(n):
    """Whether a power n is to be products."""
    return torch.compiler.is_compiling() and isinstance(n, (int, float)) and n in (1, 2, 3, 4)''',
    "_sigmoid_power": '''def _sigmoid_power(x, n, y):
    """sigmoid(x)**n = exp(y)."""
    return _sigmoid_shared(x) ** int(n) if _multiplied(n) else torch.exp(y)''',
    "_sigmoid_minus_power": '''def _sigmoid_minus_power(x, n, y):
    """sigmoid(-x)**n = exp(y)."""
    return _sigmoid_minus(x) ** int(n) if _multiplied(n) else torch.exp(y)''',
    "_softplus_shared": '''def _softplus_shared(x):
    """softplus(x), in graphs from exp(-|x|)."""
    if not torch.compiler.is_compiling():
        return _softplus(x)
    return torch.relu(x) + torch.log1p(_decay(x))''',
    "_softplus_minus": '''def _softplus_minus(x):
    """softplus(-x), in graphs from exp(-|x|)."""
    if not torch.compiler.is_compiling():
        return _softplus(-x)
    return torch.clamp(-x, min=0) + torch.log1p(_decay(x))''',
    "_tanh": '''def _tanh(x):
    """tanh(x)."""
    if not _on_cpu(x):
        return torch.tanh(x)
    n = _decay(2 * x)
    far = 1 - 2 * (n * (1 / (1 + n)))
    small = torch.abs(x) < 0.625
    z = torch.where(small, x, 0)
    t = z * z
    near = _polynomial(t, -0.333332837, 0.133314908, -0.0537435003, 0.0206505917, -0.00571704889)
    return torch.where(small, z + z * (t * near), torch.where(x > 0, far, -far))''',
    "_sech2": '''def _sech2(x):
    """1 / cosh(x)**2, without the cancellation of 1 - tanh(x)**2."""
    if not torch.compiler.is_compiling():
        return 4 * torch.sigmoid(2 * x) * torch.sigmoid(-2 * x)
    n = _decay(2 * x)
    r = 1 / (1 + n)
    return 4 * (n * r) * r''',
    "_erf": '''def _erf(x):
    """erf(x), with its digits near 0."""
    if not _on_cpu(x):
        return torch.erf(x)
    far = torch.erf(x)
    small = torch.abs(x) < 0.75
    z = torch.where(small, x, 0)
    near = z * _polynomial(
        z * z, 1.12837911, -0.3761262, 0.112833768, -0.0268346351, 0.00511436304, -0.000674962474
    )
    return torch.where(small, near, far)''',
    "_expm1": '''def _expm1(x):
    """exp(x) - 1, with its digits near 0."""
    if not _on_cpu(x):
        return torch.expm1(x)
    far = torch.exp(x) - 1
    small = torch.abs(x) < 0.25
    z = torch.where(small, x, 0)
    near = z + z * (z * _polynomial(z, 0.499998331, 0.166666165, 0.0417749435, 0.00835373066))
    return torch.where(small, near, far)''',
    "_normcdf": '''def _normcdf(x):
    """The standard normal distribution function, accurate in the lower tail."""
    if not _on_cpu(x):
        return 0.5 * torch.erfc(-math.sqrt(0.5) * x)
    # exp(x**2 / 2) * normcdf(-x) is a quotient of polynomials.
    e = torch.exp(x * -0.5 * x)
    z = torch.clamp(torch.where(x > 0, x, -x), max=15)
    p = _polynomial(z, 0.5, 0.439284325, 0.183969826, 0.0408813693, 0.00415326748)
    q = _polynomial(z, 1.0, 1.67645371, 1.20555115, 0.471410543, 0.102480508, 0.0104105854)
    tail = e * (p / q)
    return torch.where(x > 0, 1 - tail, tail)''',
    "_softplus_ratio": '''def _softplus_ratio(x):
    """exp(-|x|), and p and q of tanh(softplus(x)) = p / q."""
    n = _decay(x)
    p = torch.where(x > 0, 2 * n + 1, n * (n + 2))
    return n, p, p + torch.where(x > 0, 2 * n * n, 2)''',
    "_tanh_softplus": '''def _tanh_softplus(x, y):
    """tanh(y), y = softplus(x), in graphs rational in an exponential."""
    if not torch.compiler.is_compiling():
        return torch.tanh(y)
    _, p, q = _softplus_ratio(x)
    return p / q''',
    "_sech2_softplus": '''def _sech2_softplus(x, y):
    """1 / cosh(y)**2, y = softplus(x), in graphs rational in an exponential."""
    if not torch.compiler.is_compiling():
        return _sech2(y)
    n, _, q = _softplus_ratio(x)
    root = torch.where(x > 0, 2 * n, 2) * (n + 1) / q
    return root * root''',
}
"""PyTorch helpers by name, in place of those of the same name for eager alone."""


def for_graphs(program: Program) -> Program:
    """The program in operations whose helpers share exponentials in graphs, see `SPELLING`."""
    program = _guarded(program)
    old = program.nodes
    base = dict(_bases(old))
    powers = dict(_powers(old))
    below = _saturating(old, program.outputs)
    shared = _shared(old, base) | {base[plus] for plus, _ in powers.values()}
    nodes: list[Node] = []
    at: dict[int, int] = {}
    for k, node in enumerate(old):
        op, args = node.op, node.args
        if k in base:
            u = base[k]
            minus = u != args[0]
            if op == "softplus" or u in shared:
                op, args = f"{op}_minus" if minus else f"{op}_shared", (u,)
        elif op in ("tanh", "sech2") and old[args[0]].op == "softplus":
            op, args = f"{op}_softplus", (*old[args[0]].args, *args)
        elif op in ("tanh", "erf", "expm1") and ELEMENT in node.axes:
            op = f"{op}_in_graph"
        elif k in powers:
            plus, n = powers[k]
            of_minus = base[plus] == old[plus].args[0]
            op = "sigmoid_minus_power" if of_minus else "sigmoid_power"
            args = (base[plus], n, *args)
        elif k in below:
            op = "exp_below"
        elif op == "times_exp" and _is_indicator(old, args[0]):
            never = Node("constant", constant=S.NegativeInfinity, number=True)
            chosen = (at[old[args[0]].args[0]], at[args[1]], len(nodes))
            nodes += [never, dataclasses.replace(node, op="select", args=chosen)]
            at[k] = len(nodes)
            nodes.append(dataclasses.replace(node, op="exp", args=(len(nodes) - 1,)))
            continue
        at[k] = len(nodes)
        nodes.append(dataclasses.replace(node, op=op, args=tuple(at[arg] for arg in args)))
    return _renumbered(program, nodes, at)


def _bases(nodes: Sequence[Node]) -> Iterator[tuple[int, int]]:
    """Sigmoids and softpluses of elements, each with u, where its argument is u or -u.

    It is -u where another has u. Those of parameters are computed once, by PyTorch's functions.
    """
    arguments = {
        k: node.args[0]
        for k, node in enumerate(nodes)
        if node.op in ("sigmoid", "softplus") and ELEMENT in node.axes
    }
    given = set(arguments.values())
    for k, u in arguments.items():
        opposite = nodes[u].args[0] if nodes[u].op == "neg" else u
        yield k, opposite if opposite in given else u


def _shared(nodes: Sequence[Node], base: Mapping[int, int]) -> set[int]:
    """Those u of which there is more to compute than one sigmoid."""
    kinds: dict[int, set[tuple[str, bool]]] = {}
    for k, u in base.items():
        kinds.setdefault(u, set()).add((nodes[k].op, nodes[k].args[0] == u))
    return {u for u, of in kinds.items() if len(of) > 1}


def _saturating(nodes: Sequence[Node], outputs: Sequence[Output]) -> set[int]:
    """Exponentials of elements that only functions take which are constant from exp(8) on."""
    users: dict[int, set[str]] = {
        each.node: {"output"} for each in outputs if each.node is not None
    }
    for node in nodes:
        for arg in node.args:
            users.setdefault(arg, set()).add(node.op)
    return {
        k
        for k, node in enumerate(nodes)
        if node.op == "exp" and ELEMENT in node.axes and users[k] <= {"tanh", "sech2", "erf"}
    }


def _is_indicator(nodes: Sequence[Node], k: int) -> bool:
    """Whether a node is 1 where something holds of tensors, and 0 elsewhere."""
    if nodes[k].op != "select":
        return False
    holds, *values = (nodes[arg] for arg in nodes[k].args)
    return not holds.number and [each.constant for each in values] == [S.One, S.Zero]


def _powers(nodes: Sequence[Node]) -> Iterator[tuple[int, tuple[int, int]]]:
    """Each exp(-n * p), p a softplus of elements and n a number, with p and n."""
    for k, node in enumerate(nodes):
        if node.op != "exp" or ELEMENT not in node.axes:
            continue
        (inner,), signs, numbers = node.args, 0, []
        while nodes[inner].op in ("neg", "mul"):
            factors = [arg for arg in nodes[inner].args if not nodes[arg].number]
            numbers += [arg for arg in nodes[inner].args if nodes[arg].number]
            signs += nodes[inner].op == "neg"
            if len(factors) != 1:
                break
            inner = factors[0]
        if nodes[inner].op == "softplus" and signs % 2 and len(numbers) == 1:
            yield k, (inner, numbers[0])


def _guarded(program: Program) -> Program:
    """Where |u| < r selects a polynomial of u, that of 0 elsewhere: it overflows far out.

    The select hides that, but autograd straight through it multiplies 0 by infinity.
    """
    nodes = list(program.nodes)
    zero = Node("constant", constant=S.Zero, number=True)
    at: dict[int, int] = {}
    new: list[Node] = []

    def add(node: Node) -> int:
        new.append(node)
        return len(new) - 1

    for k, node in enumerate(nodes):
        args = [at[arg] for arg in node.args]
        u = _radius(nodes, node)
        if u is not None:
            inside = [j for j in _between(nodes, u, node.args[1]) if j != u]
            if inside:
                axes = nodes[u].axes
                within = dict(at)
                within[u] = add(Node("select", (args[0], at[u], add(zero)), axes=axes))
                for j in inside:
                    moved = tuple(within[arg] for arg in nodes[j].args)
                    within[j] = add(dataclasses.replace(nodes[j], args=moved))
                args[1] = within[node.args[1]]
        at[k] = add(dataclasses.replace(node, args=tuple(args)))
    return _renumbered(program, new, at)


def _radius(nodes: Sequence[Node], node: Node) -> int | None:
    """u, if a node is a select by |u| < r of a tensor u."""
    if node.op != "select" or nodes[node.args[0]].op != "lt":
        return None
    size, bound = (nodes[arg] for arg in nodes[node.args[0]].args)
    if size.op != "abs" or bound.op != "constant" or size.number:
        return None
    return size.args[0]


def _between(nodes: Sequence[Node], start: int, end: int) -> list[int]:
    """The nodes on the ways from one to another, in their order."""
    reached = {start}
    for k in range(start + 1, end + 1):
        if reached.intersection(nodes[k].args):
            reached.add(k)
    needed = {end}
    for k in range(end, start - 1, -1):
        if k in needed:
            needed.update(nodes[k].args)
    return sorted(reached & needed)


def _renumbered(program: Program, nodes: list[Node], at: Mapping[int, int]) -> Program:
    """The program with other nodes, its outputs where `at` says that they are now."""
    outputs = [
        dataclasses.replace(each, node=None if each.node is None else at[each.node])
        for each in program.outputs
    ]
    return pruned(program.inputs, nodes, outputs)
