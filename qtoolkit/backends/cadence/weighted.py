"""Kernels of conv and linear: the form first, then the core, then the overload."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from qtoolkit.backends.cadence.names import GENERIC, HIFI, TIE, Name
from qtoolkit.backends.numba_cpu import conv, conv_last
from qtoolkit.backends.numba_cpu.memory import contiguous
from qtoolkit.backends.numba_cpu.moving import plain_reps
from qtoolkit.graph import DType, Graph, Node
from qtoolkit.kernel import Array, Bound, Kernel
from qtoolkit.ops import OPS

Bind = Callable[[Sequence[Any]], Bound]
PER_TENSOR, DEFAULT = "per_tensor", "default"
VECTORS = ("w_zero", "bias_scale", "out_multiplier", "out_shift")
# The rows of cores other than generic that took vectors of qparams, and read element 0 of them.
TENSOR_QPARAMS = ("quantized_conv2d_nchw", "quantized_conv2d_nhwc", "quantized_linear",
                  "quantized_fully_connected")  # fmt: skip
CODES = {DType.INT8: (-128, 127), DType.UINT8: (0, 255)}


@dataclass(frozen=True, slots=True)
class Form:
    """One of Cadence's ops that can compute one of ours, and when: `why_not` as a Kernel's."""

    name: str
    bind: Bind
    why_not: Callable[[Node, Graph], str | None]
    mark: str = ""


def kernels(op: str, target: str) -> tuple[Kernel, ...]:
    """Every kernel for a weighted op, in the order in which they are tried."""
    found: dict[str, Kernel] = {}
    for form in FORMS[op]:
        for kernel in _of_form(op, form, target):
            found.setdefault(kernel.name, kernel)
    return tuple(found.values())


def _of_form(op: str, form: Form, target: str) -> Iterator[Kernel]:
    for core in dict.fromkeys((target, GENERIC)):
        for overload in (PER_TENSOR, DEFAULT):
            name = Name(core, form.name, overload)
            if core == TIE:
                if overload == DEFAULT and form.name in TENSOR_QPARAMS:
                    yield _kernel(op, form, name, why_not=_tie)
            elif not name.has_kernel or (overload == PER_TENSOR and _had(form, target, core)):
                continue
            elif core == GENERIC:
                yield _kernel(
                    op, form, name, why_not=_one_value if overload == PER_TENSOR else None
                )
            elif overload == PER_TENSOR:
                yield _kernel(op, form, name, why_not=_one_value)
            elif core == HIFI:
                yield _reads_channel0(op, form, name)
            else:
                yield _kernel(op, form, name, why_not=_only_generic)


def _had(form: Form, target: str, core: str) -> bool:
    """The target itself takes one value, so that generic's like is never reached."""
    return core != target and Name(target, form.name, PER_TENSOR).has_kernel


def _kernel(
    op: str, form: Form, name: Name, why_not: Callable[[Node, Graph], str | None] | None = None
) -> Kernel:
    def refuse(node: Node, graph: Graph) -> str | None:
        return (
            form.why_not(node, graph)
            or bounds_refused(node)
            or (why_not(node, graph) if why_not else None)
        )

    # Depthwise per-channel is what depthwise_before_overload is for.
    late = form.mark == DEPTHWISE and (name.core, name.overload) == (GENERIC, DEFAULT)
    only_if = ("depthwise_before_overload", "the overload was chosen first: .default is no longer "
               "the op that depthwise replaces") if late else None  # fmt: skip
    return Kernel(f"{name}{form.mark}", op, form.bind, plain_reps, refuse, _prepacked(op), only_if)


def _reads_channel0(op: str, form: Form, name: Name) -> Kernel:
    """HiFi's kernel of vectors, which requantizes every channel by element 0."""

    def bind(args: Sequence[Any]) -> Bound:
        return form.bind(first_elements(op, args))

    def refuse(node: Node, graph: Graph) -> str | None:
        return form.why_not(node, graph) or bounds_refused(node)

    told = "it requantizes every channel by element 0 of its vectors"
    told += (
        "; NNLib's conv takes vectors, so this is the first to reclaim"
        if "conv" in name.op
        else "; NNLib takes one multiplier and one shift here, so it cannot be per-channel"
    )
    only_if = ("hifi_reads_channel0", told)
    return Kernel(f"{name}{form.mark}", op, bind, plain_reps, refuse, _prepacked(op), only_if)


def first_elements(op: str, args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments with element 0 of every vector of qparams in place of the vector."""
    cut = {OPS[op].position(name) for name in VECTORS}
    return tuple(a[:1] if i in cut else a for i, a in enumerate(args))


def scales(node: Node, graph: Graph) -> int:
    """How many weight scales a weighted node has."""
    spec = OPS[node.op]
    sizes = [graph.type_of(node.args[spec.position(name)]) for name in VECTORS]
    return max(t.numel for t in sizes if t is not None)


def bounds_refused(node: Node) -> str | None:
    """Cadence's ops clamp to the dtype's codes alone."""
    spec = OPS[node.op]
    low, high = node.args[spec.position("low")], node.args[spec.position("high")]
    if (low, high) == CODES.get(node.type.dtype):
        return None
    return f"it keeps to codes {low}..{high}, and Cadence's op has no bounds"


def _one_value(node: Node, graph: Graph) -> str | None:
    count = scales(node, graph)
    return f"{count} weight scales, and it takes one" if count > 1 else None


def _only_generic(node: Node, graph: Graph) -> str | None:
    count = scales(node, graph)
    return f"{count} weight scales; only generic's kernels are per-channel" if count > 1 else None


def _tie(node: Node, graph: Graph) -> str | None:
    return _only_generic(node, graph) or "TIE's kernels are not public"


def _prepacked(op: str) -> tuple[int, ...]:
    return conv.LINEAR_PREPACKED if op == "q8_linear" else conv.PREPACKED


def _no_depthwise(node: Node, graph: Graph) -> str | None:
    x = graph.type_of(node.args[0])
    groups = node.args[6]
    channels = None if x is None else x.sizes[1 if node.op in CHANNELS_FIRST else -1]
    if groups == channels and groups != 1:
        return None
    return f"groups={groups} with {channels} input channels is not depthwise"


def _dense(node: Node, graph: Graph) -> str | None:
    return None


def _no_fully_connected(node: Node, graph: Graph) -> str | None:
    lead = node.type.sizes[:-1]
    return None if set(lead) <= {1} else f"leading sizes {lead} are not all 1"


def _plain(bind: Bind) -> Bind:
    """The same kernel with a contiguous result."""

    def bound(args: Sequence[Any]) -> Bound:
        run = bind(args)

        def call(*tensors: Array) -> Array:
            result = run(*tensors)
            assert not isinstance(result, tuple)
            return contiguous(result)

        return call

    return bound


DEPTHWISE = "[depthwise]"
CHANNELS_FIRST = ("q8_conv1d", "q8_conv2d")
FORMS: dict[str, tuple[Form, ...]] = {
    "q8_conv1d": (
        Form("quantized_depthwise_conv1d_ncl", _plain(conv.bind_fitting(1)), _no_depthwise,
             DEPTHWISE),
        Form("quantized_conv1d_ncl", _plain(conv.bind_fitting(1, depthwise=False)), _dense),
    ),
    "q8_conv2d": (
        Form("quantized_conv2d_nchw", _plain(conv.bind_fitting(2)), _no_depthwise, DEPTHWISE),
        Form("quantized_conv2d_nchw", _plain(conv.bind_fitting(2, depthwise=False)), _dense),
    ),
    "q8_conv1d_nlc": (
        Form("quantized_depthwise_conv1d_nlc", conv_last.bind(1), _no_depthwise, DEPTHWISE),
        Form("quantized_conv1d_nlc", conv_last.bind(1, depthwise=False), _dense),
    ),
    "q8_conv2d_nhwc": (
        Form("quantized_conv2d_nhwc", conv_last.bind(2), _no_depthwise, DEPTHWISE),
        Form("quantized_conv2d_nhwc", conv_last.bind(2, depthwise=False), _dense),
    ),
    "q8_linear": (
        Form("quantized_fully_connected", conv.bind_linear, _no_fully_connected),
        Form("quantized_linear", conv.bind_linear, _dense),
    ),
}  # fmt: skip
