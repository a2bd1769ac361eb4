"""How long placement takes, ours beside ExecuTorch's own pass in the same run, by family of graphs.

    python benchmarks/passes.py [--json] [--full]

A node is one of the graph as handed over: inputs, constants and the output count on both sides.
Upstream runs in a process of its own, where `executorch` is installed; both keep the best of
several rounds, ours with every step kept. Without --full it ends within 240 s on two cores.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from families import FAMILIES, Json

from qtoolkit.interop.executorch import live
from qtoolkit.interop.executorch.recorded import Delegate, read_delegate
from qtoolkit.interop.executorch.table import table
from qtoolkit.layout import Reps, RepSet
from qtoolkit.passes.place import place
from qtoolkit.passes.rules import PlaceRules
from qtoolkit.trace import Step, run_pass

OPS = (100, 1000, 5000, 20000)
TABLE = table("executorch-1.5.1")
RULES = {"default": PlaceRules(), "executorch": PlaceRules.executorch()}
# The machine's speed changes in the course of minutes: both sides are measured in each round.
ROUNDS = 2
REPEATS = {100: 20, 1000: 4, 5000: 1, 20000: 1}
Key = tuple[str, int, str]
Peer = tuple[str, int]


def ours(delegate: Delegate, rules: PlaceRules, repeats: int) -> tuple[float, float]:
    """Seconds of the pass, the best of several runs, and the bytes of its trace for each step."""
    best = float("inf")
    for _ in range(repeats):
        ran = run_pass("place", lambda g: place(g, TABLE, rules, delegate.limits), delegate.graph)
        best = min(best, ran.seconds)
    return best, bytes_per_step(ran.steps)


def bytes_per_step(steps: Sequence[Step]) -> float:
    """What steps keep alive, each: tuples, representations, words and numbers, counted once."""
    seen: set[int] = set()
    total = 0
    todo: list[object] = list(steps)
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        if isinstance(each, tuple):
            todo += each
        elif isinstance(each, Reps):
            todo += (each.inputs, each.outputs, each.ties)
        elif isinstance(each, RepSet):
            todo += (each.reprs, each.mask)
    return total / len(steps)


def upstream(graphs: Sequence[Json]) -> list[float | None]:
    """Seconds of ExecuTorch's pass on each graph; None where it is not installed."""
    missing = live.available()
    if missing is not None:
        print(f"without upstream's figures: {missing}", file=sys.stderr)
        return [None] * len(graphs)
    answers = live.place(graphs, repeat=1, timeout_s=3600)
    return [float(answer["tag_seconds"]) for answer in answers]


def measured(full: bool) -> tuple[dict[Key, float], dict[Peer, float], dict[Key, float]]:
    """Seconds of ours and upstream's passes, in rounds that alternate, and bytes for each step."""
    graphs = {(family, ops): FAMILIES[family](ops) for ops in OPS for family in FAMILIES}
    delegates = {key: read_delegate(told) for key, told in graphs.items()}
    most = 5000 if full else 1000
    compared = [key for key in graphs if key[1] <= most]
    best: dict[Key, float] = {}
    theirs: dict[Peer, float] = {}
    kept: dict[Key, float] = {}
    for _ in range(ROUNDS):
        for key, seconds in zip(compared, upstream([graphs[k] for k in compared]), strict=True):
            if seconds is not None:
                theirs[key] = min(seconds, theirs.get(key, seconds))
        for key, delegate in delegates.items():
            for name, rules in RULES.items():
                row = (*key, name)
                seconds, kept[row] = ours(delegate, rules, REPEATS[key[1]])
                best[row] = min(seconds, best.get(row, seconds))
    return best, theirs, kept


def rows(full: bool) -> Iterator[dict[str, Any]]:
    """A row for each family, rules and number of ops."""
    best, theirs, kept = measured(full)
    for family, make in FAMILIES.items():
        for name in RULES:
            for ops in OPS:
                nodes = len(make(ops)["pre"]["nodes"])
                peer = theirs.get((family, ops))
                yield {
                    "family": family,
                    "rules": name,
                    "ops": ops,
                    "nodes": nodes,
                    "us_per_node": 1e6 * best[family, ops, name] / nodes,
                    "upstream_us_per_node": None if peer is None else 1e6 * peer / nodes,
                    "trace_bytes_per_step": kept[family, ops, name],
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--full", action="store_true", help="upstream at 5 000 ops too (minutes)")
    given = parser.parse_args()
    found = []
    if not given.json:
        print(
            f"{'family':<16}{'rules':<12}{'ops':>6}{'µs/node':>10}{'upstream':>10}{'×':>7}{'B/step':>8}"
        )
    for row in rows(given.full):
        found.append(row)
        if not given.json:
            mine, theirs = row["us_per_node"], row["upstream_us_per_node"]
            peer = f"{theirs:10.1f}{theirs / mine:7.1f}" if theirs else f"{'':17}"
            print(f"{row['family']:<16}{row['rules']:<12}{row['ops']:>6}{mine:10.1f}{peer}"
                  f"{row['trace_bytes_per_step']:8.0f}", flush=True)  # fmt: skip
    if given.json:
        print(json.dumps({"format": 1, "rows": found}, indent=1))


if __name__ == "__main__":
    main()
