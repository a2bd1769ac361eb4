"""Kernels that only move values: one shader that gathers, told where each cell comes from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qtoolkit.backends.vulkan.cells import AXES
from qtoolkit.backends.vulkan.demands import (
    ANY,
    FLAT,
    PACKED_WIDTH,
    PLAIN,
    demand,
    fits,
    is_runtime,
    of,
    why_not_here,
)
from qtoolkit.backends.vulkan.dispatch import (
    Alias,
    Bound,
    Constant,
    Dispatch,
    Site,
    bits,
    params,
    placed_of,
)
from qtoolkit.backends.vulkan.tensors import MOST_RANK, Kind, Placed, described
from qtoolkit.graph import DType, Graph, Node, leaves
from qtoolkit.kernel import Kernel
from qtoolkit.layout import PACKED_AXIS, TEXEL, Reps, nchw
from qtoolkit.ops.embedding import check_indices
from qtoolkit.ops.move import IDENTITIES, VIEWS
from qtoolkit.ops.shapes import axis_of

BORDERS = ("constant", "reflect", "replicate", "circular")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a cell of the result comes from: x[a] = cell[order[a]] * step[a] + offset[a].

    All in N, C, H, W. numbered: from the cell of the same row-major number instead.
    """

    order: tuple[int, ...] = (0, 1, 2, 3)
    step: tuple[int, ...] = (1, 1, 1, 1)
    offset: tuple[int, ...] = (0, 0, 0, 0)
    numbered: bool = False
    border: str = "constant"
    fill: int = 0


ITSELF = Source()


def gather(
    x: Placed | Constant,
    y: Placed,
    source: Source,
    origin: Sequence[int] = (0, 0, 0, 0),
    region: Sequence[int] | None = None,
) -> Dispatch:
    """Fill the region of y (all of it unless given, in N, C, H, W) that starts at origin."""
    keep = region is not None
    sizes = tuple(nchw(y.type.sizes) if region is None else region)
    unit = np.ones(4, np.int64)
    unit[PACKED_AXIS[y.repr.layout]] = TEXEL
    # The texels that the region touches may be more than its size would fill.
    grid = -(-(np.array(origin) + sizes) // unit) - np.array(origin) // unit
    window = described(sizes, y.repr.layout, grid.tolist())
    texels = int(np.prod(grid))
    return Dispatch(
        "gather",
        {"x": x, "y": y},
        params(
            x, y, window, origin, source.order, source.step, source.offset,
            (texels, source.numbered, BORDERS.index(source.border), source.fill),
        ),
        texels,
        keep=keep,
    )  # fmt: skip


def bind_view(site: Site) -> Bound:
    return (gather(site.x(), site.y(), Source(numbered=True)),)


def bind_transition(site: Site) -> Bound:
    return (gather(site.x(), site.y(), ITSELF),)


def bind_permute(site: Site) -> Bound:
    return _permuted(site, [axis_of(d, site.y().type.rank) for d in site.args[1]])


def bind_transpose(site: Site) -> Bound:
    rank = site.y().type.rank
    dims = list(range(rank))
    a, b = (axis_of(d, rank) for d in site.args[1:3])
    dims[a], dims[b] = dims[b], dims[a]
    return _permuted(site, dims)


def _permuted(site: Site, dims: Sequence[int]) -> Bound:
    """Axis i of the result is axis dims[i] of x."""
    axes, order = AXES.get(len(dims), ()), [0, 1, 2, 3]
    for i, d in enumerate(dims):
        order[axes[d]] = axes[i]
    return (gather(site.x(), site.y(), Source(order=tuple(order))),)


def bind_slice(site: Site) -> Bound:
    dim, start, end, step = site.args[1:5]
    x = placed_of(site.x())
    axis = axis_of(dim, x.type.rank)
    first = slice(start, end, step).indices(x.type.sizes[axis])[0]
    at = AXES[x.type.rank][axis]
    steps, offset = [1] * 4, [0] * 4
    steps[at], offset[at] = step, first
    return (gather(site.x(), site.y(), Source(step=tuple(steps), offset=tuple(offset))),)


def bind_split(site: Site) -> Bound:
    """Each part is a gather of its own."""
    at = AXES[placed_of(site.x()).type.rank][axis_of(site.args[2], placed_of(site.x()).type.rank)]
    made, first = [], 0
    for i in range(len(site.node.types)):
        offset = [0] * 4
        offset[at] = first
        y = site.y(i)
        made.append(gather(site.x(), y, Source(offset=tuple(offset))))
        first += nchw(y.type.sizes)[at]
    return tuple(made)


def bind_pad(site: Site) -> Bound:
    _, widths, *rest = site.args
    mode, value = ("constant", rest[0]) if len(rest) == 1 else rest
    x, y = site.x(), site.y()
    axes = AXES[y.type.rank]
    offset = [0] * 4
    for i, before in enumerate(widths[::2]):
        offset[axes[-1 - i]] = -before
    fill = _fill(y, value or 0)
    return (gather(x, y, Source(offset=tuple(offset), border=mode, fill=fill)),)


def _fill(y: Placed, value: Any) -> int:
    if y.kind is Kind.REALS:
        return int(bits(value)[0])
    return int(np.array(value).astype(y.type.dtype.value)) - 128 * y.unsigned


def bind_cat(site: Site) -> Bound:
    """Each part fills its region of y; neighbours may share texels, so they follow each other."""
    y = site.y()
    at = AXES[y.type.rank][axis_of(site.args[1], y.type.rank)]
    made, first = [], 0
    for x in site.members(0):
        kind = placed_of(x).type
        if kind.numel == 0:
            continue
        origin = [0] * 4
        origin[at] = first
        sizes = nchw(kind.sizes)
        made.append(gather(x, y, ITSELF, origin, sizes))
        first += sizes[at]
    return tuple(made)


def bind_same(site: Site) -> Bound:
    x = site.x()
    if isinstance(x, Constant) or x.repr != site.y().repr:
        return (gather(x, site.y(), ITSELF),)
    return Alias(x)


def bind_embedding(site: Site) -> Bound:
    """Rows of a table; the shader keeps to its rows, the host looks at the indices."""
    table, indices, y = site.x(0), site.x(1), site.y()
    rows, name = placed_of(table).type.sizes[0], placed_of(indices).value
    return (
        Dispatch(
            "embedding",
            {"table": table, "indices": indices, "y": y},
            params(table, indices, y, (y.texels,)),
            y.texels,
            check=lambda values: check_indices(values[name], rows),
        ),
    )


def _not_cat(node: Node, graph: Graph) -> str | None:
    kinds = [graph.type_of(leaf) for leaf in leaves(node.args[0])]
    full = [t for t in kinds if t is not None and t.numel]
    if any(t.rank != node.type.rank for t in full):
        return "its parts differ in rank"
    return why_not_here(*full, node.type)


def _not_moved(node: Node, graph: Graph) -> str | None:
    return fits(node, graph) if is_runtime(node, 0) else "its input is a constant"


def _not_embedding(node: Node, graph: Graph) -> str | None:
    table = graph.type_of(node.args[0])
    if table is None or table.dtype is not DType.FLOAT32:
        return f"its table is {table}, not float32"
    if not is_runtime(node, 1):
        return "its indices are constants"
    indices = graph.type_of(node.args[1])
    if indices is None or indices.numel == 0 or indices.rank > MOST_RANK:
        return f"its indices are {indices}: empty, or of too many axes"
    # int64 indices are looked at as they go up: those that a table can have fit int32.
    return why_not_here(table, node.type)


def any_reps(node: Node, graph: Graph) -> Reps:
    """Any representation in, any out."""
    inputs = {0: of(graph.type_of(node.args[0]), ANY)}
    return demand(node, graph, inputs, of(node.type, ANY))


def _flat_reps(node: Node, graph: Graph) -> Reps:
    """Views are mostly made for linear, which reads width-packed."""
    inputs = {0: of(graph.type_of(node.args[0]), ANY)}
    return demand(node, graph, inputs, of(node.type, FLAT))


def _same_reps(node: Node, graph: Graph) -> Reps:
    both = of(node.type, ANY)
    return demand(node, graph, {0: both}, both, ties=((0, -1),))


def _cat_reps(node: Node, graph: Graph) -> Reps:
    found = of(node.type, ANY)
    for leaf in leaves(node.args[0]):
        kind = graph.type_of(leaf)
        found = found & of(kind, ANY) if kind is not None and kind.numel else found
    return demand(node, graph, {0: found}, of(node.type, ANY))


def _embedding_reps(node: Node, graph: Graph) -> Reps:
    table = of(graph.type_of(node.args[0]), PACKED_WIDTH)
    return demand(node, graph, {0: table, 1: PLAIN}, of(node.type, PACKED_WIDTH))


def _transition_reps(node: Node, graph: Graph) -> Reps:
    return any_reps(node, graph) if node.reps is None else node.reps


def _same(op: str) -> Kernel:
    return Kernel("same", op, bind_same, _same_reps, _not_moved)


KERNELS: dict[str, tuple[Kernel, ...]] = {
    **{op: (Kernel("view", op, bind_view, _flat_reps, _not_moved),) for op in VIEWS},
    **{op: (_same(op),) for op in (*IDENTITIES, "getitem")},
    **{
        op: (Kernel("pad", op, bind_pad, any_reps, _not_moved),)
        for op in ("aten.pad.default", "aten.constant_pad_nd.default")
    },
    **{
        op: (Kernel("split", op, bind_split, any_reps, _not_moved),)
        for op in ("aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default")
    },
    "aten.permute.default": (
        Kernel("permute", "aten.permute.default", bind_permute, any_reps, _not_moved),
    ),
    "aten.transpose.int": (
        Kernel("permute", "aten.transpose.int", bind_transpose, any_reps, _not_moved),
    ),
    "aten.slice.Tensor": (Kernel("slice", "aten.slice.Tensor", bind_slice, any_reps, _not_moved),),
    "aten.cat.default": (Kernel("cat", "aten.cat.default", bind_cat, _cat_reps, _not_cat),),
    "aten.embedding.default": (
        Kernel("embedding", "aten.embedding.default", bind_embedding, _embedding_reps,
               _not_embedding, (0,)),
    ),
    "transition": (Kernel("copy", "transition", bind_transition, _transition_reps, fits),),
}  # fmt: skip
