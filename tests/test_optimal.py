"""The optimal placement against oracles: enumeration, dynamic programming, and greedy."""

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from placement_oracles import REPR, brute_force, by_dynamic_programming, compatible, total
from random_placements import random_graph

import qtoolkit as qt
from build import tensor
from qtoolkit.graph import DType, Graph, Node, Ref, TensorType
from qtoolkit.interop.executorch.recorded import load_recorded, read_delegate
from qtoolkit.interop.executorch.table import table
from qtoolkit.layout import Layout, Reps, RepSet, Storage, TensorRepr, bit, texture_extents
from qtoolkit.passes.place import Limits
from qtoolkit.passes.place.cost import Line
from qtoolkit.passes.place.problem import Problem
from qtoolkit.placement import Placement

RECORDED = sorted((Path(__file__).parent / "peer" / "placement").glob("*.json"))
TABLE = "executorch-1.5.1"
SIX = tuple(
    TensorRepr(s, m) for s in Storage for m in (Layout.WIDTH, Layout.HEIGHT, Layout.CHANNELS)
)
EVERY = RepSet(SIX)
MEASURED = qt.CostModel(
    "made up", "µs", 0.01,
    {(a, b): Line(3.0 + i, 0.002 * (j + 1)) for i, a in enumerate(SIX) for j, b in enumerate(SIX)},
    {("join", r): Line(1.0, 0.001 * (i + 1)) for i, r in enumerate(SIX)},
)  # fmt: skip


@dataclass(frozen=True)
class Fake:
    """A table that gives each node the demand it is asked for by name."""

    told: dict[str, Reps]
    name: str = "fake"
    neutral: RepSet | None = EVERY

    def demands(self, node: Node, graph: Graph) -> Reps | None:
        return self.told.get(node.name)

    def why(self, node: Node) -> tuple[object, ...]:
        return ("{0}: as the test says",)

    def extents(self, type: TensorType, layout: Layout) -> tuple[int, int, int] | None:
        return texture_extents(type.sizes, layout)


def some(rng: random.Random, most: int = 3) -> RepSet:
    return RepSet(rng.sample(SIX, rng.randint(1, most)))


def tiny(seed: int) -> tuple[Graph, Fake]:
    """Up to four ops on one or two inputs, ties or none, values read once or often."""
    rng = random.Random(seed)
    kind = tensor(1, rng.choice((1, 5, 8)), 3, rng.choice((1, 7)))
    nodes = [Node("x", "input", (), (kind,))]
    told: dict[str, Reps] = {}
    for i in range(rng.randint(1, 4)):
        count = rng.randint(1, 2)
        args = tuple(Ref(rng.choice(nodes).name) for _ in range(count))
        listed = rng.random() < 0.2
        node = Node(f"n{i}", "join", (args,) if listed else args, (kind,), (f"n{i}",))
        slots = 1 if listed else count
        shared = some(rng)
        tied = rng.random() < 0.6
        ins = tuple(shared if tied else some(rng, 2) for _ in range(slots))
        out = shared if tied else some(rng, 2)
        ties = ((*range(slots), -1),) if tied else ()
        told[node.name] = Reps(ins, (out,), ties)
        nodes.append(node)
    return Graph(tuple(nodes), ("x",), (Ref(nodes[-1].name),)), Fake(told)


def checked(
    graph: Graph,
    fake: object,
    rules: qt.PlaceRules,
    model: qt.CostModel = qt.CostModel(),  # noqa: B008
) -> float | None:
    """The optimal placement agrees with enumeration; None if that takes too long."""
    problem = Problem(graph, fake, rules, Limits((16384, 16384, 2048)))  # type: ignore[arg-type]
    least = brute_force(problem, model)
    if least is None:
        return None
    placed = qt.place(graph, fake, rules, "optimal", model=model)  # type: ignore[arg-type]
    assert placed.cost.total == pytest.approx(least)
    assert placed.bound == pytest.approx(least)
    assert "proved" in repr(placed)
    valid(placed, problem, model)
    greedy = qt.place(graph, fake, rules, model=model)  # type: ignore[arg-type]
    assert placed.cost.total <= greedy.cost.total * (1 + 1e-9)
    return least


def valid(placed: Placement, problem: Problem, model: qt.CostModel) -> None:
    """Within the demands, ties kept, and the cost is what its copies and operations add up to."""
    chosen = {}
    for n, node in enumerate(placed.graph.nodes):
        form = problem.forms[n]
        if problem.is_alias[n] or node.reps is None:
            continue
        if form is None:
            chosen |= {(n, j): bit(r.only) for j, r in enumerate(node.reps.outputs)}
            continue
        for p, mask in enumerate(form.start):
            repset = node.reps.at(form.slot(p))
            if mask and repset is not None:
                chosen[n, p] = bit(repset.only)
                assert chosen[n, p] & mask
    assert compatible(problem, chosen)
    assert total(problem, model, chosen) == pytest.approx(placed.cost.total)


RULES = [
    qt.PlaceRules(),
    qt.PlaceRules(share_transitions=False),
    qt.PlaceRules(ties="packed-dim"),
    qt.PlaceRules.executorch(),
]


@pytest.mark.parametrize("rules", RULES, ids=["ours", "unshared", "packed-dim", "executorch"])
@pytest.mark.parametrize("model", [qt.CostModel(), MEASURED], ids=["default", "measured"])
def test_tiny_graphs_cost_what_enumeration_finds(rules: qt.PlaceRules, model: qt.CostModel) -> None:
    found = [checked(*tiny(seed), rules, model) for seed in range(40)]
    assert sum(cost is not None for cost in found) >= 30
    assert any(found)


def cut(told: dict, ops: int) -> dict:  # type: ignore[type-arg]
    """The first ops of a recorded graph."""
    nodes = [n for n in told["pre"]["nodes"] if n["op"] != "output"]
    calls = [n for n in nodes if n["op"] == "call_function"][:ops]
    held = [n for n in nodes if n["op"] == "placeholder"]
    outputs = [{"n": calls[-1]["name"]}] if isinstance(calls[-1]["val"], dict) else []
    end = {"name": "output", "op": "output", "target": "output", "args": [outputs], "val": []}
    return {**told, "pre": {"nodes": [*held, *calls, end]}}


def test_the_first_ops_of_random_graphs_cost_what_enumeration_finds() -> None:
    count = 0
    for seed in range(400):
        delegate = read_delegate(cut(random_graph(seed), 2 + seed % 4))
        rules = RULES[seed % len(RULES)]
        problem = Problem(delegate.graph, table(TABLE), rules, delegate.limits)
        least = brute_force(problem, qt.CostModel(), most=20_000)
        if least is None:
            continue
        placed = qt.place(delegate, TABLE, rules, "optimal")
        assert placed.cost.total == pytest.approx(least), seed
        assert placed.bound == pytest.approx(least), seed
        count += 1
    assert count > 40


def chain(length: int, seed: int) -> tuple[Graph, Fake]:
    rng = random.Random(seed)
    kind = tensor(1, 8, 3, 5)
    nodes = [Node("x", "input", (), (kind,))]
    told = {"x": Reps((), (RepSet(SIX),))}
    for i in range(length):
        tied = rng.random() < 0.7
        shared = some(rng, 6) if rng.random() < 0.7 else some(rng, 1)
        nodes.append(Node(f"n{i}", "join", (Ref(nodes[-1].name),), (kind,), (f"n{i}",)))
        told[f"n{i}"] = Reps((shared,), (shared if tied else some(rng, 3),), ((0, -1),) * tied)
    return Graph(tuple(nodes), ("x",), (Ref(nodes[-1].name),)), Fake(told)


def tree(leaves: int, seed: int) -> tuple[Graph, Fake]:
    """Inputs that run together two by two."""
    rng = random.Random(seed)
    kind = tensor(1, 8, 3, 5)
    nodes = [Node(f"x{i}", "input", (), (kind,)) for i in range(leaves)]
    told = {n.name: Reps((), (some(rng, 4),)) for n in nodes}
    level = [n.name for n in nodes]
    while len(level) > 1:
        above = []
        for a, b in zip(level[::2], level[1::2], strict=False):
            name = f"n{len(nodes)}"
            shared = some(rng, 4)
            nodes.append(Node(name, "join", (Ref(a), Ref(b)), (kind,), (name,)))
            told[name] = Reps((shared, shared), (shared,), ((0, 1, -1),))
            above.append(name)
        level = above + level[len(level) // 2 * 2 :]
    inputs = tuple(n.name for n in nodes if n.op == "input")
    return Graph(tuple(nodes), inputs, (Ref(level[0]),)), Fake(told)


@pytest.mark.parametrize("model", [qt.CostModel(), MEASURED], ids=["default", "measured"])
@pytest.mark.parametrize(("make", "size"), [(chain, 12), (chain, 150), (tree, 7), (tree, 64)])
def test_chains_and_trees_cost_what_dynamic_programming_finds(
    make: Callable[[int, int], tuple[Graph, Fake]], size: int, model: qt.CostModel
) -> None:
    for seed in range(4):
        graph, fake = make(size, seed)
        problem = Problem(graph, fake, qt.PlaceRules(), Limits((16384, 16384, 2048)))
        least = by_dynamic_programming(problem, model)
        placed = qt.place(graph, fake, policy="optimal", model=model)
        assert placed.cost.total == pytest.approx(least)
        assert placed.bound == pytest.approx(least)
        assert least > 0


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.stem)
def test_every_recording_is_proved_and_never_worse_than_greedy(path: Path) -> None:
    for delegate in load_recorded(path):
        best = qt.place(delegate, TABLE, policy="optimal")
        assert best.bound == pytest.approx(best.cost.total)
        assert best.cost.total <= qt.place(delegate, TABLE).cost.total * (1 + 1e-9)


def test_random_graphs_are_never_worse_than_greedy() -> None:
    for seed in range(150):
        delegate = read_delegate(random_graph(seed))
        rules = RULES[seed % len(RULES)]
        best = qt.place(delegate, TABLE, rules, "optimal")
        greedy = qt.place(delegate, TABLE, rules)
        assert best.bound is not None
        assert best.bound <= best.cost.total * (1 + 1e-9)
        assert best.cost.total <= greedy.cost.total * (1 + 1e-9), seed


def test_without_time_it_is_no_worse_than_greedy_and_says_that_it_is_not_proved() -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    from families import alternating

    delegate = read_delegate(alternating(200))
    greedy = qt.place(delegate, TABLE)
    hurried = qt.place(delegate, TABLE, policy="optimal", seconds=0.0)
    assert hurried.cost.total == greedy.cost.total
    assert hurried.bound is not None and hurried.bound < hurried.cost.total
    assert "not proved: at least" in repr(hurried)
    best = qt.place(delegate, TABLE, policy="optimal")
    assert best.cost.total < greedy.cost.total and "proved: no placement" in repr(best)


def test_steps_say_what_each_region_costs_and_what_became_cheaper() -> None:
    graph, fake = chain(12, 3)
    rules = qt.PlaceRules(search="source-first", constrain_outputs="never", budget=1)
    placed = qt.place(graph, fake, rules, "optimal")
    assert placed.cost.total < qt.place(graph, fake, rules).cost.total
    regions = [s for s in placed.trace.steps if s.kind == "region"]
    assert regions and all("proved: nothing costs less" in s.reason for s in regions)
    better = [
        s for s in placed.trace.steps if s.kind == "optimal" and "less than greedy" in s.reason
    ]
    assert better
    name = better[0].node
    assert placed.why(name, -1)[-1].kind in ("optimal", "demand")


def test_a_cost_model_is_read_back_as_it_was_saved() -> None:
    assert qt.CostModel.from_json(MEASURED.to_json()) == MEASURED


def test_an_unmeasured_operation_costs_by_rank_and_bytes() -> None:
    kind = TensorType((1, 4, 2, 5), DType.INT8)
    x, y = Node("x", "input", (), (kind,)), Node("y", "join", (Ref("x"),), (kind,), ("y",))
    first, second = (TensorRepr(Storage.BUFFER, m) for m in (Layout.WIDTH, Layout.CHANNELS))
    either = RepSet([first, second])
    told = {"x": Reps((), (RepSet([second]),)), "y": Reps((either,), (either,), ((0, -1),))}
    placed = qt.place(Graph((x, y), ("x",), (Ref("y"),)), Fake(told))
    assert placed.cost.operations == pytest.approx(0.05 * (40 + 40) * 1)
    assert (placed.cost.transitions, placed.cost.unit) == (0, "bytes")
    assert "default model" in str(placed.cost) and REPR[bit(first)] == first
    dearer = replace(qt.CostModel(), slope=2.0)
    assert qt.place(placed.trace.before, Fake(told), model=dearer).cost.operations == 8.0
