"""program/: capture, import, refusals, and the float run."""

from pathlib import Path

import numpy as np
import pytest
import torch
from golden import check
from torch import nn

from qtoolkit.errors import BadInput, CaptureError, FormatError, ShapeError
from qtoolkit.graph import DType
from qtoolkit.pipeline import load
from qtoolkit.program import capture, import_program, run_float

X = torch.linspace(-1, 1, 48).reshape(1, 3, 4, 4)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3, padding=1)
        self.norm = nn.BatchNorm2d(2)
        self.act = nn.ReLU6(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.norm(self.conv(x))).flatten(1)


def test_a_captured_graph_reads_as_its_golden_text() -> None:
    check("capture_net", capture(Net().eval(), X).text())


def test_an_in_place_op_becomes_its_functional_twin_under_the_same_name() -> None:
    graph = capture(Net().eval(), X)
    assert graph["hardtanh_"].op == "aten.hardtanh.default"


def test_every_node_knows_its_module_and_its_line() -> None:
    graph = capture(Net().eval(), X)
    assert (graph["conv2d"].where.module, graph["batch_norm"].where.module) == ("conv", "norm")
    assert graph["conv2d"].where.source.startswith("test_program.py:")
    assert graph["conv2d"].origin == ("conv2d",)


def test_the_float_run_keeps_every_value_as_torch_computed_it() -> None:
    net = Net().eval()
    run = run_float(net, X)
    assert run.backend == "torch" and set(run.seconds) <= set(run.values)
    with torch.no_grad():
        conv = net.conv(X)
        assert np.array_equal(run["conv2d"], conv.numpy())
        # The in-place activation must not overwrite what came before it.
        assert np.array_equal(run["batch_norm"], net.norm(conv).numpy())
        assert np.array_equal(run.outputs[0], net(X).numpy())


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + 1


class Writer(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2


def test_a_write_to_a_buffer_names_node_and_buffer() -> None:
    with pytest.raises(CaptureError, match=r"%add_: .* writes buffer 'count'"):
        capture(Counter().eval(), X)


def test_a_write_to_an_input_is_refused() -> None:
    with pytest.raises(CaptureError, match="%add_.*x"):
        capture(Writer().eval(), X)


def test_training_mode_is_refused_with_the_remedy() -> None:
    with pytest.raises(CaptureError, match=r"call \.eval\(\)"):
        capture(Net(), X)


def test_what_torch_cannot_export_is_one_line() -> None:
    class Branching(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if bool((x.sum() > 0).item()) else -x

    with pytest.raises(CaptureError, match="Branching: torch cannot export it") as caught:
        capture(Branching().eval(), X)
    assert "\n" not in str(caught.value)


def test_a_dynamic_dimension_is_refused_by_name() -> None:
    batch = torch.export.Dim("batch", min=2, max=8)
    program = torch.export.export(
        nn.Linear(4, 4).eval(), (torch.zeros(3, 4),), dynamic_shapes=({0: batch},)
    )
    with pytest.raises(ShapeError, match="dynamic"):
        import_program(program)


def test_any_op_imports_and_several_results_are_read_by_getitem() -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            values, indices = torch.topk(torch.erfinv(x), 2)
            return values, indices, x, values

    graph = capture(Odd().eval(), X)
    assert graph["topk"].types[1].dtype is DType.INT64
    assert graph.counts()["getitem"] == 2
    assert graph.outputs[0] == graph.outputs[3]


def test_a_pt2_comes_back_as_the_same_graph(tmp_path: Path) -> None:
    program = torch.export.export(Net().eval(), (X,))
    torch.export.save(program, tmp_path / "net.pt2")
    assert load(tmp_path / "net.pt2").text() == import_program(program).text()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"not a zip at all"])
def test_a_corrupt_pt2_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.pt2"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"bad\.pt2: torch cannot read") as caught:
        load(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(BadInput, match="no such file"):
        load(tmp_path / "none.pt2")
