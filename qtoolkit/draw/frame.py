"""What all pictures share: size, type, grid, heading and labels that keep apart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Literal

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.text import Annotation, Text
from matplotlib.textpath import text_to_path
from matplotlib.transforms import Bbox

from qtoolkit.draw.palette import GRID, INK, MUTED, WIRE
from qtoolkit.execution import Run
from qtoolkit.graph import Graph
from qtoolkit.ops import OPS

# Inches; at 100 dpi the width of a README column, where the smallest type is 11 pixels high.
WIDTH = 8.0
TITLE, TEXT, SMALL = 11.0, 9.0, 8.0
FONT = FontProperties(size=SMALL)

ROUNDING = {
    "float": "requantize 'float': one rounding, ties to even",
    "fixed": "requantize 'fixed': one rounding, ties up",
    "fixed_double": "requantize 'fixed_double': two roundings",
}


def start(
    ax: Axes | None,
    height: float,
    grid: Literal["x", "y", "both"] | None = "y",
    width: float = WIDTH,
) -> Axes:
    """The given Axes, or a new figure's, in the house's style; `height` and `width` in inches."""
    if ax is None:
        ax = plt.subplots(figsize=(width, height), dpi=100, layout="constrained")[1]
    ax.set_facecolor("none")
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(WIRE)
    ax.tick_params(which="both", length=0, pad=5, labelsize=SMALL, colors=MUTED)
    ax.set_axisbelow(True)
    ax.grid(False)
    if grid:
        ax.grid(True, axis=grid, color=GRID, linewidth=0.8)
    return ax


def heading(ax: Axes, title: str, caption: str = "") -> None:
    """A title and, under it, a caption in small grey type, both flush left."""
    room = points_of(ax)[0]
    lines = [part for line in caption.splitlines() for part in wrapped(line, room)]
    depth = len(lines) * SMALL * 1.35
    ax.set_title(
        title, loc="left", fontsize=TITLE, fontweight="bold", color=INK, pad=10 + depth + 3
    )
    ax.annotate(
        "\n".join(lines),
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 9),
        textcoords="offset points",
        fontsize=SMALL,
        color=MUTED,
        va="bottom",
        linespacing=1.35,
        gid="caption",
    )


def wrapped(text: str, room: float) -> list[str]:
    """The text in lines of small type, none wider than `room` points if its words allow it."""
    lines: list[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_to_path.get_text_width_height_descent(longer, FONT, False)[0] <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return [line.strip(" ·") for line in lines]


def caption_of(ax: Axes) -> str:
    """The caption that heading wrote, unwrapped."""
    found = [t.get_text() for t in ax.texts if t.get_gid() == "caption"]
    return " ".join("\n".join(found).split())


def png(ax: Axes) -> bytes:
    """A picture as PNG; its figure is closed."""
    file = BytesIO()
    figure = _figure(ax)
    figure.savefig(file, format="png", dpi=100)
    plt.close(figure)
    return file.getvalue()


def axis_labels(ax: Axes, x: str = "", y: str = "") -> None:
    ax.set_xlabel(x, fontsize=TEXT, color=MUTED, labelpad=6)
    ax.set_ylabel(y, fontsize=TEXT, color=MUTED, labelpad=6)


def end_label(
    ax: Axes, y: float, text: str, color: str, side: Literal["left", "right"], above: bool = True
) -> None:
    """Name a horizontal line at one end of it, above or below."""
    ax.annotate(
        text,
        (float(side == "right"), y),
        xycoords=ax.get_yaxis_transform(),
        xytext=(-2 if side == "right" else 2, 4 if above else -4),
        textcoords="offset points",
        ha=side,
        va="bottom" if above else "top",
        fontsize=SMALL,
        fontweight="bold",
        color=color,
    )


def joined(*parts: str) -> str:
    """The parts that say something, on one line."""
    return "  ·  ".join(part for part in parts if part)


def rounding(graph: Graph) -> str:
    """How the graph's int8 ops round, in words; empty if it has none."""
    modes = dict.fromkeys(
        str(n.args[OPS[n.op].position("mode")])
        for n in graph.nodes
        if n.op in OPS and "out_multiplier" in OPS[n.op].schema
    )
    return ", ".join(ROUNDING.get(mode, mode) for mode in modes)


def ran_on(run: Run) -> str:
    """The backend, its device and rounding mode, as captions name them."""
    return joined(f"{run.backend} on {run.device}", rounding(run.graph))


@dataclass(frozen=True, slots=True)
class Label:
    """A text to stand above the data point (x, high), or below (x, low)."""

    x: float
    low: float
    high: float
    text: str
    color: str = INK

    @property
    def places(self) -> Iterator[tuple[float, int, int]]:
        """Where it may stand: beside which y, and how far from it in points; nearest first."""
        for far in (6, 18, 30, 44, 60, 80, 104):
            for across in (0, -26, 26, -52, 52) if far > 6 else (0,):
                yield self.low, across, -far
                yield self.high, across, far


def direct_labels(
    ax: Axes, labels: Sequence[Label], obstacles: Sequence[tuple[float, float, float, float]]
) -> tuple[Label, ...]:
    """Write labels near their points, most important first; return those that found room.

    obstacles: data rectangles (x0, y0, x1, y1) that no label may cover. Everything else must be
    drawn and both limits set before, since this lays the figure out.
    """
    _figure(ax).draw_without_rendering()
    taken = [_on_screen(ax, o) for o in obstacles]
    inside = ax.get_window_extent()
    written: list[Label] = []
    for label in labels:
        for y, across, up in label.places:
            text = _write(ax, label, y, across, up)
            # The first call places the text; its extent would count the leader line in.
            text.get_window_extent()
            box = Text.get_window_extent(text)
            within = Bbox.intersection(box, inside)
            fits = within is not None and np.allclose(within.extents, box.extents)
            if fits and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                written.append(label)
                break
            text.remove()
    return tuple(written)


def _write(ax: Axes, label: Label, y: float, across: int, up: int) -> Annotation:
    line = {"arrowstyle": "-", "color": label.color, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 4}
    return ax.annotate(
        label.text,
        (label.x, y),
        xytext=(across, up),
        textcoords="offset points",
        ha="center",
        va="bottom" if up > 0 else "top",
        fontsize=SMALL,
        color=label.color,
        arrowprops=line if abs(up) > 6 else None,
        gid="label",
    )


def _on_screen(ax: Axes, rectangle: tuple[float, float, float, float]) -> Bbox:
    """A data rectangle in pixels, four points wider on each side."""
    pad = 4 * _figure(ax).dpi / 72
    (x0, y0), (x1, y1) = ax.transData.transform(np.reshape(rectangle, (2, 2)))
    return Bbox.from_extents(x0 - pad, y0 - pad, x1 + pad, y1 + pad)


def margin_labels(ax: Axes, labels: Sequence[tuple[float, str, str]]) -> None:
    """Name horizontal lines (y, text of two lines, colour) at their right ends, kept apart.

    Lays the figure out; what stands around the Axes must be there before.
    """
    _figure(ax).draw_without_rendering()
    low, high = ax.get_ylim()
    line = 2.9 * SMALL * _figure(ax).dpi / 72 / ax.get_window_extent().height
    last = float("inf")
    for y, text, color in sorted(labels, reverse=True):
        share = min((y - low) / (high - low), last - line)
        last = share
        ax.annotate(
            text, (1, share), xycoords="axes fraction", xytext=(7, 0),
            textcoords="offset points", va="center", fontsize=SMALL, fontweight="bold",
            linespacing=1.3, color=color, gid="mean",
        )  # fmt: skip


def points_of(ax: Axes) -> tuple[float, float]:
    """Width and height of the Axes in points; near enough before the figure is laid out."""
    width, height = _figure(ax).get_size_inches()
    spot = ax.get_subplotspec()
    rows, columns = spot.get_gridspec().get_geometry() if spot else (1, 1)
    return float(0.92 * 72 * width / columns), float(0.7 * 72 * height / rows)


def _figure(ax: Axes) -> Figure:
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure
