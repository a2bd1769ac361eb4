"""Shape arithmetic that the rules of several ops share: windows, axes, broadcasting, views."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.errors import ShapeError
from qtoolkit.graph import DType, TensorType

Array = NDArray[Any]
Ints = int | Sequence[int]


def per_axis(values: Ints, count: int, name: str) -> tuple[int, ...]:
    """One integer per axis; a single one, or a list of one, stands for all."""
    given = (values,) if isinstance(values, int) else tuple(values)
    if len(given) == 1:
        given *= count
    if len(given) != count:
        raise ShapeError(f"{name} {given} has {len(given)} values; give 1 or {count}")
    return given


def strides_or_kernel(stride: Ints, kernel: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a pool; an empty list means the kernel size, as in torch."""
    given = (stride,) if isinstance(stride, int) else tuple(stride)
    return per_axis(given, len(kernel), "stride") if given else kernel


def windows(
    size: int, kernel: int, stride: int, padding: int, dilation: int = 1, ceil_mode: bool = False
) -> int:
    """How many windows fit along an axis; with ceil_mode the last may overhang, as in torch.

    A window that would start in the padding behind the tensor is left out. Raises ShapeError if
    none fits.
    """
    if kernel < 1 or stride < 1 or dilation < 1 or padding < 0:
        raise ShapeError(
            f"kernel {kernel}, stride {stride}, padding {padding}, dilation {dilation}: all but "
            "padding must be at least 1, padding at least 0"
        )
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (room + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1
    if count < 1:
        raise ShapeError(
            f"no window of {kernel} with dilation {dilation} fits into size {size} padded by "
            f"{padding}; enlarge the input or the padding"
        )
    return count


def axis_of(axis: int, rank: int) -> int:
    """The axis counted from the front. Raises ShapeError if the tensor has no such axis."""
    if not -max(rank, 1) <= axis < max(rank, 1):
        raise ShapeError(f"axis {axis} does not exist in a tensor of rank {rank}")
    return axis % max(rank, 1)


def along(values: Array, axis: int | None, rank: int) -> Array:
    """Shape a vector so that it broadcasts along `axis`; one value broadcasts to all cells.

    This is the stride 0 or 1 of the contract: element 0 for all, or one element per channel.
    """
    v = np.asarray(values)
    if v.size == 1 or axis is None:
        return v.reshape(())
    shape = [1] * rank
    shape[axis] = v.size
    return v.reshape(shape)


def check_vector(name: str, vector: TensorType, channels: int) -> None:
    """Raise ShapeError unless the vector holds one value, or one per channel."""
    if vector.rank != 1 or vector.sizes[0] not in (1, channels):
        raise ShapeError(f"{name} {vector} must hold 1 value or one for each of {channels}")


def check_rank(op: str, x: TensorType, *ranks: int) -> None:
    """Raise ShapeError unless x has one of the ranks."""
    if x.rank not in ranks:
        takes = " or ".join(map(str, ranks))
        raise ShapeError(f"{op}: input {x} has rank {x.rank}; it takes {takes}")


def check_codes(op: str, *tensors: TensorType) -> None:
    """Raise ShapeError unless all tensors hold codes of one dtype, int8 or uint8."""
    for t in tensors:
        if t.dtype not in (DType.INT8, DType.UINT8):
            raise ShapeError(f"{op}: operand {t} does not hold int8 or uint8 codes")
        if t.dtype is not tensors[0].dtype:
            raise ShapeError(f"{op}: operands {tensors[0]} and {t} differ in dtype")


def broadcast(op: str, *tensors: TensorType) -> tuple[int, ...]:
    """The joint shape of broadcast operands."""
    try:
        return np.broadcast_shapes(*(t.sizes for t in tensors))
    except ValueError:
        told = " and ".join(map(str, tensors))
        raise ShapeError(f"{op}: {told} cannot be broadcast to one shape") from None


def viewed(shape: tuple[int, ...], size: Sequence[int]) -> tuple[int, ...]:
    """The shape that `size` asks for; one -1 stands for whatever is left."""
    wanted = tuple(size)
    cells = prod(shape)
    if wanted.count(-1) == 1:
        rest = prod(d for d in wanted if d != -1)
        if rest and cells % rest == 0:
            return tuple(cells // rest if d == -1 else d for d in wanted)
    elif prod(wanted) == cells and -1 not in wanted:
        return wanted
    raise ShapeError(f"{cells} cells of shape {list(shape)} cannot be viewed as {list(wanted)}")
