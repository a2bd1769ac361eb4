"""Repsets as they narrow: a row for each operand and result, a cell for each representation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from qtoolkit.draw.frame import SMALL, heading, joined, start
from qtoolkit.draw.palette import BAND, COPY, GRID, INK, MUTED, STORAGE, WIRE, mix, place_colour
from qtoolkit.errors import UnknownName
from qtoolkit.layout import Reps, TensorRepr, bit, members
from qtoolkit.placement import Placement
from qtoolkit.trace import Step, changed_operands

MOST = 26  # rows that one picture can hold
ROW = 0.235  # inches
LEGEND = "filled: possible; struck through: ruled out; grey rows: the cause"
SHORT = {"packed_int8_": "", "width": "W", "height": "H", "channels": "C"}


@dataclass(frozen=True, slots=True)
class Row:
    """One operand (slot i) or result (slot -1 - j) of a node: what it may have, what it lost."""

    node: str
    slot: int
    left: int
    struck: int
    changed: bool
    cause: bool

    @property
    def label(self) -> str:
        """The node and the slot in words."""
        what = (
            f"in {self.slot}" if self.slot >= 0 else "out" + f" {-1 - self.slot}" * (self.slot < -1)
        )
        return f"{self.node}  {what}"


def repsets(placement: Placement, step: int | None = None, ax: Axes | None = None) -> Axes:
    """What each operand may have after `step` steps of a placement, all of them if None.

    A filled cell is still possible, a hollow one was struck out, none was never admitted. The rows
    that the last of these steps changed are framed, those of the step that caused it banded; of a
    long graph the rows around them are shown. Raises UnknownName for a step that is not there.
    """
    steps = placement.trace.steps
    count = len(steps) if step is None else step
    if not 0 <= count <= len(steps):
        raise UnknownName(f"step {step}: the placement has steps 0..{len(steps)}")
    every = tuple(rows(steps, count))
    shown = around(every)
    columns = members(_or(r.left | r.struck for r in every))
    ax = start(ax, 1.5 + ROW * max(len(shown), 3), grid=None)
    ax.spines[["left", "bottom"]].set_visible(False)
    for y, row in enumerate(shown):
        _row(ax, y, row, columns)
    _axes(ax, shown, columns)
    last = steps[count - 1] if count else None
    title = (
        "Before the first step" if last is None else f"Step {count} of {len(steps)}: {last.kind}"
    )
    told = "" if last is None else f"%{last.node}: {last.reason}"
    hidden = f"{len(shown)} of {len(every)} operands" if len(shown) < len(every) else ""
    who = joined(f"table {placement.table}", f"{placement.policy} placement", hidden)
    heading(ax, title, f"{told}\n{who}\n{LEGEND}")
    return ax


def rows(steps: Sequence[Step], count: int) -> Iterator[Row]:
    """The rows after `count` steps, in the order in which nodes were first spoken of."""
    first: dict[tuple[str, int], int] = {}
    now: dict[str, Reps] = {}
    for step in steps[:count]:
        for name, reps in step.edit.reps:
            now[name] = reps
            for slot in _slots(reps):
                mask = reps.at(slot)
                assert mask is not None
                first.setdefault((name, slot), 0)
                first[name, slot] |= mask.mask
    last = steps[count - 1] if count else None
    changed = set(changed_operands(last, last.node)) if last else set()
    cause = steps[last.cause] if last is not None and last.cause is not None else None
    for (name, slot), ever in first.items():
        repset = now[name].at(slot)
        left = 0 if repset is None else repset.mask
        yield Row(
            name, slot, left, ever & ~left,
            last is not None and name == last.node and slot in changed,
            cause is not None and name == cause.node,
        )  # fmt: skip


def around(every: Sequence[Row]) -> Sequence[Row]:
    """At most MOST rows: those around the change."""
    if len(every) <= MOST:
        return every
    at = next((i for i, row in enumerate(every) if row.changed), len(every) - 1)
    begin = max(0, min(at - MOST // 2, len(every) - MOST))
    part = every[begin : begin + MOST]
    causes = [r for r in every if r.cause and r not in part]
    return [*causes[:4], *part[min(len(causes), 4) :]]


def _row(ax: Axes, y: int, row: Row, columns: Sequence[TensorRepr]) -> None:
    if row.cause:
        ax.add_patch(Rectangle((-0.5, y - 0.5), len(columns), 1, facecolor=BAND, edgecolor="none"))
    for x, r in enumerate(columns):
        storage, layout = r.storage.name.lower(), r.layout.name.lower()
        edge = mix(STORAGE[storage], INK, 0.25)
        box = (x - 0.36, y - 0.32)
        if bit(r) & row.left:
            face = place_colour(storage, layout)
            ax.add_patch(Rectangle(box, 0.72, 0.64, facecolor=face, edgecolor=edge, gid="possible"))
        elif bit(r) & row.struck:
            ax.add_patch(Rectangle(box, 0.72, 0.64, facecolor="none", edgecolor=GRID, gid="struck"))
            ax.plot([x - 0.2, x + 0.2], [y + 0.16, y - 0.16], color=WIRE, linewidth=0.8)
    if row.changed:
        ax.add_patch(
            Rectangle((-0.5, y - 0.5), len(columns), 1, facecolor="none", edgecolor=COPY,
                      linewidth=1.8, gid="changed", zorder=4)
        )  # fmt: skip


def _axes(ax: Axes, shown: Sequence[Row], columns: Sequence[TensorRepr]) -> None:
    ax.set_xlim(-0.6, max(len(columns), 1) - 0.4)
    ax.set_ylim(max(len(shown), 1) - 0.4, -0.6)
    ax.set_yticks(range(len(shown)), [_cut(r.label) for r in shown])
    for label, row in zip(ax.get_yticklabels(), shown, strict=True):
        label.set_color(INK if row.changed or row.cause else MUTED)
        label.set_fontweight("bold" if row.changed else "normal")
    ax.set_xticks(range(len(columns)), [_short(r) for r in columns])
    ax.tick_params(labelsize=SMALL, pad=3)


def _short(r: TensorRepr) -> str:
    layout = r.layout.name.lower()
    for long, short in SHORT.items():
        layout = layout.replace(long, short)
    return f"{r.storage.name.lower().removesuffix('_3d')}\n{layout}"


def _cut(label: str) -> str:
    return label if len(label) <= 44 else f"…{label[-43:]}"


def _slots(reps: Reps) -> Iterator[int]:
    yield from (i for i, r in enumerate(reps.inputs) if r is not None)
    yield from (-1 - j for j in range(len(reps.outputs)))


def _or(masks: Iterator[int]) -> int:
    total = 0
    for mask in masks:
        total |= mask
    return total


def operands(
    *placements: Placement,
    node: str,
    labels: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Where the operands of one node lie in several placements: a row for each placement.

    labels: what to call each; their tables without. A frame marks operands that a copy is made for.
    Raises UnknownName for a node that one of them has not placed.
    """
    told = [_operands(p, node) for p in placements]
    slots = list(dict.fromkeys(slot for row in told for slot in row))
    ax = start(ax, 1.35 + 0.42 * len(placements), grid=None)
    ax.spines[["left", "bottom"]].set_visible(False)
    for y, (placement, row) in enumerate(zip(placements, told, strict=True)):
        args = placement.graph[node].args
        copied = {str(c.value) for c in placement.copies if node in c.users}
        for x, slot in enumerate(slots):
            if slot not in row:
                continue
            r = row[slot]
            storage, layout = r.storage.name.lower(), r.layout.name.lower()
            moved = slot >= 0 and str(args[slot]) in copied
            ax.add_patch(
                Rectangle(
                    (x - 0.46, y - 0.36), 0.92, 0.72, facecolor=place_colour(storage, layout),
                    edgecolor=COPY if moved else mix(STORAGE[storage], INK, 0.25),
                    linewidth=2.0 if moved else 0.8, gid="copied" if moved else "operand",
                )
            )  # fmt: skip
            ax.text(x, y, _short(r).replace("\n", ", "), fontsize=SMALL, color=INK, ha="center",
                    va="center")  # fmt: skip
    ax.set_xlim(-0.6, len(slots) - 0.4)
    ax.set_ylim(len(placements) - 0.5, -0.6)
    ax.set_xticks(range(len(slots)), [f"input {s}" if s >= 0 else "result" for s in slots])
    ax.set_yticks(range(len(placements)), labels or [p.table for p in placements])
    heading(ax, f"Where the operands of {node} lie", "framed: a copy is made for it")
    return ax


def _operands(placement: Placement, node: str) -> dict[int, TensorRepr]:
    reps = placement.graph[node].reps
    if reps is None:
        raise UnknownName(f"%{node} was not placed; draw a node that has operands")
    found = {i: r.only for i, r in enumerate(reps.inputs) if r is not None}
    return found | {-1 - j: r.only for j, r in enumerate(reps.outputs)}
