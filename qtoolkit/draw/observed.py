"""What calibration saw: the range of every activation, and how one value is rounded for it."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import NDArray

from qtoolkit.draw.along import along
from qtoolkit.draw.frame import SMALL, axis_labels, heading, joined, start
from qtoolkit.draw.palette import ERROR, FLOAT, GRID, INK, INT8, MUTED, PAPER, WIRE, ink, mix
from qtoolkit.errors import BadInput, UnknownName
from qtoolkit.execution import Run
from qtoolkit.ranges import ActivationRanges, Range

SHOWN = 7  # values that a picture of rounding shows
APART = 1.62  # steps between them: the golden ratio, so that they fall everywhere between codes
PALE = mix(INT8, PAPER, 0.55)


def ranges(found: ActivationRanges, data: str = "", ax: Axes | None = None) -> Axes:
    """The observed range of every activation, in graph order, as a bar from least to greatest.

    Dark behind an activation that clamps, pale elsewhere. The scale is the bar's length, zero
    included, over 255. data says in words what calibrated.
    """
    rows = found.rows
    ax = start(ax, 3.8)
    axis_labels(ax, "", "observed range, real units")
    x = np.arange(len(rows))
    low, high = np.array([r.low for r in rows]), np.array([r.high for r in rows])
    clamped = np.array([r.clamps for r in rows])
    for mask, color in ((clamped, INT8), (~clamped, PALE)):
        ax.bar(x[mask], (high - low)[mask], 0.62, low[mask], color=color, linewidth=0, zorder=2)
    ax.axhline(0, color=INK, linewidth=0.8, zorder=3)
    room = 0.1 * float((high - low).max(initial=1e-6))
    ax.set_ylim(float(min(0, low.min())) - room, float(max(0, high.max())) + 2 * room)
    along(ax, [r.name for r in rows], [r.module for r in rows])
    _legend(ax, ((INT8, "behind an activation that clamps"), (PALE, "everything else")))
    wide = max(rows, key=lambda r: r.scale)
    fine = min(rows, key=lambda r: r.scale)
    told = (
        f"The scale is the range, zero included, over 255 steps: from {fine.scale:.2g} "
        f"(%{fine.name}) to {wide.scale:.2g} (%{wide.name})."
    )
    heading(
        ax,
        "Observed range of every activation",
        joined(f"{len(rows)} values, {found.scales} scales", f"{found.batches} batches", data)
        + f"\n{told}",
    )
    return ax


def rounding(
    found: ActivationRanges, run: Run, node: str | None = None, ax: Axes | None = None
) -> Axes:
    """Some values of one activation on their way real -> code -> real.

    found: the ranges; run: a float run that holds the node's values. node: the default is the one
    of largest scale. Raises UnknownName for a node without a range or value.
    """
    row = _chosen(found, node)
    if row.name not in run.values:
        raise UnknownName(f"%{row.name} has no value in this run; give qt.run_float of the model")
    values = _sample(np.asarray(run.values[row.name], np.float64).reshape(-1), row)
    codes = row.qparams.quantize(values.astype(np.float32))
    back = row.qparams.dequantize(codes).astype(np.float64)
    ax = start(ax, 2.9, grid=None)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.set_yticks([])
    low = float(min(values.min(), back.min())) - row.scale
    high = float(max(values.max(), back.max())) + row.scale
    _grid(ax, row, low, high)
    for x, y in zip(values, back, strict=True):
        ax.plot([x, x, y], [1, 0.62, 0.08], color=ERROR, linewidth=1.1, zorder=2)
    ax.plot(values, np.ones(values.size), "o", color=FLOAT, markersize=6, zorder=3, label="real")
    ax.plot(back, np.zeros(back.size), "s", color=INT8, markersize=6, zorder=3, label="code")
    for x in values:
        _number(ax, x, 1, f"{x:.3g}", 7, ink(FLOAT))
    for y in dict.fromkeys(back):
        _number(ax, y, 0, f"{y:.3g}", -27, ink(INT8))
    ax.set_xlim(low, high)
    ax.set_ylim(-0.62, 1.3)
    for y, text, color in ((1, "real", FLOAT), (0, "code\nreal again", INT8)):
        ax.annotate(text, (0, y), xycoords=ax.get_yaxis_transform(), xytext=(-8, 0 if y else -9),
                    textcoords="offset points", ha="right", va="center", fontsize=SMALL,
                    fontweight="bold", color=ink(color), linespacing=1.5)  # fmt: skip
    ax.set_xticks([])
    worst = float(np.abs(values - back).max() / row.scale)
    told = f"{values.size} values, rounded to the nearest code; the largest error here is "
    heading(
        ax,
        f"From real to code and back: {row.name}",
        f"scale {row.scale:.4g}, zero point {row.zero_point}: code = "
        f"{row.zero_point} + rint(real / {row.scale:.4g})\n{told}{worst:.2f} steps, and never "
        "more than half a step inside the range.",
    )
    return ax


def _chosen(found: ActivationRanges, node: str | None) -> Range:
    if node is None:
        return max(found.rows, key=lambda r: r.scale)
    row = next((r for r in found.rows if r.name == node), None)
    if row is None:
        known = ", ".join(r.name for r in found.rows)
        raise UnknownName(f"%{node} has no observed range; there are {known}")
    return row


def _sample(values: NDArray[np.float64], row: Range) -> NDArray[np.float64]:
    """Up to SHOWN values a step or more apart, around the median one."""
    least = row.scale / 100
    inside = np.unique(values[(values >= row.low) & (values <= row.high) & (abs(values) > least)])
    if not inside.size:
        raise BadInput(f"%{row.name}: no value but zero lies in its range; choose another node")
    middle = inside[inside.size // 2]
    chosen: list[float] = []
    for k in range(-(SHOWN // 2), SHOWN // 2 + 1):
        target = middle + k * APART * row.scale
        value = float(inside[np.argmin(np.abs(inside - target))])
        near = abs(value - target) <= APART * row.scale / 2
        if near and (not chosen or value - chosen[-1] >= row.scale):
            chosen.append(value)
    return np.array(chosen)


def _grid(ax: Axes, row: Range, low: float, high: float) -> None:
    """A tick and a number for every code between low and high."""
    first, last = (round(v / row.scale) for v in (low, high))
    for step in range(first, last + 1):
        x, code = step * row.scale, step + row.zero_point
        if -128 <= code <= 127 and low < x < high:
            ax.plot([x, x], [-0.07, 0.07], color=WIRE, linewidth=1, zorder=1, gid="code")
            ax.plot([x, x], [0.07, 0.93], color=GRID, linewidth=0.8, zorder=0)
            _number(ax, x, 0, str(code), -8, MUTED)
    ax.plot([low, high], [0, 0], color=WIRE, linewidth=1, zorder=1)


def _number(ax: Axes, x: float, y: float, text: str, up: int, color: str) -> None:
    ax.annotate(text, (x, y), xytext=(0, up), textcoords="offset points", ha="center",
                va="bottom" if up > 0 else "top", fontsize=SMALL, color=color)  # fmt: skip


def _legend(ax: Axes, parts: tuple[tuple[str, str], ...]) -> None:
    handles = [Patch(facecolor=color, edgecolor="none", label=text) for color, text in parts]
    ax.legend(handles=handles, loc="upper right", ncols=len(parts), fontsize=SMALL, frameon=False,
              labelcolor=MUTED, handlelength=1.0, borderaxespad=0.2)  # fmt: skip
