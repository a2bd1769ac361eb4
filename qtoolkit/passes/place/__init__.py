"""place: narrow every operand's repset to one representation; every cause is told."""

from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from qtoolkit.errors import UnknownName
from qtoolkit.graph import Graph
from qtoolkit.passes.place.best import SECONDS, Best
from qtoolkit.passes.place.cost import Cost, CostModel
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
from qtoolkit.passes.place.proposals import Proposals
from qtoolkit.passes.place.recorder import Recorder
from qtoolkit.passes.place.repsets import Repsets
from qtoolkit.passes.rules import PlaceRules
from qtoolkit.trace import Step

__all__ = [
    "BUFFER",
    "GREEDY",
    "MIXED",
    "OPTIMAL",
    "PLAIN",
    "POLICIES",
    "STORAGES",
    "TEXTURE",
    "Cost",
    "CostModel",
    "KernelTable",
    "Limits",
    "Slots",
    "Table",
    "place",
]


GREEDY, OPTIMAL = POLICIES = ("greedy", "optimal")


class Engine(Protocol):
    """A way to place: decides nodes one after the other, by steps of its recorder."""

    def decide(self, n: int) -> None: ...


def place(
    graph: Graph,
    table: Table,
    rules: PlaceRules = PlaceRules(),  # noqa: B008
    limits: Limits = Limits(),  # noqa: B008
    policy: str = GREEDY,
    model: CostModel = CostModel(),  # noqa: B008
    seconds: float = SECONDS,
    order: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Generator[Step, None, Graph]:
    """Give every operand and result one representation out of those that `table` admits.

    First every node says what it admits and what limits leave of it, then nodes are decided in
    order: by the engine of the rules or, with policy 'optimal', at the least total cost by `model`
    that is found within `seconds`; steps of kind 'region' say what was proved.
    What stays in a buffer though limits.storage asks for textures is a step of kind 'buffer'; a
    copy that a reader needs is one of kind 'copy', made a node by `transitions`.
    order: the readers of a value, where they are to be asked in another order than the graph's.
    Raises NoRepresentation where an operand has no representation left, UnknownName for an op that
    the table does not state.
    """
    if policy == OPTIMAL and rules.engine != "repsets":
        raise UnknownName("policy 'optimal' places by repsets; use it with engine=repsets")
    problem = Problem(graph, table, rules, limits)
    recorder = Recorder(problem)
    recorder.demands()
    yield from recorder.fresh()
    engine: Engine
    if policy == OPTIMAL:
        engine = Best(problem, recorder, model, seconds, order)
    elif rules.engine == "proposals":
        engine = Proposals(problem, recorder)
    else:
        engine = Repsets(problem, recorder, order)
    for n in range(problem.nodes):
        engine.decide(n)
        yield from recorder.fresh()
    return recorder.finish()
