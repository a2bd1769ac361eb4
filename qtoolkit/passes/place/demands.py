"""What a node demands of its operands and results: the tables that placement reads, and limits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from qtoolkit.graph import Graph, Node, Ref, TensorType, leaves
from qtoolkit.layout import (
    ALL_REPRS,
    CONTIGUOUS,
    PACKED_AXIS,
    Layout,
    Reps,
    RepSet,
    Storage,
    TensorRepr,
    texture_extents,
)
from qtoolkit.passes.lower import Kernels, kernel_of

PLAIN = RepSet([CONTIGUOUS])
ANY = RepSet(ALL_REPRS)
MIXED, BUFFER, TEXTURE = STORAGES = ("mixed", "buffer", "texture")
MOST_RANK = 4  # of a tensor that a 3D texture can hold
Extents = tuple[int, int, int]


class Table(Protocol):
    """Which representations an operator library admits. `name` goes into results and errors.

    neutral: what an operand without a demand is brought to under `PlaceRules.oddities`; None where
    it takes whatever there is.
    """

    @property
    def name(self) -> str: ...

    @property
    def neutral(self) -> RepSet | None: ...

    def demands(self, node: Node, graph: Graph) -> Reps | None:
        """The repset of each operand and result, most wanted first, and which are tied.

        None: the node has no say and takes what its first reader picks (an input, a packed
        constant). Raises UnknownName for an op that the table does not state.
        """

    def why(self, node: Node) -> tuple[object, ...]:
        """Where the demand comes from, as a format string and its values; {0} are the operands."""

    def extents(self, type: TensorType, layout: Layout) -> Extents | None:
        """Width, height, depth in texels of a tensor's 3D texture; None where it can have none."""


@dataclass(frozen=True)
class KernelTable:
    """The demands of the kernels that `lower` chose; a node without one is contiguous."""

    kernels: Kernels
    name: str = "qtoolkit"
    neutral: RepSet | None = None

    def demands(self, node: Node, graph: Graph) -> Reps | None:
        if node.op == "getitem":
            return Reps((ANY, None), (ANY,), ((0, -1),))
        kernel = kernel_of(node, self.kernels)
        if kernel is not None:
            return kernel.reps(node, graph)
        inputs = tuple(
            PLAIN if any(isinstance(leaf, Ref) for leaf in leaves(arg)) else None
            for arg in node.args
        )
        return Reps(inputs, tuple(PLAIN for _ in node.types))

    def why(self, node: Node) -> tuple[object, ...]:
        if node.op == "input":
            return ("{0}: an input arrives contiguous",)
        if node.kernel is None:
            return ("{0}: no kernel, drawn as contiguous",)
        return ("{0}: as {1} demands", node.kernel)

    def extents(self, type: TensorType, layout: Layout) -> Extents | None:
        fits = type.rank <= MOST_RANK and layout in PACKED_AXIS
        return texture_extents(type.sizes, layout) if fits else None


@dataclass(frozen=True)
class Limits:
    """What is ruled out whatever a table admits: by the device, by the storage asked for.

    textures: the largest width, height and depth of a 3D texture in texels, None for no limit.
    storage: 'buffer' and 'texture' keep to one, as far as an operand has it. half: float16 is
    forced, which prefers textures where they are admitted (ExecuTorch's force_fp16).
    """

    textures: Extents | None = None
    storage: str = MIXED
    half: bool = False

    def over(self, r: TensorRepr, type: TensorType, table: Table) -> str | None:
        """Why a tensor cannot have a representation on this device, or None."""
        if r.storage is not Storage.TEXTURE_3D:
            return None
        extents = table.extents(type, r.layout)
        if extents is None:
            return f"{type} has no 3D texture of that layout; it has {type.rank} axes"
        if self.textures is None or all(
            e <= m for e, m in zip(extents, self.textures, strict=True)
        ):
            return None
        w, h, d = extents
        limit = _limit(self.textures)
        return f"a texture of {w}×{h}×{d} exceeds the device's limit of {limit}"


def _limit(textures: Extents) -> str:
    alike = len(set(textures)) == 1
    return str(textures[0]) if alike else "×".join(map(str, textures))


class Slots(tuple[int, ...]):
    """Operands of a node by their slots, in words: 'input 0, result'."""

    def __str__(self) -> str:
        return ", ".join(
            f"input {i}" if i >= 0 else "result" + f" {-1 - i}" * (i < -1) for i in self
        )

    def __format__(self, spec: str) -> str:
        return str(self)


def spoken_of(slots: Sequence[int]) -> Slots:
    """Slots in the order in which texts name them: inputs, then results."""
    return Slots(sorted(slots, key=lambda i: (i < 0, abs(i))))
