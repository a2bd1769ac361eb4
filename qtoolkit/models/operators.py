"""Single quantization operators in one module: what seed 000, PR 12616 of ExecuTorch, is about."""

import torch
from torch import nn

from qtoolkit.models.model import Model
from qtoolkit.program.chatter import quiet

CHANNELS = 16
BLOCK = [1, CHANNELS, 8, 8]


class QuantizeOps(nn.Module):
    """x[1,C,8,8] quantized per channel, per tensor and by torchao's affine ops.

    Scales and zero points come in as inputs or are chosen from x, so that all of them are tensors
    that placement must put somewhere.
    """

    def forward(
        self, x: torch.Tensor, scales: torch.Tensor, zero_points: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        qd, ao = torch.ops.quantized_decomposed, torch.ops.torchao
        channels = qd.quantize_per_channel(x, scales, zero_points, 1, -128, 127, torch.int8)
        scale, zero = qd.choose_qparams.tensor(x, -128, 127, 2.0**-12, torch.int8)
        tensor = qd.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
        chosen = ao.choose_qparams_affine(x, "ASYMMETRIC", BLOCK, torch.int8)
        codes = ao.quantize_affine(x, BLOCK, *chosen, torch.int8)
        back = ao.dequantize_affine(codes, BLOCK, *chosen, torch.int8)
        return channels, tensor, back


def quantize_ops() -> Model:
    """QuantizeOps with example inputs; the operators are registered by importing torchao."""
    with quiet():
        import torch.ao.quantization.fx._decomposed
        import torchao.quantization.quant_primitives  # noqa: F401

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, CHANNELS, 8, 8, generator=generator)
    example = x, torch.full((CHANNELS,), 0.03), torch.zeros(CHANNELS, dtype=torch.int64)
    return Model(QuantizeOps().eval(), example, name="quantize-ops")
