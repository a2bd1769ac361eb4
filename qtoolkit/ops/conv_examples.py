"""Example cases of the convolutions on codes."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from qtoolkit.ops.examples import bias_of, codes, factors, qrange, weights, zeros_of
from qtoolkit.ops.spec import Example
from qtoolkit.qparams import MODES


def conv2d_examples() -> Iterator[Example]:
    """q8_conv2d: general, first layer, pointwise, depthwise, grouped, dilated; odd sizes."""
    for mode in MODES:
        for name in ("per-tensor", "per-channel"):
            told, per_channel = f"{name} {mode}", name == "per-channel"
            how: dict[str, Any] = {"per_channel": per_channel, "mode": mode, "padding": (1, 1)}
            yield _conv(f"3x3 {told}", (1, 5, 7, 9), (7, 5, 3, 3), **how)
            yield _conv(f"depthwise {told}", (1, 33, 7, 5), (33, 1, 3, 3), groups=33, **how)
            yield _conv(f"pointwise {told}", (1, 33, 5, 7), (7, 33, 1, 1), per_channel, mode)
    yield _conv("one-sized", (1, 1, 1, 1), (1, 1, 1, 1))
    yield _conv("no batch", (0, 5, 7, 7), (3, 5, 3, 3))
    yield _conv("no batch, depthwise", (0, 5, 7, 7), (5, 1, 3, 3), groups=5)
    yield _conv("no batch, pointwise", (0, 5, 7, 7), (3, 5, 1, 1))
    yield _conv("batch of 3", (3, 5, 5, 5), (7, 5, 3, 3), padding=(1, 1))
    yield _conv("first layer", (1, 3, 17, 17), (33, 3, 3, 3), stride=(2, 2), padding=(1, 1))
    yield _conv("stride 2", (2, 5, 9, 7), (7, 5, 3, 3), stride=(2, 2))
    yield _conv("unlike strides", (1, 5, 9, 8), (7, 5, 3, 2), stride=(1, 2), padding=(0, 1))
    yield _conv("dilated", (1, 5, 9, 11), (7, 5, 3, 3), padding=(2, 3), dilation=(2, 3))
    yield _conv("kernel as large as the input", (2, 5, 5, 7), (3, 5, 5, 7))
    yield _conv("padding wider than the kernel", (1, 2, 3, 3), (3, 2, 2, 2), padding=(3, 3))
    yield _conv("stride past the kernel", (1, 5, 9, 9), (7, 5, 1, 1), stride=(3, 2))
    yield _conv("pointwise, padded", (1, 5, 3, 3), (7, 5, 1, 1), padding=(1, 1))
    yield _conv("pointwise, wide", (1, 40, 6, 6), (70, 40, 1, 1), stride=(1, 1))
    yield _conv("pointwise, long sum", (1, 130, 3, 3), (9, 130, 1, 1))
    yield _conv("grouped", (1, 6, 7, 5), (9, 2, 3, 3), padding=(1, 1), groups=3)
    yield _conv("grouped pointwise", (2, 6, 5, 5), (4, 3, 1, 1), groups=2)
    yield _conv("depthwise, multiplier 2", (1, 5, 7, 7), (10, 1, 3, 3), padding=(1, 1), groups=5)
    yield _conv("depthwise, stride 2", (2, 16, 9, 9), (16, 1, 3, 3), stride=(2, 2), padding=(1, 1),
                groups=16)  # fmt: skip
    yield _conv("depthwise 5x5", (1, 17, 7, 9), (17, 1, 5, 5), padding=(2, 2), groups=17)
    yield _conv("depthwise, dilated", (1, 7, 9, 9), (7, 1, 3, 3), padding=(2, 2), dilation=(2, 2),
                groups=7)  # fmt: skip
    yield _conv("one channel is dense", (1, 1, 7, 7), (4, 1, 3, 3), padding=(1, 1))
    for name, shape, w_shape, groups in (
        ("3x3", (1, 5, 7, 7), (7, 5, 3, 3), 1),
        ("pointwise", (1, 33, 5, 5), (7, 33, 1, 1), 1),
        ("depthwise", (1, 7, 7, 7), (7, 1, 3, 3), 7),
    ):
        fixed: dict[str, Any] = {"groups": groups, "padding": (w_shape[2] // 2,) * 2}
        yield _conv(f"{name} uint8", shape, w_shape, dtype="uint8", x_zero=131, **fixed)
        yield _conv(f"{name} weight zero points", shape, w_shape, w_zero=True, **fixed)
        yield _conv(f"{name} one weight zero point", shape, w_shape, False, w_zero=True, **fixed)
        ends: dict[str, Any] = {"x_zero": -128, "y": (0.1, 127)}
        yield _conv(f"{name} zero points at the ends", shape, w_shape, **ends, **fixed)
        yield _conv(f"{name} fused range", shape, w_shape, y=(0.1, -7), clamp=(-7, 90), **fixed)
        yield _conv(f"{name} sums wrap", shape, w_shape, bias=2**31 - 1, **fixed)
    late: dict[str, Any] = {"y": (0.1, -7), "clamp": (4, 90)}
    yield _conv("range above the zero point", (1, 5, 5, 5), (7, 5, 3, 3), **late)


def conv1d_examples() -> Iterator[Example]:
    """q8_conv1d: the same kinds along one axis."""
    for mode in MODES:
        yield _conv(f"k3 {mode}", (2, 5, 33), (7, 5, 3), mode=mode, padding=(1,))
    yield _conv("per-tensor", (1, 5, 9), (7, 5, 3), False)
    yield _conv("one-sized", (1, 1, 1), (1, 1, 1))
    yield _conv("no batch", (0, 5, 7), (3, 5, 3))
    yield _conv("pointwise", (1, 33, 7), (5, 33, 1))
    yield _conv("stride 2", (1, 3, 33), (7, 3, 5), stride=(2,), padding=(2,))
    yield _conv("dilated", (1, 5, 17), (3, 5, 3), padding=(3,), dilation=(3,))
    yield _conv("grouped", (1, 6, 9), (4, 3, 3), groups=2)
    yield _conv("depthwise", (2, 7, 33), (7, 1, 5), padding=(2,), groups=7)
    yield _conv("depthwise, multiplier 2", (1, 5, 9), (10, 1, 3), padding=(1,), groups=5)
    yield _conv("uint8", (1, 5, 9), (7, 5, 3), dtype="uint8", x_zero=131, padding=(1,))
    yield _conv("weight zero points", (1, 5, 9), (7, 5, 3), w_zero=True, padding=(1,))


def _conv(
    label: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    per_channel: bool = True,
    mode: str = "float",
    stride: tuple[int, ...] | None = None,
    padding: tuple[int, ...] | None = None,
    dilation: tuple[int, ...] | None = None,
    groups: int = 1,
    dtype: str = "int8",
    x_zero: int = -5,
    w_zero: bool = False,
    bias: int | None = None,
    y: tuple[float, int] = (0.1, 3),
    clamp: tuple[int, int] | None = None,
) -> Example:
    O, spatial = w[0], len(w) - 2
    channels = O if per_channel else 1
    K = int(np.prod(w[1:]))
    # Sums have a deviation near 74 * 74 * sqrt(K); this factor brings them to some 40 codes.
    multiplier, shift = factors(channels, 40 / 5500 / K**0.5)
    return Example(
        label,
        (
            codes(*x, dtype=dtype), weights(*w),
            bias_of(O) if bias is None else np.full(O, bias, np.int32),
            stride or (1,) * spatial, padding or (0,) * spatial, dilation or (1,) * spatial,
            groups, x_zero, zeros_of(channels, w_zero), np.full(channels, 1e-3), multiplier, shift,
            *y, *(clamp or qrange(dtype)), mode,
        ),
    )  # fmt: skip
