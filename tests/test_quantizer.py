"""quantizer/: who owns qparams, dead and underflowed channels, biases, calibration faults."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import nn

from qtoolkit.comparison import compare
from qtoolkit.errors import CalibrationError, QParamError, UnknownName
from qtoolkit.execution import Run, execute
from qtoolkit.graph import Graph, Ref
from qtoolkit.ops import tensor_qparams
from qtoolkit.passes.fuse import left_float
from qtoolkit.pipeline import compile
from qtoolkit.program import capture, run_float
from qtoolkit.quantizer import quantize, quantize_steps
from qtoolkit.quantizer.observers import ActivationRange
from qtoolkit.trace import Step


def data(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def fused(graph: Graph) -> Graph:
    trace = compile(graph)
    assert left_float(trace.result, trace["fuse"].steps) == ()
    return trace.result


def sqnr(module: nn.Module, x: torch.Tensor, weights: str = "per-channel") -> tuple[Run, Graph]:
    graph = fused(quantize(module, x, [(x,)], weights))
    run = execute(graph, x)
    found = compare(run_float(module, x), run).rows[-1]
    assert found.metrics.sqnr_db is not None and found.metrics.sqnr_db > 20, found
    return run, graph


@pytest.mark.parametrize("weights", ["per-channel", "per-tensor"])
@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU6()),
        nn.Sequential(nn.Conv2d(3, 6, 3, stride=2, groups=3), nn.Hardtanh(-1, 1)),
        nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), nn.MaxPool2d(2), nn.AvgPool2d(2)),
        nn.Sequential(nn.Conv2d(3, 4, 3, dilation=2), nn.AdaptiveAvgPool2d(2), nn.Flatten()),
        nn.Sequential(nn.Conv2d(3, 3, 3, padding=1, groups=3), nn.ReLU(inplace=True)),
        nn.Sequential(nn.Flatten(2), nn.Conv1d(3, 5, 5, padding=2), nn.BatchNorm1d(5), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Linear(192, 7), nn.Dropout()),
    ],
    ids=["bn-relu6", "grouped", "pools", "dilated", "depthwise", "conv1d", "linear"],
)
def test_every_pattern_fuses_whole_and_stays_close(module: nn.Module, weights: str) -> None:
    sqnr(module.eval(), data(1, 3, 8, 8), weights)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # TensorFlow pads unevenly, before a strided conv.
        y = self.conv(nn.functional.pad(x, (0, 2, 0, 2)))
        return torch.relu(y + x)


def test_a_residual_behind_an_uneven_pad_fuses_whole() -> None:
    _, graph = sqnr(Residual().eval(), data(1, 3, 8, 8))
    assert graph.counts()["q8_add"] == 1 and graph.counts()["aten.pad.default"] == 1


class Cat(nn.Module):
    def __init__(self, same: bool) -> None:
        super().__init__()
        self.conv, self.same = nn.Conv2d(3, 3, 3), same

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return torch.cat([y, y if self.same else 20 * y], 1)


def test_g9_cat_of_one_value_twice_ends_with_both_edges() -> None:
    _, graph = sqnr(Cat(True).eval(), data(1, 3, 32, 32))
    assert graph["cat"].args[0] == (Ref("conv2d"), Ref("conv2d"))


class Branches(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.cat([a, b], 1)


def test_g8_cat_gives_its_branches_one_joint_range() -> None:
    a, b = torch.tensor([[-10.0, 2], [3, 4]]), torch.tensor([[1.0, 3], [8, 10]])
    graph = compile(quantize(Branches().eval(), (a, b), [(a, b)])).result
    found = tensor_qparams(graph)
    (q,) = {found[n.name] for n in graph.nodes if n.op == "quantize" or "cat" in n.op}
    assert q is not None and q.scale[0] == pytest.approx(20 / 255, rel=1e-6)
    out = execute(graph, (a.numpy(), b.numpy())).outputs[0]
    assert np.abs(out - np.concatenate([a, b], 1)).max() <= 20 / 255 / 2 + 1e-6


def test_max_pool_and_view_share_the_qparams_of_their_input() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.MaxPool2d(2), nn.Flatten()).eval()
    _, graph = sqnr(module, data(1, 3, 8, 8))
    found = tensor_qparams(graph)
    assert found["conv2d"] == found["max_pool2d"] == found["flatten"]


def test_origin_names_the_batch_norm_that_was_folded() -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU6()).eval()
    module[1].running_mean = data(8)
    _, graph = sqnr(module, data(1, 3, 8, 8))
    assert graph["conv2d"].origin == ("conv2d", "batch_norm", "hardtanh")
    assert graph.inputs == capture(module, data(1, 3, 8, 8)).inputs == ("input",)
    assert graph["conv2d"].where.module == "0"


def settled(steps: Sequence[Step]) -> list[Step]:
    """The steps about scales of weights."""
    return [s for s in steps if s.kind in ("raised", "dead", "underflowed")]


def test_g1_a_dead_channel_gives_exact_zero_and_is_marked() -> None:
    module = nn.Linear(64, 32, bias=False).eval()
    with torch.no_grad():
        module.weight[0] = 0
    x = data(4, 64)
    graph, steps = quantize_steps(module, x, [(x,)])
    assert [(s.kind, s.node) for s in settled(steps)] == [("dead", "linear")]
    out = execute(compile(graph).result, x).outputs[0]
    assert (out[:, 0] == 0).all() and np.isfinite(out).all()


def test_g1_a_tiny_fp16_channel_keeps_its_own_scale() -> None:
    module = nn.Linear(64, 32).half().eval()
    with torch.no_grad():
        module.weight[0] = 1e-6
        module.bias[:] = 0
    x = data(4, 64)
    graph, steps = quantize_steps(module, x.half(), [(x.half(),)])
    assert not [s for s in steps if s.kind in ("dead", "underflowed")]
    assert np.isfinite(execute(compile(graph).result, x).outputs[0]).all()


def test_a_channel_below_every_scale_is_underflowed_and_not_dead() -> None:
    module = nn.Linear(8, 4, bias=False).eval()
    with torch.no_grad():
        module.weight[1] = 1e-14
    x = data(2, 8)
    (step,) = settled(quantize_steps(module, x, [(x,)])[1])
    assert step.kind == "underflowed" and step.reason.endswith(": 1")


def test_g2_our_scale_is_raised_for_a_bias_that_would_overflow() -> None:
    module = nn.Linear(4, 2).eval()
    with torch.no_grad():
        module.weight[:] = 127 * 7.843e-10
        module.bias[:] = torch.tensor([5.0, -4.5])
    x = torch.linspace(-63.75, 63.75, 8).reshape(2, 4)
    graph, steps = quantize_steps(module, x, [(x,)])
    (step,) = settled(steps)
    assert step.kind == "raised" and "2 of 2 weight scales raised" in step.reason
    result = fused(graph)
    bias = result.array(result["linear"].args[2])
    assert np.abs(bias.astype(np.int64)).max() <= 2**30 + 1
    out = execute(result, x).outputs[0]
    assert np.abs(out - [5.0, -4.5]).max() < 0.05
    with pytest.raises(QParamError, match="%linear had to be raised"):
        quantize(module, x, [(x,)], strict=True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_g10_what_is_not_finite_names_node_count_and_batch(bad: float) -> None:
    x = data(1, 4)
    worse = x.clone()
    worse[0, :2] = bad
    with pytest.raises(CalibrationError, match=r"%input: 2 (NaN|inf).* batch 1"):
        quantize(nn.Linear(4, 2).eval(), x, [(x,), (worse,)])


def test_g10_a_nan_that_the_model_makes_names_the_node() -> None:
    class Log(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.relu(torch.log(x) + torch.log(x))

    with pytest.raises(CalibrationError, match="%log"):
        quantize(Log().eval(), torch.ones(1, 4), [(-torch.ones(1, 4),)])


def test_g10_no_batches_are_refused() -> None:
    with pytest.raises(CalibrationError, match="empty"):
        quantize(nn.Linear(4, 2).eval(), data(1, 4), [])


@pytest.mark.parametrize(
    "batches",
    [
        [[-3.40, -0.0], [-3.4e30, -0.0]],
        [[0.0, 0.0], [1.0, 2.0]],
        [[5.0, 5.0]],
        [[-7.0, -7.0]],
        [[0.0, 0.0]],
    ],
)
def test_g10_odd_ranges_give_a_finite_scale_within_half_a_step(
    batches: Sequence[Sequence[float]],
) -> None:
    observer = ActivationRange(torch.int8)
    for batch in batches:
        observer(torch.tensor(batch))
    q = observer.qparams()
    assert np.isfinite(q.scale).all() and q.scale[0] > 0
    for batch in batches:
        x = np.array(batch, np.float32)
        error = np.abs(q.dequantize(q.quantize(x)).astype(np.float64) - x)
        assert error.max() <= float(q.scale[0]) * 0.5001


def test_g10_a_range_beyond_every_scale_names_the_value() -> None:
    observer = ActivationRange(torch.int8)
    observer.node = "conv"
    observer(torch.tensor([-3.4e38, -0.0]))
    with pytest.raises(QParamError, match=r"%conv: scale .*1\.33.*e\+36"):
        observer.qparams()


def test_zero_is_always_a_code() -> None:
    observer = ActivationRange(torch.int8)
    observer(torch.tensor([5.0, 9.0]))
    q = observer.qparams()
    assert q.dequantize(q.quantize(np.zeros(1, np.float32)))[0] == 0


def test_softmax_stays_float_and_says_so() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Softmax(1)).eval()
    trace = compile(quantize(module, data(2, 4), [(data(2, 4),)]))
    (left,) = left_float(trace.result, trace["fuse"].steps)
    assert left.op == "aten.softmax.int"
    assert left.why.startswith("there is no int8 form of aten.softmax.int: exp and the sum")


def test_a_wrong_granularity_is_refused() -> None:
    with pytest.raises(UnknownName, match="per-channel, per-tensor"):
        quantize(nn.Linear(4, 4).eval(), data(1, 4), [(data(1, 4),)], "per-group")


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.conv(x) + y


def test_one_tensor_given_for_two_inputs_stays_two_inputs() -> None:
    module, x = Two().eval(), data(1, 3, 8, 8)
    a, b = data(1, 3, 8, 8, seed=1), data(1, 3, 8, 8, seed=2)
    graph = fused(quantize(module, (x, x), [(a, b)]))
    found = compare(run_float(module, (a, b)), execute(graph, (a, b))).rows[-1]
    assert found.metrics.sqnr_db is not None and found.metrics.sqnr_db > 30


class Twice(nn.Module):
    """A conv with two readers, one of them a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return self.norm(y) + y


def test_a_batch_norm_beside_another_reader_becomes_a_conv_of_its_own() -> None:
    module = Twice().eval()
    module.norm.running_mean = data(3)
    run, graph = sqnr(module, data(1, 3, 8, 8))
    assert graph["batch_norm"].op == "q8_conv2d"
    assert graph["batch_norm"].origin == ("conv2d", "batch_norm")
    assert not compare(run_float(module, data(1, 3, 8, 8)), run).missing


def test_a_batch_norm_that_cannot_fold_leaves_no_alias_behind() -> None:
    module = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 3, 3)).eval()
    graph = quantize(module, data(1, 3, 8, 8), [(data(1, 3, 8, 8),)])
    assert not [n for n in graph.nodes if "alias" in n.op]


class Dead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.dead = nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.dead(x)
        return self.used(x)


def test_a_conv_that_nobody_reads_is_no_obstacle() -> None:
    sqnr(Dead().eval(), data(1, 3, 8, 8))


@pytest.mark.parametrize("kernel", [3, 5])
def test_same_padding_is_written_out(kernel: int) -> None:
    sqnr(nn.Sequential(nn.Conv2d(3, 3, kernel, padding="same")).eval(), data(1, 3, 8, 8))


def left(module: nn.Module, x: torch.Tensor) -> dict[str, str]:
    trace = compile(quantize(module, x, [(x,)]))
    return {f.op: f.why for f in left_float(trace.result, trace["fuse"].steps)}


def test_what_cannot_be_int8_says_why() -> None:
    same = nn.Sequential(nn.Conv2d(3, 3, 4, padding="same")).eval()
    assert "unevenly" in left(same, data(1, 3, 8, 8))["aten.conv2d.padding"]
    conv = nn.Conv2d(3, 3, 3).eval()
    assert "no batch axis" in left(conv, data(3, 8, 8))["aten.conv2d.default"]
    pool = nn.Sequential(conv, nn.AvgPool2d(2, divisor_override=-5)).eval()
    assert "divisor_override -5" in left(pool, data(1, 3, 8, 8))["aten.avg_pool2d.default"]


@pytest.mark.parametrize(
    ("calibration", "told"),
    [([{"x": torch.zeros(1, 4)}], "batch 0 is a dict"), (torch.zeros(1, 4), "is one batch")],
)
def test_calibration_of_another_form_is_refused_in_words(calibration: object, told: str) -> None:
    with pytest.raises(CalibrationError, match=told):
        quantize(nn.Linear(4, 2).eval(), torch.zeros(1, 4), calibration)  # type: ignore[arg-type]


class Swapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.conv(x).chunk(2, 1)
        return torch.cat([b, a], 1)


def test_each_of_several_results_is_held_against_its_own() -> None:
    x = data(1, 3, 8, 8)
    module = Swapped().eval()
    graph = compile(quantize(module, x, [(x,)])).result
    found = compare(run_float(module, x), execute(graph, x))
    assert not found.missing and found["chunk#1"].against == "chunk#1"
    assert all(r.metrics.sqnr_db is None or r.metrics.sqnr_db > 20 for r in found)


class WithConstant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(5, 3, 1)
        self.register_buffer("k", data(1, 2, 8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.cat([self.k, self.conv(x)], 1))


def test_a_cat_with_a_constant_knows_what_its_codes_mean() -> None:
    x = data(1, 3, 8, 8)
    module = WithConstant().eval()
    run = execute(compile(quantize(module, x, [(x,)])).result, x)
    found = compare(run_float(module, x), run)
    assert (found["cat"].metrics.sqnr_db or 0) > 30
