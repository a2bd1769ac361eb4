"""Kernels of everything but conv and linear: Cadence's ops on codes, and portable ATen ops."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from qtoolkit.backends import numba_cpu
from qtoolkit.backends.cadence.names import GENERIC, OURS, PORTABLE, Name
from qtoolkit.backends.cadence.weighted import CODES, bounds_refused
from qtoolkit.backends.numba_cpu.memory import contiguous
from qtoolkit.backends.numba_cpu.moving import plain_reps
from qtoolkit.graph import Graph, Node
from qtoolkit.kernel import Array, Bound, Kernel
from qtoolkit.ops import OPS, tensor_qparams

WhyNot = Callable[[Node, Graph], str | None]


def kernels(op: str, target: str) -> tuple[Kernel, ...]:
    """Every kernel for an op without weights, in the order in which they are tried."""
    return tuple(_kernels(op, target))


def _kernels(op: str, target: str) -> Iterator[Kernel]:
    for name, why_not in _names(op, target):
        for i, fast in enumerate(numba_cpu.KERNELS[op]):
            mark = f"[{fast.name}]" if i else ""
            yield Kernel(
                f"{name}{mark}", op, _contiguous(fast.bind), plain_reps,
                _both(why_not, fast.why_not), fast.prepacked,
            )  # fmt: skip


def _names(op: str, target: str) -> Iterator[tuple[Name, WhyNot]]:
    """The family's ops that can compute one of ours, each with what it refuses."""
    for cadence, why_not in CADENCE.get(op, ()):
        for core in dict.fromkeys((target, GENERIC)):
            name = Name(core, *cadence)
            if name.has_kernel:
                yield name, why_not
                break
    if op in PORTABLE_OPS:
        yield Name(PORTABLE, *PORTABLE_OPS[op]), _float_only if op in FLOAT_POOLS else _any
    yield Name(OURS, op), _any


def _both(first: WhyNot, second: WhyNot) -> WhyNot:
    return lambda node, graph: first(node, graph) or second(node, graph)


def _contiguous(bind: Callable[[Sequence[Any]], Bound]) -> Callable[[Sequence[Any]], Bound]:
    def bound(args: Sequence[Any]) -> Bound:
        run = bind(args)

        def call(*tensors: Array) -> Array | tuple[Array, ...]:
            made = run(*tensors)
            if isinstance(made, tuple):
                return tuple(contiguous(np.asarray(m)) for m in made)
            return contiguous(np.asarray(made))

        return call

    return bound


def _any(node: Node, graph: Graph) -> str | None:
    return None


def _float_only(node: Node, graph: Graph) -> str | None:
    return None if node.type.dtype.floating else f"it works on floats, not on {node.type.dtype}"


def _codes_only(node: Node, graph: Graph) -> str | None:
    return None if node.type.dtype in CODES else f"it works on codes, not on {node.type.dtype}"


def _per_tensor(node: Node, graph: Graph) -> str | None:
    axis = node.args[3]
    return None if axis is None else f"it takes one scale, not a vector along axis {axis}"


def _per_channel(node: Node, graph: Graph) -> str | None:
    return "it takes a vector of scales, not one" if node.args[3] is None else None


def _of_dtype(name: str) -> WhyNot:
    def refuse(node: Node, graph: Graph) -> str | None:
        found = node.type.dtype
        return bounds_refused(node) or (
            None if found == name else f"it works on {name}, not on {found}"
        )

    return refuse


def _bounds(node: Node, graph: Graph) -> str | None:
    return bounds_refused(node)


def _relu_after(node: Node, graph: Graph) -> str | None:
    """A requantize whose bounds are those of a relu: from the zero point to the largest code."""
    spec = OPS[node.op]
    zero, low, high = (node.args[spec.position(n)] for n in ("y_zero", "low", "high"))
    return _relu(node, zero, low, high)


def _relu_clamp(node: Node, graph: Graph) -> str | None:
    """A clamp of codes that is a relu: it begins at its operand's zero point."""
    _, low, high = node.args
    qparams = tensor_qparams(graph)[node.name]
    zero = None if qparams is None else int(qparams.zero_point[0])
    return _relu(node, zero, low, high)


def _relu(node: Node, zero: Any, low: Any, high: Any) -> str | None:
    most = CODES[node.type.dtype][1]
    if (low, high) == (zero, most):
        return None
    return f"codes {low}..{high} are not those from the zero point {zero} to {most}"


CADENCE: dict[str, tuple[tuple[tuple[str, str], WhyNot], ...]] = {
    "quantize": ((("quantize_per_tensor", "default"), _per_tensor),),
    "dequantize": ((("dequantize_per_tensor", "default"), _per_tensor),),
    "requantize": (
        (("requantize", "per_tensor"), _bounds),
        (("quantized_relu", "per_tensor"), _relu_after),
    ),
    "q8_add": (
        (("quantized_add_asym8sxasym8s_asym8s", "per_tensor"), _of_dtype("int8")),
        (("quantized_add_asym8uxasym8u_asym8u", "per_tensor"), _of_dtype("uint8")),
    ),
    "q8_matmul": ((("quantized_matmul", "default"), _bounds),),
    "q8_clamp": ((("quantized_relu", "per_tensor"), _relu_clamp),),
    "im2row": ((("im2row", "per_tensor"), _any),),
    "aten.max_pool2d.default": ((("quantized_max_pool2d_nchw", "default"), _codes_only),),
}
FLOAT_POOLS = ("aten.max_pool1d.default", "aten.max_pool2d.default")
_VIEWS = ("view.default", "reshape.default", "flatten.using_ints", "unsqueeze.default")
_COPIES = ("dropout.default", "feature_dropout.default", "clone.default", "contiguous.default",
           "alias.default", "detach.default")  # fmt: skip
_OWN_NAME = ("addmm", "mm", "bmm", "relu", "hardtanh", "clamp", "avg_pool2d", "sigmoid", "tanh",
             "gelu", "embedding", "cat", "constant_pad_nd")  # fmt: skip
_TENSORS = ("add", "sub", "mul", "div")
# What each ATen op of ours is called once a program is lowered to ExecuTorch's portable library.
PORTABLE_OPS: dict[str, tuple[str, str]] = {
    **{f"aten.{op}": ("aten::view_copy", "default") for op in _VIEWS},
    **{f"aten.{op}": ("aten::clone", "default") for op in _COPIES},
    **{f"aten.{op}.default": (f"aten::{op}", "default") for op in _OWN_NAME},
    **{f"aten.{op}.Tensor": (f"aten::{op}", "default") for op in _TENSORS},
    "q8_clamp": ("aten::clamp", "default"),
    "aten.relu6.default": ("aten::hardtanh", "default"),
    "aten.clamp_min.default": ("aten::clamp", "default"),
    "aten.clamp_max.default": ("aten::clamp", "default"),
    "aten.permute.default": ("aten::permute_copy", "default"),
    "aten.transpose.int": ("aten::transpose_copy", "int"),
    "aten.squeeze.dim": ("aten::squeeze_copy", "dim"),
    "aten.squeeze.dims": ("aten::squeeze_copy", "dims"),
    "aten.squeeze.default": ("aten::view_copy", "default"),
    "aten.slice.Tensor": ("aten::slice_copy", "Tensor"),
    "aten.split.Tensor": ("aten::split_copy", "Tensor"),
    "aten.split_with_sizes.default": ("aten::split_with_sizes_copy", "default"),
    "aten.pad.default": ("aten::constant_pad_nd", "default"),
    "aten.mean.dim": ("aten::mean", "default"),
    "aten.adaptive_avg_pool2d.default": ("aten::_adaptive_avg_pool2d", "default"),
    "aten.max_pool2d.default": ("aten::max_pool2d_with_indices", "default"),
    "aten.softmax.int": ("aten::_softmax", "default"),
    "aten.batch_norm.default": ("aten::_native_batch_norm_legit_no_training", "default"),
    "aten.layer_norm.default": ("aten::native_layer_norm", "default"),
    "aten.conv1d.default": ("aten::convolution", "default"),
    "aten.conv2d.default": ("aten::convolution", "default"),
    "aten.linear.default": ("aten::addmm", "default"),
    "aten.matmul.default": ("aten::bmm", "default"),
}
