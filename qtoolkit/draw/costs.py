"""Placements and their copies: where they are in the graph, what they cost, side by side."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch, Patch, Polygon, Rectangle

from qtoolkit.draw.frame import SMALL, axis_labels, heading, joined, start
from qtoolkit.draw.lanes import HEIGHT, Picture, lay_out
from qtoolkit.draw.narrowing import beside, cell, cut, provenance, rules_words, slot_words, words
from qtoolkit.draw.network import RADIUS, arrow, canvas
from qtoolkit.draw.palette import COPY, GRID, INK, MUTED, PAPER, STORAGE, WIRE, mix
from qtoolkit.errors import UnknownName
from qtoolkit.graph import Graph
from qtoolkit.layout import TensorRepr
from qtoolkit.passes.place.pricing import Copy
from qtoolkit.placement import Placement

LISTED = 16  # copies that are numbered and told in words
ROWS = 24  # results that `results` shows
NAME = 24  # characters
# Inches.
HEADING, ROW, BADGE = 0.62, 0.2, 0.082
OPERATIONS = STORAGE["buffer"]


def transitions(placement: Placement, ax: Axes | None = None) -> Axes:
    """The placed graph with its copies: edges in the copies' colour, numbered, and told below with
    from, to, bytes and readers. Boxes bear node names and the colour of where their result lies.
    """
    picture = lay_out(_by_name(placement.graph))
    every = sorted(placement.copies, key=lambda c: -c.nbytes)
    lines = min(len(every), LISTED) + (len(every) > LISTED or not every)
    room = 0.14 + ROW * lines
    ax, scale = canvas(picture, ax, HEADING + room)
    ax.set_ylim(picture.height + room, 0)
    places = {n.name: n.reps.outputs[0].only for n in placement.graph.nodes if n.reps}
    _legend(ax, places.values(), bool(every), scale)
    for box in picture.boxes:
        face, edge = cell(places[box.name]) if box.name in places else (PAPER, WIRE)
        style = f"round,pad=0,rounding_size={RADIUS}"
        ax.add_patch(
            FancyBboxPatch((box.x, box.y), box.width, HEIGHT, boxstyle=style, facecolor=face,
                           edgecolor=edge, linewidth=0.9, gid=box.name, zorder=3)
        )  # fmt: skip
        ax.text(box.middle, box.y + HEIGHT / 2, cut(box.name, NAME), fontsize=7.5 * scale,
                color=INK, ha="center", va="center_baseline", zorder=4)  # fmt: skip
    _edges(ax, picture, every, scale)
    _list(ax, picture.height + 0.16, every, scale)
    total = sum(c.nbytes for c in every)
    heading(
        ax,
        "Where values are copied to another representation",
        f"{_count(placement)}, {total:,} bytes a run\n{provenance(placement)}",
    )
    return ax


def costs(
    *placements: Placement, labels: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """The cost of placements side by side, transitions and operations apart; lines stand at what
    was proved to be the least.

    labels: what to call each; their policy without. Raises UnknownName for none, or for costs in
    unlike units.
    """
    if not placements:
        raise UnknownName("costs of no placement; give at least one")
    units = {p.cost.unit for p in placements}
    if len(units) > 1:
        raise UnknownName(f"costs in {' and '.join(sorted(units))}: price them by one model")
    ax = start(ax, 1.95 + 0.42 * len(placements), grid="x")
    ax.spines["left"].set_visible(False)
    most = max(p.cost.total for p in placements) or 1.0
    for y, p in enumerate(placements):
        moved, done = p.cost.transitions, p.cost.operations
        ax.barh(y, moved, color=COPY, height=0.5)
        ax.barh(y, done, left=moved, color=OPERATIONS, height=0.5)
        told = f"{p.cost.total:,.0f}: {_count(p)}{_proof(p)}"
        ax.text(p.cost.total + 0.015 * most, y, told, fontsize=SMALL, color=INK, va="center",
                bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1})  # fmt: skip
    bounds = dict.fromkeys(p.bound for p in placements if p.bound is not None)
    below = len(placements) / (len(placements) + 0.6)  # of the legend
    for bound in bounds:
        ax.axvline(bound, ymax=below, color=INK, linewidth=1.3, linestyle=(0, (3, 2)), zorder=0.9,
                   gid="bound")  # fmt: skip
    names = labels or [p.policy for p in placements]
    ax.set_yticks(range(len(placements)), names)
    ax.tick_params(axis="y", colors=INK)
    ax.set_ylim(len(placements) - 0.45, -1.05)
    ax.set_xlim(0, most * 1.42)
    handles: list[Patch] = [
        Patch(facecolor=COPY, label="transitions"), Patch(facecolor=OPERATIONS, label="operations"),
    ]  # fmt: skip
    dashed = [line for line in ax.lines if line.get_gid() == "bound"][:1]
    for line in dashed:
        line.set_label("proved bound of optimal")
    ax.legend(handles=[*handles, *dashed], loc="upper right", ncols=3, fontsize=SMALL,
              frameon=False, borderaxespad=0.2,
              labelcolor=mix(MUTED, INK, 0.3))  # fmt: skip
    ax.xaxis.set_major_formatter("{x:,.0f}")
    axis_labels(ax, x=f"cost in {placements[0].cost.unit}, by the {placements[0].cost.model}")
    heading(ax, "What each placement costs", beside(_all_provenance(placements), names))
    return ax


@dataclass(frozen=True, slots=True)
class Spot:
    """One node's result in each of several placements, and the copies made of it there."""

    node: str
    lies: tuple[TensorRepr | None, ...]
    copied: tuple[int, ...]

    @property
    def differs(self) -> bool:
        """Not the same in all of them."""
        return len(set(self.lies)) > 1 or len(set(self.copied)) > 1


def spots(*placements: Placement) -> tuple[Spot, ...]:
    """Where every node's result lies in each placement."""
    made = [Counter(c.value.node for c in p.copies) for p in placements]
    found: list[Spot] = []
    for node in placements[0].graph.nodes:
        told = [p.of(node.name) if node.name in p.graph else None for p in placements]
        lies = tuple(reps[0] if reps else None for reps in told)
        if any(lies):
            found.append(Spot(node.name, lies, tuple(m[node.name] for m in made)))
    return tuple(found)


def results(
    *placements: Placement, labels: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Where results lie in several placements of one graph: a row for each that differs or, if none
    does, for each; a frame where copies are made of it.

    labels: what to call each; their policy without. Raises UnknownName for none.
    """
    if not placements:
        raise UnknownName("results of no placement; give at least one")
    every = spots(*placements)
    chosen = [s for s in every if s.differs] or list(every)
    shown = chosen[:ROWS]
    ax = start(ax, 1.1 + 0.25 * (max(len(shown), 2) + 1.8), grid=None)
    ax.spines[["left", "bottom"]].set_visible(False)
    for y, spot in enumerate(shown):
        for x, (r, copied) in enumerate(zip(spot.lies, spot.copied, strict=True)):
            if r is not None:
                more = f", {copied} cop{'y' if copied == 1 else 'ies'}" if copied else ""
                _tile(ax, x, y, r, copied > 0, more, 0.4)
    named = labels or [p.policy for p in placements]
    names = [cut(s.node, 34) for s in shown]
    _table(ax, [], names, len(placements))
    ax.set_ylim(len(shown) - 0.45, -2.3)
    for x, (told, p) in enumerate(zip(named, placements, strict=True)):
        ax.text(x, -1.85, told, fontsize=SMALL, fontweight="bold", color=INK, ha="center",
                va="center", gid="head")  # fmt: skip
        ax.text(x, -1.05, f"{_count(p)}\ncost {p.cost.total:,.0f} {p.cost.unit}", fontsize=SMALL,
                color=MUTED, ha="center", va="center", gid="head")  # fmt: skip
    same = "every result lies alike" if not any(s.differs for s in every) else ""
    part = same or f"{len(chosen)} of {len(every)} results differ"
    more = f"the first {ROWS} are shown" if len(chosen) > ROWS else ""
    heading(
        ax,
        "Where each result lies" if same else "Which results lie elsewhere",
        beside(f"{joined(part, more, 'framed: copied')}\n{_all_provenance(placements)}", names),
    )
    return ax


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
    told = [dict(_operands(p, node)) for p in placements]
    every = list(dict.fromkeys(slot for row in told for slot in row))
    ax = start(ax, 1.45 + 0.36 * len(placements), grid=None)
    ax.spines[["left", "bottom"]].set_visible(False)
    for y, (placement, row) in enumerate(zip(placements, told, strict=True)):
        args = placement.graph[node].args
        copied = {str(c.value) for c in placement.copies if node in c.users}
        for x, slot in enumerate(every):
            if slot in row:
                moved = slot >= 0 and str(args[slot]) in copied
                _tile(ax, x, y, row[slot], moved, "", 0.38)
    args = placements[0].graph[node].args
    heads = [f"{slot_words(s)}\n{cut(str(args[s]), 18) if s >= 0 else ''}" for s in every]
    names = labels or [p.table for p in placements]
    _table(ax, heads, names, len(heads))
    told_by = f"framed: a copy is made for it\n{_all_provenance(placements)}"
    heading(ax, f"Where the operands of %{node} lie", beside(told_by, names))
    return ax


def _operands(placement: Placement, node: str) -> Iterator[tuple[int, TensorRepr]]:
    reps = placement.graph[node].reps if node in placement.graph else None
    if reps is None:
        raise UnknownName(f"%{node} was not placed; draw a node that has operands")
    yield from ((i, r.only) for i, r in enumerate(reps.inputs) if r is not None)
    yield from ((-1 - j, r.only) for j, r in enumerate(reps.outputs))


def _tile(ax: Axes, x: int, y: int, r: TensorRepr, copied: bool, more: str, half: float) -> None:
    """A cell of a table: a representation in its colour and in words, framed where copied."""
    face, edge = cell(r)
    ax.add_patch(
        Rectangle((x - 0.46, y - half), 0.92, 2 * half, facecolor=face,
                  edgecolor=COPY if copied else edge, linewidth=2.0 if copied else 0.8,
                  gid="copied" if copied else "operand")
    )  # fmt: skip
    ax.text(x, y, words(r) + more, fontsize=SMALL, color=INK, ha="center", va="center")


def _table(ax: Axes, heads: Sequence[str], names: Sequence[str], columns: int) -> None:
    ax.set_xlim(-0.6, columns - 0.4)
    ax.set_ylim(max(len(names), 1) - 0.45, -0.55)
    ax.set_xticks(range(len(heads)), heads)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(colors=INK)


def _by_name(graph: Graph) -> Graph:
    """The same graph with ops called as its nodes, for lay_out to measure."""
    named = (replace(n, op="_" + cut(n.name, NAME).replace(".", "_")) for n in graph.nodes)
    return replace(graph, nodes=tuple(named))


def _legend(ax: Axes, places: Iterable[TensorRepr], copied: bool, scale: float) -> None:
    counts = Counter(places)
    x = 0.02
    for r, count in counts.most_common(4):
        text = f"{words(r)}  {count}"
        face, edge = cell(r)
        ax.add_patch(Rectangle((x, 0.03), 0.13, 0.13, facecolor=face, edgecolor=edge))
        ax.text(x + 0.2, 0.1, text, fontsize=8 * scale, color=INK, va="center", gid="legend")
        x += 0.46 + 0.066 * len(text)
    if not copied:
        return
    ax.plot([x, x + 0.22], [0.1, 0.1], color=COPY, linewidth=2.2)
    ax.text(x + 0.3, 0.1, "copied", fontsize=8 * scale, color=INK, va="center", gid="legend")


def _edges(ax: Axes, picture: Picture, every: Sequence[Copy], scale: float) -> None:
    """The edges that are copied, each with the number of its copy at its end."""
    taken: Counter[tuple[float, float]] = Counter()
    number = {(c.value.node, user): i + 1 for i, c in enumerate(every) for user in c.users}
    for wire in picture.wires:
        copy = number.get((wire.source, wire.target))
        if copy is None:
            continue
        xs, ys = zip(*wire.points, strict=True)
        ax.plot(xs, ys, color=COPY, linewidth=2.0, solid_joinstyle="round", zorder=2.5,
                gid="copied")  # fmt: skip
        ax.add_patch(Polygon(arrow(wire.points), facecolor=COPY, linewidth=0, zorder=2.6))
        if copy <= LISTED:
            at = wire.points[-1]
            # Beside the box that it enters, so that its name stays in sight.
            over = wire.points[-2][0] == at[0]
            x = at[0] + (2.2 * BADGE * taken[at] if over else -BADGE)
            _badge(ax, x, at[1] - BADGE * over, copy, scale)
            taken[at] += 1


def _badge(ax: Axes, x: float, y: float, number: int, scale: float) -> None:
    ax.add_patch(Circle((x, y), BADGE, facecolor=COPY, edgecolor=PAPER, linewidth=0.8, zorder=5,
                        gid="badge"))  # fmt: skip
    ax.text(x, y, str(number), fontsize=7 * scale, fontweight="bold", color=INK, ha="center",
            va="center_baseline", zorder=6)  # fmt: skip


def _list(ax: Axes, top: float, every: Sequence[Copy], scale: float) -> None:
    """A line for each copy, the largest first, with a bar of its bytes."""
    most = max((c.nbytes for c in every), default=1)
    for i, c in enumerate(every[:LISTED]):
        y = top + ROW * i
        _badge(ax, 0.1, y, i + 1, scale)
        users = ", ".join(f"%{u}" for u in c.users[:2])
        users += f" and {len(c.users) - 2} more" * (len(c.users) > 2)
        size = f"{c.nbytes:,} bytes"
        at: dict[str, Any] = {
            "fontsize": SMALL * scale,
            "color": INK,
            "va": "center",
            "gid": "copy",
        }
        ax.text(0.26, y, cut(f"%{c.value.node} for {users}", 48), **at)
        ax.text(3.55, y, f"{words(c.has)} → {words(c.wants)}", **at)
        ax.text(6.95, y, size, ha="right", **at)
        ax.add_patch(Rectangle((7.05, y - 0.06), 0.9, 0.12, facecolor=GRID, linewidth=0))
        ax.add_patch(Rectangle((7.05, y - 0.06), 0.9 * c.nbytes / most, 0.12, facecolor=COPY,
                               linewidth=0, gid="bytes"))  # fmt: skip
    left = f"and {len(every) - LISTED} more" if len(every) > LISTED else ""
    if left or not every:
        ax.text(0.04, top + ROW * min(len(every), LISTED), left or "no transition",
                fontsize=SMALL * scale, color=MUTED, va="center")  # fmt: skip


def _count(p: Placement) -> str:
    return f"{len(p.copies)} transition{'s' * (len(p.copies) != 1)}"


def _proof(p: Placement) -> str:
    if p.bound is None:
        return ""
    proved = p.cost.total - p.bound <= 1e-6 * max(1.0, p.cost.total)
    return " (proved least)" if proved else f" (at least {p.bound:,.0f})"


def _all_provenance(placements: Sequence[Placement]) -> str:
    """What all have in common; tables and rules one by one where they differ."""
    told = list(dict.fromkeys(provenance(p) for p in placements))
    if len(told) == 1:
        return told[0]
    tables = list(dict.fromkeys(p.table for p in placements))
    rules = list(dict.fromkeys(rules_words(p) for p in placements))
    shared = f"table{'s' * (len(tables) > 1)} {', '.join(tables)}"
    return joined(shared, "; ".join(rules) if len(rules) < 4 else "rules as named")
