"""Convolutions on codes with channels as the last axis, and windows laid out as rows."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from qtoolkit.errors import ShapeError
from qtoolkit.graph import TensorType
from qtoolkit.ops import conv
from qtoolkit.ops.conv_examples import conv1d_examples, conv2d_examples
from qtoolkit.ops.examples import codes
from qtoolkit.ops.shapes import Array, Ints, check_rank, per_axis, windows
from qtoolkit.ops.spec import Example, OpSpec
from qtoolkit.qparams import QParams


def q8_conv2d_nhwc(x: Array, w: Array, *rest: Any) -> Array:
    """q8_conv2d of x[N,H,W,C] with w[O,Kh,Kw,C/groups], or w[Kh,Kw,O] where it is depthwise."""
    return _last(conv.q8_conv2d(_first(x), outputs_first(w, 4), *rest))


def q8_conv1d_nlc(x: Array, w: Array, *rest: Any) -> Array:
    """q8_conv1d of x[N,L,C] with w[O,K,C/groups]."""
    return _last(conv.q8_conv1d(_first(x), outputs_first(w, 3), *rest))


def im2row(
    x: Array, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints, x_zero: int,
    channel_last: bool,
) -> Array:  # fmt: skip
    """The windows of codes x[N,C,H,W], or x[N,H,W,C], as rows[N,Ho*Wo,C*Kh*Kw]; padding is x_zero.

    A row runs over channels, then taps: the order of a weight [O,C,Kh,Kw].
    """
    first = _first(x) if channel_last else x
    N, C, H, W = first.shape
    (Kh, Kw), (sh, sw), (ph, pw), (dh, dw) = (
        per_axis(v, 2, "im2row") for v in (kernel_size, stride, padding, dilation)
    )
    Ho, Wo = windows(H, Kh, sh, ph, dh), windows(W, Kw, sw, pw, dw)
    padded = np.pad(first, ((0, 0), (0, 0), (ph, ph), (pw, pw)), constant_values=x_zero)
    rows = (np.arange(Ho) * sh)[:, None, None, None] + (np.arange(Kh) * dh)[:, None]
    columns = (np.arange(Wo) * sw)[:, None, None] + np.arange(Kw) * dw
    seen = padded[:, :, rows, columns]  # [N, C, Ho, Wo, Kh, Kw]
    return np.ascontiguousarray(seen.transpose(0, 2, 3, 1, 4, 5)).reshape(N, Ho * Wo, C * Kh * Kw)


def outputs_first(w: Array, rank: int) -> Array:
    """A weight of the layouts above as [O,C/groups,K…], for an input of `rank` axes."""
    return w.transpose(2, 0, 1)[:, None] if w.ndim < rank else _first(w)


def _first(x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def _last(y: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(y, 1, -1))


def _moved(t: TensorType, order: Sequence[int]) -> TensorType:
    return TensorType(tuple(t.shape[i] for i in order), t.dtype)


def _last_type(op: str, infer_first: Any, rank: int) -> Any:
    to_first, to_last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)

    def infer(x: TensorType, w: TensorType, *rest: Any) -> tuple[TensorType, ...]:
        check_rank(op, x, rank)
        if rank == 4 and w.rank == 3:
            kh, kw, outputs = w.shape
            w_first = TensorType((outputs, 1, kh, kw), w.dtype)
        else:
            check_rank(f"{op} weight", w, rank)
            w_first = _moved(w, to_first)
        (y,) = infer_first(_moved(x, to_first), w_first, *rest)
        return (_moved(y, to_last),)

    return infer


def _im2row_type(
    x: TensorType, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints, x_zero: int,
    channel_last: bool,
) -> tuple[TensorType, ...]:  # fmt: skip
    check_rank("im2row", x, 4)
    N, C, H, W = _moved(x, (0, 3, 1, 2)).sizes if channel_last else x.sizes
    taps = per_axis(kernel_size, 2, "im2row")
    geometry = zip(
        (H, W), taps, *(per_axis(v, 2, "im2row") for v in (stride, padding, dilation)), strict=True
    )
    out_h, out_w = (windows(*each) for each in geometry)
    if out_h < 1 or out_w < 1:
        raise ShapeError(f"im2row: a kernel of {taps} does not fit into {x}")
    return (TensorType((N, out_h * out_w, C * taps[0] * taps[1]), x.dtype),)


def _of_x(x: QParams | None, *rest: Any) -> QParams | None:
    return x


def _conv2d_examples() -> Iterator[Example]:
    for each in conv2d_examples():
        x, w, *rest = each.args
        yield Example(each.label, (_last(x), _last(w), *rest))
        if w.shape[1] == 1 and rest[4] > 1:
            narrow = np.ascontiguousarray(w[:, 0].transpose(1, 2, 0))
            yield Example(f"{each.label}, weight without its axis of 1", (_last(x), narrow, *rest))


def _conv1d_examples() -> Iterator[Example]:
    for each in conv1d_examples():
        x, w, *rest = each.args
        yield Example(each.label, (_last(x), _last(w), *rest))


def _im2row_examples() -> Iterator[Example]:
    for label, shape, kernel, dilation, padding, stride, dtype in (
        ("3x3", (2, 3, 5, 6), (3, 3), (1, 1), (1, 1), (1, 1), "int8"),
        ("unlike sides", (1, 2, 7, 5), (3, 2), (2, 1), (0, 1), (2, 1), "int8"),
        ("pointwise", (1, 4, 3, 3), (1, 1), (1, 1), (0, 0), (1, 1), "uint8"),
        ("no batch", (0, 3, 5, 5), (3, 3), (1, 1), (1, 1), (1, 1), "int8"),
    ):
        x = codes(*shape, dtype=dtype)
        yield Example(label, (x, kernel, dilation, padding, stride, 7, False))
        yield Example(f"{label}, channels last", (_last(x), kernel, dilation, padding, stride, 7,
                                                  True))  # fmt: skip


_CONV = {spec.name: spec for spec in conv.SPECS}
SPECS = (
    OpSpec("q8_conv2d_nhwc", _CONV["q8_conv2d"].schema,
           _last_type("q8_conv2d_nhwc", _CONV["q8_conv2d"].infer, 4), q8_conv2d_nhwc,
           _conv2d_examples, _CONV["q8_conv2d"].qparams, conv.WEIGHT_CONSTANTS),
    OpSpec("q8_conv1d_nlc", _CONV["q8_conv1d"].schema,
           _last_type("q8_conv1d_nlc", _CONV["q8_conv1d"].infer, 3), q8_conv1d_nlc,
           _conv1d_examples, _CONV["q8_conv1d"].qparams, conv.WEIGHT_CONSTANTS),
    OpSpec("im2row",
           ("x", "kernel_size", "dilation", "padding", "stride", "x_zero", "channel_last"),
           _im2row_type, im2row, _im2row_examples, _of_x),
)  # fmt: skip
