"""The product of two matrices of codes, both known only at run time: q8_matmul."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.errors import ShapeError
from qtoolkit.graph import TensorType
from qtoolkit.ops.examples import codes, factors, qrange
from qtoolkit.ops.requantize import rescale, wrap, y_qparams
from qtoolkit.ops.shapes import Array, broadcast, check_codes, check_vector
from qtoolkit.ops.spec import Example, OpSpec
from qtoolkit.qparams import MODES, QParams


def q8_matmul(
    a: Array,
    b: Array,
    a_zero: int,
    b_zero: int,
    out_multiplier: NDArray[np.int32],
    out_shift: NDArray[np.int32],
    y_scale: float,
    y_zero: int,
    low: int,
    high: int,
    mode: str,
) -> Array:
    """Multiply codes a[...,M,K] by b[...,K,N] to codes y[...,M,N] of their dtype.

    Leading axes broadcast and a vector loses its axis, as in torch.matmul. The sum of
    (a - a_zero)(b - b_zero) is taken modulo 2^32; one multiplier and shift for the whole.
    """
    # Integers in float64: exact, since all sums stay below 2^53.
    acc = wrap((a.astype(np.float64) - a_zero) @ (b.astype(np.float64) - b_zero))
    y = rescale(acc, out_multiplier, out_shift, None, y_zero, low, high, mode)
    return y.astype(a.dtype)


def product_type(op: str, a: TensorType, b: TensorType) -> TensorType:
    """The type of a @ b, in a's dtype. Raises ShapeError if the inner sizes differ."""
    if a.rank < 1 or b.rank < 1:
        raise ShapeError(f"{op}: {a} and {b}; a product needs operands of rank 1 at least")
    inner = b.sizes[-2] if b.rank > 1 else b.sizes[0]
    if a.sizes[-1] != inner:
        raise ShapeError(f"{op}: {a} and {b} differ in the inner size")
    lead = broadcast(op, *(TensorType(t.sizes[:-2], t.dtype) for t in (a, b)))
    columns = b.sizes[-1:] if b.rank > 1 else ()
    return TensorType((*lead, *a.sizes[-2:-1], *columns), a.dtype)


def _type(
    a: TensorType, b: TensorType, a_zero: int, b_zero: int,
    out_multiplier: TensorType, out_shift: TensorType, *rest: Any,
) -> tuple[TensorType, ...]:  # fmt: skip
    check_codes("q8_matmul", a, b)
    check_vector("out_multiplier", out_multiplier, 1)
    check_vector("out_shift", out_shift, 1)
    return (product_type("q8_matmul", a, b),)


def _qparams(*args: Any) -> QParams:
    return y_qparams(*args[6:10])


def _examples() -> Iterator[Example]:
    for mode in MODES:
        yield _case(f"matrices {mode}", (5, 7), (7, 33), mode)
    yield _case("inner size in whole texels", (6, 8), (8, 12))
    yield _case("one-sized", (1, 1), (1, 1))
    yield _case("no rows", (0, 7), (7, 5))
    yield _case("no sum", (3, 0), (0, 5))
    yield _case("two vectors", (33,), (33,))
    yield _case("vector by matrix", (7,), (7, 5))
    yield _case("matrix by vector", (5, 7), (7,))
    yield _case("batch", (3, 5, 7), (3, 7, 9))
    yield _case("batch by one matrix", (3, 5, 7), (7, 9))
    yield _case("one matrix by batch", (5, 7), (3, 7, 9))
    yield _case("heads", (2, 3, 5, 9), (2, 3, 9, 5))
    yield _case("broadcast both", (2, 1, 5, 7), (1, 3, 7, 5))
    yield _case("rank 3 by rank 4", (3, 5, 7), (2, 3, 7, 5))
    yield _case("rank 5", (1, 2, 1, 3, 5), (2, 1, 2, 5, 3))
    yield _case("long sum", (3, 129), (129, 40))
    yield _case("uint8", (5, 7), (7, 5), dtype="uint8", zeros=(131, 7), y=(0.1, 120, 0, 255))
    yield _case("zero points at the ends", (5, 7), (7, 5), zeros=(-128, 127))
    yield _case("fused range", (4, 33), (33, 5), y=(0.1, -7, -7, 90))
    yield _case("range above zero point", (4, 33), (33, 5), y=(0.1, -7, 3, 90))


def _case(
    label: str, a: tuple[int, ...], b: tuple[int, ...], mode: str = "float", dtype: str = "int8",
    zeros: tuple[int, int] = (5, -3), y: tuple[float, int, int, int] | None = None,
) -> Example:  # fmt: skip
    operands = (codes(*a, dtype=dtype), codes(*b, dtype=dtype, seed=1))
    # Sums have a deviation near 74 * 74 * sqrt(K); this factor brings them to some 40 codes.
    multiplier, shift = factors(1, 40 / 5500 / max(a[-1], 1) ** 0.5)
    result = y or (0.1, 3, *qrange(dtype))
    return Example(label, (*operands, *zeros, multiplier, shift, *result, mode))


SPECS = (
    OpSpec(
        "q8_matmul",
        ("a", "b", "a_zero", "b_zero", "out_multiplier", "out_shift", "y_scale", "y_zero", "low",
         "high", "mode"),
        _type,
        q8_matmul,
        _examples,
        _qparams,
        constants=("out_multiplier", "out_shift"),
    ),
)  # fmt: skip
