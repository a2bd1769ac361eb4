"""Weight scales of one layer: one per channel, against the one that a tensor would have."""

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from qtoolkit.draw.choice import channel_ranges, default_node, is_depthwise, weight_qparams
from qtoolkit.draw.frame import SMALL, axis_labels, end_label, heading, joined, start
from qtoolkit.draw.palette import PER_CHANNEL, PER_TENSOR, ink, tint
from qtoolkit.errors import UnknownName
from qtoolkit.graph import Graph
from qtoolkit.passes.qdq import DEQUANTIZE
from qtoolkit.qparams import QParams

CODES, FEW = 127, 16
# A scale this share of the median is marked at the edge of the picture.
FAR = 1 / 200


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
    floor = _floor(each, tensor, dead)
    ax.set_yscale("log")
    ax.set_ylim(floor, 1.6 * max(tensor, float(each.max())))
    margin = max(0.6, 0.012 * each.size)
    ax.set_xlim(-margin, each.size - 1 + margin)
    ax.axhline(tensor, color=PER_TENSOR, linewidth=2, label="per-tensor scale")
    end_label(ax, tensor, "one scale per tensor", ink(PER_TENSOR), "right")
    x, size = np.arange(each.size), _dot(each.size)
    low = ~dead & (each < floor)
    shown = ~dead & ~low
    ax.vlines(x[shown], each[shown], tensor, color=tint(PER_TENSOR), linewidth=_thin(each.size))
    ax.plot(x[shown], each[shown], "o", color=PER_CHANNEL, markersize=size,
            label="per-channel scale")  # fmt: skip
    for marked, marker, word in ((low, "v", "far below"), (dead, "x", "dead")):
        if marked.any():
            ax.plot(x[marked], np.full(int(marked.sum()), floor * 1.12), marker,
                    color=PER_CHANNEL, markersize=5, label=word)  # fmt: skip
    if shown.any():
        _point_label(ax, int(x[shown][-1]) if order == "scale" else int(x[shown][0]), each)
    axis_labels(ax, _channel_words(each.size, order), "weight scale (log)")
    heading(
        ax,
        f"Weight scales of {name}",
        _caption(graph, name, each[~dead], tensor, int(low.sum()), int(dead.sum())),
    )
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
    graph: Graph, name: str, each: NDArray[np.float64], tensor: float, far: int, gone: int
) -> str:
    node = graph[name]
    kind = "depthwise conv" if is_depthwise(graph, node) else node.op.split(".")[1]
    where = joined(node.where.module, kind, f"{each.size + gone} output channels")
    if not each.size:
        return f"{where}\nEvery channel is dead: all its weights are zero."
    used = np.minimum(CODES, CODES * each / tensor)
    told = (
        f"With one scale for all, the median channel has {np.median(used):.0f} of ±{CODES} codes "
        f"left and {int((used < FEW).sum())} of {each.size} fewer than {FEW}"
    )
    marked = [f"{far} far below (▼)" if far else "", f"{gone} dead (×)" if gone else ""]
    return f"{where}\n{'; '.join([told, *filter(None, marked)])}."


def _channel_words(size: int, order: str) -> str:
    return f"{size} output channels, " + ("largest scale first" if order == "scale" else "in order")


def _floor(each: NDArray[np.float64], tensor: float, dead: NDArray[np.bool_]) -> float:
    """The lower end of the axis: a few channels of almost no weight must not squeeze the rest."""
    live = each[~dead]
    typical = float(np.median(live)) if live.size else tensor
    return 0.6 * float(live[live > FAR * typical].min(initial=tensor))


def _point_label(ax: Axes, at: int, each: NDArray[np.float64]) -> None:
    """Say what the dots are, beside the dot at index `at`."""
    right = at <= each.size / 2
    ax.annotate(
        "one scale per channel",
        (at, each[at]),
        xytext=(9 if right else -9, -3),
        textcoords="offset points",
        ha="left" if right else "right",
        va="center",
        fontsize=SMALL,
        fontweight="bold",
        color=ink(PER_CHANNEL),
    )


def _dot(size: int) -> float:
    return float(np.clip(330 / max(size, 1), 2.6, 5.5))


def _thin(size: int) -> float:
    return float(np.clip(300 / max(size, 1), 0.8, 4))
