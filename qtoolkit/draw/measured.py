"""What an SQNR picture is made of: the values of one or two quantizations, side by side."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from qtoolkit.comparison import Comparison, Row
from qtoolkit.draw.choice import granularity
from qtoolkit.draw.palette import ERROR, GRANULARITY, WIRE
from qtoolkit.ops import OPS
from qtoolkit.passes.fuse import BORDER


class Measured(Protocol):
    """What one node needs to be drawn: an exploration's NodeSummary is one."""

    @property
    def name(self) -> str: ...
    @property
    def op(self) -> str: ...
    @property
    def origin(self) -> tuple[str, ...]: ...
    @property
    def where(self) -> str: ...
    @property
    def sqnr(self) -> str: ...
    @property
    def sqnr_db(self) -> float | None: ...


Nodes = Comparison | Iterable[Measured]
# An op, the captured nodes it stands for, and how many such values came before.
Key = tuple[str, tuple[str, ...], int]
# What torch puts into the names of q/dq nodes, which are too long to stand under an axis.
AFFIX = re.compile("_per_(tensor|channel)_default")


@dataclass(frozen=True, slots=True)
class Point:
    """SQNR of one value: a figure, or 'exact' or 'no signal' without one."""

    name: str
    module: str
    sqnr: str
    db: float | None
    computes: bool


@dataclass(frozen=True, slots=True)
class Side:
    """One quantization of the model: its name, colour and points."""

    label: str
    color: str
    points: Mapping[Key, Point]

    @property
    def mean(self) -> float | None:
        found = [p.db for p in self.points.values() if p.db is not None]
        return float(np.mean(found)) if found else None


def sides_of(
    nodes: Nodes, other: Nodes | None = None, labels: tuple[str, str] | None = None
) -> list[Side]:
    """One side, or two to be held against each other, with their names and colours.

    Without labels a comparison is named after the granularity of its weights.
    """
    given = [nodes] if other is None else [nodes, other]
    names = list(labels or GRANULARITY)
    if labels is None and isinstance(nodes, Comparison):
        names[0] = granularity(nodes.b.graph)
        if isinstance(other, Comparison):
            names[1] = granularity(other.b.graph)
    spare = iter((ERROR, WIRE))
    return [
        Side(name, GRANULARITY.get(name) or next(spare), _points(each))
        for name, each in zip(names, given, strict=False)
    ]


def _points(nodes: Nodes) -> dict[Key, Point]:
    """Every value, the inputs left out, by what it computes.

    Not by name: torch numbers its q/dq nodes, and the two granularities have not equally many.
    """
    found: dict[Key, Point] = {}
    for n in nodes:
        if n.op == "input":
            continue
        m = n.metrics if isinstance(n, Row) else n
        module, _, source = n.where.partition(" ")
        own = module if source or ":" not in module else ""
        computes = n.op not in BORDER and not (n.op in OPS and OPS[n.op].moves)
        told = n.origin or (n.name,)
        key = n.op, told, sum(k[:2] == (n.op, told) for k in found)
        found[key] = Point(AFFIX.sub("", n.name), own, m.sqnr, m.sqnr_db, computes)
    return found
