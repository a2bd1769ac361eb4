"""Run a compiled graph on its backend and keep every value with its time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from qtoolkit import backends
from qtoolkit.backends import DeviceChoice
from qtoolkit.backends.engine import Engine
from qtoolkit.errors import ShapeError, UnknownName, UnsupportedOp
from qtoolkit.graph import Arg, Const, DType, Graph, Node, Ref, TensorType, value_name
from qtoolkit.kernel import Array, Kernel


@dataclass(frozen=True, eq=False)
class Run:
    """What one execution gave: a logical array (NCHW axes) and seconds for each node.

    values[name] is result 0 of a node, values['name#1'] its result 1. counts holds what the
    contract asks to count, such as NaN inputs of quantize. backend 'torch' is the float run.
    """

    backend: str
    device: str
    graph: Graph
    values: Mapping[str, Array]
    seconds: Mapping[str, float]
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The graph's outputs in order."""
        return tuple(_output(a, self) for a in self.graph.outputs)

    def __getitem__(self, name: str) -> Array:
        if name not in self.values:
            raise UnknownName(f"no value %{name} in this {self.backend} run; see .values")
        return self.values[name]

    def __repr__(self) -> str:
        total = sum(self.seconds.values())
        return f"Run({self.backend} on {self.device}: {len(self.values)} values in {total:.3f} s)"

    def _repr_html_(self) -> str:
        slow = sorted(self.seconds.items(), key=lambda item: -item[1])[:12]
        rows = "".join(
            f"<tr><td>{escape(n)}</td><td>{escape(self.graph[n].op)}</td>"
            f"<td>{1e3 * s:.3f}</td></tr>"
            for n, s in slow
        )
        head = "<tr><th>node</th><th>op</th><th>ms</th></tr>"
        return f"<p>{escape(repr(self))}; the slowest nodes:</p><table>{head}{rows}</table>"


def _output(arg: Arg, run: Run) -> Any:
    if isinstance(arg, tuple):
        return tuple(_output(a, run) for a in arg)
    if isinstance(arg, Ref):
        return run.values[value_name(arg)]
    return run.graph.array(arg) if isinstance(arg, Const) else arg


def execute(graph: Graph, x: Any, backend: str | None = None, device: DeviceChoice = None) -> Run:
    """Run a graph on the backend it was compiled for; `reference` runs any graph.

    x: one array for a graph with one input, else a sequence or a mapping by input name; torch
    tensors are taken too, and fp16, bf16 and float64 become float32. backend defaults to the one
    whose kernels the nodes name; device is a Vulkan device by index or by part of its name. Raises
    ShapeError for an input of another shape or dtype, UnsupportedOp listing every node that the
    backend cannot run.
    """
    executable = load(graph, backend, device)
    try:
        return executable(x)
    finally:
        executable.close()


def load(graph: Graph, backend: str | None = None, device: DeviceChoice = None) -> "Executable":
    """Bind every node's kernel once, packing its weights; call the result with inputs."""
    chosen = backend or compiled_for(graph)
    table = backends.kernels(chosen)
    made_for = compiled_for(graph)
    lowered = any(node.kernel for node in graph.nodes)
    if lowered and chosen not in (made_for, "reference"):
        raise UnsupportedOp(
            f"the graph was compiled for {made_for}; compile it again with backend={chosen!r}"
        )
    lacking: list[str] = []
    kernels: dict[str, Kernel] = {}
    for node in graph.nodes:
        if node.op == "input":
            continue
        kernel = _kernel(node, table, chosen)
        if kernel is not None:
            kernels[node.name] = kernel
        elif node.op != "getitem":
            lacking.append(
                f"%{node.name} ({node.op})" + (f" at {node.where}" if str(node.where) else "")
            )
    if lacking:
        raise UnsupportedOp(
            f"backend {chosen} cannot run {len(lacking)} node{'s' * (len(lacking) > 1)}: "
            + "; ".join(lacking)
            + ". Quantize or replace them, or add a kernel"
        )
    return Executable(graph, chosen, backends.load(chosen, graph, kernels, device))


@dataclass(frozen=True, eq=False)
class Executable:
    """A graph with its kernels bound: calling it gives a Run.

    On a device it holds memory until `close`, or until it is collected.
    """

    graph: Graph
    backend: str
    engine: Engine

    @property
    def device(self) -> str:
        """What it runs on, in words."""
        return self.engine.name

    def __call__(self, x: Any) -> Run:
        inputs = dict(zip(self.graph.inputs, match_inputs(self.graph, x), strict=True))
        values, seconds = self.engine.run(inputs)
        counts: dict[str, int] = {}
        for node in self.graph.nodes:
            if node.op == "quantize":
                for ref in node.refs():
                    _count_non_finite(values[value_name(ref)], counts)
        return Run(self.backend, self.device, self.graph, values, seconds, counts)

    def close(self) -> None:
        """Free what the backend holds for it; a second call does nothing."""
        self.engine.close()


def compiled_for(graph: Graph) -> str:
    """The backend whose kernels the nodes name; 'reference' for a graph not lowered yet."""
    for node in graph.nodes:
        if node.kernel:
            return node.kernel.partition(":")[0]
    return "reference"


def _kernel(node: Node, table: Mapping[str, Sequence[Kernel]], backend: str) -> Kernel | None:
    if node.kernel is None or backend == "reference":
        return next(iter(table.get(node.op, ())), None)
    owner, _, name = node.kernel.partition(":")
    if owner != backend:
        return None
    return next((k for k in table.get(node.op, ()) if k.name == name), None)


def match_inputs(graph: Graph, x: Any) -> tuple[Array, ...]:
    """The graph's inputs as arrays in order, checked against their types."""
    if isinstance(x, Mapping):
        missing = [n for n in graph.inputs if n not in x]
        if missing:
            raise ShapeError(f"no value for input %{missing[0]}; the graph reads {graph.inputs}")
        given: list[Any] = [x[n] for n in graph.inputs]
    else:
        given = list(x) if isinstance(x, tuple | list) else [x]
    if len(given) != len(graph.inputs):
        raise ShapeError(f"{len(given)} inputs given, the graph reads {graph.inputs}")
    return tuple(_as_input(v, graph[n]) for v, n in zip(given, graph.inputs, strict=True))


def _as_input(value: Any, node: Node) -> Array:
    detached = value.detach().cpu() if hasattr(value, "detach") else value
    if node.type.dtype is DType.FLOAT32 and str(getattr(detached, "dtype", "")) in NARROW_OR_WIDE:
        detached = detached.float() if hasattr(detached, "float") else detached.astype(np.float32)
    array: Array = np.ascontiguousarray(np.asarray(detached)).reshape(np.shape(detached))
    told = TensorType(array.shape, node.type.dtype)
    if array.dtype.name != node.type.dtype.value or told != node.type:
        raise ShapeError(
            f"input %{node.name} is {array.dtype}{list(array.shape)}, the graph was captured with "
            f"{node.type}; convert it or capture again"
        )
    return array


# The contract converts these to float32 at the door.
NARROW_OR_WIDE = (
    "torch.float16", "torch.bfloat16", "torch.float64", "float16", "float64",
)  # fmt: skip


def _count_non_finite(x: Array, counts: dict[str, int]) -> None:
    if x.dtype.kind == "f":
        for label, test in (("quantized NaN", np.isnan), ("quantized inf", np.isinf)):
            found = int(test(x).sum())
            if found:
                counts[label] = counts.get(label, 0) + found
