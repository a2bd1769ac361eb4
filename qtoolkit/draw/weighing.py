"""Weights of every layer, one scale per channel against one per tensor: scales, SQNR, marks."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from qtoolkit.draw.along import along
from qtoolkit.draw.frame import (
    SMALL,
    Label,
    axis_labels,
    direct_labels,
    heading,
    joined,
    margin_labels,
    start,
)
from qtoolkit.draw.palette import BAND, GRID, INK, MUTED, PER_CHANNEL, PER_TENSOR, UNDERFLOW, ink
from qtoolkit.weights import CODES, DEAD, MARKS, RAISED, UNDERFLOWED, LayerWeights, WeightErrors

NAMED, FEW = 5, 12
# One mark each: dead and underflowed must not be taken for each other.
MARK_WORDS = {
    DEAD: ("x", INK, "dead: all zero"),
    UNDERFLOWED: ("v", UNDERFLOW, "underflowed: below every scale"),
    RAISED: ("^", PER_CHANNEL, "scale raised for the bias"),
}


def weight_scales(found: WeightErrors, ax: Axes | None = None) -> Axes:
    """The weight scales of every layer: a dot per channel, a bar for the one of the tensor.

    Dead and underflowed channels have no scale of their own and are left out.
    """
    layers = found.layers
    ax = start(ax, 4.2)
    size, alpha = (5.0, 0.7) if len(layers) <= FEW else (2.6, 0.28)
    ax.set_yscale("log")
    axis_labels(ax, "", "weight scale (log)")
    for x, layer in enumerate(layers):
        live = np.ones(layer.max_abs.size, bool)
        live[[*layer.marks[DEAD], *layer.marks[UNDERFLOWED]]] = False
        scales = layer.channel.scale[live]
        ax.plot(np.full(scales.size, x), scales, "o", color=PER_CHANNEL, markersize=size,
                alpha=alpha, markeredgewidth=0, zorder=2, gid="channels")  # fmt: skip
        ax.plot([x - 0.36, x + 0.36], [layer.tensor.scale[0]] * 2, color=PER_TENSOR, linewidth=2.4,
                zorder=3, solid_capstyle="butt", gid="tensor")  # fmt: skip
    along(ax, [layer.name for layer in layers], [layer.module for layer in layers])
    low, high = ax.get_ylim()
    ax.set_ylim(low, high * (high / low) ** 0.12)
    _key(ax, ((PER_CHANNEL, "o", "a channel's scale"), (PER_TENSOR, "_", "the tensor's scale")))
    used = np.concatenate([_codes_left(layer) for layer in layers])
    told = (
        f"With one scale for all, the median channel has {np.median(used):.0f} of ±{CODES} codes "
        f"left; {int((used < 1).sum())} of {used.size:,} have less than one."
    )
    heading(ax, "Weight scales of every layer", f"{len(layers)} layers\n{told}")
    return ax


def weight_sqnr(found: WeightErrors, ax: Axes | None = None) -> Axes:
    """SQNR of every layer's weight, per-channel against per-tensor; the largest gains are named."""
    layers = found.layers
    ax = start(ax, 4.2)
    axis_labels(ax, "", "SQNR of the weight, dB")
    sides = ((PER_CHANNEL, "per-channel", [layer.channel.sqnr_db for layer in layers]),
             (PER_TENSOR, "per-tensor", [layer.tensor.sqnr_db for layer in layers]))  # fmt: skip
    figures = [db for _, _, side in sides for db in side if db is not None] or [0.0, 1.0]
    room = max(1.0, 0.12 * (max(figures) - min(figures)))
    ax.set_ylim(min(figures) - 2 * room, max(figures) + 2 * room)
    along(ax, [layer.name for layer in layers], [layer.module for layer in layers])
    gains = _gain_lines(ax, layers)
    for color, label, side in sides:
        at = [(x, db) for x, db in enumerate(side) if db is not None]
        if at:
            ax.plot(*zip(*at, strict=True), "o", color=color, markersize=4.6, label=label, zorder=3)
    won = [g for _, g in gains]
    told = (
        f"{sum(g > 0 for g in won)} of {len(layers)} weights are closer to float with a scale per "
        f"channel, by {np.mean(won) if won else 0:.1f} dB on average."
    )
    heading(ax, "SQNR of every weight: per-channel against per-tensor", told)
    means: list[tuple[float, str, str]] = []
    for color, label, side in sides:
        some = [db for db in side if db is not None]
        if some:
            mean = float(np.mean(some))
            ax.axhline(mean, color=color, linewidth=1.1, linestyle=(0, (5, 3)), zorder=1)
            means.append((mean, f"{label}\nmean {mean:.1f} dB", ink(color)))
    margin_labels(ax, means)
    _name_gains(ax, layers, gains, [m for m, _, _ in means])
    return ax


def weight_channels(found: WeightErrors, node: str | None = None, ax: Axes | None = None) -> Axes:
    """SQNR of each channel of one layer, largest channel first, per-channel against per-tensor.

    node: default is the layer that gains most. Channels whose codes are all zero lie at 0 dB,
    dead ones have no SQNR and are left out.
    """
    layer = found[node] if node else max(found.layers, key=lambda one: one.gain or 0.0)
    order = np.argsort(layer.max_abs, kind="stable")[::-1]
    x = np.arange(order.size)
    ax = start(ax, 3.6)
    size = float(np.clip(330 / order.size, 2.4, 5.5))
    for color, label, side in ((PER_TENSOR, "one scale per tensor", layer.tensor),
                               (PER_CHANNEL, "one scale per channel", layer.channel)):  # fmt: skip
        ax.plot(x, side.db[order], "o", color=color, markersize=size, markeredgewidth=0,
                alpha=0.85, label=label, zorder=2)  # fmt: skip
    margin = max(0.6, 0.012 * order.size)
    ax.set_xlim(-margin, order.size - 1 + margin)
    top = float(np.nanmax([layer.channel.db, layer.tensor.db], initial=1.0))
    ax.set_ylim(-0.05 * top, 1.22 * top)
    axis_labels(ax, f"{order.size} output channels, largest first", "SQNR of the channel, dB")
    _key(ax, ((PER_CHANNEL, "o", "one scale per channel"), (PER_TENSOR, "o", "one per tensor")))
    lost, dead = int(layer.tensor.lost.sum()), layer.marks[DEAD].size
    told = f"With one scale per tensor, channels alive that have lost every code (0 dB): {lost}"
    told += f"; dead ones, left out: {dead}." if dead else "."
    heading(ax, f"SQNR of each channel of {layer.name}",
            f"{joined(layer.where, layer.kind)}\n{told}")  # fmt: skip
    return ax


def weight_marks(found: WeightErrors, ax: Axes | None = None) -> Axes:
    """Which channels are dead, underflowed or raised for their bias, in each layer that has any."""
    marked = [one for one in found.layers if any(one.marks[m].size for m in MARKS)]
    ax = start(ax, 1.5 + 0.2 * max(len(marked), 2), grid=None)
    ax.spines[["left", "bottom"]].set_visible(False)
    for y, layer in enumerate(marked):
        ax.barh(y, 1, 0.7, color=BAND if y % 2 else GRID, linewidth=0, zorder=0)
        last = max(1, layer.max_abs.size - 1)
        for mark in MARKS:
            at = layer.marks[mark] / last
            (marker, color, _), wide = MARK_WORDS[mark], 1.5 if mark == DEAD else 0
            ax.plot(at, np.full(at.size, y), marker, color=color, markersize=5,
                    markeredgewidth=wide, zorder=3 + (mark == DEAD), gid=mark)  # fmt: skip
        ax.annotate(_counts(layer), (1, y), xytext=(9, 0), textcoords="offset points",
                    va="center", fontsize=SMALL, color=MUTED)  # fmt: skip
    ax.set_yticks(range(len(marked)), [one.name for one in marked])
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(max(len(marked), 1) - 0.4, -1.9)
    ax.set_xticks([0, 1], ["first channel", "last"])
    _key(ax, tuple((MARK_WORDS[m][1], MARK_WORDS[m][0], MARK_WORDS[m][2]) for m in MARKS))
    counts = ", ".join(f"{sum(one.marks[m].size for one in found.layers)} {m}" for m in MARKS)
    without = len(found.layers) - len(marked)
    heading(ax, "Channels that need a word",
            f"{counts} among {sum(one.max_abs.size for one in found.layers):,} channels\n"
            f"{without} of {len(found.layers)} layers have none and are not shown.")  # fmt: skip
    return ax


def _codes_left(layer: LayerWeights) -> NDArray[np.float64]:
    """Of ±127 codes, how many each live channel reaches under the tensor's scale."""
    live = layer.max_abs[layer.max_abs > 0]
    reached: NDArray[np.float64] = np.minimum(CODES, live / layer.tensor.scale[0])
    return reached


def _gain_lines(ax: Axes, layers: Sequence[LayerWeights]) -> list[tuple[int, float]]:
    gains: list[tuple[int, float]] = []
    for x, layer in enumerate(layers):
        ours, theirs, gain = layer.channel.sqnr_db, layer.tensor.sqnr_db, layer.gain
        if ours is None or theirs is None or gain is None:
            continue
        ax.plot([x, x], [theirs, ours], color=PER_CHANNEL if gain >= 0 else PER_TENSOR,
                linewidth=2.2, alpha=0.38, solid_capstyle="butt", zorder=2, gid="gain")  # fmt: skip
        gains.append((x, gain))
    return gains


def _name_gains(
    ax: Axes,
    layers: Sequence[LayerWeights],
    gains: Sequence[tuple[int, float]],
    means: Sequence[float],
) -> None:
    spans = {x: (layers[x].tensor.sqnr_db or 0.0, layers[x].channel.sqnr_db or 0.0)
             for x, _ in gains}  # fmt: skip
    largest = sorted(gains, key=lambda g: -g[1])[:NAMED]
    labels = [
        Label(x, min(spans[x]), max(spans[x]), f"{layers[x].name} +{g:.0f}", ink(PER_CHANNEL))
        for x, g in largest
        if g >= 1
    ]
    left, right = ax.get_xlim()
    lines = [(x, min(s), x, max(s)) for x, s in spans.items()]
    direct_labels(ax, labels, [*lines, *((left, y, right, y) for y in means)])


def _counts(layer: LayerWeights) -> str:
    told = [f"{layer.marks[m].size} {m}" for m in MARKS if layer.marks[m].size]
    return f"{', '.join(told)} of {layer.max_abs.size}"


def _key(ax: Axes, parts: Sequence[tuple[str, str, str]]) -> None:
    """A legend of (colour, marker, words) in a row at the upper left, above the data."""
    handles = [
        ax.plot([], [], marker, color=color, label=text, markersize=5 if marker != "_" else 9,
                markeredgewidth=2 if marker in "x_" else 0)[0]
        for color, marker, text in parts
    ]  # fmt: skip
    ax.legend(handles=handles, loc="upper left", ncols=len(parts), fontsize=SMALL, frameon=False,
              labelcolor=MUTED, handletextpad=0.3, borderaxespad=0.1)  # fmt: skip
