"""What calibration remembers of a value: the range of an activation, the scales of a weight."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from qtoolkit.errors import CalibrationError
from qtoolkit.qparams import EPS_ACTIVATION, EPS_WEIGHT, SCALE_LOW, QParams
from qtoolkit.quantizer.torchao import ObserverBase

WEIGHT_HIGH = 127
BIAS_LIMIT = 2.0**30


class ActivationRange(ObserverBase):  # type: ignore[misc]
    """The least and greatest value of an activation over all batches; per-tensor, affine.

    `node` and `batch` are what an error names; the quantizer sets them.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        quant_min: int = -128,
        quant_max: int = 127,
        qscheme: torch.qscheme = torch.per_tensor_affine,
        is_dynamic: bool = False,
    ) -> None:
        super().__init__(dtype, is_dynamic)
        self.quant_min, self.quant_max, self.qscheme = quant_min, quant_max, qscheme
        self.node, self.batch = "", 0
        self.low, self.high = np.inf, -np.inf

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.numel():
            low, high = (float(v) for v in torch.aminmax(x.detach()))
            # A NaN or an infinity anywhere is one of the two, so the common case looks no further.
            if not (np.isfinite(low) and np.isfinite(high)):
                raise CalibrationError(non_finite(self.node, x, f"batch {self.batch}"))
            self.low, self.high = min(self.low, low), max(self.high, high)
        return x

    def qparams(self) -> QParams:
        """An affine range that holds real zero. Raises CalibrationError if nothing was seen."""
        if self.low > self.high:
            raise CalibrationError(
                f"%{self.node}: calibration gave no values; pass at least one batch that is not "
                "empty"
            )
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        steps = self.quant_max - self.quant_min
        scale = np.float32(max((high - low) / steps, EPS_ACTIVATION))
        zero = self.quant_min - round(low / float(scale))
        zero = min(max(zero, self.quant_min), self.quant_max)
        return QParams.of(scale, zero, self.quant_min, self.quant_max, name=self.node)

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        return as_tensors(self.qparams())


class WeightScale(ObserverBase):  # type: ignore[misc]
    """The scales of a weight, one for the tensor or one per output channel; symmetric.

    max_abs[O|1] is max|w|; `raise_for` widens the scales for a bias. Scales are rounded up to
    float32, so no code passes quant_max.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        quant_min: int = -WEIGHT_HIGH,
        quant_max: int = WEIGHT_HIGH,
        qscheme: torch.qscheme = torch.per_tensor_symmetric,
        is_dynamic: bool = False,
        ch_axis: int = 0,
    ) -> None:
        super().__init__(dtype, is_dynamic)
        self.quant_min, self.quant_max = quant_min, quant_max
        self.qscheme, self.ch_axis = qscheme, ch_axis
        self.max_abs: NDArray[np.float64] = np.zeros(0)
        self.floor: NDArray[np.float64] = np.zeros(1)

    @property
    def per_channel(self) -> bool:
        return self.qscheme == torch.per_channel_symmetric

    def see(self, name: str, weight: torch.Tensor) -> None:
        """Take in the weight [O, ...] called `name`."""
        if not bool(torch.isfinite(weight).all()):
            raise CalibrationError(non_finite(name, weight, "the weights"))
        w = weight.detach().abs().double().numpy()
        self.max_abs = (
            w.reshape(w.shape[0], -1).max(axis=1, initial=0.0)
            if self.per_channel
            else np.array([w.max(initial=0.0)])
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def raise_for(self, bias: NDArray[np.float64], x_scale: float) -> NDArray[np.intp]:
        """Widen so that each bias[O] stays within 2^30 codes; return the channels this changed."""
        least = np.abs(bias) / (x_scale * BIAS_LIMIT)
        self.floor = least if self.per_channel else least.max(initial=0.0, keepdims=True)
        return np.flatnonzero(self.floor > self._unraised())

    def _unraised(self) -> NDArray[np.float64]:
        return np.maximum(self.max_abs / self.quant_max, EPS_WEIGHT)

    @property
    def unraised(self) -> NDArray[np.float32]:
        """The scales that the weights alone ask for."""
        return round_up(self._unraised())

    @property
    def scale(self) -> NDArray[np.float32]:
        return round_up(np.maximum(self._unraised(), self.floor))

    @property
    def dead(self) -> NDArray[np.intp]:
        """Channels whose weights are all zero."""
        return np.flatnonzero(self.max_abs == 0)

    @property
    def underflowed(self) -> NDArray[np.intp]:
        """Channels with weights so small that their own scale is none we may use."""
        own = self.max_abs / self.quant_max
        return np.flatnonzero((self.max_abs > 0) & (own < max(SCALE_LOW, EPS_WEIGHT)))

    def qparams(self, name: str = "weight") -> QParams:
        axis = self.ch_axis if self.per_channel else None
        return QParams.of(
            self.scale, 0, self.quant_min, self.quant_max, axis, eps=EPS_WEIGHT, name=name
        )

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        return as_tensors(self.qparams())


def as_tensors(q: QParams) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and zero point as convert_pt2e wants them."""
    return torch.from_numpy(q.scale.copy()), torch.from_numpy(q.zero_point.copy())


def bias_qparams(observers: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """float32(x_scale * w_scale[o]), zero point 0: what a bias is derived from."""
    x, w = observers
    scale = np.float64(x.qparams().scale[0]) * w.qparams().scale.astype(np.float64)
    return (
        torch.from_numpy(scale.astype(np.float32)),
        torch.zeros(scale.size, dtype=torch.int32),
    )


def round_up(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """The least float32 numbers that are not below the values."""
    nearest = values.astype(np.float32)
    above = np.nextafter(nearest, np.float32(np.inf))
    return np.where(nearest.astype(np.float64) < values, above, nearest)


def non_finite(name: str, x: torch.Tensor, where: str) -> str:
    """What a CalibrationError says of a tensor with NaN or inf in it."""
    nans, infs = int(torch.isnan(x).sum()), int(torch.isinf(x).sum())
    told = " and ".join(f"{n} {word}" for n, word in ((nans, "NaN"), (infs, "inf")) if n)
    return f"%{name}: {told} among {x.numel()} values in {where}; mend the data or the model"
