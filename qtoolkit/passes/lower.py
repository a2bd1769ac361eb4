"""lower: choose a kernel of the target backend for every node, and say what ruled out others."""

from collections.abc import Generator, Mapping
from dataclasses import replace

from qtoolkit.draft import Draft, Edit
from qtoolkit.graph import Graph, Node
from qtoolkit.kernel import Kernel
from qtoolkit.trace import NO_EDIT, Step

Kernels = Mapping[str, tuple[Kernel, ...]]


def lower(graph: Graph, backend: str, kernels: Kernels) -> Generator[Step, None, Graph]:
    """Give each node the first kernel that takes it; nodes without one stay, as unsupported."""
    draft = Draft(graph)
    for node in graph.nodes:
        # A getitem needs a kernel only where results lie in memory of a device.
        if node.op == "input" or (node.op == "getitem" and "getitem" not in kernels):
            continue
        kernel, refused = choose(node, graph, kernels)
        if kernel is None:
            told = "; ".join(refused) or f"{backend} has no kernel for {node.op}"
            yield Step(NO_EDIT, "unsupported", node.name, ("{}", told))
            continue
        edit = draft.apply(Edit(replace=(replace(node, kernel=f"{backend}:{kernel.name}"),)))
        why = ("{}{}", kernel.name, "".join(f"; not {r}" for r in refused))
        yield Step(edit, "kernel", node.name, why)
    return draft.finish()


def choose(node: Node, graph: Graph, kernels: Kernels) -> tuple[Kernel | None, tuple[str, ...]]:
    """The first kernel that takes the node, and what those before it said."""
    refused: list[str] = []
    for kernel in kernels.get(node.op, ()):
        why_not = kernel.why_not(node, graph)
        if why_not is None:
            return kernel, tuple(refused)
        refused.append(f"{kernel.name}: {why_not}")
    return None, tuple(refused)


def kernel_of(node: Node, kernels: Kernels) -> Kernel | None:
    """The kernel that lower gave the node."""
    name = (node.kernel or "").partition(":")[2]
    return next((k for k in kernels.get(node.op, ()) if k.name == name), None)
