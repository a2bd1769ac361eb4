"""What placements cost: their transitions one by one, and their sums side by side."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from qtoolkit.draw.frame import SMALL, axis_labels, heading, joined, start
from qtoolkit.draw.palette import COPY, INK, MUTED, STORAGE, mix
from qtoolkit.errors import UnknownName
from qtoolkit.passes.place.pricing import Copy
from qtoolkit.placement import Placement

BAR = 0.3  # inches
MOST = 20
OPERATIONS = STORAGE["buffer"]


def transitions(placement: Placement, ax: Axes | None = None) -> Axes:
    """The copies of a placement, largest first: what is copied, from where to where, for whom."""
    every = sorted(placement.copies, key=lambda c: -c.nbytes)
    shown = every[:MOST]
    ax = start(ax, 1.4 + BAR * 1.5 * max(len(shown), 1), grid="x")
    ax.spines["left"].set_visible(False)
    ax.barh(range(len(shown)), [c.nbytes for c in shown], color=COPY, height=0.42)
    ax.set_yticks(range(len(shown)), [f"%{c.value.node}" for c in shown])
    ax.set_ylim(max(len(shown), 1) - 0.4, -0.75)
    for y, c in enumerate(shown):
        ax.text(0, y - 0.3, _copied(c), fontsize=SMALL, color=INK, va="bottom", gid="copy")
    if not shown:
        ax.text(0.5, 0.5, "no transition", transform=ax.transAxes, ha="center", color=MUTED)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    axis_labels(ax, x="bytes copied in each run")
    total = sum(c.nbytes for c in every)
    count = f"{len(every)} transition{'s' * (len(every) != 1)}, {total:,} bytes"
    left = f"the largest {MOST} are shown" if len(every) > MOST else ""
    heading(ax, "Where values are copied to another representation",
            joined(count, f"table {placement.table}", placement.policy, left))  # fmt: skip
    return ax


def costs(
    *placements: Placement, labels: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """The cost of placements side by side, transitions and operations apart; a mark stands at what
    was proved to be the least.

    labels: what to call each; their policy without. Raises UnknownName for none, or for costs in
    unlike units.
    """
    if not placements:
        raise UnknownName("costs of no placement; give at least one")
    units = {p.cost.unit for p in placements}
    if len(units) > 1:
        raise UnknownName(f"costs in {' and '.join(sorted(units))}: price them by one model")
    named = labels or [p.policy for p in placements]
    ax = start(ax, 1.7 + 0.5 * len(placements), grid="x")
    ax.spines["left"].set_visible(False)
    most = max(p.cost.total for p in placements) or 1.0
    for y, p in enumerate(placements):
        moved, done = p.cost.transitions, p.cost.operations
        ax.barh(y, moved, color=COPY, height=0.5)
        ax.barh(y, done, left=moved, color=OPERATIONS, height=0.5)
        if p.bound is not None:
            ax.plot([p.bound] * 2, [y - 0.36, y + 0.36], color=INK, linewidth=1.6, gid="bound")
        count = f"{len(p.copies)} transition{'s' * (len(p.copies) != 1)}"
        proof = "" if p.bound is None else " (proved least)" if _proved(p) else " (not proved)"
        ax.text(p.cost.total + 0.015 * most, y, f"{p.cost.total:,.0f}: {count}{proof}",
                fontsize=SMALL, color=INK, va="center")  # fmt: skip
    ax.set_yticks(range(len(placements)), named)
    ax.set_ylim(len(placements) - 0.45, -0.6)
    ax.set_xlim(0, most * 1.42)
    handles = [
        Patch(facecolor=COPY, label="transitions"), Patch(facecolor=OPERATIONS, label="operations"),
    ]  # fmt: skip
    ax.legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=SMALL,
              frameon=False, borderaxespad=0.2, labelcolor=mix(MUTED, INK, 0.3))  # fmt: skip
    ax.xaxis.set_major_formatter("{x:,.0f}")
    first = placements[0]
    axis_labels(ax, x=f"cost in {first.cost.unit}")
    heading(ax, "What each placement costs", joined(first.cost.model, f"table {first.table}"))
    return ax


def _proved(p: Placement) -> bool:
    return p.bound is not None and p.cost.total - p.bound <= 1e-6 * max(1.0, p.cost.total)


def _copied(c: Copy) -> str:
    users = ", ".join(f"%{u}" for u in c.users[:2]) + (
        f" and {len(c.users) - 2} more" * (len(c.users) > 2)
    )
    return f"{c.has} → {c.wants}, {c.nbytes:,} bytes, for {users}"
