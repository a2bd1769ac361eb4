"""Activation ranges: what calibration observed of each value, and the scale it got for that."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from qtoolkit.errors import BadInput
from qtoolkit.graph import Graph
from qtoolkit.passes.qdq import ACTIVATIONS, short
from qtoolkit.qparams import QParams
from qtoolkit.trace import Step

if TYPE_CHECKING:
    import pandas as pd

RANGE = "range"  # the kind of step that the quantizer tells a range by
LOW, HIGH = -128, 127


@dataclass(frozen=True, slots=True)
class Range:
    """What was seen of one value, [low, high] in real units, and the qparams made of it.

    owner: the first value that has these qparams (itself, unless they are shared).
    """

    name: str
    where: str
    module: str
    op: str
    low: float
    high: float
    scale: float
    zero_point: int
    owner: str

    @property
    def qparams(self) -> QParams:
        return QParams.of(self.scale, self.zero_point, LOW, HIGH, name=self.name)

    @property
    def covered(self) -> tuple[float, float]:
        """The least and the greatest real number that has a code."""
        return (LOW - self.zero_point) * self.scale, (HIGH - self.zero_point) * self.scale

    @property
    def clamps(self) -> bool:
        """Whether the value comes from an activation that bounds it."""
        return self.op in {short(op) for op in ACTIVATIONS}


@dataclass(frozen=True, slots=True)
class ActivationRanges:
    """Every observed value, in graph order, over `batches` batches of calibration data."""

    rows: tuple[Range, ...]
    batches: int

    @property
    def scales(self) -> int:
        """How many scales there are: values that share one count once."""
        return len({r.owner for r in self.rows})

    def to_dataframe(self) -> "pd.DataFrame":
        """A row for each value, by name."""
        import pandas as pd

        columns = [c for c in Range.__dataclass_fields__ if c != "module"]
        return pd.DataFrame([asdict(r) for r in self.rows], columns=columns).set_index("name")

    def to_json(self) -> dict[str, Any]:
        """Format 1."""
        rows = [asdict(r) for r in self.rows]
        return {"format": 1, "batches": self.batches, "ranges": rows}

    def __repr__(self) -> str:
        return (
            f"ActivationRanges: {len(self.rows)} values, {self.scales} scales, "
            f"{self.batches} batches"
        )

    def _repr_html_(self) -> str:
        return f"<p>{self!r}</p>{self.to_dataframe().to_html(max_rows=20)}"


def activation_ranges(graph: Graph, steps: Sequence[Step]) -> ActivationRanges:
    """The observed range and the qparams of each activation, as qt.quantize_steps tells them.

    graph, steps: what it returned. Raises BadInput if the steps tell no range.
    """
    told: dict[str, tuple[Step, str]] = {}
    batches = 0
    for step in (s for s in steps if s.kind == RANGE):
        batches, shared = step.why[3], step.why[7]
        told |= dict.fromkeys((step.node, *shared), (step, step.node))
    if not told:
        raise BadInput("these steps tell no range; give graph and steps of qt.quantize_steps")
    rows = [_row(graph, name, *told[name]) for name in _order(graph, told)]
    return ActivationRanges(tuple(rows), batches)


def _order(graph: Graph, told: dict[str, Any]) -> list[str]:
    return [n.name for n in graph.nodes if n.name in told]


def _row(graph: Graph, name: str, step: Step, owner: str) -> Range:
    low, high, _, scale, zero = step.why[1:6]
    node = graph[name]
    where = node.where
    return Range(name, str(where), where.module, short(node.op), low, high, scale, zero, owner)
