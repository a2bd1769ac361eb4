"""Costs measured on a device: which lines there are, how they are fitted, stored and read back."""

import json
import os
import subprocess
import sys
from itertools import permutations, product
from math import isfinite, prod
from pathlib import Path

import numpy as np
import pytest

from qtoolkit import backends, bench
from qtoolkit.backends.vulkan import KERNELS, opened
from qtoolkit.bench.cases import cases
from qtoolkit.errors import BadInput, FormatError, UnknownName
from qtoolkit.layout import Layout, Storage, TensorRepr
from qtoolkit.ops import OPS
from qtoolkit.ops.examples import one_node
from qtoolkit.passes.place import CostModel
from qtoolkit.passes.place.cost import Line

PACKED = (Layout.CHANNELS, Layout.WIDTH, Layout.HEIGHT)
EVERY = tuple(TensorRepr(s, m) for s, m in product(Storage, PACKED))
TEXTURE = TensorRepr(Storage.TEXTURE_3D, Layout.CHANNELS)
BY_SHADERS = tuple(op for op, listed in KERNELS.items() if len(listed) > 1)


@pytest.fixture(scope="module")
def measured() -> CostModel:
    return bench.measure(quick=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(bench, "user_data_path", lambda name: tmp_path / name)
    return tmp_path


def admitted(op: str) -> set[TensorRepr]:
    """What shaders admit for result 0 of an op in any example that leaves a choice."""
    found: set[TensorRepr] = set()
    for example in OPS[op].examples():
        graph, _ = one_node(OPS[op], example)
        for kernel in KERNELS[op][:-1]:
            if kernel.why_not(graph["y"], graph) is None:
                repset = kernel.reps(graph["y"], graph).outputs[0]
                found |= set(repset) if len(repset) > 1 else set()
    return found


def test_every_copy_is_measured_in_both_storages(measured: CostModel) -> None:
    assert set(measured.copies) == set(permutations(EVERY, 2))
    assert {(a.storage, b.storage) for a, b in measured.copies} == set(product(Storage, Storage))
    assert (measured.unit, measured.slope > 0) == ("µs", True)
    assert measured.name == f"measured on {opened().info.name}, driver {opened().info.driver}"


def test_every_op_of_shaders_is_measured_wherever_its_result_may_lie(measured: CostModel) -> None:
    lines: dict[str, set[TensorRepr]] = {}
    for op, r in measured.operations:
        lines.setdefault(op, set()).add(r)
    assert set(lines) == set(BY_SHADERS) - {"transition", "getitem"}
    for op, there in lines.items():
        assert admitted(op) <= there, op


def test_times_are_finite_and_not_negative(measured: CostModel) -> None:
    for line in (*measured.copies.values(), *measured.operations.values()):
        assert isfinite(line.fixed) and isfinite(line.slope)
        assert line.fixed >= 0 and line.slope >= 0
    assert all(line.at(2**20) > 0 for line in measured.copies.values())
    assert measured.operations["q8_conv2d", TEXTURE].at(2**20) > 0
    # Aliases run nothing.
    assert measured.operations["aten.clone.default", TEXTURE] == Line(0, 0)


def test_cases_grow_up_to_the_limit_of_textures_and_no_further() -> None:
    kernels = backends.kernels("vulkan")
    for op in BY_SHADERS:
        for limit in (256, 4096):
            found = list(cases(op, kernels, bench.GROWN, limit))
            sizes = [case.nbytes for case in found]
            assert all(case.extent <= limit for case in found), op
            assert len(set(sizes)) > 1 or op in ("transition", "getitem"), op


@pytest.mark.parametrize("nbytes", bench.COPIED)
@pytest.mark.parametrize("itemsize", [1, 4])
def test_copied_tensors_are_whole_texels_that_every_device_holds(
    nbytes: int, itemsize: int
) -> None:
    shape = bench._copied_shape(nbytes // itemsize)
    assert prod(shape) * itemsize == nbytes
    assert max(shape) <= 256 and all(size % 4 == 0 for size in shape[1:])


def test_a_line_is_found_again() -> None:
    line = Line(30.0, 0.002)
    found = bench.fit([(n, line.at(n)) for n in (1024, 16384, 2**22)])
    assert np.allclose((found.fixed, found.slope), (30.0, 0.002), rtol=1e-6)


def test_two_kinds_of_one_size_give_their_mean() -> None:
    sizes = (1024, 16384, 2**22)
    points = [(n, Line(5.0, slope).at(n)) for slope in (0.01, 0.03) for n in sizes]
    found = bench.fit(points)
    assert np.allclose((found.fixed, found.slope), (5.0, 0.02), rtol=1e-3)


@pytest.mark.parametrize(
    ("points", "told"),
    [
        ([(1000, 50.0), (2000, 40.0)], "falls"),
        ([(1000, 1.0), (2000, 5.0)], "steep"),
        ([(1000, 10.0), (1000, 30.0)], "one size"),
        ([(1000, 0.0), (2000, 0.0)], "nothing"),
    ],
)
def test_no_line_is_negative(points: list[tuple[int, float]], told: str) -> None:
    line = bench.fit(points)
    wanted = {
        "falls": line.slope == 0 and 40 <= line.fixed <= 50,
        "steep": line.fixed == 0 and 0.001 <= line.slope <= 0.0025,
        "one size": line == Line(0.0, 0.02),
        "nothing": line == Line(0.0, 0.0),
    }
    assert wanted[told], line


def test_a_stored_model_is_read_back(measured: CostModel, home: Path) -> None:
    assert bench.stored() is None
    path = bench.store(measured)
    assert path.parent == home / "qtoolkit" / "costs" and list(path.parent.iterdir()) == [path]
    assert bench.stored() == bench.stored(opened().info.index) == measured
    bench.store(measured)
    assert list(path.parent.iterdir()) == [path]


def test_a_model_of_another_device_or_driver_is_not_read(home: Path) -> None:
    name = f"measured on {opened().info.name}, driver of yesterday"
    bench.store(CostModel(name, "µs", 0.5))
    assert bench.stored() is None


@pytest.mark.parametrize(
    ("text", "told"),
    [('{"format": 2}', "of format 2"), ("[]", "not a saved"), ("{", "cannot be read as JSON")],
)
def test_a_stored_file_of_another_format_is_an_error(
    text: str, told: str, measured: CostModel, home: Path
) -> None:
    bench.store(measured).write_text(text)
    with pytest.raises(FormatError, match=told):
        bench.stored()


def test_only_what_was_measured_is_stored_and_only_where_it_can_be(
    measured: CostModel, home: Path
) -> None:
    with pytest.raises(BadInput, match="'default model' was not measured"):
        bench.store(CostModel())
    path = bench.store(measured)
    path.unlink()
    path.mkdir()
    with pytest.raises(BadInput, match="cannot be written"):
        bench.store(measured)
    assert list(path.parent.iterdir()) == [path], "what was half written stays behind"


def test_a_device_that_is_not_there_is_an_error() -> None:
    for call in (bench.measure, bench.stored):
        with pytest.raises(UnknownName, match="Vulkan device 'abacus'"):
            call("abacus")


def test_nothing_is_stored_for_a_machine_without_a_device(tmp_path: Path) -> None:
    code = (
        "from qtoolkit import bench, errors\n"
        "assert bench.stored() is None\n"
        "try:\n    bench.measure()\n"
        "except errors.MissingDependency as why:\n    print(why)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "VK_ICD_FILENAMES": "/nonexistent", "XDG_DATA_HOME": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "no Vulkan driver" in done.stdout


def test_the_table_has_a_row_for_each_line(measured: CostModel) -> None:
    rows = bench.table(measured)
    assert list(rows.columns) == ["kind", "what", "from", "to", "fixed µs", "µs/KiB"]
    assert len(rows) == len(measured.copies) + len(measured.operations)
    first = rows.iloc[0]
    line = measured.copies[TensorRepr.parse(first["from"]), TensorRepr.parse(first["to"])]
    assert (first["fixed µs"], first["µs/KiB"]) == (line.fixed, line.slope * 1024)
    assert (first["kind"], first["what"]) == ("copy", "transition")
    assert bench.table(CostModel()).empty


def test_a_model_holds_nothing_but_lines_and_the_names_of_device_and_driver(
    measured: CostModel, home: Path
) -> None:
    told = json.loads(bench.store(measured).read_text())
    assert set(told) == {"format", "name", "unit", "slope", "copies", "operations"}
    assert CostModel.from_json(told) == measured
