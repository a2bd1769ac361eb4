"""Pictures of placements say what the placement says."""

from dataclasses import replace

import matplotlib.pyplot as plt
import pytest
from matplotlib.axes import Axes

import qtoolkit as qt
from build import quantized_conv
from qtoolkit.draw.costs import spots
from qtoolkit.draw.frame import caption_of
from qtoolkit.draw.narrowing import MOST, Row, around, rows, rules_words
from qtoolkit.draw.reasons import relation, stops
from qtoolkit.errors import UnknownName
from qtoolkit.interop.executorch import examples

TABLE = "executorch-1.5.1"
NOW = qt.PlaceRules.executorch()


@pytest.fixture(autouse=True)
def _close() -> object:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def pair() -> qt.Placement:
    return qt.place(examples.quantized_pair(), TABLE)


@pytest.fixture(scope="module")
def locked() -> qt.Placement:
    rules = replace(NOW, search="source-first")
    return qt.place(examples.convolution_then_linears(), TABLE, rules)


def marked(ax: Axes, gid: str) -> int:
    return sum(p.get_gid() == gid for p in ax.patches)


def words(ax: Axes) -> str:
    return " ".join(t.get_text() for t in ax.texts)


def after(placement: qt.Placement, kind: str, node: str) -> int:
    """How many steps are taken once this one is."""
    steps = placement.trace.steps
    return next(i for i, s in enumerate(steps) if (s.kind, s.node) == (kind, node)) + 1


def test_repsets_show_what_is_possible_struck_out_and_changed(pair: qt.Placement) -> None:
    for step in range(len(pair.trace.steps) + 1):
        every = list(rows(pair.trace, step))
        ax = qt.draw.repsets(pair, step)
        assert marked(ax, "possible") == sum(r.left.bit_count() for r in every)
        assert marked(ax, "struck") == sum(r.struck.bit_count() for r in every)
        assert marked(ax, "changed") == sum(r.changed for r in every)
        assert marked(ax, "cause") == sum(r.cause for r in every)
        plt.close(ax.figure)


def test_the_rows_are_the_same_at_every_step_and_in_the_graphs_order(pair: qt.Placement) -> None:
    order = [n.name for n in pair.graph.nodes]
    first = [(r.node, r.slot) for r in rows(pair.trace, 0)]
    assert [order.index(node) for node, _ in first] == sorted(order.index(n) for n, _ in first)
    for step in range(len(pair.trace.steps) + 1):
        assert [(r.node, r.slot) for r in rows(pair.trace, step)] == first


def test_what_a_step_strikes_out_is_what_was_possible_before_it(pair: qt.Placement) -> None:
    for step in range(1, len(pair.trace.steps) + 1):
        before = {(r.node, r.slot): r.left for r in rows(pair.trace, step - 1)}
        for r in rows(pair.trace, step):
            assert r.now == before[r.node, r.slot] & ~r.left
            assert r.changed or not r.now


def test_repsets_name_the_step_and_its_cause(pair: qt.Placement) -> None:
    step = after(pair, "readers", "quantize")
    every = list(rows(pair.trace, step))
    assert {r.node for r in every if r.changed} == {"quantize"}
    assert {r.node for r in every if r.cause} == {"conv"}
    told = caption_of(qt.draw.repsets(pair, step))
    assert f"{step - 1}. readers %quantize" in told
    assert "found by the search from %quantize (because of 1. demand)" in told


def test_at_the_end_every_operand_has_one_representation(pair: qt.Placement) -> None:
    assert all(r.left.bit_count() == 1 for r in rows(pair.trace, len(pair.trace.steps)))


def test_of_a_long_graph_the_rows_around_the_change_are_shown() -> None:
    placed = qt.place(examples.fan_out(), TABLE)
    steps = placed.trace.steps
    at = next(i for i, s in enumerate(steps) if s.kind == "source" and i > 150)
    every = list(rows(placed.trace, at + 1))
    shown = around(every)
    assert len(every) > MOST == len(shown) and any(r.changed for r in shown)
    assert f"{MOST} of {len(every)} operands are shown" in caption_of(
        qt.draw.repsets(placed, at + 1)
    )


@pytest.mark.parametrize("cause", [0, 99])
def test_a_cause_that_lies_far_away_is_shown_too(cause: int) -> None:
    every = [Row(f"n{i}", -1, 1, 0, 0, i == 50, i == cause) for i in range(100)]
    shown = around(every)
    assert len(shown) == MOST and any(r.cause for r in shown) and any(r.changed for r in shown)
    assert [every.index(r) for r in shown] == sorted(every.index(r) for r in shown)


@pytest.mark.parametrize("step", [-1, 999])
def test_a_step_that_is_not_there_is_refused(pair: qt.Placement, step: int) -> None:
    with pytest.raises(UnknownName, match="the placement has steps 0"):
        qt.draw.repsets(pair, step)


def test_captions_name_table_rules_policy_and_limits(locked: qt.Placement) -> None:
    told = caption_of(qt.draw.transitions(locked))
    assert "table executorch-1.5.1 · its own rules but search=source-first · greedy" in told
    assert "textures up to 16384×16384×2048" in told
    ours = qt.place(examples.shared_buffer(), TABLE, qt.PlaceRules(budget=3))
    assert rules_words(ours) == "qtoolkit's rules but budget=3"


def test_why_draws_a_stop_for_each_step_of_the_chain(pair: qt.Placement) -> None:
    ax = qt.draw.why(pair, "conv", -1)
    chain = pair.why("conv", -1)
    assert marked(ax, "stop") == len(chain) == 2
    assert "%pointwise" in words(ax) and "%conv" in words(ax)
    assert "up to what %pointwise reads" in words(ax)


def test_no_word_of_a_step_is_cut_and_none_leaves_its_box(
    pair: qt.Placement, locked: qt.Placement
) -> None:
    for placed, node in ((pair, "conv"), (pair, "dequantize"), (locked, "add_5")):
        ax = qt.draw.why(placed, node)
        ax.figure.draw_without_rendering()
        told = [t for t in ax.texts if t.get_gid() == "reason"]
        reasons = [s.reason for s in placed.why(node, -1)]
        assert [" ".join(t.get_text().split()) for t in told] == reasons
        boxes = [p.get_window_extent() for p in ax.patches if p.get_gid() == "stop"]
        for text, box in zip(told, boxes, strict=True):
            extent = text.get_window_extent()
            assert box.x0 < extent.x0 and extent.x1 < box.x1
            assert box.y0 < extent.y0 and extent.y1 < box.y1


def test_a_stop_shows_what_its_operand_may_have_after_the_step(pair: qt.Placement) -> None:
    last = stops(pair, "conv", -1)[-1]
    assert last.left == pair.of("conv") and last.slot == -1
    assert marked(qt.draw.why(pair, "conv"), "left") == 2


def test_the_way_from_node_to_node_is_told(pair: qt.Placement) -> None:
    graph = examples.shared_buffer()
    assert relation(graph, "pool_1", "pool_1") == "the same node"
    assert relation(graph, "dequantize", "pool_1") == "down to a reader of %dequantize"
    assert relation(graph, "pool_1", "dequantize") == "up to what %pool_1 reads"
    assert relation(graph, "pool_1", "pool_2") == "across to another reader of %dequantize"
    assert relation(graph, "x", "pool_2") == "further on through the graph"


def test_a_long_chain_is_drawn_from_both_ends() -> None:
    placed = qt.place(examples.convolution_then_linears(20), TABLE)
    ax = qt.draw.why(placed, "add_19")
    assert marked(ax, "stop") == 9 and "steps are left out" in words(ax)


def test_why_draws_the_trace_of_a_compilation() -> None:
    trace = qt.compile(quantized_conv(), "numba")
    ax = qt.draw.why(trace, "conv", 0)
    assert marked(ax, "stop") == len(trace.why("conv", 0)) > 0
    assert "compiled for numba" in caption_of(ax)


def test_transitions_are_marked_on_the_edges_with_from_to_and_bytes() -> None:
    placed = qt.place(examples.shared_buffer(), TABLE)
    ax = qt.draw.transitions(placed)
    for part in ("%dequantize for %pool_1, %pool_2", "buffer width → texture channels",
                 "12,544 bytes"):  # fmt: skip
        assert part in words(ax)
    assert "1 transition, 12,544 bytes" in caption_of(ax)
    assert sum(line.get_gid() == "copied" for line in ax.lines) == 2
    # One at each reader, and one in the list.
    assert marked(ax, "badge") == 3
    assert {p.get_gid() for p in ax.patches} >= {n.name for n in placed.graph.nodes}


def test_a_placement_without_copies_says_so(pair: qt.Placement) -> None:
    ax = qt.draw.transitions(pair)
    assert "no transition" in words(ax) and not marked(ax, "badge")


def test_badges_keep_apart_and_off_the_names(locked: qt.Placement) -> None:
    for placed in (
        locked,
        qt.place(examples.quantized_pair(), TABLE, replace(NOW, pick="declared")),
    ):
        ax = qt.draw.transitions(placed)
        ax.figure.draw_without_rendering()
        spots = [p.get_window_extent() for p in ax.patches if p.get_gid() == "badge"]
        assert not any(a.overlaps(b) for i, a in enumerate(spots) for b in spots[:i])
        names = {n.name for n in placed.graph.nodes}
        for text in ax.texts:
            if text.get_text() in names:
                assert not any(text.get_window_extent().overlaps(spot) for spot in spots)


def test_of_many_copies_the_largest_are_told() -> None:
    rules = replace(NOW, search="source-first")
    placed = qt.place(examples.convolution_then_linears(20), TABLE, rules)
    ax = qt.draw.transitions(placed)
    assert marked(ax, "bytes") == 16 and "and 24 more" in words(ax)
    assert sum(line.get_gid() == "copied" for line in ax.lines) == len(placed.copies) == 40


def test_costs_stack_both_sums_and_mark_the_bound(locked: qt.Placement) -> None:
    best = qt.place(examples.convolution_then_linears(), TABLE, policy="optimal")
    ax = qt.draw.costs(locked, best)
    widths = [p.get_width() for p in ax.patches]
    assert sum(widths) == pytest.approx(locked.cost.total + best.cost.total)
    (bound,) = [line for line in ax.lines if line.get_gid() == "bound"]
    assert bound.get_xdata()[0] == best.bound
    assert "(proved least)" in words(ax) and "by the default model" in ax.get_xlabel()


def test_costs_name_every_table_and_rule_that_was_used() -> None:
    graph = examples.shared_buffer()
    one = qt.place(graph, TABLE, replace(NOW, share_transitions=False))
    told = caption_of(qt.draw.costs(one, qt.place(graph, TABLE)))
    assert "its own rules but share_transitions=False; its own rules" in told


def test_costs_in_unlike_units_are_refused() -> None:
    graph = examples.shared_buffer()
    micro = qt.place(graph, TABLE, model=qt.CostModel("made up", "µs", 0.1))
    with pytest.raises(UnknownName, match="price them by one model"):
        qt.draw.costs(micro, qt.place(graph, TABLE))
    for draw in (qt.draw.costs, qt.draw.results):
        with pytest.raises(UnknownName, match="give at least one"):
            draw()


def test_operands_frame_what_a_copy_is_made_for() -> None:
    graph = examples.shared_buffer()
    ax = qt.draw.operands(qt.place(graph, TABLE), node="pool_1")
    assert (marked(ax, "copied"), marked(ax, "operand")) == (1, 1)
    assert "texture channels" in words(ax)
    assert ax.get_xticklabels()[0].get_text() == "in 0\n%dequantize"


def test_operands_of_a_node_that_was_not_placed_are_refused() -> None:
    graph = examples.shared_buffer()
    with pytest.raises(UnknownName, match="%nothing was not placed"):
        qt.draw.operands(qt.place(graph, TABLE), node="nothing")


def test_results_show_only_what_differs(pair: qt.Placement) -> None:
    off = qt.place(examples.quantized_pair(), TABLE, replace(NOW, constrain_outputs="never"))
    ax = qt.draw.results(pair, off, labels=["on", "off"])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["quantize", "conv"]
    assert (marked(ax, "copied"), marked(ax, "operand")) == (2, 2)
    assert "2 transitions" in words(ax) and "2 of 5 results differ" in caption_of(ax)
    same = qt.draw.results(pair, pair)
    assert len(same.get_yticklabels()) == len(spots(pair, pair)) == 5
    assert "every result lies alike" in caption_of(same)
