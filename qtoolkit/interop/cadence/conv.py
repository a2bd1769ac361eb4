"""Quantized convolutions: every layout, per tensor and per channel, one arithmetic.

y = quantize(float32(sum (x - x_zero)(w - w_zero[o]) + bias[o]) * bias_scale[o], out_scale).
out_multiplier and out_shift say the same once more; upstream's kernels do not read them, nor do
these. Padding stands for real zero, which is the code input_zero_point.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from qtoolkit.interop.cadence.arithmetic import along, last, need_dtype, per_channel, quantize
from qtoolkit.interop.cadence.faults import KernelShapeError

CONVS = (torch.conv1d, torch.conv2d)


def channels_first(input: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Permute x[N,*,C] and w[O,*,C] to channels first; a depthwise w[*,O] becomes w[O,1,*]."""
    depthwise = weight.dim() == input.dim() - 1
    w = weight.movedim(-1, 0).unsqueeze(1) if depthwise else weight.movedim(-1, 1)
    return input.movedim(-1, 1), w


def convolve(
    op: str,
    channels_last: bool,
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    input_zero_point: int,
    weight_zero_point: Tensor | int,
    bias_scale: Tensor | float,
    out_scale: float,
    out_zero_point: int,
    out_multiplier: Tensor | int,
    out_shift: Tensor | int,
) -> Tensor:
    """Convolve codes x[N,C,*] with w[O,C/groups,*], one or two axes at *; x's dtype comes out.

    Channels last: x[N,*,C], w[O,*,C/groups] or, depthwise, w[*,O]. Raises KernelShapeError for
    another rank, KernelQParamError for a vector of neither one nor O elements.
    """
    x, w = channels_first(input, weight) if channels_last else (input, weight)
    spatial = x.dim() - 2
    if spatial not in (1, 2) or w.dim() != x.dim():
        raise KernelShapeError(
            f"cadence::{op}: input {list(input.shape)} and weight {list(weight.shape)}; give an "
            "input of rank 3 or 4 and a weight of that rank, or one less if depthwise channels last"
        )
    O = w.shape[0]
    zero = per_channel(op, "weight_zero_point", weight_zero_point, O)
    scale = per_channel(op, "bias_scale", bias_scale, O)
    per_channel(op, "out_multiplier", out_multiplier, O)
    per_channel(op, "out_shift", out_shift, O)
    acc = CONVS[spatial - 1](
        x.to(torch.float64) - input_zero_point,
        w.to(torch.float64) - along(zero, 0, w.dim()),
        bias.to(torch.float64),
        last(stride, spatial, 1),
        last(padding, spatial, 0),
        last(dilation, spatial, 1),
        groups,
    )
    real = acc.to(torch.float32) * along(scale.to(torch.float32), 1, x.dim())
    y = quantize(real, 1 / out_scale, out_zero_point, input.dtype)
    return y.movedim(1, -1).contiguous() if channels_last else y


def conv_kernel(
    op: str, channels_last: bool, dtype: torch.dtype | None = None
) -> Callable[..., Tensor]:
    """A convolution's kernel with the schema's arguments; dtype is the only one it takes."""

    def kernel(
        input: Tensor,
        weight: Tensor,
        bias: Tensor,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
        input_zero_point: int,
        weight_zero_point: Tensor | int,
        bias_scale: Tensor | float,
        out_scale: float,
        out_zero_point: int,
        out_multiplier: Tensor | int,
        out_shift: Tensor | int,
    ) -> Tensor:
        need_dtype(op, dtype, input=input, weight=weight)
        return convolve(
            op,
            channels_last,
            input,
            weight,
            bias,
            stride,
            padding,
            dilation,
            groups,
            input_zero_point,
            weight_zero_point,
            bias_scale,
            out_scale,
            out_zero_point,
            out_multiplier,
            out_shift,
        )

    return kernel


def conv_kernel_with_offset(op: str, channels_last: bool) -> Callable[..., Tensor]:
    """The same for the two schemas that end in `offset`, which no reference kernel reads."""

    def kernel(
        input: Tensor,
        weight: Tensor,
        bias: Tensor,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
        input_zero_point: int,
        weight_zero_point: int,
        bias_scale: float,
        out_scale: float,
        out_zero_point: int,
        out_multiplier: int,
        out_shift: int,
        offset: Tensor | None = None,
    ) -> Tensor:
        return convolve(
            op,
            channels_last,
            input,
            weight,
            bias,
            stride,
            padding,
            dilation,
            groups,
            input_zero_point,
            weight_zero_point,
            bias_scale,
            out_scale,
            out_zero_point,
            out_multiplier,
            out_shift,
        )

    return kernel


# Ops by name: are channels last?
FIRST = ("quantized_conv1d_ncl", "quantized_conv2d_nchw", "quantized_depthwise_conv1d_ncl")
LAST = (
    "quantized_conv1d_nlc",
    "quantized_conv2d_nhwc",
    "quantized_depthwise_conv1d_nlc",
    "quantized_conv2d_depthwise_nhwc",
)
WITH_OFFSET = ("quantized_conv1d_nlc.per_tensor", "quantized_conv2d_nhwc.per_tensor")
PLAIN = (
    "quantized_conv1d_ncl.per_tensor",
    "quantized_conv2d_nchw.per_tensor",
    "quantized_depthwise_conv1d_ncl.per_tensor",
    "quantized_depthwise_conv1d_nlc.per_tensor",
)
TYPED = {"asym8sxsym8s_asym8s": torch.int8, "asym8uxsym8u_asym8u": torch.uint8}

CONV_KERNELS: dict[str, Callable[..., Tensor]] = {
    **{op: conv_kernel(op, channels_last=False) for op in FIRST},
    **{op: conv_kernel(op, channels_last=True) for op in LAST},
    **{op: conv_kernel(op, channels_last="nlc" in op) for op in PLAIN},
    **{op: conv_kernel_with_offset(op, channels_last=True) for op in WITH_OFFSET},
    **{
        op: conv_kernel(op, layout == "nhwc", dtype)
        for layout in ("nchw", "nhwc")
        for kind in ("", "_dilated", "_depthwise")
        for types, dtype in TYPED.items()
        for op in (f"quantized_conv2d_{layout}{kind}_{types}.per_tensor",)
    },
}

SCHEMA = (
    "(Tensor input, Tensor weight, Tensor bias, int[] stride, SymInt[] padding, int[] dilation, "
    "int groups, int input_zero_point, Tensor weight_zero_point, Tensor bias_scale, "
    "float out_scale, int out_zero_point, Tensor out_multiplier, Tensor out_shift) -> (Tensor Z)"
)
# Overloads that executorch 1.5 does not define and its pull request 22227 adds.
ADDED_SCHEMAS = {
    "quantized_depthwise_conv1d_ncl": SCHEMA,
    "quantized_depthwise_conv1d_nlc": SCHEMA,
}
