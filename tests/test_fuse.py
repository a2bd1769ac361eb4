"""fuse: patterns, refusals with their reasons, and codes that fake quantization confirms."""

import numpy as np
import pytest
from golden import check

from build import QD, Builder, quantized_conv, tensor
from qtoolkit.errors import QParamError
from qtoolkit.graph import Arg, DType, Graph, Ref
from qtoolkit.passes.fuse import fuse, left_float
from qtoolkit.passes.rules import FuseRules
from qtoolkit.trace import PassTrace, run_pass


def fused(graph: Graph, rules: FuseRules = FuseRules()) -> PassTrace:  # noqa: B008
    return run_pass("fuse", lambda g: fuse(g, rules), graph)


def reasons(trace: PassTrace) -> str:
    return "\n".join(s.reason for s in trace.steps if s.kind == "reject")


def test_conv_with_activation_reads_as_the_golden_text() -> None:
    graph = quantized_conv()
    trace = fused(graph)
    check("import_conv", graph.text())
    check("fuse_conv", trace.after.text() + "\n" + trace.text())


def test_origin_lists_the_conv_and_its_activation() -> None:
    assert fused(quantized_conv("aten.hardtanh.default")).after["conv"].origin == ("conv", "act")


@pytest.mark.parametrize(("y_zero", "low", "high"), [(-128, -128, 22), (0, 0, 127), (20, 20, 127)])
def test_a_fused_clamp_is_right_for_any_zero_point(y_zero: int, low: int, high: int) -> None:
    # relu6 with y_scale 0.04: 6 / 0.04 = 150 steps above the zero point, saturated at 127.
    node = fused(quantized_conv("aten.hardtanh.default", y_zero=y_zero)).after["conv"]
    assert node.args[-3:-1] == (low, high)


def test_a_missing_bias_becomes_int32_zeros() -> None:
    graph = fused(quantized_conv(bias=None)).after
    bias = graph.array(graph["conv"].args[2])
    assert bias.dtype == np.int32 and not bias.any() and bias.shape == (3,)


def test_per_channel_keeps_one_multiplier_per_channel_and_per_tensor_one() -> None:
    for per_channel, count in ((True, 3), (False, 1)):
        graph = fused(quantized_conv(per_channel=per_channel)).after
        assert graph.constants["conv/out_multiplier"].type.shape == (count,)
        assert graph.constants["conv/bias_scale"].type.dtype is DType.FLOAT64


def test_switched_off_per_channel_is_left_float_with_the_reason() -> None:
    trace = fused(quantized_conv(), FuseRules(per_channel=False))
    (left,) = [f for f in left_float(trace.after, trace.steps) if f.node == "conv"]
    assert "per-channel (3 scales)" in left.why


def test_switched_off_activation_folding_leaves_the_conv_float() -> None:
    trace = fused(quantized_conv(), FuseRules(fold_activation=False))
    assert "goes to aten.relu.default (%act)" in reasons(trace)


@pytest.mark.parametrize(("y_zero", "least"), [(0, -128), (-128, -128)])
def test_an_unchecked_zero_point_lets_the_relu_vanish(y_zero: int, least: int) -> None:
    # With a symmetric output (0) the codes of negative sums stay; with -128 saturation is the relu.
    off = FuseRules(check_relu_zero_point=False)
    assert fused(quantized_conv(y_zero=y_zero), off).after["conv"].args[-3] == least
    assert fused(quantized_conv(y_zero=y_zero)).after["conv"].args[-3] == y_zero


def joined(op: str) -> Graph:
    """Two values with scales of their own, added or joined, and quantized."""
    b = Builder()
    scales = {"a": 0.1, "b": 0.2}
    parts = [
        b.dequantize(f"d{n}", b.quantize(f"q{n}", b.input(n, 2, 4), (2, 4), s), (2, 4), s)
        for n, s in scales.items()
    ]
    args: tuple[Arg, ...] = (*parts, 1) if op == "aten.add.Tensor" else (tuple(parts), 0)
    shape = (2, 4) if op == "aten.add.Tensor" else (4, 4)
    y = b.op("join", op, args, tensor(*shape))
    return b.graph(b.dequantize("dy", b.quantize("qy", y, shape, 0.3), shape, 0.3))


@pytest.mark.parametrize("op", ["aten.add.Tensor", "aten.cat.default"])
def test_with_only_the_first_argument_replaced_ops_of_two_are_left_float(op: str) -> None:
    assert not reasons(fused(joined(op)))
    assert "%db stays float" in reasons(fused(joined(op), FuseRules(replace_all_arguments=False)))


def test_per_channel_along_the_wrong_axis_is_refused() -> None:
    b = Builder()
    x = b.dequantize("dq", b.quantize("q", b.input("x", 2, 4), (2, 4), 0.1), (2, 4), 0.1)
    codes = b.const("w", np.ones((4, 4), np.int8))
    w = b.dequantize_channels("dqw", codes, (4, 4), [0.1] * 4, axis=1)
    y = b.op("linear", "aten.linear.default", (x, w, None), tensor(2, 4))
    q = b.quantize("qy", y, (2, 4), 0.1)
    assert "along axis 1" in reasons(fused(b.graph(b.dequantize("dy", q, (2, 4), 0.1))))


def test_g2_a_bias_beyond_int32_is_left_float_with_channel_figure_and_least_scale() -> None:
    graph = quantized_conv(
        x_scale=0.5, w_scale=(7.843e-10, 7.843e-10, 1.0), bias=(5.0, -4.5, 0.0), activation=None
    )
    told = reasons(fused(graph))
    assert "bias of channel 0 is 5, code 1.275e+10" in told and "2 of 3 channels" in told
    assert "least admissible scale is 2.328e-09" in told
    with pytest.raises(QParamError, match="%conv: bias of channel 0"):
        fused(graph, FuseRules(strict=True))


def bias_dequantized(scale: np.ndarray, codes: np.ndarray) -> Graph:
    b = Builder()
    dq = b.dequantize("dq", b.quantize("q", b.input("x", 2, 4), (2, 4), 0.5), (2, 4), 0.5)
    w = b.dequantize_channels(
        "dqw", b.const("w", np.ones((3, 4), np.int8)), (3, 4), [0.1, 0.2, 0.3]
    )
    s = b.const("bias_scale", scale)
    args = (b.const("b", codes), s, b.const("bz", np.zeros(3, np.int64)), 0, -(2**31), 2**31 - 1,
            DType.INT32, None)  # fmt: skip
    bias = b.op("dqb", QD + "dequantize_per_channel.default", args, tensor(3))
    y = b.op("linear", "aten.linear.default", (dq, w, bias), tensor(2, 3))
    qy = b.quantize("qy", y, (2, 3), 0.5)
    return b.graph(b.dequantize("dqy", qy, (2, 3), 0.5))


def test_an_imported_bias_keeps_its_codes_if_its_scale_is_the_product() -> None:
    scale = np.float32(0.5) * np.array([0.1, 0.2, 0.3], np.float32)
    codes = np.array([7, -(2**31) + 1, 2**31 - 1], np.int32)
    trace = fused(bias_dequantized(scale, codes))
    assert np.array_equal(trace.after.constants["linear/bias"].array, codes)
    assert not [s for s in trace.steps if s.kind == "bias"]


def test_an_imported_bias_of_another_scale_is_requantized_and_said() -> None:
    trace = fused(
        bias_dequantized(np.array([0.1, 0.1, 0.1], np.float32), np.array([5, 5, 5], np.int32))
    )
    assert list(trace.after.constants["linear/bias"].array) == [10, 5, 3]
    assert [s.reason for s in trace.steps if s.kind == "bias"]


def test_an_imported_bias_that_overflows_is_left_float() -> None:
    codes = np.array([2**31 - 1, 0, 0], np.int32)
    trace = fused(bias_dequantized(np.array([1.0, 1.0, 1.0], np.float32), codes))
    assert "beyond int32" in reasons(trace)


def around(op: str, extra: tuple[Arg, ...], out: tuple[int, ...], y_scale: float = 0.1) -> Graph:
    b = Builder()
    shape = (1, 2, 4, 4)
    dq = b.dequantize("dq", b.quantize("q", b.input("x", *shape), shape, 0.1, 5), shape, 0.1, 5)
    y = b.op("y", op, (dq, *extra), tensor(*out))
    qy = b.quantize("qy", y, out, y_scale, 5)
    return b.graph(b.dequantize("dqy", qy, out, y_scale, 5))


MOVES: list[tuple[str, tuple[Arg, ...], tuple[int, ...]]] = [
    ("aten.max_pool2d.default", ((2, 2), (2, 2), (0, 0), (1, 1), False), (1, 2, 2, 2)),
    ("aten.view.default", ((1, 32),), (1, 32)),
    ("aten.permute.default", ((0, 2, 3, 1),), (1, 4, 4, 2)),
    ("aten.dropout.default", (0.5, False), (1, 2, 4, 4)),
    ("aten.pad.default", ((0, 1, 0, 1), "constant", None), (1, 2, 5, 5)),
]


@pytest.mark.parametrize(("op", "extra", "out"), MOVES)
def test_an_op_that_moves_values_works_on_codes(
    op: str, extra: tuple[Arg, ...], out: tuple[int, ...]
) -> None:
    after = fused(around(op, extra, out)).after
    assert [n.op for n in after.nodes] == ["input", "quantize", op, "dequantize"]
    assert after["y"].type.dtype is DType.INT8
    unlike = fused(around(op, extra, out, y_scale=0.2)).after
    assert [n.op for n in unlike.nodes] == ["input", "quantize", op, "requantize", "dequantize"]


def test_padding_writes_the_code_of_its_value() -> None:
    extra: tuple[Arg, ...] = ((1, 1), "constant", 0.5)
    assert fused(around("aten.pad.default", extra, (1, 2, 4, 6))).after["y"].args[3] == 10
    zero: tuple[Arg, ...] = ((1, 1), "constant", None)
    assert fused(around("aten.pad.default", zero, (1, 2, 4, 6))).after["y"].args[3] == 5


def test_a_lone_relu_clamps_codes_or_requantizes() -> None:
    same = fused(around("aten.relu.default", (), (1, 2, 4, 4))).after["y"]
    assert (same.op, same.args[1:]) == ("q8_clamp", (5, 127))
    unlike = fused(around("aten.relu.default", (), (1, 2, 4, 4), y_scale=0.2)).after["y"]
    assert (unlike.op, unlike.args[-3:-1]) == ("requantize", (5, 127))


def cat(scales: tuple[float, float], y_scale: float, same: bool = False) -> Graph:
    b = Builder()
    x = b.input("x", 1, 2)
    parts = []
    for i, scale in enumerate(scales):
        if i and same:
            parts.append(parts[0])
            continue
        q = b.quantize(f"q{i}", x, (1, 2), scale)
        parts.append(b.dequantize(f"dq{i}", q, (1, 2), scale))
    y = b.op("cat", "aten.cat.default", (tuple(parts), 1), tensor(1, 4))
    qy = b.quantize("qy", y, (1, 4), y_scale)
    return b.graph(b.dequantize("dqy", qy, (1, 4), y_scale))


def test_g8_cat_of_unlike_branches_requantizes_them() -> None:
    after = fused(cat((0.1, 0.2), 0.2)).after
    assert [n.op for n in after.nodes].count("requantize") == 1
    assert after["cat"].args[0] == (Ref("cat_requantize_0"), Ref("q1"))


def test_g9_cat_of_one_value_twice_keeps_both_edges() -> None:
    after = fused(cat((0.1, 0.1), 0.1, same=True)).after
    assert after["cat"].args[0] == (Ref("q0"), Ref("q0"))


def test_dequantize_then_quantize_is_nothing_or_one_requantize() -> None:
    def pair(scale: float) -> Graph:
        b = Builder()
        q = b.quantize("q", b.input("x", 4), (4,), 0.1)
        again = b.quantize("again", b.dequantize("dq", q, (4,), 0.1), (4,), scale)
        return b.graph(b.dequantize("dq2", again, (4,), scale))

    assert [n.op for n in fused(pair(0.1)).after.nodes] == ["input", "quantize", "dequantize"]
    assert "requantize" in [n.op for n in fused(pair(0.3)).after.nodes]


def test_an_unknown_op_between_stays_float_with_a_reason() -> None:
    trace = fused(around("aten.erfinv.default", (), (1, 2, 4, 4)))
    (left,) = left_float(trace.after, trace.steps)
    assert (left.node, left.why) == ("y", "there is no int8 form of aten.erfinv.default")


def test_a_change_from_uint8_to_int8_codes_is_left_float() -> None:
    b = Builder()
    codes = b.const("codes", np.arange(4, dtype=np.uint8))
    args = (codes, 0.1, 128, 0, 255, DType.UINT8, None)
    x = b.op("dq", QD + "dequantize_per_tensor.default", args, tensor(4))
    y = b.op("relu", "aten.relu.default", (x,), tensor(4))
    graph = b.graph(b.dequantize("dy", b.quantize("qy", y, (4,), 0.1), (4,), 0.1))
    assert "%dq holds uint8 codes, %qy makes int8" in reasons(fused(graph))


@pytest.mark.parametrize("alpha", [-1, float("inf"), float("nan")])
def test_add_with_an_odd_alpha_is_left_float(alpha: float) -> None:
    b = Builder()
    x = b.input("x", 4)
    d = [b.dequantize(f"d{i}", b.quantize(f"q{i}", x, (4,), 0.1), (4,), 0.1) for i in range(2)]
    y = b.op("y", "aten.add.Tensor", (d[0], d[1], alpha), tensor(4))
    graph = b.graph(b.dequantize("dy", b.quantize("qy", y, (4,), 0.1), (4,), 0.1))
    assert "alpha" in reasons(fused(graph))


def test_a_scale_not_in_float32_is_rounded_and_said() -> None:
    b = Builder()
    graph = b.graph(b.dequantize("d", b.quantize("q", b.input("x", 4), (4,), 0.1), (4,), 0.1))
    told = [s.reason for s in fused(graph).steps if s.kind == "rounded"]
    assert told and "0.1 rounded to float32 0.10000000149011612" in told[0]


@pytest.mark.parametrize("scale", [0.0, float("nan"), 2.0**101, 2.0**-101, -1.0])
def test_a_scale_outside_the_domain_names_its_node(scale: float) -> None:
    b = Builder()
    graph = b.graph(b.dequantize("d", b.quantize("q", b.input("x", 4), (4,), scale), (4,), 0.1))
    with pytest.raises(QParamError, match="%q: scale"):
        fused(graph)


def test_a_sum_that_may_wrap_is_a_warning_with_the_figure() -> None:
    b = Builder()
    k = 140_000
    dq = b.dequantize("dq", b.quantize("q", b.input("x", 1, k), (1, k), 0.1), (1, k), 0.1)
    w = b.dequantize("dw", b.const("w", np.full((1, k), 127, np.int8)), (1, k), 0.1)
    y = b.op("linear", "aten.linear.default", (dq, w, None), tensor(1, 1))
    graph = b.graph(b.dequantize("dy", b.quantize("qy", y, (1, 1), 0.1), (1, 1), 0.1))
    (told,) = [s.reason for s in fused(graph).steps if s.kind == "warning"]
    assert str(k * 128 * 127) in told
