"""From a captured graph to one compiled for a backend: the passes in their order, all traced."""

import os
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from qtoolkit import backends
from qtoolkit.backends import DeviceChoice, family
from qtoolkit.errors import MissingDependency, UnknownName
from qtoolkit.graph import Graph
from qtoolkit.graphfile import load_graph
from qtoolkit.passes.fuse import fuse
from qtoolkit.passes.lower import Kernels, lower
from qtoolkit.passes.place import (
    GREEDY,
    MIXED,
    POLICIES,
    STORAGES,
    TEXTURE,
    CostModel,
    KernelTable,
    Limits,
    place,
)
from qtoolkit.passes.rules import FuseRules, PlaceRules
from qtoolkit.passes.transitions import transitions
from qtoolkit.trace import PassTrace, Step, Trace, run_pass

# What to keep to where no device can be asked: nearly every one has as much.
LIMIT_WITHOUT_DEVICE = 2048


class QuantizationWarning(UserWarning):
    """A compiled graph may give another result than real arithmetic would."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a compilation is for: a backend, its kernels, and the rules in force."""

    backend: str
    kernels: Kernels
    rules: PlaceRules
    fusing: FuseRules
    limits: Limits
    policy: str
    model: CostModel


PIPELINE: tuple[tuple[str, Callable[[Graph, Target], Generator[Step, None, Graph]]], ...] = (
    ("fuse", lambda graph, to: fuse(graph, to.fusing)),
    (
        "lower",
        lambda graph, to: lower(graph, to.backend, to.kernels, to.fusing, family(to.backend)),
    ),
    (
        "place",
        lambda graph, to: place(
            graph, KernelTable(to.kernels), to.rules, to.limits, to.policy, to.model
        ),
    ),
    ("transitions", lambda graph, to: transitions(graph, to.backend, to.kernels, to.rules)),
)


def compile(
    graph: Graph,
    backend: str = "reference",
    rules: PlaceRules = PlaceRules(),  # noqa: B008
    policy: str = GREEDY,
    fusing: FuseRules = FuseRules(),  # noqa: B008
    storage: str = MIXED,
    texture_limit: int | None = None,
    device: DeviceChoice = None,
    model: CostModel = CostModel(),  # noqa: B008
) -> Trace:
    """Fuse, lower, place and connect a graph for a backend; the result is `.result`.

    storage: 'mixed' lets kernels choose, 'buffer' and 'texture' keep to one as far as there is such
    a representation. texture_limit: the largest extent of a 3D texture, in place of that of
    `device` (a Vulkan device by index or part of its name; without any, 2048 is assumed). policy
    'optimal' places at the least total cost by `model` in place of node by node. Warns
    (QuantizationWarning) where an int32 sum could wrap around. Raises UnknownName for a backend,
    policy or storage that is not there.
    """
    if policy not in POLICIES:
        raise UnknownName(f"placement policy {policy!r}; choose one of {', '.join(POLICIES)}")
    if storage not in STORAGES:
        raise UnknownName(f"storage {storage!r}; choose one of {', '.join(STORAGES)}")
    table = backends.kernels(backend)
    if storage == TEXTURE and backend not in backends.DEVICES:
        raise UnknownName(f"storage 'texture': backend {backend!r} has buffers only; use vulkan")
    limit = limit_of(backend, texture_limit, device)
    extents = None if limit is None else (limit, limit, limit)
    target = Target(backend, table, rules, fusing, Limits(extents, storage), policy, model)
    traces: list[PassTrace] = []
    for name, run in PIPELINE:
        traces.append(run_pass(name, partial(_for, run, target), graph))
        graph = traces[-1].after
        for step in traces[-1].steps:
            if step.kind == "warning":
                warnings.warn(f"%{step.node}: {step.reason}", QuantizationWarning, stacklevel=2)
    return Trace(backend, tuple(traces))


def limit_of(backend: str, asked: int | None, device: DeviceChoice) -> int | None:
    """The largest extent of a 3D texture on a backend's device; None where it has none."""
    try:
        least = backends.texture_limit(backend, device)
    except MissingDependency:
        least = LIMIT_WITHOUT_DEVICE
    return least if asked is None or least is None else min(asked, least)


def _for(
    run: Callable[[Graph, Target], Generator[Step, None, Graph]], target: Target, graph: Graph
) -> Generator[Step, None, Graph]:
    return run(graph, target)


def load(path: str | os.PathLike[str]) -> Graph:
    """Read a graph: a .pt2 program of torch (anyone's, quantized or not) or one of `save`."""
    return READERS.get(Path(path).suffix, load_graph)(path)


def _load_pt2(path: str | os.PathLike[str]) -> Graph:
    from qtoolkit.program import load_pt2

    return load_pt2(path)


READERS: dict[str, Callable[[str | os.PathLike[str]], Graph]] = {".pt2": _load_pt2}
