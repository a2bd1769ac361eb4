"""The benchmark of placement gives the rows it promises; how fast is not asked here."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import qtoolkit as qt
from qtoolkit.interop.executorch.recorded import read_delegate

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import passes
from families import FAMILIES, convolutions, residual

TIMES = {"us_per_node", "upstream_us_per_node", "trace_bytes_per_step"}
KEYS = {"family", "rules", "ops", "nodes"} | TIMES


def test_rows_have_the_stated_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(graphs: list[Any]) -> list[None]:
        return [None] * len(graphs)

    monkeypatch.setattr(passes, "OPS", (100, 1000))
    monkeypatch.setattr(passes, "REPEATS", {100: 1, 1000: 1})
    monkeypatch.setattr(passes, "ROUNDS", 1)
    monkeypatch.setattr(passes, "upstream", none)
    found = list(passes.rows(full=False))
    assert len(found) == len(FAMILIES) * 2 * 2
    for row in found:
        assert set(row) == KEYS and row["upstream_us_per_node"] is None
        assert row["nodes"] > row["ops"] and row["us_per_node"] > 0
        assert 0 < row["trace_bytes_per_step"] < 1000


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_as_many_ops_as_asked_for(family: str) -> None:
    for ops in (50, 200):
        calls = [n for n in FAMILIES[family](ops)["pre"]["nodes"] if n["op"] == "call_function"]
        assert ops <= len(calls) < ops + 30


def test_the_steps_of_a_large_graph_stay_below_a_kilobyte_each() -> None:
    delegate = read_delegate(FAMILIES["transformer"](5000))
    steps = qt.place(delegate, "executorch-1.5.1").trace.steps
    assert len(steps) > 5000 and passes.bytes_per_step(steps) < 1000


@pytest.mark.parametrize("make", [residual, convolutions], ids=["elementwise", "convolutions"])
def test_a_residual_graph_of_2000_ops_is_proved_optimal_within_ten_seconds(
    make: Callable[[int], Any],
) -> None:
    delegate = read_delegate(make(2000))
    placed = qt.place(delegate, "executorch-1.5.1", policy="optimal", seconds=10.0)
    assert len(placed.graph.nodes) > 2000 and placed.bound == pytest.approx(placed.cost.total)
