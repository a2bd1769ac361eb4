"""Every error qtoolkit raises on purpose: each names the thing, the value and the remedy."""


class QtoolkitError(Exception):
    """Base of all errors a user can mend; the command line prints it as one line."""


class UnknownName(QtoolkitError):
    """A model, backend, node, kernel or option name that no table holds."""


class BadInput(QtoolkitError):
    """A file, folder or array that cannot be read as what it should be."""


class ShapeError(QtoolkitError):
    """A shape or dtype that does not fit its place."""


class QParamError(QtoolkitError):
    """A scale, zero point or range outside the domain of the numeric contract."""


class CalibrationError(QtoolkitError):
    """Calibration data that no range can be taken from: NaN, inf or none at all."""


class CaptureError(QtoolkitError):
    """A model that cannot become a Graph: it writes state, or torch cannot export it."""


class GraphError(QtoolkitError):
    """A graph that breaks a rule of the IR: a dangling reference, a name used twice."""


class PassError(QtoolkitError):
    """A pass that broke its promise: changed the graph without a step, or its result is invalid."""


class UnsupportedOp(QtoolkitError):
    """Ops that a backend cannot run; the message lists all of them at once."""


class PlacementError(QtoolkitError):
    """A node whose operands admit no common representation."""


class NoRepresentation(PlacementError):
    """An operand that no representation is left for: demand, device or a tie forbids all."""


class FormatError(BadInput):
    """A saved file that is damaged, truncated or of a format this release cannot read."""


class MissingDependency(QtoolkitError):
    """An optional package or library that is not there; the message says what installs it."""


class GateFailed(QtoolkitError):
    """A result that misses a stated bound: exit code 1, not 2."""


class VulkanError(QtoolkitError):
    """A Vulkan call that failed, or a device that cannot do what is asked of it."""


class ShaderError(QtoolkitError):
    """A shader that does not compile, or one that changed where no compiler is."""
