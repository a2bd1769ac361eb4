"""How far two tensors are apart: SQNR and the other figures of the numeric contract."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.qparams import QParams


@dataclass(frozen=True, slots=True)
class Metrics:
    """A value held against the truth.

    sqnr is 'finite', 'exact' or 'no signal'; sqnr_db the figure where it is finite; signal and
    noise are the sums of squares it is made of. max_abs is the largest error in real units,
    max_steps the same in steps of the output scale, agreement the share of elements that quantize
    to the same code, rmse_steps = rmse / scale (healthy: 1/sqrt(12), about 0.289); the latter three
    only for values quantized per tensor. Never NaN or infinite.
    """

    sqnr: str
    sqnr_db: float | None
    signal: float
    noise: float
    max_abs: float
    max_steps: float | None = None
    agreement: float | None = None
    rmse_steps: float | None = None


BLOCK = 1 << 15  # elements looked at together: their temporaries stay in the L2 cache


def measure(truth: NDArray[Any], value: NDArray[Any], qparams: QParams | None = None) -> Metrics:
    """Hold `value` against `truth`, of one shape.

    truth holds real numbers; value does too, or, with its qparams, codes. Elements that are not
    finite in either tensor count as no signal and are left out of the sums.
    """
    sums = _Sums(qparams)
    real, other = np.ascontiguousarray(truth).reshape(-1), np.ascontiguousarray(value).reshape(-1)
    for start in range(0, real.size, BLOCK):
        sums.add(real[start : start + BLOCK], other[start : start + BLOCK])
    return sums.metrics(real.size)


class _Sums:
    """What has been summed of two tensors so far, block by block."""

    def __init__(self, qparams: QParams | None) -> None:
        per_tensor = qparams is not None and not qparams.per_channel
        self.qparams = qparams if per_tensor else None
        self.signal = self.noise = self.max_abs = 0.0
        self.agreed, self.whole = 0, True

    def add(self, truth: NDArray[Any], value: NDArray[Any]) -> None:
        q = self.qparams
        if q is not None:
            mine = value if value.dtype.kind in "iu" else q.quantize(value)
            self.agreed += int(np.count_nonzero(q.quantize(truth) == mine))
            value = q.dequantize(value) if value.dtype.kind in "iu" else value
        finite = np.isfinite(truth) & np.isfinite(value)
        if not finite.all():
            self.whole = False
            truth, value = truth[finite], value[finite]
        exact = truth.astype(np.float64)
        error = value - exact
        self.signal += float(np.dot(exact, exact))
        self.noise += float(np.dot(error, error))
        self.max_abs = max(self.max_abs, float(np.abs(error).max(initial=0.0)))

    def metrics(self, count: int) -> Metrics:
        sqnr, db = ratio_db(self.signal, self.noise) if self.whole else ("no signal", None)
        if self.qparams is None or not count:
            return Metrics(sqnr, db, self.signal, self.noise, self.max_abs)
        step = float(self.qparams.scale[0])
        return Metrics(
            sqnr, db, self.signal, self.noise, self.max_abs, self.max_abs / step,
            self.agreed / count, float(np.sqrt(self.noise / count)) / step,
        )  # fmt: skip


def ratio_db(signal: float, noise: float) -> tuple[str, float | None]:
    """('finite', 10 log10(signal / noise)), or 'exact' or 'no signal' without a figure."""
    if noise == 0.0:
        return "exact", None
    return (
        ("no signal", None) if signal == 0.0 else ("finite", float(10 * np.log10(signal / noise)))
    )


def same_bits(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether two arrays have one shape, one dtype and the same bits, NaN payloads included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    bits = np.dtype(f"u{a.dtype.itemsize}")
    left, right = (np.ascontiguousarray(v).reshape(-1).view(bits) for v in (a, b))
    return bool(np.array_equal(left, right))
