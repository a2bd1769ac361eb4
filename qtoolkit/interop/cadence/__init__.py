"""Reference kernels of Cadence's ops on torch tensors, with one scale per channel where it has one.

KERNELS is keyed by the name that torch.library takes ("quantized_linear" for the default overload);
arguments are the schema's. Nothing is registered here: docs/cadence.md shows how a caller does.
"""

from collections.abc import Callable

from torch import Tensor

from qtoolkit.interop.cadence.codes import CODE_KERNELS
from qtoolkit.interop.cadence.conv import ADDED_SCHEMAS, CONV_KERNELS
from qtoolkit.interop.cadence.elementwise import ELEMENTWISE_KERNELS
from qtoolkit.interop.cadence.linear import LINEAR_KERNELS
from qtoolkit.interop.cadence.real import REAL_KERNELS
from qtoolkit.interop.cadence.windows import WINDOW_KERNELS

__all__ = ["ADDED_SCHEMAS", "KERNELS"]

KERNELS: dict[str, Callable[..., Tensor]] = {
    **CONV_KERNELS,
    **LINEAR_KERNELS,
    **ELEMENTWISE_KERNELS,
    **CODE_KERNELS,
    **WINDOW_KERNELS,
    **REAL_KERNELS,
}
