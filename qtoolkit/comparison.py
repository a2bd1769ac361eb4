"""Two runs held against each other, node by node: equal codes, or how far from the float values."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.errors import BadInput, UnknownName
from qtoolkit.execution import Run
from qtoolkit.graph import Graph, Node, Ref, value_name
from qtoolkit.kernel import Array
from qtoolkit.metrics import Metrics, measure, same_bits
from qtoolkit.ops import tensor_qparams
from qtoolkit.qparams import QParams

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Row:
    """One value in both runs. equal: one dtype and the same bits; metrics compare real numbers."""

    name: str
    op: str
    against: str
    origin: tuple[str, ...]
    where: str
    elements: int
    equal: bool
    metrics: Metrics


@dataclass(frozen=True, slots=True)
class Missing:
    """A value that only one run has, and why it was not compared."""

    node: str
    why: str


@dataclass(frozen=True, eq=False)
class Comparison:
    """Run `b` held against run `a`, which counts as the truth; rows in the order of b's graph."""

    a: Run
    b: Run
    rows: tuple[Row, ...]
    missing: tuple[Missing, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise UnknownName(f"%{name} was not compared; see .rows and .missing")

    @property
    def equal(self) -> bool:
        """Every compared value agrees to the bit."""
        return all(row.equal for row in self.rows)

    @property
    def first_difference(self) -> Row | None:
        """The first row, in execution order, that is not equal."""
        return next((row for row in self.rows if not row.equal), None)

    @property
    def elements(self) -> int:
        return sum(row.elements for row in self.rows)

    @property
    def mean_sqnr_db(self) -> float | None:
        """Mean over the rows with a finite SQNR, copies left out; None if there is none."""
        rows = [r for r in self.rows if r.op != "transition"]
        found = [r.metrics.sqnr_db for r in rows if r.metrics.sqnr_db is not None]
        return float(np.mean(found)) if found else None

    def pair(self, name: str) -> tuple[NDArray[np.float32], NDArray[np.float32], QParams | None]:
        """Real values of one row in a and in b (logical axes), and b's qparams if quantized."""
        row = self[name]
        qparams = tensor_qparams(self.b.graph).get(name)
        theirs = tensor_qparams(self.a.graph).get(row.against)
        return _real(self.a[row.against], theirs), _real(self.b[name], qparams), qparams

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per value; the columns are the fields of Row and of Metrics."""
        import pandas as pd

        told = [asdict(row) for row in self.rows]
        return pd.DataFrame([row | row.pop("metrics") for row in told])

    def __repr__(self) -> str:
        told = "all equal" if self.equal else f"mean SQNR {_db(self.mean_sqnr_db)}"
        if not self.equal and (first := self.first_difference):
            told += f"; first difference at %{first.name}"
        return (
            f"Comparison({self.b.backend} against {self.a.backend}: {len(self.rows)} values, "
            f"{self.elements} elements, {told}; {len(self.missing)} not compared)"
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.to_dataframe().to_html(max_rows=20)}"


def compare(a: Run, b: Run) -> Comparison:
    """Hold run b against run a, the truth.

    If a ran an earlier stage than b (float before q/dq before compiled), a value of b is joined to
    the *last* node of its origin that a has: a folded conv is held against the activation it ends
    with. Otherwise values are joined by name, a transition by the name of what it copies. Values
    without a partner are listed in `.missing` with the reason. Raises BadInput if b ran the earlier
    stage.
    """
    if stage(b.graph) < stage(a.graph):
        raise BadInput("compare(a, b): a is the truth, so give the run of the earlier stage first")
    by_origin = stage(a.graph) < stage(b.graph)
    qa, qb = tensor_qparams(a.graph), tensor_qparams(b.graph)
    rows: list[Row] = []
    missing: list[Missing] = []
    reached: set[str] = set()
    for node in b.graph.nodes:
        for index in range(len(node.types)):
            key = value_name(Ref(node.name, index))
            against = _partner(node, index, b.graph, a, by_origin)
            if against not in a.values:
                missing.append(Missing(key, _why_missing(node, against, a)))
                continue
            reached.add(against)
            q, theirs = (qb.get(node.name), qa.get(against)) if index == 0 else (None, None)
            if q is None and by_origin and not holds_reals(b[key]) and holds_reals(a[against]):
                missing.append(Missing(key, "what its codes mean is not known"))
                continue
            if a[against].shape != b[key].shape:
                told = f"its shape {list(b[key].shape)} is {list(a[against].shape)} in {a.backend}"
                missing.append(Missing(key, told))
                continue
            rows.append(_row(node, key, against, a[against], b[key], theirs, q))
    if not by_origin:
        missing += [
            Missing(n, f"only {a.backend} computes it") for n in a.values if n not in reached
        ]
    return Comparison(a, b, tuple(rows), tuple(missing))


def stage(graph: Graph) -> int:
    """0 for a float graph, 1 for one with q/dq pairs, 2 for one that was fused or lowered."""
    ops = {n.op for n in graph.nodes} - {"input", "getitem"}
    if any(n.kernel for n in graph.nodes) or any("." not in op for op in ops):
        return 2
    return int(any(op.startswith("quantized_decomposed.") for op in ops))


def _partner(node: Node, index: int, graph: Graph, a: Run, by_origin: bool) -> str:
    if by_origin:
        known = [value_name(Ref(o, index)) for o in node.origin or (node.name,)]
        return next((k for k in reversed(known) if k in a.values), known[-1])
    at = node
    while at.op == "transition" and value_name(Ref(at.name, index)) not in a.values:
        source = next(at.refs())
        at, index = graph[source.node], source.index
    return value_name(Ref(at.name, index))


def holds_reals(value: Array) -> bool:
    """Whether a value holds real numbers, not codes."""
    return value.dtype.kind == "f"


def _why_missing(node: Node, against: str, a: Run) -> str:
    if against == node.name and not node.origin:
        return f"{a.backend} has no value of that name, and it stands for no captured node"
    return f"{a.backend} has no value %{against}"


def _row(
    node: Node, key: str, against: str, a: Array, b: Array, qa: QParams | None, qb: QParams | None
) -> Row:
    found = measure(_real(a, qa), b if _codes(b, qb) else _real(b, None), qb)
    where = str(node.where)
    return Row(key, node.op, against, node.origin, where, int(b.size), same_bits(a, b), found)


def _real(value: Array, qparams: QParams | None) -> NDArray[np.float32]:
    """Codes as real numbers; anything else as float32."""
    if qparams is not None and _codes(value, qparams):
        return qparams.dequantize(value)
    return value.astype(np.float32, copy=False)


def _codes(value: Array, qparams: QParams | None) -> bool:
    return qparams is not None and value.dtype.kind in "iu"


def _db(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f} dB"


def logits(run: Run) -> NDArray[Any]:
    """The first output that holds numbers, sample 0, flattened; empty if there is none."""
    found = (o for o in run.outputs if isinstance(o, np.ndarray) and o.size)
    first = next(found, np.zeros(0, np.float32))
    return np.asarray(first[0] if first.ndim > 1 else first).reshape(-1)


def top1(run: Run) -> int:
    """The class of the largest logit of the first output, sample 0; -1 without outputs."""
    found = logits(run)
    return int(np.argmax(found)) if found.size else -1
