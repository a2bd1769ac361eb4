"""Rows of a table by their numbers."""

from collections.abc import Iterator

import numpy as np

from qtoolkit.errors import ShapeError
from qtoolkit.graph import DType, TensorType
from qtoolkit.ops.examples import reals
from qtoolkit.ops.shapes import Array
from qtoolkit.ops.spec import Example, OpSpec


def embedding(
    weight: Array, indices: Array, padding_idx: int, scale_grad_by_freq: bool, sparse: bool
) -> Array:
    """weight[V, D] at integer indices of any shape: [..., D].

    Raises ShapeError for an index outside 0 .. V - 1. The other arguments matter to training only.
    """
    check_indices(indices, len(weight))
    return np.asarray(weight[indices])


def check_indices(indices: Array, rows: int) -> None:
    """Raise ShapeError for an index outside 0 .. rows - 1."""
    bad = indices[(indices < 0) | (indices >= rows)]
    if bad.size:
        raise ShapeError(f"embedding: index {int(bad[0])} is outside the table's 0..{rows - 1}")


def _type(weight: TensorType, indices: TensorType, *rest: int) -> tuple[TensorType, ...]:
    if weight.rank != 2 or indices.dtype not in (DType.INT32, DType.INT64):
        raise ShapeError(f"embedding: {indices} into {weight}; want int32 or int64 into [V,D]")
    return (TensorType((*indices.sizes, weight.sizes[1]), weight.dtype),)


def _examples() -> Iterator[Example]:
    rest = (-1, False, False)
    for dtype in (np.int32, np.int64):
        for shape in ((7,), (2, 5), (1,), ()):
            indices = (np.arange(int(np.prod(shape, dtype=np.int64))) * 5 % 33).astype(dtype)
            yield Example(
                f"{dtype.__name__} {list(shape)}",
                (reals(33, 7), indices.reshape(shape), *rest),
            )
    yield Example("no index", (reals(5, 8), np.zeros(0, np.int64), *rest))
    yield Example("whole texels", (reals(5, 8), np.array([4, 0, 4]), *rest))


SPECS = (
    OpSpec(
        "aten.embedding.default",
        ("weight", "indices", "padding_idx", "scale_grad_by_freq", "sparse"),
        _type,
        embedding,
        _examples,
        constants=("weight",),
    ),
)
