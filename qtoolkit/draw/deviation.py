"""The error of one node: how it is distributed, and where in the picture it lies."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from qtoolkit.comparison import Comparison, Row
from qtoolkit.draw.choice import default_node
from qtoolkit.draw.frame import SMALL, TEXT, axis_labels, heading, joined, ran_on, start
from qtoolkit.draw.palette import ERROR, ERROR_MAP, INK, MUTED, ROUNDING
from qtoolkit.errors import UnknownName

# Bars to a step, by how far the errors reach: odd, so that a bar is centred on zero and half a step
# is the edge of one.
BARS = ((4.0, 9), (8.0, 5), (14.0, 3))
# A value rounded to the nearest code is off by up to half a step, uniformly.
ROUNDING_RMSE = 1 / np.sqrt(12)


@dataclass(frozen=True, slots=True)
class Deviation:
    """Errors of one row, in steps of the output scale or, unquantized, in real units."""

    row: Row
    values: NDArray[np.float64]
    step: float | None

    @property
    def unit(self) -> str:
        return "real units" if self.step is None else "steps of the output scale"

    @property
    def finite(self) -> NDArray[np.float64]:
        return self.values[np.isfinite(self.values)]


def deviation(comparison: Comparison, node: str | None = None) -> Deviation:
    """The errors of one compared node; the default is the conv or linear worth most of a look."""
    name = node or default(comparison)
    truth, value, qparams = comparison.pair(name)
    with np.errstate(invalid="ignore"):
        error = value.astype(np.float64) - truth
    step = None if qparams is None or qparams.per_channel else float(qparams.scale[0])
    return Deviation(comparison[name], error / step if step else error, step)


def error(comparison: Comparison, node: str | None = None, ax: Axes | None = None) -> Axes:
    """A histogram of one node's error, with the band that rounding alone would fill.

    Errors are in steps of the node's output scale; those beyond the 0.1 % tails are counted in
    the outermost bars.
    """
    d = deviation(comparison, node)
    ax = start(ax, 3.6)
    title = f"Error of {d.row.name}"
    caption = joined(ran_on(comparison.b), f"against {comparison.a.backend}")
    if not d.finite.size or not d.finite.any():
        _nothing(ax, d)
        heading(ax, title, f"{caption}\nAll {d.values.size:,} values are equal.")
        return ax
    reach = _reach(d)
    width = _bar(reach) if d.step else reach / 40
    half = int(np.ceil(reach / width)) + 0.5
    edges = np.arange(-half, half + 1) * width
    inside = np.clip(d.finite, edges[0], edges[-1])
    share = 100 * np.histogram(inside, edges)[0] / d.finite.size
    if d.step:
        ax.axvspan(-0.5, 0.5, color=ROUNDING, linewidth=0, zorder=0, gid="rounding")
        ax.vlines([-0.5, 0.5], 0, 1, INK, linewidth=0.8, linestyle=(0, (3, 2)), zorder=3,
                  transform=ax.get_xaxis_transform())  # fmt: skip
    ax.bar(edges[:-1], share, width, align="edge", color=ERROR, linewidth=0)
    ax.set_xlim(edges[0] - width, edges[-1] + width)
    _fit_height(ax, share)
    if d.step:
        ax.annotate(
            "±½ step:\nrounding alone", (0.5, 1), xycoords=ax.get_xaxis_transform(),
            xytext=(5, -2), textcoords="offset points", fontsize=SMALL, color=INK, va="top",
        )  # fmt: skip
    axis_labels(ax, f"error in {d.unit}", "% of values")
    heading(ax, title, f"{caption}\n{_figures(d)}")
    return ax


def error_map(
    comparison: Comparison,
    node: str | None = None,
    ax: Axes | None = None,
    channels: str = "max",
) -> Axes:
    """Where one node errs: |error| over the picture, sample 0, the largest over the channels.

    channels: 'max', or 'grid' for every channel side by side. A node without rows and columns is
    shown feature by feature, row after row.
    """
    if channels not in ("max", "grid"):
        raise UnknownName(f"channels {channels!r}; choose 'max' or 'grid'")
    d = deviation(comparison, node)
    picture, told = cells(np.abs(d.values), channels)
    ax = start(ax, 4.8, grid=None, width=6.4)
    ax.set_anchor("W")
    ax.spines[:].set_visible(False)
    top = float(np.nanmax(picture, initial=0.0)) or 1.0
    image = ax.imshow(picture, cmap=ERROR_MAP, vmin=0, vmax=top, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])
    bar = ax.figure.colorbar(image, cax=ax.inset_axes((1.03, 0, 0.035, 1)))
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=SMALL, colors=MUTED)
    bar.set_label(f"|error| in {d.unit}", fontsize=TEXT, color=MUTED)
    heading(
        ax,
        f"Where {d.row.name} errs",
        f"{joined(ran_on(comparison.b), f'against {comparison.a.backend}')}\n{told}",
    )
    return ax


def default(comparison: Comparison) -> str:
    """The compared conv or linear worth most of a look."""
    return default_node(comparison.b.graph, {row.name for row in comparison})


def _reach(d: Deviation) -> float:
    """Half the width of the histogram: all but the 0.1 % tails, at least one step."""
    far = float(np.quantile(np.abs(d.finite), 0.999))
    if d.step is None:
        return far or float(np.abs(d.finite).max())
    return max(1.0, float(np.ceil(far * 2) / 2))


def _bar(reach: float) -> float:
    """The width of a bar in steps: at most about eighty bars in all."""
    for limit, count in BARS:
        if reach <= limit:
            return 1 / count
    return float(2 * np.ceil(reach / 80) - 1)


def _fit_height(ax: Axes, share: NDArray[np.float64]) -> None:
    """Scale to the bars beside zero: a relu makes so many exact zeros that they would hide them."""
    middle = share.size // 2
    exact, rest = float(share[middle]), float(np.delete(share, middle).max(initial=0.0))
    if exact < 2.5 * rest or not rest:
        ax.set_ylim(0, 1.2 * max(exact, rest))
        return
    ax.set_ylim(0, 1.6 * rest)
    ax.annotate(
        f"{exact:.0f} % at zero →", (-0.5, 1), xycoords=ax.get_xaxis_transform(), xytext=(-5, -2),
        textcoords="offset points", fontsize=SMALL, color=INK, va="top", ha="right",
    )  # fmt: skip


def _nothing(ax: Axes, d: Deviation) -> None:
    ax.bar([0], [100], 1 / 9, color=ERROR)
    ax.set_xlim(-1, 1)
    ax.set_ylim(0, 116)
    axis_labels(ax, f"error in {d.unit}", "% of values")


def _figures(d: Deviation) -> str:
    m = d.row.metrics
    parts = ["exact" if m.sqnr_db is None else f"SQNR {m.sqnr_db:.1f} dB"]
    if m.rmse_steps is not None:
        parts.append(f"RMSE {m.rmse_steps:.2f} steps (rounding alone: {ROUNDING_RMSE:.2f})")
    if m.max_steps is not None:
        parts.append(f"largest error {m.max_steps:.1f} steps")
    if m.agreement is not None:
        parts.append(f"{100 * m.agreement:.0f} % of codes agree")
    return joined(*parts)


def cells(error: NDArray[np.float64], channels: str) -> tuple[NDArray[np.float64], str]:
    """The picture to draw, and what it shows."""
    if error.ndim < 3:
        flat = error[0].reshape(-1) if error.ndim == 2 else error.reshape(-1)
        return _tiles(flat.reshape(-1, 1, 1), 0), f"{flat.size} features, row after row"
    sample = error[0].reshape(-1, error.shape[-2] if error.ndim > 3 else 1, error.shape[-1])
    count, height, width = sample.shape
    if channels == "grid":
        gap = max(1, min(height, width) // 12)
        return _tiles(sample, gap), f"{count} channels of {height}×{width}, row after row"
    return sample.max(axis=0), f"{height}×{width}, the largest of {count} channels"


def _tiles(sample: NDArray[np.float64], gap: int) -> NDArray[np.float64]:
    """Channels[n, h, w] side by side in a near-square grid, NaN between them."""
    count, height, width = sample.shape
    across = int(np.ceil(np.sqrt(count)))
    down = -(-count // across)
    sheet = np.full((down * (height + gap) - gap, across * (width + gap) - gap), np.nan)
    for i, tile in enumerate(sample):
        y, x = (i // across) * (height + gap), (i % across) * (width + gap)
        sheet[y : y + height, x : x + width] = tile
    return sheet
