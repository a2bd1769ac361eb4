"""Pools: float averages and maxima, means, and averages on codes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.errors import ShapeError
from qtoolkit.graph import DType, TensorType
from qtoolkit.ops.pool_examples import adaptive_examples, average_examples, max_examples
from qtoolkit.ops.requantize import to_codes, wrap, y_qparams
from qtoolkit.ops.shapes import (
    Array,
    Ints,
    axis_of,
    check_codes,
    check_rank,
    per_axis,
    strides_or_kernel,
    windows,
)
from qtoolkit.ops.spec import OpSpec
from qtoolkit.qparams import QParams, ratio

# A window along one axis: the cells it sees, and its size with padding counted in.
Span = tuple[range, int]


def spans(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> list[Span]:
    """The windows along an axis: the cells inside the tensor, and how many with padding.

    A window that overhangs even the padding, as ceil_mode allows, counts only up to its end.
    """
    found = []
    for i in range(windows(size, kernel, stride, padding, dilation, ceil_mode)):
        start = i * stride - padding
        taps = range(start, start + dilation * kernel, dilation)
        inside = [t for t in taps if 0 <= t < size]
        cells = range(inside[0], inside[-1] + 1, dilation) if inside else range(0)
        found.append((cells, min(start + kernel, size + padding) - start))
    return found


def adaptive_spans(size: int, count: int) -> list[Span]:
    """`count` windows of nearly equal size that cover the axis, as torch lays them."""
    found = []
    for i in range(count):
        cells = range(i * size // count, -(-(i + 1) * size // count))
        found.append((cells, len(cells)))
    return found


def _grid(
    x: Array, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[list[Span], list[Span]]:
    kernel = per_axis(kernel_size, 2, "kernel_size")
    axes = zip(
        x.shape[-2:],
        kernel,
        strides_or_kernel(stride, kernel),
        per_axis(padding, 2, "padding"),
        per_axis(dilation, 2, "dilation"),
        strict=True,
    )
    rows, columns = (spans(*each, ceil_mode) for each in axes)
    return rows, columns


def window_sums(x: Array, rows: Sequence[Span], columns: Sequence[Span]) -> Array:
    """The sum of x[...,H,W] over each window, in x's dtype; first along W, then along H."""
    across = [x[..., c.start : c.stop].sum(axis=-1, dtype=x.dtype) for c, _ in columns]
    partial = np.stack(across, axis=-1)
    down = [partial[..., r.start : r.stop, :].sum(axis=-2, dtype=x.dtype) for r, _ in rows]
    return np.stack(down, axis=-2)


def window_counts(
    rows: Sequence[Span], columns: Sequence[Span], with_padding: bool, override: int | None
) -> NDArray[np.int64]:
    """What each window's sum is divided by: [Ho, Wo]."""

    def count(span: Span) -> int:
        return span[1] if with_padding else len(span[0])

    counts = np.outer([count(r) for r in rows], [count(c) for c in columns])
    return counts if override is None else np.full_like(counts, override)


def _average_codes(
    x: Array, rows: Sequence[Span], columns: Sequence[Span], counts: NDArray[np.int64],
    x_scale: float, x_zero: int, y_scale: float, y_zero: int, low: int, high: int,
) -> Array:  # fmt: skip
    total = wrap(window_sums(x.astype(np.int64) - x_zero, rows, columns))
    r = ratio(x_scale, np.float64(y_scale) * counts, "average pool")
    return to_codes(total.astype(np.float32) * r, y_zero, low, high).astype(x.dtype)


def q8_avg_pool2d(
    x: Array,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    x_scale: float,
    x_zero: int,
    y_scale: float,
    y_zero: int,
    low: int,
    high: int,
) -> Array:
    """Average codes x[N,C,H,W]; padded cells are real zero and count if count_include_pad."""
    rows, columns = _grid(x, kernel_size, stride, padding, 1, ceil_mode)
    counts = window_counts(rows, columns, count_include_pad, divisor_override)
    return _average_codes(x, rows, columns, counts, x_scale, x_zero, y_scale, y_zero, low, high)


def q8_adaptive_avg_pool2d(
    x: Array,
    output_size: Ints,
    x_scale: float,
    x_zero: int,
    y_scale: float,
    y_zero: int,
    low: int,
    high: int,
) -> Array:
    """Average codes x[N,C,H,W] over output_size windows that cover it."""
    rows, columns = _adaptive_grid(x, output_size)
    counts = window_counts(rows, columns, with_padding=False, override=None)
    return _average_codes(x, rows, columns, counts, x_scale, x_zero, y_scale, y_zero, low, high)


def _adaptive_grid(x: Array, output_size: Ints) -> tuple[list[Span], list[Span]]:
    Ho, Wo = per_axis(output_size, 2, "output_size")
    return adaptive_spans(x.shape[-2], Ho), adaptive_spans(x.shape[-1], Wo)


def avg_pool2d(
    x: Array,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Array:
    """Average float x[...,H,W] over windows, as torch's avg_pool2d."""
    rows, columns = _grid(x, kernel_size, stride, padding, 1, ceil_mode)
    counts = window_counts(rows, columns, count_include_pad, divisor_override)
    return np.asarray(window_sums(x, rows, columns) / counts.astype(x.dtype), x.dtype)


def avg_pool1d(
    x: Array, kernel_size: Ints, stride: Ints, padding: Ints, ceil_mode: bool, with_padding: bool
) -> Array:
    """Average float x[...,L] over windows: an avg_pool2d of height 1."""
    kernel, step, pad = _flat(kernel_size, stride, padding)
    return avg_pool2d(x[..., None, :], kernel, step, pad, ceil_mode, with_padding, None)[..., 0, :]


def adaptive_avg_pool2d(x: Array, output_size: Ints) -> Array:
    """Average float x[...,H,W] over output_size windows that cover it."""
    rows, columns = _adaptive_grid(x, output_size)
    counts = window_counts(rows, columns, with_padding=False, override=None)
    return np.asarray(window_sums(x, rows, columns) / counts.astype(x.dtype), x.dtype)


def adaptive_avg_pool1d(x: Array, output_size: Ints) -> Array:
    """Average float x[...,L] over output_size windows that cover it."""
    flat = (1, per_axis(output_size, 1, "output_size")[0])
    return adaptive_avg_pool2d(x[..., None, :], flat)[..., 0, :]


def max_pool2d(
    x: Array, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> Array:
    """The greatest cell of each window of x[...,H,W], codes or floats; padding is ignored.

    Cells are looked at in row-major order, and the first of equal ones stays, as in torch: it tells
    the sign of a zero. NaN wins.
    """
    rows, columns = _grid(x, kernel_size, stride, padding, dilation, ceil_mode)
    # With dilation a window may see nothing but padding.
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    steps, spread = (per_axis(v, 2, "kernel_size") for v in (kernel_size, dilation))
    starts = [
        [i * s - p for i in range(len(spans_))]
        for spans_, s, p in zip(
            (rows, columns),
            strides_or_kernel(stride, steps),
            per_axis(padding, 2, "padding"),
            strict=True,
        )
    ]
    most = np.full((*x.shape[:-2], len(rows), len(columns)), least, x.dtype)
    for i in range(steps[0]):
        for j in range(steps[1]):
            down, inside_h = _seen(starts[0], i * spread[0], x.shape[-2])
            across, inside_w = _seen(starts[1], j * spread[1], x.shape[-1])
            cells = x[..., down[:, None], across]
            taken = (cells > most) | (cells != cells)
            most = np.where(taken & inside_h[:, None] & inside_w, cells, most)
    return most


def _seen(starts: Sequence[int], offset: int, size: int) -> tuple[Array, Array]:
    """Which cell one tap of each window sees, kept within the axis, and whether it lies inside."""
    at = np.array(starts, np.int64) + offset
    return np.clip(at, 0, max(size - 1, 0)), (at >= 0) & (at < size)


def max_pool1d(
    x: Array, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> Array:
    """The greatest cell of each window of x[...,L]: a max_pool2d of height 1."""
    kernel, step, pad = _flat(kernel_size, stride, padding)
    spread = (1, per_axis(dilation, 1, "dilation")[0])
    return max_pool2d(x[..., None, :], kernel, step, pad, spread, ceil_mode)[..., 0, :]


def mean(x: Array, dim: Ints | None, keepdim: bool, dtype: DType | None) -> Array:
    """The mean over the axes `dim`, over all of them if there are none."""
    real = x.astype((dtype or DType(x.dtype.name)).value)
    return np.asarray(real.mean(axis=_axes(dim, x.ndim), keepdims=keepdim), real.dtype)


def _axes(dim: Ints | None, rank: int) -> tuple[int, ...]:
    given = (dim,) if isinstance(dim, int) else tuple(dim or ())
    return tuple(axis_of(d, rank) for d in given) or tuple(range(rank))


def _flat(kernel: Ints, stride: Ints, padding: Ints) -> tuple[tuple[int, int], ...]:
    k = per_axis(kernel, 1, "kernel_size")
    (s,) = strides_or_kernel(stride, k)
    return (1, k[0]), (1, s), (0, per_axis(padding, 1, "padding")[0])


def _pool_shape(
    op: str, x: TensorType, spatial: int, kernel_size: Ints, stride: Ints, padding: Ints,
    dilation: Ints, ceil_mode: bool,
) -> tuple[int, ...]:  # fmt: skip
    check_rank(op, x, spatial + 2, spatial + 1)
    kernel = per_axis(kernel_size, spatial, "kernel_size")
    pads = per_axis(padding, spatial, "padding")
    if any(2 * p > k for p, k in zip(pads, kernel, strict=True)):
        raise ShapeError(f"{op}: padding {pads} exceeds half of kernel_size {kernel}")
    if 0 in x.sizes[-spatial:]:
        raise ShapeError(f"{op}: {x} has an empty axis to pool over")
    axes = zip(
        x.sizes[-spatial:],
        kernel,
        strides_or_kernel(stride, kernel),
        pads,
        per_axis(dilation, spatial, "dilation"),
        strict=True,
    )
    return (*x.sizes[:-spatial], *(windows(*each, ceil_mode) for each in axes))


def _average_type(op: str, spatial: int) -> Any:
    def infer(
        x: TensorType, kernel_size: Ints, stride: Ints, padding: Ints, ceil_mode: bool,
        count_include_pad: bool, divisor_override: int | None = None, *rest: Any,
    ) -> tuple[TensorType, ...]:  # fmt: skip
        if op.startswith("q8_"):
            check_codes(op, x)
        if divisor_override is not None and divisor_override <= 0:
            raise ShapeError(f"{op}: divisor_override {divisor_override} must be above 0")
        shape = _pool_shape(op, x, spatial, kernel_size, stride, padding, 1, ceil_mode)
        return (TensorType(shape, x.dtype),)

    return infer


def _max_type(op: str, spatial: int) -> Any:
    def infer(x: TensorType, *geometry: Any) -> tuple[TensorType, ...]:
        return (TensorType(_pool_shape(op, x, spatial, *geometry), x.dtype),)

    return infer


def _adaptive_type(op: str, spatial: int) -> Any:
    def infer(x: TensorType, output_size: Ints, *rest: Any) -> tuple[TensorType, ...]:
        if op.startswith("q8_"):
            check_codes(op, x)
        check_rank(op, x, spatial + 2, spatial + 1)
        size = per_axis(output_size, spatial, "output_size")
        if min(size) < 1 or 0 in x.sizes[-spatial:]:
            raise ShapeError(f"{op}: {x} cannot be pooled to {size}; both must have cells")
        return (TensorType((*x.sizes[:-spatial], *size), x.dtype),)

    return infer


def _mean_type(
    x: TensorType, dim: Ints | None, keepdim: bool, dtype: DType | None
) -> tuple[TensorType, ...]:
    gone = _axes(dim, x.rank)
    kept = tuple(1 if i in gone else s for i, s in enumerate(x.sizes) if keepdim or i not in gone)
    return (TensorType(kept, dtype or x.dtype),)


def _average_qparams(*args: Any) -> QParams:
    return y_qparams(*args[9:13])


def _adaptive_qparams(*args: Any) -> QParams:
    return y_qparams(*args[4:8])


def _same_qparams(x: QParams | None, *rest: Any) -> QParams | None:
    return x


_AVERAGE = ("self", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
_MAX = ("self", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
_Q8 = ("x_scale", "x_zero", "y_scale", "y_zero", "low", "high")

SPECS = (
    OpSpec("q8_avg_pool2d", ("x", *_AVERAGE[1:], "divisor_override", *_Q8),
           _average_type("q8_avg_pool2d", 2), q8_avg_pool2d, average_examples, _average_qparams),
    OpSpec("q8_adaptive_avg_pool2d", ("x", "output_size", *_Q8),
           _adaptive_type("q8_adaptive_avg_pool2d", 2), q8_adaptive_avg_pool2d, adaptive_examples,
           _adaptive_qparams),
    OpSpec("aten.avg_pool1d.default", _AVERAGE, _average_type("avg_pool1d", 1), avg_pool1d),
    OpSpec("aten.avg_pool2d.default", (*_AVERAGE, "divisor_override"),
           _average_type("avg_pool2d", 2), avg_pool2d),
    OpSpec("aten.adaptive_avg_pool1d.default", ("self", "output_size"),
           _adaptive_type("adaptive_avg_pool1d", 1), adaptive_avg_pool1d),
    OpSpec("aten.adaptive_avg_pool2d.default", ("self", "output_size"),
           _adaptive_type("adaptive_avg_pool2d", 2), adaptive_avg_pool2d),
    OpSpec("aten.max_pool1d.default", _MAX, _max_type("max_pool1d", 1), max_pool1d),
    OpSpec("aten.max_pool2d.default", _MAX, _max_type("max_pool2d", 2), max_pool2d, max_examples,
           _same_qparams, moves=True),
    OpSpec("aten.mean.dim", ("self", "dim", "keepdim", "dtype"), _mean_type, mean),
)  # fmt: skip
