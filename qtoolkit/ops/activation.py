"""Float activations and normalizations."""

from math import erf, prod, sqrt
from typing import Any

import numpy as np

from qtoolkit.errors import ShapeError, UnsupportedOp
from qtoolkit.graph import DType, TensorType
from qtoolkit.ops.elementwise import same_type
from qtoolkit.ops.shapes import Array, along, axis_of
from qtoolkit.ops.spec import OpSpec

_erf = np.frompyfunc(erf, 1, 1)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    with np.errstate(over="ignore"):
        y: Array = 1 / (1 + np.exp(-x))
    return y


def silu(x: Array) -> Array:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def gelu(x: Array, approximate: str) -> Array:
    """x times the normal distribution's integral up to x, or torch's tanh formula for it."""
    if approximate == "tanh":
        inner = sqrt(2 / np.pi) * (x + 0.044715 * x**3)
        return np.asarray(0.5 * x * (1 + np.tanh(inner)), x.dtype)
    integral = 0.5 * (1 + np.asarray(_erf(x / sqrt(2))).astype(np.float64))
    return np.asarray(x * integral, x.dtype)


def softmax(x: Array, dim: int, dtype: DType | None) -> Array:
    """exp(x) over its sum along `dim`, the maximum subtracted first."""
    real = x.astype((dtype or DType(x.dtype.name)).value)
    if not real.size:
        return real
    grown = np.exp(real - real.max(axis=dim, keepdims=True))
    y: Array = grown / grown.sum(axis=dim, keepdims=True)
    return y


def batch_norm(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    mean: Array,
    variance: Array,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Array:
    """(x - mean) / sqrt(variance + eps) * weight + bias, per channel of x[N,C,...]."""
    scale = 1 / np.sqrt(variance + mean.dtype.type(eps))
    if weight is not None:
        scale = scale * weight
    y = (x - along(mean, 1, x.ndim)) * along(scale, 1, x.ndim)
    return np.asarray(y if bias is None else y + along(bias, 1, x.ndim), x.dtype)


def layer_norm(
    x: Array,
    normalized_shape: tuple[int, ...],
    weight: Array | None,
    bias: Array | None,
    eps: float,
    cudnn_enable: bool,
) -> Array:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axes."""
    axes = tuple(range(-len(normalized_shape), 0))
    centred = x - x.mean(axis=axes, keepdims=True)
    variance = (centred**2).mean(axis=axes, keepdims=True)
    y = centred / np.sqrt(variance + x.dtype.type(eps))
    if weight is not None:
        y = y * weight
    return np.asarray(y if bias is None else y + bias, x.dtype)


def _softmax_type(x: TensorType, dim: int, dtype: DType | None) -> tuple[TensorType, ...]:
    axis_of(dim, x.rank)
    return (TensorType(x.sizes, dtype or x.dtype),)


def _batch_norm_type(
    x: TensorType, weight: TensorType | None, bias: TensorType | None,
    mean: TensorType | None, variance: TensorType | None, training: bool, *rest: Any,
) -> tuple[TensorType, ...]:  # fmt: skip
    if training or mean is None or variance is None:
        raise UnsupportedOp("batch_norm in training mode; call module.eval() before capture")
    for vector in (weight, bias, mean, variance):
        if vector is not None and vector.sizes != x.sizes[1:2]:
            raise ShapeError(f"batch_norm: {vector} must hold one value per channel of {x}")
    return (TensorType(x.sizes, x.dtype),)


def _layer_norm_type(
    x: TensorType, normalized_shape: tuple[int, ...], *rest: Any
) -> tuple[TensorType, ...]:
    shape = tuple(normalized_shape)
    if not shape or x.sizes[-len(shape) :] != shape or not prod(shape):
        raise ShapeError(f"layer_norm: {x} does not end in the normalized shape {list(shape)}")
    return (TensorType(x.sizes, x.dtype),)


SPECS = (
    OpSpec("aten.sigmoid.default", ("self",), same_type, sigmoid),
    OpSpec("aten.tanh.default", ("self",), same_type, np.tanh),
    OpSpec("aten.silu.default", ("self",), same_type, silu),
    OpSpec("aten.gelu.default", ("self", "approximate"), same_type, gelu),
    OpSpec("aten.softmax.int", ("self", "dim", "dtype"), _softmax_type, softmax),
    OpSpec(
        "aten.batch_norm.default",
        ("input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps",
         "cudnn_enabled"),
        _batch_norm_type,
        batch_norm,
    ),
    OpSpec(
        "aten.layer_norm.default",
        ("input", "normalized_shape", "weight", "bias", "eps", "cudnn_enable"),
        _layer_norm_type,
        layer_norm,
    ),
)  # fmt: skip
