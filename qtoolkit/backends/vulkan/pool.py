"""Kernels of the pools: averages over windows that the host lists, and maxima."""

from collections.abc import Sequence

import numpy as np

from qtoolkit.backends.vulkan.demands import PACKED_CHANNELS, demand, fits, of
from qtoolkit.backends.vulkan.dispatch import Blob, Bound, Dispatch, Site, params, placed_of
from qtoolkit.graph import DType, Graph, Node
from qtoolkit.kernel import Kernel
from qtoolkit.layout import Reps, Storage
from qtoolkit.ops.pool import Span, adaptive_spans, spans, window_counts
from qtoolkit.ops.shapes import per_axis, strides_or_kernel
from qtoolkit.qparams import ratio


def bind_average(site: Site) -> Bound:
    kernel_size, stride, padding, ceil_mode, counted, override = site.args[1:7]
    kernel = per_axis(kernel_size, 2, "kernel_size")
    axes = zip(
        placed_of(site.x()).type.sizes[-2:], kernel, strides_or_kernel(stride, kernel),
        per_axis(padding, 2, "padding"), (1, 1), strict=True,
    )  # fmt: skip
    rows, columns = (spans(*each, ceil_mode) for each in axes)
    return _average(site, rows, columns, counted, override, 7)


def bind_adaptive(site: Site) -> Bound:
    sizes = per_axis(site.args[1], 2, "output_size")
    pairs = zip(placed_of(site.x()).type.sizes[-2:], sizes, strict=True)
    rows, columns = (adaptive_spans(*each) for each in pairs)
    return _average(site, rows, columns, False, None, 2)


def _average(
    site: Site,
    rows: Sequence[Span],
    columns: Sequence[Span],
    counted: bool,
    override: int | None,
    first: int,
) -> Bound:
    """first: the schema position of x_scale."""
    x, y = site.x(), site.y()
    x_scale, x_zero, y_scale, y_zero, low, high = site.args[first : first + 6]
    less = 128 * y.unsigned
    counts = window_counts(rows, columns, counted, override)
    r = ratio(x_scale, np.float64(y_scale) * counts, site.node.name)
    ends = np.array([(s.start, s.stop) for s, _ in (*rows, *columns)], np.int32)
    codes = (int(v) - less for v in (x_zero, y_zero, low, high))
    return (
        Dispatch(
            "q8_avg_pool2d",
            {"x": x, "spans": Blob(ends), "factors": Blob(r.astype(np.float32)), "y": y},
            params(x, y, (y.texels, *codes)),
            y.texels,
            (0,),
        ),
    )


def bind_max(site: Site) -> Bound:
    kernel_size, stride, padding, dilation = site.args[1:5]
    kernel = per_axis(kernel_size, 2, "kernel_size")
    x, y = site.x(), site.y()
    numbers = (
        y.texels, *kernel, *strides_or_kernel(stride, kernel), *per_axis(padding, 2, "padding"),
        *per_axis(dilation, 2, "dilation"),
    )  # fmt: skip
    return (Dispatch("max_pool2d", {"x": x, "y": y}, params(x, y, numbers), y.texels),)


def _not_pool(node: Node, graph: Graph) -> str | None:
    if node.type.rank != 4:
        return f"{node.type} has no batch"
    if node.type.dtype not in (DType.INT8, DType.UINT8, DType.FLOAT32):
        return f"{node.type.dtype} is not pooled by shaders"
    return fits(node, graph)


def _reps(node: Node, graph: Graph) -> Reps:
    # Windows overlap in two dimensions, which is what texture caches are made for.
    x = of(graph.type_of(node.args[0]), PACKED_CHANNELS, Storage.TEXTURE_3D)
    return demand(node, graph, {0: x}, of(node.type, PACKED_CHANNELS, Storage.TEXTURE_3D))


KERNELS: dict[str, tuple[Kernel, ...]] = {
    "q8_avg_pool2d": (Kernel("q8_avg_pool2d", "q8_avg_pool2d", bind_average, _reps, _not_pool),),
    "q8_adaptive_avg_pool2d": (
        Kernel("q8_avg_pool2d", "q8_adaptive_avg_pool2d", bind_adaptive, _reps, _not_pool),
    ),
    "aten.max_pool2d.default": (
        Kernel("max_pool2d", "aten.max_pool2d.default", bind_max, _reps, _not_pool),
    ),
}
