"""The errors of these kernels: ours, and of the kind that callers of upstream's kernels catch."""

from qtoolkit.errors import QParamError, ShapeError


class KernelShapeError(ShapeError, ValueError):
    """A shape or dtype that an op does not take."""


class KernelQParamError(QParamError, ValueError):
    """A vector of quantization parameters that fits neither the tensor nor its channels."""


class KernelAssertion(ShapeError, AssertionError):
    """A shape that upstream refuses with an assert, and its callers catch as one."""
