"""comparison.py: joins by name and by origin, transitions by their source, missing with reasons."""

from dataclasses import replace

import numpy as np
import pytest

from build import Builder, tensor
from qtoolkit.comparison import compare
from qtoolkit.errors import BadInput
from qtoolkit.execution import Run
from qtoolkit.graph import Const, Constant, DType, Graph, Node, Ref, TensorType
from qtoolkit.kernel import Array


def run(graph: Graph, values: dict[str, Array], backend: str = "reference") -> Run:
    return Run(backend, "test", graph, values, {})


def captured() -> Graph:
    b = Builder()
    x = b.input("x", 4)
    conv = b.op("conv", "aten.conv2d.default", (x,), tensor(4))
    return b.graph(b.op("bn", "aten.batch_norm.default", (conv,), tensor(4)))


def compiled(extra: bool = False) -> Graph:
    kind = TensorType((4,), DType.INT8)
    args = (Ref("x"), Const("s"), Const("z"), None, -128, 127, DType.INT8)
    nodes = [
        Node("x", "input", (), (tensor(4),)),
        Node("conv", "quantize", args, (kind,), ("conv", "bn")),
    ]
    if extra:
        nodes.append(
            Node("conv_to_channels", "transition", (Ref("conv"),), (kind,), ("conv", "bn"))
        )
    constants = {
        "s": Constant.of(np.ones(1, np.float32)),
        "z": Constant.of(np.zeros(1, np.int32)),
    }
    return Graph(tuple(nodes), ("x",), (Ref("conv"),), constants=constants)


X = np.arange(4, dtype=np.float32)


def test_a_folded_conv_is_held_against_the_last_of_its_origin() -> None:
    float_run = run(captured(), {"x": X, "conv": X * 100, "bn": X}, "torch")
    found = compare(float_run, run(compiled(), {"x": X, "conv": X.astype(np.int8)}))
    assert found["conv"].against == "bn" and found["conv"].metrics.max_abs == 0


def test_a_transition_is_held_against_what_it_copies() -> None:
    codes = np.arange(4, dtype=np.int8)
    a = run(compiled(), {"x": X, "conv": codes})
    b = run(compiled(extra=True), {"x": X, "conv": codes, "conv_to_channels": codes}, "numba")
    found = compare(a, b)
    assert found.equal and not found.missing and found["conv_to_channels"].against == "conv"
    planted = codes.copy()
    planted[2] += 1
    found = compare(a, run(b.graph, {**b.values, "conv_to_channels": planted}, "numba"))
    assert found.first_difference and found.first_difference.name == "conv_to_channels"


def test_values_without_a_partner_are_listed_from_both_sides() -> None:
    graph = compiled()
    a = run(graph, {"x": X, "conv": X, "only_a": X})
    told = {m.node: m.why for m in compare(a, run(graph, {"x": X, "conv": X}, "numba")).missing}
    assert told == {"only_a": "only reference computes it"}
    nodes = tuple(replace(n, origin=()) if n.name == "conv" else n for n in graph.nodes)
    alone = Graph(nodes, graph.inputs, graph.outputs, constants=graph.constants)
    (missing,) = compare(
        run(captured(), {"x": X}, "torch"), run(alone, {"x": X, "conv": X})
    ).missing
    assert missing.node == "conv"


def test_other_shapes_are_missing_and_not_broadcast() -> None:
    graph = compiled()
    found = compare(run(graph, {"x": X, "conv": X}), run(graph, {"x": X, "conv": X[:1]}))
    assert [m.node for m in found.missing] == ["conv"]


def test_the_float_run_comes_first() -> None:
    with pytest.raises(BadInput, match="earlier stage first"):
        compare(run(compiled(), {}), run(captured(), {}))


def test_a_run_held_against_itself_misses_nothing() -> None:
    codes = np.arange(4, dtype=np.int8)
    values: dict[str, Array] = {"x": X, "conv": codes, "conv_to_channels": codes}
    one = run(compiled(extra=True), values, "numba")
    found = compare(one, one)
    assert found.equal and not found.missing and len(found.rows) == 3


def test_codes_whose_meaning_is_unknown_are_not_read_as_reals() -> None:
    kind = TensorType((4,), DType.INT8)
    nodes = (
        Node("x", "input", (), (tensor(4),)),
        Node("conv", "q8_unknown", (Ref("x"),), (kind,), ("conv",)),
    )
    graph = Graph(nodes, ("x",), (Ref("conv"),))
    truth = run(captured(), {"x": X, "conv": X, "bn": X}, "torch")
    (missing,) = compare(truth, run(graph, {"x": X, "conv": X.astype(np.int8)})).missing
    assert (missing.node, missing.why) == ("conv", "what its codes mean is not known")
