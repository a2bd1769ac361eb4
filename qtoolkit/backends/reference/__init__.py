"""The reference backend: every op of OPS by its definition; the oracle of all others."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from qtoolkit.backends import DeviceChoice, no_choice
from qtoolkit.backends.engine import Engine, HostEngine
from qtoolkit.graph import Const, Graph, Node, Ref, leaves
from qtoolkit.kernel import RUNTIME, Array, Bound, Kernel
from qtoolkit.layout import CONTIGUOUS, Reps, RepSet
from qtoolkit.ops import OPS, OpSpec

PLAIN = RepSet([CONTIGUOUS])


def reps(node: Node, graph: Graph) -> Reps:
    """Every tensor is a C-contiguous array."""
    tensors = [any(isinstance(leaf, Ref | Const) for leaf in leaves(a)) for a in node.args]
    return Reps(tuple(PLAIN if t else None for t in tensors), tuple(PLAIN for _ in node.types))


def bind(spec: OpSpec, args: Sequence[Any]) -> Bound:
    """A function of the runtime tensors that calls the op's definition."""

    def run(*tensors: Array) -> Any:
        given = iter(tensors)

        def fill(arg: Any) -> Any:
            if isinstance(arg, tuple):
                return tuple(fill(a) for a in arg)
            return next(given) if arg is RUNTIME else arg

        result = spec.reference(*[fill(a) for a in args])
        if isinstance(result, tuple):
            return tuple(np.ascontiguousarray(r).reshape(np.shape(r)) for r in result)
        return np.ascontiguousarray(result).reshape(np.shape(result))

    return run


KERNELS: Mapping[str, tuple[Kernel, ...]] = {
    name: (Kernel("reference", name, partial(bind, spec), reps),) for name, spec in OPS.items()
}


def device(choice: DeviceChoice = None) -> str:
    """NumPy on the host's CPU."""
    return f"NumPy {np.__version__} on the CPU"


def texture_limit(choice: DeviceChoice = None) -> None:
    """There are no textures on the CPU."""


def check() -> None:
    """Nothing beside the package is needed."""


def load(graph: Graph, chosen: Mapping[str, Kernel], choice: DeviceChoice = None) -> Engine:
    """Bind the kernels of a graph."""
    no_choice("reference", choice)
    return HostEngine(graph, chosen, device())
