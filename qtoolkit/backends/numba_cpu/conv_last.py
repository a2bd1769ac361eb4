"""Kernels of the convolutions whose channels are the last axis: the loops' own memory order."""

from collections.abc import Callable, Sequence
from typing import Any

from qtoolkit.backends.numba_cpu import conv
from qtoolkit.backends.numba_cpu.memory import PLAIN, Array, contiguous, demand, on_first
from qtoolkit.backends.numba_cpu.moving import bind_reference
from qtoolkit.graph import Graph, Node
from qtoolkit.kernel import Bound, Kernel
from qtoolkit.layout import Reps
from qtoolkit.ops.conv_last import outputs_first


def bind(axes: int, depthwise: bool = True) -> Callable[[Sequence[Any]], Bound]:
    """bind for x[N,H,W,C] or x[N,L,C]: the loops that its constants allow, on the array itself."""

    def bound(args: Sequence[Any]) -> Bound:
        constants = conv.Conv.of((args[0], outputs_first(args[1], axes + 2), *args[2:]), axes)
        inner = conv.loops_of(constants, depthwise)

        def run(x: Array) -> Array:
            memory = contiguous(x)
            return inner(memory) if axes == 2 else inner(memory[:, None])[:, 0]

        return on_first(args, run)

    return bound


def _reps(node: Node, graph: Graph) -> Reps:
    return demand(node, graph, PLAIN, PLAIN)


def _kernel(op: str, axes: int) -> tuple[Kernel, ...]:
    return (Kernel("channels_last", op, bind(axes), _reps, prepacked=conv.PREPACKED),)


KERNELS: dict[str, tuple[Kernel, ...]] = {
    "q8_conv2d_nhwc": _kernel("q8_conv2d_nhwc", 2),
    "q8_conv1d_nlc": _kernel("q8_conv1d_nlc", 1),
    "im2row": (Kernel("numpy_take", "im2row", bind_reference("im2row"), _reps),),
}
