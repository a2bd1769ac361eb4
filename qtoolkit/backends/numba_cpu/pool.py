"""Kernels of the pools on codes: windowed and adaptive averages, and the maximum."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.backends.numba_cpu import loops_cells
from qtoolkit.backends.numba_cpu.memory import (
    LAST,
    Array,
    as_bytes,
    channels_last,
    demand,
    logical,
    on_first,
)
from qtoolkit.graph import DType, Graph, Node
from qtoolkit.kernel import Bound, Kernel
from qtoolkit.layout import Reps
from qtoolkit.ops import pool as op
from qtoolkit.ops.shapes import per_axis, strides_or_kernel, windows
from qtoolkit.qparams import ratio

Grid = tuple[list[op.Span], list[op.Span]]
Size = tuple[int, int]
# The cells of the windows along each axis as (first, end), and the factor of each window.
Plan = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]


def bind_average(args: Sequence[Any]) -> Bound:
    """q8_avg_pool2d."""
    _, kernel_size, stride, padding, ceil_mode, with_padding, override, *qparams = args
    kernel = per_axis(kernel_size, 2, "kernel_size")
    steps, pads = strides_or_kernel(stride, kernel), per_axis(padding, 2, "padding")

    def plan(size: Size) -> Plan:
        axes = zip(size, kernel, steps, pads, strict=True)
        rows, columns = (op.spans(*each, 1, ceil_mode) for each in axes)
        counts = op.window_counts(rows, columns, with_padding, override)
        return _plan(rows, columns, counts, qparams)

    return _averaging(args, plan, qparams)


def bind_adaptive(args: Sequence[Any]) -> Bound:
    """q8_adaptive_avg_pool2d."""
    _, output_size, *qparams = args
    out_h, out_w = per_axis(output_size, 2, "output_size")

    def plan(size: Size) -> Plan:
        rows, columns = op.adaptive_spans(size[0], out_h), op.adaptive_spans(size[1], out_w)
        counts = op.window_counts(rows, columns, with_padding=False, override=None)
        return _plan(rows, columns, counts, qparams)

    return _averaging(args, plan, qparams)


def _plan(
    rows: list[op.Span], columns: list[op.Span], counts: NDArray[np.int64], qparams: Sequence[Any]
) -> Plan:
    x_scale, _, y_scale = qparams[:3]
    factor = ratio(x_scale, np.float64(y_scale) * counts, "average pool")
    return _ends(rows), _ends(columns), np.ascontiguousarray(factor, np.float32)


def _ends(spans: list[op.Span]) -> NDArray[np.int64]:
    return np.array([(cells.start, cells.stop) for cells, _ in spans], np.int64).reshape(-1, 2)


def _averaging(args: Sequence[Any], plan: Callable[[Size], Plan], qparams: Sequence[Any]) -> Bound:
    x_zero, y_zero, low, high = (int(qparams[i]) for i in (1, 3, 4, 5))
    planned = lru_cache(maxsize=1)(plan)

    def run(x: Array) -> Array:
        memory = channels_last(x)
        rows, columns, factor = planned((x.shape[2], x.shape[3]))
        y = np.empty((x.shape[0], len(rows), len(columns), x.shape[1]), x.dtype)
        loops_cells.average(memory, rows, columns, factor, x_zero, (y_zero, low, high), as_bytes(y))
        return logical(y)

    return on_first(args, run)


def bind_max(args: Sequence[Any]) -> Bound:
    """max_pool2d on codes, whose order the codes themselves have."""
    _, kernel_size, stride, padding, dilation, ceil_mode = args
    kernel = per_axis(kernel_size, 2, "kernel_size")
    steps, pads = strides_or_kernel(stride, kernel), per_axis(padding, 2, "padding")
    spread = per_axis(dilation, 2, "dilation")

    def run(x: Array) -> Array:
        axes = zip(x.shape[2:], kernel, steps, pads, spread, strict=True)
        out_h, out_w = (windows(*each, ceil_mode) for each in axes)
        y = np.empty((x.shape[0], out_h, out_w, x.shape[1]), x.dtype)
        loops_cells.largest(channels_last(x), (kernel, steps, pads, spread), y)
        return logical(y)

    return on_first(args, run)


def _reps(node: Node, graph: Graph) -> Reps:
    return demand(node, graph, LAST, LAST)


def _not_pool(node: Node, graph: Graph) -> str | None:
    x = graph.type_of(node.args[0])
    if x is None or x.rank != 4 or x.dtype not in (DType.INT8, DType.UINT8):
        return f"its input {x} does not hold int8 or uint8 codes of rank 4"
    return None


KERNELS: dict[str, tuple[Kernel, ...]] = {
    name: (Kernel(kernel, name, bind, _reps, _not_pool),)
    for name, kernel, bind in (
        ("q8_avg_pool2d", "average", bind_average),
        ("q8_adaptive_avg_pool2d", "average", bind_adaptive),
        ("aten.max_pool2d.default", "largest", bind_max),
    )
}
