"""Repsets as they narrow: a row for each operand and result, a cell for each representation."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from qtoolkit.draw.frame import SMALL, WIDTH, heading, joined, start, wrapped
from qtoolkit.draw.palette import BAND, COPY, INK, MUTED, STORAGE, WIRE, mix, place_colour
from qtoolkit.errors import UnknownName
from qtoolkit.layout import Reps, TensorRepr, bit, members
from qtoolkit.passes.rules import PlaceRules
from qtoolkit.placement import Placement, rules_of
from qtoolkit.trace import PassTrace, Step, changed_operands

MOST = 30  # rows that one picture can hold
CAUSES = 4  # of them, for causes that lie elsewhere
ROW = 0.235  # inches
LABEL = 40  # characters


@dataclass(frozen=True, slots=True)
class Row:
    """One operand (slot i) or result (slot -1 - j) of a node, as masks of representations.

    left: what it may have; struck: what was ruled out; now: the part of it that the last step ruled
    out. changed: the last step spoke of it; cause: the step that caused that one did.
    """

    node: str
    slot: int
    left: int
    struck: int
    now: int
    changed: bool
    cause: bool

    @property
    def label(self) -> str:
        """The node and the slot in words."""
        return f"{cut(self.node, LABEL)}  {slot_words(self.slot)}"


def repsets(placement: Placement, step: int | None = None, ax: Axes | None = None) -> Axes:
    """What each operand may have after `step` steps of a placement, all of them if None.

    A filled cell is still possible, a hollow one was ruled out, none was never admitted. The rows
    that the last of these steps changed are framed, those of the step that caused it banded; of a
    long graph the rows around them are shown. Raises UnknownName for a step that is not there.
    """
    steps = placement.trace.steps
    count = len(steps) if step is None else step
    if not 0 <= count <= len(steps):
        raise UnknownName(f"step {step}: the placement has steps 0..{len(steps)}")
    every = tuple(rows(placement.trace, count))
    shown = around(every)
    columns = members(_or(m for s in steps for m in _masks(s)))
    ax = start(ax, 1.8 + ROW * max(len(shown), 3), grid=None)
    ax.spines[["left", "bottom"]].set_visible(False)
    for y, row in enumerate(shown):
        _row(ax, y, row, columns)
        if y and every.index(row) != every.index(shown[y - 1]) + 1:
            ax.axhline(y - 0.5, color=WIRE, linewidth=0.8, linestyle=(0, (2, 3)), gid="gap")
    _axes(ax, shown, columns)
    hidden = f"\n{len(shown)} of {len(every)} operands are shown" * (len(shown) < len(every))
    heading(
        ax,
        f"After {count} of {len(steps)} steps" if count else "Before the first step",
        beside(
            f"{step_words(placement.trace, count)}\n{provenance(placement)}{hidden}",
            [r.label for r in shown],
        ),
    )
    return ax


def beside(caption: str, labels: Sequence[str]) -> str:
    """A caption in lines that fit above Axes with these labels at their left."""
    room = 72 * (WIDTH - 0.15) - 5.2 * max(map(len, labels), default=0)
    return "\n".join(part for line in caption.splitlines() for part in wrapped(line, room))


def step_words(trace: PassTrace, count: int) -> str:
    """The last of `count` steps in words, numbered as the table of the trace numbers it."""
    if not count:
        return "nothing is stated yet"
    last = trace.steps[count - 1]
    if last.cause is None:
        return f"{count - 1}. {last}"
    return f"{count - 1}. {last} (because of {last.cause}. {trace.steps[last.cause].kind})"


def provenance(placement: Placement) -> str:
    """By which table, rules, policy and limits a graph was placed, as captions say it."""
    most = placement.limits.textures
    limit = f"textures up to {'×'.join(map(str, most))}" if most else "textures of any size"
    return joined(f"table {placement.table}", rules_words(placement), placement.policy, limit)


def rules_words(placement: Placement) -> str:
    """The rules, told by what differs from the nearest ones that have a name."""
    rules, fields = placement.rules, PlaceRules.__dataclass_fields__
    named = {
        "its own rules": rules_of(placement.table),
        "qtoolkit's rules": PlaceRules(),
        "ExecuTorch's rules": PlaceRules.executorch(),
    }
    differ = {
        name: [f for f in fields if getattr(rules, f) != getattr(other, f)]
        for name, other in named.items()
    }
    nearest = min(differ, key=lambda name: len(differ[name]))
    changed = ", ".join(f"{f}={getattr(rules, f)}" for f in differ[nearest])
    return f"{nearest} but {changed}" if changed else nearest


def rows(trace: PassTrace, count: int) -> Iterator[Row]:
    """The rows after `count` steps, in the graph's order: all that any of its steps speaks of."""
    steps = trace.steps
    last = steps[count - 1] if count else None
    cause = steps[last.cause] if last is not None and last.cause is not None else None
    ever = {(name, slot): 0 for s in steps for name, reps in s.edit.reps for slot in slots(reps)}
    now: dict[str, Reps] = {}
    for step in steps[:count]:
        before = {name: now[name] for name, _ in step.edit.reps if name in now}
        now.update(step.edit.reps)
        for name, reps in step.edit.reps:
            for slot in slots(reps):
                ever[name, slot] |= _mask(reps, slot)
    order = {n.name: i for i, n in enumerate(trace.after.nodes)}
    for name, slot in sorted(ever, key=lambda at: (order[at[0]], at[1] < 0, abs(at[1]))):
        left = _mask(now.get(name), slot)
        lost = _mask(before.get(name), slot) & ~left if count else 0
        yield Row(
            name, slot, left, ever[name, slot] & ~left, lost,
            _speaks(last, name, slot), _speaks(cause, name, slot),
        )  # fmt: skip


def around(every: Sequence[Row]) -> Sequence[Row]:
    """At most MOST rows: those around the change, and first what caused it."""
    if len(every) <= MOST:
        return every
    at = next((i for i, row in enumerate(every) if row.changed), 0)
    begin = max(0, min(at - MOST // 2, len(every) - MOST))
    part = every[begin : begin + MOST]
    above = [r for r in every[:begin] if r.cause][:CAUSES]
    below = [r for r in every[begin + MOST :] if r.cause][: CAUSES - len(above)]
    return [*above, *part[len(above) : MOST - len(below)], *below]


def _row(ax: Axes, y: int, row: Row, columns: Sequence[TensorRepr]) -> None:
    across = len(columns)
    if row.cause:
        band = Rectangle((-0.5, y - 0.5), across, 1, facecolor=BAND, edgecolor="none", gid="cause")
        ax.add_patch(band)
    for x, r in enumerate(columns):
        face, edge = cell(r)
        box = (x - 0.36, y - 0.32)
        if bit(r) & row.left:
            ax.add_patch(Rectangle(box, 0.72, 0.64, facecolor=face, edgecolor=edge, gid="possible"))
        elif bit(r) & row.struck:
            edge = COPY if bit(r) & row.now else mix(WIRE, BAND, 0.5)
            ax.add_patch(Rectangle(box, 0.72, 0.64, facecolor="none", edgecolor=edge, gid="struck",
                                   linewidth=1.0))  # fmt: skip
            ax.plot([x - 0.2, x + 0.2], [y + 0.16, y - 0.16], color=edge, linewidth=1.0)
    if row.changed:
        frame = Rectangle((-0.5, y - 0.5), across, 1, facecolor="none", edgecolor=COPY,
                          linewidth=1.8, gid="changed", zorder=4)  # fmt: skip
        ax.add_patch(frame)


def _axes(ax: Axes, shown: Sequence[Row], columns: Sequence[TensorRepr]) -> None:
    ax.set_xlim(-0.6, max(len(columns), 1) - 0.4)
    ax.set_ylim(max(len(shown), 1) - 0.4, -0.6)
    ax.set_yticks(range(len(shown)), [r.label for r in shown])
    for label, row in zip(ax.get_yticklabels(), shown, strict=True):
        label.set_color(INK if row.changed or row.cause else MUTED)
        label.set_fontweight("bold" if row.changed else "normal")
    ax.set_xticks(range(len(columns)), [words(r, "\n") for r in columns])
    ax.tick_params(labelsize=SMALL, pad=3)
    grey = mix(WIRE, BAND, 0.5)
    handles: list[Artist] = [
        Patch(facecolor=cell(columns[0])[0] if columns else BAND, edgecolor=INK, label="possible"),
        Patch(facecolor="none", edgecolor=grey, label="ruled out"),
        Patch(facecolor="none", edgecolor=COPY, label="ruled out now"),
        Line2D([], [], color=COPY, linewidth=2.2, label="frame: changed now"),
        Patch(facecolor=BAND, edgecolor=BAND, label="grey: the cause"),
    ]
    ax.legend(handles=handles, loc="upper right", ncols=5, fontsize=SMALL, frameon=False,
              bbox_to_anchor=(1.0, -0.4 / (ROW * max(len(shown), 3))), labelcolor=MUTED,
              handlelength=1.4, columnspacing=1.4)  # fmt: skip


def cell(r: TensorRepr) -> tuple[str, str]:
    """Fill and edge of a representation."""
    storage = r.storage.name.lower()
    return place_colour(storage, r.layout.name.lower()), mix(STORAGE[storage], INK, 0.25)


def words(r: TensorRepr, between: str = " ") -> str:
    """A representation in a few letters: 'texture channels', 'buffer 4w4c'."""
    storage = r.storage.name.lower().removesuffix("_3d")
    return f"{storage}{between}{r.layout.name.lower().removeprefix('packed_int8_')}"


def slot_words(slot: int) -> str:
    """An operand: 'in 0', 'out', 'out 1'."""
    return f"in {slot}" if slot >= 0 else "out" if slot == -1 else f"out {-1 - slot}"


def slots(reps: Reps) -> Iterator[int]:
    """The operands and results for which something is stated."""
    yield from (i for i, r in enumerate(reps.inputs) if r is not None)
    yield from (-1 - j for j in range(len(reps.outputs)))


def cut(text: str, most: int) -> str:
    """The text, its middle left out where it is too long: its end tells nodes apart."""
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"


def _speaks(step: Step | None, name: str, slot: int) -> bool:
    return step is not None and step.node == name and slot in changed_operands(step, name)


def _masks(step: Step) -> Iterator[int]:
    for _, reps in step.edit.reps:
        yield from (_mask(reps, slot) for slot in slots(reps))


def _mask(reps: Reps | None, slot: int) -> int:
    repset = None if reps is None else reps.at(slot)
    return 0 if repset is None else repset.mask


def _or(masks: Iterable[int]) -> int:
    total = 0
    for mask in masks:
        total |= mask
    return total
