"""Batch norms of a captured graph: what folding each into the op before it does to the weights."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.errors import UnknownName
from qtoolkit.graph import Arg, Const, Graph, Node, Ref
from qtoolkit.passes.fuse_weighted import WEIGHTED
from qtoolkit.passes.qdq import short

if TYPE_CHECKING:
    import pandas as pd

BATCH_NORM = "aten.batch_norm.default"
Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BatchNorm:
    """One batch norm. into: the op that takes it in, None where it stays; why: the reason then.

    before and after: the largest max|w| of a channel; spread_*: that over the median of the live
    channels; bias_*: max|bias|. None where it is not folded.
    """

    name: str
    where: str
    module: str
    into: str | None
    why: str
    channels: int | None = None
    before: float | None = None
    after: float | None = None
    spread_before: float | None = None
    spread_after: float | None = None
    bias_before: float | None = None
    bias_after: float | None = None


@dataclass(frozen=True, slots=True)
class BatchNorms:
    """Every batch norm of a captured graph, in its order."""

    rows: tuple[BatchNorm, ...]

    @property
    def folded(self) -> tuple[BatchNorm, ...]:
        return tuple(r for r in self.rows if r.into is not None)

    def to_dataframe(self) -> "pd.DataFrame":
        """A row for each batch norm, by its node's name."""
        import pandas as pd

        columns = [c for c in BatchNorm.__dataclass_fields__ if c != "module"]
        return pd.DataFrame([asdict(r) for r in self.rows], columns=columns).set_index("name")

    def __repr__(self) -> str:
        return f"BatchNorms: {len(self.folded)} of {len(self.rows)} folded"

    def _repr_html_(self) -> str:
        return f"<p>{self!r}</p>{self.to_dataframe().to_html()}"


def batch_norms(graph: Graph) -> BatchNorms:
    """What becomes of each batch norm of a captured float graph (before qt.quantize)."""
    return BatchNorms(tuple(_row(n, graph) for n in graph.nodes if n.op == BATCH_NORM))


def folded(graph: Graph, name: str) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Weight[O, ...] and bias[O] of a conv or linear with the batch norm behind it folded in.

    Either node of the pair may be named. Reckoned in float64, rounded once to float32, as the
    quantizer does. Raises UnknownName for a node without constant weights.
    """
    node = graph[name]
    norm: Node | None = node if node.op == BATCH_NORM else None
    if norm is not None and isinstance(norm.args[0], Ref):
        node = graph[norm.args[0].node]
    elif norm is None:
        norm = next((graph[u] for u in graph.users[name] if graph[u].op == BATCH_NORM), None)
        alone = len(graph.users[name]) == 1 and Ref(name) not in graph.outputs
        norm = norm if alone else None
    if not _weighted(node, graph):
        raise UnknownName(f"%{name} has no constant weight; name a conv or linear of a float graph")
    if norm is None or why_not_folded(norm, graph) is not None:
        w, b = _values(node.args[1], graph), _values(node.args[2], graph)
        assert w is not None
        return w.astype(np.float32), None if b is None else b.astype(np.float32)
    return _fold(node, norm, graph)


def why_not_folded(norm: Node, graph: Graph) -> str | None:
    """Why a batch norm is left standing, None if the op before it takes it in."""
    source = norm.args[0]
    if not isinstance(source, Ref):
        return "it works on a constant"
    before = graph[source.node]
    if before.op not in WEIGHTED:
        return f"%{before.name} before it is {short(before.op)}, neither conv nor linear"
    if "linear" in before.op and before.type.rank != 2:
        return f"%{before.name} gives {before.type}; behind a linear only [N,C] is folded"
    if not _weighted(before, graph):
        return f"the weight of %{before.name} is no constant"
    if norm.args[5] is not False:
        return "it is in training mode"
    constant = [a is None or isinstance(a, Const) for a in norm.args[1:5]]
    if not all(constant) or norm.args[3] is None:
        return "its statistics are no constants"
    return None


def _row(norm: Node, graph: Graph) -> BatchNorm:
    why, where, module = why_not_folded(norm, graph), str(norm.where), norm.where.module
    if why is not None:
        return BatchNorm(norm.name, where, module, None, why)
    source = norm.args[0]
    assert isinstance(source, Ref)
    conv = graph[source.node]
    old, bias = _values(conv.args[1], graph), _values(conv.args[2], graph)
    new, shift = _fold(conv, norm, graph)
    assert old is not None
    a, b = reach(old), reach(new)
    others = len(graph.users[conv.name]) > 1 or Ref(conv.name) in graph.outputs
    return BatchNorm(
        norm.name,
        where,
        module,
        norm.name if others else conv.name,
        f"%{conv.name} has other readers: a copy of it takes the batch norm in" if others else "",
        a.size,
        float(a.max(initial=0.0)),
        float(b.max(initial=0.0)),
        spread(a),
        spread(b),
        0.0 if bias is None else float(np.abs(bias).max(initial=0.0)),
        float(np.abs(shift).max(initial=0.0)),
    )


def _fold(conv: Node, norm: Node, graph: Graph) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    w, b, gamma, beta, mean, variance = (
        _values(a, graph) for a in (conv.args[1], conv.args[2], *norm.args[1:5])
    )
    assert w is not None and mean is not None and variance is not None
    factor = 1.0 / np.sqrt(variance + float(norm.args[7]))  # type: ignore[arg-type]
    factor = factor if gamma is None else factor * gamma
    shift = ((0.0 if b is None else b) - mean) * factor + (0.0 if beta is None else beta)
    weight = w * factor.reshape(-1, *[1] * (w.ndim - 1))
    return weight.astype(np.float32), shift.astype(np.float32)


def reach(weight: NDArray[Any]) -> Float64:
    """max|w| of each channel of weight[O, ...]."""
    flat = np.abs(weight.astype(np.float64)).reshape(weight.shape[0], -1)
    return np.asarray(flat.max(axis=1, initial=0.0), np.float64)


def spread(per_channel: Float64) -> float:
    """How far the largest channel stands above the median of the live ones; 1 if none lives."""
    live = per_channel[per_channel > 0]
    return float(live.max() / np.median(live)) if live.size else 1.0


def _weighted(node: Node, graph: Graph) -> bool:
    if node.op not in WEIGHTED or not isinstance(node.args[1], Const):
        return False
    return graph.constants[node.args[1].name].array is not None


def _values(arg: Arg, graph: Graph) -> Float64 | None:
    return None if arg is None else graph.array(arg).astype(np.float64)
