"""Matrix products: float linear, addmm, mm, bmm, matmul, and linear on codes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.errors import ShapeError
from qtoolkit.graph import TensorType
from qtoolkit.ops.conv import WEIGHT_CONSTANTS, check_weight
from qtoolkit.ops.examples import bias_of, codes, factors, weights, zeros_of
from qtoolkit.ops.matmul import product_type
from qtoolkit.ops.requantize import rescale, wrap, y_qparams
from qtoolkit.ops.shapes import Array, along, broadcast, check_codes, check_rank
from qtoolkit.ops.spec import Example, OpSpec
from qtoolkit.qparams import MODES, QParams


def accumulate(
    x: Array,
    w: NDArray[np.int8],
    bias: NDArray[np.int32],
    x_zero: int,
    w_zero: NDArray[np.int32],
) -> NDArray[np.int32]:
    """Sum (x - x_zero)(w - w_zero[o]) + bias[o] modulo 2^32, for x[...,K] and w[O,K].

    Integers in float64: exact, since all sums stay below 2^53.
    """
    real_x = x.astype(np.float64) - x_zero
    real_w = w.astype(np.float64) - along(w_zero, 0, 2)
    return wrap(real_x @ real_w.T + bias)


def q8_linear(
    x: Array,
    w: NDArray[np.int8],
    bias: NDArray[np.int32],
    x_zero: int,
    w_zero: NDArray[np.int32],
    bias_scale: NDArray[np.float64],
    out_multiplier: NDArray[np.int32],
    out_shift: NDArray[np.int32],
    y_scale: float,
    y_zero: int,
    low: int,
    high: int,
    mode: str,
) -> Array:
    """Multiply codes x[...,K] by w[O,K] to codes y[...,O] of x's dtype."""
    acc = accumulate(x, w, bias, x_zero, w_zero)
    y = rescale(acc, out_multiplier, out_shift, acc.ndim - 1, y_zero, low, high, mode)
    return y.astype(x.dtype)


def linear(x: Array, w: Array, bias: Array | None) -> Array:
    """x[...,K] @ w[O,K].T + bias[O] in x's dtype."""
    y: Array = x @ w.T
    return y if bias is None else y + bias


def addmm(c: Array, a: Array, b: Array, beta: float, alpha: float) -> Array:
    """beta * c + alpha * (a[M,K] @ b[K,N])."""
    product: Array = a @ b
    return np.asarray(beta * c + alpha * product, product.dtype)


def matmul(a: Array, b: Array) -> Array:
    """The matrix product, broadcast over leading axes."""
    return np.asarray(a @ b)


def _linear_type(x: TensorType, w: TensorType, bias: TensorType | None) -> tuple[TensorType, ...]:
    if w.rank != 2 or x.rank < 1 or x.sizes[-1] != w.sizes[1]:
        raise ShapeError(f"linear: input {x} and weight {w}; want [...,K] and [O,K]")
    if bias is not None and bias.sizes != w.sizes[:1]:
        raise ShapeError(f"linear: bias {bias} must hold one value per output of weight {w}")
    return (TensorType((*x.sizes[:-1], w.sizes[0]), x.dtype),)


def _q8_type(
    x: TensorType, w: TensorType, bias: TensorType, x_zero: int, w_zero: TensorType,
    bias_scale: TensorType, out_multiplier: TensorType, out_shift: TensorType, *rest: Any,
) -> tuple[TensorType, ...]:  # fmt: skip
    check_codes("q8_linear", x)
    check_weight("q8_linear", w, bias, w_zero, bias_scale, out_multiplier, out_shift)
    return _linear_type(x, w, bias)


def _product_type(op: str, *ranks: int) -> Any:
    def infer(a: TensorType, b: TensorType) -> tuple[TensorType, ...]:
        for t in (a, b):
            check_rank(op, t, *ranks)
        return (product_type(op, a, b),)

    return infer


def _addmm_type(
    c: TensorType, a: TensorType, b: TensorType, *scalars: Any
) -> tuple[TensorType, ...]:
    (product,) = _product_type("addmm", 2)(a, b)
    if broadcast("addmm", c, product) != product.sizes:
        raise ShapeError(f"addmm: {c} cannot be added to a product {product}")
    return (product,)


def _q8_qparams(*args: Any) -> QParams:
    return y_qparams(*args[8:12])


def _examples() -> Iterator[Example]:
    for mode in MODES:
        for channels in (1, 33):
            told = f"{mode} {'per-channel' if channels > 1 else 'per-tensor'}"
            yield _case(f"5x7 {told}", (5, 7), 33, channels, mode)
    yield _case("one-sized", (1, 1), 1, 1)
    yield _case("no rows", (0, 7), 5, 1)
    yield _case("no sum", (3, 0), 5, 1)
    yield _case("a vector", (33,), 5, 1)
    yield _case("rank 3, long sum", (2, 3, 129), 7, 7)
    yield _case("uint8", (3, 33), 5, 5, dtype="uint8", x_zero=131, y=(0.1, 120, 0, 255))
    yield _case("weight zero points", (3, 33), 5, 5, w_zero=True)
    yield _case("one weight zero point", (3, 33), 5, 1, w_zero=True)
    yield _case("fused range", (4, 33), 5, 1, y=(0.1, -7, -7, 90))
    yield _case("range above zero point", (4, 33), 5, 1, y=(0.1, -7, 3, 90))
    yield _case("wide batch", (17, 64), 40, 40)


def _case(
    label: str, shape: tuple[int, ...], O: int, channels: int, mode: str = "float",
    dtype: str = "int8", x_zero: int = 5, w_zero: bool = False,
    y: tuple[float, int, int, int] = (0.1, 3, -128, 127),
) -> Example:  # fmt: skip
    K = shape[-1]
    multiplier, shift = factors(channels, 0.01 / max(K, 1) ** 0.5)
    return Example(
        label,
        (codes(*shape, dtype=dtype), weights(O, K), bias_of(O), x_zero, zeros_of(channels, w_zero),
         np.full(channels, 1e-3), multiplier, shift, *y, mode),
    )  # fmt: skip


SPECS = (
    OpSpec("aten.linear.default", ("input", "weight", "bias"), _linear_type, linear),
    OpSpec("aten.addmm.default", ("self", "mat1", "mat2", "beta", "alpha"), _addmm_type, addmm),
    OpSpec("aten.mm.default", ("self", "mat2"), _product_type("mm", 2), matmul),
    OpSpec("aten.bmm.default", ("self", "mat2"), _product_type("bmm", 3), matmul),
    OpSpec(
        "aten.matmul.default", ("self", "other"), _product_type("matmul", *range(1, 9)), matmul
    ),
    OpSpec(
        "q8_linear",
        ("x", "w", "bias", "x_zero", "w_zero", "bias_scale", "out_multiplier", "out_shift",
         "y_scale", "y_zero", "low", "high", "mode"),
        _q8_type,
        q8_linear,
        _examples,
        _q8_qparams,
        WEIGHT_CONSTANTS,
    ),
)  # fmt: skip
