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


def measure(
    truth: NDArray[np.floating[Any]],
    value: NDArray[np.floating[Any]],
    qparams: QParams | None = None,
) -> Metrics:
    """Hold `value` against `truth`, both real numbers of one shape; qparams are those of `value`.

    Elements that are not finite in either tensor count as no signal and are left out of the sums.
    """
    finite = np.isfinite(truth) & np.isfinite(value)
    whole = bool(finite.all())
    if not whole:
        truth, value = truth[finite], value[finite]
    error = value.astype(np.float64) - truth
    signal, noise = _square_sum(truth), _square_sum(error)
    sqnr, db = ratio_db(signal, noise) if whole else ("no signal", None)
    max_abs = float(np.abs(error).max(initial=0.0))
    if qparams is None or qparams.per_channel or not error.size:
        return Metrics(sqnr, db, signal, noise, max_abs)
    step = float(qparams.scale[0])
    same = float((qparams.quantize(truth) == qparams.quantize(value)).mean())
    rmse = float(np.sqrt(noise / error.size))
    return Metrics(sqnr, db, signal, noise, max_abs, max_abs / step, same, rmse / step)


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


def _square_sum(values: NDArray[np.floating[Any]]) -> float:
    # In memory order: a sum does not ask for the order of the axes.
    flat = values.ravel(order="K").astype(np.float64)
    return float(np.dot(flat, flat))
