"""lower, place, transitions: on a fake backend, which is a table."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from golden import check

from build import Builder, tensor
from qtoolkit.errors import NoRepresentation
from qtoolkit.graph import Graph, Node
from qtoolkit.kernel import Bound, Kernel
from qtoolkit.layout import CHANNELS_LAST, CONTIGUOUS, Reps, RepSet
from qtoolkit.passes.lower import Kernels, lower
from qtoolkit.passes.place import KernelTable, place
from qtoolkit.passes.place.pricing import copies
from qtoolkit.passes.rules import PlaceRules
from qtoolkit.passes.transitions import transition_bytes, transitions
from qtoolkit.trace import PassTrace, Trace, run_pass

LAST, PLAIN = RepSet([CHANNELS_LAST]), RepSet([CONTIGUOUS])
EITHER = RepSet([CONTIGUOUS, CHANNELS_LAST])


def unbound(args: Sequence[Any]) -> Bound:
    return lambda *tensors: np.zeros(0)


def kernel(
    name: str, op: str, inputs: Sequence[RepSet | None], out: RepSet, tied: bool = False
) -> Kernel:
    ties = ((*(i for i, r in enumerate(inputs) if r is not None), -1),) if tied else ()
    return Kernel(name, op, unbound, lambda node, graph: Reps(tuple(inputs), (out,), ties))


def only_even(node: Node, graph: Graph) -> str | None:
    return None if node.type.sizes[1] % 2 == 0 else f"{node.type.sizes[1]} channels are odd"


TABLE: Kernels = {
    "conv": (
        Kernel("fast", "conv", unbound, lambda n, g: Reps((LAST,), (LAST,)), only_even),
        kernel("slow", "conv", [LAST], LAST),
    ),
    "add": (kernel("add", "add", [EITHER, EITHER], EITHER, tied=True),),
    "relu": (kernel("relu", "relu", [EITHER], EITHER, tied=True),),
    "view": (kernel("view", "view", [PLAIN], PLAIN),),
    "transition": (kernel("copy", "transition", [EITHER], EITHER),),
}


def network() -> Graph:
    b = Builder()
    x = b.input("x", 1, 4, 5, 5)
    t = tensor(1, 4, 5, 5)
    first = b.op("first", "relu", (x,), t)
    one = b.op("one", "conv", (first,), t)
    two = b.op("two", "conv", (first,), tensor(1, 3, 5, 5))
    both = b.op("both", "add", (one, first), t)
    flat = b.op("flat", "view", (both,), tensor(1, 100))
    again = b.op("again", "view", (both,), tensor(1, 100))
    return b.graph(flat, again, two)


def compiled(graph: Graph, rules: PlaceRules = PlaceRules()) -> Trace:  # noqa: B008
    traces: list[PassTrace] = []
    for name, run in (
        ("lower", lambda g: lower(g, "fake", TABLE)),
        ("place", lambda g: place(g, KernelTable(TABLE), rules)),
        ("transitions", lambda g: transitions(g, "fake", TABLE, rules)),
    ):
        traces.append(run_pass(name, run, graph))
        graph = traces[-1].after
    return Trace("fake", tuple(traces))


def test_each_stage_reads_as_its_golden_text() -> None:
    for stage in compiled(network()):
        check(stage.name, stage.after.text() + "\n" + stage.text())


@pytest.mark.parametrize("search", ["readers-first", "source-first"])
@pytest.mark.parametrize("shared", [True, False])
def test_transitions_makes_nodes_of_the_copies_that_place_decided(
    search: str, shared: bool
) -> None:
    trace = compiled(network(), PlaceRules(search=search, share_transitions=shared))
    decided = copies(trace["place"].before, trace["place"].steps, shared)
    made = [n for n in trace.result.nodes if n.op == "transition"]
    assert [(c.value, c.has, c.wants) for c in decided] == [
        (n.args[0], n.reps.inputs[0].only, n.reps.outputs[0].only)  # type: ignore[union-attr]
        for n in made
    ]


def test_lower_says_what_ruled_out_the_kernel_before() -> None:
    trace = compiled(network())["lower"]
    assert trace.after["one"].kernel == "fake:fast"
    assert trace.about("two")[0].reason == "slow; not fast: 3 channels are odd"


def test_a_node_without_a_kernel_stays_and_is_called_unsupported() -> None:
    b = Builder()
    y = b.op("y", "erfinv", (b.input("x", 2),), tensor(2))
    trace = compiled(b.graph(y))
    (step,) = trace["lower"].steps
    assert (step.kind, step.reason) == ("unsupported", "fake has no kernel for erfinv")
    assert trace.result["y"].kernel is None


def test_readers_that_want_the_same_copy_share_it() -> None:
    first = PlaceRules(search="source-first")
    shared = transition_bytes(compiled(network(), first).result)
    alone = replace(first, share_transitions=False)
    assert shared == (2, 2 * 400)
    assert transition_bytes(compiled(network(), alone).result) == (5, 5 * 400)


def test_why_gives_the_chain_of_causes_first() -> None:
    steps = compiled(network(), PlaceRules(search="source-first")).why("both", -1)
    assert [s.node for s in steps][-1] == "both" and len(steps) > 1
    assert "which %one has" in steps[-1].reason


def test_why_is_told_of_an_operand_that_the_kernel_alone_decides() -> None:
    (step,) = compiled(network()).why("one", 0)
    assert step.kind == "demand" and "fake:fast" in step.reason


def test_asking_readers_changes_what_an_undecided_result_takes() -> None:
    b = Builder()
    first = b.op(
        "first", "relu", (b.const("c", np.zeros((1, 4, 5, 5), np.float32)),), tensor(1, 4, 5, 5)
    )
    graph = b.graph(b.op("one", "conv", (first,), tensor(1, 4, 5, 5)))
    assert transition_bytes(compiled(graph).result)[0] == 0
    deaf = PlaceRules(constrain_outputs="never", budget=1)
    assert transition_bytes(compiled(graph, deaf).result)[0] == 1


def test_ties_that_contradict_the_repsets_name_the_node() -> None:
    table = {"odd": (kernel("odd", "odd", [EITHER, LAST], PLAIN, tied=True),)}
    b = Builder()
    x = b.input("x", 1, 4, 5, 5)
    graph = b.graph(b.op("y", "odd", (x, x), tensor(1, 4, 5, 5)))
    lowered = run_pass("lower", lambda g: lower(g, "fake", table), graph).after
    with pytest.raises(NoRepresentation, match=r"%y: input 0 .* it is tied to input 1 \("):
        run_pass("place", lambda g: place(g, KernelTable(table)), lowered)
