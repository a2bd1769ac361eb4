"""From a captured graph to one compiled for a backend: the passes in their order, all traced."""

import os
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from qtoolkit import backends
from qtoolkit.errors import UnknownName
from qtoolkit.graph import Graph
from qtoolkit.graphfile import load_graph
from qtoolkit.passes.fuse import fuse
from qtoolkit.passes.lower import Kernels, lower
from qtoolkit.passes.place import place
from qtoolkit.passes.rules import FuseRules, PlaceRules
from qtoolkit.passes.transitions import transitions
from qtoolkit.trace import PassTrace, Step, Trace, run_pass

POLICIES = ("greedy",)


class QuantizationWarning(UserWarning):
    """A compiled graph may give another result than real arithmetic would."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a compilation is for: a backend, its kernels, and the rules in force."""

    backend: str
    kernels: Kernels
    rules: PlaceRules
    fusing: FuseRules


PIPELINE: tuple[tuple[str, Callable[[Graph, Target], Generator[Step, None, Graph]]], ...] = (
    ("fuse", lambda graph, to: fuse(graph, to.fusing)),
    ("lower", lambda graph, to: lower(graph, to.backend, to.kernels)),
    ("place", lambda graph, to: place(graph, to.kernels, to.rules)),
    ("transitions", lambda graph, to: transitions(graph, to.backend, to.kernels, to.rules)),
)


def compile(
    graph: Graph,
    backend: str = "reference",
    rules: PlaceRules = PlaceRules(),  # noqa: B008
    policy: str = "greedy",
    fusing: FuseRules = FuseRules(),  # noqa: B008
) -> Trace:
    """Fuse, lower, place and connect a graph for a backend; the result is `.result`.

    Warns (QuantizationWarning) where an int32 sum could wrap around. Raises UnknownName for a
    backend or policy that is not there.
    """
    if policy not in POLICIES:
        raise UnknownName(f"placement policy {policy!r}; choose one of {', '.join(POLICIES)}")
    target = Target(backend, backends.kernels(backend), rules, fusing)
    traces: list[PassTrace] = []
    for name, run in PIPELINE:
        traces.append(run_pass(name, partial(_for, run, target), graph))
        graph = traces[-1].after
        for step in traces[-1].steps:
            if step.kind == "warning":
                warnings.warn(f"%{step.node}: {step.reason}", QuantizationWarning, stacklevel=2)
    return Trace(backend, tuple(traces))


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
