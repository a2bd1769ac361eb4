"""report.json: what an exploration found, under keys that other tools build on."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from qtoolkit.doctor import versions
from qtoolkit.exploration import Exploration, NodeSummary, mean_sqnr_db

FORMAT = 1


def to_json(exploration: Exploration) -> dict[str, Any]:
    """The content of report.json: only what JSON can hold, no NaN and no infinity.

    top1 lists one class per entry of `images`; it is null where nothing was run. equal is false
    for a backend that did not run.
    """
    e = exploration
    count, size = e.transitions
    return {
        "format": FORMAT,
        "model": e.name,
        "weights": e.weights,
        "versions": versions(),
        "devices": dict(e.devices),
        "images": [name for name, _ in e.model.evaluation],
        "data": {"source": e.model.data_source, "samples": len(e.model.calibration)},
        "top1": {key: _top1(e, key) for key in ("float", *e.backends)},
        "ops": e.compiled.counts(),
        "left_float": [{"node": n.node, "where": n.where, "why": n.why} for n in e.left_float],
        "transitions": {"count": count, "bytes": size},
        "equal": {b: bool(e.equal.get(b, False)) for b in e.backends},
        "compared": {b: _compared(e, b) for b in e.backends},
        "first_difference": None if e.first_difference is None else dict(e.first_difference),
        "nodes": [_node(n) for n in e.nodes],
        "also": _also(e),
        "seconds": dict(e.seconds),
        "mean_sqnr_db": mean_sqnr_db(e.nodes),
        "output_sqnr_db": {
            key: [i.output_sqnr_db[key] for i in e.images] for key in granularities(e)
        },
        "accuracy": None if e.accuracy is None else dict(e.accuracy),
        "refused": e.refused,
        "unavailable": dict(e.unavailable),
        "storage": e.storage,
        "in_buffers": [{"node": s.node, "why": s.reason} for s in e.in_buffers],
        "notes": [{"kind": s.kind, "node": s.node, "why": s.reason} for s in e.notes],
    }


def dumps(record: Mapping[str, Any]) -> str:
    """The record as strict JSON text."""
    return json.dumps(record, allow_nan=False, indent=1) + "\n"


def granularities(e: Exploration) -> tuple[str, ...]:
    """The granularity looked at closely, and the other one where there is one."""
    return (e.weights,) if e.other is None else (e.weights, e.other)


def _also(e: Exploration) -> dict[str, Any]:
    if e.other is None:
        return {}
    return {e.other: {"top1": _top1(e, e.other), "mean_sqnr_db": mean_sqnr_db(e.other_nodes)}}


def _top1(e: Exploration, key: str) -> list[int] | None:
    return [int(image.top1[key]) for image in e.images] if e.images else None


def _compared(e: Exploration, backend: str) -> dict[str, Any]:
    found = e.compared.get(backend)
    if found is None:
        why = "nothing was run"
        missing = [{"node": n.name, "why": why} for n in e.traces[backend].result.nodes]
        return {"nodes": 0, "missing": missing, "elements": 0}
    missing = [asdict(m) for m in found.missing]
    return {"nodes": found.nodes, "missing": missing, "elements": found.elements}


def _node(n: NodeSummary) -> dict[str, Any]:
    return asdict(n) | {"origin": list(n.origin)}
