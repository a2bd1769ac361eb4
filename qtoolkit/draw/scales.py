"""Weight scales of one layer: one per channel, against the one that a tensor would have."""

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from qtoolkit.draw.choice import channel_ranges, default_node, is_depthwise, weight_qparams
from qtoolkit.draw.frame import axis_labels, end_label, heading, joined, start
from qtoolkit.draw.palette import PER_CHANNEL, PER_TENSOR, ink, tint
from qtoolkit.errors import UnknownName
from qtoolkit.graph import Graph
from qtoolkit.passes.qdq import DEQUANTIZE
from qtoolkit.qparams import QParams

CODES = 127


def channel_scales(
    graph: Graph,
    node: str | None = None,
    other: Graph | None = None,
    ax: Axes | None = None,
    order: str = "scale",
) -> Axes:
    """Weight scales of a conv or linear of a q/dq graph, with the per-tensor scale as a line.

    other: the same model quantized with the other granularity; without it the missing side is
    reckoned from the weight's own range, max|w|/127. order: 'scale' or 'channel'. node: default is
    the one whose channels differ most. Raises UnknownName for a node without quantized weights.
    """
    if order not in ("scale", "channel"):
        raise UnknownName(f"order {order!r}; choose 'scale' or 'channel'")
    name = node or default_node(graph)
    each, tensor, dead = _both_scales(graph, name, other)
    if order == "scale":
        rank = np.argsort(each, kind="stable")[::-1]
        each, dead = each[rank], dead[rank]
    ax = start(ax, 3.6)
    x = np.arange(each.size)
    live = ~dead
    floor = 0.7 * float(each[live].min(initial=tensor))
    ax.set_yscale("log")
    ax.vlines(x[live], each[live], tensor, color=tint(PER_TENSOR), linewidth=_thin(each.size))
    ax.axhline(tensor, color=PER_TENSOR, linewidth=2, label="per-tensor scale")
    ax.plot(
        x[live], each[live], "o", color=PER_CHANNEL, markersize=_dot(each.size),
        label="per-channel scale",
    )  # fmt: skip
    if dead.any():
        ax.plot(x[dead], np.full(int(dead.sum()), floor), "x", color=PER_CHANNEL, label="dead")
    margin = max(0.6, 0.012 * each.size)
    ax.set_xlim(-margin, each.size - 1 + margin)
    ax.set_ylim(floor, 1.6 * max(tensor, float(each.max())))
    end_label(ax, tensor, "one scale per tensor", ink(PER_TENSOR), "right")
    lowest = x[live][-1] if order == "scale" and live.any() else 0
    _point_label(ax, lowest, each, ink(PER_CHANNEL))
    axis_labels(ax, _channel_words(each.size, order), "weight scale (log)")
    heading(ax, f"Weight scales of {name}", _caption(graph, name, each[live], tensor, dead))
    return ax


def _both_scales(
    graph: Graph, name: str, other: Graph | None
) -> tuple[NDArray[np.float64], float, NDArray[np.bool_]]:
    """The scale of each channel, the scale of the tensor, and which channels are dead."""
    found = [_quantized(graph, name)]
    if other is not None:
        found.append(_quantized(other, name))
    reach = channel_ranges(graph, name)
    if reach is None:
        raise _no_weights(name)
    per_channel = next((q.scale for q in found if q.per_channel), None)
    per_tensor = next((q.scale for q in found if not q.per_channel), None)
    each = reach / CODES if per_channel is None else per_channel.astype(np.float64)
    tensor = float(reach.max() / CODES if per_tensor is None else per_tensor[0])
    return each, tensor, reach == 0


def _quantized(graph: Graph, name: str) -> QParams:
    found = weight_qparams(graph, name)
    if found is None or not any(n.op in DEQUANTIZE for n in graph.nodes):
        raise _no_weights(name)
    return found[1]


def _no_weights(name: str) -> UnknownName:
    return UnknownName(
        f"%{name} has no quantized weights here; give a conv or linear of a q/dq graph, as "
        "qt.quantize returns it"
    )


def _caption(
    graph: Graph, name: str, each: NDArray[np.float64], tensor: float, dead: NDArray[np.bool_]
) -> str:
    node = graph[name]
    kind = "depthwise conv" if is_depthwise(graph, node) else node.op.split(".")[1]
    where = joined(node.where.module, kind, f"{dead.size} output channels")
    if not each.size:
        return f"{where}\nEvery channel is dead: all its weights are zero."
    used = np.minimum(CODES, CODES * each / tensor)
    few = int((used < 16).sum())
    told = (
        f"With one scale for all, the median channel has {np.median(used):.0f} of ±{CODES} codes "
        f"left; {few} of {each.size} have fewer than 16."
    )
    gone = f" {int(dead.sum())} dead." if dead.any() else ""
    return f"{where}\n{told}{gone}"


def _channel_words(size: int, order: str) -> str:
    return f"{size} output channels, " + ("largest scale first" if order == "scale" else "in order")


def _point_label(ax: Axes, at: int, each: NDArray[np.float64], color: str) -> None:
    """Say what the dots are, beneath the dot at index `at` or beside it."""
    ax.annotate(
        "one scale per channel",
        (at, each[at]),
        xytext=(-8, 0),
        textcoords="offset points",
        ha="right" if at > each.size / 2 else "left",
        va="center",
        fontsize=8,
        color=color,
    )


def _dot(size: int) -> float:
    return float(np.clip(330 / max(size, 1), 2.6, 7))


def _thin(size: int) -> float:
    return float(np.clip(300 / max(size, 1), 0.8, 4))
