"""Ops on each cell by itself: float arithmetic and clamps, add and clamp on codes."""

from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any

import numpy as np

from qtoolkit.errors import QParamError, ShapeError
from qtoolkit.graph import DType, TensorType
from qtoolkit.ops.examples import codes, qrange
from qtoolkit.ops.requantize import to_codes, y_qparams
from qtoolkit.ops.shapes import Array, broadcast, check_codes
from qtoolkit.ops.spec import Example, OpSpec
from qtoolkit.qparams import QParams, ratio

Number = bool | int | float


def q8_add(
    a: Array,
    b: Array,
    a_scale: float,
    a_zero: int,
    b_scale: float,
    b_zero: int,
    alpha: float,
    y_scale: float,
    y_zero: int,
    low: int,
    high: int,
) -> Array:
    """a + alpha * b on codes, broadcast: two float32 products and one sum, in steps of y_scale."""
    ra = ratio(a_scale, y_scale, "q8_add")
    rb = ratio(alpha * np.float64(b_scale), y_scale, "q8_add")
    steps_a = ra.reshape(()) * (a.astype(np.int32) - a_zero).astype(np.float32)
    steps_b = rb.reshape(()) * (b.astype(np.int32) - b_zero).astype(np.float32)
    return to_codes(steps_a + steps_b, y_zero, low, high).astype(a.dtype)


def q8_clamp(x: Array, low: int, high: int) -> Array:
    """Clamp codes to low..high; input and result have the same qparams."""
    return np.clip(x, low, high).astype(x.dtype)


def _q8_add_type(
    a: TensorType, b: TensorType, a_scale: float, a_zero: int, b_scale: float, b_zero: int,
    alpha: float, *rest: Any,
) -> tuple[TensorType, ...]:  # fmt: skip
    check_codes("q8_add", a, b)
    if not isfinite(alpha) or alpha < 0:
        raise QParamError(f"q8_add: alpha {alpha} is not a finite number >= 0; leave the op float")
    return (TensorType(broadcast("q8_add", a, b), a.dtype),)


def _q8_clamp_type(x: TensorType, low: int, high: int) -> tuple[TensorType, ...]:
    check_codes("q8_clamp", x)
    if low > high:
        raise ShapeError(f"q8_clamp: the range {low}..{high} is empty")
    return (TensorType(x.sizes, x.dtype),)


def add(a: Array, b: Array | Number, alpha: Number) -> Array:
    """a + alpha * b, broadcast."""
    return _combine(lambda p, q: p + q * p.dtype.type(alpha), a, b)


def sub(a: Array, b: Array | Number, alpha: Number) -> Array:
    """a - alpha * b, broadcast."""
    return _combine(lambda p, q: p - q * p.dtype.type(alpha), a, b)


def mul(a: Array, b: Array | Number) -> Array:
    """a * b, broadcast."""
    return _combine(lambda p, q: p * q, a, b)


def div(a: Array, b: Array | Number) -> Array:
    """a / b, broadcast; integers are divided as float32."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return _combine(lambda p, q: p / q, a, b, to_float=True)


def _combine(
    compute: Callable[[Array, Array], Array], a: Array, b: Array | Number, to_float: bool = False
) -> Array:
    dtype = _joint(_dtype(a), _dtype(b), to_float).value
    p, q = np.asarray(a, dtype), np.asarray(b, dtype)
    return np.asarray(compute(p, q), dtype)


def _dtype(value: Array | Number) -> DType | Number:
    return DType(value.dtype.name) if isinstance(value, np.ndarray) else value


def _joint(a: DType | Number, b: DType | Number, to_float: bool = False) -> DType:
    """The dtype torch computes in: a number never widens a tensor of its own kind."""
    tensors = [d for d in (a, b) if isinstance(d, DType)]
    floats = [d for d in tensors if d.floating]
    if floats:
        return DType(np.result_type(*(d.value for d in floats)).name)
    if to_float or any(isinstance(v, float) and not isinstance(v, str) for v in (a, b)):
        return DType.FLOAT32
    return DType(np.result_type(*(d.value for d in tensors)).name)


def _binary_type(op: str, to_float: bool = False) -> Any:
    def infer(a: TensorType, b: TensorType | Number, *rest: Any) -> tuple[TensorType, ...]:
        tensors = [t for t in (a, b) if isinstance(t, TensorType)]
        kinds = [t.dtype if isinstance(t, TensorType) else t for t in (a, b)]
        return (TensorType(broadcast(op, *tensors), _joint(kinds[0], kinds[1], to_float)),)

    return infer


def same_type(x: TensorType, *rest: Any) -> tuple[TensorType, ...]:
    """The result has the shape and dtype of the first operand."""
    return (TensorType(x.sizes, x.dtype),)


def relu(x: Array) -> Array:
    """max(x, 0); NaN stays NaN."""
    return np.asarray(np.maximum(x, x.dtype.type(0)))


def relu6(x: Array) -> Array:
    """min(max(x, 0), 6)."""
    return clamp(x, 0, 6)


def clamp(x: Array, low: Number | None, high: Number | None) -> Array:
    """Limit to low..high, either of which may be missing; NaN stays NaN."""
    y = x if low is None else np.maximum(x, x.dtype.type(low))
    return y if high is None else np.minimum(y, x.dtype.type(high))


def clamp_min(x: Array, low: Number) -> Array:
    """max(x, low)."""
    return clamp(x, low, None)


def clamp_max(x: Array, high: Number) -> Array:
    """min(x, high)."""
    return clamp(x, None, high)


def _clamp_qparams(x: QParams | None, low: int, high: int) -> QParams | None:
    return x


def _add_qparams(*args: Any) -> QParams:
    return y_qparams(*args[7:11])


def _add_examples() -> Iterator[Example]:
    like, unlike = (0.1, 3, 0.1, 3, 1.0, 0.2, -5), (0.1, 3, 0.037, -8, 1.0, 0.09, -5)
    for label, q in (
        ("like scales", like),
        ("unlike scales", unlike),
        ("alpha", (*unlike[:4], 2.5, *unlike[5:])),
        ("alpha 0", (*unlike[:4], 0.0, *unlike[5:])),
        ("ties", (0.5, 0, 0.5, 0, 1.0, 1.0, 0)),
        ("zero points at the ends", (0.1, -128, 0.1, 127, 1.0, 0.3, 127)),
        ("a ratio that vanishes", (2.0**-100, 0, 1.0, 0, 1.0, 2.0**40, 0)),
    ):
        yield _add(label, (2, 5, 7, 33), (2, 5, 7, 33), q)
    yield _add("fused range", (5, 7), (5, 7), unlike, clamp=(-5, 90))
    yield _add("range above the zero point", (5, 7), (5, 7), unlike, clamp=(4, 90))
    yield _add("rank 3", (5, 7, 3), (5, 7, 3), unlike)
    yield _add("broadcast channels", (2, 5, 3, 3), (1, 5, 1, 1), unlike)
    yield _add("broadcast rows", (2, 5, 3, 3), (3,), unlike)
    yield _add("broadcast both", (5, 1, 3), (7, 1), unlike)
    yield _add("zero-sized", (0, 5, 3, 3), (0, 5, 3, 3), unlike)
    yield _add("one-sized", (1,), (1,), unlike)
    q8 = (0.1, 128, 0.05, 7, 1.0, 0.11, 100)
    yield _add("uint8", (2, 5, 7, 7), (2, 5, 7, 7), q8, dtype="uint8")


def _add(
    label: str, a: tuple[int, ...], b: tuple[int, ...], q: tuple[float, ...], dtype: str = "int8",
    clamp: tuple[int, int] | None = None,
) -> Example:  # fmt: skip
    operands = (codes(*a, dtype=dtype), codes(*b, dtype=dtype, seed=1))
    return Example(label, (*operands, *q, *(clamp or qrange(dtype))))


def _clamp_examples() -> Iterator[Example]:
    yield Example("relu", (codes(2, 5, 7, 33), -3, 127))
    yield Example("whole range", (codes(5, 7), -128, 127))
    yield Example("one code", (codes(5, 7, 3), 4, 4))
    yield Example("zero-sized", (codes(0, 5), -3, 100))
    yield Example("one-sized", (codes(1), -3, 100))
    yield Example("uint8", (codes(5, 7, dtype="uint8"), 128, 200))


_BINARY = ("self", "other")

SPECS = (
    OpSpec(
        "q8_add",
        ("a", "b", "a_scale", "a_zero", "b_scale", "b_zero", "alpha", "y_scale", "y_zero", "low",
         "high"),
        _q8_add_type,
        q8_add,
        _add_examples,
        _add_qparams,
    ),
    OpSpec("q8_clamp", ("x", "low", "high"), _q8_clamp_type, q8_clamp, _clamp_examples,
           _clamp_qparams),
    OpSpec("aten.add.Tensor", (*_BINARY, "alpha"), _binary_type("add"), add),
    OpSpec("aten.sub.Tensor", (*_BINARY, "alpha"), _binary_type("sub"), sub),
    OpSpec("aten.mul.Tensor", _BINARY, _binary_type("mul"), mul),
    OpSpec("aten.div.Tensor", _BINARY, _binary_type("div", to_float=True), div),
    OpSpec("aten.relu.default", ("self",), same_type, relu),
    OpSpec("aten.relu6.default", ("self",), same_type, relu6),
    OpSpec("aten.hardtanh.default", ("self", "min_val", "max_val"), same_type, clamp),
    OpSpec("aten.clamp.default", ("self", "min", "max"), same_type, clamp),
    OpSpec("aten.clamp_min.default", ("self", "min"), same_type, clamp_min),
    OpSpec("aten.clamp_max.default", ("self", "max"), same_type, clamp_max),
)  # fmt: skip
