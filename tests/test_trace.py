"""trace.py: what a pass did is what its steps replay."""

from collections.abc import Generator
from dataclasses import replace

import pytest
from test_graph import diamond

from build import Builder, tensor
from qtoolkit.draft import Draft, Edit
from qtoolkit.errors import PassError, UnknownName
from qtoolkit.graph import Graph, Ref
from qtoolkit.trace import NO_EDIT, Step, run_pass


def drop_relus(graph: Graph) -> Generator[Step, None, Graph]:
    draft = Draft(graph)
    for name in draft.order():
        if draft[name].op == "aten.relu.default":
            source = next(draft[name].refs())
            edit = draft.apply(Edit(rename=((Ref(name), source),), remove=(name,)))
            yield Step(edit, "drop", name, ("{} is not wanted", name))
        else:
            yield Step(NO_EDIT, "keep", name, ("it is {}", draft[name].op))
    return draft.finish()


def test_every_step_can_be_looked_at() -> None:
    trace = run_pass("drop", drop_relus, diamond())
    sizes = [len(trace.graph_at(i).nodes) for i in range(len(trace.steps) + 1)]
    assert sizes == [4, 4, 3, 2, 2]
    assert trace.graph_at(4).text() == trace.after.text()
    assert trace.steps[1].reason == "left is not wanted"
    with pytest.raises(UnknownName, match="steps 0..4"):
        trace.graph_at(5)


def test_a_change_without_a_step_is_refused() -> None:
    def sly(graph: Graph) -> Generator[Step, None, Graph]:
        yield Step(NO_EDIT, "keep", "x", ("nothing",))
        nodes = tuple(replace(n, origin=("other",)) for n in graph.nodes)
        return Graph(nodes, graph.inputs, graph.outputs)

    with pytest.raises(PassError, match="changed %x without a step"):
        run_pass("sly", sly, diamond())


def test_a_long_trace_replays_from_checkpoints() -> None:
    b = Builder()
    at = b.input("x", 2)
    for i in range(2000):
        at = b.op(f"relu_{i}", "aten.relu.default", (at,), tensor(2))
    graph = b.graph(at)
    trace = run_pass("drop", drop_relus, graph)
    assert len(trace.after.nodes) == 1
    assert [len(trace.graph_at(i).nodes) for i in (0, 1000, 999, 2000)] == [2001, 1002, 1003, 2]
