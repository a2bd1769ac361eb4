"""Kernels that only move values, all of NumPy: views, permutations, pads, cats and transitions."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from qtoolkit.backends.numba_cpu.memory import (
    EITHER,
    LAST,
    PLAIN,
    Array,
    channels_last,
    contiguous,
    demand,
    either,
    fill,
    last,
    lies_channels_last,
    logical,
    on_first,
)
from qtoolkit.graph import Graph, Node, TensorType, leaves
from qtoolkit.kernel import Bound, Kernel
from qtoolkit.layout import CHANNELS_LAST, Reps
from qtoolkit.ops import OPS, move

COPIES = ("aten.permute.default", "aten.transpose.int", "aten.slice.Tensor")


def bind_reference(op: str) -> Callable[[Sequence[Any]], Bound]:
    """bind for the op's own reference, contiguous in and out."""
    reference = OPS[op].reference

    def bind(args: Sequence[Any]) -> Bound:
        def run(*tensors: Array) -> Array | tuple[Array, ...]:
            result = reference(*fill(args, tensors))
            if isinstance(result, tuple | list):
                return tuple(contiguous(np.asarray(r)) for r in result)
            return contiguous(np.asarray(result))

        return run

    return bind


def bind_same(args: Sequence[Any]) -> Bound:
    """The array itself: values are never written to."""
    return on_first(args, lambda x: x)


def bind_pad(args: Sequence[Any]) -> Bound:
    _, widths, *rest = args
    how = ("constant", *rest) if len(rest) == 1 else rest

    def run(x: Array) -> Array:
        if x.ndim < 3:
            return contiguous(move.pad(x, widths, *how))
        pairs = [(0, 0)] * (x.ndim - len(widths) // 2)
        pairs += list(zip(widths[::2], widths[1::2], strict=True))[::-1]
        moved = [pairs[0], *pairs[2:], pairs[1]]
        flat = [w for pair in reversed(moved) for w in pair]
        return logical(contiguous(move.pad(channels_last(x), flat, *how)))

    return on_first(args, run)


def bind_cat(args: Sequence[Any]) -> Bound:
    parts, dim = args

    def run(*tensors: Array) -> Array:
        (given,) = fill((parts,), tensors)
        if not _in_one_order(tensors):
            return contiguous(move.cat(given, dim))
        rank = tensors[0].ndim
        at = {0: 0, 1: rank - 1}.get(dim % rank, dim % rank - 1)
        return logical(contiguous(np.concatenate([channels_last(t) for t in given], axis=at)))

    return run


def _in_one_order(tensors: Sequence[Array]) -> bool:
    return all(lies_channels_last(t) for t in tensors) and bool(tensors)


def _cat_reps(node: Node, graph: Graph) -> Reps:
    """Either order, unless all parts lie in both at once: then nothing at run time tells which."""
    types = [t for t in (graph.type_of(leaf) for leaf in leaves(node.args[0])) if t is not None]
    if any(t.rank != node.type.rank for t in types) or node.type.rank < 3:
        return demand(node, graph, PLAIN, PLAIN)
    both = LAST if all(map(_orders_agree, types)) else EITHER
    return demand(node, graph, both, both, tied=True)


def _orders_agree(t: TensorType) -> bool:
    _, C, *inner = t.sizes
    return C == 1 or all(s == 1 for s in inner) or 0 in t.sizes


def bind_to_channels_last(args: Sequence[Any]) -> Bound:
    return on_first(args, lambda x: logical(channels_last(x)))


def bind_to_contiguous(args: Sequence[Any]) -> Bound:
    return on_first(args, contiguous)


def _not_to_channels_last(node: Node, graph: Graph) -> str | None:
    if node.type.rank < 3:
        return "below rank 3 there is one order only"
    if node.reps is not None and CHANNELS_LAST not in node.reps.outputs[0]:
        return f"the reader wants {node.reps.outputs[0]}"
    return None


def _to_channels_last_reps(node: Node, graph: Graph) -> Reps:
    return demand(node, graph, PLAIN, LAST)


def _to_contiguous_reps(node: Node, graph: Graph) -> Reps:
    return demand(node, graph, last(node.type.sizes), PLAIN)


def plain_reps(node: Node, graph: Graph) -> Reps:
    """Contiguous everywhere."""
    return demand(node, graph, PLAIN, PLAIN)


def _pad_reps(node: Node, graph: Graph) -> Reps:
    order = last(node.type.sizes)
    return demand(node, graph, order, order)


def _same_reps(node: Node, graph: Graph) -> Reps:
    both = either(node.type.sizes)
    return demand(node, graph, both, both, tied=True)


KERNELS: dict[str, tuple[Kernel, ...]] = {
    **{op: (Kernel("numpy_view", op, bind_reference(op), plain_reps),) for op in move.VIEWS},
    **{op: (Kernel("numpy_copy", op, bind_reference(op), plain_reps),) for op in COPIES},
    **{op: (Kernel("same", op, bind_same, _same_reps),) for op in move.IDENTITIES},
    **{
        op: (Kernel("numpy_pad", op, bind_pad, _pad_reps),)
        for op in ("aten.pad.default", "aten.constant_pad_nd.default")
    },
    "aten.cat.default": (Kernel("numpy_cat", "aten.cat.default", bind_cat, _cat_reps),),
    "transition": (
        Kernel("numpy_to_channels_last", "transition", bind_to_channels_last,
               _to_channels_last_reps, _not_to_channels_last),
        Kernel("numpy_to_contiguous", "transition", bind_to_contiguous, _to_contiguous_reps),
    ),
}  # fmt: skip
