"""Arrays in memory order, and the representations that kernels of this backend demand."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.graph import Const, Graph, Node, Ref, leaves
from qtoolkit.kernel import RUNTIME
from qtoolkit.layout import CHANNELS_LAST, CONTIGUOUS, Reps, RepSet

Array = NDArray[Any]

PLAIN = RepSet([CONTIGUOUS])
LAST = RepSet([CHANNELS_LAST])
EITHER = RepSet([CHANNELS_LAST, CONTIGUOUS])


def contiguous(x: Array) -> Array:
    """x itself if its cells lie in row-major order, else a copy where they do; rank 0 stays."""
    return x if x.flags.c_contiguous else np.ascontiguousarray(x)


def channels_last(x: Array) -> Array:
    """Logical x[N,C,...] as the C-contiguous array [N,...,C] that holds it.

    A view of an array in CHANNELS_LAST. Anything else is copied: where C or all other sizes are
    1 both orders are one array, and its producer need not know which of them its reader means.
    """
    return contiguous(np.moveaxis(x, 1, -1))


def logical(y: Array) -> Array:
    """The logical view y[N,C,...] of an array [N,...,C]."""
    return np.moveaxis(y, -1, 1)


def lies_channels_last(x: Array) -> bool:
    """The cells of x[N,C,...] lie as CHANNELS_LAST says."""
    return x.ndim >= 3 and bool(np.moveaxis(x, 1, -1).flags.c_contiguous)


def in_memory(x: Array) -> tuple[Array, Callable[[Array], Array]]:
    """x as a C-contiguous array in memory order, and what makes such an array logical again."""
    if x.flags.c_contiguous or not lies_channels_last(x):
        return contiguous(x), _itself
    return np.moveaxis(x, 1, -1), logical


def _itself(x: Array) -> Array:
    return x


def as_bytes(y: Array) -> NDArray[np.uint8]:
    """A uint8 view of int8 or uint8 codes."""
    return y.view(np.uint8)


def either(shape: Sequence[int]) -> RepSet:
    """Both orders, where there are two: below rank 3 they are one."""
    return EITHER if len(shape) >= 3 else PLAIN


def last(shape: Sequence[int]) -> RepSet:
    """Channels last, where there is such an order."""
    return LAST if len(shape) >= 3 else PLAIN


def demand(
    node: Node, graph: Graph, of_x: RepSet, of_y: RepSet, tensors: int = 1, tied: bool = False
) -> Reps:
    """The first `tensors` operands take of_x, results of_y; constants are contiguous.

    tied: those operands and result 0 share one representation.
    """
    inputs: list[RepSet | None] = []
    runtime: list[int] = []
    for slot, arg in enumerate(node.args):
        kinds = {type(leaf) for leaf in leaves(arg)}
        if Ref in kinds and slot < tensors:
            inputs.append(of_x)
            runtime.append(slot)
        else:
            inputs.append(PLAIN if kinds & {Ref, Const} else None)
    ties = ((*runtime, -1),) if tied else ()
    return Reps(tuple(inputs), tuple(of_y for _ in node.types), ties)


def fill(args: Sequence[Any], tensors: Sequence[Array]) -> tuple[Any, ...]:
    """args with every RUNTIME, those in lists too, replaced by the next of the tensors."""
    return _filled(args, iter(tensors))


def _filled(args: Sequence[Any], source: Iterator[Array]) -> tuple[Any, ...]:
    return tuple(
        next(source) if a is RUNTIME else _filled(a, source) if isinstance(a, tuple | list) else a
        for a in args
    )


def on_first(args: Sequence[Any], run: Callable[[Array], Array]) -> Callable[..., Array]:
    """run as a bound kernel: its tensor is args[0], which a constant may be."""
    return run if args[0] is RUNTIME else lambda: run(args[0])
