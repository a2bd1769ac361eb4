"""Our placement by ExecuTorch's table beside ExecuTorch's own: recorded runs, random graphs."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from random_placements import random_graph

import qtoolkit as qt
from qtoolkit.cli import main
from qtoolkit.errors import FormatError, NoRepresentation, UnknownName
from qtoolkit.interop.executorch import live
from qtoolkit.interop.executorch.recorded import load_recorded, read_delegate
from qtoolkit.interop.executorch.table import TABLES, table
from qtoolkit.layout import RepSet, members
from qtoolkit.passes.place.form import executorch_order
from qtoolkit.placement.eyes import differences

FOLDER = Path(__file__).parent / "peer" / "placement"
RECORDED = sorted(FOLDER.glob("*.json"))
TABLE = "executorch-1.5.1"
GRAPHS = 2000


def test_there_are_twelve_recordings() -> None:
    assert len(RECORDED) == 12


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.stem)
def test_a_recording_reproduces_exactly(path: Path) -> None:
    for delegate in load_recorded(path):
        placed = qt.place(delegate, TABLE)
        assert delegate.outcome is not None
        assert differences(placed, delegate.outcome) == ()


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.stem)
def test_the_command_gives_the_recorded_placement_as_json(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = json.loads(path.read_text())
    # Only what went in may be read.
    kept = ("pre", "texture_limits", "force_fp16")
    blind = {"delegates": [{k: d[k] for k in kept} for d in recorded["delegates"]]}
    file = tmp_path / "run.json"
    file.write_text(json.dumps(blind))
    assert main(["place", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["format"] == 1 and len(told["delegates"]) == len(recorded["delegates"])
    for mine, theirs in zip(told["delegates"], recorded["delegates"], strict=True):
        places = {n["name"]: n.get("repr") for n in theirs["post"]["nodes"]}
        assert [n["name"] for n in mine["nodes"]] == [n["name"] for n in theirs["pre"]["nodes"]]
        for node, before in zip(mine["nodes"], theirs["pre"]["nodes"], strict=True):
            assert node["target"] == before["target"]
            assert node["repr"] == listed(places[node["name"]])
        copies = {(t["source"], *t["from"], *t["to"]): t for t in mine["transitions"]}
        assert len(copies) == len(mine["transitions"]) == len(theirs["transitions"])
        for t in theirs["transitions"]:
            copy = copies[t["src"], *t["from"], *t["to"]]
            assert (copy["bytes"], copy["users"]) == (t["bytes"], t["users"])
        moved = sum(t["bytes"] for t in theirs["transitions"])
        assert mine["cost"]["transitions"] == moved and mine["cost"]["unit"] == "bytes"


def listed(told: Any) -> Any:
    """A recorded representation as a list of one for each result."""
    return told if told is None or isinstance(told[0], list) else [told]


@pytest.mark.slow
def test_2000_random_graphs_are_placed_as_by_the_live_pass() -> None:
    missing = live.available()
    if missing is not None:
        pytest.skip(missing)
    graphs = [random_graph(seed, any_order=bool(seed % 4 == 3)) for seed in range(GRAPHS)]
    count: Counter[str] = Counter()
    for graph, answer in zip(graphs, live.place(graphs), strict=True):
        delegate = read_delegate(graph)
        if "error" in answer:
            with pytest.raises(NoRepresentation):
                qt.place(delegate, TABLE)
            count["refused by both"] += 1
            continue
        placed = qt.place(delegate, TABLE)
        found = differences(placed, answer)
        assert not found, "\n".join(map(str, found))
        targets = {n["target"] for n in graph["pre"]["nodes"]}
        count["equal"] += 1
        count["with transitions"] += bool(placed.copies)
        count["with cat"] += "aten::cat" in targets
        count["with several results"] += "getitem" in targets
        count["with half precision"] += bool(graph["force_fp16"])
        count["with tight limits"] += max(graph["texture_limits"]) < 2048
    assert count["equal"] >= 0.99 * GRAPHS
    for kind in ("transitions", "cat", "several results", "half precision", "tight limits"):
        assert count[f"with {kind}"] > GRAPHS / 10, count


def test_the_table_has_all_157_operators() -> None:
    assert len(table(TABLE).ops) == 157
    assert set(TABLES) == {TABLE, "executorch-0dd42c465d", "executorch-pr12616"}


@pytest.mark.parametrize(
    ("layouts", "first"),
    [((0, 1, 2), 0), ((3, 4, 5, 8, 9), 3), ((3, 8, 9), 8), ((3, 8), 8), ((3, 9), 9), ((8, 9), 8)],
)
def test_of_a_set_the_layout_is_picked_that_cpython_meets_first(
    layouts: tuple[int, ...], first: int
) -> None:
    """Checked against a set of CPython, which is what ExecuTorch iterates over."""
    chosen = RepSet(r for r in members(-1) if r.storage == 0 and r.layout in layouts)
    assert next(iter(set(layouts))) == first
    assert executorch_order(chosen)[0].layout == first
    assert [int(r.layout) for r in executorch_order(chosen)] == list(set(layouts))


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("[1]", "it has no list 'delegates'"),
        ("{", "cannot be read as JSON"),
        ('{"delegates": [{"pre": {}}]}', "delegate 0: not as recorded runs are"),
        ('{"delegates": [7]}', "delegate 0: not as recorded runs are"),
    ],
)
def test_a_file_that_is_no_recording_is_refused_in_one_line(
    told: str, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.json"
    file.write_text(told)
    with pytest.raises(FormatError, match=why):
        load_recorded(file)


def test_a_symbolic_size_is_nothing_to_place() -> None:
    def val(*shape: int) -> dict[str, Any]:
        return {"shape": list(shape), "dtype": "float32"}

    def call(name: str, target: str, args: list[Any], val: Any) -> dict[str, Any]:
        return {"name": name, "op": "call_function", "target": target, "args": args, "val": val}

    x = {"name": "x", "op": "placeholder", "target": "x", "args": [], "val": val(2, 3, 4)}
    size = call("size", "aten::sym_size.int", [{"n": "x"}, 0], None)
    view = call("view", "aten::view_copy", [{"n": "x"}, [{"n": "size"}, 12]], val(2, 12))
    end = {"name": "output", "op": "output", "target": "output", "args": [{"n": "view"}], "val": []}
    told = {"texture_limits": [64, 64, 64], "pre": {"nodes": [x, size, view, end]}}
    placed = qt.place(read_delegate(told), TABLE)
    assert placed.of("size") is None
    assert placed.of("x") == placed.of("view") is not None


def test_the_optimal_policy_is_refused_for_proposals() -> None:
    delegate = load_recorded(RECORDED[0])[0]
    with pytest.raises(UnknownName, match="use it with engine=repsets"):
        qt.place(delegate, TABLE, qt.PlaceRules.proposals(), "optimal")
