"""The switches of placement, each on and off, on graphs where it matters: the seeds, G11 to G13."""

from dataclasses import replace

import pytest
from golden import check

import qtoolkit as qt
from build import tensor
from qtoolkit.errors import NoRepresentation, UnknownName
from qtoolkit.graph import Graph, Node, Ref
from qtoolkit.interop.executorch import examples
from qtoolkit.interop.executorch.table import table
from qtoolkit.layout import TensorRepr
from qtoolkit.passes.place import Limits, place
from qtoolkit.passes.rules import CHOICES
from qtoolkit.placement import Placement
from qtoolkit.trace import run_pass

NOW = qt.PlaceRules.executorch()
TABLE = "executorch-1.5.1"
BUFFER, TEXTURE = "buffer/width", "texture_3d/width"


def operands(placed: Placement, node: str) -> list[str]:
    """The representations of a node's tensor operands."""
    reps = placed.graph[node].reps
    assert reps is not None
    return [str(r.only) for r in reps.inputs if r is not None]


@pytest.fixture(scope="module")
def quantize_ops() -> Graph:
    model = qt.models.load("quantize-ops")
    return qt.capture(model.module, model.example)


SEED_000 = {
    "a before the PR": ("executorch-0dd42c465d", qt.PlaceRules.proposals(False)),
    "b the PR, input preferences off": ("executorch-pr12616", qt.PlaceRules.proposals(False)),
    "c the PR": ("executorch-pr12616", qt.PlaceRules.proposals()),
    "d release 1.5.1": (TABLE, NOW),
}


def test_seed_000_reads_as_its_golden_text(quantize_ops: Graph) -> None:
    told = []
    for name, (named, rules) in SEED_000.items():
        placed = qt.place(quantize_ops, named, rules)
        told += [f"== {name}: {named}", placed.graph.text(), placed.trace.text()]
    check("seed_000", "\n".join(told))


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        ("a before the PR", [BUFFER, BUFFER, BUFFER]),
        ("b the PR, input preferences off", [TEXTURE, TEXTURE, TEXTURE]),
        ("c the PR", [TEXTURE, BUFFER, BUFFER]),
        ("d release 1.5.1", [BUFFER, BUFFER, BUFFER]),
    ],
)
def test_seed_000_scale_and_zero_point_go_where_the_date_puts_them(
    quantize_ops: Graph, case: str, wanted: list[str]
) -> None:
    placed = qt.place(quantize_ops, *SEED_000[case])
    assert operands(placed, "quantize_per_channel") == wanted


def test_a_list_of_preferences_shorter_than_the_inputs_falls_back_to_the_result(
    quantize_ops: Graph,
) -> None:
    recorded = table("executorch-pr12616")
    ops = dict(recorded.ops)
    name = "quantized_decomposed::quantize_per_channel"
    ops[name] = {
        "in": ["WIDTH_PACKED_TEXTURE", "CONTIGUOUS_BUFFER"],
        "out": ["WIDTH_PACKED_TEXTURE"],
    }
    short = type(recorded)(
        "short",
        {"stated": "", "proposals": True, "ops": ops, "repsets": {
            "WIDTH_PACKED_TEXTURE": {"buffer": [], "texture": ["TENSOR_WIDTH_PACKED"]},
            "CONTIGUOUS_BUFFER": {"buffer": ["TENSOR_WIDTH_PACKED"], "texture": []},
        }},
    )  # fmt: skip
    placed = qt.place(quantize_ops, short, qt.PlaceRules.proposals())
    assert operands(placed, "quantize_per_channel") == [TEXTURE, BUFFER, TEXTURE]


@pytest.mark.parametrize("named", ["executorch-0dd42c465d", "executorch-pr12616", TABLE])
def test_an_op_that_a_table_does_not_state_is_not_recorded_for_this_date(named: str) -> None:
    x = Node("x", "input", (), (tensor(1, 4, 5, 5),))
    y = Node("y", "aten::erfinv", (Ref("x"),), (tensor(1, 4, 5, 5),))
    with pytest.raises(UnknownName, match=f"%y: aten::erfinv is not recorded.*{named}"):
        qt.place(Graph((x, y), ("x",), (Ref("y"),)), named)


def test_seed_001_an_untied_open_result_is_constrained_on_its_own() -> None:
    graph = examples.quantized_pair()
    never = qt.place(graph, TABLE, replace(NOW, constrain_outputs="never"))
    assert [(c.value.node, str(c.has)) for c in never.copies] == [
        ("quantize", "buffer/packed_int8_4w4c"),
        ("conv", "buffer/packed_int8_4c1w"),
    ]
    for mode in ("unsynced", "always"):
        assert qt.place(graph, TABLE, replace(NOW, constrain_outputs=mode)).copies == ()
    on = qt.place(graph, TABLE, NOW)
    check("seed_001", "\n".join(["== never", never.trace.text(), "== always", on.trace.text()]))


def test_a_tied_result_is_constrained_only_by_always() -> None:
    graph = examples.convolution_then_linears(1)
    relu = Node("relu", "aten::relu", (Ref("x"),), graph["x"].types, ("relu",))
    x, *rest = graph.nodes
    conv = rest[0].with_args((Ref("relu"), *rest[0].args[1:]))
    longer = Graph((x, relu, conv, *rest[1:]), ("x",), graph.outputs, constants=graph.constants)
    deaf = replace(NOW, budget=1)
    for mode in ("never", "unsynced"):
        placed = qt.place(longer, TABLE, replace(deaf, constrain_outputs=mode))
        assert [s.kind for s in placed.trace.about("relu") if s.kind == "budget"] == ["budget"]


def test_g11_a_texture_over_the_limit_is_ruled_out_and_the_limit_named() -> None:
    def placed(rows: int) -> Placement:
        w = Node("w", "input", (), (tensor(rows, 384),))
        y = Node("y", "aten::relu", (Ref("w"),), (tensor(rows, 384),))
        return qt.place(Graph((w, y), ("w",), (Ref("y"),)), TABLE)

    assert str(placed(16384).of("y")[0]) == "texture_3d/width"
    # Packed along the height, 16385 rows are a quarter of that: still a texture, of another layout.
    step = placed(16385).why_not("y", -1, "texture_3d/width")
    assert step is not None and step.kind == "bound"
    assert "a texture of 96×16385×1 exceeds the device's limit of 16384×16384×2048" in step.reason
    assert str(placed(16385).of("y")[0]) == "texture_3d/height"
    assert str(placed(65540).of("y")[0]) == "buffer/width"


def test_g12_readers_of_one_value_share_one_transition() -> None:
    graph = examples.shared_buffer()
    alone = qt.place(graph, TABLE, replace(NOW, share_transitions=False))
    shared = qt.place(graph, TABLE, NOW)
    assert (len(alone.copies), len(shared.copies)) == (2, 1)
    assert shared.copies[0].users == ("pool_1", "pool_2")
    assert qt.place(graph, TABLE, NOW, policy="optimal").cost.total == shared.cost.total


def test_g12_asking_readers_first_unlocks_the_layout_of_the_first_convolution() -> None:
    graph = examples.convolution_then_linears()
    locked = qt.place(graph, TABLE, replace(NOW, search="source-first"))
    free = qt.place(graph, TABLE, NOW)
    best = qt.place(graph, TABLE, NOW, policy="optimal")
    assert (len(locked.copies), len(free.copies), len(best.copies)) == (12, 1, 1)
    assert best.cost.total <= free.cost.total < locked.cost.total


@pytest.mark.parametrize(
    "rules",
    [NOW, qt.PlaceRules(), replace(NOW, budget_scope="per-branch", budget=20),
     replace(NOW, search="depth-first")],
    ids=["executorch", "ours", "per-branch", "depth-first"],
)  # fmt: skip
def test_g13_fan_out_takes_linear_work(rules: qt.PlaceRules) -> None:
    """Steps and searched nodes per node do not grow, whatever the number of paths."""
    searched = []
    for blocks in (12, 96):
        placed = qt.place(examples.fan_out(blocks), TABLE, rules)
        ended = [s.why[2] for s in placed.trace.steps if s.kind == "budget"]
        searched.append(sum(ended) / len(placed.graph.nodes))
    assert searched[1] <= 64 * 2 and len(placed.trace.steps) < 6 * len(placed.graph.nodes)


def test_g13_a_step_says_that_the_budget_ended_a_search() -> None:
    placed = qt.place(examples.fan_out(), TABLE, NOW)
    step = next(s for s in placed.trace.steps if s.kind == "budget")
    assert "ended after 63 nodes" in step.reason and "the budget is 64" in step.reason


def test_without_a_budget_nothing_ends_a_search() -> None:
    placed = qt.place(examples.fan_out(), TABLE, qt.PlaceRules(budget=None))
    assert not any(s.kind == "budget" for s in placed.trace.steps)


def test_an_empty_set_names_the_operand_and_what_emptied_it() -> None:
    x = Node("x", "input", (), (tensor(1, 64, 99, 99),))
    pool = ((2, 2), (2, 2), (0, 0), False, True, None)
    y = Node("y", "aten::avg_pool2d", (Ref("x"), *pool), (tensor(1, 64, 49, 49),))
    graph = Graph((x, y), ("x",), (Ref("y"),))
    with pytest.raises(
        NoRepresentation,
        match=r"%y: input 0 has no .* admits \{texture_3d/channels\} and then a texture of 99×",
    ):
        qt.place(graph, TABLE, texture_limit=64)


def test_forced_half_precision_prefers_textures() -> None:
    x = Node("x", "input", (), (tensor(1, 8, 5, 5),))
    codes = (0.05, 0, -128, 127, qt.DType.INT8)
    y = Node("y", "quantized_decomposed::quantize_per_tensor", (Ref("x"), *codes),
             (tensor(1, 8, 5, 5, dtype=qt.DType.INT8),))  # fmt: skip
    graph = Graph((x, y), ("x",), (Ref("y"),))
    run = run_pass("place", lambda g: place(g, table(TABLE), NOW, Limits(half=True)), graph)
    (half,) = [s for s in run.steps if s.kind == "half"]
    assert half.node == "y" and "texture" in half.reason


def test_input_preferences_off_gives_operands_the_order_of_the_result() -> None:
    first = TensorRepr.parse("texture_3d/channels")
    graph = examples.quantized_pair()
    on, off = (
        qt.place(graph, TABLE, qt.PlaceRules(budget=1, input_preferences=flag))
        for flag in (True, False)
    )
    assert on.of("x") == off.of("x") == (first,)  # no common representation: its own order serves


@pytest.mark.parametrize("name", CHOICES)
def test_a_rule_of_another_value_is_refused_with_the_choices(name: str) -> None:
    with pytest.raises(UnknownName, match=f"{name}='maybe'; choose one of"):
        qt.PlaceRules(**{name: "maybe"})  # type: ignore[arg-type]


def test_rules_are_read_back_as_they_are_written() -> None:
    for rules in (qt.PlaceRules(), NOW, qt.PlaceRules.proposals(), replace(NOW, budget=None)):
        assert qt.PlaceRules.parse(str(rules)) == rules
    with pytest.raises(UnknownName, match="rule 'budgets'; the rules are engine, "):
        qt.PlaceRules.parse("budgets=3")
    with pytest.raises(UnknownName, match="budget='-3'"):
        qt.PlaceRules.parse("budget=-3")
