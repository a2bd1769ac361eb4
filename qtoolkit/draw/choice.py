"""What a picture can find out by itself: weight ranges, granularity, and a node worth a look."""

from collections.abc import Collection
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.draft import Draft
from qtoolkit.errors import UnknownName
from qtoolkit.graph import Const, Graph, Node
from qtoolkit.ops import OPS
from qtoolkit.passes.fuse_weighted import WEIGHTED
from qtoolkit.passes.qdq import operand
from qtoolkit.qparams import QParams

WEIGHTS = (*WEIGHTED, *dict.fromkeys(WEIGHTED.values()))


def default_node(graph: Graph, among: Collection[str] | None = None) -> str:
    """The conv or linear whose channels differ most in weight range, where there is much to see.

    Depthwise convs go first, then other convs; of these only maps at least a quarter as large as
    the largest one count. Works on float, q/dq and compiled graphs. `among` restricts the choice.
    Raises UnknownName if the graph has no op with constant weights.
    """
    draft = Draft(graph)
    found: dict[str, tuple[int, int, float]] = {}
    for node in graph.nodes:
        ranges = _ranges(node, draft) if among is None or node.name in among else None
        if ranges is None or not ranges.any():
            continue
        kind = 2 if is_depthwise(graph, node) else int("conv" in node.op)
        spread = float(ranges.max() / np.median(ranges[ranges > 0]))
        found[node.name] = kind, prod(node.type.sizes[2:]), spread
    if not found:
        raise UnknownName("no conv or linear with constant weights in this graph; name a node")
    best = max(kind for kind, _, _ in found.values())
    largest = max(area for kind, area, _ in found.values() if kind == best)
    return max(
        (name for name, (kind, area, _) in found.items() if kind == best and 4 * area >= largest),
        key=lambda name: found[name][2],
    )


def is_depthwise(graph: Graph, node: Node) -> bool:
    """A conv with one group per input channel, and more than one of them."""
    if "conv" not in node.op or node.op not in WEIGHTS:
        return False
    x = graph.type_of(node.args[0])
    return x is not None and node.args[6] == x.sizes[1] > 1


def channel_ranges(graph: Graph, name: str) -> NDArray[np.float64] | None:
    """max|w| of each output channel of a conv or linear, up to one factor common to all.

    None where the weight is not a constant with values.
    """
    return _ranges(graph[name], Draft(graph))


def weight_qparams(graph: Graph, name: str) -> tuple[NDArray[np.generic], QParams] | None:
    """Codes and qparams of a node's weight in a q/dq graph; None if it has none with values."""
    return _weight(graph[name], Draft(graph))


def _ranges(node: Node, draft: Draft) -> NDArray[np.float64] | None:
    if node.op not in WEIGHTS:
        return None
    if isinstance(node.args[1], Const):
        array = draft.constants[node.args[1].name].array
        factor = _scale_factor(node, draft)
        return None if array is None or factor is None else _reach(array) * factor
    quantized = _weight(node, draft)
    if quantized is None:
        return None
    codes, q = quantized
    return _reach(codes.astype(np.int64) - q.spread(q.zero_point, codes.ndim)) * q.scale


def _weight(node: Node, draft: Draft) -> tuple[NDArray[np.generic], QParams] | None:
    found = operand(node.args[1], draft) if len(node.args) > 1 else None
    if found is None or not isinstance(found.codes, Const):
        return None
    array = draft.constants[found.codes.name].array
    return None if array is None else (array, found.qparams)


def _scale_factor(node: Node, draft: Draft) -> NDArray[np.float64] | None:
    """What codes are to be multiplied by: x_scale * w_scale of a fused op, 1 for a float one."""
    if node.op not in OPS or "bias_scale" not in OPS[node.op].schema:
        return np.ones(1)
    scale = node.args[OPS[node.op].position("bias_scale")]
    array = draft.constants[scale.name].array if isinstance(scale, Const) else None
    return None if array is None else array.astype(np.float64)


def granularity(graph: Graph) -> str:
    """'per-channel' if any weight of a q/dq or compiled graph is so, else 'per-tensor'."""
    for node in graph.nodes:
        if node.op == "quantized_decomposed.dequantize_per_channel.default":
            return "per-channel"
        if node.op in OPS and "bias_scale" in OPS[node.op].schema:
            scale = graph.type_of(node.args[OPS[node.op].position("bias_scale")])
            if scale is not None and scale.numel > 1:
                return "per-channel"
    return "per-tensor"


def _reach(weight: NDArray[Any]) -> NDArray[np.float64]:
    flat = np.abs(weight.astype(np.float64)).reshape(weight.shape[0], -1)
    return np.asarray(flat.max(axis=1, initial=0.0), np.float64)
