"""Kernels on each cell by itself: quantize, dequantize, requantize, add and clamp."""

import numpy as np
from numpy.typing import NDArray

from qtoolkit.backends.vulkan.demands import (
    ANY,
    CODES,
    PACKED_WIDTH,
    PLAIN,
    demand,
    fits,
    is_constant,
    is_runtime,
    of,
)
from qtoolkit.backends.vulkan.dispatch import (
    Blob,
    Bound,
    Constant,
    Dispatch,
    Site,
    bits,
    params,
    placed_of,
)
from qtoolkit.backends.vulkan.weighted import factors
from qtoolkit.graph import DType, Graph, Node
from qtoolkit.kernel import Kernel
from qtoolkit.layout import Reps
from qtoolkit.ops.shapes import axis_of
from qtoolkit.qparams import MODES, inverse_scale, ratio

AXES = {4: (0, 1, 2, 3), 3: (0, 1, 3), 2: (2, 3), 1: (3,)}


def axis_in_nchw(axis: int | None, rank: int) -> int:
    """Which of N, C, H, W an axis is; -1 for none."""
    return -1 if axis is None else AXES[rank][axis_of(axis, rank)]


def bind_quantize(site: Site) -> Bound:
    scale, zero_point, axis, low, high = site.args[1:6]
    x, y = site.x(), site.y()
    less = 128 * y.unsigned
    given = site.x(1)
    assert isinstance(given, Constant)
    inverse = Constant(given.placed, inverse_scale(scale))
    return (
        Dispatch(
            "quantize",
            {"x": x, "inverse": inverse, "zeros": Blob(_zeros(scale, zero_point) - less), "y": y},
            params(
                x, inverse, y,
                (y.texels, axis_in_nchw(axis, y.type.rank), int(low) - less, int(high) - less),
            ),
            y.texels,
            (0,),
        ),
    )  # fmt: skip


def bind_dequantize(site: Site) -> Bound:
    scale, zero_point, axis = site.args[1:4]
    x, y, given = site.x(), site.y(), site.x(1)
    less = 128 * placed_of(x).unsigned
    return (
        Dispatch(
            "dequantize",
            {"x": x, "scale": given, "zeros": Blob(_zeros(scale, zero_point) - less), "y": y},
            params(x, given, y, (y.texels, axis_in_nchw(axis, y.type.rank))),
            y.texels,
        ),
    )


def _zeros(scale: NDArray[np.float32], zero_point: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.array(np.broadcast_to(zero_point, scale.shape), np.int32)


def bind_requantize(site: Site) -> Bound:
    x_zero, multiplier, shift, axis = site.args[1:5]
    mode = site.args[9]
    x, y = site.x(), site.y()
    x_less, less = 128 * placed_of(x).unsigned, 128 * y.unsigned
    y_codes = tuple(int(v) - less for v in site.args[6:9])
    return (
        Dispatch(
            "requantize",
            {"x": x, "factors": Blob(np.ascontiguousarray(factors(multiplier, shift, mode).T)),
             "y": y},
            params(
                x, y,
                (y.texels, axis_in_nchw(axis, y.type.rank), int(x_zero) - x_less, *y_codes),
            ),
            y.texels,
            (MODES.index(mode),),
        ),
    )  # fmt: skip


def bind_add(site: Site) -> Bound:
    a_scale, a_zero, b_scale, b_zero, alpha, y_scale = site.args[2:8]
    a, b, y = site.x(0), site.x(1), site.y()
    less = 128 * y.unsigned
    name = site.node.name
    ra = bits(ratio(a_scale, y_scale, name))[0]
    rb = bits(ratio(alpha * np.float64(b_scale), y_scale, name))[0]
    y_codes = tuple(int(v) - less for v in site.args[8:11])
    return (
        Dispatch(
            "q8_add",
            {"a": a, "b": b, "y": y},
            params(a, b, y, (y.texels, a_zero - less, b_zero - less, ra, rb, *y_codes)),
            y.texels,
            (0,),
        ),
    )


def bind_clamp(site: Site) -> Bound:
    x, y = site.x(), site.y()
    less = 128 * y.unsigned
    low, high = (int(v) - less for v in site.args[1:3])
    return (Dispatch("q8_clamp", {"x": x, "y": y}, params(x, y, (y.texels, low, high)), y.texels),)


def _not_quantize(node: Node, graph: Graph) -> str | None:
    x = graph.type_of(node.args[0])
    if x is None or x.dtype is not DType.FLOAT32 or node.type.dtype not in CODES:
        return f"{x} to {node.type.dtype}: not float32 to int8 or uint8"
    return _not_by_constant_scale(node, graph)


def _not_dequantize(node: Node, graph: Graph) -> str | None:
    x = graph.type_of(node.args[0])
    if x is None or x.dtype not in (*CODES, DType.INT32) or node.type.dtype is not DType.FLOAT32:
        return f"{x} to {node.type.dtype}: not int8, uint8 or int32 to float32"
    refused = _not_by_constant_scale(node, graph)
    if refused is None and x.dtype is DType.INT32 and np.any(graph.array(node.args[2])):
        return "int32 codes with a zero point may leave int32"
    return refused


def _not_by_constant_scale(node: Node, graph: Graph) -> str | None:
    if not (is_constant(node, 1) and is_constant(node, 2)):
        return "its scale is known only at run time"
    return fits(node, graph) if is_runtime(node, 0) else "its input is a constant"


def _not_add(node: Node, graph: Graph) -> str | None:
    ranks = {t.rank for t in map(graph.type_of, node.args[:2]) if t is not None}
    # [N,C,L] lies with height 1, so that its axes are not the last ones of N, C, H, W.
    if 3 in ranks and ranks & {2, 4}:
        return "rank 3 is not aligned with other ranks"
    return fits(node, graph)


def _quantize_reps(node: Node, graph: Graph) -> Reps:
    x, scale = graph.type_of(node.args[0]), graph.type_of(node.args[1])
    inputs = {0: of(x, ANY), 1: of(scale, PACKED_WIDTH), 2: PLAIN}
    return demand(node, graph, inputs, of(node.type, ANY))


def _add_reps(node: Node, graph: Graph) -> Reps:
    inputs = {slot: of(graph.type_of(node.args[slot]), ANY) for slot in (0, 1)}
    return demand(node, graph, inputs, of(node.type, ANY))


def _one_reps(node: Node, graph: Graph) -> Reps:
    return demand(node, graph, {0: of(graph.type_of(node.args[0]), ANY)}, of(node.type, ANY))


KERNELS: dict[str, tuple[Kernel, ...]] = {
    "quantize": (Kernel("quantize", "quantize", bind_quantize, _quantize_reps, _not_quantize),),
    "dequantize": (
        Kernel("dequantize", "dequantize", bind_dequantize, _quantize_reps, _not_dequantize),
    ),
    "requantize": (Kernel("requantize", "requantize", bind_requantize, _one_reps, fits, (2, 3)),),
    "q8_add": (Kernel("q8_add", "q8_add", bind_add, _add_reps, _not_add),),
    "q8_clamp": (Kernel("q8_clamp", "q8_clamp", bind_clamp, _one_reps, fits),),
}
