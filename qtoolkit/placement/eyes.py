"""A placement beside ExecuTorch's own of the same graph: every difference, node by node."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from qtoolkit.interop.executorch.table import read_repr
from qtoolkit.layout import TensorRepr
from qtoolkit.placement import Placement


@dataclass(frozen=True, slots=True)
class Difference:
    """One node, or one transition of a value, that two placements have otherwise."""

    node: str
    what: str
    ours: str
    theirs: str

    def __str__(self) -> str:
        return f"%{self.node}: {self.what} {self.ours} here, {self.theirs} in ExecuTorch"


def differences(ours: Placement, outcome: Mapping[str, Any]) -> tuple[Difference, ...]:
    """What differs from a recorded outcome: representations, then transitions.

    A copy that ExecuTorch makes of a copy is compared as one of the value itself.
    """
    return (*_representations(ours, outcome), *_transitions(ours, outcome))


def _representations(ours: Placement, outcome: Mapping[str, Any]) -> Iterator[Difference]:
    for told in outcome["post"]["nodes"]:
        name = str(told["name"])
        if name not in ours.graph:
            continue
        mine, theirs = _words(ours.of(name)), _words(_read(told.get("repr")))
        if mine != theirs:
            yield Difference(name, "lies in", mine, theirs)


def _transitions(ours: Placement, outcome: Mapping[str, Any]) -> Iterator[Difference]:
    made = {str(t["name"]): str(t["src"]) for t in outcome["transitions"]}

    def source(name: str) -> str:
        while name in made:
            name = made[name]
        return name

    mine = sorted((c.value.node, str(c.has), str(c.wants)) for c in ours.copies)
    theirs = sorted(
        (source(str(t["src"])), str(read_repr(t["from"])), str(read_repr(t["to"])))
        for t in outcome["transitions"]
    )
    for node in sorted({key[0] for key in (*mine, *theirs)}):
        here = ", ".join(f"{a} -> {b}" for n, a, b in mine if n == node) or "none"
        there = ", ".join(f"{a} -> {b}" for n, a, b in theirs if n == node) or "none"
        if here != there:
            yield Difference(node, "transitions", here, there)


def _read(told: Any) -> tuple[TensorRepr, ...] | None:
    if told is None:
        return None
    listed = told if isinstance(told[0], list) else [told]
    return tuple(read_repr(r) for r in listed)


def _words(reps: tuple[TensorRepr, ...] | None) -> str:
    return "nowhere" if reps is None else ", ".join(map(str, reps))
