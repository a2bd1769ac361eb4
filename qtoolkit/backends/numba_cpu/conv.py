"""Kernels of q8_conv2d, q8_conv1d and q8_linear: geometry checked, weights packed, loops called."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.backends.numba_cpu import loops
from qtoolkit.backends.numba_cpu.bands import in_bands
from qtoolkit.backends.numba_cpu.memory import (
    LAST,
    PLAIN,
    Array,
    as_bytes,
    channels_last,
    contiguous,
    demand,
    logical,
    on_first,
)
from qtoolkit.errors import QParamError
from qtoolkit.graph import Graph, Node
from qtoolkit.kernel import Bound, Kernel
from qtoolkit.layout import Reps
from qtoolkit.ops.shapes import per_axis, windows
from qtoolkit.qparams import MODES, requantize_factor

Pair = tuple[int, int]
PREPACKED = (1, 2, 8, 10, 11)
LINEAR_PREPACKED = (1, 2, 4, 6, 7)


def rescaling(multiplier: Array, shift: Array, channels: int, mode: str) -> loops.Scales:
    """(factor, multiplier, shift), one value a channel, as the loops read them.

    Raises QParamError for mode 'fixed' with a shift above 30.
    """
    if mode == "fixed" and np.any(shift > 30):
        raise QParamError(
            f"shift {int(np.max(shift))} is above 30, which mode 'fixed' cannot do; use mode "
            "'float' or a larger output scale"
        )
    vectors = (requantize_factor(multiplier, shift), multiplier, shift)
    f, m, s = (np.array(np.broadcast_to(v, (channels,)), order="C") for v in vectors)
    return f, m.astype(np.int32), s.astype(np.int32)


def code_rule(y_zero: int, low: int, high: int, mode: str) -> loops.CodeRule:
    """(y_zero, low, high, mode) as plain integers."""
    return int(y_zero), int(low), int(high), MODES.index(mode)


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Weights as sum_dots or sum_outer read them, with their bias."""

    w: NDArray[np.int16]
    bias: NDArray[np.int32]
    dots: bool

    @classmethod
    def of(cls, w: NDArray[np.int16], bias: NDArray[np.int32]) -> "Packed":
        """Pack w[G, O/G, K] and bias[O].

        Measured: sum_dots wins from K = 64 on, and where there are few outputs to advance
        together; sum_outer wins on short sums.
        """
        G, outputs, K = w.shape
        dots = K >= 64 or outputs < 32
        if dots:
            packed = np.zeros((G, outputs, _up(K, 32)), np.int16)
            packed[:, :, :K] = w
            return cls(packed, np.array(bias, np.int32).reshape(G, outputs), True)
        packed = np.zeros((G, _up(K, 4), _up(outputs, 16)), np.int16)
        packed[:, :K, :outputs] = w.transpose(0, 2, 1)
        wide = np.zeros((G, _up(outputs, 16)), np.int32)
        wide[:, :outputs] = bias.reshape(G, outputs)
        return cls(packed, wide, False)


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def _centred(w: Array, w_zero: Array) -> NDArray[np.int16]:
    """w - w_zero[o] as int16, exact."""
    zero = np.broadcast_to(w_zero, w.shape[:1]).reshape(-1, *(1,) * (w.ndim - 1))
    return np.asarray(w.astype(np.int16) - zero, np.int16)


@dataclass(frozen=True, slots=True, eq=False)
class Conv:
    """A convolution's constants, read from its arguments; conv1d is one of height 1."""

    w: NDArray[np.int16]
    bias: NDArray[np.int32]
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
    x_zero: int
    scales: loops.Scales
    codes: loops.CodeRule

    @classmethod
    def of(cls, args: Sequence[Any], axes: int) -> "Conv":
        w, bias, stride, padding, dilation, groups, x_zero, w_zero = args[1:9]
        centred = _centred(w, w_zero)
        if axes == 1:
            centred = centred[:, :, None]
        s, p, d = (
            per_axis(values, axes, name)
            for values, name in ((stride, "stride"), (padding, "padding"), (dilation, "dilation"))
        )
        if axes == 1:
            s, p, d = (1, *s), (0, *p), (1, *d)
        return cls(
            centred, bias, (s[0], s[1]), (p[0], p[1]), (d[0], d[1]), groups, int(x_zero),
            rescaling(args[10], args[11], w.shape[0], args[16]), code_rule(*args[13:17]),
        )  # fmt: skip

    def window(self, height: int, width: int, channels: int) -> tuple[Any, ...]:
        """The loops' `window`: taps, stride, padding, dilation, (Ho, Wo, W, C)."""
        taps = self.w.shape[2], self.w.shape[3]
        geometry = zip((height, width), taps, self.stride, self.padding, self.dilation, strict=True)
        out_h, out_w = (windows(*each) for each in geometry)
        last = (out_h, out_w, width, channels)
        return taps, self.stride, self.padding, self.dilation, last


def _bind(axes: int, run_of: Callable[[Conv], Callable[[Array], Array]]) -> Callable[..., Bound]:
    """bind for logical x[N,C,H,W] or x[N,C,L] from a maker of functions of x[N,H,W,C]."""

    def bind(args: Sequence[Any]) -> Bound:
        inner = run_of(Conv.of(args, axes))

        def run(x: Array) -> Array:
            memory = channels_last(x)
            if axes == 2:
                return logical(inner(memory))
            return logical(inner(memory[:, None])[:, 0])

        return on_first(args, run)

    return bind


def _general(c: Conv) -> Callable[[Array], Array]:
    outputs = c.w.shape[0]
    # [O, C/G, Kh, Kw] -> [G, O/G, Kh * Kw * C/G], channels innermost as in the activations.
    grouped = c.w.transpose(0, 2, 3, 1).reshape(c.groups, outputs // c.groups, prod(c.w.shape[1:]))
    packed = Packed.of(grouped, c.bias)

    def run(x: Array) -> Array:
        N, H, W, C = x.shape
        window = c.window(H, W, C)
        y = np.empty((N, *window[4][:2], outputs), x.dtype)
        flat, lines = as_bytes(y).reshape(prod(y.shape[:3]), outputs), x.reshape(N, H, W * C)

        def loop(start: int, stop: int) -> None:
            loops.conv(lines, packed.w, packed.bias, packed.dots, window, c.x_zero, c.scales,
                       c.codes, flat, start, stop)  # fmt: skip

        in_bands(loop, len(flat), y.size * prod(c.w.shape[1:]), loops.TILE)
        return y

    return run


def row_products(packed: Packed, x_zero: int, scales: loops.Scales, codes: loops.CodeRule) -> Any:
    """A function from x[M, K] to y[M, O]."""
    outputs = scales[0].size

    def run(x: Array) -> Array:
        y = np.empty((x.shape[0], outputs), x.dtype)
        flat = as_bytes(y)

        def loop(start: int, stop: int) -> None:
            loops.linear(x, packed.w, packed.bias, packed.dots, x_zero, scales, codes, flat,
                         start, stop)  # fmt: skip

        in_bands(loop, len(y), y.size * x.shape[1], loops.TILE)
        return y

    return run


def _pointwise(c: Conv) -> Callable[[Array], Array]:
    packed = Packed.of(c.w.reshape(1, *c.w.shape[:2]), c.bias)
    rows = row_products(packed, c.x_zero, c.scales, c.codes)

    def run(x: Array) -> Array:
        y: Array = rows(x.reshape(prod(x.shape[:3]), x.shape[3]))
        return y.reshape(*x.shape[:3], c.w.shape[0])

    return run


def _depthwise(c: Conv) -> Callable[[Array], Array]:
    outputs, _, kernel_h, kernel_w = c.w.shape
    taps = np.zeros((_up(kernel_h * kernel_w, 3), outputs), np.int16)
    taps[: kernel_h * kernel_w] = c.w.reshape(outputs, kernel_h * kernel_w).T
    pixels = max(1, 256 // max(outputs, 1)) if c.stride[1] == 1 else 1
    taps, bias = np.tile(taps, pixels), np.tile(np.array(c.bias, np.int32), pixels)

    def run(x: Array) -> Array:
        N, H, W, C = x.shape
        window = c.window(H, W, C)
        out_h, out_w = window[4][:2]
        y = np.empty((N, out_h, out_w, outputs), x.dtype)
        lines = as_bytes(y).reshape(N * out_h, out_w, outputs)

        def loop(start: int, stop: int) -> None:
            loops.depthwise(x, taps, bias, window, c.x_zero, c.scales, c.codes, lines, start, stop)

        # A depthwise multiply-add costs about three dense ones.
        in_bands(loop, len(lines), 3 * y.size * len(taps))
        return y

    return run


def loops_of(c: Conv, depthwise: bool = True) -> Callable[[Array], Array]:
    """The fastest loops that fit, x[N,H,W,C] -> y[N,Ho,Wo,O]; depthwise may be ruled out."""
    _, per_group, *taps = c.w.shape
    if depthwise and per_group == 1 and c.groups > 1:
        return _depthwise(c)
    plain = (c.stride, c.padding, c.groups) == ((1, 1), (0, 0), 1)
    return _pointwise(c) if plain and set(taps) == {1} else _general(c)


def bind_fitting(axes: int, depthwise: bool = True) -> Callable[..., Bound]:
    """bind for logical x[N,C,H,W] or x[N,C,L] by `loops_of`."""
    return _bind(axes, lambda c: loops_of(c, depthwise))


def bind_linear(args: Sequence[Any]) -> Bound:
    """Pack a q8_linear; x[..., K] may have any rank from 1 on."""
    w, bias, x_zero, w_zero = args[1:5]
    outputs = w.shape[0]
    scales = rescaling(args[6], args[7], outputs, args[12])
    packed = Packed.of(_centred(w, w_zero)[None], bias)
    rows = row_products(packed, int(x_zero), scales, code_rule(*args[9:13]))

    def run(x: Array) -> Array:
        y: Array = rows(contiguous(x).reshape(prod(x.shape[:-1]), x.shape[-1]))
        return y.reshape(*x.shape[:-1], outputs)

    return on_first(args, run)


def _not_depthwise(node: Node, graph: Graph) -> str | None:
    x, w = graph.type_of(node.args[0]), graph.type_of(node.args[1])
    groups = node.args[6]
    if x is None or w is None or groups != x.sizes[1] or groups == 1:
        return f"groups={groups} is not the number of channels, or that is 1"
    return None


def _not_pointwise(node: Node, graph: Graph) -> str | None:
    w = graph.type_of(node.args[1])
    stride, padding, groups = node.args[3], node.args[4], node.args[6]
    if w is None or set(w.sizes[2:]) != {1}:
        return "its kernel is larger than one cell"
    if groups != 1 or _any_but(stride, 1) or _any_but(padding, 0):
        return f"stride {stride}, padding {padding}, groups {groups} are not 1, 0, 1"
    return None


def _any_but(values: Any, expected: int) -> bool:
    return any(v != expected for v in (values if isinstance(values, tuple) else (values,)))


def _conv_reps(node: Node, graph: Graph) -> Reps:
    return demand(node, graph, LAST, LAST)


def _linear_reps(node: Node, graph: Graph) -> Reps:
    return demand(node, graph, PLAIN, PLAIN)


def _kernels(op: str, axes: int) -> tuple[Kernel, ...]:
    return (
        Kernel("depthwise", op, _bind(axes, _depthwise), _conv_reps, _not_depthwise, PREPACKED),
        Kernel("pointwise", op, _bind(axes, _pointwise), _conv_reps, _not_pointwise, PREPACKED),
        Kernel("general", op, _bind(axes, _general), _conv_reps, prepacked=PREPACKED),
    )


KERNELS: dict[str, tuple[Kernel, ...]] = {
    "q8_conv2d": _kernels("q8_conv2d", 2),
    "q8_conv1d": _kernels("q8_conv1d", 1),
    "q8_linear": (
        Kernel("linear", "q8_linear", bind_linear, _linear_reps, prepacked=LINEAR_PREPACKED),
    ),
}
