"""The graph by module as Axes, from the same layout as its SVG."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, PathPatch, Polygon, Rectangle
from matplotlib.path import Path

from qtoolkit.draw.frame import heading, joined, points_of, rounding, start
from qtoolkit.draw.lanes import HEIGHT, Box, Picture, Point, Wire, lay_out
from qtoolkit.draw.palette import FLOAT, INK, MUTED, PAPER, ROLE, WIRE, mix, tint
from qtoolkit.execution import compiled_for
from qtoolkit.graph import Graph
from qtoolkit.passes.fuse import left_float
from qtoolkit.passes.transitions import transition_bytes
from qtoolkit.trace import Trace

RADIUS = 0.05
HEADING, LINE = 0.72, 0.15
REASONS = 6


def graph(graph: Graph | Trace, ax: Axes | None = None, title: str = "The graph by module") -> Axes:
    """The graph of any stage: a lane per module, a box per op, its colour what it computes on;
    ops with weights are the darker ones.

    Boxes left float in a quantized graph, and unsupported ones, are filled with the warning
    colour; a trace, whose result is drawn, also tells why. Without `ax` the figure is as high as
    the graph needs.
    """
    program = graph.result if isinstance(graph, Trace) else graph
    told = _reasons(graph) if isinstance(graph, Trace) else ()
    picture = lay_out(program)
    ax, scale = canvas(picture, ax, HEADING + LINE * len(told))
    _legend(ax, picture, scale)
    for box in picture.boxes:
        _draw_box(ax, box, picture.warn, scale)
    heading(ax, title, "\n".join([_caption(program), *told]))
    return ax


def canvas(picture: Picture, ax: Axes | None, heading: float) -> tuple[Axes, float]:
    """Axes in the picture's inches with its lanes and wires drawn, and the scale of its type.

    heading: inches that title and caption take above it.
    """
    ax = start(ax, picture.height + heading, grid=None, width=picture.width)
    ax.set_axis_off()
    ax.set_xlim(0, picture.width)
    ax.set_ylim(picture.height, 0)
    ax.set_aspect("equal", anchor="NW")
    wide, high = points_of(ax)
    scale = min(1.0, 1.1 * wide / (72 * picture.width), 1.4 * high / (72 * picture.height))
    for wire in sorted(picture.wires, key=lambda w: w.skip):
        _draw_wire(ax, wire)
    for lane in picture.lanes:
        ax.text(0, lane.y + 0.085, lane.label, fontsize=8 * scale, color=INK, va="center",
                fontweight="bold", gid="lane")  # fmt: skip
        ax.text(0, lane.y + 0.215, lane.detail, fontsize=7 * scale, color=MUTED, va="center")
    return ax, scale


def _reasons(trace: Trace) -> tuple[str, ...]:
    """Why each op was left float, a line each."""
    found = left_float(trace["fuse"].after, trace["fuse"].steps)
    lines = [f"left float: {n.node} ({n.op}), because {n.why}" for n in found]
    rest = len(lines) - REASONS
    return (*lines[:REASONS], *([f"and {rest} more"] if rest > 0 else ()))


def fill(role: str, warn: bool, weighted: bool = True) -> tuple[str, str, str]:
    """Fill, edge and text colour of a box; one without weights is paler."""
    if role == "unsupported":
        return INK, INK, PAPER
    if role == "float" and warn:
        return FLOAT, FLOAT, PAPER
    pale = tint(ROLE[role])
    return pale if weighted else mix(pale, PAPER, 0.7), ROLE[role], INK


def _caption(graph: Graph) -> str:
    count, size = transition_bytes(graph)
    compiled = any(n.kernel for n in graph.nodes)
    noun = "copy" if count == 1 else "copies"
    copies = f"{count} {noun} between memory layouts, {size / 1024:,.0f} KiB a run"
    return joined(
        f"compiled for {compiled_for(graph)}" if compiled else "",
        f"{sum(n.op != 'input' for n in graph.nodes)} nodes",
        copies if compiled else "",
        rounding(graph),
    )


def _legend(ax: Axes, picture: Picture, scale: float) -> None:
    for entry in picture.legend:
        face, edge, _ = fill(entry.role, picture.warn)
        ax.add_patch(Rectangle((entry.x, 0.03), 0.13, 0.13, facecolor=face, edgecolor=edge))
        ax.text(entry.x + 0.2, 0.1, entry.text, fontsize=8 * scale, color=INK, va="center",
                gid="legend")  # fmt: skip


def _draw_box(ax: Axes, box: Box, warn: bool, scale: float) -> None:
    face, edge, text = fill(box.role, warn, box.weighted)
    style = f"round,pad=0,rounding_size={RADIUS}"
    ax.add_patch(
        FancyBboxPatch((box.x, box.y), box.width, HEIGHT, boxstyle=style, facecolor=face,
                       edgecolor=edge, linewidth=0.9, gid=box.name, zorder=3)
    )  # fmt: skip
    ax.text(box.middle, box.y + HEIGHT / 2, box.text, fontsize=7.5 * scale, color=text,
            ha="center", va="center_baseline", zorder=4)  # fmt: skip


def _draw_wire(ax: Axes, wire: Wire) -> None:
    color = INK if wire.skip else WIRE
    path = _rounded(wire.points)
    ax.add_patch(PathPatch(path, facecolor="none", edgecolor=color, linewidth=1.0, zorder=2))
    ax.add_patch(Polygon(arrow(wire.points), facecolor=color, linewidth=0, zorder=2))


def arrow(points: tuple[Point, ...]) -> tuple[Point, Point, Point]:
    """The head at the end of a wire."""
    (x0, y0), (x1, y1) = points[-2:]
    along = np.sign([x1 - x0, y1 - y0]) * 0.055
    across = np.array([-along[1], along[0]]) * 0.6
    tip = np.array([x1, y1])
    left, right = tip - along + across, tip - along - across
    return (x1, y1), (float(left[0]), float(left[1])), (float(right[0]), float(right[1]))


def corners(points: tuple[Point, ...]) -> list[tuple[Point, Point, Point]]:
    """Each bend of a wire: where the curve begins, its corner, where it ends."""
    found: list[tuple[Point, Point, Point]] = []
    for before, here, after in zip(points, points[1:], points[2:], strict=False):
        found.append((_toward(here, before), here, _toward(here, after)))
    return found


def _toward(here: Point, other: Point) -> Point:
    dx, dy = other[0] - here[0], other[1] - here[1]
    length = abs(dx) + abs(dy)
    step = min(RADIUS, length / 2) / length if length else 0.0
    return here[0] + dx * step, here[1] + dy * step


def _rounded(points: tuple[Point, ...]) -> Path:
    vertices: list[Point] = [points[0]]
    codes = [Path.MOVETO]
    for start_, corner, end in corners(points):
        vertices += [start_, corner, end]
        codes += [Path.LINETO, Path.CURVE3, Path.CURVE3]
    return Path([*vertices, points[-1]], [*codes, Path.LINETO])
