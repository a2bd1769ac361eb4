"""The optimal placement against oracles: enumeration, dynamic programming, and greedy."""

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from placement_oracles import REPR, brute_force, by_dynamic_programming, compatible, total
from random_placements import random_graph

import qtoolkit as qt
from build import tensor
from qtoolkit.draft import apply_edits
from qtoolkit.errors import NoRepresentation
from qtoolkit.graph import Arg, Const, Constant, DType, Graph, Node, Ref, TensorType
from qtoolkit.interop.executorch.recorded import load_recorded, read_delegate
from qtoolkit.interop.executorch.table import table
from qtoolkit.layout import (
    ALL_REPRS,
    PACKED_AXIS,
    Layout,
    Reps,
    RepSet,
    Storage,
    TensorRepr,
    bit,
    texture_extents,
)
from qtoolkit.passes.place import Limits
from qtoolkit.passes.place.cost import Line
from qtoolkit.passes.place.problem import Problem
from qtoolkit.placement import Placement

RECORDED = sorted((Path(__file__).parent / "peer" / "placement").glob("*.json"))
TABLE = "executorch-1.5.1"
SIX = tuple(
    TensorRepr(s, m) for s in Storage for m in (Layout.WIDTH, Layout.HEIGHT, Layout.CHANNELS)
)
INT8 = tuple(TensorRepr(Storage.BUFFER, m) for m in Layout if m not in PACKED_AXIS)
MEASURED = qt.CostModel(
    "made up", "µs", 0.01,
    {(a, b): Line(3.0 + i, 0.002 * (j + 1)) for i, a in enumerate(SIX) for j, b in enumerate(SIX)},
    {("join", r): Line(1.0, 0.001 * (i + 1)) for i, r in enumerate(SIX + INT8)},
)  # fmt: skip
ALL = RepSet(ALL_REPRS)
ITEM = Reps((ALL, None), (ALL,), ((0, -1),))
WIDE = (16384, 16384, 2048)


@dataclass(frozen=True)
class Fake:
    """A table that gives each node the demand it is asked for by name."""

    told: dict[str, Reps]
    name: str = "fake"
    neutral: RepSet | None = ALL

    def demands(self, node: Node, graph: Graph) -> Reps | None:
        return self.told.get(node.name)

    def why(self, node: Node) -> tuple[object, ...]:
        return ("{0}: as the test says",)

    def extents(self, type: TensorType, layout: Layout) -> tuple[int, int, int] | None:
        return texture_extents(type.sizes, layout) if layout in PACKED_AXIS else None


def some(rng: random.Random, most: int = 3, pool: tuple[TensorRepr, ...] = SIX) -> RepSet:
    return RepSet(rng.sample(pool, rng.randint(1, most)))


def tiny(seed: int) -> tuple[Graph, Fake]:
    """Up to four ops: lists, constants, words, repeated operands, results untied and by item.

    Ties are drawn at random over operands and results, whose sets differ at times.
    """
    rng = random.Random(seed)
    pool = SIX + INT8 if rng.random() < 0.3 else SIX
    kinds = [tensor(1, rng.choice((1, 5, 8)), 3, rng.choice((1, 7))) for _ in range(2)]
    nodes: list[Node] = []
    told: dict[str, Reps] = {}
    for i in range(rng.randint(1, 2)):
        nodes.append(Node(f"x{i}", "input", (), (rng.choice(kinds),)))
        if rng.random() < 0.4:
            told[f"x{i}"] = Reps((), (some(rng, 2, pool),))
    inputs = tuple(n.name for n in nodes)
    values = [Ref(name) for name in inputs]
    for i in range(rng.randint(1, 4)):
        args = tuple(argument(rng, values) for _ in range(rng.randint(1, 3)))
        types = tuple(rng.choice(kinds) for _ in range(rng.choice((1, 1, 1, 2, 3))))
        name = f"n{i}"
        told[name] = drawn(rng, pool, args, len(types))
        nodes.append(Node(name, "join", args, types, (name,)))
        if len(types) == 1:
            values.append(Ref(name))
            continue
        for j, type in enumerate(types):
            item = f"{name}_{j}"
            told[item] = ITEM
            nodes.append(Node(item, "getitem", (Ref(name, j), j), (type,), (item,)))
            values.append(Ref(item))
    read = any(tuple(n.consts()) for n in nodes)
    held = {"c": Constant.of(np.zeros((1, 4, 3, 2), np.float32))} if read else {}
    return Graph(tuple(nodes), inputs, (values[-1],), constants=held).check(), Fake(told)


def argument(rng: random.Random, values: list[Ref]) -> Arg:
    kind = rng.random()
    if kind < 0.1:
        return Const("c")
    if kind < 0.3:
        listed: list[Arg] = [rng.choice(values) for _ in range(rng.randint(1, 3))]
        listed += [Const("c")] * (rng.random() < 0.2) + [None] * (rng.random() < 0.1)
        return tuple(listed)
    return rng.choice((1, None, 2.5)) if kind < 0.4 else rng.choice(values)


def drawn(
    rng: random.Random, pool: tuple[TensorRepr, ...], args: tuple[Arg, ...], results: int
) -> Reps:
    """Demands of a node: slots in random groups, each tied where it has more than one slot."""
    tensors = [p for p, arg in enumerate(args) if isinstance(arg, Ref | Const | tuple)]
    rest = [*tensors, *(-1 - j for j in range(results))]
    rng.shuffle(rest)
    sets: dict[int, RepSet] = {}
    ties: list[tuple[int, ...]] = []
    while rest:
        count = rng.randint(1, 3)
        group, rest = rest[:count], rest[count:]
        shared = some(rng, 3, pool)
        for slot in group:
            more = some(rng, 1, pool) if rng.random() < 0.3 else ()
            wanted = [*shared, *more]
            rng.shuffle(wanted)
            sets[slot] = RepSet(wanted)
        ties += [tuple(group)] * (len(group) > 1)
    ins = tuple(None if rng.random() < 0.05 else sets.get(p) for p in range(len(args)))
    return Reps(ins, tuple(sets[-1 - j] for j in range(results)), tuple(ties))


def checked(
    graph: Graph,
    fake: Fake,
    rules: qt.PlaceRules,
    model: qt.CostModel = qt.CostModel(),  # noqa: B008
    limits: Limits = Limits(WIDE),  # noqa: B008
) -> float | None:
    """The optimal placement agrees with enumeration; None if that takes too long, or nothing is
    left for an operand.
    """
    try:
        problem = Problem(graph, fake, rules, limits)
    except NoRepresentation:
        return None
    least = brute_force(problem, model, most=2000)
    if least is None:
        return None
    placed = qt.place(graph, fake, rules, "optimal", model=model, limits=limits)
    greedy = qt.place(graph, fake, rules, model=model, limits=limits)
    assert placed.cost.total <= greedy.cost.total * (1 + 1e-6)
    if rules.oddities and placed.cost.total < least * (1 - 1e-6):
        # Which greedy may leave the constraints by, and is kept where that costs less.
        assert placed.cost.total == pytest.approx(greedy.cost.total)
        return None
    assert placed.cost.total == pytest.approx(least)
    assert placed.bound == pytest.approx(least)
    assert "proved: no placement costs less" in repr(placed)
    valid(placed, problem, model)
    return least


def valid(placed: Placement, problem: Problem, model: qt.CostModel) -> None:
    """Within the demands, ties kept, items where their source put them, and the cost is what its
    copies and operations add up to.
    """
    chosen = {}
    for n, node in enumerate(placed.graph.nodes):
        form = problem.forms[n]
        if node.reps is None:
            continue
        if problem.is_alias[n]:
            source = placed.graph[node.args[0].node]  # type: ignore[union-attr]
            assert source.reps is not None
            assert node.reps.outputs[0] == source.reps.outputs[node.args[0].index]  # type: ignore[union-attr]
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
    copied = sum(model.copy(c.nbytes, c.has, c.wants) for c in placed.copies)
    assert copied == pytest.approx(placed.cost.transitions)
    for c in placed.copies:
        reps = placed.graph[c.value.node].reps
        assert reps is not None and reps.outputs[c.value.index].only == c.has


RULES = [
    qt.PlaceRules(),
    qt.PlaceRules(share_transitions=False),
    qt.PlaceRules(ties="packed-dim"),
    qt.PlaceRules.executorch(),
]


EVERY_RULES = [
    replace(rules, share_transitions=shared)
    for rules in (
        qt.PlaceRules(),
        qt.PlaceRules(ties="packed-dim"),
        qt.PlaceRules.executorch(),
        replace(qt.PlaceRules.executorch(), ties="identical"),
    )
    for shared in (True, False)
]
NAMES = [
    f"{name}{end}"
    for name in ("ours", "packed-dim", "executorch", "executorch-identical")
    for end in ("", "-unshared")
]
SOME_LIMITS = (
    Limits(),
    Limits(WIDE),
    Limits((2, 3, 2)),
    Limits((7, 3, 1)),
    Limits((1, 3, 8)),
    Limits(WIDE, "buffer"),
    Limits(WIDE, "texture"),
)


@pytest.mark.parametrize("rules", EVERY_RULES, ids=NAMES)
@pytest.mark.parametrize("model", [qt.CostModel(), MEASURED], ids=["default", "measured"])
def test_tiny_graphs_cost_what_enumeration_finds(rules: qt.PlaceRules, model: qt.CostModel) -> None:
    found = [
        checked(*tiny(seed), rules, model, SOME_LIMITS[seed % len(SOME_LIMITS)])
        for seed in range(50)
    ]
    assert sum(cost is not None for cost in found) >= 20
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
        least = brute_force(problem, qt.CostModel(), most=8000)
        if least is None:
            continue
        placed = qt.place(delegate, TABLE, rules, "optimal")
        assert placed.cost.total == pytest.approx(least), seed
        assert placed.bound == pytest.approx(least), seed
        valid(placed, problem, qt.CostModel())
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


def tree(ops: int, seed: int, running: str = "any") -> tuple[Graph, Fake]:
    """Nodes that read values of trees that nothing connects yet: 'apart' one each, 'together' each
    value once, 'any' both.
    """
    rng = random.Random(seed)
    nodes: list[Node] = []
    told: dict[str, Reps] = {}
    trees: list[list[str]] = []  # the names of the values of each that may be read
    while len(nodes) < ops:
        name, kind = f"n{len(nodes)}", tensor(1, rng.choice((4, 8)), 3, 5)
        count = min(len(trees), 1 if running == "apart" else rng.randint(0, 2))
        read = rng.sample(trees, count)
        args = tuple(Ref(rng.choice(names)) for names in read)
        shared, tied = some(rng, 4), rng.random() < 0.6
        ins = tuple(shared if tied else some(rng, 3) for _ in args)
        ties = ((*range(count), -1),) if tied and args else ()
        told[name] = Reps(ins, (shared,), ties)
        nodes.append(Node(name, "join" if args else "input", args, (kind,), (name,)))
        spent = {a.node for a in args} if running == "together" else set()
        trees = [t for t in trees if t not in read]
        trees.append([v for t in read for v in t if v not in spent] + [name])
    inputs = tuple(n.name for n in nodes if n.op == "input")
    return Graph(tuple(nodes), inputs, (Ref(nodes[-1].name),)).check(), Fake(told)


def apart(ops: int, seed: int) -> tuple[Graph, Fake]:
    return tree(ops, seed, "apart")


def together(ops: int, seed: int) -> tuple[Graph, Fake]:
    return tree(ops, seed, "together")


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "unshared"])
@pytest.mark.parametrize("model", [qt.CostModel(), MEASURED], ids=["default", "measured"])
@pytest.mark.parametrize("make", [chain, apart, together, tree])
def test_chains_and_trees_cost_what_dynamic_programming_finds(
    make: Callable[[int, int], tuple[Graph, Fake]], model: qt.CostModel, shared: bool
) -> None:
    ties = ("identical", "packed-dim")
    for seed, size in enumerate((10, 35, 90, 200)):
        graph, fake = make(size, seed)
        rules = qt.PlaceRules(share_transitions=shared, ties=ties[seed % 2])
        problem = Problem(graph, fake, rules, Limits(WIDE))
        least = by_dynamic_programming(problem, model)
        placed = qt.place(graph, fake, rules, "optimal", model=model, limits=Limits(WIDE))
        assert placed.cost.total == pytest.approx(least)
        assert placed.bound == pytest.approx(least)
        assert least > 0
        valid(placed, problem, model)


def test_the_two_oracles_agree() -> None:
    count = 0
    for seed in range(40):
        graph, fake = tree(5, seed)
        rules = EVERY_RULES[seed % len(EVERY_RULES)]
        model = (qt.CostModel(), MEASURED)[seed // 8 % 2]
        problem = Problem(graph, fake, rules, Limits(WIDE))
        least = brute_force(problem, model, most=4000)
        if least is not None:
            assert by_dynamic_programming(problem, model) == pytest.approx(least)
            count += 1
    assert count >= 20


def test_dynamic_programming_refuses_what_is_no_tree() -> None:
    kind, any_of = tensor(1, 4, 3, 5), RepSet(SIX[:2])
    told = {"x": Reps((), (any_of,)), "y": Reps((any_of,), (any_of,))}
    told["z"] = Reps((any_of, any_of), (any_of,))
    x, y = Node("x", "input", (), (kind,)), Node("y", "join", (Ref("x"),), (kind,), ("y",))
    z = Node("z", "join", (Ref("x"), Ref("y")), (kind,), ("z",))
    graph = Graph((x, y, z), ("x",), (Ref("z"),))
    problem = Problem(graph, Fake(told), qt.PlaceRules(), Limits(WIDE))
    with pytest.raises(ValueError, match="reached in two ways"):
        by_dynamic_programming(problem, qt.CostModel())


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.stem)
def test_every_recording_is_proved_and_never_worse_than_greedy(path: Path) -> None:
    for delegate in load_recorded(path):
        best = qt.place(delegate, TABLE, policy="optimal")
        assert best.bound == pytest.approx(best.cost.total)
        assert best.cost.total <= qt.place(delegate, TABLE).cost.total * (1 + 1e-9)


def test_300_random_graphs_are_proved_and_never_worse_than_greedy() -> None:
    for seed in range(300):
        delegate = read_delegate(random_graph(seed))
        rules = RULES[seed % len(RULES)]
        best = qt.place(delegate, TABLE, rules, "optimal")
        greedy = qt.place(delegate, TABLE, rules)
        assert best.bound is not None
        assert best.bound <= best.cost.total * (1 + 1e-9)
        assert "proved: no placement costs less" in repr(best), seed
        assert best.cost.total <= greedy.cost.total * (1 + 1e-9), seed
        valid(best, Problem(delegate.graph, table(TABLE), rules, delegate.limits), qt.CostModel())


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


def test_hardly_any_time_gives_a_placement_that_is_valid_and_no_worse_than_greedy() -> None:
    for seed in range(40):
        delegate = read_delegate(random_graph(seed))
        rules = RULES[seed % len(RULES)]
        hurried = qt.place(delegate, TABLE, rules, "optimal", seconds=(0.0, 1e-6, 1e-3)[seed % 3])
        greedy = qt.place(delegate, TABLE, rules)
        assert hurried.cost.total <= greedy.cost.total * (1 + 1e-9)
        assert hurried.bound is not None
        assert -1e-6 <= hurried.bound <= hurried.cost.total * (1 + 1e-9)
        proved = hurried.bound >= hurried.cost.total * (1 - 1e-6) - 1e-6
        assert ("not proved" in repr(hurried)) != proved
        problem = Problem(delegate.graph, table(TABLE), rules, delegate.limits)
        valid(hurried, problem, qt.CostModel())


ENDS = {"optimal", "demand", "bound", "tie", "alias", "adopt"}


def test_replayed_steps_give_the_placed_graph_and_every_operand_has_its_why() -> None:
    for seed in range(30):
        delegate = read_delegate(random_graph(seed))
        placed = qt.place(delegate, TABLE, RULES[seed % len(RULES)], "optimal")
        trace = placed.trace
        replayed = apply_edits(trace.before, [s.edit for s in trace.steps if s.edit])
        assert replayed.nodes == trace.after.nodes == trace.graph_at(len(trace.steps)).nodes
        for node in trace.after.nodes:
            if node.reps is not None and node.reps.outputs:
                kind = placed.why(node.name, -1)[-1].kind
                assert kind in ENDS
                passive = node.op in ("input", "getitem", "et_vk::prepack")
                assert (kind in ("alias", "adopt")) == passive
        # The step of a region tells its cost and, last, its bound.
        regions = [s.why for s in trace.steps if s.kind == "region"]
        assert placed.bound is not None
        gaps = sum(why[3] - why[-1] for why in regions)
        assert placed.bound == pytest.approx(placed.cost.total - gaps)
        assert sum(why[3] for why in regions) <= placed.cost.total * (1 + 1e-9)


def test_regions_add_up_to_the_bound_where_everything_is_open() -> None:
    kind = tensor(1, 8, 3, 5)
    for seed in range(10):
        rng = random.Random(seed)
        nodes = [Node("x", "input", (), (kind,))]
        told: dict[str, Reps] = {}
        for i in range(12):
            a, b = (RepSet(rng.sample(SIX, 2)) for _ in range(2))
            told[f"n{i}"] = Reps((a,), (b,))
            nodes.append(Node(f"n{i}", "join", (Ref(rng.choice(nodes).name),), (kind,), (f"n{i}",)))
        graph = Graph(tuple(nodes), ("x",), (Ref("n11"),))
        placed = qt.place(graph, Fake(told), policy="optimal", limits=Limits(WIDE))
        regions = [s.why for s in placed.trace.steps if s.kind == "region"]
        assert sum(why[-1] for why in regions) == pytest.approx(placed.bound)
        assert sum(why[3] for why in regions) == pytest.approx(placed.cost.total)


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


# Faults that these oracles found, each by the least input that shows it.

W, H, C = (TensorRepr(Storage.BUFFER, m) for m in (Layout.WIDTH, Layout.HEIGHT, Layout.CHANNELS))
KIND = tensor(1, 8, 3, 5)
X = Node("x", "input", (), (KIND,))


def join(name: str, *args: Arg, results: int = 1) -> Node:
    return Node(name, "join", args, (KIND,) * results, (name,))


def compared(nodes: tuple[Node, ...], fake: Fake, **more: object) -> tuple[Placement, Placement]:
    inputs = tuple(n.name for n in nodes if n.op == "input")
    graph = Graph(nodes, inputs, (Ref(nodes[-1].name),)).check()
    best = qt.place(graph, fake, policy="optimal", limits=Limits(), **more)  # type: ignore[arg-type]
    return best, qt.place(graph, fake, limits=Limits(), **more)  # type: ignore[arg-type]


def test_an_input_without_a_say_is_placed_by_a_table_without_neutral() -> None:
    told = {"y": Reps((RepSet([W]),), (RepSet([W]),))}
    best, _ = compared((X, join("y", Ref("x"))), Fake(told, neutral=None))
    assert best.cost.total == 0


def test_an_input_may_have_what_its_reader_wants_though_neutral_has_it_not() -> None:
    told = {"y": Reps((RepSet(INT8[:1]),), (RepSet(INT8[:1]),))}
    best, greedy = compared((X, join("y", Ref("x"))), Fake(told, neutral=RepSet(SIX)))
    assert best.cost.total <= greedy.cost.total


def test_the_bound_holds_for_a_node_without_a_say_of_two_results() -> None:
    told = {
        "y": Reps((RepSet([W]),), (RepSet([W]),)),
        "z": Reps((RepSet([C]), RepSet([W])), (RepSet([C]),)),
    }
    two = Node("x", "input", (), (KIND, KIND))
    best, _ = compared((two, join("y", Ref("x", 0)), join("z", Ref("x", 1), Ref("y"))), Fake(told))
    regions = [s.why for s in best.trace.steps if s.kind == "region"]
    assert sum(why[3] for why in regions) == best.cost.total


def test_copies_of_two_items_of_one_result_are_counted_alike() -> None:
    def item(name: str) -> Node:
        return Node(name, "getitem", (Ref("s", 0), 0), (KIND,), (name,))

    open_ = RepSet([W, C])
    told = {
        "x": Reps((), (RepSet([W]),)),
        "s": Reps((RepSet([W]),), (RepSet([W]), RepSet([W]))),
        "a": ITEM,
        "b": ITEM,
        "y": Reps((RepSet([C]),), (open_,)),
        "z": Reps((RepSet([C, H]),), (open_,)),
    }
    split = join("s", Ref("x"), results=2)
    nodes = (X, split, item("a"), item("b"), join("y", Ref("a")), join("z", Ref("b")))
    best, _ = compared(nodes, Fake(told))
    regions = [s.why for s in best.trace.steps if s.kind == "region" and s.node != "x"]
    # That of y was decided before: it belongs to no region.
    assert sum(why[3] for why in regions) == 480 and best.cost.total == 2 * 480


def test_a_demand_may_name_inputs_past_the_arguments() -> None:
    either = RepSet([W, C])
    told = {"y": Reps((either, None), (either,), ((0, -1),))}
    best, _ = compared((X, join("y", Ref("x"))), Fake(told))
    assert best.cost.total == 0


def test_an_op_without_results_is_priced_by_a_measured_model() -> None:
    told = {"y": Reps((RepSet([W, C]),), ()), "z": Reps((RepSet([W]),), (RepSet([W]),))}
    nodes = (X, join("y", Ref("x"), results=0), join("z", Ref("x")))
    best, _ = compared(nodes, Fake(told), model=MEASURED)
    assert best.cost.total > 0


def test_an_op_measured_in_part_costs_by_the_default_where_it_was_not_measured() -> None:
    model = qt.CostModel("part", "µs", 1.0, {}, {("join", W): Line(1e9, 0.0)})
    told = {
        "x": Reps((), (RepSet([C]),)),
        "y": Reps((RepSet([H, C]),), (RepSet([W, C]),)),
    }
    best, _ = compared((X, join("y", Ref("x"))), Fake(told), model=model)
    # Both of y's tensors, 480 bytes each, are second choices.
    assert best.cost.total == pytest.approx(0.05 * 2 * 480)


def test_a_step_names_the_representation_of_the_slot_that_it_speaks_of() -> None:
    told = {"x": Reps((), (RepSet([C]),)), "y": Reps((RepSet([W, C]),), (RepSet([H]),))}
    best, _ = compared((X, join("y", Ref("x"))), Fake(told))
    step = best.why("y", 0)[-1]
    assert step.reason.startswith("input 0: {buffer/channels}")


def test_a_step_tells_the_region_of_the_slot_that_it_speaks_of() -> None:
    told = {
        "a": Reps((RepSet([W, C]),), (RepSet([W]),)),
        "y": Reps((RepSet([H, C]),), (RepSet([H]),)),
    }
    rules = qt.PlaceRules(search="source-first", budget=1, constrain_outputs="never")
    best, greedy = compared((X, join("a", Ref("x")), join("y", Ref("x"))), Fake(told), rules=rules)
    assert best.cost.total < greedy.cost.total
    for step in best.trace.steps:
        assert step.kind != "optimal" or "less than greedy's" in step.reason


def test_oddities_may_go_with_the_declared_pick() -> None:
    told = {"y": Reps((RepSet([W, C]), RepSet([H])), (RepSet([H]),), ((1, -1),))}
    nodes = (X, join("y", Ref("x"), Ref("x")))
    best, greedy = compared(nodes, Fake(told), rules=qt.PlaceRules(oddities=True))
    assert best.cost.total <= greedy.cost.total


def test_oddities_without_shared_copies_are_no_worse_than_greedy() -> None:
    told = {"x": Reps((), (RepSet([W]),)), "y": Reps((RepSet([C]), RepSet([C])), (RepSet([C]),))}
    rules = replace(qt.PlaceRules.executorch(), share_transitions=False)
    best, greedy = compared((X, join("y", Ref("x"), Ref("x"))), Fake(told), rules=rules)
    assert best.cost.total <= greedy.cost.total
