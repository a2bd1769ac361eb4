"""Real values to codes and back: quantize, dequantize, requantize, byte embeddings."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from qtoolkit.interop.cadence.arithmetic import (
    dequantize,
    need_dtype,
    quantize,
    single,
    torch_dtype,
)
from qtoolkit.interop.cadence.faults import KernelQParamError, KernelShapeError

TYPED = {
    "": None,
    "_asym8s": torch.int8,
    "_asym8u": torch.uint8,
    "_asym16s": torch.int16,
    "_asym16u": torch.uint16,
    "_asym32s": torch.int32,
}


def quantize_kernel(op: str, only: torch.dtype | None) -> Callable[..., Tensor]:
    """Reals to codes of `dtype` within quant_min … quant_max; `only` is the one dtype it gives."""

    def kernel(
        input: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: Any
    ) -> Tensor:
        wanted = torch_dtype(dtype)
        if only not in (None, wanted):
            raise KernelShapeError(f"cadence::{op}: dtype is {wanted}; this op gives {only}")
        return quantize(input, 1 / scale, zero_point, wanted, (quant_min, quant_max))

    return kernel


def dequantize_kernel(op: str, only: torch.dtype | None) -> Callable[..., Tensor]:
    """Codes to float32; `dtype` must be theirs, `only` is the one that the op takes."""

    def kernel(
        input: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: Any
    ) -> Tensor:
        need_dtype(op, only, input=input)
        if torch_dtype(dtype) != input.dtype:
            raise KernelShapeError(
                f"cadence::{op}: dtype is {torch_dtype(dtype)} and input is {input.dtype}; "
                "give the input's"
            )
        return dequantize(input, scale, zero_point)

    return kernel


def requantize_kernel(op: str) -> Callable[..., Tensor]:
    """Codes of one scale and zero point to codes of another, by way of float32 reals."""

    def kernel(
        input: Tensor,
        in_scale: Tensor | float,
        in_zero_point: Tensor | int,
        out_scale: Tensor | float,
        out_zero_point: Tensor | int,
        out_dtype: Any,
    ) -> Tensor:
        real = dequantize(
            input, single(op, "in_scale", in_scale), single(op, "in_zero_point", in_zero_point)
        )
        return quantize(
            real,
            1 / single(op, "out_scale", out_scale),
            single(op, "out_zero_point", out_zero_point),
            torch_dtype(out_dtype),
        )

    return kernel


def quantized_embedding_byte(
    weight: Tensor,
    weight_scales: Tensor,
    weight_zero_points: Tensor | None,
    indices: Tensor,
    pruned_weights: bool = False,
) -> Tensor:
    """Look up rows of w[V,D] as float32[*indices,D], scaled per row, or per group of a row.

    weight_scales and weight_zero_points are [V] or [V,G]; G divides D.
    Raises KernelQParamError if G does not, KernelShapeError if the weights are pruned.
    """
    if pruned_weights:
        raise KernelShapeError("cadence::quantized_embedding_byte: pruned_weights; give them whole")
    V, D = weight.shape
    scales = weight_scales.reshape(V, -1)
    G = scales.shape[1]
    if D % G:
        raise KernelQParamError(
            f"cadence::quantized_embedding_byte: {G} groups in a row of {D}; give a divisor of {D}"
        )
    groups = weight.reshape(V, G, D // G).to(torch.float32)
    if weight_zero_points is not None:
        groups = groups - weight_zero_points.reshape(V, G, 1).to(torch.float32)
    rows = (groups * scales.to(torch.float32).unsqueeze(-1)).reshape(V, D)
    return rows[indices]


CODE_KERNELS: dict[str, Callable[..., Tensor]] = {
    **{
        f"quantize_per_tensor{t}": quantize_kernel(f"quantize_per_tensor{t}", TYPED[t])
        for t in TYPED
    },
    **{
        f"dequantize_per_tensor{t}": dequantize_kernel(f"dequantize_per_tensor{t}", TYPED[t])
        for t in TYPED
    },
    "requantize": requantize_kernel("requantize"),
    "requantize.per_tensor": requantize_kernel("requantize.per_tensor"),
    "quantized_embedding_byte": quantized_embedding_byte,
}
