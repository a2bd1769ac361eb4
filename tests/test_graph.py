"""graph.py, layout.py, draft.py and graphfile.py: the immutable program and its edits."""

from pathlib import Path

import numpy as np
import pytest

from build import Builder, quantized_conv, tensor
from qtoolkit.draft import Draft, Edit, apply_edits
from qtoolkit.errors import BadInput, FormatError, GraphError
from qtoolkit.graph import Const, Dim, DType, Graph, Node, Ref, TensorType
from qtoolkit.graphfile import load_graph, save
from qtoolkit.layout import CHANNELS_LAST, CONTIGUOUS, Reps, RepSet, TensorRepr


def diamond() -> Graph:
    b = Builder()
    x = b.input("x", 2)
    left = b.op("left", "aten.relu.default", (x,), tensor(2))
    right = b.op("right", "aten.relu.default", (x,), tensor(2))
    both = b.op("both", "aten.add.Tensor", (left, right, 1), tensor(2))
    return b.graph(both, None, x, both)


def test_a_graph_reads_as_text() -> None:
    assert diamond().text() == (
        "%x: float32[2] = input()\n"
        "%left: float32[2] = aten.relu.default(%x)\n"
        "%right: float32[2] = aten.relu.default(%x)\n"
        "%both: float32[2] = aten.add.Tensor(%left, %right, 1)\n"
        "return %both, None, %x, %both\n"
    )


def test_users_list_each_reader_once_in_order() -> None:
    b = Builder()
    x = b.input("x", 2)
    b.op("twice", "aten.cat.default", ((x, x), 0), tensor(4))
    last = b.op("last", "aten.relu.default", (x,), tensor(2))
    assert b.graph(last).users["x"] == ("twice", "last")


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ((Node("a", "f", (Ref("b"),), (tensor(1),)),), "reads %b, which is not defined"),
        ((Node("a", "f", (Const("c"),), (tensor(1),)),), "reads @c, which the graph does not"),
        ((Node("a", "f", (), (tensor(1),)),) * 2, "two nodes are called %a"),
    ],
)
def test_a_broken_graph_is_refused_by_name(broken: tuple[Node, ...], told: str) -> None:
    with pytest.raises(GraphError, match=told):
        Graph(broken, (), ()).check()


def test_repsets_are_equal_as_sets_and_keep_their_preference() -> None:
    one, two = RepSet([CONTIGUOUS, CHANNELS_LAST]), RepSet([CHANNELS_LAST, CONTIGUOUS])
    assert one == two and hash(one) == hash(two)
    assert (two & one).reprs[0] == CHANNELS_LAST
    assert not (one & RepSet([])).mask and (one & RepSet([CONTIGUOUS])).decided
    assert all(TensorRepr.parse(str(r)) == r for r in one)


def test_an_edit_moves_readers_and_outputs_to_the_new_value() -> None:
    edit = Edit(rename=((Ref("left"), Ref("x")),), remove=("left",))
    after = apply_edits(diamond(), [edit])
    assert "left" not in after
    assert after["both"].args == (Ref("x"), Ref("right"), 1)


def test_a_node_that_is_still_read_cannot_be_removed() -> None:
    with pytest.raises(GraphError, match="cannot remove %left: %both still reads it"):
        Draft(diamond()).apply(Edit(remove=("left",)))
    with pytest.raises(GraphError, match="%return still reads it"):
        Draft(diamond()).apply(Edit(remove=("both",)))


def test_inserting_keeps_the_order_and_fresh_names_do_not_collide() -> None:
    draft = Draft(diamond())
    assert (draft.fresh("new"), draft.fresh("left")) == ("new", "left_1")
    draft.apply(Edit(insert=(Node("new", "f", (Ref("x"),), (tensor(2),)),), before="right"))
    assert draft.order() == ["x", "left", "new", "right", "both"]


def test_constants_that_nobody_reads_go() -> None:
    b = Builder()
    x = b.input("x", 2)
    y = b.op("y", "aten.add.Tensor", (x, b.const("c", np.ones(2, np.float32)), 1), tensor(2))
    draft = Draft(b.graph(y))
    draft.apply(Edit(rename=((Ref("y"), Ref("x")),), remove=("y",)))
    assert dict(draft.finish().constants) == {}


def test_a_saved_graph_comes_back_equal(tmp_path: Path) -> None:
    graph = quantized_conv()
    odd = Node(
        "odd", "f", (True, 1.0, float("inf"), 2 + 1j, DType.INT8, (None, ("a", Ref("x")))),
        (TensorType((Dim("n", 1, 8), 3), DType.BFLOAT16),),
        kernel="numba:f",
        reps=Reps((None, RepSet([CHANNELS_LAST, CONTIGUOUS])), (RepSet([CONTIGUOUS]),), ((1, -1),)),
    )  # fmt: skip
    graph = Graph((*graph.nodes, odd), graph.inputs, graph.outputs, "i", "o", graph.constants)
    back = load_graph(save(graph, tmp_path / "g.qtgraph"))
    assert back.text() == graph.text() and back.nodes == graph.nodes
    assert type(back["odd"].args[1]) is float and type(back["odd"].args[0]) is bool
    assert back.constants == graph.constants and (back.in_tree, back.out_tree) == ("i", "o")
    assert back["odd"].reps and back["odd"].reps.inputs[1].reprs[0] == CHANNELS_LAST  # type: ignore[union-attr]


def test_damaged_and_future_files_are_refused_in_one_line(tmp_path: Path) -> None:
    path = save(quantized_conv(), tmp_path / "g.qtgraph")
    whole = path.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(FormatError) as caught:
            load_graph(path)
        assert "\n" not in str(caught.value) and "g.qtgraph" in str(caught.value)
    path.write_bytes(whole.replace(b'"format":1', b'"format":7'))
    with pytest.raises(FormatError):
        load_graph(path)
    with pytest.raises(BadInput, match="no such file"):
        load_graph(tmp_path / "none.qtgraph")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(diamond(), tmp_path / "g.qtgraph")
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *a: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save(quantized_conv(), path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["g.qtgraph"]
