"""Convolutions: float conv1d and conv2d, and theirs on codes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.errors import ShapeError
from qtoolkit.graph import DType, TensorType
from qtoolkit.ops.conv_examples import conv1d_examples, conv2d_examples
from qtoolkit.ops.requantize import rescale, wrap, y_qparams
from qtoolkit.ops.shapes import (
    Array,
    Ints,
    along,
    check_codes,
    check_rank,
    check_vector,
    per_axis,
    windows,
)
from qtoolkit.ops.spec import OpSpec
from qtoolkit.qparams import QParams

Pair = tuple[int, int]


def tap_sums(x: Array, w: Array, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Array:
    """The sums of a 2-D convolution of x[N,C,H,W] and w[O,C/groups,Kh,Kw], in their dtype.

    There is no bias. One matrix product per kernel tap (i, j): every output cell adds
    w[:, :, i, j] times the input cell that the tap sees. On integers held in float64 this is
    exact, since all sums stay below 2^53.
    """
    N, _, H, W = x.shape
    O, Cg, Kh, Kw = w.shape
    Ho, Wo = (
        windows(size, k, s, p, d)
        for size, k, s, p, d in zip((H, W), (Kh, Kw), stride, padding, dilation, strict=True)
    )
    padded = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    taps = w.reshape(groups, O // groups, Cg, Kh, Kw)
    total = np.zeros((N, groups, O // groups, Ho * Wo), x.dtype)
    for i in range(Kh):
        for j in range(Kw):
            top, left = i * dilation[0], j * dilation[1]
            rows = slice(top, top + stride[0] * (Ho - 1) + 1, stride[0])
            columns = slice(left, left + stride[1] * (Wo - 1) + 1, stride[1])
            seen = padded[:, :, rows, columns].reshape(N, groups, Cg, Ho * Wo)
            # A product of a column and a row, where NumPy's matmul would be slow.
            total += taps[..., i, j] * seen if Cg == 1 else taps[..., i, j] @ seen
    return total.reshape(N, O, Ho, Wo)


def accumulate(
    x: Array,
    w: NDArray[np.int8],
    bias: NDArray[np.int32],
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    x_zero: int,
    w_zero: NDArray[np.int32],
) -> NDArray[np.int32]:
    """Sum (x - x_zero)(w - w_zero[o]) + bias[o] modulo 2^32, for x[N,C,H,W]; padding adds 0."""
    real_x = x.astype(np.float64) - x_zero
    real_w = w.astype(np.float64) - along(w_zero, 0, w.ndim)
    # Subtracting first makes the padding real zero, which is x_zero as a code and not 0.
    total = tap_sums(
        real_x,
        real_w,
        _pair(stride, "stride"),
        _pair(padding, "padding"),
        _pair(dilation, "dilation"),
        groups,
    )
    return wrap(total + along(bias, 1, 4))


def q8_conv2d(
    x: Array,
    w: NDArray[np.int8],
    bias: NDArray[np.int32],
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    x_zero: int,
    w_zero: NDArray[np.int32],
    bias_scale: NDArray[np.float64],
    out_multiplier: NDArray[np.int32],
    out_shift: NDArray[np.int32],
    y_scale: float,
    y_zero: int,
    low: int,
    high: int,
    mode: str,
) -> Array:
    """Convolve codes x[N,C,H,W] with w[O,C/groups,Kh,Kw] to codes y[N,O,Ho,Wo] of x's dtype."""
    acc = accumulate(x, w, bias, stride, padding, dilation, groups, x_zero, w_zero)
    y = rescale(acc, out_multiplier, out_shift, 1, y_zero, low, high, mode)
    return y.astype(x.dtype)


def q8_conv1d(
    x: Array, w: Array, bias: Array, stride: Ints, padding: Ints, dilation: Ints, *rest: Any
) -> Array:
    """Convolve codes x[N,C,L] with w[O,C/groups,K]: a q8_conv2d of height 1."""
    flat = (_flat(stride, 1), _flat(padding, 0), _flat(dilation, 1))
    y: Array = q8_conv2d(x[:, :, None], w[:, :, None], bias, *flat, *rest)[:, :, 0]
    return y


def conv2d(
    x: Array, w: Array, bias: Array | None, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    """Convolve float x[N,C,H,W] or [C,H,W], as torch's conv2d."""
    batch = x if x.ndim == 4 else x[None]
    y = tap_sums(
        batch,
        w,
        _pair(stride, "stride"),
        _pair(padding, "padding"),
        _pair(dilation, "dilation"),
        groups,
    )
    if bias is not None:
        y = y + bias[:, None, None]
    return y if x.ndim == 4 else y[0]


def conv1d(
    x: Array, w: Array, bias: Array | None, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    """Convolve float x[N,C,L] or [C,L], as torch's conv1d: a conv2d of height 1."""
    flat = (_flat(stride, 1), _flat(padding, 0), _flat(dilation, 1))
    return conv2d(x[..., None, :], w[:, :, None], bias, *flat, groups)[..., 0, :]


def padded_by_name(
    x: Array, w: Array, bias: Array | None, stride: Ints, padding: str, dilation: Ints, groups: int
) -> Array:
    """As torch's conv1d and conv2d with padding 'valid' or 'same', which may pad unevenly."""
    rank = w.ndim - 2
    sides = [(0, 0)] * (x.ndim - rank)
    for k, d in zip(w.shape[2:], per_axis(dilation, rank, "dilation"), strict=True):
        reach = d * (k - 1) if padding == "same" else 0
        sides.append((reach // 2, reach - reach // 2))
    convolve = conv2d if rank == 2 else conv1d
    return convolve(np.pad(x, sides), w, bias, stride, (0,) * rank, dilation, groups)


def _pair(values: Ints, name: str) -> Pair:
    first, second = per_axis(values, 2, name)
    return first, second


def _flat(values: Ints, outer: int) -> Pair:
    return outer, per_axis(values, 1, "conv1d's stride, padding or dilation")[0]


def _shape(
    op: str, x: TensorType, w: TensorType, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> tuple[int, ...]:
    """The result's shape. Raises ShapeError if channels, groups or ranks do not fit."""
    spatial = w.rank - 2
    *lead, C = x.sizes[:-spatial]
    O, Cg = w.sizes[:2]
    if groups < 1 or Cg * groups != C or O % groups:
        raise ShapeError(
            f"{op}: weight {w} with groups={groups} wants {Cg * groups} input channels and a "
            f"multiple of {groups} outputs; the input is {x}"
        )
    sizes = zip(
        x.sizes[-spatial:],
        w.sizes[2:],
        per_axis(stride, spatial, "stride"),
        per_axis(padding, spatial, "padding"),
        per_axis(dilation, spatial, "dilation"),
        strict=True,
    )
    return (*lead, O, *(windows(*each) for each in sizes))


def _q8_type(op: str, rank: int) -> Any:
    def infer(
        x: TensorType, w: TensorType, bias: TensorType, stride: Ints, padding: Ints,
        dilation: Ints, groups: int, x_zero: int, w_zero: TensorType, bias_scale: TensorType,
        out_multiplier: TensorType, out_shift: TensorType, *rest: Any,
    ) -> tuple[TensorType, ...]:  # fmt: skip
        check_rank(op, x, rank)
        check_rank(f"{op} weight", w, rank)
        check_codes(op, x)
        check_weight(op, w, bias, w_zero, bias_scale, out_multiplier, out_shift)
        return (TensorType(_shape(op, x, w, stride, padding, dilation, groups), x.dtype),)

    return infer


def check_weight(
    op: str, w: TensorType, bias: TensorType, w_zero: TensorType, bias_scale: TensorType,
    out_multiplier: TensorType, out_shift: TensorType,
) -> None:  # fmt: skip
    """Raise ShapeError unless w holds int8, bias int32[O], and each vector 1 or O values."""
    O = w.sizes[0]
    if w.dtype is not DType.INT8:
        raise ShapeError(f"{op}: weight {w} must hold int8 codes")
    if bias != TensorType((O,), DType.INT32):
        raise ShapeError(f"{op}: bias {bias} must be int32[{O}]; a missing bias is zeros")
    check_vector(f"{op}: w_zero", w_zero, O)
    check_vector(f"{op}: bias_scale", bias_scale, O)
    check_vector(f"{op}: out_multiplier", out_multiplier, O)
    check_vector(f"{op}: out_shift", out_shift, O)


def _named_type(op: str, rank: int) -> Any:
    def infer(
        x: TensorType, w: TensorType, bias: TensorType | None, stride: Ints, padding: str,
        dilation: Ints, groups: int,
    ) -> tuple[TensorType, ...]:  # fmt: skip
        spatial, sizes = w.rank - 2, list(x.sizes)
        if padding == "same":
            reach = zip(per_axis(dilation, spatial, "dilation"), w.sizes[2:], strict=True)
            for axis, (d, k) in enumerate(reach, x.rank - spatial):
                sizes[axis] += d * (k - 1)
        wide = TensorType(tuple(sizes), x.dtype)
        kind: tuple[TensorType, ...] = _float_type(op, rank)(
            wide, w, bias, stride, (0,) * spatial, dilation, groups
        )
        return kind

    return infer


def _float_type(op: str, rank: int) -> Any:
    def infer(
        x: TensorType, w: TensorType, bias: TensorType | None, *geometry: Any
    ) -> tuple[TensorType, ...]:
        check_rank(op, x, rank, rank - 1)
        check_rank(f"{op} weight", w, rank)
        if bias is not None and bias.sizes != w.sizes[:1]:
            raise ShapeError(f"{op}: bias {bias} must hold one value per output of weight {w}")
        return (TensorType(_shape(op, x, w, *geometry), x.dtype),)

    return infer


def _qparams(*args: Any) -> QParams:
    return y_qparams(*args[12:16])


_FLOAT = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_Q8 = (
    "x", "w", "bias", "stride", "padding", "dilation", "groups", "x_zero", "w_zero", "bias_scale",
    "out_multiplier", "out_shift", "y_scale", "y_zero", "low", "high", "mode",
)  # fmt: skip
WEIGHT_CONSTANTS = ("w", "bias", "w_zero", "bias_scale", "out_multiplier", "out_shift")

SPECS = (
    OpSpec("aten.conv1d.default", _FLOAT, _float_type("conv1d", 3), conv1d),
    OpSpec("aten.conv2d.default", _FLOAT, _float_type("conv2d", 4), conv2d),
    OpSpec("aten.conv1d.padding", _FLOAT, _named_type("conv1d", 3), padded_by_name),
    OpSpec("aten.conv2d.padding", _FLOAT, _named_type("conv2d", 4), padded_by_name),
    OpSpec("q8_conv1d", _Q8, _q8_type("q8_conv1d", 3), q8_conv1d, conv1d_examples, _qparams,
           WEIGHT_CONSTANTS),
    OpSpec("q8_conv2d", _Q8, _q8_type("q8_conv2d", 4), q8_conv2d, conv2d_examples, _qparams,
           WEIGHT_CONSTANTS),
)  # fmt: skip
