"""The arithmetic of requantization in its three modes, and the op that does only that."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.errors import QParamError, ShapeError, UnknownName
from qtoolkit.graph import DType, TensorType
from qtoolkit.ops.examples import codes, factors, qrange, sums
from qtoolkit.ops.shapes import Array, along, axis_of, check_vector
from qtoolkit.ops.spec import Example, OpSpec
from qtoolkit.qparams import MODES, QParams, requantize_factor

INT32_LOW, INT32_HIGH = -(2**31), 2**31 - 1


def wrap(total: Array) -> NDArray[np.int32]:
    """Exact integer sums (int64, or float64 below 2^53) modulo 2^32, as two's complement int32."""
    return np.asarray(total).astype(np.int64).astype(np.int32)


def to_codes(real: NDArray[np.float32], y_zero: int, low: int, high: int) -> NDArray[np.int64]:
    """y_zero + int(clamp(rint(real), low - y_zero, high - y_zero)); real counts output steps."""
    least, most = np.float32(low - y_zero), np.float32(high - y_zero)
    return y_zero + np.clip(np.rint(real), least, most).astype(np.int64)


def rescale(
    acc: NDArray[np.int32],
    multiplier: NDArray[np.int32],
    shift: NDArray[np.int32],
    axis: int | None,
    y_zero: int,
    low: int,
    high: int,
    mode: str,
) -> NDArray[np.int64]:
    """Scale int32 sums to codes in low..high.

    multiplier and shift hold one value, or one per channel along `axis`. mode: 'float' rounds
    once, ties to even; 'fixed' once, ties up; 'fixed_double' twice. Raises QParamError in mode
    'fixed' for a shift above 30.
    Source: numbers.md, after Jacob et al. 2018 (arXiv:1712.05877), eq. 4 and 6.
    """
    if mode == "float":
        r = along(requantize_factor(multiplier, shift), axis, acc.ndim)
        return to_codes(acc.astype(np.float32) * r, y_zero, low, high)
    m = along(multiplier, axis, acc.ndim).astype(np.int64)
    s = along(shift, axis, acc.ndim).astype(np.int64)
    if mode == "fixed":
        v = fixed(acc.astype(np.int64), m, s)
    elif mode == "fixed_double":
        v = fixed_double(acc.astype(np.int64), m, s)
    else:
        raise UnknownName(f"requantize mode {mode!r}; there are {', '.join(MODES)}")
    return y_zero + np.clip(v, low - y_zero, high - y_zero)


def fixed(acc: Array, multiplier: Array, shift: Array) -> Array:
    """(acc * multiplier + 2^(s-1)) >> s with s = 31 - shift, all int64; s > 62 gives 0."""
    s = 31 - shift
    if np.any(s < 1):
        raise QParamError(
            f"shift {int(np.max(shift))} is above 30, which mode 'fixed' cannot do; use mode "
            "'float' or a larger output scale"
        )
    # Beyond s = 62 every product is below half a step; there 2^(s-1) would leave int64.
    bounded = np.minimum(s, 62)
    half = np.left_shift(np.int64(1), bounded - 1)
    return np.where(s > 62, 0, (acc * multiplier + half) >> bounded)


def fixed_double(acc: Array, multiplier: Array, shift: Array) -> Array:
    """Saturating doubling high multiply, then a rounding right shift: rounds twice, all int64.

    Source: gemmlowp's SaturatingRoundingDoublingHighMul and RoundingDivideByPOT, as numbers.md
    writes them out.
    """
    # A left shift of 31 saturates every acc but 0, so a longer one changes nothing.
    left = np.clip(shift, 0, 31)
    a = np.clip(acc * np.left_shift(np.int64(1), left), INT32_LOW, INT32_HIGH)
    product = a * multiplier
    nudged = product + np.where(product < 0, 1 - 2**30, 2**30)
    v = np.where(nudged < 0, -(-nudged >> 31), nudged >> 31)
    n = np.maximum(-shift, 0)
    bounded = np.minimum(n, 31)
    mask = np.left_shift(np.int64(1), bounded) - 1
    threshold = (mask >> 1) + (v < 0)
    rounded = (v >> bounded) + ((v & mask) > threshold)
    return np.where(n >= 32, 0, rounded)


def requantize(
    x: Array,
    x_zero: int,
    out_multiplier: NDArray[np.int32],
    out_shift: NDArray[np.int32],
    axis: int | None,
    y_scale: float,
    y_zero: int,
    low: int,
    high: int,
    mode: str,
) -> Array:
    """Bring codes of any shape to another scale: int8 and uint8 stay so, int32 becomes int8."""
    acc = wrap(x.astype(np.int64) - x_zero)
    y = rescale(acc, out_multiplier, out_shift, axis, y_zero, low, high, mode)
    return y.astype(np.int8 if x.dtype == np.int32 else x.dtype)


def _type(
    x: TensorType, x_zero: int, out_multiplier: TensorType, out_shift: TensorType,
    axis: int | None, *rest: Any,
) -> tuple[TensorType, ...]:  # fmt: skip
    if x.dtype not in (DType.INT8, DType.UINT8, DType.INT32):
        raise ShapeError(f"requantize: {x} does not hold int8, uint8 or int32 codes")
    channels = 1 if axis is None else x.sizes[axis_of(axis, x.rank)]
    check_vector("out_multiplier", out_multiplier, channels)
    check_vector("out_shift", out_shift, channels)
    return (TensorType(x.sizes, DType.INT8 if x.dtype is DType.INT32 else x.dtype),)


def y_qparams(y_scale: float, y_zero: int, low: int, high: int) -> QParams:
    """The qparams of a result whose op clamps to low..high, which need not hold the zero point."""
    return QParams.of(y_scale, y_zero, min(low, y_zero), max(high, y_zero), name="y")


def _qparams(*args: Any) -> QParams:
    return y_qparams(*args[5:9])


def _examples() -> Iterator[Example]:
    for mode in MODES:
        m, s = factors(1, 0.37)
        y = (0.05, -3, -128, 127, mode)
        yield Example(f"int8 {mode}", (codes(2, 5, 7, 33), 11, m, s, None, *y))
        yield Example(f"int32 {mode}", (sums(5, 33), 0, *factors(1, 1e-7), None, *y))
        per_channel = factors(7, 1e-6)
        yield Example(f"per-channel {mode}", (sums(2, 7, 5), 5, *per_channel, 1, *y))
        yield Example(f"last axis {mode}", (sums(5, 7), -5, *per_channel, 1, *y))
        tie, none = factors(1, 0.5, spread=False), factors(1, 0.0)
        yield Example(f"ties {mode}", (np.arange(-9, 10, dtype=np.int32), 0, *tie, None, *y))
        yield Example(f"factor 0 {mode}", (codes(5), 1, *none, None, *y))
        up = factors(1, 3.0, spread=False)
        some = (0.05, 0, -100, 90, mode)
        yield Example(f"factor above 1 {mode}", (codes(7, 5), -2, *up, None, *some))
        tiny = factors(1, 2.0**-40)
        yield Example(f"tiny factor {mode}", (sums(33), 0, *tiny, None, 0.05, 1, -128, 127, mode))
        late = (0.05, -20, 5, 100, mode)
        yield Example(f"range above zero point {mode}", (codes(33), 0, m, s, None, *late))
    unsigned = (0.05, 9, *qrange("uint8"), "float")
    yield Example("uint8", (codes(5, 7, dtype="uint8"), 130, m, s, None, *unsigned))
    yield Example("zero-sized", (codes(0, 3), 0, m, s, None, 0.05, 0, *qrange(), "float"))
    yield Example("one-sized", (codes(1), 0, m, s, None, 0.05, 0, *qrange(), "float"))


SPECS = (
    OpSpec(
        "requantize",
        ("x", "x_zero", "out_multiplier", "out_shift", "axis", "y_scale", "y_zero", "low", "high",
         "mode"),
        _type,
        requantize,
        _examples,
        _qparams,
        constants=("out_multiplier", "out_shift"),
    ),
)  # fmt: skip
