"""Real numbers to codes and back: our quantize and dequantize, and torch's four."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.errors import ShapeError
from qtoolkit.graph import DType, TensorType
from qtoolkit.ops.examples import codes, qrange, reals
from qtoolkit.ops.shapes import Array, along, axis_of, check_vector
from qtoolkit.ops.spec import Example, OpSpec
from qtoolkit.qparams import QParams

Axis = int | None


def quantize(
    x: Array,
    scale: NDArray[np.float32],
    zero_point: NDArray[np.int32],
    axis: Axis,
    low: int,
    high: int,
    dtype: DType,
) -> Array:
    """Codes of x by the contract: ties to even, NaN becomes zero_point, infinities saturate."""
    return _meaning(scale, zero_point, axis, low, high, x.ndim).quantize(x).astype(dtype.value)


def dequantize(
    x: Array,
    scale: NDArray[np.float32],
    zero_point: NDArray[np.int32],
    axis: Axis,
    low: int,
    high: int,
) -> NDArray[np.float32]:
    """float32(code - zero_point) * scale."""
    return _meaning(scale, zero_point, axis, low, high, x.ndim).dequantize(x)


def _meaning(
    scale: Array, zero_point: Array, axis: Axis, low: int, high: int, rank: int
) -> QParams:
    at = None if axis is None else axis_of(axis, rank)
    return QParams(scale, np.broadcast_to(zero_point, scale.shape), low, high, at)


def quantize_per_tensor(
    x: Array, scale: float, zero_point: int, low: int, high: int, dtype: DType
) -> Array:
    """torch's quantize: clamp(round(x * (1 / scale)) + zero_point), ties to even.

    Where torch's result is undefined ours is not: NaN becomes zero_point, and a code beyond int32
    saturates.
    """
    inverse = np.float32(1.0 / scale)
    return _torch_codes(x.astype(np.float32), inverse, np.int64(zero_point), low, high, dtype)


def quantize_per_channel(
    x: Array, scales: Array, zero_points: Array, axis: int, low: int, high: int, dtype: DType
) -> Array:
    """torch's quantize with one scale and zero point per index of `axis`."""
    at = axis_of(axis, x.ndim)
    inverse = along(1.0 / scales, at, x.ndim)
    zero = along(zero_points, at, x.ndim)
    return _torch_codes(x.astype(np.float32), inverse, zero, low, high, dtype)


def _torch_codes(x: Array, inverse: Any, zero: Any, low: int, high: int, dtype: DType) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.asarray(np.rint(x * inverse))
        # The sum is a float in torch too, which shows only for codes beyond 2^24.
        found = np.clip(steps + zero.astype(steps.dtype), low, high)
    found = np.where(np.isnan(x), zero, found)
    # float32(2^31 - 1) is 2^31, which int32 cannot hold.
    return np.asarray(np.clip(found.astype(np.int64), low, high).astype(dtype.value))


def dequantize_per_tensor(
    x: Array, scale: float, zero_point: int, low: int, high: int, dtype: DType,
    out_dtype: DType | None,
) -> Array:  # fmt: skip
    """torch's dequantize: (float(code) - zero_point) * scale."""
    real = np.dtype((out_dtype or DType.FLOAT32).value)
    return np.asarray((x.astype(real) - real.type(zero_point)) * real.type(scale), real)


def dequantize_per_channel(
    x: Array, scales: Array, zero_points: Array | None, axis: int, low: int, high: int,
    dtype: DType, out_dtype: DType | None,
) -> Array:  # fmt: skip
    """torch's dequantize with one scale and zero point per index of `axis`."""
    at = axis_of(axis, x.ndim)
    offset = x.astype(np.int64)
    if zero_points is not None:
        offset = offset - along(zero_points, at, x.ndim).astype(np.int64)
    y = offset.astype(scales.dtype) * along(scales, at, x.ndim)
    return y.astype((out_dtype or DType.FLOAT32).value)


def _check(op: str, x: TensorType, scale: TensorType, zero: TensorType | None, axis: Axis) -> None:
    channels = 1 if axis is None else x.sizes[axis_of(axis, x.rank)]
    for name, vector in (("scale", scale), ("zero point", zero)):
        if vector is not None:
            check_vector(f"{op}: {name}", vector, channels)


def _quantize_type(
    x: TensorType, scale: TensorType, zero_point: TensorType, axis: Axis, low: int, high: int,
    dtype: DType,
) -> tuple[TensorType, ...]:  # fmt: skip
    _check("quantize", x, scale, zero_point, axis)
    return _codes_type("quantize", x, dtype)


def _dequantize_type(
    x: TensorType, scale: TensorType, zero_point: TensorType, axis: Axis, low: int, high: int
) -> tuple[TensorType, ...]:
    _check("dequantize", x, scale, zero_point, axis)
    return _real_type("dequantize", x)


def _codes_type(op: str, x: TensorType, dtype: DType) -> tuple[TensorType, ...]:
    if not x.dtype.floating:
        raise ShapeError(f"{op}: {x} does not hold real numbers; it is quantized already")
    return (TensorType(x.sizes, dtype),)


def _real_type(op: str, x: TensorType, out: DType | None = None) -> tuple[TensorType, ...]:
    if x.dtype.floating:
        raise ShapeError(f"{op}: {x} does not hold codes")
    return (TensorType(x.sizes, out or DType.FLOAT32),)


def _qd_quantize_type(op: str) -> Any:
    def infer(x: TensorType, *args: Any) -> tuple[TensorType, ...]:
        if op.endswith("channel"):
            _check(op, x, args[0], args[1], args[2])
        return _codes_type(op, x, args[-1])

    return infer


def _qd_dequantize_type(op: str) -> Any:
    def infer(x: TensorType, *args: Any) -> tuple[TensorType, ...]:
        if op.endswith("channel"):
            _check(op, x, args[0], args[1], args[2])
        return _real_type(op, x, args[-1])

    return infer


def _qparams(
    x: Any, scale: Array | None, zero: Array | None, axis: Axis, low: int, high: int, *rest: Any
) -> QParams | None:
    """None where the scale is known only at run time."""
    if scale is None or zero is None:
        return None
    return QParams.of(scale, zero, low, high, axis, name="quantize")


def _qd_qparams(x: Any, scale: float, zero: int, low: int, high: int, dtype: Any) -> QParams:
    return QParams.of(scale, zero, low, high, name="quantize_per_tensor")


def _quantize_examples() -> Iterator[Example]:
    one = (np.array([0.1], np.float32), np.array([3], np.int32), None)
    for dtype in (DType.INT8, DType.UINT8):
        yield Example(f"{dtype}", (reals(2, 5, 7, 33), *one, *qrange(dtype), dtype))
    unit = (np.ones(1, np.float32), np.zeros(1, np.int32), None, -128, 127, DType.INT8)
    ties = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, -127.5, -128.5], np.float32)
    yield Example("ties", (ties, *unit))
    odd = np.array([np.nan, np.inf, -np.inf, -np.nan, 3e38, -3e38, -0.0, 1e-40], np.float32)
    yield Example("NaN and infinities", (odd, *one, -128, 127, DType.INT8))
    yield Example("symmetric range", (reals(5, 7), *one, -127, 127, DType.INT8))
    yield Example("zero point at an end", (reals(33), one[0], np.array([127], np.int32), None, -128,
                                           127, DType.INT8))  # fmt: skip
    yield Example("zero-sized", (reals(0, 3), *one, -128, 127, DType.INT8))
    yield Example("one-sized", (reals(1), *one, -128, 127, DType.INT8))
    yield Example("a scalar", (np.array(0.35, np.float32), *one, -128, 127, DType.INT8))
    for scale in (2.0**-100, 2.0**100):
        x = (reals(5, 7) * np.float32(scale)).astype(np.float32)
        yield Example(f"scale {scale:.0e}", (x, np.array([scale], np.float32), *one[1:], -128, 127,
                                             DType.INT8))  # fmt: skip
    for axis in (0, 1, 2, -1):
        n = (5, 7, 3)[axis]
        yield Example(f"per-channel, axis {axis}", (reals(5, 7, 3), *_vectors(n), axis, -128, 127,
                                                    DType.INT8))  # fmt: skip


def _dequantize_examples() -> Iterator[Example]:
    one = (np.array([0.1], np.float32), np.array([3], np.int32), None)
    for dtype in ("int8", "uint8"):
        yield Example(dtype, (codes(2, 5, 7, 33, dtype=dtype), *one, *qrange(dtype)))
    yield Example("int32", (np.array([2**24 + 1, -(2**25) - 2, 2**31 - 1, -(2**31)], np.int32),
                            one[0], np.zeros(1, np.int32), None, -(2**31), 2**31 - 1))  # fmt: skip
    yield Example("zero-sized", (codes(0, 3), *one, -128, 127))
    yield Example("one-sized", (codes(1), *one, -128, 127))
    for axis in (0, 1, 2, -1):
        n = (5, 7, 3)[axis]
        yield Example(f"per-channel, axis {axis}", (codes(5, 7, 3), *_vectors(n), axis, -128, 127))


def _vectors(n: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    scale = (np.arange(n) * 0.03 + 0.05).astype(np.float32)
    return scale, (np.arange(n, dtype=np.int32) * 5) % 17 - 8


_QD = "quantized_decomposed."
_TENSOR = ("input", "scale", "zero_point", "quant_min", "quant_max", "dtype")
_CHANNEL = ("input", "scales", "zero_points", "axis", "quant_min", "quant_max", "dtype")
_OURS = ("x", "scale", "zero_point", "axis", "low", "high")
_CONSTANT = ("scale", "zero_point")

SPECS = (
    OpSpec("quantize", (*_OURS, "dtype"), _quantize_type, quantize, _quantize_examples, _qparams,
           _CONSTANT),
    OpSpec("dequantize", _OURS, _dequantize_type, dequantize, _dequantize_examples,
           constants=_CONSTANT),
    OpSpec(_QD + "quantize_per_tensor.default", _TENSOR,
           _qd_quantize_type("quantize_per_tensor"), quantize_per_tensor, qparams=_qd_qparams),
    OpSpec(_QD + "dequantize_per_tensor.default", (*_TENSOR, "out_dtype"),
           _qd_dequantize_type("dequantize_per_tensor"), dequantize_per_tensor),
    OpSpec(_QD + "quantize_per_channel.default", _CHANNEL,
           _qd_quantize_type("quantize_per_channel"), quantize_per_channel, qparams=_qparams,
           constants=("scales", "zero_points")),
    OpSpec(_QD + "dequantize_per_channel.default", (*_CHANNEL, "out_dtype"),
           _qd_dequantize_type("dequantize_per_channel"), dequantize_per_channel,
           constants=("scales", "zero_points")),
)  # fmt: skip
