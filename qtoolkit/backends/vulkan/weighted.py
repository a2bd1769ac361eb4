"""Kernels of q8_conv2d, q8_conv1d and q8_linear: weights packed as the shaders read them."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.backends.vulkan.demands import (
    PACKED_CHANNELS,
    PACKED_WIDTH,
    demand,
    fits,
    is_runtime,
    of,
)
from qtoolkit.backends.vulkan.dispatch import (
    BYTES,
    DOT,
    Blob,
    Bound,
    Dispatch,
    Site,
    bits,
    params,
)
from qtoolkit.errors import QParamError
from qtoolkit.graph import Graph, Node
from qtoolkit.kernel import Kernel
from qtoolkit.layout import TEXEL, Reps, Storage
from qtoolkit.ops.shapes import per_axis
from qtoolkit.qparams import MODES, requantize_factor

Array = NDArray[Any]
Pair = tuple[int, int]
PREPACKED = (1, 2, 8, 10, 11)
LINEAR_PREPACKED = (1, 2, 4, 6, 7)


def up(size: int) -> int:
    """A size rounded up to whole texels."""
    return -(-size // TEXEL) * TEXEL


def padded(array: Array, *sizes: int) -> Array:
    """An array grown with zeros at its ends to the first axes' `sizes`."""
    grown = np.zeros((*sizes, *array.shape[len(sizes) :]), array.dtype)
    grown[tuple(slice(s) for s in array.shape)] = array
    return grown


def words(codes: NDArray[np.int8]) -> NDArray[np.int32]:
    """The last axis, a multiple of four codes, as words of four."""
    return np.ascontiguousarray(codes).view(np.int32)


def factors(multiplier: Array, shift: Array, mode: str) -> NDArray[np.int32]:
    """(multiplier, shift) as shaders want them: in mode float the bits of the factor, and 0.

    Raises QParamError for mode 'fixed' with a shift above 30.
    """
    if mode == "fixed" and np.any(shift > 30):
        raise QParamError(
            f"shift {int(np.max(shift))} is above 30, which mode 'fixed' cannot do; use mode "
            "'float' or a larger output scale"
        )
    if mode == "float":
        r = requantize_factor(multiplier, shift)
        return np.stack([bits(r), np.zeros(r.shape, np.int32)])
    return np.stack([multiplier.astype(np.int32), shift.astype(np.int32)])


def channel_table(
    bias: Array, multiplier: Array, shift: Array, w_zero: Array, mode: str
) -> NDArray[np.int32]:
    """struct Channels of shaders/include/channels.glsl for every four outputs."""
    O = len(bias)
    rows = (bias, *factors(multiplier, shift, mode), w_zero)
    wide = [padded(np.array(np.broadcast_to(r, (O,)), np.int32), up(O)) for r in rows]
    return np.ascontiguousarray(np.stack(wide).reshape(4, -1, TEXEL).transpose(1, 0, 2))


def folded_bias(w: Array, bias: Array, x_zero: int, w_zero: Array, taps: int) -> NDArray[np.int32]:
    """bias - x_zero * sum(w) + taps * x_zero * w_zero modulo 2^32, for products of plain codes."""
    sums = w.astype(np.int64).reshape(len(w), -1).sum(axis=1)
    whole = bias.astype(np.int64) - x_zero * sums + taps * x_zero * w_zero.astype(np.int64)
    return np.asarray(whole.astype(np.int32))


@dataclass(frozen=True, slots=True, eq=False)
class Conv:
    """A convolution's constants, read from its arguments; conv1d is one of height 1.

    x_zero, y_zero, low and high are those of int8 codes, uint8 having been shifted by 128.
    """

    w: NDArray[np.int8]
    bias: NDArray[np.int32]
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
    x_zero: int
    w_zero: NDArray[np.int32]
    multiplier: Array
    shift: Array
    y_codes: tuple[int, int, int]
    mode: str

    @classmethod
    def of(cls, site: Site) -> "Conv":
        a = site.args
        w, stride, padding, dilation = a[1], a[3], a[4], a[5]
        if w.ndim == 3:
            w = w[:, :, None]
            stride = (1, *per_axis(stride, 1, "stride"))
            padding = (0, *per_axis(padding, 1, "padding"))
            dilation = (1, *per_axis(dilation, 1, "dilation"))
        s, p, d = (
            per_axis(values, 2, name)
            for values, name in ((stride, "stride"), (padding, "padding"), (dilation, "dilation"))
        )
        less = 128 * site.y().unsigned
        y_zero, low, high = (int(v) - less for v in a[13:16])
        w_zero = np.array(np.broadcast_to(a[8], w.shape[:1]), np.int32)
        return cls(
            w, a[2], (s[0], s[1]), (p[0], p[1]), (d[0], d[1]), a[6], int(a[7]) - less, w_zero,
            a[10], a[11], (y_zero, low, high), a[16],
        )  # fmt: skip

    def dispatch(
        self,
        site: Site,
        shader: str,
        weights: Array,
        bias: Array,
        groups: Pair,
        feature: str | None = None,
    ) -> tuple[Dispatch, ...]:
        """groups: inputs and outputs of a group, in the shader's units."""
        x, y = site.x(), site.y()
        table = channel_table(bias, self.multiplier, self.shift, self.w_zero, self.mode)
        numbers = (
            y.texels, *self.w.shape[2:], *self.stride, *self.padding, *self.dilation, self.x_zero,
            *self.y_codes, *groups, self.w.shape[1],
        )  # fmt: skip
        constants = (MODES.index(self.mode), int(np.any(self.w_zero))) if feature == DOT else (
            MODES.index(self.mode),
        )  # fmt: skip
        return (
            Dispatch(
                shader,
                {"x": x, "weights": Blob(weights), "channels": Blob(table), "y": y},
                params(x, y, numbers),
                y.texels,
                constants,
                feature,
            ),
        )


def bind_dense(site: Site) -> Bound:
    """Groups of whole texels; [O/4][Kh][Kw][C/4] words of four outputs each."""
    c = Conv.of(site)
    O, Cg, Kh, Kw = c.w.shape
    w = padded(c.w, up(O), up(Cg)).reshape(up(O) // TEXEL, TEXEL, up(Cg) // TEXEL, TEXEL, Kh, Kw)
    packed = words(w.transpose(0, 4, 5, 2, 1, 3))
    bias = folded_bias(c.w, c.bias, c.x_zero, c.w_zero, prod(c.w.shape[1:]))
    groups = up(Cg) // TEXEL, up(O // c.groups) // TEXEL
    return c.dispatch(site, "q8_conv2d", packed, bias, groups, DOT)


def bind_pointwise(site: Site) -> Bound:
    """A kernel of one cell; [O/4][C/4] words of four outputs each."""
    c = Conv.of(site)
    O, C = c.w.shape[:2]
    packed = matrix(c.w.reshape(O, C))
    bias = folded_bias(c.w, c.bias, c.x_zero, c.w_zero, C)
    groups = up(C) // TEXEL, up(O) // TEXEL
    return c.dispatch(site, "q8_conv2d_pointwise", packed, bias, groups, DOT)


def bind_depthwise(site: Site) -> Bound:
    """A kernel for each channel; [C/4][Kh][Kw] words of four channels."""
    c = Conv.of(site)
    O, _, Kh, Kw = c.w.shape
    w = padded(c.w.reshape(O, Kh, Kw), up(O)).reshape(-1, TEXEL, Kh, Kw).transpose(0, 2, 3, 1)
    return c.dispatch(site, "q8_conv2d_depthwise", words(w), c.bias, (1, 1))


def bind_grouped(site: Site) -> Bound:
    """Any groups; [O][Kh][Kw][C/groups] codes in a row."""
    c = Conv.of(site)
    O, Cg = c.w.shape[:2]
    flat = np.ascontiguousarray(c.w.transpose(0, 2, 3, 1)).reshape(-1)
    packed = words(padded(flat, up(flat.size)))
    groups = Cg, O // c.groups
    return c.dispatch(site, "q8_conv2d_grouped", packed, c.bias, groups, BYTES)


def matrix(w: NDArray[np.int8]) -> NDArray[np.int32]:
    """w[O, K] as [O/4][K/4] words of four outputs each."""
    O, K = w.shape
    wide = padded(w, up(O), up(K)).reshape(up(O) // TEXEL, TEXEL, up(K) // TEXEL, TEXEL)
    return words(wide.transpose(0, 2, 1, 3))


def bind_linear(site: Site) -> Bound:
    """x[..., K] and y[..., O], both packed along their last axis."""
    w, bias, x_zero, w_zero = site.args[1:5]
    multiplier, shift, mode = *site.args[6:8], site.args[12]
    x, y = site.x(), site.y()
    less = 128 * y.unsigned
    zeros = np.array(np.broadcast_to(w_zero, w.shape[:1]), np.int32)
    folded = folded_bias(w, bias, int(x_zero) - less, zeros, w.shape[1])
    table = channel_table(folded, multiplier, shift, zeros, mode)
    y_codes = tuple(int(v) - less for v in site.args[9:12])
    return (
        Dispatch(
            "q8_linear",
            {"x": x, "weights": Blob(matrix(w)), "channels": Blob(table), "y": y},
            params(x, y, (y.texels, *y_codes)),
            y.texels,
            (MODES.index(mode), int(np.any(zeros))),
            feature=DOT,
        ),
    )


def _not_depthwise(node: Node, graph: Graph) -> str | None:
    x, w = graph.type_of(node.args[0]), graph.type_of(node.args[1])
    assert x is not None and w is not None
    groups = node.args[6]
    if groups != x.sizes[1] or groups == 1 or w.sizes[0] != groups:
        return f"groups={groups} with {x.sizes[1]} channels in and {w.sizes[0]} out"
    return fits(node, graph)


def _not_pointwise(node: Node, graph: Graph) -> str | None:
    w = graph.type_of(node.args[1])
    stride, padding, groups = node.args[3], node.args[4], node.args[6]
    if w is None or set(w.sizes[2:]) != {1}:
        return "its kernel is larger than one cell"
    if groups != 1 or _any_but(stride, 1) or _any_but(padding, 0):
        return f"stride {stride}, padding {padding}, groups {groups} are not 1, 0, 1"
    return fits(node, graph)


def _not_dense(node: Node, graph: Graph) -> str | None:
    w, groups = graph.type_of(node.args[1]), node.args[6]
    assert w is not None and isinstance(groups, int)
    if groups > 1 and (w.sizes[1] % TEXEL or w.sizes[0] // groups % TEXEL):
        return f"its {groups} groups do not fill whole texels of {TEXEL} channels"
    return fits(node, graph)


def _not_linear(node: Node, graph: Graph) -> str | None:
    return fits(node, graph) if is_runtime(node, 0) else "its input is a constant"


def _any_but(values: Any, expected: int) -> bool:
    return any(v != expected for v in (values if isinstance(values, tuple) else (values,)))


def _conv_reps(first: Storage) -> Callable[[Node, Graph], Reps]:
    def reps(node: Node, graph: Graph) -> Reps:
        x = of(graph.type_of(node.args[0]), PACKED_CHANNELS, first)
        return demand(node, graph, {0: x}, of(node.type, PACKED_CHANNELS, first))

    return reps


def _linear_reps(node: Node, graph: Graph) -> Reps:
    x = of(graph.type_of(node.args[0]), PACKED_WIDTH)
    return demand(node, graph, {0: x}, of(node.type, PACKED_WIDTH))


def _kernels(op: str) -> tuple[Kernel, ...]:
    # Windows of one channel overlap in two dimensions, which is what texture caches are made for;
    # dense sums are read in a row (measured: 20 against 11 TOPS from buffers, docs/decisions.md).
    buffer, texture = _conv_reps(Storage.BUFFER), _conv_reps(Storage.TEXTURE_3D)
    return (
        Kernel("q8_conv2d_depthwise", op, bind_depthwise, texture, _not_depthwise, PREPACKED),
        Kernel("q8_conv2d_pointwise", op, bind_pointwise, buffer, _not_pointwise, PREPACKED),
        Kernel("q8_conv2d", op, bind_dense, buffer, _not_dense, PREPACKED),
        Kernel("q8_conv2d_grouped", op, bind_grouped, buffer, fits, PREPACKED),
    )


KERNELS: dict[str, tuple[Kernel, ...]] = {
    "q8_conv2d": _kernels("q8_conv2d"),
    "q8_conv1d": _kernels("q8_conv1d"),
    "q8_linear": (
        Kernel("q8_linear", "q8_linear", bind_linear, _linear_reps, _not_linear, LINEAR_PREPACKED),
    ),
}
