"""What all kernels share: codes to reals and back, one value or one per channel, the linear's r.

Sums are exact: float64 holds every sum of int8, uint8 or int16 products met here. They become
float32 once. All that follows is float32, as upstream computes it; ties go to even.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from qtoolkit.interop.cadence.faults import KernelQParamError, KernelShapeError

# The Core IR's numbers of dtypes, which callers outside the dispatcher may hand over as they are.
SCALAR_TYPES = {0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 27: torch.uint16}


def per_channel(op: str, name: str, value: Tensor | float, O: int) -> Tensor:
    """Bring a parameter to float64[1] or float64[O].

    Raises KernelQParamError, naming op and argument, if it has another number of elements.
    """
    vector = torch.as_tensor(value, dtype=torch.float64).reshape(-1)
    if vector.numel() in (1, O):
        return vector
    raise KernelQParamError(
        f"cadence::{op}: {name} has {vector.numel()} elements, {shorten(vector)}; "
        f"give one, or one per output channel ({O})"
    )


def single(op: str, name: str, value: Tensor | float) -> float:
    """Read a parameter that this op has once per tensor; KernelQParamError if it is a vector."""
    vector = torch.as_tensor(value, dtype=torch.float64).reshape(-1)
    if vector.numel() == 1:
        return float(vector)
    raise KernelQParamError(
        f"cadence::{op}: {name} has {vector.numel()} elements, {shorten(vector)}; "
        "give one: this op has no channels"
    )


def shorten(vector: Tensor) -> str:
    """The first elements of a vector, for an error."""
    shown = [f"{value:g}" for value in vector[:4].tolist()]
    return f"[{', '.join(shown)}{', …' if vector.numel() > 4 else ''}]"


def along(vector: Tensor, axis: int, rank: int) -> Tensor:
    """View a vector so that it broadcasts along one axis of a tensor of that rank."""
    return vector.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


def requantize_factor(out_multiplier: Tensor, out_shift: Tensor) -> Tensor:
    """The factor of upstream's linear, matmul and relu: minus multiplier / 2^31 * 2^shift, float64.

    Its sign is upstream's: with the positive multipliers that its own compiler emits, the result
    is negated. Upstream takes the reciprocal twice, which shows in the last bit of a 31-bit
    multiplier.
    """
    out_scale = 1 / (-out_multiplier * 2.0**-31 * torch.exp2(out_shift))
    return 1 / out_scale


def quantize(
    real: Tensor,
    inv_scale: Tensor | float,
    zero_point: float,
    dtype: torch.dtype,
    limits: tuple[int, int] | None = None,
) -> Tensor:
    """clamp(rint(float32(real) * float32(inv_scale)) + zero_point, *limits) as dtype.

    inv_scale broadcasts against real. limits are the dtype's if not given.
    """
    low, high = limits or (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    factor = torch.as_tensor(inv_scale, dtype=torch.float64).to(torch.float32)
    steps = torch.round(real.to(torch.float32) * factor)
    # In float64: 2^31 - 1 is no float32.
    return torch.clamp(steps.to(torch.float64) + zero_point, low, high).to(dtype)


def dequantize(codes: Tensor, scale: float, zero_point: float) -> Tensor:
    """float32(code - zero_point) * float32(scale)."""
    shifted = (codes.to(torch.float64) - zero_point).to(torch.float32)
    return shifted * torch.tensor(scale, dtype=torch.float32)


def torch_dtype(dtype: Any) -> torch.dtype:
    """A torch dtype from one, or from its number in the Core IR."""
    return dtype if isinstance(dtype, torch.dtype) else SCALAR_TYPES[int(dtype)]


def need_dtype(op: str, dtype: torch.dtype | None, **tensors: Tensor) -> None:
    """Raise KernelShapeError if a tensor has not the one dtype that an op's name promises."""
    for name, tensor in tensors.items():
        if dtype is not None and tensor.dtype != dtype:
            raise KernelShapeError(
                f"cadence::{op}: {name} is {tensor.dtype}; this op takes {dtype}, "
                f"the op without a type in its name takes any"
            )


def last(values: Sequence[int], count: int, fill: int) -> list[int]:
    """The last `count` of some sizes: a one-dimensional conv may come with those of two."""
    values = list(values)[-count:] if values else [fill] * count
    return values if len(values) == count else values * count
