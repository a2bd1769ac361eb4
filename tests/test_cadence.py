"""The Cadence family as targets: routing, rewrites that keep every scale, switches, equality."""

from typing import Any

import numpy as np
import pytest
import yaml
from test_conformance import OURS, accepting, check, first

import qtoolkit as qt
from build import Builder, quantized_conv, tensor
from qtoolkit.backends import CADENCE
from qtoolkit.backends.cadence.names import PORTABLE, Name
from qtoolkit.backends.cadence.plain import PORTABLE_OPS
from qtoolkit.backends.cadence.schemas import needed
from qtoolkit.cli import main
from qtoolkit.coverage import cover
from qtoolkit.errors import UnsupportedOp
from qtoolkit.graph import Arg, DType, Graph, Node
from qtoolkit.ops import OPS
from qtoolkit.ops.examples import one_node
from qtoolkit.passes.rules import FuseRules
from qtoolkit.trace import Trace

X = np.random.default_rng(0).normal(size=(1, 3, 5, 5)).astype(np.float32)


def compiled(graph: Graph, target: str = "generic", **rules: Any) -> Trace:
    return qt.compile(graph, backend=target, fusing=FuseRules(**rules))


def kernels(trace: Trace) -> dict[str, str]:
    return {n.name: str(n.kernel) for n in trace.result.nodes if n.kernel}


@pytest.mark.parametrize("target", CADENCE)
@pytest.mark.parametrize("op", OURS)
def test_every_kernel_of_the_family_is_equal_to_the_reference(op: str, target: str) -> None:
    tried = 0
    for example in OPS[op].examples():
        graph, _ = one_node(OPS[op], example)
        for kernel in accepting(target, graph):
            wrong_on_purpose = kernel.only_if and kernel.only_if[0] == "hifi_reads_channel0"
            if not wrong_on_purpose:
                check(kernel, OPS[op], example, first)
                tried += 1
    assert tried


@pytest.mark.parametrize("target", CADENCE)
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("im2row", [True, False])
@pytest.mark.parametrize("per_channel", [True, False])
def test_a_conv_comes_out_as_by_default_however_it_is_lowered(
    target: str, last: bool, im2row: bool, per_channel: bool
) -> None:
    graph = quantized_conv(per_channel=per_channel)
    wanted = qt.execute(qt.compile(graph).result, X)
    made = compiled(graph, target, channels_last=last, im2row=im2row)
    run = qt.execute(made.result, X)
    for a, b in zip(wanted.outputs, run.outputs, strict=True):
        assert a.tobytes() == b.tobytes()
    (conv,) = (n for n in made.result.nodes if n.op.startswith(("q8_conv", "q8_linear")))
    assert ("linear" in conv.op) == im2row
    factor = conv.args[OPS[conv.op].position("out_multiplier")]
    assert made.result.type_of(factor) == qt.compile(graph).result.type_of(
        next(n for n in qt.compile(graph).result.nodes if n.op == "q8_conv2d").args[10]
    )


def test_per_channel_is_routed_to_generic_with_the_reason() -> None:
    trace = compiled(quantized_conv(), "hifi")
    (step,) = (
        s for s in trace["lower"].steps if "quantized_conv" in s.reason and s.kind == "kernel"
    )
    assert step.reason.startswith("generic/quantized_conv2d_nhwc.default")
    assert "hifi/quantized_conv2d_nhwc.per_tensor: 3 weight scales, and it takes one" in step.reason
    assert "first to reclaim" in step.reason
    told = kernels(compiled(quantized_conv(per_channel=False), "hifi"))
    assert "hifi:hifi/quantized_conv2d_nhwc.per_tensor" in told.values()


def test_hifi_reads_channel_0_only_where_the_switch_says_so() -> None:
    graph = quantized_conv()
    right = qt.execute(compiled(graph, "hifi").result, X).outputs[0]
    trace = compiled(graph, "hifi", hifi_reads_channel0=True)
    wrong = qt.execute(trace.result, X).outputs[0]
    assert any(k.startswith("hifi:hifi/") and k.endswith("nhwc.default")
               for k in kernels(trace).values())  # fmt: skip
    assert np.array_equal(right[:, 0], wrong[:, 0])
    assert not np.array_equal(right[:, 1:], wrong[:, 1:])


@pytest.mark.parametrize("how", ["channels_last", "im2row"])
def test_a_lowering_that_loses_granularity_says_so_and_shows_other_numbers(how: str) -> None:
    graph = quantized_conv()
    how_to: dict[str, Any] = {"channels_last": how == "channels_last", "im2row": how == "im2row"}
    trace = compiled(graph, lowering_keeps_granularity=False, **how_to)
    (note,) = (s for s in trace["lower"].steps if s.kind == "granularity")
    assert "2 are lost" in note.reason
    assert any(".per_tensor" in k and "quantized_" in k for k in kernels(trace).values())
    right = qt.execute(compiled(graph, **how_to).result, X).outputs[0]
    lost = qt.execute(trace.result, X).outputs[0]
    assert np.array_equal(right[:, 0], lost[:, 0]) and not np.array_equal(right, lost)


def depthwise(axes: int, outputs: int, per_channel: bool = True) -> Graph:
    """q8 conv of 4 channels in 4 groups, as fuse leaves it."""
    b = Builder()
    spatial = (5,) * axes
    codes = b.input("x", 1, 4, *spatial, dtype=DType.INT8)
    count = outputs if per_channel else 1
    rng = np.random.default_rng(1)
    w = b.const("w", rng.integers(-127, 128, (outputs, 1, *(3,) * axes)).astype(np.int8))
    vectors = (
        b.const("z", np.zeros(count, np.int32)),
        b.const("s", np.full(count, 1e-3)),
        b.const("m", np.linspace(2**30, 2**31 - 1, count).astype(np.int32)),
        b.const("h", np.full(count, -8, np.int32)),
    )
    bias = b.const("b", np.zeros(outputs, np.int32))
    args: tuple[Arg, ...] = (
        codes, w, bias, (1,) * axes, (1,) * axes, (1,) * axes, 4, 0, *vectors, 0.1, 0, -128, 127,
        "float",
    )  # fmt: skip
    return b.graph(
        b.op("conv", f"q8_conv{axes}d", args, tensor(1, outputs, *spatial, dtype=DType.INT8))
    )


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("outputs", [4, 8])
@pytest.mark.parametrize("axes", [1, 2])
def test_per_channel_depthwise_is_depthwise_before_the_overload(
    axes: int, outputs: int, last: bool
) -> None:
    graph = depthwise(axes, outputs)
    on = compiled(graph, channels_last=last)
    off = compiled(graph, channels_last=last, depthwise_before_overload=False)
    assert any("[depthwise]" in k and ".default" in k for k in kernels(on).values())
    assert not any("[depthwise]" in k for k in kernels(off).values())
    if axes == 1:
        assert any("quantized_depthwise_conv1d" in k for k in kernels(on).values())
        assert any("quantized_conv1d" in k for k in kernels(off).values())
    x = np.random.default_rng(2).integers(-128, 128, (1, 4) + (5,) * axes).astype(np.int8)
    wanted = qt.execute(graph, x).outputs[0]
    for trace in (on, off):  # slower, not wrong
        assert np.array_equal(qt.execute(trace.result, x).outputs[0], wanted)
    per_tensor = compiled(depthwise(axes, outputs, False), depthwise_before_overload=False)
    assert any("[depthwise]" in k for k in kernels(per_tensor).values())


def test_one_group_is_dense() -> None:
    graph = quantized_conv()
    assert not any("[depthwise]" in k for k in kernels(compiled(graph)).values())


@pytest.mark.parametrize(("y_zero", "stays"), [(0, True), (-128, False)])
def test_a_relu_stays_a_node_unless_saturation_is_the_relu(y_zero: int, stays: bool) -> None:
    graph = quantized_conv(y_zero=y_zero)
    trace = compiled(graph)
    relus = [k for k in kernels(trace).values() if "quantized_relu" in k]
    assert bool(relus) == stays
    assert qt.execute(trace.result, X).outputs[0].tobytes() == (
        qt.execute(qt.compile(graph).result, X).outputs[0].tobytes()
    )


def weight_read_through_a_permute(shape: tuple[int, int]) -> Graph:
    b = Builder()
    rng = np.random.default_rng(0)
    codes = b.const("w", rng.integers(-127, 128, shape).astype(np.int8))
    scale = b.const("scale", np.linspace(0.01, 0.05, shape[0]).astype(np.float32))
    zero = b.const("zero", np.zeros(shape[0], np.int32))
    w = b.op("dqw", "dequantize", (codes, scale, zero, 0, -127, 127), tensor(*shape))
    turned = b.op("turned", "aten.permute.default", (w, (1, 0)), tensor(*shape[::-1]))
    x = b.input("x", 2, shape[1])
    return b.graph(b.op("mm", "aten.mm.default", (x, turned), tensor(2, shape[0])))


def test_a_permute_past_a_dequantize_carries_the_axis_of_its_scales() -> None:
    graph = weight_read_through_a_permute((8, 16))
    trace = compiled(graph)
    moved: Node = trace.result["turned"]
    assert (moved.op, moved.args[3]) == ("dequantize", 1)
    x = np.random.default_rng(3).normal(size=(2, 16)).astype(np.float32)
    wanted, got = (qt.execute(g, x).outputs[0] for g in (graph, trace.result))
    assert np.array_equal(wanted, got)
    off = compiled(graph, lowering_keeps_granularity=False)
    (step,) = (s for s in off["lower"].steps if s.kind == "reject")
    assert "8 scales against 16 rows, which cannot run" in step.reason
    square = weight_read_through_a_permute((16, 16))
    silent = compiled(square, lowering_keeps_granularity=False)
    assert silent.result["turned"].args[3] == 0
    wanted, got = (qt.execute(g, x).outputs[0] for g in (square, silent.result))
    assert not np.allclose(wanted, got)


def test_a_linear_of_one_row_is_fully_connected() -> None:
    for rows, name in ((1, "quantized_fully_connected"), (3, "quantized_linear")):
        b = Builder()
        x = b.dequantize(
            "dq", b.quantize("q", b.input("x", rows, 4), (rows, 4), 0.1), (rows, 4), 0.1
        )
        w = b.dequantize("dw", b.const("w", np.ones((3, 4), np.int8)), (3, 4), 0.1)
        y = b.op("linear", "aten.linear.default", (x, w, None), tensor(rows, 3))
        graph = b.graph(b.quantize("qy", y, (rows, 3), 0.1))
        assert kernels(compiled(graph))["linear"] == f"generic:generic/{name}.per_tensor"


@pytest.mark.parametrize("target", CADENCE)
@pytest.mark.parametrize("model", ["digits-cnn", "efficientnet-lite0"])
def test_whole_models_are_equal_to_the_default_path(model: str, target: str) -> None:
    loaded = qt.models.load(model)
    q = qt.quantize(loaded.module, loaded.example, loaded.calibration, weights="per-channel")
    trace = qt.compile(q, backend=target)
    rows = cover(trace).nodes
    weighted = [n for n in rows if "conv" in n.op or "linear" in n.op]
    assert weighted and all(n.quantized for n in weighted)
    assert {n.granularity for n in weighted if "pool" not in n.name} == {"per-channel"}
    _, x = loaded.evaluation[0]
    ours = qt.execute(qt.compile(q, backend="numba").result, x)
    theirs = qt.execute(trace.result, x)
    for a, b in zip(ours.outputs, theirs.outputs, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("target", CADENCE)
def test_the_command_lists_every_op_with_a_schema_and_a_kernel(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schemas", "digits-cnn", "--target", target, "--yaml"]) == 0
    entries = yaml.safe_load(capsys.readouterr().out)
    names = {e.get("func", e.get("op")).partition("(")[0] for e in entries}
    assert {"cadence::quantized_conv2d_nhwc.out", "permute_copy.out"} <= names
    assert all("::" in e["kernels"][0]["kernel_name"] for e in entries)
    assert main(["schemas", "mlp", "--target", target, "--rules", "channels_last=off"]) == 0
    assert "cadence::quantized_fully_connected(Tensor src" in capsys.readouterr().out


def test_an_op_that_no_target_has_is_named() -> None:
    b = Builder()
    x = b.input("x", 2, 4)
    graph = b.graph(b.op("act", "aten.silu.default", (x,), tensor(2, 4)))
    trace = compiled(graph)
    assert qt.execute(trace.result, np.ones((2, 4), np.float32)).outputs[0].shape == (2, 4)
    with pytest.raises(UnsupportedOp, match=r"%act \(aten.silu.default\)"):
        needed(trace.result)


def test_every_portable_name_has_a_kernel() -> None:
    for name in PORTABLE_OPS.values():
        assert Name(PORTABLE, *name).has_kernel, name
