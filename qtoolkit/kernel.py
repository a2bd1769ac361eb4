"""What a kernel is: data that `lower` and `place` read, and a way to bind it to a node."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.graph import Graph, Node
from qtoolkit.layout import Reps

Array = NDArray[np.generic]
Bound = Callable[..., Array | tuple[Array, ...]]


def always(node: Node, graph: Graph) -> str | None:
    """A why_not that never refuses."""
    return None


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to compute an op on a backend.

    why_not(node, graph) says why the kernel cannot take a node, or None. reps(node, graph) gives
    the repset of each operand and result in order of preference, and which operands are tied.
    prepacked lists the schema positions whose constants the kernel packs when it is bound.
    only_if names a rule (FuseRules) without which the kernel is not offered, and says why.

    bind packs constants and gives what the backend's engine runs. On the CPU, bind(args) receives
    the arguments in schema order, constants as arrays and runtime tensors as the placeholder
    RUNTIME, and returns a function of the runtime tensors alone (in schema order, lists flattened);
    tensors are logical arrays (NCHW axes), their strides are those the representation says. On
    Vulkan, bind(site) returns dispatches: backends/vulkan/dispatch.py.
    """

    name: str
    op: str
    bind: Callable[..., Any]
    reps: Callable[[Node, Graph], Reps]
    why_not: Callable[[Node, Graph], str | None] = always
    prepacked: tuple[int, ...] = ()
    only_if: tuple[str, str] | None = None


class Runtime:
    """The placeholder that stands for a tensor known only when the graph runs."""

    def __repr__(self) -> str:
        return "RUNTIME"


RUNTIME = Runtime()
