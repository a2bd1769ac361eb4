"""Ops on real values: convolutions, linears with int8 weights, softmax, rotary embedding."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from qtoolkit.interop.cadence.arithmetic import last
from qtoolkit.interop.cadence.faults import KernelAssertion, KernelShapeError


def conv_kernel(convolve: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """x[N,C,*] with w[O,C/groups,*], channels first."""

    def kernel(
        input: Tensor,
        weight: Tensor,
        bias: Tensor,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
    ) -> Tensor:
        return convolve(input, weight, bias, list(stride), list(padding), list(dilation), groups)

    return kernel


def transposed_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    channel_last: bool = False,
) -> Tensor:
    """Transposed convolution of x[N,C,*] with a stored weight [O/groups,C,*], its kernel flipped.

    One or two axes at *. Channels last: x[N,*,C], w[O/groups,*,C].
    """
    x, w = (input.movedim(-1, 1), weight.movedim(-1, 1)) if channel_last else (input, weight)
    spatial = x.dim() - 2
    convolve = functional.conv_transpose1d if spatial == 1 else functional.conv_transpose2d
    y: Tensor = convolve(
        x,
        w.transpose(0, 1).flip(list(range(2, w.dim()))),
        bias,
        tuple(last(stride, spatial, 1)),
        tuple(last(padding, spatial, 0)),
        tuple(last(output_padding, spatial, 0)),
        groups,
        tuple(last(dilation, spatial, 1)),
    )
    return y.movedim(1, -1).contiguous() if channel_last else y


def fully_connected(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x[*,K] times w[O,K], plus bias[O]."""
    return functional.linear(input, weight, bias)


def quantized_w8a32_linear(
    input: Tensor, weight: Tensor, w_scale: float, bias: Tensor, b_scale: float
) -> Tensor:
    """A row of reals x[*,1,K] or x[1,K] times an int8 weight [K,O], plus an int8 bias [O]."""
    if input.dim() > 1 and input.shape[-2] != 1:
        raise KernelAssertion(
            "cadence::quantized_w8a32_linear: Only supporting vector-matrix multiplication: "
            f"input is {list(input.shape)}, its last axis but one must be 1"
        )
    return functional.linear(input, (weight * w_scale).mT, bias * b_scale)


def quantized_w8a32_conv(
    input: Tensor, weight: Tensor, w_scale: float, bias: Tensor, b_scale: float
) -> Tensor:
    """Reals x[N,L,C] convolved with an int8 weight [K,O,C], stride 1: y[N,O,L-K+1]."""
    return functional.conv1d(input.movedim(-1, 1), weight.movedim(0, -1) * w_scale, bias * b_scale)


def softmax_f32_f32(self: Tensor, dim: int, half_to_float: bool | None = None) -> Tensor:
    """Softmax along dim, float32."""
    return torch.softmax(self, dim, dtype=torch.float32)


def rope(input: Tensor, sin_tensor: Tensor, cos_tensor: Tensor, pos: Tensor | None) -> Tensor:
    """Rotate neighbouring pairs of x[N,S,heads,D] by the angles of their position.

    sin_tensor and cos_tensor are [positions,D/2]; pos[S] picks a row for each of S, row i if None.
    Raises KernelShapeError for an input of another rank than 4, or 5 with D split in two.
    """
    if input.dim() not in (4, 5):
        raise KernelShapeError(
            f"cadence::rope: input is {list(input.shape)}; give [N, S, heads, D], or D split in two"
        )
    pairs = input.reshape(*input.shape[:3], -1, 2)
    chosen = slice(None) if pos is None else pos
    sin, cos = sin_tensor[chosen].unsqueeze(1), cos_tensor[chosen].unsqueeze(1)
    a, b = pairs.unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).reshape(input.shape)


REAL_KERNELS: dict[str, Callable[..., Tensor]] = {
    "conv1d": conv_kernel(torch.conv1d),
    "conv2d": conv_kernel(torch.conv2d),
    "conv3d": conv_kernel(torch.conv3d),
    "transposed_convolution": transposed_convolution,
    "fully_connected": fully_connected,
    "quantized_w8a32_linear": quantized_w8a32_linear,
    "quantized_w8a32_conv": quantized_w8a32_conv,
    "_softmax_f32_f32": softmax_f32_f32,
    "rope": rope,
}
