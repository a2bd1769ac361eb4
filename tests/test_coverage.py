"""coverage: what is quantized after each stage, by which kernel, and why the rest is not."""

import json

import pytest

import qtoolkit as qt
from build import Builder, quantized_conv, tensor
from qtoolkit.cli import main
from qtoolkit.coverage import COLUMNS, cover
from qtoolkit.errors import UnknownName
from qtoolkit.graph import Graph


@pytest.mark.parametrize("per_channel", [True, False])
def test_a_conv_keeps_its_granularity_through_every_stage(per_channel: bool) -> None:
    graph = quantized_conv(per_channel=per_channel)
    told = {s: cover(graph, stage=s) for s in ("quantize", "fuse", "lower")}
    expected = "per-channel" if per_channel else "per-tensor"
    assert {c.nodes[0].granularity for c in told.values()} == {expected}
    assert [c.left_float for c in told.values()] == [0, 0, 0]
    assert [n.name for n in told["quantize"].nodes] == ["conv", "act"]
    (lowered,) = told["lower"].nodes
    assert (lowered.op, lowered.target, lowered.kernel) == ("q8_conv2d", "numba", "general")
    assert "depthwise: groups=1" in lowered.why


@pytest.mark.parametrize(
    ("rules", "why"),
    [("per_channel=off", "fusion declines"), ("align_bias_spec=off", "only one element tensors")],
)
def test_a_switch_that_loses_the_conv_shows_it_as_float_with_the_reason(
    rules: str, why: str
) -> None:
    found = cover(quantized_conv(), rules=rules)
    conv = found.nodes[0]
    assert not conv.quantized and conv.granularity is None and why in conv.why
    assert found.left_float == 2 and f"left float: %conv: {conv.why}" in str(found)


def test_a_bias_spec_that_is_not_aligned_loses_only_per_channel_weights_with_a_bias() -> None:
    off = "align_bias_spec=off"
    assert cover(quantized_conv(bias=None), rules=off).left_float == 0
    assert cover(quantized_conv(per_channel=False), rules=off).left_float == 0


def test_before_the_passes_an_op_of_a_float_graph_is_float() -> None:
    b = Builder()
    x = b.input("x", 2, 4)
    graph = b.graph(b.op("relu", "aten.relu.default", (x,), tensor(2, 4)))
    (relu,) = cover(graph, stage="quantize").nodes
    assert not relu.quantized and relu.why == "operand %x is float"


def test_a_float_weight_and_a_result_read_as_float_are_told_before_the_passes() -> None:
    (bare,) = cover(_linear(quantized=False, read=True), stage="quantize").nodes
    assert bare.why == "operand @w is a float constant"
    (read,) = cover(_linear(quantized=True, read=False), stage="quantize").nodes
    assert read.why == "nothing quantizes its result"


def _linear(quantized: bool, read: bool) -> Graph:
    b = Builder()
    x = b.dequantize("dq", b.quantize("q", b.input("x", 2, 4), (2, 4), 0.1), (2, 4), 0.1)
    dtype = "int8" if quantized else "float32"
    w = b.const("w", [[1, 2, 3, 4]] * 3)
    w = b.const("w", b.constants["w"].array.astype(dtype))
    weight = b.dequantize("dqw", w, (3, 4), 0.1) if quantized else w
    y = b.op("linear", "aten.linear.default", (x, weight, None), tensor(2, 3))
    return b.graph(b.quantize("qy", y, (2, 3), 0.1) if read else y)


def test_a_trace_is_covered_as_it_was_compiled() -> None:
    trace = qt.compile(quantized_conv(), backend="reference")
    (conv,) = qt.cover(trace).nodes
    assert (conv.target, conv.kernel) == ("reference", "reference")
    assert list(qt.cover(trace).to_dataframe().columns) == list(COLUMNS)


def test_an_unknown_stage_rule_or_value_is_named() -> None:
    with pytest.raises(UnknownName, match="stage 'place'"):
        cover(quantized_conv(), stage="place")
    with pytest.raises(UnknownName, match="rule 'per_row'; the rules are per_channel"):
        cover(quantized_conv(), rules="per_row=on")
    with pytest.raises(UnknownName, match="per_channel='maybe'; choose on or off"):
        cover(quantized_conv(), rules="per_channel=maybe")


def test_the_command_prints_json_of_the_stated_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["coverage", "mlp", "--rules", "per_channel=off", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"format", "nodes", "left_float"} and told["format"] == 1
    assert told["left_float"] == len(told["nodes"]) == 5
    assert all(set(n) == set(COLUMNS) for n in told["nodes"])


@pytest.mark.parametrize("target", ["reference", "numba", "vulkan"])
def test_no_conv_or_linear_of_the_table_is_left_float(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["coverage", "digits-cnn", "--target", target, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    weighted = [n for n in told["nodes"] if "conv" in n["op"] or "linear" in n["op"]]
    assert told["left_float"] == 0 and len(weighted) == 6
    assert {n["granularity"] for n in weighted} == {"per-channel"}
