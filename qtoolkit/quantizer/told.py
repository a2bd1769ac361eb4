"""What the quantizer tells of itself: the patterns it annotated, the ranges it observed."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import fx

from qtoolkit.passes.qdq import short
from qtoolkit.quantizer.annotate import Int8Quantizer
from qtoolkit.trace import NO_EDIT, Step


def annotated(quantizer: Int8Quantizer) -> Iterator[Step]:
    """A step for each pattern: an op that works on int8, with the activation it takes in."""
    plan, weighted = quantizer.plan, quantizer.parameters
    taken = {reader for node in plan.folded for reader in node.users}
    for node in plan.nodes:
        if node in taken:
            continue
        words = [short(str(node.target))]
        if node in plan.folded:
            words += [short(str(reader.target)) for reader in node.users]
        yield Step(
            NO_EDIT, "annotated", node.name,
            ("{}: {}", " + ".join(words), _how(quantizer, node, node in weighted)),
        )  # fmt: skip


def observed(quantizer: Int8Quantizer, batches: int, called: Mapping[str, str]) -> tuple[Step, ...]:
    """A step for each range: what was seen, its qparams, and the values that share it.

    called: other names for some values, since torch renames inputs. Call it after calibration.
    """
    found: dict[int, tuple[Any, dict[str, None]]] = {}
    ranges = {id(o) for o in quantizer.ranges()}
    for place, observer in quantizer.observers.items():
        if id(observer) in ranges:
            value = place[0] if isinstance(place, tuple) else place
            name = called.get(value.name, value.name)
            found.setdefault(id(observer), (observer, {}))[1][name] = None
    steps: list[Step] = []
    for observer, names in found.values():
        owner, *shared = names
        q = observer.qparams()
        why = (
            "{:.4g} … {:.4g} in {} batches gives scale {:.4g}, zero point {}" +
            ("; shared by {}" if shared else ""),
            observer.low, observer.high, batches, float(q.scale[0]), int(q.zero_point[0]),
            ", ".join(f"%{name}" for name in shared), tuple(shared),
        )  # fmt: skip
        steps.append(Step(NO_EDIT, "range", owner, why))
    return tuple(steps)


def _how(quantizer: Int8Quantizer, node: fx.Node, weighted: bool) -> str:
    if weighted:
        per = "tensor" if quantizer.weight.ch_axis is None else "output channel"
        bias = quantizer.parameters[node][1] is not None
        return f"int8 weight, a scale per {per}" + (", int32 bias" if bias else "")
    if node in quantizer.plan.owner:
        return "one scale together with its neighbours"
    return "qparams of its own"
