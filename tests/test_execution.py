"""execution.py: inputs checked at the door, unsupported ops listed at once, values kept."""

import numpy as np
import pytest

from build import QD, Builder, quantized_conv, tensor
from qtoolkit.comparison import compare
from qtoolkit.errors import ShapeError, UnknownName, UnsupportedOp
from qtoolkit.execution import execute
from qtoolkit.graph import DType, Ref
from qtoolkit.passes.rules import FuseRules
from qtoolkit.pipeline import QuantizationWarning, compile

X = np.random.default_rng(0).standard_normal((1, 3, 5, 5)).astype(np.float32)


@pytest.mark.parametrize("mode", ["float", "fixed", "fixed_double"])
@pytest.mark.parametrize("activation", [None, "aten.relu.default", "aten.hardtanh.default"])
def test_fused_codes_stand_within_a_step_of_fake_quantization(
    mode: str, activation: str | None
) -> None:
    graph = quantized_conv(activation)
    fake = execute(graph, X)
    real = execute(compile(graph, fusing=FuseRules(requantize=mode)).result, X)
    # Fake quantization rounds in float32 along another way, so a tie may fall to either side.
    steps = np.abs(fake["dqy"] - real["dqy"]) / 0.04
    assert steps.max() < 1.01 and (steps > 0.5).mean() < 0.02


def test_every_value_is_kept_under_its_name_with_its_time() -> None:
    run = execute(compile(quantized_conv()).result, X)
    assert list(run.values) == ["x", "q", "conv", "dqy"]
    assert set(run.seconds) == {"q", "conv", "dqy"} and run.outputs[0] is run["dqy"]


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_backends_agree_on_every_value(backend: str) -> None:
    reference = execute(compile(quantized_conv()).result, X)
    other = execute(compile(quantized_conv(), backend=backend).result, X)
    found = compare(reference, other)
    assert found.equal and not found.missing


def test_inputs_by_name_by_position_and_alone_are_the_same() -> None:
    graph = compile(quantized_conv()).result
    runs = [execute(graph, x) for x in (X, (X,), [X], {"x": X})]
    assert all(compare(runs[0], r).equal for r in runs)


@pytest.mark.parametrize(
    ("x", "told"),
    [
        (X[:, :2], "input %x is float32.1, 2, 5, 5., the graph was captured with float32.1,3,5,5."),
        (X.astype(np.int32), "input %x is int32"),
        ((X, X), "2 inputs given"),
        ({"y": X}, "no value for input %x"),
    ],
)
def test_a_wrong_input_is_refused_by_name(x: object, told: str) -> None:
    with pytest.raises(ShapeError, match=told):
        execute(compile(quantized_conv()).result, x)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_floats_become_float32_at_the_door(dtype: type) -> None:
    graph = compile(quantized_conv()).result
    x = X.astype(np.float16)
    one, other = execute(graph, x.astype(np.float32)), execute(graph, x.astype(dtype))
    assert compare(one, other).equal


def test_all_unsupported_ops_are_listed_at_once() -> None:
    b = Builder()
    one = b.op("one", "aten.erfinv.default", (b.input("x", 4),), tensor(4))
    trace = compile(b.graph(b.op("two", "aten.lgamma.default", (one,), tensor(4))))
    with pytest.raises(UnsupportedOp, match=r"2 nodes: %one \(aten.erfinv.default\); %two"):
        execute(trace.result, np.zeros(4, np.float32))


def test_an_unknown_backend_or_policy_lists_what_there_is() -> None:
    with pytest.raises(UnknownName, match="reference"):
        compile(quantized_conv(), backend="cuda")
    with pytest.raises(UnknownName, match="greedy"):
        compile(quantized_conv(), policy="best")


def test_nan_and_inf_are_counted() -> None:
    x = X.copy()
    x[0, 0, 0, :3] = (np.nan, np.inf, -np.inf)
    run = execute(compile(quantized_conv()).result, x)
    assert run.counts == {"quantized NaN": 1, "quantized inf": 2}
    assert list(run["q"][0, 0, 0, :3]) == [3, 127, -128]


def test_outputs_may_repeat_pass_through_and_be_none() -> None:
    b = Builder()
    x = b.input("x", 2)
    y = b.op("y", "aten.relu.default", (x,), tensor(2))
    c = b.const("c", np.ones(2, np.float32))
    run = execute(b.graph(y, y, x, None, c), np.array([-1, 1], np.float32))
    assert [None if o is None else list(o) for o in run.outputs] == [
        [0, 1], [0, 1], [-1, 1], None, [1, 1]
    ]  # fmt: skip


def test_a_sum_that_may_wrap_warns_at_compile() -> None:
    b = Builder()
    k = 140_000
    dq = b.dequantize("dq", b.quantize("q", b.input("x", 1, k), (1, k), 0.1), (1, k), 0.1)
    w = b.dequantize("dw", b.const("w", np.full((1, k), 127, np.int8)), (1, k), 0.1)
    y = b.op("linear", "aten.linear.default", (dq, w, None), tensor(1, 1))
    graph = b.graph(b.dequantize("dy", b.quantize("qy", y, (1, 1), 0.1), (1, 1), 0.1))
    with pytest.warns(QuantizationWarning, match="%linear: its int32 sum may reach"):
        compile(graph)


def test_a_getitem_takes_one_result_of_several() -> None:
    b = Builder()
    x = b.input("x", 4)
    b.op("parts", "aten.split.Tensor", (x, 2, 0), tensor(2))
    b.nodes[-1] = b.nodes[-1].__class__(
        "parts", "aten.split.Tensor", (x, 2, 0), (tensor(2), tensor(2)), ("parts",)
    )
    last = b.op("last", "getitem", (Ref("parts", 1), 1), tensor(2))
    run = execute(b.graph(last), np.arange(4, dtype=np.float32))
    assert list(run.outputs[0]) == [2, 3] and list(run["parts#1"]) == [2, 3]


def test_uint8_programs_show_uint8_codes() -> None:
    b = Builder()
    x = b.input("x", 4)
    meaning = (0.1, 128, 0, 255, DType.UINT8)
    codes = tensor(4, dtype=DType.UINT8)
    q = b.op("q", QD + "quantize_per_tensor.default", (x, *meaning), codes)
    y = b.op("dq", QD + "dequantize_per_tensor.default", (q, *meaning, None), tensor(4))
    for backend in ("reference", "numba"):
        graph = compile(b.graph(y), backend=backend).result
        run = execute(graph, np.array([-99, 0, 1, 99], np.float32))
        assert run["q"].dtype == np.uint8 and list(run["q"]) == [0, 128, 138, 255]
