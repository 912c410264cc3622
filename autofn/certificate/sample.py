"""Points for the certificate and the truth at them."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from mpmath import mp

from autofn.certificate.job import Entry, Job, Sweep, Truths
from autofn.model import NUMBERS, TENSORS, Definition, Leaf, Variant
from autofn.names import camel_case
from autofn.verify.oracle import Oracle, contains, ends, oracle, precision
from autofn.verify.points import Point, hard_points, kink_points, parameter
from autofn.verify.tables import round_to, signature

COUNTS = {"quick": 60, "full": 600}
"""Drawn points per variant and dtype, of each of two kinds."""

SECONDS = {"quick": 24, "full": 200}
"""Points at which second derivatives are compared."""

MOST = {"quick": 200, "full": 4000}

DTYPES = ("float32", "float64")


def make_job(definition: Definition, folder: str, level: str, backends: Collection[str]) -> Job:
    """Everything that the measuring process needs of the package that lies in `folder`."""
    truths = [
        each
        for variant in definition.variants
        for dtype in DTYPES
        if (each := _truths(definition, variant, dtype, level)) is not None
    ]
    sweeps = [_sweep(definition, variant) for variant in definition.variants]
    return Job(
        folder=folder,
        class_name=camel_case(definition.name),
        signature=signature(definition),
        truths=tuple(truths),
        sweeps=tuple(sweeps),
        limits=tuple(filter(None, (_limits(definition, each) for each in definition.variants))),
        level=level,
        backends=tuple(backends),
    )


def truth_at(
    definition: Definition, variant: Variant, point: Mapping[str, Any]
) -> dict[Entry, Any]:
    """Outputs and gradients at a point as mpmath numbers; the gradient is the user's own if any."""
    found: dict[Entry, Any] = {}
    asked: Oracle = oracle(definition, variant)
    truth = asked.evaluate(point)
    count = len(truth.outputs)
    for j, output in enumerate(definition.output_names):
        found[output,] = truth.outputs[j]
        row: Sequence[Any] = truth.jacobian[j]
        if definition.own_gradient:
            row = asked.vjp(point, [float(k == j) for k in range(count)])
        for leaf, entry in zip(definition.differentiable, row, strict=True):
            if leaf.name in point and entry is not None:
                found[output, leaf.name] = entry
    return found


def _smooth_at(definition: Definition, variant: Variant, point: Point) -> dict[Entry, Any]:
    """The gradients that the function has although the formula as written has a kink.

    Max(x, 0) + Min(exp(x) - 1, 0) has one where x is 0, and is smooth there. At a real kink, or
    where no tensor is 0: none.
    """
    tensors = [leaf.name for leaf in definition.tensors if point.get(leaf.name) == 0]
    if not tensors:
        return {}
    with precision(60):
        beside = [
            truth_at(
                definition,
                variant,
                {**point, **{name: sign * mp.mpf(10) ** -power for name in tensors}},
            )
            for power in (25, 28)
            for sign in (-1, 1)
        ]
        return {
            entry: value
            for entry, value in beside[-1].items()
            if len(entry) == 2
            and all(mp.isfinite(each[entry]) for each in beside)
            # Neither at a kink, nor at a pole: of sqrt(|x|) it is another at each.
            and all(
                abs(value - each[entry]) <= mp.mpf(10) ** -18 * (1 + abs(value)) for each in beside
            )
        }


def _present(definition: Definition, variant: Variant) -> list[Leaf]:
    key = dict(variant.key)
    return [leaf for leaf in definition.leaves if leaf.symbol and key.get(leaf.name, True)]


def _defaults(definition: Definition, variant: Variant) -> Point:
    domains = dict(definition.options.domain)
    return {
        leaf.name: parameter(leaf, domains.get(leaf.name))
        for leaf in _present(definition, variant)
        if leaf.kind not in TENSORS
    }


def _sweep(definition: Definition, variant: Variant) -> Sweep:
    present = _present(definition, variant)
    # Numbers as single precision holds them, which the 16-bit types compute in too.
    defaults = _stored(_defaults(definition, variant), "float32")
    numbers = {leaf.name for leaf in present if leaf.kind in NUMBERS}
    domain = {}
    for name, interval in definition.options.domain:
        low, high = (float(end) for end in ends(interval))
        domain[name] = (low, high, not interval.left_open, not interval.right_open)
    return Sweep(
        key=variant.key,
        tensors=tuple(leaf.name for leaf in present if leaf.kind in TENSORS),
        parameters={name: float(v) for name, v in defaults.items() if name not in numbers},
        numbers={name: v for name, v in defaults.items() if name in numbers},
        domain=domain,
    )


def _limits(definition: Definition, variant: Variant) -> Truths | None:
    """Both infinities of a formula of one tensor, as far as its domain has them."""
    tensors = [leaf.name for leaf in _present(definition, variant) if leaf.kind in TENSORS]
    if len(tensors) != 1:
        return None
    (name,) = tensors
    defaults = _stored(_defaults(definition, variant), "float32")
    domain = dict(definition.options.domain).get(name)
    ends_in = [s for s in (-1.0, 1.0) if domain is None or contains(domain, s * 1e300)]
    points = [{name: sign * math.inf, **defaults} for sign in ends_in]
    if not points:
        return None
    found = [truth_at(definition, variant, point) for point in points]
    numbers = {leaf.name for leaf in definition.leaves if leaf.kind in NUMBERS}
    entries: list[Entry] = [(output,) for output in definition.output_names]
    given = [leaf.name for leaf in definition.differentiable if leaf.name in points[0]]
    columns: dict[Entry, list[float]] = {
        entry: [float(each.get(entry, 0)) for each in found]
        for entry in [*entries, *((o, n) for o in definition.output_names for n in given)]
    }
    return Truths(
        key=variant.key,
        dtype="float32",
        numbers={n: v for n, v in points[0].items() if n in numbers},
        points={n: [float(point[n]) for point in points] for n in given},
        high=columns,
        low={entry: [0.0] * len(points) for entry in columns},
    )


def _truths(definition: Definition, variant: Variant, dtype: str, level: str) -> Truths | None:
    points = _points(definition, variant, dtype, level)
    if not points:
        return None
    given = [leaf.name for leaf in definition.differentiable if leaf.name in points[0]]
    columns: dict[Entry, list[Any]] = {}
    for output in definition.output_names:
        columns[output,] = []
        for name in given:
            columns[output, name] = []
    for point in points:
        found = truth_at(definition, variant, point)
        if not definition.own_gradient:
            smooth = _smooth_at(definition, variant, point)
            found |= {e: v for e, v in smooth.items() if abs(v - found[e]) > 1e-17 * (1 + abs(v))}
        for entry, column in columns.items():
            column.append(found.get(entry, mp.zero))
    seconds = _seconds(definition, variant, points, given, level)
    columns.update(seconds)
    numbers = {leaf.name for leaf in definition.leaves if leaf.kind in NUMBERS}
    return Truths(
        key=variant.key,
        dtype=dtype,
        numbers={name: value for name, value in points[0].items() if name in numbers},
        points={name: [float(point[name]) for point in points] for name in given},
        high={entry: [_high(v) for v in column] for entry, column in columns.items()},
        low={entry: [_low(v) for v in column] for entry, column in columns.items()},
    )


def _seconds(
    definition: Definition,
    variant: Variant,
    points: Sequence[Point],
    given: Sequence[str],
    level: str,
) -> dict[Entry, list[Any]]:
    """Second derivatives by pairs of tensors at some of the points, NaN at others."""
    tensors = [leaf.name for leaf in definition.tensors if leaf.name in given]
    step = max(1, len(points) // SECONDS[level])
    names = [leaf.name for leaf in definition.differentiable]
    outputs = definition.output_names
    asked = oracle(definition, variant)
    found: dict[Entry, list[Any]] = {}
    for j, output in enumerate(outputs):
        for k, first in enumerate(tensors):
            # By symmetry the other half says the same; a user's own gradient has none to compare.
            columns = {second: [mp.nan] * len(points) for second in tensors[k:]}
            for at in range(0, len(points), step):
                along = [float(name == first) for name in names]
                cotangents = [float(i == j) for i in range(len(outputs))]
                again = asked.second(points[at], cotangents, along, limits=False)
                for second, column in columns.items():
                    column[at] = again.leaves[names.index(second)]
            for second, column in columns.items():
                found[output, first, second] = column
    return found


def _high(value: Any) -> float:
    number = float(value)
    return number if math.isfinite(number) else math.nan


def _low(value: Any) -> float:
    high = _high(value)
    return float(value - high) if math.isfinite(high) else math.nan


def _points(definition: Definition, variant: Variant, dtype: str, level: str) -> list[Point]:
    """Hard points, neighbours of kinks, all magnitudes, and ordinary numbers; exact in `dtype`."""
    defaults = _defaults(definition, variant)
    tensors = [leaf.name for leaf in _present(definition, variant) if leaf.kind in TENSORS]
    domains = dict(definition.options.domain)
    rng = Random(0)
    count = COUNTS[level]
    drawn: list[Point] = []
    if tensors:
        # Several inputs: 0 or 2**-40 to 2**40. One: everything that there is.
        reach = (-149.0, 128.0) if len(tensors) == 1 else (-40.0, 40.0)
        for k in range(count):
            sizes = [
                2.0 ** (reach[0] + (reach[1] - reach[0]) * (k + rng.random()) / count)
                if n == k % len(tensors)
                else rng.choice([0.0, 1.0, 2.0 ** rng.uniform(*reach), 2.0 ** rng.uniform(-3, 3)])
                for n in range(len(tensors))
            ]
            drawn.append(
                {name: rng.choice([-1, 1]) * s for name, s in zip(tensors, sizes, strict=True)}
            )
        for k in range(count):
            width = (1.0, 4.0, 20.0, 110.0)[k % 4]
            drawn.append({name: rng.uniform(-width, width) for name in tensors})
    drawn += [
        {name: value for name, value in point.items() if name in tensors}
        for point in [*hard_points(definition, variant), *kink_points(definition, variant)]
        if all(abs(point[name]) < 2.0**41 for name in tensors) or len(tensors) == 1
    ]
    found: dict[tuple[float, ...], Point] = {}
    for point in _thinned(drawn, MOST[level]):
        exact = {name: round_to(float(value), dtype) + 0.0 for name, value in point.items()}
        inside = all(contains(domains[n], v) for n, v in exact.items() if n in domains)
        if inside and all(map(math.isfinite, exact.values())):
            found.setdefault(tuple(exact.values()), {**exact, **_stored(defaults, dtype)})
    return list(found.values())


def _stored(defaults: Point, dtype: str) -> Point:
    """Parameters as the arithmetic holds them. Numbers are rounded likewise: see `Truths`."""
    if dtype == "float64":
        return defaults
    return {
        name: value if isinstance(value, int) else struct.unpack("f", struct.pack("f", value))[0]
        for name, value in defaults.items()
    }


def _thinned(points: Sequence[Point], most: int) -> Iterable[Point]:
    if len(points) <= most:
        return points
    return (points[k * len(points) // most] for k in range(most))
