"""Quantized add, mul, relu, layer norm and softmax; where."""

import operator
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from qtoolkit.interop.cadence.arithmetic import (
    dequantize,
    need_dtype,
    quantize,
    requantize_factor,
    single,
)
from qtoolkit.interop.cadence.faults import KernelShapeError


def binary_kernel(
    op: str, combine: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype | None = None
) -> Callable[..., Tensor]:
    """Codes X and Y, which broadcast, combined as float32 reals and quantized to X's dtype."""

    def kernel(
        X: Tensor,
        X_scale: Tensor | float,
        X_zero_point: Tensor | int,
        Y: Tensor,
        Y_scale: Tensor | float,
        Y_zero_point: Tensor | int,
        out_scale: float,
        out_zero_point: int,
    ) -> Tensor:
        need_dtype(op, dtype, X=X, Y=Y)
        x = dequantize(X, single(op, "X_scale", X_scale), single(op, "X_zero_point", X_zero_point))
        y = dequantize(Y, single(op, "Y_scale", Y_scale), single(op, "Y_zero_point", Y_zero_point))
        return quantize(combine(x, y), 1 / out_scale, out_zero_point, X.dtype)

    return kernel


def relu_kernel(op: str, dtype: torch.dtype | None = None) -> Callable[..., Tensor]:
    """max(X - X_zero_point, 0), requantized by *minus* multiplier * 2^(shift - 31)."""

    def kernel(
        X: Tensor,
        X_zero_point: Tensor | int,
        out_zero_point: int,
        out_multiplier: Tensor | int,
        out_shift: Tensor | int,
    ) -> Tensor:
        need_dtype(op, dtype, X=X)
        shifted = X.to(torch.float64) - single(op, "X_zero_point", X_zero_point)
        factor = requantize_factor(
            torch.tensor(single(op, "out_multiplier", out_multiplier), dtype=torch.float64),
            torch.tensor(single(op, "out_shift", out_shift), dtype=torch.float64),
        )
        return quantize(shifted.clamp(min=0), factor, out_zero_point, X.dtype)

    return kernel


def layer_norm_kernel(op: str) -> Callable[..., Tensor]:
    """Float32 layer norm of the dequantized X over its last axes, quantized to X's dtype."""

    def kernel(
        X: Tensor,
        X_scale: Tensor | float,
        X_zero_point: Tensor | int,
        normalized_shape: Sequence[int],
        weight: Tensor,
        bias: Tensor,
        eps: float,
        output_scale: float,
        output_zero_point: int,
    ) -> Tensor:
        x = dequantize(X, single(op, "X_scale", X_scale), single(op, "X_zero_point", X_zero_point))
        y = torch.nn.functional.layer_norm(x, list(normalized_shape), weight, bias, eps)
        return quantize(y, 1 / output_scale, output_zero_point, X.dtype)

    return kernel


def softmax_kernel(op: str) -> Callable[..., Tensor]:
    """Float32 softmax of the dequantized input along dim; mask_type 0, no masking, only."""

    def kernel(
        input: Tensor,
        mask: Tensor | None,
        dim: int,
        mask_type: int,
        pos: Tensor,
        in_scale: Tensor | float,
        in_zero_point: Tensor | int,
        out_scale: Tensor | float,
        out_zero_point: Tensor | int,
    ) -> Tensor:
        if mask_type != 0:
            raise KernelShapeError(
                f"cadence::{op}: mask_type is {mask_type}; only 0 (none) is done"
            )
        x = dequantize(
            input, single(op, "in_scale", in_scale), single(op, "in_zero_point", in_zero_point)
        )
        return quantize(
            torch.softmax(x, dim),
            1 / single(op, "out_scale", out_scale),
            single(op, "out_zero_point", out_zero_point),
            input.dtype,
        )

    return kernel


def where_scalar(condition: Tensor, self: float, other: float) -> Tensor:
    """self where the bool condition holds, other elsewhere, float32."""
    if condition.dtype != torch.bool:
        raise KernelShapeError(
            f"cadence::where_Scalar: condition must be a bool tensor, not {condition.dtype}"
        )
    return torch.where(condition, self, other).to(torch.float32)


TYPED = {"asym8sxasym8s_asym8s": torch.int8, "asym8uxasym8u_asym8u": torch.uint8}
TYPED_RELU = {"asym8s_asym8s": torch.int8, "asym8u_asym8u": torch.uint8}

ELEMENTWISE_KERNELS: dict[str, Callable[..., Tensor]] = {
    **{op: binary_kernel(op, operator.add) for op in ("quantized_add", "quantized_add.per_tensor")},
    **{op: binary_kernel(op, operator.mul) for op in ("quantized_mul", "quantized_mul.per_tensor")},
    **{
        op: binary_kernel(op, operator.add, dtype)
        for types, dtype in TYPED.items()
        for op in (f"quantized_add_{types}.per_tensor",)
    },
    **{op: relu_kernel(op) for op in ("quantized_relu", "quantized_relu.per_tensor")},
    **{
        op: relu_kernel(op, dtype)
        for types, dtype in TYPED_RELU.items()
        for op in (f"quantized_relu_{types}.per_tensor",)
    },
    **{
        op: layer_norm_kernel(op)
        for op in ("quantized_layer_norm", "quantized_layer_norm.per_tensor")
    },
    **{op: softmax_kernel(op) for op in ("quantized_softmax", "quantized_softmax.per_tensor")},
    "where_Scalar": where_scalar,
}
