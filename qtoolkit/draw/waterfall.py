"""SQNR per node in the order of the graph, one granularity of weights against the other."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from qtoolkit.comparison import Comparison
from qtoolkit.draw.along import along
from qtoolkit.draw.frame import (
    SMALL,
    Label,
    axis_labels,
    direct_labels,
    heading,
    joined,
    margin_labels,
    ran_on,
    start,
)
from qtoolkit.draw.measured import Key, Nodes, Point, Side, sides_of
from qtoolkit.draw.palette import ink
from qtoolkit.errors import BadInput

GAINERS = 6
LEAST_GAIN = 3.0


def sqnr(
    nodes: Nodes,
    other: Nodes | None = None,
    *,
    labels: tuple[str, str] | None = None,
    data: str = "",
    device: str = "",
    ax: Axes | None = None,
) -> Axes:
    """SQNR against float of every int8 value; with `other`, which layers gain by the choice.

    nodes, other: comparisons with the float run, or the NodeSummaries of an exploration. data says
    what was run ('random data' where it is); labels and device are read from comparisons and must
    be given for summaries. Means leave out what is exact.
    """
    sides = sides_of(nodes, other, labels)
    keys = list(dict.fromkeys(key for side in sides for key in side.points))
    if not keys:
        raise BadInput("no int8 value to draw an SQNR of; compare a float run with an int8 run")
    ax = start(ax, 4.6)
    _limits(ax, sides, len(keys))
    _blocks(ax, keys, sides)
    gains = _gains(ax, keys, sides) if len(sides) == 2 else ()
    for row, side in enumerate(sides):
        _dots(ax, keys, side, row)
    if isinstance(nodes, Comparison):
        device = device or ran_on(nodes.b)
    title = "SQNR per node: " + " against ".join(side.label for side in sides)
    heading(ax, title, joined(device, data) + "\n" + _summary(keys, sides))
    _means(ax, sides)
    if gains:
        _name_gains(ax, gains, *sides)
    return ax


def _limits(ax: Axes, sides: Sequence[Side], count: int) -> None:
    points = [p for side in sides for p in side.points.values()]
    figures = [p.db for p in points if p.db is not None] or [0.0, 1.0]
    low, high = min(figures), max(figures)
    room = max(1.0, 0.1 * (high - low))
    edges = {p.sqnr for p in points}
    below = 3.5 * room if "no signal" in edges else 2 * room
    above = 3.5 * room if "exact" in edges else 2.5 * room
    ax.set_ylim(low - below, high + above)
    ax.set_xlim(-0.8, count - 0.2)


def _blocks(ax: Axes, keys: Sequence[Key], sides: Sequence[Side]) -> None:
    """Shade every other module and name it, or name each node where there are few."""
    of = {key: point for side in reversed(sides) for key, point in side.points.items()}
    along(ax, [of[key].name for key in keys], [of[key].module for key in keys])
    axis_labels(ax, ax.get_xlabel(), "SQNR against float, dB")


@dataclass(frozen=True, slots=True)
class Gain:
    """One node in both quantizations: its place in the graph and the two figures."""

    x: int
    point: Point
    ours: float
    theirs: float

    @property
    def gain(self) -> float:
        return self.ours - self.theirs


def _gains(ax: Axes, keys: Sequence[Key], sides: Sequence[Side]) -> tuple[Gain, ...]:
    """A line from the second side to the first, in the colour of the better one."""
    gains: list[Gain] = []
    for x, key in enumerate(keys):
        ours, theirs = (_db(side, key) for side in sides)
        if ours is None or theirs is None:
            continue
        better = sides[0] if ours >= theirs else sides[1]
        ax.plot([x, x], [theirs, ours], color=better.color, linewidth=2.2, alpha=0.38,
                solid_capstyle="butt", zorder=2, gid="gain")  # fmt: skip
        gains.append(Gain(x, sides[0].points[key], ours, theirs))
    return tuple(gains)


def _name_gains(ax: Axes, gains: Sequence[Gain], ours: Side, theirs: Side) -> None:
    """Name the nodes that gain most; one that only moves values has its source's gain."""
    computed = [g for g in gains if g.point.computes and g.gain >= LEAST_GAIN]
    largest = sorted(computed, key=lambda g: -g.gain)[:GAINERS]
    color = ink(ours.color)
    labels = [Label(g.x, g.theirs, g.ours, f"{g.point.name} +{g.gain:.0f}", color) for g in largest]
    lines = [(g.x, min(g.ours, g.theirs), g.x, max(g.ours, g.theirs)) for g in gains]
    left, right = ax.get_xlim()
    means = [(left, y, right, y) for y in (ours.mean, theirs.mean) if y is not None]
    direct_labels(ax, labels, [*lines, *means])


def _dots(ax: Axes, keys: Sequence[Key], side: Side, row: int) -> None:
    """A dot per figure; where there is none a mark near the edge, a row of them per side."""
    at = {key: x for x, key in enumerate(keys)}
    figures = [(at[key], p.db) for key, p in side.points.items() if p.db is not None]
    if figures:
        ax.plot(*zip(*figures, strict=True), "o", color=side.color, markersize=4.2,
                label=side.label, zorder=3)  # fmt: skip
    low, high = ax.get_ylim()
    inset = (0.05 + 0.05 * row) * (high - low)
    for kind, marker, y in (("exact", "^", high - inset), ("no signal", "x", low + inset)):
        x = [at[key] for key, p in side.points.items() if p.sqnr == kind]
        if not x:
            continue
        ax.plot(x, [y] * len(x), marker, color=side.color, markersize=4.2, zorder=3,
                label=f"{side.label}: {kind}")  # fmt: skip
        ax.annotate(kind, (x[-1], y), xytext=(6, 0), textcoords="offset points",
                    fontsize=SMALL, color=ink(side.color), va="center")  # fmt: skip


def _means(ax: Axes, sides: Sequence[Side]) -> None:
    told: list[tuple[float, str, str]] = []
    for side in sides:
        if side.mean is not None:
            ax.axhline(side.mean, color=side.color, linewidth=1.1, linestyle=(0, (5, 3)), zorder=1)
            told.append((side.mean, f"{side.label}\nmean {side.mean:.1f} dB", ink(side.color)))
    margin_labels(ax, told)


def _summary(keys: Sequence[Key], sides: Sequence[Side]) -> str:
    if len(sides) == 1:
        return f"{len(keys)} values"
    pairs = [(_db(sides[0], key), _db(sides[1], key)) for key in keys]
    both = [a - b for a, b in pairs if a is not None and b is not None]
    better = sum(gain > 0 for gain in both)
    return (
        f"{better} of {len(both)} values are closer to float with {sides[0].label} weights; "
        f"the largest gains are named, in dB."
    )


def _db(side: Side, key: Key) -> float | None:
    return side.points[key].db if key in side.points else None
