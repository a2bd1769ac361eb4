"""Batch norms folded: how much further apart the channels of each weight lie for it."""

import numpy as np
from matplotlib.axes import Axes

from qtoolkit.draw.along import along
from qtoolkit.draw.frame import SMALL, axis_labels, heading, start
from qtoolkit.draw.palette import INK, MUTED, WIRE
from qtoolkit.errors import BadInput
from qtoolkit.norms import BatchNorms


def batch_norms(found: BatchNorms, ax: Axes | None = None) -> Axes:
    """Largest over median channel of each weight, before and after its batch norm is folded in.

    Raises BadInput where no batch norm was folded.
    """
    rows = found.folded
    if not rows:
        raise BadInput("no batch norm is folded here; draw those of a model that has some")
    ax = start(ax, 3.8)
    ax.set_yscale("log")
    axis_labels(ax, "", "largest / median channel (log)")
    before = np.array([r.spread_before for r in rows], np.float64)
    after = np.array([r.spread_after for r in rows], np.float64)
    x = np.arange(len(rows))
    ax.vlines(x, before, after, color=WIRE, linewidth=1.6, alpha=0.6, zorder=2)
    ax.plot(x, before, "o", color=WIRE, markerfacecolor="white", markersize=4.8, zorder=3,
            label="before: the conv alone")  # fmt: skip
    ax.plot(x, after, "o", color=INK, markersize=4.8, zorder=3, label="after: batch norm folded in")
    low, high = float(min(before.min(), after.min(), 1)), float(max(before.max(), after.max()))
    ax.set_ylim(low * 0.9, high * (high / low) ** 0.2 * 1.1)
    shown = [t for t in (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 500, 1000) if t <= 1.3 * high]
    ax.set_yticks(shown, [str(t) for t in shown])
    ax.minorticks_off()
    along(ax, [r.into or r.name for r in rows], [r.module for r in rows])
    ax.legend(loc="upper right", ncols=2, fontsize=SMALL, frameon=False, labelcolor=MUTED,
              handletextpad=0.3, borderaxespad=0.1)  # fmt: skip
    told = (
        f"The median weight goes from {np.median(before):.1f} to {np.median(after):.1f}: "
        "the factor of each channel pulls the channels apart."
        if np.median(after) > np.median(before)
        else f"The median weight goes from {np.median(before):.1f} to {np.median(after):.1f}."
    )
    heading(ax, "What folding does to the channels of each weight",
            f"{len(rows)} of {len(found.rows)} batch norms folded\n{told}")  # fmt: skip
    return ax
