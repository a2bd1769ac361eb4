"""Quantization parameters and every constant derived from them, in the order numbers.md fixes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qtoolkit.errors import QParamError

SCALE_LOW = 2.0**-100
SCALE_HIGH = 2.0**100
RATIO_LIMIT = 2.0**30
SMALLEST_NORMAL = 2.0**-126
EPS_WEIGHT = 2.0**-40
EPS_ACTIVATION = 2.0**-12
MODES = ("float", "fixed", "fixed_double")


@dataclass(frozen=True, slots=True, eq=False)
class QParams:
    """How codes stand for real numbers: real = (code - zero_point) * scale.

    scale: float32[1] per-tensor, float32[n] per-channel along `axis`; zero_point: int32 of the
    same length; low <= zero_point <= high bound the codes. eps is the least scale an observer
    may choose. Raises QParamError outside the domain (scales in 2^-100 ... 2^100).
    """

    scale: NDArray[np.float32]
    zero_point: NDArray[np.int32]
    low: int = -128
    high: int = 127
    axis: int | None = None
    eps: float = EPS_ACTIVATION

    @classmethod
    def of(
        cls,
        scale: ArrayLike,
        zero_point: ArrayLike = 0,
        low: int = -128,
        high: int = 127,
        axis: int | None = None,
        eps: float = EPS_ACTIVATION,
        name: str = "tensor",
    ) -> "QParams":
        """Build from scalars or vectors, checked; `name` is the node that errors name."""
        s = np.atleast_1d(np.asarray(scale)).astype(np.float32)
        z = np.atleast_1d(np.asarray(zero_point)).astype(np.int32)
        if z.size == 1 and s.size > 1:
            z = np.full(s.shape, z[0], np.int32)
        if s.ndim != 1 or s.shape != z.shape:
            raise QParamError(
                f"%{name}: {s.size} scales and {z.size} zero points; give one of each per "
                "channel, or one for the whole tensor"
            )
        if axis is None and s.size > 1:
            raise QParamError(f"%{name}: {s.size} scales need an axis")
        check_scales(s, name)
        bad = np.flatnonzero((z < low) | (z > high))
        if bad.size:
            raise QParamError(
                f"%{name}: zero point {z[bad[0]]} of channel {bad[0]} lies outside "
                f"{low}..{high}; choose one inside the code range"
            )
        s.setflags(write=False)
        z.setflags(write=False)
        return cls(s, z, low, high, axis, eps)

    @property
    def per_channel(self) -> bool:
        return self.axis is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QParams):
            return NotImplemented
        return (
            (self.low, self.high, self.axis) == (other.low, other.high, other.axis)
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )

    def __hash__(self) -> int:
        return hash((self.low, self.high, self.axis, self.scale.tobytes()))

    def __repr__(self) -> str:
        if self.axis is None:
            return f"scale {self.scale[0]:.6g}, zero point {self.zero_point[0]}"
        return f"{self.scale.size} scales {self.scale.min():.3g}..{self.scale.max():.3g}"

    def spread(self, values: NDArray[Any], rank: int) -> NDArray[Any]:
        """Shape a per-channel vector so that it broadcasts along `axis` of a rank-`rank` tensor."""
        if self.axis is None or values.size == 1:
            return values.reshape(())
        shape = [1] * rank
        shape[self.axis] = values.size
        return values.reshape(shape)

    def quantize(self, real: NDArray[Any]) -> NDArray[np.int64]:
        """Codes of real numbers by the contract's rule, as int64. Ties go to even."""
        x = np.asarray(real, np.float32)
        zero = self.spread(self.zero_point, x.ndim).astype(np.int64)
        inverse = self.spread(inverse_scale(self.scale), x.ndim)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.rint(x * inverse)
        scaled = np.where(np.isnan(x), np.float32(0), scaled)
        low = (self.low - zero).astype(np.float32)
        high = (self.high - zero).astype(np.float32)
        return zero + np.clip(scaled, low, high).astype(np.int64)

    def dequantize(self, codes: NDArray[Any]) -> NDArray[np.float32]:
        """float32(code - zero_point) * scale."""
        c = np.asarray(codes)
        # Codes of 16 bits and less keep exact differences in int32.
        wide = np.int32 if c.dtype.itemsize <= 2 else np.int64
        offset = c.astype(wide) - self.spread(self.zero_point, c.ndim)
        real: NDArray[np.float32] = offset.astype(np.float32) * self.spread(self.scale, c.ndim)
        return real


def check_scales(scale: NDArray[np.float32], name: str = "tensor") -> None:
    """Raise QParamError if a scale is not a finite number in 2^-100 ... 2^100."""
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~((scale >= SCALE_LOW) & (scale <= SCALE_HIGH)))
    if bad.size:
        raise QParamError(
            f"%{name}: scale {scale[bad[0]]!r} of channel {bad[0]} lies outside 2^-100..2^100; "
            "rescale the tensor or leave it float"
        )


def inverse_scale(scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32(1 / scale), the division in float64: what quantize multiplies by."""
    inverse: NDArray[np.float32] = (1.0 / scale.astype(np.float64)).astype(np.float32)
    return inverse


def ratio(numerator: ArrayLike, denominator: ArrayLike, name: str = "node") -> NDArray[np.float32]:
    """numerator / denominator in float64, rounded once to float32; below 2^-126 becomes 0.

    Raises QParamError at 2^30 and beyond, where a code step would overflow the int32 sum.
    """
    r = np.atleast_1d(np.asarray(numerator, np.float64) / np.asarray(denominator, np.float64))
    if not np.all(r < RATIO_LIMIT):
        raise QParamError(
            f"%{name}: the ratio of scales {float(np.max(r)):.4g} reaches 2^30; the output scale "
            "is too small for its inputs, recalibrate it"
        )
    out = r.astype(np.float32)
    return np.where(out < np.float32(SMALLEST_NORMAL), np.float32(0), out)


def multiplier_shift(r: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Split r into a Q0.31 multiplier and a shift: r = multiplier * 2^(shift - 31).

    Half away from zero; a mantissa that rounds to 2^31 is halved and the exponent raised.
    Positive shift is to the left. 0 -> (0, 0).
    """
    mantissa, exponent = np.frexp(np.asarray(r, np.float32).astype(np.float64))
    m = np.floor(mantissa * 2.0**31 + 0.5).astype(np.int64)
    carry = m == 2**31
    m = np.where(carry, m >> 1, m)
    e = np.where(m == 0, 0, exponent + carry)
    return m.astype(np.int32), e.astype(np.int32)


def requantize_factor(
    multiplier: NDArray[np.int32], shift: NDArray[np.int32]
) -> NDArray[np.float32]:
    """float32(multiplier * 2^(shift - 31)): the factor that kernels in mode 'float' use."""
    exact = np.ldexp(np.asarray(multiplier, np.float64), np.asarray(shift, np.int64) - 31)
    return exact.astype(np.float32)


def bias_codes(
    bias: NDArray[Any], x_scale: float, w_scale: NDArray[np.float32]
) -> NDArray[np.int64]:
    """rint(bias / (x_scale * w_scale[o])) in float64, as int64: the caller checks the range."""
    scale = bias_scale(x_scale, w_scale)
    return np.rint(np.asarray(bias, np.float64) / scale).astype(np.int64)


def bias_scale(x_scale: float, w_scale: NDArray[np.float32]) -> NDArray[np.float64]:
    """The derived scale of a bias: float64(x_scale) * float64(w_scale[o])."""
    return np.float64(np.float32(x_scale)) * np.asarray(w_scale, np.float32).astype(np.float64)


def fused_range(bounds: Sequence[float | None], y: QParams, name: str = "clamp") -> tuple[int, int]:
    """The code range (low, high) of a clamp to real `bounds`, in the output's qparams.

    Either bound may be None. Raises QParamError naming `name` for a NaN bound or min > max.
    """
    low, high = bounds
    if any(b is not None and np.isnan(b) for b in bounds):
        raise QParamError(f"%{name}: clamp bound is NaN in ({low}, {high}); give numbers")
    if low is not None and high is not None and low > high:
        raise QParamError(f"%{name}: clamp to ({low}, {high}): min is above max")
    at = [y.low if low is None else int(y.quantize(np.array(low, np.float32)))]
    at.append(y.high if high is None else int(y.quantize(np.array(high, np.float32))))
    return at[0], at[1]
