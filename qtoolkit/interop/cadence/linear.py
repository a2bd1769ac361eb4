"""Quantized linear, fully connected and matmul, with upstream's sign of the requantize factor."""

from collections.abc import Callable

import torch
from torch import Tensor

from qtoolkit.interop.cadence.arithmetic import (
    along,
    need_dtype,
    per_channel,
    quantize,
    requantize_factor,
    single,
)
from qtoolkit.interop.cadence.faults import KernelShapeError


def weight_zeros(op: str, value: Tensor | int, O: int, K: int) -> Tensor:
    """The weight's zero points, float64[1] or float64[O].

    Upstream subtracts this vector along K, and its callers hand over K elements. K equal ones mean
    the same along either axis and pass as one; unlike ones raise, unless K = O.
    """
    zeros = torch.as_tensor(value, dtype=torch.float64).reshape(-1)
    if zeros.numel() == K != O and bool((zeros == zeros[0]).all()):
        return zeros[:1]
    return per_channel(op, "weight_zero_point", zeros, O)


def linear(
    op: str,
    src: Tensor,
    weight: Tensor,
    bias: Tensor,
    src_zero_point: int,
    weight_zero_point: Tensor | int,
    out_multiplier: Tensor | int,
    out_shift: Tensor | int,
    out_zero_point: int,
) -> Tensor:
    """Multiply codes x[*,K] with w[O,K], add bias int32[O], requantize to x's dtype, [*,O].

    The factor is *minus* multiplier * 2^(shift - 31), as upstream has it.
    Raises KernelQParamError for a vector of neither one nor O elements.
    """
    O, K = weight.shape
    zeros = weight_zeros(op, weight_zero_point, O, K)
    factor = requantize_factor(
        per_channel(op, "out_multiplier", out_multiplier, O),
        per_channel(op, "out_shift", out_shift, O),
    )
    acc = torch.nn.functional.linear(
        src.to(torch.float64) - src_zero_point,
        weight.to(torch.float64) - along(zeros, 0, 2),
        bias.to(torch.float64),
    )
    return quantize(acc, along(factor, -1, acc.dim()), out_zero_point, src.dtype)


def linear_kernel(
    op: str, one_row: bool, dtype: torch.dtype | None = None
) -> Callable[..., Tensor]:
    """A linear's kernel with the schema's arguments; `one_row` refuses a first axis above 1."""

    def kernel(
        src: Tensor,
        weight: Tensor,
        bias: Tensor,
        src_zero_point: int,
        weight_zero_point: Tensor | int,
        out_multiplier: Tensor | int,
        out_shift: Tensor | int,
        out_zero_point: int,
        offset: Tensor | None,
    ) -> Tensor:
        need_dtype(op, dtype, src=src, weight=weight)
        if one_row and src.shape[0] != 1:
            raise KernelShapeError(
                f"cadence::{op}: src is {list(src.shape)}; its first axis must be 1, "
                "quantized_linear takes any"
            )
        return linear(
            op,
            src,
            weight,
            bias,
            src_zero_point,
            weight_zero_point,
            out_multiplier,
            out_shift,
            out_zero_point,
        )

    return kernel


def matmul_kernel(op: str, dtype: torch.dtype | None = None) -> Callable[..., Tensor]:
    """x[*,M,K] times y[*,K,N], or y[*,N,K] if transposed, requantized to x's dtype."""

    def kernel(
        X: Tensor,
        X_zero_point: int,
        Y: Tensor,
        Y_zero_point: int,
        bias: Tensor | None,
        out_multiplier: int,
        out_shift: int,
        out_zero_point: int,
        transposed: bool = False,
    ) -> Tensor:
        need_dtype(op, dtype, X=X, Y=Y)
        if bias is not None and bool(bias.any()):
            raise KernelShapeError(f"cadence::{op}: bias is not zero; add it after the matmul")
        y = Y.to(torch.float64) - Y_zero_point
        acc = (X.to(torch.float64) - X_zero_point) @ (y.mT if transposed else y)
        factor = requantize_factor(
            torch.tensor(single(op, "out_multiplier", out_multiplier), dtype=torch.float64),
            torch.tensor(single(op, "out_shift", out_shift), dtype=torch.float64),
        )
        return quantize(acc, factor, out_zero_point, X.dtype)

    return kernel


TYPED = {"asym8sxasym8s_asym8s": torch.int8, "asym8uxasym8u_asym8u": torch.uint8}

LINEAR_KERNELS: dict[str, Callable[..., Tensor]] = {
    **{
        op: linear_kernel(op, one_row="fully" in op)
        for family in ("quantized_linear", "quantized_fully_connected")
        for op in (family, f"{family}.per_tensor")
    },
    **{
        op: linear_kernel(op, "fully" in op, dtype)
        for family in ("quantized_linear", "quantized_fully_connected")
        for types, dtype in TYPED.items()
        for op in (f"{family}_{types}.per_tensor",)
    },
    "quantized_matmul": matmul_kernel("quantized_matmul"),
    **{
        op: matmul_kernel(op, dtype)
        for types, dtype in TYPED.items()
        for op in (f"quantized_matmul_{types}",)
    },
}
