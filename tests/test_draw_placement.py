"""Pictures of placements say what the placement says."""

import matplotlib.pyplot as plt
import pytest
from matplotlib.axes import Axes

import qtoolkit as qt
from qtoolkit.draw.frame import caption_of
from qtoolkit.draw.narrowing import MOST, around, rows
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


def marked(ax: Axes, gid: str) -> int:
    return sum(p.get_gid() == gid for p in ax.patches)


def words(ax: Axes) -> str:
    return " ".join(t.get_text() for t in ax.texts)


def test_repsets_show_what_is_possible_struck_out_and_changed(pair: qt.Placement) -> None:
    for step in range(len(pair.trace.steps) + 1):
        every = list(rows(pair.trace.steps, step))
        ax = qt.draw.repsets(pair, step)
        assert marked(ax, "possible") == sum(r.left.bit_count() for r in every)
        assert marked(ax, "struck") == sum(r.struck.bit_count() for r in every)
        assert marked(ax, "changed") == sum(r.changed for r in every)
        plt.close(ax.figure)


def test_repsets_name_the_step_and_its_cause(pair: qt.Placement) -> None:
    at = next(i for i, s in enumerate(pair.trace.steps) if s.kind == "readers")
    every = list(rows(pair.trace.steps, at + 1))
    assert {r.node for r in every if r.changed} == {"quantize"}
    assert {r.node for r in every if r.cause} == {"conv"}
    assert "found by the search from %quantize" in caption_of(qt.draw.repsets(pair, at + 1))


def test_at_the_end_every_operand_has_one_representation(pair: qt.Placement) -> None:
    assert all(r.left.bit_count() == 1 for r in rows(pair.trace.steps, len(pair.trace.steps)))


def test_of_a_long_graph_the_rows_around_the_change_are_shown() -> None:
    placed = qt.place(examples.fan_out(), TABLE)
    steps = placed.trace.steps
    at = next(i for i, s in enumerate(steps) if s.kind == "source" and i > 150)
    every = list(rows(steps, at + 1))
    shown = around(every)
    assert len(every) > MOST == len(shown) and any(r.changed for r in shown)


@pytest.mark.parametrize("step", [-1, 999])
def test_a_step_that_is_not_there_is_refused(pair: qt.Placement, step: int) -> None:
    with pytest.raises(UnknownName, match="the placement has steps 0"):
        qt.draw.repsets(pair, step)


def test_why_draws_a_stop_for_each_step_of_the_chain(pair: qt.Placement) -> None:
    ax = qt.draw.why(pair, "conv", -1)
    chain = pair.why("conv", -1)
    assert marked(ax, "stop") == len(chain) == 2
    assert "%pointwise" in words(ax) and "%conv" in words(ax)


def test_a_long_chain_is_drawn_from_both_ends() -> None:
    placed = qt.place(examples.convolution_then_linears(20), TABLE)
    ax = qt.draw.why(placed, "add_19")
    assert marked(ax, "stop") == 9 and "steps between are left out" in caption_of(ax)


def test_transitions_name_from_to_bytes_and_readers() -> None:
    ax = qt.draw.transitions(qt.place(examples.shared_buffer(), TABLE))
    assert "buffer/width → texture_3d/channels, 12,544 bytes, for %pool_1, %pool_2" in words(ax)
    assert "1 transition, 12,544 bytes" in caption_of(ax)
    none = qt.place(examples.quantized_pair(), TABLE)
    assert "no transition" in words(qt.draw.transitions(none))


def test_costs_stack_both_sums_and_mark_the_bound() -> None:
    graph = examples.convolution_then_linears()
    greedy = qt.place(graph, TABLE, qt.PlaceRules(search="source-first"))
    best = qt.place(graph, TABLE, policy="optimal")
    ax = qt.draw.costs(greedy, best)
    widths = [p.get_width() for p in ax.patches]
    assert sum(widths) == pytest.approx(greedy.cost.total + best.cost.total)
    (bound,) = [line for line in ax.lines if line.get_gid() == "bound"]
    assert bound.get_xdata()[0] == best.bound
    assert "(proved least)" in words(ax) and "default model" in caption_of(ax)


def test_costs_in_unlike_units_are_refused() -> None:
    graph = examples.shared_buffer()
    micro = qt.place(graph, TABLE, model=qt.CostModel("made up", "µs", 0.1))
    with pytest.raises(UnknownName, match="price them by one model"):
        qt.draw.costs(micro, qt.place(graph, TABLE))
    with pytest.raises(UnknownName, match="give at least one"):
        qt.draw.costs()


def test_operands_frame_what_a_copy_is_made_for() -> None:
    graph = examples.shared_buffer()
    ax = qt.draw.operands(qt.place(graph, TABLE), node="pool_1")
    assert (marked(ax, "copied"), marked(ax, "operand")) == (1, 1)
    assert "texture, C" in words(ax)
