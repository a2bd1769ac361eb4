"""Compiled loops that treat each cell or pooling window by itself.

Numba's cache watches one file, so nothing here calls a loop of another file. Flat arrays are in
memory order; results are written through a uint8 view.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Codes = NDArray[Any]
Vector = NDArray[np.int32]
Spans = NDArray[np.int64]

# On int32 scalars these stay int32, where Numba widens the result of + and - to int64.
add, sub, i32 = np.add, np.subtract, np.int32
u = np.uint64  # a computed index that is unsigned skips Numba's test for negative ones


@njit(cache=True, nogil=True)
def bounded(steps: Any, y_zero: Any, least: Any, most: Any) -> Any:
    """y_zero + int(clamp(steps, least, most)) as a byte; float32 in, clamped before converting."""
    steps = least if steps < least else steps
    steps = most if steps > most else steps
    return np.uint8(add(y_zero, i32(steps)) & 255)


@njit(cache=True, nogil=True)
def quantize(
    x: NDArray[np.float32], inverse: NDArray[np.float32], zero: Vector, low: int, high: int,
    y: Codes,
) -> None:  # fmt: skip
    """y[outer, n, inner] = codes of x; inverse and zero hold one value for each of n."""
    for i in range(x.shape[0]):
        for c in range(x.shape[1]):
            z, r = zero[c], inverse[c]
            least, most = np.float32(low - z), np.float32(high - z)
            for j in range(x.shape[2]):
                v = x[i, c, j]
                # NaN is tested before the product; it alone differs from itself.
                steps = np.rint(v * r) if v == v else np.float32(0)
                y[i, c, j] = bounded(steps, z, least, most)


@njit(cache=True, nogil=True)
def dequantize(x: Codes, scale: NDArray[np.float32], zero: Vector, y: NDArray[np.float32]) -> None:
    """y[outer, n, inner] = float32(x - zero) * scale, for int8 and uint8 codes."""
    for i in range(x.shape[0]):
        for c in range(x.shape[1]):
            z, s = zero[c], scale[c]
            for j in range(x.shape[2]):
                y[i, c, j] = np.float32(sub(i32(x[i, c, j]), z)) * s


@njit(cache=True, nogil=True)
def q8_add(
    a: Codes, b: Codes, ratios: NDArray[np.float32], zeros: Vector, codes: tuple[int, int, int],
    y: Codes,
) -> None:  # fmt: skip
    """Flat y from flat a and b; ratios (ra, rb), zeros (a_zero, b_zero), codes (y_zero, low, high).

    Two float32 products and one sum, each rounded by itself.
    """
    y_zero, low, high = codes
    z, least, most = i32(y_zero), np.float32(low - y_zero), np.float32(high - y_zero)
    ra, rb, a_zero, b_zero = ratios[0], ratios[1], zeros[0], zeros[1]
    for i in range(y.size):
        steps_a = np.float32(sub(i32(a[i]), a_zero)) * ra
        steps_b = np.float32(sub(i32(b[i]), b_zero)) * rb
        y[i] = bounded(np.rint(steps_a + steps_b), z, least, most)


@njit(cache=True, nogil=True)
def average(
    x: Codes, rows: Spans, columns: Spans, factor: NDArray[np.float32], x_zero: int,
    codes: tuple[int, int, int], y: Codes,
) -> None:  # fmt: skip
    """y[N, Ho, Wo, C] = the averages of x[N, H, W, C] over windows, requantized.

    rows[i] and columns[j] are the first and last + 1 cell of a window within x; factor[i, j] is
    x_scale / (y_scale * count).
    """
    y_zero, low, high = codes
    z, least, most = i32(y_zero), np.float32(low - y_zero), np.float32(high - y_zero)
    acc = np.empty(x.shape[3], np.int32)
    for n in range(x.shape[0]):
        for i in range(y.shape[1]):
            for j in range(y.shape[2]):
                for c in range(acc.size):
                    acc[c] = 0
                for h in range(rows[i, 0], rows[i, 1]):
                    for w in range(columns[j, 0], columns[j, 1]):
                        for c in range(acc.size):
                            acc[c] = add(acc[c], sub(i32(x[n, u(h), u(w), c]), i32(x_zero)))
                r = factor[i, j]
                for c in range(acc.size):
                    y[n, i, j, c] = bounded(np.rint(np.float32(acc[c]) * r), z, least, most)


@njit(cache=True, nogil=True)
def largest(x: Codes, window: tuple[Any, ...], y: Codes) -> None:
    """y[N, Ho, Wo, C] = the largest code in each window of x[N, H, W, C]; padding is left out.

    window is (taps, stride, padding, dilation), each (h, w). A window with no cell in x keeps
    what y held.
    """
    (kernel_h, kernel_w), stride, padding, dilation = window
    for n in range(x.shape[0]):
        for i in range(y.shape[1]):
            for j in range(y.shape[2]):
                started = False
                for a in range(kernel_h):
                    h = i * stride[0] - padding[0] + a * dilation[0]
                    for b in range(kernel_w):
                        w = j * stride[1] - padding[1] + b * dilation[1]
                        if not (0 <= h < x.shape[1] and 0 <= w < x.shape[2]):
                            continue
                        for c in range(x.shape[3]):
                            code = x[n, u(h), u(w), c]
                            if not started or code > y[n, i, j, c]:
                                y[n, i, j, c] = code
                        started = True
