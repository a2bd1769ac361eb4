"""lower: choose a kernel of the target backend for every node, and say what ruled out others."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace

from qtoolkit.draft import Draft, Edit
from qtoolkit.graph import Graph, Node
from qtoolkit.kernel import Kernel
from qtoolkit.passes.exits import exits
from qtoolkit.passes.rules import FuseRules
from qtoolkit.rewrite import apply_rules
from qtoolkit.trace import NO_EDIT, Step

Kernels = Mapping[str, tuple[Kernel, ...]]


def lower(
    graph: Graph,
    backend: str,
    kernels: Kernels,
    rules: FuseRules = FuseRules(),  # noqa: B008
    family: str | None = None,
) -> Generator[Step, None, Graph]:
    """Give each node the first kernel that takes it; nodes without one stay, as unsupported.

    First the graph takes the exits of the backend's `family`: rewrites into ops that it has.
    """
    draft = Draft(graph)
    for rewrites in exits(family, rules):
        yield from apply_rules(draft, rewrites)
    graph = draft.finish()
    for node in graph.nodes:
        # A getitem needs a kernel only where results lie in memory of a device.
        if node.op == "input" or (node.op == "getitem" and "getitem" not in kernels):
            continue
        kernel, refused = choose(node, graph, kernels, rules)
        if kernel is None:
            told = "; ".join(grouped(refused)) or f"{backend} has no kernel for {node.op}"
            yield Step(NO_EDIT, "unsupported", node.name, ("{}", told))
            continue
        edit = draft.apply(Edit(replace=(replace(node, kernel=f"{backend}:{kernel.name}"),)))
        why = ("{}{}", kernel.name, "".join(f"; not {r}" for r in grouped(refused)))
        yield Step(edit, "kernel", node.name, why)
    return draft.finish()


def choose(
    node: Node,
    graph: Graph,
    kernels: Kernels,
    rules: FuseRules = FuseRules(),  # noqa: B008
) -> tuple[Kernel | None, tuple[tuple[str, str], ...]]:
    """The first kernel that takes the node, and (name, why not) of those before it."""
    refused: list[tuple[str, str]] = []
    for kernel in kernels.get(node.op, ()):
        why_not = kernel.why_not(node, graph)
        if why_not is None and kernel.only_if and not getattr(rules, kernel.only_if[0]):
            why_not = kernel.only_if[1]
        if why_not is None:
            return kernel, tuple(refused)
        refused.append((kernel.name, why_not))
    return None, tuple(refused)


def grouped(refused: Sequence[tuple[str, str]]) -> Iterator[str]:
    """'a, b: why' for kernels that were refused for the same reason."""
    names: dict[str, list[str]] = {}
    for name, why_not in refused:
        names.setdefault(why_not, []).append(name)
    return (f"{', '.join(found)}: {why_not}" for why_not, found in names.items())


def kernel_of(node: Node, kernels: Kernels) -> Kernel | None:
    """The kernel that lower gave the node."""
    name = (node.kernel or "").partition(":")[2]
    return next((k for k in kernels.get(node.op, ()) if k.name == name), None)
