"""What kernels of this backend demand of their operands, and why they refuse some."""

from collections.abc import Mapping

from qtoolkit.backends.vulkan.tensors import KIND_OF, MOST_RANK, representations
from qtoolkit.graph import Const, DType, Graph, Node, Ref, TensorType, leaves
from qtoolkit.layout import CONTIGUOUS, Layout, Reps, RepSet, Storage

PLAIN = RepSet([CONTIGUOUS])
CODES = (DType.INT8, DType.UINT8)
ANY = (Layout.CHANNELS, Layout.WIDTH, Layout.HEIGHT)
FLAT = (Layout.WIDTH, Layout.CHANNELS, Layout.HEIGHT)
PACKED_CHANNELS = (Layout.CHANNELS,)
PACKED_WIDTH = (Layout.WIDTH,)


def demand(
    node: Node,
    graph: Graph,
    inputs: Mapping[int, RepSet],
    output: RepSet,
    ties: tuple[tuple[int, ...], ...] = (),
) -> Reps:
    """Reps from the repsets of some slots; constants of other slots are packed by the kernel."""
    found: list[RepSet | None] = []
    for slot, arg in enumerate(node.args):
        runtime = any(isinstance(leaf, Ref) for leaf in leaves(arg))
        found.append(inputs.get(slot, PLAIN if runtime else None))
    return Reps(tuple(found), tuple(output for _ in node.types), ties)


def of(
    type: TensorType | None,
    only: tuple[Layout, ...] = ANY,
    first: Storage = Storage.BUFFER,
) -> RepSet:
    """The representations of a tensor in some layouts."""
    assert type is not None
    return representations(type, first, only)


def why_not_here(*types: TensorType | None) -> str | None:
    """Why a device cannot hold a tensor, if it cannot."""
    for t in types:
        if t is None:
            return "an operand is not a tensor"
        if t.rank > MOST_RANK:
            return f"{t} has rank {t.rank}; tensors have up to four axes here"
        if t.numel == 0:
            return f"{t} is empty: nothing to dispatch"
        if t.dtype not in KIND_OF or t.dtype is DType.INT64:
            return f"{t.dtype} has no form in shaders"
    return None


def tensors(node: Node, graph: Graph) -> list[TensorType]:
    """Types of all run-time operands and of the results."""
    inputs = [graph.type_of(ref) for ref in node.refs()]
    return [t for t in inputs if t is not None] + list(node.types)


def fits(node: Node, graph: Graph) -> str | None:
    """Why a node's run-time tensors cannot be on a device, if they cannot."""
    return why_not_here(*tensors(node, graph))


def is_runtime(node: Node, slot: int) -> bool:
    """A schema position holds a tensor known only at run time."""
    return any(isinstance(leaf, Ref) for leaf in leaves(node.args[slot]))


def is_constant(node: Node, slot: int) -> bool:
    """A schema position holds a constant."""
    return isinstance(node.args[slot], Const)
