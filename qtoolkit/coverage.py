"""What of a program is quantized, how finely, by which kernel, and why the rest is not."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from qtoolkit import pipeline
from qtoolkit.errors import UnknownName
from qtoolkit.graph import Const, Graph, Node, leaves
from qtoolkit.ops import OPS
from qtoolkit.passes.fuse import BORDER, left_float
from qtoolkit.passes.qdq import ACTIVATIONS, DEQUANTIZE, QUANTIZE
from qtoolkit.passes.rules import FuseRules
from qtoolkit.trace import Step, Trace

if TYPE_CHECKING:
    import pandas as pd

STAGES = ("quantize", "fuse", "lower")
COLUMNS = ("name", "where", "op", "kernel", "target", "granularity", "quantized", "why")
PER_CHANNEL, PER_TENSOR = "per-channel", "per-tensor"


@dataclass(frozen=True, slots=True)
class Covered:
    """One op at one stage. granularity is that of its weight, per-tensor for ops without one,
    None for an op on floats; kernel and target are None before `lower`.
    """

    name: str
    where: str
    op: str
    kernel: str | None
    target: str | None
    granularity: str | None
    quantized: bool
    why: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """Every op of a program at one stage: 'quantize' (before any pass), 'fuse' or 'lower'."""

    stage: str
    nodes: tuple[Covered, ...]

    @property
    def left_float(self) -> int:
        """How many ops compute on floats."""
        return sum(not n.quantized for n in self.nodes)

    def to_dataframe(self) -> "pd.DataFrame":
        """A row for each op, in graph order."""
        import pandas as pd

        return pd.DataFrame([asdict(n) for n in self.nodes], columns=list(COLUMNS))

    def to_json(self) -> dict[str, Any]:
        """Format 1."""
        nodes = [asdict(n) for n in self.nodes]
        return {"format": 1, "nodes": nodes, "left_float": self.left_float}

    def __repr__(self) -> str:
        return f"Coverage after {self.stage}: {len(self.nodes)} ops, {self.left_float} left float"

    def __str__(self) -> str:
        rows = [("node", "op", "granularity", "kernel")]
        rows += [(n.name, n.op, n.granularity or "float", n.kernel or "-") for n in self.nodes]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        for n in self.nodes:
            if not n.quantized:
                at = f" ({n.where})" if n.where else ""
                lines.append(f"left float: %{n.name}{at}: {n.why}")
        return "\n".join([*lines, f"{len(self.nodes)} ops, {self.left_float} left float"])

    def _repr_html_(self) -> str:
        return f"<p>{self!r}</p>{self.to_dataframe().to_html(index=False)}"


def cover(
    program: Graph | Trace, target: str = "numba", rules: str = "", stage: str = STAGES[-1]
) -> Coverage:
    """Say what of a quantized program is covered: a graph, compiled for `target`, or a trace.

    rules: FuseRules as text, such as 'per_channel=off'. stage: 'quantize', 'fuse' or 'lower'. An op
    that only moves codes counts as quantized; copies, quantize and dequantize are no ops. Raises
    UnknownName for a target, rule or stage that is not there.
    """
    if stage not in STAGES:
        raise UnknownName(f"stage {stage!r}; choose one of {', '.join(STAGES)}")
    trace = program
    if isinstance(trace, Graph):
        trace = pipeline.compile(trace, backend=target, fusing=FuseRules.parse(rules))
    fuse = trace["fuse"]
    if stage == "quantize":
        return Coverage(stage, tuple(_captured(fuse.before)))
    graph = fuse.after if stage == "fuse" else trace["lower"].after
    chosen = _last(fuse.steps, ("fuse",))
    if stage == "lower":
        chosen |= _last(trace["lower"].steps, ("kernel", "unsupported"))
    floats = {left.node: left.why for left in left_float(fuse.after, fuse.steps)}
    return Coverage(stage, tuple(_compiled(graph, chosen, floats)))


def _last(steps: tuple[Step, ...], kinds: tuple[str, ...]) -> dict[str, str]:
    return {s.node: s.reason for s in steps if s.kind in kinds}


def _compiled(
    graph: Graph, chosen: Mapping[str, str], floats: Mapping[str, str]
) -> Iterator[Covered]:
    for node in graph.nodes:
        if node.op in BORDER:
            continue
        quantized = node.name not in floats
        target, _, kernel = (node.kernel or "").partition(":")
        yield Covered(
            node.name,
            str(node.where),
            node.op,
            kernel or None,
            target or None,
            _granularity(node, graph) if quantized else None,
            quantized,
            (chosen.get(node.name, "it works on codes as it is") if quantized
             else floats[node.name]),
        )  # fmt: skip


def _granularity(node: Node, graph: Graph) -> str:
    spec = OPS.get(node.op)
    if spec is None or "w_zero" not in spec.schema:
        return PER_TENSOR
    factors = graph.type_of(node.args[spec.position("out_multiplier")])
    return PER_CHANNEL if factors is not None and factors.numel > 1 else PER_TENSOR


def _captured(graph: Graph) -> Iterator[Covered]:
    for node in graph.nodes:
        if node.op in (*BORDER, *QUANTIZE, *DEQUANTIZE):
            continue
        why = _why_float(node, graph)
        yield Covered(
            node.name, str(node.where), node.op, None, None,
            _weight_of(node, graph) if why is None else None,
            why is None, why or "every operand and its result are quantized",
        )  # fmt: skip


def _why_float(node: Node, graph: Graph) -> str | None:
    """Why an op of a program with quantize and dequantize nodes is not between them."""
    if not any(t.dtype.floating for t in node.types):
        return None
    for ref in node.refs():
        if graph[ref.node].op not in DEQUANTIZE and not _taken_in(graph[ref.node], node):
            return f"operand %{ref.node} is float"
    bare = [leaf for leaf in leaves(node.args[1:2]) if isinstance(leaf, Const)]
    if bare:
        return f"operand {bare[0]} is a float constant"
    readers = [graph[name] for name in graph.users[node.name]]
    if all(r.op in QUANTIZE for r in readers) or any(_taken_in(node, r) for r in readers):
        return None if readers else "nothing quantizes its result"
    return f"%{next(r.name for r in readers if r.op not in QUANTIZE)} reads its result as float"


def _taken_in(node: Node, reader: Node) -> bool:
    """An activation follows the op that takes it in, with no quantize between them."""
    return reader.op in ACTIVATIONS and node.op not in (*ACTIVATIONS, "input")


def _weight_of(node: Node, graph: Graph) -> str:
    channels = any("per_channel" in graph[ref.node].op for ref in node.refs())
    return PER_CHANNEL if channels else PER_TENSOR
