"""Kernels of ops on each cell by itself: quantize, dequantize, requantize, add and clamp."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from qtoolkit.backends.numba_cpu import loops, loops_cells
from qtoolkit.backends.numba_cpu.conv import code_rule, rescaling
from qtoolkit.backends.numba_cpu.memory import (
    PLAIN,
    Array,
    as_bytes,
    channels_last,
    contiguous,
    demand,
    either,
    fill,
    in_memory,
    lies_channels_last,
    logical,
    on_first,
)
from qtoolkit.graph import DType, Graph, Node
from qtoolkit.kernel import Bound, Kernel
from qtoolkit.layout import Reps
from qtoolkit.ops.shapes import axis_of
from qtoolkit.qparams import inverse_scale, ratio

Blocks = tuple[int, int, int]


def _blocks(memory: Array, axis: int | None, rank: int, moved: bool) -> Blocks:
    """[outer, n, inner] sizes with logical `axis` in the middle; [1, 1, all] if there is none.

    moved: the array lies channels last.
    """
    if axis is None:
        return 1, 1, memory.size
    at = axis_of(axis, rank)
    if moved:
        at = {0: 0, 1: rank - 1}.get(at, at - 1)
    shape = memory.shape
    return prod(shape[:at]), shape[at], prod(shape[at + 1 :])


def _channels(values: Array, dtype: Any, axis: int | None) -> Array:
    """A vector of constants as the loops index it: writable, of its own."""
    return np.array(values if axis is not None else values.reshape(-1)[:1], dtype)


def bind_quantize(args: Sequence[Any]) -> Bound:
    """inv_scale = float32(1 / scale) is computed here, once."""
    _, scale, zero_point, axis, low, high, dtype = args
    axis = None if scale.size == 1 else axis
    inverse = _channels(inverse_scale(scale), np.float32, axis)
    zero = _channels(np.broadcast_to(zero_point, scale.shape), np.int32, axis)

    def run(x: Array) -> Array:
        memory, back = in_memory(x.astype(np.float32, copy=False))
        blocks = _blocks(memory, axis, x.ndim, back is logical)
        y = np.empty(memory.shape, dtype.value)
        loops_cells.quantize(memory.reshape(blocks), inverse, zero, low, high,
                             as_bytes(y).reshape(blocks))  # fmt: skip
        return back(y)

    return on_first(args, run)


def bind_dequantize(args: Sequence[Any]) -> Bound:
    _, scale, zero_point, axis = args[:4]
    axis = None if scale.size == 1 else axis
    factor = _channels(scale, np.float32, axis)
    zero = _channels(np.broadcast_to(zero_point, scale.shape), np.int32, axis)

    def run(x: Array) -> Array:
        memory, back = in_memory(x)
        blocks = _blocks(memory, axis, x.ndim, back is logical)
        y = np.empty(memory.shape, np.float32)
        loops_cells.dequantize(memory.reshape(blocks), factor, zero, y.reshape(blocks))
        return back(y)

    return on_first(args, run)


def bind_requantize(args: Sequence[Any]) -> Bound:
    _, x_zero, multiplier, shift, axis, _, y_zero, low, high, mode = args
    channels = max(multiplier.size, shift.size)
    axis = None if channels == 1 else axis
    scales = rescaling(multiplier, shift, channels, mode)
    codes = code_rule(y_zero, low, high, mode)

    def run(x: Array) -> Array:
        memory, back = in_memory(x)
        blocks = _blocks(memory, axis, x.ndim, back is logical)
        y = np.empty(memory.shape, np.int8 if x.dtype == np.int32 else x.dtype)
        loops.requantize(memory.reshape(blocks), int(x_zero), scales, codes,
                         as_bytes(y).reshape(blocks))  # fmt: skip
        return back(y)

    return on_first(args, run)


def bind_add(args: Sequence[Any]) -> Bound:
    """Operands of unlike shape are first copied to their joint one."""
    _, _, a_scale, a_zero, b_scale, b_zero, alpha, y_scale, *codes = args
    ra = ratio(a_scale, y_scale, "q8_add")
    rb = ratio(alpha * np.float64(b_scale), y_scale, "q8_add")
    ratios = np.concatenate([ra, rb]).astype(np.float32)
    zeros = np.array([a_zero, b_zero], np.int32)
    y_zero, low, high = (int(c) for c in codes)

    def run(*tensors: Array) -> Array:
        a, b = np.broadcast_arrays(*fill(args[:2], tensors))
        # Constants are contiguous whatever the order of the rest.
        moved = any(lies_channels_last(t) and not t.flags.c_contiguous for t in tensors)
        p, q = (channels_last(t) if moved else contiguous(t) for t in (a, b))
        y = np.empty(p.shape, p.dtype)
        loops_cells.q8_add(p.reshape(-1), q.reshape(-1), ratios, zeros, (y_zero, low, high),
                           as_bytes(y).reshape(-1))  # fmt: skip
        return logical(y) if moved else y

    return run


def bind_clamp(args: Sequence[Any]) -> Bound:
    _, low, high = args

    def run(x: Array) -> Array:
        memory, back = in_memory(x)
        return back(np.clip(memory, low, high).astype(x.dtype, copy=False))

    return on_first(args, run)


def _same_order(node: Node, graph: Graph) -> Reps:
    both = either(node.type.sizes)
    return demand(node, graph, both, both, tied=True)


def _add_reps(node: Node, graph: Graph) -> Reps:
    shapes = {t.shape for t in (graph.type_of(a) for a in node.args[:2]) if t is not None}
    both = either(node.type.sizes) if len(shapes) == 1 else PLAIN
    return demand(node, graph, both, both, tensors=2, tied=True)


def _not_bytes(node: Node, graph: Graph) -> str | None:
    x = node.type if node.op == "quantize" else graph.type_of(node.args[0])
    if x is None or x.dtype not in (DType.INT8, DType.UINT8):
        return f"codes {x} are not int8 or uint8"
    return None


KERNELS: dict[str, tuple[Kernel, ...]] = {
    "quantize": (Kernel("quantize", "quantize", bind_quantize, _same_order, _not_bytes, (1, 2)),),
    "dequantize": (
        Kernel("dequantize", "dequantize", bind_dequantize, _same_order, _not_bytes, (1, 2)),
    ),
    "requantize": (
        Kernel("requantize", "requantize", bind_requantize, _same_order, prepacked=(2, 3)),
    ),
    "q8_add": (Kernel("add", "q8_add", bind_add, _add_reps),),
    "q8_clamp": (Kernel("numpy_clip", "q8_clamp", bind_clamp, _same_order),),
}
