"""Placing a graph by a table and rules of one's choice: what came out, what it costs, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from qtoolkit import backends
from qtoolkit.backends import DeviceChoice
from qtoolkit.errors import UnknownName
from qtoolkit.graph import Graph
from qtoolkit.interop.executorch.recorded import Delegate
from qtoolkit.interop.executorch.table import TABLES as EXECUTORCH
from qtoolkit.interop.executorch.table import spelled_repr
from qtoolkit.interop.executorch.table import table as executorch_table
from qtoolkit.layout import TensorRepr
from qtoolkit.passes.place import (
    GREEDY,
    MIXED,
    POLICIES,
    Cost,
    CostModel,
    KernelTable,
    Limits,
    Table,
)
from qtoolkit.passes.place import (
    place as place_pass,
)
from qtoolkit.passes.place.best import SECONDS
from qtoolkit.passes.place.pricing import Copy, Pricing, copies, states_of
from qtoolkit.passes.place.problem import Problem
from qtoolkit.passes.rules import FuseRules, PlaceRules
from qtoolkit.pipeline import compile, limit_of
from qtoolkit.trace import PassTrace, Step, run_pass

if TYPE_CHECKING:
    import pandas as pd

OURS = "qtoolkit"
TABLES = (OURS, *EXECUTORCH)
# ExecuTorch's own where no device is named: width, height and depth in texels.
EXECUTORCH_LIMITS = (16384, 16384, 2048)


@dataclass(frozen=True, eq=False)
class Placement:
    """One placed graph. `bound` is a proved lower bound of the cost, None where none was sought."""

    trace: PassTrace
    table: str
    rules: PlaceRules
    policy: str
    copies: tuple[Copy, ...]
    cost: Cost
    limits: Limits
    bound: float | None = None

    @property
    def graph(self) -> Graph:
        """The placed graph."""
        return self.trace.after

    @property
    def seconds(self) -> float:
        """How long the pass took."""
        return self.trace.seconds

    def of(self, node: str) -> tuple[TensorRepr, ...] | None:
        """The representation of each result of a node, None if nothing decided it."""
        reps = self.graph[node].reps
        return None if reps is None else tuple(r.only for r in reps.outputs)

    def why(self, node: str, operand: int | None = None) -> tuple[Step, ...]:
        """The chain of steps that fixed an operand; see Trace.why."""
        return self.trace.why(node, operand)

    def why_not(self, node: str, operand: int, representation: TensorRepr | str) -> Step | None:
        """The step that struck a representation out; see Trace.why_not."""
        return self.trace.why_not(node, operand, representation)

    def to_dataframe(self) -> "pd.DataFrame":
        """A row for each node: op, representations, copies that it reads, where they come from."""
        import pandas as pd

        read: dict[str, list[str]] = {}
        for c in self.copies:
            for user in c.users:
                read.setdefault(user, []).append(f"{c.value}: {c.has} -> {c.wants}")
        rows = [
            {
                "node": n.name,
                "op": n.op,
                "results": ", ".join(map(str, self.of(n.name) or ())),
                "operands": "" if n.reps is None else str(n.reps),
                "copies": "; ".join(read.get(n.name, ())),
            }
            for n in self.graph.nodes
        ]
        columns = ["node", "op", "results", "operands", "copies"]
        return pd.DataFrame(rows, columns=columns).set_index("node")

    def improvements(self) -> "pd.DataFrame":
        """The regions that the optimal placement changed: nodes, cost, that of greedy, bound, and
        the nodes whose result lies elsewhere now. Empty for a greedy placement.
        """
        import pandas as pd

        found = [s for s in self.trace.steps if s.kind == "region" and s.why[3] < s.why[5]]
        moved: dict[str, list[str]] = {}
        for s in self.trace.steps:
            if s.kind == "optimal" and len(s.why) > 4:
                moved.setdefault(str(s.why[3]), []).append(f"{s.node}: {s.why[6]} -> {s.why[2]}")
        rows = [
            {
                "region": s.why[2],
                "nodes": s.why[1],
                "cost": s.why[3],
                "greedy": s.why[5],
                "bound": s.why[-1],
                "changed": "; ".join(moved.get(str(s.why[2]), ())),
            }
            for s in found
        ]
        columns = ["region", "nodes", "cost", "greedy", "bound", "changed"]
        return pd.DataFrame(rows, columns=columns).set_index("region")

    def to_json(
        self, spelling: str = OURS, nodes: Sequence[tuple[str, str]] | None = None
    ) -> dict[str, Any]:
        """One delegate of `qtoolkit place --json`.

        spelling: 'executorch' for its enums' names, else ours. nodes: names and targets to list,
        those of the graph without them.
        """
        spell = spelled_repr if spelling == "executorch" else _plain
        listed = nodes or [(n.name, n.op) for n in self.graph.nodes]
        told = {name: self.of(name) if name in self.graph else None for name, _ in listed}
        return {
            "nodes": [
                {
                    "name": name,
                    "target": target,
                    "repr": None if (reps := told[name]) is None else [spell(r) for r in reps],
                }
                for name, target in listed
            ],
            "transitions": [
                {
                    "source": c.value.node,
                    "users": list(c.users),
                    "from": spell(c.has),
                    "to": spell(c.wants),
                    "bytes": c.nbytes,
                }
                for c in self.copies
            ],
            "cost": {
                "transitions": self.cost.transitions,
                "operations": self.cost.operations,
                "unit": self.cost.unit,
            },
            "bound": self.bound,
            "pass_ms": 1e3 * self.seconds,
        }

    def __repr__(self) -> str:
        count, moved = len(self.copies), sum(c.nbytes for c in self.copies)
        bound = "" if self.bound is None else f"; {_bound(self.cost.total, self.bound)}"
        made = f"{count} transition{'s' * (count != 1)}, {moved:,} bytes"
        return (
            f"{self.policy} by {self.table}: {made}; cost {self.cost}{bound}; "
            f"{1e3 * self.seconds:.1f} ms"
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.to_dataframe().to_html()}"


def place(
    graph: Graph | Delegate,
    table: str | Table = OURS,
    rules: PlaceRules | None = None,
    policy: str = GREEDY,
    storage: str = MIXED,
    texture_limit: int | None = None,
    device: DeviceChoice = None,
    model: CostModel = CostModel(),  # noqa: B008
    seconds: float = SECONDS,
    backend: str = "vulkan",
    fusing: FuseRules = FuseRules(),  # noqa: B008
    limits: Limits | None = None,
) -> Placement:
    """Place a graph by a table: 'qtoolkit' (the kernels of `backend`), one of ExecuTorch's by date,
    or one of your own.

    A graph goes through fuse and lower first where the table is ours; for the others it is placed
    as it stands, a recorded Delegate under its own limits, others under ExecuTorch's or those of
    texture_limit; `limits` says all of them at once, of a graph that is lowered already.
    rules: those of the table's date where none are given. policy 'optimal' seeks the least cost by
    `model` for up to `seconds`.
    Raises UnknownName for a table, policy or op that is not there, NoRepresentation.
    """
    if policy not in POLICIES:
        raise UnknownName(f"placement policy {policy!r}; choose one of {', '.join(POLICIES)}")
    order: Mapping[str, Sequence[str]] = {}
    if isinstance(graph, Delegate):
        chosen, limits, order = table_of(table, backend), graph.limits, graph.users
        graph = graph.graph
    elif limits is not None:
        chosen = table_of(table, backend)
    elif table == OURS:
        lowered = _lowered(graph, backend, storage, texture_limit, device, fusing)
        chosen, graph, limits = KernelTable(backends.kernels(backend)), *lowered
    else:
        extents = EXECUTORCH_LIMITS if texture_limit is None else (texture_limit,) * 3
        chosen, limits = table_of(table, backend), Limits(extents, storage)
    rules = rules_of(chosen.name) if rules is None else rules
    run = partial(place_pass, table=chosen, rules=rules, limits=limits, policy=policy, model=model,
                  seconds=seconds, order=order)  # fmt: skip
    return priced(run_pass("place", run, graph), chosen, rules, limits, policy, model)


def priced(
    trace: PassTrace,
    table: Table,
    rules: PlaceRules,
    limits: Limits,
    policy: str = GREEDY,
    model: CostModel = CostModel(),  # noqa: B008
) -> Placement:
    """A run of the pass with its copies and costs."""
    problem = Problem(trace.before, table, rules, limits)
    made = copies(trace.before, trace.steps, rules.share_transitions)
    cost = Pricing(problem, model).cost(states_of(trace.after, problem), made)
    bound = None
    if policy != GREEDY:
        gaps = (s.why[3] - s.why[-1] for s in trace.steps if s.kind == "region")
        bound = cost.total - sum(gaps)
    return Placement(trace, table.name, rules, policy, made, cost, limits, bound)


def rules_of(table: str) -> PlaceRules:
    """The rules that go with a table: the algorithm of its date, ours for our own."""
    if table == "executorch-1.5.1":
        return PlaceRules.executorch()
    if table in EXECUTORCH:
        return PlaceRules.proposals(table == "executorch-pr12616")
    return PlaceRules()


def table_of(table: str | Table, backend: str = "vulkan") -> Table:
    """A table by name; one of your own is given back. Raises UnknownName."""
    if not isinstance(table, str):
        return table
    if table == OURS:
        return KernelTable(backends.kernels(backend))
    if table not in TABLES:
        raise UnknownName(f"table {table!r}; choose one of {', '.join(TABLES)}")
    return executorch_table(table)


def _lowered(
    graph: Graph,
    backend: str,
    storage: str,
    limit: int | None,
    device: DeviceChoice,
    fusing: FuseRules,
) -> tuple[Graph, Limits]:
    trace = compile(graph, backend, fusing=fusing, storage=storage, texture_limit=limit,
                    device=device)  # fmt: skip
    least = limit_of(backend, limit, device)
    return trace["lower"].after, Limits(None if least is None else (least,) * 3, storage)


def _plain(r: TensorRepr) -> tuple[str, str]:
    return r.storage.name.lower(), r.layout.name.lower()


def _bound(total: float, bound: float) -> str:
    gap = total - bound
    if gap <= 1e-6 * max(1.0, total):
        return "proved: no placement costs less"
    return f"not proved: at least {bound:,.0f}, a gap of {100 * gap / total:.1f} %"
