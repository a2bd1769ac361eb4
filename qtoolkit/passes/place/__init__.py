"""place: narrow every operand's repset to one representation; every cause is told."""

from collections.abc import Generator

from qtoolkit.graph import Graph
from qtoolkit.passes.place.demands import (
    BUFFER,
    MIXED,
    PLAIN,
    STORAGES,
    TEXTURE,
    KernelTable,
    Limits,
    Slots,
    Table,
)
from qtoolkit.passes.place.problem import Problem
from qtoolkit.passes.place.recorder import Recorder
from qtoolkit.passes.place.repsets import Repsets
from qtoolkit.passes.rules import PlaceRules
from qtoolkit.trace import Step

__all__ = [
    "BUFFER",
    "MIXED",
    "PLAIN",
    "STORAGES",
    "TEXTURE",
    "KernelTable",
    "Limits",
    "Slots",
    "Table",
    "place",
]


def place(
    graph: Graph,
    table: Table,
    rules: PlaceRules = PlaceRules(),  # noqa: B008
    limits: Limits = Limits(),  # noqa: B008
) -> Generator[Step, None, Graph]:
    """Give every operand and result one representation out of those that `table` admits.

    First every node says what it admits and what limits leave of it, then nodes are decided in
    order. What stays in a buffer though limits.storage asks for textures is a step of kind
    'buffer'; a copy that a reader needs is one of kind 'copy', made a node by `transitions`. Raises
    NoRepresentation where an operand has no representation left, UnknownName for an op that the
    table does not state.
    """
    problem = Problem(graph, table, rules, limits)
    recorder = Recorder(problem)
    recorder.demands()
    yield from recorder.fresh()
    engine = Repsets(problem, recorder)
    for n in range(problem.nodes):
        engine.decide(n)
        yield from recorder.fresh()
    return recorder.finish()
