"""What values are quantized to: specs of activations and weights, and that of a bias from both."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from qtoolkit.errors import UnknownName
from qtoolkit.quantizer.observers import ActivationRange, WeightScale, bias_qparams
from qtoolkit.quantizer.torchao import DerivedQuantizationSpec, QuantizationSpec

GRANULARITIES = ("per-channel", "per-tensor")
WEIGHT_BITS = range(4, 9)
CHANNEL_AXIS = 0
INT32 = (-(2**31), 2**31 - 1)


@dataclass(frozen=True, slots=True)
class QuantizationConfig:
    """How the quantizer annotates: activations per-tensor affine int8, weights symmetric.

    weight_bits: 4 to 8, stored as int8 codes in ±(2^(bits-1) - 1). align_bias_spec: a bias has as
    many scales as its weight; off, its spec is per-tensor, and a per-channel weight with a bias
    cannot be converted. Raises UnknownName for a value outside these.
    """

    per_channel: bool = True
    weight_bits: int = 8
    align_bias_spec: bool = True

    def __post_init__(self) -> None:
        for name in ("per_channel", "align_bias_spec"):
            if type(getattr(self, name)) is not bool:
                raise UnknownName(f"{name}={getattr(self, name)!r}; choose True or False")
        if type(self.weight_bits) is not int or self.weight_bits not in WEIGHT_BITS:
            raise UnknownName(
                f"weight_bits={self.weight_bits!r}; choose {WEIGHT_BITS[0]} to {WEIGHT_BITS[-1]}"
            )

    @classmethod
    def of(cls, weights: "str | QuantizationConfig") -> "QuantizationConfig":
        """A config as it is, or that of a granularity by name. Raises UnknownName."""
        if isinstance(weights, QuantizationConfig):
            return weights
        if weights not in GRANULARITIES:
            raise UnknownName(f"weights {weights!r}; choose one of {', '.join(GRANULARITIES)}")
        return cls(weights == GRANULARITIES[0])

    @property
    def granularity(self) -> str:
        """'per-channel' or 'per-tensor'."""
        return GRANULARITIES[not self.per_channel]

    @property
    def activation(self) -> QuantizationSpec:
        return QuantizationSpec(torch.int8, ActivationRange, -128, 127, torch.per_tensor_affine)

    @property
    def weight(self) -> QuantizationSpec:
        most = 2 ** (self.weight_bits - 1) - 1
        scheme = torch.per_channel_symmetric if self.per_channel else torch.per_tensor_symmetric
        axis = CHANNEL_AXIS if self.per_channel else None
        return QuantizationSpec(torch.int8, WeightScale, -most, most, scheme, ch_axis=axis)

    def bias(
        self, node: fx.Node, x: fx.Node, weight: fx.Node, outputs_axis: int
    ) -> DerivedQuantizationSpec | None:
        """The spec of a bias, derived from the input and the weight of its node: int32.

        As fine as the weight's. None where the scales of a per-channel weight do not lie along
        `outputs_axis` of it, so that a bias has none of its own and stays float.
        """
        weight_spec = self.weight
        if weight_spec.ch_axis not in (None, outputs_axis):
            return None
        aligned: dict[str, Any] = {"qscheme": weight_spec.qscheme, "ch_axis": weight_spec.ch_axis}
        if not self.align_bias_spec:
            aligned = {"qscheme": torch.per_tensor_affine}
        return DerivedQuantizationSpec(
            derived_from=[(x, node), (weight, node)],
            derive_qparams_fn=bias_qparams,
            dtype=torch.int32,
            quant_min=INT32[0],
            quant_max=INT32[1],
            **aligned,
        )


def get_symmetric_quantization_config(
    is_per_channel: bool = True,
    is_dynamic: bool = False,
    weight_bits: int = 8,
    align_bias_spec: bool = True,
) -> QuantizationConfig:
    """Ask for int8 activations and symmetric weights of 4 to 8 bits, for `qt.quantize(weights=)`.

    Named as xnnpack's, of which it uses nothing. Raises UnknownName for is_dynamic and for other
    bits.
    """
    if is_dynamic is not False:
        raise UnknownName(
            f"is_dynamic={is_dynamic!r}: dynamic activations are not there yet; use "
            "is_dynamic=False"
        )
    return QuantizationConfig(is_per_channel, weight_bits, align_bias_spec)
