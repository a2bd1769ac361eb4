"""What a backend makes of a compiled graph: an engine; and the one that calls kernels in turn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

from qtoolkit.graph import Arg, Const, Graph, Node, Ref, value_name
from qtoolkit.kernel import RUNTIME, Array, Kernel

Values = dict[str, Array]
Seconds = dict[str, float]


class Engine(Protocol):
    """A graph ready to run on a device; `name` is the device in words."""

    name: str

    def run(self, inputs: Mapping[str, Array]) -> tuple[Values, Seconds]:
        """Every value of the graph by name, and the seconds of each node."""

    def close(self) -> None:
        """Free what the engine holds; a second call does nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A node with its bound kernel, a function of arrays."""

    node: Node
    run: Any


class HostEngine:
    """Calls kernels that are functions of arrays, one node after the other."""

    def __init__(self, graph: Graph, kernels: Mapping[str, Kernel], name: str) -> None:
        self.name = name
        self.calls = tuple(
            Call(node, kernels[node.name].bind(operands(node, graph)))
            if node.name in kernels
            else Call(node, _itself)
            for node in graph.nodes
            if node.op != "input"
        )

    def run(self, inputs: Mapping[str, Array]) -> tuple[Values, Seconds]:
        values, seconds = dict(inputs), {}
        for call in self.calls:
            given = [values[value_name(ref)] for ref in call.node.refs()]
            start = perf_counter()
            result = call.run(*given)
            seconds[call.node.name] = perf_counter() - start
            keep(call.node, result, values)
        return values, seconds

    def close(self) -> None:
        pass


def keep(node: Node, result: Any, values: Values) -> None:
    """Put what a node gave among the values."""
    results: Sequence[Array] = result if isinstance(result, tuple) else (result,)
    for i, value in enumerate(results):
        values[value_name(Ref(node.name, i))] = value


def operands(node: Node, graph: Graph) -> tuple[Any, ...]:
    """A node's arguments, constants as arrays and run-time tensors as RUNTIME."""

    def resolve(arg: Arg) -> Any:
        if isinstance(arg, tuple):
            return tuple(resolve(a) for a in arg)
        if isinstance(arg, Ref):
            return RUNTIME
        return graph.array(arg) if isinstance(arg, Const) else arg

    return tuple(resolve(a) for a in node.args)


def _itself(x: Array) -> Array:
    return x
