"""An exploration in a few words: verdicts, failed gates, and the table of the terminal."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from qtoolkit.exploration import Exploration, ImageResult, mean_sqnr_db
from qtoolkit.models import RANDOM
from qtoolkit.passes.place import MIXED
from qtoolkit.report.record import granularities

ROWS = 12


@dataclass(frozen=True, slots=True)
class Verdict:
    """A label, an answer and what stands behind it. ok is None where nothing is judged."""

    label: str
    value: str
    detail: str = ""
    ok: bool | None = None


def verdicts(e: Exploration) -> tuple[Verdict, ...]:
    """What a reader asks first, in that order."""
    if e.refused is not None:
        refused = Verdict("execution", "refused", e.refused, False)
        return refused, _left_float(e), _transitions(e), _data(e)
    return (
        *(_equality(e, b) for b in e.backends if b != "reference"),
        *(Verdict(b, "left out", why) for b, why in e.unavailable.items()),
        _sqnr(e),
        _accuracy(e),
        _left_float(e),
        _transitions(e),
        *_storages(e),
        _data(e),
    )


def failures(e: Exploration) -> tuple[str, ...]:
    """Why the exploration misses its gates, one reason each: refused, or backends that differ."""
    if e.refused is not None:
        return (f"execution refused: {e.refused}",)
    differing = [b for b in e.backends if not e.equal.get(b, False)]
    return tuple(f"{b} differs from reference, {difference(e, b)}" for b in differing)


def difference(e: Exploration, backend: str) -> str:
    """Where a backend leaves the reference first."""
    first = e.first_difference
    if first is None or first["backend"] != backend:
        return "see the report"
    return f"first at %{first['node']} (by up to {plural(first['max_steps'], 'step')})"


def table(e: Exploration) -> str:
    """Classes per image and the verdicts, as text for the terminal."""
    head = ("", "float", *granularities(e), "output SQNR")
    rows = [head, *(_row(e, image) for image in e.images[:ROWS])]
    lines = _aligned(rows) if e.images else []
    if len(e.images) > ROWS:
        lines.append(f"… and {len(e.images) - ROWS} more in report.json")
    told = [(v.label, "; ".join(part for part in (v.value, v.detail) if part)) for v in verdicts(e)]
    return "\n".join([*lines, *([""] if lines else []), *_aligned(told)])


def class_name(e: Exploration, index: int, width: int | None = None) -> str:
    """A class index with its name where the model has labels; cut to `width` characters."""
    labels = e.model.labels or ()
    name = labels[index] if 0 <= index < len(labels) else ""
    told = f"{index} {name}" if name not in ("", str(index)) else str(index)
    return told if width is None or len(told) <= width else told[: width - 1] + "…"


def decibels(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} dB"


def size(count: int) -> str:
    """A number of bytes in words."""
    if count < 1024:
        return plural(count, "byte")
    return f"{count / 2**10:.1f} KiB" if count < 2**20 else f"{count / 2**20:.1f} MiB"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _equality(e: Exploration, backend: str) -> Verdict:
    found = e.compared[backend]
    told = f"bit by bit over {plural(found.nodes, 'value')}, {plural(found.elements, 'element')}"
    if found.missing:
        told += f", {len(found.missing)} not compared"
    if e.equal[backend]:
        return Verdict(backend, "equal to reference", told, True)
    return Verdict(backend, "differs from reference", f"{difference(e, backend)}; {told}", False)


def _sqnr(e: Exploration) -> Verdict:
    beside = [] if e.other is None else [f"{decibels(mean_sqnr_db(e.other_nodes))} {e.other}"]
    told = ", ".join(beside + [RANDOM] * (RANDOM in e.model.data_source))
    return Verdict("mean SQNR", f"{decibels(mean_sqnr_db(e.nodes))} {e.weights}", told)


def _accuracy(e: Exploration) -> Verdict:
    if e.accuracy is not None:
        told = {key: f"{100 * share:.1f} % {key}" for key, share in e.accuracy.items()}
        return Verdict("accuracy", told.pop(e.weights), ", ".join(told.values()))
    total = len(e.images)

    def agreed(key: str) -> int:
        return sum(image.top1[key] == image.top1["float"] for image in e.images)

    beside = "" if e.other is None else f"{agreed(e.other)} of {total} with {e.other} weights"
    return Verdict("top-1", f"{agreed(e.backends[-1])} of {total} as in float", beside)


def _left_float(e: Exploration) -> Verdict:
    if not e.left_float:
        return Verdict("left float", "nothing", ok=True)
    first = e.left_float[0]
    count = plural(len(e.left_float), "node")
    return Verdict("left float", count, f"%{first.node}: {first.why}", False)


def _transitions(e: Exploration) -> Verdict:
    count, total = e.transitions
    return Verdict("transitions", str(count) if count else "none", size(total) if count else "")


def _storages(e: Exploration) -> tuple[Verdict, ...]:
    """How many values lie where, for a backend that has textures."""
    found = Counter(n.storage for n in e.nodes if n.storage)
    if set(found) <= {"buffer"} and e.storage == MIXED:
        return ()
    told = ", ".join(plural(count, name.replace("_3d", "")) for name, count in found.most_common())
    kept = plural(len(e.in_buffers), "operand") + " kept in buffers" if e.in_buffers else ""
    return (Verdict("storage", f"{e.storage}: {told}", kept),)


def _data(e: Exploration) -> Verdict:
    model = e.model
    told = f"{len(model.calibration)} to calibrate, {len(model.evaluation)} to compare"
    told += f", {len(model.held_out)} for accuracy" if model.held_out else ""
    return Verdict("data", model.data_source, told)


def _row(e: Exploration, image: ImageResult) -> tuple[str, ...]:
    both = [decibels(image.output_sqnr_db[key]) for key in granularities(e)]
    keys = ("float", e.backends[-1], *granularities(e)[1:])
    classes = [class_name(e, image.top1[key], 24) for key in keys]
    return image.name, *classes, " / ".join(both)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
