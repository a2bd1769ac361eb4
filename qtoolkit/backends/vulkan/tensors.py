"""Tensors as shaders see them: which representations there are, and arrays to texels and back."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.errors import ShapeError
from qtoolkit.graph import DType, TensorType
from qtoolkit.layout import (
    BUFFER_ORDER,
    PACKED_AXIS,
    TEXEL,
    Layout,
    RepSet,
    Storage,
    TensorRepr,
    nchw,
    texel_grid,
    texture_extents,
)

Array = NDArray[Any]


class Kind(IntEnum):
    """What a texel holds; values as in shaders/include/operand.glsl."""

    CODES = 0  # four int8 in a word
    REALS = 1  # four float32
    INTS = 2  # four int32


KIND_OF = {
    DType.INT8: Kind.CODES,
    DType.UINT8: Kind.CODES,
    DType.FLOAT32: Kind.REALS,
    DType.INT32: Kind.INTS,
    DType.INT64: Kind.INTS,  # indices only; every value has to fit: see pack
}
TEXEL_BYTES = {Kind.CODES: 4, Kind.REALS: 16, Kind.INTS: 16}
MOST_RANK = 4


def layouts(type: TensorType) -> tuple[Layout, ...]:
    """The memory layouts a tensor has: an axis that it lacks cannot be packed."""
    if type.rank == 4:
        return (Layout.CHANNELS, Layout.WIDTH, Layout.HEIGHT)
    if type.rank == 3:
        return (Layout.CHANNELS, Layout.WIDTH)
    return (Layout.WIDTH, Layout.HEIGHT) if type.rank == 2 else (Layout.WIDTH,)


def representations(
    type: TensorType,
    first: Storage = Storage.BUFFER,
    only: Sequence[Layout] = (Layout.CHANNELS, Layout.WIDTH, Layout.HEIGHT),
) -> RepSet:
    """All representations of a tensor in layouts of `only`, storage `first` before the other.

    int32 lies in buffers, width-packed. Empty for what a device cannot hold.
    """
    kind = KIND_OF.get(type.dtype)
    if kind is None or type.rank > MOST_RANK or type.numel == 0:
        return RepSet(())
    if kind is Kind.INTS:
        return RepSet([TensorRepr(Storage.BUFFER, Layout.WIDTH)])
    there = [m for m in only if m in layouts(type)]
    storages = sorted(Storage, key=lambda s: s is not first)
    return RepSet(TensorRepr(s, m) for s in storages for m in there)


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor in a representation. `value` is its name in a Run, or that of a constant."""

    value: str
    type: TensorType
    repr: TensorRepr

    @property
    def kind(self) -> Kind:
        return KIND_OF[self.type.dtype]

    @property
    def texture(self) -> bool:
        return self.repr.storage is Storage.TEXTURE_3D

    @property
    def unsigned(self) -> bool:
        """uint8 codes lie in memory less 128."""
        return self.type.dtype is DType.UINT8

    @property
    def grid(self) -> tuple[int, int, int, int]:
        return texel_grid(self.type.sizes, self.repr.layout)

    @property
    def texels(self) -> int:
        return prod(self.grid)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, the cells that fill up texels counted in."""
        return self.texels * TEXEL_BYTES[self.kind]

    @property
    def extents(self) -> tuple[int, int, int]:
        return texture_extents(self.type.sizes, self.repr.layout)

    def described(self) -> NDArray[np.int32]:
        """struct Tensor of shaders/include/tensor.glsl."""
        return described(self.type.sizes, self.repr.layout)


def described(
    shape: Sequence[int], layout: Layout, grid: Sequence[int] | None = None
) -> NDArray[np.int32]:
    """struct Tensor for a shape and layout: sizes, grid, strides, order, shift.

    grid: how many texels there are along N, C, H, W, if not those that the shape fills.
    """
    texels = texel_grid(shape, layout) if grid is None else tuple(grid)
    strides, reach = [0] * 4, 1
    for axis in BUFFER_ORDER[layout]:
        strides[axis] = reach
        reach *= texels[axis]
    shift = [0] * 4
    shift[PACKED_AXIS[layout]] = TEXEL.bit_length() - 1
    return np.array([*nchw(shape), *texels, *strides, *BUFFER_ORDER[layout], *shift], np.int32)


def _order(placed: Placed) -> tuple[int, ...]:
    """Axes of NCHW from the outermost in, as texels follow each other in memory."""
    return (0, 1, 2, 3) if placed.texture else BUFFER_ORDER[placed.repr.layout][::-1]


def pack(array: Array, placed: Placed) -> Array:
    """A logical array as the bytes of its texels; cells that only fill up are 0.

    Raises ShapeError for an int64 beyond int32.
    """
    cells = array.reshape(nchw(array.shape))
    if placed.type.dtype is DType.INT64:
        narrow = cells.astype(np.int32)
        if not np.array_equal(narrow, cells):
            value = int(cells[narrow != cells][0])
            raise ShapeError(
                f"%{placed.value} holds {value}, which int32 cannot; shaders have no int64"
            )
        cells = narrow
    elif placed.unsigned:
        cells = (cells ^ np.uint8(128)).view(np.int8)
    axis = PACKED_AXIS[placed.repr.layout]
    missing = -cells.shape[axis] % TEXEL
    if missing:
        widths = [(0, 0)] * 4
        widths[axis] = (0, missing)
        cells = np.pad(cells, widths)
    shape = list(cells.shape)
    shape[axis : axis + 1] = [shape[axis] // TEXEL, TEXEL]
    moved = np.moveaxis(cells.reshape(shape), axis + 1, -1)
    return np.ascontiguousarray(moved.transpose(*_order(placed), 4))


STORED = {Kind.CODES: np.int8, Kind.REALS: np.float32, Kind.INTS: np.int32}


def unpack(raw: NDArray[np.uint8], placed: Placed) -> Array:
    """The logical array in a tensor's bytes; a view where possible."""
    order, axis = _order(placed), PACKED_AXIS[placed.repr.layout]
    stored = raw.view(STORED[placed.kind]).reshape(*(placed.grid[a] for a in order), TEXEL)
    cells = np.moveaxis(stored.transpose(*np.argsort(order), 4), -1, axis + 1)
    shape = list(placed.grid)
    shape[axis] *= TEXEL
    full = cells.reshape(shape)
    logical = full[tuple(slice(s) for s in nchw(placed.type.sizes))].reshape(placed.type.sizes)
    if placed.unsigned:
        return logical.view(np.uint8) ^ np.uint8(128)
    return logical.astype(np.int64) if placed.type.dtype is DType.INT64 else logical
