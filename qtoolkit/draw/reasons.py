"""Why an operand lies where it does: the chain of steps as a path, the first cause on top."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from qtoolkit.draw.frame import SMALL, TEXT, WIDTH, heading, joined, points_of, start, wrapped
from qtoolkit.draw.narrowing import cell, cut, provenance, slot_words, words
from qtoolkit.draw.palette import BAND, COPY, INK, MUTED, WIRE
from qtoolkit.graph import Graph
from qtoolkit.layout import TensorRepr
from qtoolkit.placement import Placement
from qtoolkit.trace import Step, Trace, changed_operands

MOST = 9  # stops of a picture: of a longer chain its first and its last
CHIPS = 5  # representations of a set that are drawn one by one
# Inches.
HEAD, LINE, BETWEEN, CHIP = 0.36, 0.15, 0.3, 1.06
LEFT, RIGHT = 0.06, WIDTH - 0.2


@dataclass(frozen=True, slots=True)
class Stop:
    """One step of a chain; way: how its node stands to that of the step before.

    slot, left: the operand that the step speaks of first, and what it may have after the step.
    """

    step: Step
    way: str
    slot: int
    left: tuple[TensorRepr, ...]


def why(data: Placement | Trace, node: str, operand: int = -1, ax: Axes | None = None) -> Axes:
    """The steps that fixed an operand (-1: the result), each a stop on the way through the graph.

    A stop shows what its operand may have after the step; the arrow says how the next node is
    reached. Raises UnknownName for a node or operand that was not placed.
    """
    every = stops(data, node, operand)
    left_out = max(0, len(every) - MOST)
    shown = (*every[: MOST // 2], *every[len(every) - (MOST - MOST // 2) :]) if left_out else every
    texts = [wrapped(stop.step.reason, 0.95 * 72 * (RIGHT - LEFT - 0.24)) for stop in shown]
    heights = [HEAD + LINE * len(lines) + 0.1 for lines in texts]
    total = sum(heights) + BETWEEN * (len(shown) - 1) + 0.05
    ax = start(ax, total + 0.85, grid=None)
    ax.set_axis_off()
    ax.set_xlim(0, WIDTH)
    ax.set_ylim(total, 0)
    scale = min(1.0, 1.1 * points_of(ax)[0] / (72 * WIDTH))
    top = 0.02
    for i, (stop, lines, height) in enumerate(zip(shown, texts, heights, strict=True)):
        if i:
            hidden = f"{left_out} steps are left out" if left_out and i == MOST // 2 else ""
            _arrow(ax, top, hidden or stop.way, scale)
            top += BETWEEN
        _stop(ax, top, height, stop, lines, i == len(shown) - 1, scale)
        top += height
    what = f"input {operand}" if operand >= 0 else "the result" if operand == -1 else (
        f"result {-1 - operand}"
    )  # fmt: skip
    count = f"{len(every)} step{'s' * (len(every) != 1)}, each the cause of the next"
    by = provenance(data) if isinstance(data, Placement) else f"compiled for {data.backend}"
    heading(ax, f"Why {what} of %{node} lies where it does", f"{count}\n{by}")
    return ax


def stops(data: Placement | Trace, node: str, operand: int = -1) -> tuple[Stop, ...]:
    """The chain that `why` draws, as data."""
    graph = data.graph if isinstance(data, Placement) else data["place"].after
    chain = data.why(node, operand)
    found: list[Stop] = []
    for i, step in enumerate(chain):
        slot = operand if i == len(chain) - 1 else next(iter(changed_operands(step, step.node)), -1)
        reps = dict(step.edit.reps).get(step.node)
        repset = None if reps is None else reps.at(slot)
        way = relation(graph, chain[i - 1].node, step.node) if i else ""
        found.append(Stop(step, way, slot, () if repset is None else repset.reprs))
    return tuple(found)


def relation(graph: Graph, a: str, b: str) -> str:
    """How node b stands to node a: what a search or a copy goes along."""
    if a == b:
        return "the same node"
    if a not in graph or b not in graph:
        return "on to"
    reads = {name: {ref.node for ref in graph[name].refs()} for name in (a, b)}
    if b in reads[a]:
        return f"up to what %{a} reads"
    if a in reads[b]:
        return f"down to a reader of %{a}"
    both = sorted(reads[a] & reads[b])
    return f"across to another reader of %{both[0]}" if both else "further on through the graph"


def _stop(
    ax: Axes, top: float, height: float, stop: Stop, lines: Sequence[str], last: bool, scale: float
) -> None:
    style = "round,pad=0,rounding_size=0.05"
    ax.add_patch(
        FancyBboxPatch(
            (LEFT, top), RIGHT - LEFT, height, boxstyle=style, facecolor=BAND,
            edgecolor=COPY if last else WIRE, linewidth=1.8 if last else 0.8, gid="stop",
        )
    )  # fmt: skip
    middle = top + 0.19
    name = ax.text(LEFT + 0.12, middle, f"%{cut(stop.step.node, 30)}", fontsize=TEXT * scale,
                   fontweight="bold", color=INK, va="center")  # fmt: skip
    ax.annotate(joined(slot_words(stop.slot), stop.step.kind), (1, 0.5), xycoords=name,
                xytext=(9, 0), textcoords="offset points", fontsize=SMALL * scale, color=MUTED,
                va="center")  # fmt: skip
    _chips(ax, middle, stop.left, scale)
    ax.text(LEFT + 0.12, top + HEAD, "\n".join(lines), fontsize=SMALL * scale, color=INK, va="top",
            linespacing=1.3, gid="reason", in_layout=False)  # fmt: skip


def _chips(ax: Axes, middle: float, left: Sequence[TensorRepr], scale: float) -> None:
    """The set after the step, at the right of its head."""
    shown = left[:CHIPS] if len(left) <= CHIPS else left[: CHIPS - 1]
    x = RIGHT - 0.08 - CHIP * len(shown) - (0.55 if len(left) > CHIPS else 0)
    for r in shown:
        face, edge = cell(r)
        ax.add_patch(Rectangle((x + 0.03, middle - 0.1), CHIP - 0.06, 0.2, facecolor=face,
                               edgecolor=edge, linewidth=0.8, gid="left"))  # fmt: skip
        ax.text(x + CHIP / 2, middle, words(r), fontsize=0.9 * SMALL * scale, color=INK,
                ha="center", va="center_baseline")  # fmt: skip
        x += CHIP
    if len(left) > CHIPS:
        ax.text(x + 0.05, middle, f"+{len(left) - len(shown)}", fontsize=SMALL * scale, color=INK,
                va="center")  # fmt: skip


def _arrow(ax: Axes, top: float, text: str, scale: float) -> None:
    ax.add_patch(
        FancyArrowPatch((0.55, top), (0.55, top + BETWEEN), arrowstyle="-|>", mutation_scale=9,
                        color=WIRE, linewidth=1.2, shrinkA=1, shrinkB=1)
    )  # fmt: skip
    ax.text(0.72, top + BETWEEN / 2, text, fontsize=SMALL * scale, color=MUTED, va="center",
            gid="way")  # fmt: skip
