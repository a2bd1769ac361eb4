"""Every pattern of the quantizer, per-tensor and per-channel, from a module to a run."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import qtoolkit as qt
from qtoolkit.errors import QParamError, UnknownName
from qtoolkit.graph import Graph, Node
from qtoolkit.quantizer import QuantizationConfig, quantized_program
from qtoolkit.quantizer.annotate import Int8Quantizer

GRANULARITIES = ("per-tensor", "per-channel")


def data(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Net(nn.Module):
    """A function of the inputs and of parameters: w[6,7], b[7], v[7,6] and a few layers."""

    def __init__(self, compute: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.compute = compute
        self.w = nn.Parameter(data(6, 7, seed=3))
        self.b = nn.Parameter(data(7, seed=4))
        self.v = nn.Parameter(data(7, 6, seed=5))
        self.row, self.one = nn.Parameter(data(1, 7, seed=4)), nn.Parameter(data(1, seed=4))
        torch.manual_seed(0)
        self.conv1d, self.conv2d = nn.Conv1d(3, 4, 3), nn.Conv2d(3, 4, 3)
        self.bare = nn.Conv2d(3, 4, 3, bias=False)
        self.norm1d, self.norm2d = nn.BatchNorm1d(4), nn.BatchNorm2d(4)
        self.norm2d.running_mean = data(4, seed=6)
        self.linear, self.layer_norm = nn.Linear(6, 7), nn.LayerNorm(7)

    def forward(self, *x: torch.Tensor) -> torch.Tensor:
        return self.compute(self, *x)


@dataclass(frozen=True)
class Pattern:
    compute: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]
    op: str  # the q8 op, or the op on codes
    weighted: bool = True


IMAGE, SIGNAL, ROWS = ((1, 3, 8, 8),), ((2, 3, 9),), ((5, 6),)
CONV1D, CONV2D, LINEAR, MATMUL = "q8_conv1d", "q8_conv2d", "q8_linear", "q8_matmul"
PATTERNS: dict[str, Pattern] = {
    "conv1d": Pattern(lambda m, x: m.conv1d(x), SIGNAL, CONV1D),
    "conv1d bn relu": Pattern(lambda m, x: functional.relu(m.norm1d(m.conv1d(x))), SIGNAL, CONV1D),
    "conv2d": Pattern(lambda m, x: m.conv2d(x), IMAGE, CONV2D),
    "conv2d without bias": Pattern(lambda m, x: m.bare(x), IMAGE, CONV2D),
    "conv2d relu": Pattern(lambda m, x: functional.relu(m.conv2d(x)), IMAGE, CONV2D),
    "conv2d bn": Pattern(lambda m, x: m.norm2d(m.conv2d(x)), IMAGE, CONV2D),
    "conv2d bn relu": Pattern(lambda m, x: functional.relu(m.norm2d(m.conv2d(x))), IMAGE, CONV2D),
    "linear": Pattern(lambda m, x: m.linear(x), ROWS, LINEAR),
    "linear relu": Pattern(lambda m, x: functional.relu(m.linear(x)), ROWS, LINEAR),
    "matmul": Pattern(lambda m, a, b: a @ b, ((2, 5, 6), (2, 6, 7)), MATMUL, False),
    "bmm": Pattern(lambda m, a, b: torch.bmm(a, b), ((2, 5, 6), (2, 6, 7)), MATMUL, False),
    "mm relu": Pattern(lambda m, a, b: functional.relu(a.mm(b)), ((5, 6), (6, 7)), MATMUL, False),
    "matmul by its transpose": Pattern(lambda m, a: a @ a.T, ROWS, MATMUL, False),
    "constant by matmul": Pattern(lambda m, b: m.w @ b, ((7, 4),), MATMUL, False),
    "add": Pattern(lambda m, a, b: a + b, ((2, 5), (2, 5)), "q8_add", False),
    "add relu": Pattern(lambda m, a, b: functional.relu(a + b), ((2, 5), (2, 5)), "q8_add", False),
    "cat": Pattern(
        lambda m, a, b: torch.cat([a, b], 1), ((2, 5), (2, 3)), "aten.cat.default", False
    ),
    "conv2d, relu apart": Pattern(
        lambda m, x: functional.relu(functional.max_pool2d(m.conv2d(x), 2)),
        IMAGE,
        "requantize",
        False,
    ),
    "max pool, default stride": Pattern(
        lambda m, x: functional.max_pool2d(m.conv2d(x), 4), IMAGE, "aten.max_pool2d.default", False
    ),
    "average pool": Pattern(
        lambda m, x: functional.avg_pool2d(x, 2), IMAGE, "q8_avg_pool2d", False
    ),
    "adaptive pool": Pattern(
        lambda m, x: functional.adaptive_avg_pool2d(x, 3), IMAGE, "q8_adaptive_avg_pool2d", False
    ),
}
# By a constant matrix [K,N], whose axis 0 is the one summed over.
BY_CONSTANT: dict[str, Callable[..., torch.Tensor]] = {
    "addmm": lambda m, x: torch.addmm(m.b, x, m.w),
    "addmm relu": lambda m, x: functional.relu(torch.addmm(m.b, x, m.w)),
    "addmm, one bias for all": lambda m, x: torch.addmm(m.one, x, m.w),
    "addmm, bias [1,N]": lambda m, x: torch.addmm(m.row, x, m.w),
    "addmm of a transpose": lambda m, x: torch.addmm(m.b, x, m.v.t()),
    "mm of a transpose": lambda m, x: x.mm(m.v.transpose(0, 1)),
    "matmul of .T": lambda m, x: x @ m.v.T,
    "matmul of a permute": lambda m, x: x @ m.v.permute(1, 0),
    "mm": lambda m, x: x.mm(m.w),
    "matmul": lambda m, x: x @ m.w,
}


def quantized(
    module: nn.Module, x: tuple[torch.Tensor, ...], weights: str | QuantizationConfig
) -> Graph:
    return qt.quantize(module, x, [x], weights)


def check(
    module: nn.Module, x: tuple[torch.Tensor, ...], weights: str | QuantizationConfig
) -> qt.Trace:
    """Runs on both CPU backends: equal, and within one step of torch's fake-quantized program."""
    graph = quantized(module, x, weights)
    with torch.no_grad():
        fake = quantized_program(module, x, [x], weights).module(check_guards=False)(*x).numpy()
    arrays = tuple(t.numpy() for t in x)
    traces = [qt.compile(graph, backend=b) for b in ("reference", "numba")]
    outs = [qt.execute(t.result, arrays).outputs[0] for t in traces]
    assert np.array_equal(outs[0], outs[1])
    result = traces[1].result
    last = result[result.outputs[0].node]
    step = float(result.array(last.args[1])[0]) if last.op == "dequantize" else 1e-4
    assert np.abs(outs[0] - fake).max() <= step * 1.001
    assert np.abs(outs[0]).max() > step  # a result of zeros would be close to little
    return traces[1]


@pytest.mark.parametrize("weights", GRANULARITIES)
@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_fuses_as_stated_and_stays_within_a_step(name: str, weights: str) -> None:
    pattern = PATTERNS[name]
    x = tuple(data(*s, seed=i) for i, s in enumerate(pattern.shapes))
    trace = check(Net(pattern.compute).eval(), x, weights)
    covered = qt.cover(trace)
    assert covered.left_float == 0, covered
    (found,) = [n for n in covered.nodes if n.op == pattern.op]
    assert found.granularity == (weights if pattern.weighted else "per-tensor")


@pytest.mark.parametrize("name", BY_CONSTANT)
def test_a_product_by_a_constant_matrix_is_a_linear_if_per_tensor(name: str) -> None:
    module = Net(BY_CONSTANT[name]).eval()
    trace = check(module, (data(5, 6),), "per-tensor")
    covered = qt.cover(trace)
    assert covered.left_float == 0 and [n.op for n in covered.nodes] == ["q8_linear"], covered
    (node,) = [n for n in trace.result.nodes if n.op == "q8_linear"]
    kept = "w/transposed" if "m.w" in _source(name) else "v"
    assert str(node.args[1]) == f"@{kept}" and trace.result.type_of(node.args[1]).shape == (7, 6)
    bias = trace.result.array(node.args[2])
    assert bias.shape == (7,) and bias.any() == ("addmm" in name)


def _source(name: str) -> str:
    return "m.v" if any(t in name for t in ("transpose", ".T", "permute")) else "m.w"


@pytest.mark.parametrize("name", BY_CONSTANT)
def test_per_channel_it_is_accepted_by_the_quantizer_and_declined_by_fusion(name: str) -> None:
    trace = check(Net(BY_CONSTANT[name]).eval(), (data(5, 6),), "per-channel")
    before = qt.cover(trace, stage="quantize").nodes[0]
    assert before.granularity == "per-channel", before
    left = [n for n in qt.cover(trace).nodes if not n.quantized]
    assert "per-channel along axis 0 (6 scales), which is K" in left[0].why
    assert "takes one weight scale" in left[0].why


def test_addmm_keeps_its_float_bias_where_the_spec_has_none_for_it() -> None:
    # Upstream drops the value, and its zeros have in_features places (trap 3).
    module = Net(BY_CONSTANT["addmm"]).eval()
    with torch.no_grad():
        module.b[:] = 40.0
    x = data(5, 6)
    for weights in GRANULARITIES:
        out = qt.execute(qt.compile(quantized(module, (x,), weights)).result, x).outputs[0]
        assert np.abs(out - module(x).detach().numpy()).max() < 0.8


@pytest.mark.parametrize(
    ("compute", "told"),
    [
        (lambda m, x: torch.addmm(m.b, x, m.w, beta=2), "beta 2 and alpha 1"),
        (lambda m, x: torch.addmm(m.b, x.mm(m.w), m.v.mm(m.w)), "bias to a product of two"),
    ],
)
def test_what_addmm_cannot_take_is_left_float_with_the_reason(
    compute: Callable[..., torch.Tensor], told: str
) -> None:
    covered = qt.cover(quantized(Net(compute).eval(), (data(5, 6),), "per-tensor"))
    (node,) = [n for n in covered.nodes if "addmm" in n.op]
    assert not node.quantized and told in node.why


def test_a_transpose_beside_a_constant_of_its_name_keeps_both() -> None:
    module = Net(lambda m, x: ((x @ m.v.T) @ m.v).mm(m.v.t())).eval()
    trace = qt.compile(quantized(module, (data(5, 6),), "per-tensor"), backend="numba")
    assert qt.cover(trace).left_float == 0
    found = qt.compare(qt.run_float(module, data(5, 6)), qt.execute(trace.result, data(5, 6)))
    assert (found.rows[-1].metrics.sqnr_db or 0) > 25


@pytest.mark.parametrize("weights", GRANULARITIES)
def test_layer_norm_and_softmax_stay_float_and_are_listed(weights: str) -> None:
    module = Net(lambda m, x: functional.softmax(m.layer_norm(m.linear(x)), -1)).eval()
    trace = qt.compile(quantized(module, (data(5, 6),), weights), backend="numba")
    left = {n.op: n.why for n in qt.cover(trace).nodes if not n.quantized}
    assert set(left) == {"aten.layer_norm.default", "aten.softmax.int"}
    assert "divides by a deviation" in left["aten.layer_norm.default"]
    assert "exp and the sum" in left["aten.softmax.int"]


def test_a_relu_holds_for_a_symmetric_output() -> None:
    # Trap 2: with zero point 0 an unchecked relu vanishes; saturation alone is not it.
    x = data(1, 3, 8, 8)
    graph = quantized(Net(PATTERNS["conv2d relu"].compute).eval(), (x,), "per-tensor")

    def centred(n: Node) -> Node:
        if "quantize_per_tensor" not in n.op or n.type.shape != (1, 4, 6, 6):
            return n
        return n.with_args([n.args[0], n.args[1] * 2, 0, *n.args[3:]])

    symmetric = replace(graph, nodes=tuple(map(centred, graph.nodes)))
    trace = qt.compile(symmetric, backend="numba")
    (node,) = [n for n in trace.result.nodes if n.op == "q8_conv2d"]
    assert node.args[-4:-1] == (0, 0, 127)
    assert qt.execute(trace.result, x).outputs[0].min() == 0


# what the config says


@pytest.mark.parametrize("weights", GRANULARITIES)
def test_the_spec_of_a_bias_is_as_fine_as_that_of_its_weight(weights: str) -> None:
    graph = quantized(Net(PATTERNS["conv2d"].compute).eval(), (data(1, 3, 8, 8),), weights)
    shapes = ((4,), (4, 3, 3, 3))
    found = [n.op for n in graph.nodes if "dequantize" in n.op and n.type.shape in shapes]
    assert len(found) == 2 and len(set(found)) == 1


def test_a_bias_spec_that_is_not_aligned_cannot_be_converted_per_channel() -> None:
    module, x = Net(PATTERNS["linear"].compute).eval(), (data(5, 6),)
    off = qt.get_symmetric_quantization_config(True, align_bias_spec=False)
    with pytest.raises(QParamError, match="align_bias_spec=False.*only one element tensors"):
        quantized(module, x, off)
    check(module, x, qt.get_symmetric_quantization_config(False, align_bias_spec=False))


@pytest.mark.parametrize("bits", [4, 5, 7, 8])
@pytest.mark.parametrize("per_channel", [True, False])
def test_weights_of_fewer_bits_keep_to_their_range(bits: int, per_channel: bool) -> None:
    config = qt.get_symmetric_quantization_config(per_channel, weight_bits=bits)
    trace = check(Net(PATTERNS["conv2d bn relu"].compute).eval(), (data(1, 3, 8, 8),), config)
    (node,) = [n for n in trace.result.nodes if n.op == "q8_conv2d"]
    codes = trace.result.array(node.args[1])
    assert codes.dtype == np.int8 and np.abs(codes.astype(int)).max() == 2 ** (bits - 1) - 1


def test_a_config_of_another_kind_is_refused_in_words() -> None:
    with pytest.raises(UnknownName, match="dynamic activations are not there yet"):
        qt.get_symmetric_quantization_config(is_dynamic=True)
    with pytest.raises(UnknownName, match="weight_bits=3; choose 4 to 8"):
        qt.get_symmetric_quantization_config(weight_bits=3)
    with pytest.raises(UnknownName, match="per_channel='yes'"):
        qt.get_symmetric_quantization_config("yes")  # type: ignore[arg-type]
    assert Int8Quantizer("per-tensor").config.granularity == "per-tensor"
