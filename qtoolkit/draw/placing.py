"""The placed graph: in which storage and memory layout each value lies."""

from collections import Counter
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

from qtoolkit.draw.frame import heading, joined
from qtoolkit.draw.lanes import HEIGHT, Box, lay_out
from qtoolkit.draw.network import RADIUS, canvas
from qtoolkit.draw.palette import COPY, INK, STORAGE, WIRE, mix, place_colour
from qtoolkit.errors import UnknownName
from qtoolkit.execution import compiled_for
from qtoolkit.graph import Graph, Node
from qtoolkit.layout import TensorRepr
from qtoolkit.passes.transitions import transition_bytes
from qtoolkit.trace import Trace

HEADING = 0.75
HOST = "computed on the CPU"


def placement(
    graph: Graph | Trace, ax: Axes | None = None, title: str = "Where each value lies"
) -> Axes:
    """The graph by module, each box filled by the storage and memory layout of its result.

    Copies between representations have a thick frame, ops that the host computes for a device a
    dashed one. Raises UnknownName for a graph that is not placed.
    """
    program = graph.result if isinstance(graph, Trace) else graph
    places = placed(program)
    picture = lay_out(program)
    ax, scale = canvas(picture, ax, HEADING)
    shown = {box.name: places[box.name] for box in picture.boxes if box.name in places}
    _legend(ax, shown, program, scale)
    for box in picture.boxes:
        _box(ax, box, program[box.name], places.get(box.name), scale)
    heading(ax, title, _caption(program, shown))
    return ax


def placed(graph: Graph) -> Mapping[str, TensorRepr]:
    """The representation of each node's result 0. Raises UnknownName if none has any."""
    found = {n.name: n.reps.outputs[0].only for n in graph.nodes if n.reps}
    if not found:
        raise UnknownName("the graph is not placed; draw what qt.compile(...) gives")
    return found


def on_host(node: Node) -> bool:
    """The host computes the node for a device."""
    return (node.kernel or "").endswith(":host")


def _caption(graph: Graph, places: Mapping[str, TensorRepr]) -> str:
    stored = Counter(r.storage.name.lower() for r in places.values())
    words = {"buffer": "buffer", "texture_3d": "texture"}
    told = ", ".join(
        f"{stored[s]} {words[s]}{'s' * (stored[s] != 1)}" for s in STORAGE if stored[s]
    )
    count, size = transition_bytes(graph)
    copies = f"{count} transition{'s' * (count != 1)}"
    copies += f", {size / 1024:,.0f} KiB a run" if count else ""
    return joined(f"compiled for {compiled_for(graph)}", f"values: {told}", copies)


def _legend(ax: Axes, places: Mapping[str, TensorRepr], graph: Graph, scale: float) -> None:
    counts = Counter(places.values())
    x = 0.02
    for r, count in sorted(counts.items()):
        storage, layout = r.storage.name.lower(), r.layout.name.lower()
        text = f"{storage.removesuffix('_3d')}, {layout} packed  {count}"
        ax.add_patch(Rectangle((x, 0.03), 0.13, 0.13, facecolor=place_colour(storage, layout),
                               edgecolor=mix(STORAGE[storage], INK, 0.3)))  # fmt: skip
        x = _word(ax, x, text, scale)
    marks = ("copy", any(graph[n].op == "transition" for n in places), COPY, "-", 2.2), (
        HOST, any(on_host(graph[n]) for n in places), INK, "--", 1.2,
    )  # fmt: skip
    for text, occurs, edge, style, width in marks:
        if occurs:
            ax.add_patch(Rectangle((x, 0.03), 0.13, 0.13, facecolor="none", edgecolor=edge,
                                   linestyle=style, linewidth=width))  # fmt: skip
            x = _word(ax, x, text, scale)


def _word(ax: Axes, x: float, text: str, scale: float) -> float:
    ax.text(x + 0.2, 0.1, text, fontsize=8 * scale, color=INK, va="center", gid="legend")
    return x + 0.42 + 0.062 * len(text)


def _box(ax: Axes, box: Box, node: Node, where: TensorRepr | None, scale: float) -> None:
    face, edge = "none", WIRE
    if where is not None:
        storage = where.storage.name.lower()
        face = place_colour(storage, where.layout.name.lower())
        edge = mix(STORAGE[storage], INK, 0.3)
    copy, host = node.op == "transition", on_host(node)
    style = f"round,pad=0,rounding_size={RADIUS}"
    ax.add_patch(
        FancyBboxPatch(
            (box.x, box.y), box.width, HEIGHT, boxstyle=style, facecolor=face,
            edgecolor=COPY if copy else INK if host else edge,
            linewidth=2.2 if copy else 1.2 if host else 0.9,
            linestyle="--" if host else "-", gid=box.name, zorder=3,
        )
    )  # fmt: skip
    ax.text(box.middle, box.y + HEIGHT / 2, box.text, fontsize=7.5 * scale, color=INK,
            ha="center", va="center_baseline", zorder=4)  # fmt: skip
