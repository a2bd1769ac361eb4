"""What evaluation inputs tell, summed up value by value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qtoolkit.comparison import Comparison, Missing, Row
from qtoolkit.graph import Graph
from qtoolkit.metrics import ratio_db

GRANULARITIES = ("per-channel", "per-tensor")


@dataclass(frozen=True, slots=True)
class ImageResult:
    """One evaluation input: classes found by 'float', each backend and the other granularity."""

    name: str
    top1: Mapping[str, int]
    float_top3: tuple[int, ...]
    output_sqnr_db: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Compared:
    """How much of a backend's run was held against reference."""

    nodes: int
    missing: tuple[Missing, ...]
    elements: int
    equal: bool


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """One value of the compiled graph held against float, summed over all evaluation inputs."""

    name: str
    op: str
    origin: tuple[str, ...]
    where: str
    sqnr: str
    sqnr_db: float | None
    max_abs: float
    storage: str
    layout: str


@dataclass(slots=True)
class Tally:
    """Rows of one graph summed over inputs, each value by its name."""

    rows: dict[str, Row] = field(default_factory=dict)
    signal: dict[str, float] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)
    max_abs: dict[str, float] = field(default_factory=dict)

    def add(self, comparison: Comparison) -> None:
        for row in comparison:
            m, name = row.metrics, row.name
            self.rows[name] = row
            self.signal[name] = self.signal.get(name, 0.0) + m.signal
            self.noise[name] = self.noise.get(name, 0.0) + m.noise
            self.max_abs[name] = max(self.max_abs.get(name, 0.0), m.max_abs)

    def summaries(self, graph: Graph) -> tuple[NodeSummary, ...]:
        return tuple(self._summary(row, graph) for row in self.rows.values())

    def _summary(self, row: Row, graph: Graph) -> NodeSummary:
        sqnr, db = ratio_db(self.signal[row.name], self.noise[row.name])
        node = graph[row.name.partition("#")[0]]
        placed = node.reps.outputs[0].only if node.reps else None
        return NodeSummary(
            row.name,
            row.op,
            row.origin,
            row.where,
            sqnr,
            db,
            self.max_abs[row.name],
            placed.storage.name.lower() if placed else "",
            placed.layout.name.lower() if placed else "",
        )


def mean_sqnr_db(nodes: Sequence[NodeSummary]) -> float | None:
    """Mean over the nodes with a finite SQNR, copies left out; None if there is none."""
    found = [n.sqnr_db for n in nodes if n.sqnr_db is not None and n.op != "transition"]
    return float(np.mean(found)) if found else None


def other_than(weights: str) -> str | None:
    """The other granularity; None beside an imported program."""
    return {GRANULARITIES[0]: GRANULARITIES[1], GRANULARITIES[1]: GRANULARITIES[0]}.get(weights)
