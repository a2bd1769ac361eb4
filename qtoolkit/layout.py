"""Where a tensor lives and in which order: storages, memory layouts, and sets of both (repsets).

Logical tensors are always NCHW; a representation says how their cells lie in memory. On the CPU
(BUFFER, WIDTH) is a C-contiguous array and (BUFFER, CHANNELS) is channels-last (NHWC, NLC). On
Vulkan memory is counted in texels, four cells along the packed axis: see `texel_grid`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum


class Storage(IntEnum):
    """What kind of memory object holds a tensor. Values as in ExecuTorch's Vulkan schema."""

    BUFFER = 0
    TEXTURE_3D = 1


class Layout(IntEnum):
    """Which cells lie next to each other. Values as in ExecuTorch's Vulkan schema.

    WIDTH, HEIGHT, CHANNELS name the innermost ("packed") dimension; the PACKED_INT8 layouts
    hold blocks of four int8 cells in one 32-bit word (4W4C: 4 columns x 4 channels).
    """

    WIDTH = 0
    HEIGHT = 1
    CHANNELS = 2
    PACKED_INT8_4W4C = 3
    PACKED_INT8_4H4W = 4
    PACKED_INT8_4W = 5
    PACKED_INT8_4C1W = 8
    PACKED_INT8_CONV2D = 9


@dataclass(frozen=True, slots=True, order=True)
class TensorRepr:
    """One representation: a storage and a memory layout."""

    storage: Storage
    layout: Layout

    def __str__(self) -> str:
        return f"{self.storage.name.lower()}/{self.layout.name.lower()}"

    @classmethod
    def parse(cls, text: str) -> "TensorRepr":
        """Read back what str() wrote, e.g. 'buffer/channels'."""
        storage, layout = text.split("/")
        return cls(Storage[storage.upper()], Layout[layout.upper()])


ALL_REPRS = tuple(TensorRepr(s, m) for s in Storage for m in Layout)
_BIT = {r: 1 << i for i, r in enumerate(ALL_REPRS)}


class RepSet:
    """The representations a tensor may have, in order of preference.

    Equality and hashing are those of the *set*: `RepSet([a, b]) == RepSet([b, a])`. Intersection
    keeps the order of the left operand. `mask` has bit i for ALL_REPRS[i].
    """

    __slots__ = ("_parts", "mask", "reprs")
    reprs: tuple[TensorRepr, ...]
    mask: int
    _parts: dict[int, "RepSet"]

    def __init__(self, reprs: Iterable[TensorRepr]) -> None:
        kept = tuple(dict.fromkeys(reprs))
        object.__setattr__(self, "reprs", kept)
        object.__setattr__(self, "mask", sum(_BIT[r] for r in kept))
        object.__setattr__(self, "_parts", {})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"RepSet is immutable; cannot set {name}")

    def __reduce__(self) -> tuple[type["RepSet"], tuple[tuple[TensorRepr, ...]]]:
        return RepSet, (self.reprs,)

    def within(self, mask: int) -> "RepSet":
        """What is left of the set where only the representations of `mask` may be; order kept."""
        left = self.mask & mask
        if left == self.mask:
            return self
        if left not in self._parts:
            self._parts[left] = RepSet(r for r in self.reprs if _BIT[r] & left)
        return self._parts[left]

    def __and__(self, other: "RepSet") -> "RepSet":
        return self.within(other.mask)

    def __contains__(self, r: TensorRepr) -> bool:
        return bool(self.mask & _BIT[r])

    def __iter__(self) -> Iterator[TensorRepr]:
        return iter(self.reprs)

    def __len__(self) -> int:
        return len(self.reprs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RepSet) and self.mask == other.mask

    def __hash__(self) -> int:
        return self.mask

    @property
    def decided(self) -> bool:
        """Exactly one representation is left."""
        return len(self.reprs) == 1

    @property
    def only(self) -> TensorRepr:
        """The one representation of a decided set."""
        (one,) = self.reprs
        return one

    def __str__(self) -> str:
        return "{" + ", ".join(map(str, self.reprs)) + "}"

    __repr__ = __str__


def bit(r: TensorRepr) -> int:
    """The mask of one representation."""
    return _BIT[r]


def members(mask: int) -> tuple[TensorRepr, ...]:
    """The representations of a mask, in the order of ALL_REPRS."""
    return tuple(r for r in ALL_REPRS if _BIT[r] & mask)


def packing(r: TensorRepr) -> tuple[int, int]:
    """The packed dimension (0 W, 1 H, 2 C) and how many cells along it form a block.

    Representations of one storage that agree in both are compatible: ExecuTorch's packed-dim
    information.
    """
    if r.layout in _INT8_PACKING:
        axis, cells = _INT8_PACKING[r.layout]
        wide = r.layout is Layout.PACKED_INT8_4C1W and r.storage is Storage.TEXTURE_3D
        return axis, 16 if wide else cells
    return int(r.layout), 1 if r.storage is Storage.BUFFER else TEXEL


def span(mask: int) -> int:
    """Every representation whose storage and packing occur in `mask`."""
    if mask not in _SPANS:
        kinds = {(r.storage, packing(r)) for r in members(mask)}
        _SPANS[mask] = sum(_BIT[r] for r in ALL_REPRS if (r.storage, packing(r)) in kinds)
    return _SPANS[mask]


TEXEL = 4  # cells in a texel, along the packed axis
_INT8_PACKING = {
    Layout.PACKED_INT8_4W4C: (2, 4),
    Layout.PACKED_INT8_4H4W: (0, 4),
    Layout.PACKED_INT8_4W: (0, 4),
    Layout.PACKED_INT8_4C1W: (2, 4),
    Layout.PACKED_INT8_CONV2D: (2, 4),
}
_SPANS: dict[int, int] = {}  # a memo: a mask has one span

CONTIGUOUS = TensorRepr(Storage.BUFFER, Layout.WIDTH)
CHANNELS_LAST = TensorRepr(Storage.BUFFER, Layout.CHANNELS)

PACKED_AXIS = {Layout.CHANNELS: 1, Layout.HEIGHT: 2, Layout.WIDTH: 3}
# The axes of NCHW from the innermost one out, as the texels of a buffer follow each other.
BUFFER_ORDER = {
    Layout.WIDTH: (3, 2, 1, 0),
    Layout.HEIGHT: (2, 3, 1, 0),
    Layout.CHANNELS: (1, 3, 2, 0),
}


def nchw(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """The sizes of up to four axes as N, C, H, W: [N,C,L] has height 1, [M,K] is H and W."""
    if len(shape) == 3:
        n, c, w = shape
        return n, c, 1, w
    n, c, h, w = (1,) * (4 - len(shape)) + tuple(shape)
    return n, c, h, w


def texel_grid(shape: Sequence[int], layout: Layout) -> tuple[int, int, int, int]:
    """How many texels a tensor has along N, C, H, W: the packed axis in fours, rounded up."""
    sizes = list(nchw(shape))
    axis = PACKED_AXIS[layout]
    sizes[axis] = -(-sizes[axis] // TEXEL)
    n, c, h, w = sizes
    return n, c, h, w


def texture_extents(shape: Sequence[int], layout: Layout) -> tuple[int, int, int]:
    """Width, height and depth of the 3D texture of a tensor; batches are stacked in depth."""
    n, c, h, w = texel_grid(shape, layout)
    return w, h, n * c


@dataclass(frozen=True, slots=True)
class Reps:
    """What a kernel demands of its operands, or, once placed, what each of them has.

    `inputs[i]` belongs to schema position i (None: not a tensor, or nothing is demanded);
    `outputs[j]` to result j. A tie lists operands that must share one representation: i for
    input i, -1 - j for output j.
    """

    inputs: tuple[RepSet | None, ...]
    outputs: tuple[RepSet, ...]
    ties: tuple[tuple[int, ...], ...] = ()

    def at(self, slot: int) -> RepSet | None:
        """The repset of a slot: i >= 0 is input i, -1 - j is output j."""
        if slot < 0:
            return self.outputs[-1 - slot]
        return self.inputs[slot] if slot < len(self.inputs) else None

    def replaced(self, slot: int, repset: RepSet) -> "Reps":
        """The same demands with one slot's repset changed."""
        if slot < 0:
            outs = list(self.outputs)
            outs[-1 - slot] = repset
            return Reps(self.inputs, tuple(outs), self.ties)
        ins = list(self.inputs)
        ins[slot] = repset
        return Reps(tuple(ins), self.outputs, self.ties)

    def __str__(self) -> str:
        ins = ", ".join("-" if r is None else _short(r) for r in self.inputs)
        return f"[{ins}] -> [{', '.join(_short(r) for r in self.outputs)}]"


def _short(repset: RepSet) -> str:
    return str(repset.only) if repset.decided else str(repset)
