"""ExecuTorch's own placement, live: it answers what it answered when it was recorded."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from random_placements import random_graph

from qtoolkit.errors import BadInput, MissingDependency, PlacementError
from qtoolkit.interop.executorch import live

TESTS = Path(__file__).parent
RECORDINGS = TESTS / "peer" / "placement"
if not RECORDINGS.is_dir():
    RECORDINGS = TESTS.parents[1] / "shared" / "peer" / "placement"

needs_executorch = pytest.mark.skipif(live.available() is not None, reason=str(live.available()))

Recorded = dict[str, Any]


def recorded() -> dict[str, Recorded]:
    """Every recorded delegate, by model and number."""
    return {
        f"{path.stem}[{i}]": delegate
        for path in sorted(RECORDINGS.glob("*.json"))
        for i, delegate in enumerate(json.loads(path.read_text())["delegates"])
    }


def value(name: str, op: str, target: str, *args: Any) -> Recorded:
    """A node of one float tensor, 1 x 3 x 4 x 5."""
    val = {"shape": [1, 3, 4, 5], "dtype": "float32"}
    return {"name": name, "op": op, "target": target, "args": list(args), "val": val}


def graph(*ops: Recorded) -> Recorded:
    """A graph of one input x and the ops, the last of which is the output."""
    last = ops[-1]
    out = value("output", "output", "output", [{"n": last["name"]}]) | {"val": [last["val"]]}
    nodes = [value("x", "placeholder", "x"), *ops, out]
    return {"texture_limits": [64, 64, 32], "force_fp16": False, "pre": {"nodes": nodes}}


def by_name(answer: Recorded) -> dict[str, Recorded]:
    return {node["name"]: node for node in answer["post"]["nodes"]}


@needs_executorch
@pytest.mark.slow
def test_the_recordings_come_back_equal() -> None:
    wanted = recorded()
    assert len(wanted) >= 15
    answers = live.place(list(wanted.values()))
    for (name, delegate), answer in zip(wanted.items(), answers, strict=True):
        assert answer.get("error") is None, name
        assert answer["post"] == delegate["post"], name
        assert answer["transitions"] == delegate["transitions"], name
        assert answer["tag_seconds"] > 0


@needs_executorch
@pytest.mark.slow
def test_one_bad_graph_is_an_error_and_the_rest_go_on() -> None:
    relu = value("relu", "call_function", "aten::relu", {"n": "x"})
    unknown = value("no", "call_function", "nowhere::nothing", {"n": "x"})
    undefined = value("no", "call_function", "aten::there_is_no_such_op", {"n": "x"})
    # Upstream itself: a getitem of what has no representation.
    raising = value("item", "call_function", "getitem", {"n": "x"}, 0)
    good, *bad, after = live.place(
        [graph(relu), graph(unknown), graph(undefined), graph(raising), graph(relu)], repeat=2
    )
    assert [sorted(answer) for answer in bad] == [["error"]] * 3
    assert "nowhere::nothing" in bad[0]["error"]
    assert "aten::there_is_no_such_op" in bad[1]["error"]
    assert good["post"] == after["post"]
    assert by_name(good)["relu"]["repr"] == ["TEXTURE_3D", "TENSOR_WIDTH_PACKED"]


@needs_executorch
@pytest.mark.slow
def test_an_op_that_reads_one_value_twice_in_two_storages_gets_one_copy_for_both() -> None:
    """What upstream does with grid_sampler_2d(x, x): the copy for arg 1 takes arg 0's place too."""
    x = {"n": "x"}
    relu = value("relu", "call_function", "aten::relu", x)
    grid = value("grid", "call_function", "aten::grid_sampler_2d", {"n": "relu"}, {"n": "relu"})
    grid["args"] += [0, 0, False]
    (answer,) = live.place([graph(relu, grid)])
    assert by_name(answer)["relu"]["repr"] == ["TEXTURE_3D", "TENSOR_CHANNELS_PACKED"]
    assert [t["to"] for t in answer["transitions"]] == [["BUFFER", "TENSOR_WIDTH_PACKED"]]
    assert by_name(answer)["grid"]["args"][:2] == [{"n": "aten_clone_default"}] * 2


@needs_executorch
@pytest.mark.slow
def test_upstream_places_random_graphs_without_an_error_or_an_empty_choice() -> None:
    graphs = [random_graph(seed) for seed in range(40)]
    graphs += [random_graph(seed, any_order=True) for seed in range(40, 60)]
    answers = live.place(graphs)
    assert [answer["error"] for answer in answers if "error" in answer] == []
    assert "DEFAULT_STORAGE" not in json.dumps(answers)
    assert sum(bool(answer["transitions"]) for answer in answers) > 30


@needs_executorch
@pytest.mark.slow
def test_a_lowered_mlp_is_one_delegate_and_equals_its_placement(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    mlp = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    file = tmp_path / "mlp.pt2"
    torch.export.save(torch.export.export(mlp.eval(), (torch.randn(2, 7),)), file)
    recording = live.lower(file, texture_limits=(2048, 2048, 2048), force_fp16=True)
    assert recording["model"] == "mlp"
    assert recording["partition"] == {"n_delegates": 1, "undelegated": []}
    (delegate,) = recording["delegates"]
    assert delegate["texture_limits"] == [2048, 2048, 2048]
    assert delegate["force_fp16"] is True
    (answer,) = live.place([delegate])
    assert answer["post"] == delegate["post"]
    assert answer["transitions"] == delegate["transitions"]


@needs_executorch
@pytest.mark.slow
def test_what_stays_undelegated_has_upstreams_reason_and_readers_keep_their_order(
    tmp_path: Path,
) -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 5, 3)
            self.offset = torch.nn.Parameter(torch.randn(5, 1, 1))

        def forward(self, x: Any) -> Any:
            y = self.conv(x)
            return torch.cumsum((y + self.offset) * torch.tanh(y), 1)

    file = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(Net().eval(), (torch.randn(1, 3, 7, 7),)), file)
    recording = live.lower(file)
    assert recording["partition"]["undelegated"] == [
        {
            "target": "aten::cumsum",
            "name": "aten_cumsum_default",
            "reason": "no operator implementation",
        }
    ]
    (delegate,) = recording["delegates"]
    conv = next(n for n in delegate["pre"]["nodes"] if n["target"] == "aten::convolution")
    # The prepacked offset made the add a new reader, the last one.
    assert conv["users"] == ["aten_tanh_default", "aten_add_tensor"]
    (answer,) = live.place([delegate])
    assert answer["post"] == delegate["post"]


@needs_executorch
@pytest.mark.slow
def test_a_failed_process_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.pt2"
    file.write_bytes(b"no program")
    with pytest.raises(PlacementError, match="the process ended with 1: ") as caught:
        live.lower(file)
    assert "\n" not in str(caught.value)


@needs_executorch
def test_a_process_that_takes_too_long_is_ended() -> None:
    with pytest.raises(PlacementError, match="no answer within 0.1 s"):
        live.place([], timeout_s=0.1)


def test_a_missing_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        live.lower(tmp_path / "nothing.pt2")


def test_without_executorch_the_pip_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    reason = live.available()
    assert reason is not None and live.PIP in reason
    with pytest.raises(MissingDependency, match="pip install 'qtoolkit\\[executorch\\]'"):
        live.place([])


def test_a_seed_makes_one_graph() -> None:
    assert random_graph(5) == random_graph(5)
    assert random_graph(5) != random_graph(6)
