"""The `qtoolkit place` command: from what was asked to placements, in words or as JSON."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from qtoolkit.errors import BadInput, UnknownName
from qtoolkit.graph import Graph
from qtoolkit.interop.executorch.recorded import Delegate, named
from qtoolkit.layout import Reps, RepSet
from qtoolkit.passes.place import CostModel
from qtoolkit.passes.rules import PlaceRules
from qtoolkit.placement import OURS, TABLES, Placement, place, rules_of
from qtoolkit.placement.eyes import Difference, differences
from qtoolkit.placement.sources import AS, Source, is_recorded, read_source
from qtoolkit.trace import Chain


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of the command, as typed."""

    what: str
    eyes: str | None = None
    table: str | None = None
    policy: str = "greedy"
    rules: str = ""
    why: str | None = None
    storage: str = "mixed"
    device: str | None = None
    cost: str = "default"
    seconds: float = 30.0
    weights: str = "per-channel"


@dataclass(frozen=True, eq=False)
class Placed:
    """What came out: a placement for each delegate, or one for the whole graph."""

    eyes: str
    table: str
    rules: PlaceRules
    source: Source
    placements: tuple[Placement, ...]
    differ: tuple[tuple[Difference, ...], ...] = ()
    why: tuple[Chain, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Format 1; the README describes it."""
        told: dict[str, Any] = {
            "format": 1,
            "delegates": [
                p.to_json(self.eyes, _nodes(g))
                for p, g in zip(self.placements, self.source.graphs, strict=True)
            ],
            "rules": asdict(self.rules),
            "table": self.table,
            "policy": self.placements[0].policy if self.placements else None,
            "model": self.placements[0].cost.model if self.placements else None,
        }
        if self.source.outcomes:
            told["differences"] = [[asdict(d) for d in found] for found in self.differ]
            told["left_to_cpu"] = [
                {"name": name, "target": target, "reason": reason}
                for name, target, reason in self.source.left
            ]
        if self.why:
            told["why"] = [
                [{"kind": s.kind, "node": s.node, "reason": s.reason} for s in chain]
                for chain in self.why
            ]
        return told

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.why:
            yield from map(str, self.why)
            return
        several = len(self.placements) > 1
        for i, p in enumerate(self.placements):
            yield f"delegate {i}: {p!r}" if several else repr(p)
            widest = max((len(n.name) for n in p.graph.nodes if n.reps), default=0)
            for n in p.graph.nodes:
                if n.reps is not None:
                    yield f"  {n.name:<{widest}}  {_words(n.reps)}"
            for c in p.copies:
                size = f"{c.nbytes:,} bytes"
                yield f"  copy of %{c.value.node} {c.has} -> {c.wants}: {size}, for {_all(c.users)}"
            if self.source.outcomes:
                found = self.differ[i]
                yield from (f"  differs: {d}" for d in found)
                yield f"  {len(found)} differences from ExecuTorch's own placement"
        for name, target, reason in self.source.left:
            yield f"left to the CPU: %{name} ({target}): {reason}"


def place_job(asked: Asked) -> Placed:
    """Carry out `qtoolkit place`. Raises what reading, lowering and placing raise."""
    eyes = asked.eyes or ("executorch" if is_recorded(asked.what) else OURS)
    if eyes not in AS:
        raise UnknownName(f"--as {eyes!r}; choose {' or '.join(AS)}")
    table = asked.table or ("executorch-1.5.1" if eyes == "executorch" else OURS)
    if table not in TABLES:
        raise UnknownName(f"--table {table!r}; choose one of {', '.join(TABLES)}")
    rules = PlaceRules.parse(asked.rules, rules_of(table))
    model = _model(asked)
    source = read_source(asked.what, eyes, asked.weights)

    def placed(graph: Graph | Delegate) -> Placement:
        return place(graph, table, rules, asked.policy, asked.storage, device=asked.device,
                     model=model, seconds=asked.seconds)  # fmt: skip

    placements = tuple(placed(graph) for graph in source.graphs)
    differ = tuple(differences(p, o) for p, o in zip(placements, source.outcomes, strict=False))
    why = _why(asked.why, placements) if asked.why else ()
    return Placed(eyes, table, rules, source, placements, differ, why)


def _model(asked: Asked) -> CostModel:
    if asked.cost == "default":
        return CostModel()
    if asked.cost != "measured":
        return CostModel.load(asked.cost)
    from qtoolkit import bench

    model = bench.stored(asked.device)
    if model is None:
        raise BadInput("--cost measured: nothing was measured here; run qtoolkit bench transitions")
    return model


def _why(asked: str, placements: tuple[Placement, ...]) -> tuple[Chain, ...]:
    """The chains for NODE[:OPERAND], from every delegate that has the node."""
    name, colon, told = asked.lstrip("%").partition(":")
    try:
        operand = int(told) if colon else None
    except ValueError as why:
        raise UnknownName(f"--why {asked!r}: operands are numbers, -1 the result") from why
    having = [p for p in placements if name in p.graph]
    if not having:
        raise UnknownName(f"--why {asked!r}: no node %{name}; the table of nodes lists them")
    return tuple(p.trace.why(name, operand) for p in having)


def _nodes(graph: Graph | Delegate) -> list[tuple[str, str]] | None:
    return list(named(graph.nodes)) if isinstance(graph, Delegate) else None


def _words(reps: Reps) -> str:
    """Where a node reads and writes: operands that agree are told once."""

    def told(sets: Iterable[RepSet | None]) -> str:
        found = [str(r.only) for r in sets if r is not None]
        return found[0] if len(set(found)) == 1 else ", ".join(found)

    ins = told(reps.inputs)
    return f"{ins} -> {told(reps.outputs)}" if ins else told(reps.outputs)


def _all(users: tuple[str, ...]) -> str:
    return ", ".join(f"%{user}" for user in users)
