"""Ops that read windows of an image: im2row, its transposed form, max and average pooling."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from qtoolkit.interop.cadence.arithmetic import single
from qtoolkit.interop.cadence.faults import KernelQParamError


def image(input: Tensor, channel_last: bool) -> Tensor:
    """x[N,C,H,W] in float64, from channels last, or with H = 1 from three axes."""
    x = input.movedim(-1, 1) if channel_last else input
    return (x if x.dim() == 4 else x.unsqueeze(2)).to(torch.float64)


def batch_zeros(op: str, value: Tensor | int | None, N: int) -> Tensor:
    """The padding code, float64[1 or N,1,1,1]; None is 0. KernelQParamError for other counts."""
    zeros = torch.as_tensor(0 if value is None else value, dtype=torch.float64).reshape(-1)
    if zeros.numel() not in (1, N):
        raise KernelQParamError(
            f"cadence::{op}: in_zero_point has {zeros.numel()} elements; "
            f"give one, or one per image ({N})"
        )
    return zeros.reshape(-1, 1, 1, 1)


def rows(x: Tensor, kernel: Sequence[int], **unfold: Sequence[int]) -> Tensor:
    """Windows of x[N,C,H,W] as rows [N,L,C*Kh*Kw]."""
    windows: Tensor = functional.unfold(
        x, tuple(kernel), **{k: tuple(v) for k, v in unfold.items()}
    )
    return windows.mT.contiguous()


def im2row_kernel(op: str) -> Callable[..., Tensor]:
    """Rows [N,L,C*Kh*Kw] in [c][kh][kw] order, from either layout; padding is in_zero_point."""

    def kernel(
        input: Tensor,
        kernel_size: Sequence[int],
        dilation: Sequence[int],
        padding: Sequence[int],
        stride: Sequence[int],
        in_zero_point: Tensor | int | None,
        channel_last: bool = False,
    ) -> Tensor:
        x = image(input, channel_last)
        zeros = batch_zeros(op, in_zero_point, x.shape[0])
        found = rows(x - zeros, kernel_size, dilation=dilation, padding=padding, stride=stride)
        return (found + zeros.squeeze(-1)).to(input.dtype)

    return kernel


def transposed_im2row(
    input: Tensor,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
    output_padding: Sequence[int],
    in_zero_point: Tensor | int | None,
    channel_last: bool = False,
) -> Tensor:
    """Rows with which a transposed convolution, its kernel flipped, is one matmul.

    The image is spread by `stride`, bordered by dilation * (kernel - 1) - padding cells and
    `output_padding` more below and right; all new cells hold in_zero_point. Rows are
    [N,L,C*Kh*Kw] in [c][kh][kw] order, with channels last in [kh][kw][c], as upstream has it.
    """
    x = image(input, channel_last)
    N, C, H, W = x.shape
    zeros = batch_zeros("transposed_im2row", in_zero_point, N)
    (kh, kw), (dh, dw), (ph, pw) = kernel_size, dilation, padding
    (sh, sw), (oh, ow) = stride, output_padding
    spread = x.new_zeros(N, C, (H - 1) * sh + 1, (W - 1) * sw + 1)
    spread[:, :, ::sh, ::sw] = x - zeros
    top, left = dh * (kh - 1) - ph, dw * (kw - 1) - pw
    bordered = functional.pad(spread, (left, left + ow, top, top + oh))
    found = rows(bordered, kernel_size, dilation=dilation) + zeros.squeeze(-1)
    if channel_last:
        found = found.reshape(N, -1, C, kh * kw).mT.reshape(found.shape)
    return found.to(input.dtype)


def max_pool_kernel(channels_last: bool) -> Callable[..., Tensor]:
    """Max pooling of codes; padded cells never win, an empty stride is the kernel's size."""

    def kernel(
        input: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
    ) -> Tensor:
        x = (input.movedim(-1, 1) if channels_last else input).to(torch.float64)
        y = functional.max_pool2d(
            x,
            list(kernel_size),
            list(stride) or None,
            list(padding),
            list(dilation),
            ceil_mode,
        ).to(input.dtype)
        return y.movedim(1, -1).contiguous() if channels_last else y

    return kernel


def avg_pool2d(
    input: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    in_zero_point: Tensor | None = None,
    channel_last: bool = False,
) -> Tensor:
    """Average pooling of reals, or of codes with in_zero_point, rounded half to even.

    A padded cell holds in_zero_point. Without one, padded cells never count: upstream's test file
    asks for that, since its kernel and its schema differ in the default of count_include_pad.
    """
    x = input.movedim(-1, 1) if channel_last else input
    zero = 0.0 if in_zero_point is None else single("avg_pool2d", "in_zero_point", in_zero_point)
    mean = zero + functional.avg_pool2d(
        x.to(torch.float64) - zero,
        tuple(kernel_size),
        tuple(stride) or None,
        tuple(padding) or 0,
        ceil_mode,
        count_include_pad and in_zero_point is not None,
        divisor_override,
    )
    if not x.dtype.is_floating_point:
        limits = torch.iinfo(x.dtype)
        mean = torch.round(mean).clamp(limits.min, limits.max)
    y = mean.to(input.dtype)
    return y.movedim(1, -1).contiguous() if channel_last else y


WINDOW_KERNELS: dict[str, Callable[..., Tensor]] = {
    "im2row": im2row_kernel("im2row"),
    "im2row.per_tensor": im2row_kernel("im2row.per_tensor"),
    "transposed_im2row": transposed_im2row,
    "quantized_max_pool2d_nchw": max_pool_kernel(channels_last=False),
    "quantized_max_pool2d_nhwc": max_pool_kernel(channels_last=True),
    "avg_pool2d": avg_pool2d,
}
