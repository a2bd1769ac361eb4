"""transitions: every copy that placement asks for becomes a node, with its cost."""

from collections.abc import Generator, Iterator
from dataclasses import replace

from qtoolkit.draft import Draft, Edit
from qtoolkit.errors import PlacementError
from qtoolkit.graph import Arg, Graph, Node, Ref, leaves, map_leaves
from qtoolkit.layout import Reps, RepSet, TensorRepr
from qtoolkit.passes.lower import Kernels, choose, grouped
from qtoolkit.passes.rules import PlaceRules
from qtoolkit.trace import Step


def transitions(
    graph: Graph,
    backend: str,
    kernels: Kernels,
    rules: PlaceRules = PlaceRules(),  # noqa: B008
) -> Generator[Step, None, Graph]:
    """Put a copy before each reader that wants another representation; like copies are shared."""
    draft = Draft(graph)
    made: dict[tuple[Ref, TensorRepr, str], str] = {}
    for node in graph.nodes:
        for slot, ref in operands(node):
            has, wants = _has(graph, ref), _wants(node, slot)
            if wants is None or has == wants:
                continue
            key = ref, wants, "" if rules.share_transitions else node.name
            shared = made.get(key)
            copy = None if shared else _copy(ref, has, wants, graph, draft, backend, kernels)
            name = shared or (copy.name if copy else "")
            edit = draft.apply(
                Edit(
                    insert=(copy,) if copy else (),
                    before=node.name if copy else None,
                    replace=(_reading(draft[node.name], slot, ref, Ref(name)),),
                )
            )
            made[key] = name
            size = graph[ref.node].types[ref.index].nbytes
            if copy:
                why = ("%{} reads %{} as {}, which is {}: {} bytes copied",
                       node.name, ref.node, wants, has, size)  # fmt: skip
                yield Step(edit, "transition", name, why)
            else:
                yield Step(edit, "share", name, ("%{} reads the same copy", node.name))
    return draft.finish()


def operands(node: Node) -> Iterator[tuple[int, Ref]]:
    """Every run-time operand with its schema position; the members of a list share theirs."""
    for slot, arg in enumerate(node.args):
        for leaf in leaves(arg):
            if isinstance(leaf, Ref):
                yield slot, leaf


def transition_bytes(graph: Graph) -> tuple[int, int]:
    """How many transitions a graph has, and how many bytes they write in one run."""
    found = [n.type.nbytes for n in graph.nodes if n.op == "transition"]
    return len(found), sum(found)


def _copy(
    ref: Ref,
    has: TensorRepr,
    wants: TensorRepr,
    graph: Graph,
    draft: Draft,
    backend: str,
    kernels: Kernels,
) -> Node:
    source = graph[ref.node]
    node = Node(
        draft.fresh(f"{ref.node}_to_{wants.layout.name.lower()}"),
        "transition",
        (ref,),
        (source.types[ref.index],),
        source.origin,
        source.where,
        reps=Reps((RepSet([has]),), (RepSet([wants]),)),
    )
    kernel, refused = choose(node, graph, kernels)
    if kernel is None:
        raise PlacementError(
            f"%{ref.node}: {backend} has no copy from {has} to {wants} "
            f"({'; '.join(grouped(refused)) or 'no transition kernel'}); add one to its table"
        )
    return replace(node, kernel=f"{backend}:{kernel.name}")


def _reading(node: Node, slot: int, old: Ref, new: Ref) -> Node:
    def swap(leaf: Arg) -> Arg:
        return new if leaf == old else leaf

    args = list(node.args)
    args[slot] = map_leaves(args[slot], swap)
    return node.with_args(args)


def _has(graph: Graph, ref: Ref) -> TensorRepr:
    reps = graph[ref.node].reps
    if reps is None:
        raise PlacementError(f"%{ref.node} is not placed; run place before transitions")
    return reps.outputs[ref.index].only


def _wants(node: Node, slot: int) -> TensorRepr | None:
    repset = node.reps.at(slot) if node.reps else None
    return None if repset is None else repset.only
