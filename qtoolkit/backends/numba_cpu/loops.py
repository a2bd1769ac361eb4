"""Every compiled loop that sums or requantizes; one file, since Numba's cache watches one file.

A cached function is compiled again when its own file changes, not when a file it calls into does:
so no loop here calls a loop of another file, and none captures a variable.

Arrays are in memory order (channels innermost) and C-contiguous. Activations come as int8 or
uint8; results are written through a uint8 view, whose bytes are the same for int8. `scales` is
(factor float32[O], multiplier int32[O], shift int32[O]); `codes` is (y_zero, low, high, mode).
Inner loops index whole arrays: handing slices to a function cost 90 ns a pixel.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Codes = NDArray[Any]  # int8 or uint8; results uint8
Wide = NDArray[np.int16]
Sums = NDArray[np.int32]
Scales = tuple[NDArray[np.float32], Sums, Sums]
CodeRule = tuple[int, int, int, int]
Window = tuple[Any, ...]

TILE = 4  # pixels whose sums advance together in sum_outer; two were slower
BAND = 8  # output lines whose input is widened at once: it stays in the L2 cache
FLOAT, FIXED, FIXED_DOUBLE = 0, 1, 2

# On int32 scalars these stay int32 and wrap, where Numba widens the result of * and + to int64.
mul, add, i32 = np.multiply, np.add, np.int32
# A computed index that is unsigned skips Numba's test for negative ones: copies ran 5 times faster.
u = np.uint64


@njit(cache=True, nogil=True)
def fixed(acc: Any, multiplier: Any, shift: Any) -> Any:
    """(acc * multiplier + 2^(s-1)) >> s with s = 31 - shift, in int64; s > 62 gives 0."""
    s = 31 - np.int64(shift)
    if s > 62:
        return np.int64(0)
    return (np.int64(acc) * np.int64(multiplier) + (np.int64(1) << (s - 1))) >> s


@njit(cache=True, nogil=True)
def fixed_double(acc: Any, multiplier: Any, shift: Any) -> Any:
    """Doubling high multiply, then a rounding shift: rounds twice (numbers.md, `fixed_double`)."""
    left: Any = min(max(np.int64(shift), 0), 32)
    # 2^32 times anything but 0 saturates, and 2^32 * 2^31 still fits: a longer shift adds nothing.
    a: Any = min(max(np.int64(acc) * (np.int64(1) << left), -(1 << 31)), (1 << 31) - 1)
    product = a * np.int64(multiplier)
    nudged = product + (1 - (1 << 30) if product < 0 else 1 << 30)
    v = -(-nudged >> 31) if nudged < 0 else nudged >> 31
    n: Any = max(-np.int64(shift), 0)
    if n >= 32:
        return np.int64(0)
    mask = (np.int64(1) << n) - 1
    threshold = (mask >> 1) + np.int64(v < 0)
    return (v >> n) + np.int64((v & mask) > threshold)


@njit(cache=True, nogil=True)
def scaled_code(acc: Any, r: Any, y_zero: Any, least: Any, most: Any) -> Any:
    """y_zero + int(clamp(rint(float32(acc) * r), least, most)), as a byte."""
    steps = np.rint(np.float32(acc) * r)
    steps = least if steps < least else steps
    steps = most if steps > most else steps
    return np.uint8(add(y_zero, i32(steps)) & 255)


@njit(cache=True, nogil=True)
def fixed_code(acc: Any, multiplier: Any, shift: Any, codes: CodeRule) -> Any:
    """The code of a sum in mode `fixed` or `fixed_double`, as a byte."""
    y_zero, low, high, mode = codes
    once = mode == FIXED
    v = fixed(acc, multiplier, shift) if once else fixed_double(acc, multiplier, shift)
    return np.uint8((y_zero + min(max(v, low - y_zero), high - y_zero)) & 255)


@njit(cache=True, nogil=True)
def requantize(x: NDArray[Any], x_zero: int, scales: Scales, codes: CodeRule, y: Codes) -> None:
    """y[outer, n, inner] from codes x of that shape; scales hold one value for each of n."""
    factor, multiplier, shift = scales
    y_zero, low, high, mode = codes
    zero, least, most = i32(y_zero), np.float32(low - y_zero), np.float32(high - y_zero)
    for i in range(x.shape[0]):
        for c in range(x.shape[1]):
            r = factor[c]
            if mode == FLOAT:
                for j in range(x.shape[2]):
                    acc = np.subtract(i32(x[i, c, j]), i32(x_zero))
                    y[i, c, j] = scaled_code(acc, r, zero, least, most)
            else:
                for j in range(x.shape[2]):
                    acc = np.subtract(i32(x[i, c, j]), i32(x_zero))
                    y[i, c, j] = fixed_code(acc, multiplier[c], shift[c], codes)


@njit(cache=True, nogil=True)
def scale_rows(
    acc: Sums, rows: int, columns: int, scales: Scales, first: int, codes: CodeRule, y: Codes,
    m: int,
) -> None:  # fmt: skip
    """Requantize acc[:rows, :columns] to y from row m and column `first` on.

    The factor of column j is scales[first + j].
    """
    factor, multiplier, shift = scales
    y_zero, low, high, mode = codes
    if mode == FLOAT:
        zero, least, most = i32(y_zero), np.float32(low - y_zero), np.float32(high - y_zero)
        for p in range(rows):
            for j in range(columns):
                c = u(first + j)
                y[u(m + p), c] = scaled_code(acc[p, j], factor[c], zero, least, most)
        return
    for p in range(rows):
        for j in range(columns):
            c = u(first + j)
            y[u(m + p), c] = fixed_code(acc[p, j], multiplier[c], shift[c], codes)


@njit(cache=True, nogil=True)
def sum_dots(x: Wide, w: Wide, bias: Sums, g: int, rows: int, acc: Sums) -> None:
    """acc[p, o] = bias[g, o] + sum over k of x[p, k] * w[g, o, k]: K vectorized, padded to 32."""
    for o in range(w.shape[1]):
        for p in range(rows):
            total = bias[g, o]
            for k in range(w.shape[2]):
                total = add(total, mul(i32(x[p, k]), i32(w[g, o, k])))
            acc[p, o] = total


@njit(cache=True, nogil=True)
def sum_outer(x: Wide, w: Wide, bias: Sums, g: int, acc: Sums) -> None:
    """acc[p, o] = bias[g, o] + sum over k of x[p, k] * w[g, k, o]: O vectorized, K padded to 4.

    All TILE rows are computed, whatever x holds in those that nobody reads.
    """
    gu = u(g)
    for p in range(TILE):
        for o in range(w.shape[2]):
            acc[p, o] = bias[gu, o]
    for start in range(0, w.shape[1], 4):
        k, k1, k2, k3 = u(start), u(start + 1), u(start + 2), u(start + 3)
        a0, a1, a2, a3 = i32(x[0, k]), i32(x[0, k1]), i32(x[0, k2]), i32(x[0, k3])
        b0, b1, b2, b3 = i32(x[1, k]), i32(x[1, k1]), i32(x[1, k2]), i32(x[1, k3])
        c0, c1, c2, c3 = i32(x[2, k]), i32(x[2, k1]), i32(x[2, k2]), i32(x[2, k3])
        d0, d1, d2, d3 = i32(x[3, k]), i32(x[3, k1]), i32(x[3, k2]), i32(x[3, k3])
        for o in range(w.shape[2]):
            w0, w1 = i32(w[gu, k, o]), i32(w[gu, k1, o])
            w2, w3 = i32(w[gu, k2, o]), i32(w[gu, k3, o])
            a = add(add(mul(a0, w0), mul(a1, w1)), add(mul(a2, w2), mul(a3, w3)))
            b = add(add(mul(b0, w0), mul(b1, w1)), add(mul(b2, w2), mul(b3, w3)))
            c = add(add(mul(c0, w0), mul(c1, w1)), add(mul(c2, w2), mul(c3, w3)))
            d = add(add(mul(d0, w0), mul(d1, w1)), add(mul(d2, w2), mul(d3, w3)))
            acc[0, o] = add(acc[0, o], a)
            acc[1, o] = add(acc[1, o], b)
            acc[2, o] = add(acc[2, o], c)
            acc[3, o] = add(acc[3, o], d)


@njit(cache=True, nogil=True)
def linear(
    x: Codes, w: Wide, bias: Sums, dots: bool, x_zero: int, scales: Scales, codes: CodeRule,
    y: Codes, start: int, stop: int,
) -> None:  # fmt: skip
    """Rows start..stop of y[M, O] = requantize(x[M, K] @ w + bias).

    A linear layer, or a pointwise convolution with M = N*H*W. w is packed with one group: for
    sum_dots if `dots`, else for sum_outer.
    """
    tile = np.zeros((TILE, w.shape[2] if dots else w.shape[1]), np.int16)
    acc = np.zeros((TILE, bias.shape[1]), np.int32)
    zero = np.int16(x_zero)
    for m in range(start, stop, TILE):
        rows = min(TILE, stop - m)
        for p in range(rows):
            for k in range(x.shape[1]):
                tile[p, k] = np.int16(x[u(m + p), k]) - zero
        if dots:
            sum_dots(tile, w, bias, 0, rows, acc)
        else:
            sum_outer(tile, w, bias, 0, acc)
        scale_rows(acc, rows, y.shape[1], scales, 0, codes, y, m)


@njit(cache=True, nogil=True)
def gather(
    x: Codes, corner: tuple[int, int, int], window: Window, first: int, channels: int,
    x_zero: int, tile: Wide, p: int,
) -> None:  # fmt: skip
    """Copy one pixel's window of x to tile[p] as int16 minus x_zero; padding becomes 0.

    x[N, H, W*C]; corner is (image, top, left); tile[p] gets Kh, Kw and `channels` channels from
    `first` on. Taps that are neighbours in x (all channels, no dilation) are copied in one piece.
    """
    (kernel_h, kernel_w), _, _, (step_h, step_w), (_, _, width, all_channels) = window
    n, top, left = corner
    zero = np.int16(x_zero)
    taps = kernel_w if step_w == 1 and channels == all_channels else 1
    q = 0
    for i in range(kernel_h):
        h = top + i * step_h
        inside = 0 <= h < x.shape[1]
        for j in range(0, kernel_w, taps):
            at = left + j * step_w
            low = min(max(-at, 0), taps) if inside else taps
            high = max(min(width - at, taps), low)
            for r in range(low * channels):
                tile[p, u(q + r)] = 0
            source = at * all_channels + first
            for r in range(low * channels, high * channels):
                tile[p, u(q + r)] = np.int16(x[u(n), u(h), u(source + r)]) - zero
            for r in range(high * channels, taps * channels):
                tile[p, u(q + r)] = 0
            q += taps * channels


@njit(cache=True, nogil=True)
def conv(
    x: Codes, w: Wide, bias: Sums, dots: bool, window: Window, x_zero: int, scales: Scales,
    codes: CodeRule, y: Codes, start: int, stop: int,
) -> None:  # fmt: skip
    """Pixels start..stop of y[N*Ho*Wo, O], a convolution of x[N, H, W*C].

    window is (taps, stride, padding, dilation, (Ho, Wo, W, C)), the first four (h, w). w and
    bias[G, O/G] are packed per group, K = Kh*Kw*C/G, as `linear` has them.
    """
    _, stride, padding, _, (out_h, out_w, _, all_channels) = window
    groups = w.shape[0]
    channels, outputs = all_channels // groups, y.shape[1] // groups
    tile = np.zeros((TILE, w.shape[2] if dots else w.shape[1]), np.int16)
    acc = np.zeros((TILE, bias.shape[1]), np.int32)
    for m in range(start, stop, TILE):
        rows = min(TILE, stop - m)
        for g in range(groups):
            line, ow = m // out_w, m % out_w
            n, oh = line // out_h, line % out_h
            for p in range(rows):
                corner = (n, oh * stride[0] - padding[0], ow * stride[1] - padding[1])
                gather(x, corner, window, g * channels, channels, x_zero, tile, p)
                ow += 1
                if ow == out_w:
                    ow, oh = 0, oh + 1
                if oh == out_h:
                    oh, n = 0, n + 1
            if dots:
                sum_dots(tile, w, bias, g, rows, acc)
            else:
                sum_outer(tile, w, bias, g, acc)
            scale_rows(acc, rows, outputs, scales, g * outputs, codes, y, m)


@njit(cache=True, nogil=True)
def widen_band(x: Codes, n: int, top: int, left: int, x_zero: int, out: Wide) -> None:
    """Fill out[h, w, o] with x[n, top + h, left + w, o // multiplier] - x_zero; 0 outside x."""
    zero = np.int16(x_zero)
    multiplier = out.shape[2] // max(x.shape[3], 1)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            h, at = top + i, left + j
            if not (0 <= h < x.shape[1] and 0 <= at < x.shape[2]):
                for o in range(out.shape[2]):
                    out[i, j, o] = 0
            elif multiplier == 1:
                for o in range(out.shape[2]):
                    out[i, j, o] = np.int16(x[u(n), u(h), u(at), o]) - zero
            else:
                for o in range(out.shape[2]):
                    out[i, j, o] = np.int16(x[u(n), u(h), u(at), u(o // multiplier)]) - zero


@njit(cache=True, nogil=True)
def sum_taps(
    cells: Wide, base: int, step: int, offsets: NDArray[np.int64], w: Wide, bias: Sums,
    acc: Sums,
) -> None:  # fmt: skip
    """acc[i] = bias + sum over taps of w[t] * cells from base + i * step + offsets[t] on.

    acc[i] and w[t] hold the channels of one pixel, or of several neighbours in cells.
    """
    for i in range(acc.shape[0]):
        for c in range(acc.shape[1]):
            acc[i, c] = bias[c]
        for t in range(0, offsets.size, 3):
            p0 = base + i * step + offsets[t]
            p1 = base + i * step + offsets[t + 1]
            p2 = base + i * step + offsets[t + 2]
            for c in range(acc.shape[1]):
                one = mul(i32(cells[u(p0 + c)]), i32(w[u(t), c]))
                two = mul(i32(cells[u(p1 + c)]), i32(w[u(t + 1), c]))
                three = mul(i32(cells[u(p2 + c)]), i32(w[u(t + 2), c]))
                acc[i, c] = add(acc[i, c], add(add(one, two), three))


@njit(cache=True, nogil=True)
def depthwise(
    x: Codes, w: Wide, bias: Sums, window: Window, x_zero: int, scales: Scales,
    codes: CodeRule, y: Codes, start: int, stop: int,
) -> None:  # fmt: skip
    """Lines start..stop of y[N*Ho, Wo, O], a depthwise convolution of x[N, H, W, C].

    O is a multiple of C; output o reads channel o // (O/C). w[taps, P*O] is int16, its taps in
    order Kh Kw and padded with zeros to a multiple of three; w and bias[P*O] are repeated for P
    pixels, which are summed at once: P > 1 needs stride 1 along the line. window is as in conv.
    """
    (kernel_h, kernel_w), stride, padding, (step_h, step_w), (out_h, out_w, _, _) = window
    channels = y.shape[2]
    pixels = bias.size // channels
    groups = (out_w + pixels - 1) // pixels
    width = (groups * pixels - 1) * stride[1] + (kernel_w - 1) * step_w + 1
    offsets = np.zeros(w.shape[0], np.int64)  # taps added to fill the last three read cell 0
    for t in range(kernel_h * kernel_w):
        offsets[t] = (t // kernel_w * step_h * width + t % kernel_w * step_w) * channels
    acc = np.empty((groups, bias.size), np.int32)
    sums = acc.reshape(groups * pixels, channels)
    height = (min(BAND, stop - start) - 1) * stride[0] + (kernel_h - 1) * step_h + 1
    band = np.empty((height, width, channels), np.int16)
    cells = band.reshape(height * width * channels)
    step = pixels * stride[1] * channels
    line = start
    while line < stop:
        n, top = line // out_h, line % out_h
        lines = min(BAND, stop - line, out_h - top)
        needed = (lines - 1) * stride[0] + (kernel_h - 1) * step_h + 1
        widen_band(x, n, top * stride[0] - padding[0], -padding[1], x_zero, band[:needed])
        for i in range(lines):
            sum_taps(cells, i * stride[0] * width * channels, step, offsets, w, bias, acc)
            scale_rows(sums, out_w, channels, scales, 0, codes, y[line + i], 0)
        line += lines
