"""Repsets as they narrow: a row for each operand and result, a cell for each representation."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from qtoolkit.draw.frame import SMALL, heading, joined, start
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

    left: what it may have; struck: what it may have no longer; now: the part of `struck` that the
    last step ruled out. changed: the last step spoke of it; cause: the step that caused that one.
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
        return f"{_cut(self.node)}  {slot_words(self.slot)}"


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
    columns = members(_or(mask for s in steps for mask in _masks(s)))
    ax = start(ax, 1.75 + ROW * max(len(shown), 3), grid=None)
    ax.spines[["left", "bottom"]].set_visible(False)
    for y, row in enumerate(shown):
        _row(ax, y, row, columns)
        if y and every.index(row) != every.index(shown[y - 1]) + 1:
            ax.axhline(y - 0.5, color=WIRE, linewidth=0.8, linestyle=(0, (2, 3)), gid="gap")
    _axes(ax, shown, columns)
    hidden = f"{len(shown)} of {len(every)} operands" if len(shown) < len(every) else ""
    heading(
        ax,
        f"After {count} of {len(steps)} steps" if count else "Before the first step",
        f"{step_words(placement.trace, count)}\n{provenance(placement)}\n{hidden}".rstrip(),
    )
    return ax


def step_words(trace: PassTrace, count: int) -> str:
    """The last of `count` steps in words, numbered as the trace's table has it."""
    if not count:
        return "nothing is stated yet"
    last = trace.steps[count - 1]
    cause = "" if last.cause is None else f" (caused by {last.cause}, %{trace.steps[last.cause].node})"
    return f"{count - 1}. {last}{cause}"


def provenance(placement: Placement) -> str:
    """By which table, rules, policy and limits a graph was placed, as captions say it."""
    extents = placement.limits.extents
    limit = f"textures up to {'×'.join(map(str, extents))}" if extents else "no limit of textures"
    told = joined(f"table {placement.table}", rules_words(placement), placement.policy)
    return joined(told, limit)


def rules_words(placement: Placement) -> str:
    """The rules by what differs from the nearest ones that have a name."""
    named = {
        "its own rules": rules_of(placement.table),
        "qtoolkit's rules": PlaceRules(),
        "ExecuTorch's rules": PlaceRules.executorch(),
    }
    fields = PlaceRules.__dataclass_fields__
    differ = {
        name: [f for f in fields if getattr(rules, f) != getattr(placement.rules, f)]
        for name, rules in named.items()
    }
    nearest = min(differ, key=lambda name: len(differ[name]))
    changed = ", ".join(f"{f}={getattr(placement.rules, f)}" for f in differ[nearest])
    return f"{nearest} but {changed}" if changed else nearest


def rows(trace: PassTrace, count: int) -> Iterator[Row]:
    """The rows after `count` steps, in the graph's order; all that any step ever speaks of."""
    steps = trace.steps
    last = steps[count - 1] if count else None
    cause = steps[last.cause] if last is not None and last.cause is not None else None
    spoken = {(name, slot) for s in steps for name, reps in s.edit.reps for slot in slots(reps)}
    ever, now, before = dict.fromkeys(spoken, 0), dict[str, Reps](), dict[str, Reps]()
    for step in steps[:count]:
        before = dict(step.edit.reps) and {**now}
        for name, reps in step.edit.reps:
            now[name] = reps
            for slot in slots(reps):
                ever[name, slot] |= _mask(reps, slot)
    for name, slot in sorted(spoken, key=_place(trace)):
        left = _mask(now.get(name), slot)
        yield Row(
            name, slot, left, ever[name, slot] & ~left, _mask(before.get(name), slot) & ~left,
            last is not None and name == last.node and slot in changed_operands(last, name),
            cause is not None and name == cause.node and slot in changed_operands(cause, name),
        )  # fmt: skip
