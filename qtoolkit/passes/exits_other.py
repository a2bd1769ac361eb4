"""Exits of pools, activations and permutes."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.draft import Draft
from qtoolkit.graph import Arg, Const, Constant, DType, Node, Ref
from qtoolkit.ops import OPS
from qtoolkit.ops.pool import adaptive_spans
from qtoolkit.ops.shapes import per_axis, strides_or_kernel
from qtoolkit.passes.rules import FuseRules
from qtoolkit.qparams import multiplier_shift, ratio
from qtoolkit.rewrite import Answer, Note, Reject, Rewrite

Exit = Callable[[Node, Draft, FuseRules], Answer]
CODES = {DType.INT8: (-128, 127), DType.UINT8: (0, 255)}
BOUNDED = ("q8_conv1d", "q8_conv2d", "q8_linear", "q8_matmul", "q8_add", "requantize")


def argument(node: Node, name: str) -> Arg:
    """A node's argument by its name in the schema."""
    return node.args[OPS[node.op].position(name)]


def pool_as_depthwise(node: Node, draft: Draft, rules: FuseRules) -> Answer:
    """An average over windows of one size is a depthwise conv of ones: the same sums and ratio."""
    if node.op not in ("q8_avg_pool2d", "q8_adaptive_avg_pool2d"):
        return None
    x = _type(node.args[0], draft)
    found = _windows(node, x.sizes)
    if isinstance(found, Reject):
        return found
    kernel, stride, padding, count = found
    channels = x.sizes[1]
    x_scale, x_zero, y_scale, y_zero, low, high = node.args[-6:]
    assert isinstance(x_scale, float) and isinstance(y_scale, float)
    r = ratio(x_scale, np.float64(y_scale) * count, node.name)
    multiplier, shift = multiplier_shift(r)
    made: dict[str, NDArray[Any]] = {
        "ones": np.ones((channels, 1, *kernel), np.int8),
        "bias": np.zeros(channels, np.int32),
        "w_zero": np.zeros(1, np.int32),
        "bias_scale": np.array([x_scale / count], np.float64),
        "out_multiplier": multiplier,
        "out_shift": shift,
    }
    ref = {key: Const(f"{node.name}/{key}") for key in made}
    conv = replace(
        node,
        op="q8_conv2d",
        args=(
            node.args[0], ref["ones"], ref["bias"], stride, padding, (1, 1), channels, x_zero,
            ref["w_zero"], ref["bias_scale"], ref["out_multiplier"], ref["out_shift"], y_scale,
            y_zero, low, high, "float",
        ),
    )  # fmt: skip
    why = ("the family's average pool keeps its scale; a depthwise conv of ones over {} cells, "
           "scaled by 1/{}, is this one", kernel[0] * kernel[1], count)  # fmt: skip
    return Rewrite(
        conv, (node.name,), why, {ref[k].name: Constant.of(v) for k, v in made.items()}, kind="exit"
    )


def _windows(
    node: Node, sizes: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int] | Reject:
    """kernel, stride, padding, count of an average pool whose windows are all alike."""
    if len(sizes) != 4 or sizes[1] < 2:
        return Reject(("input of sizes {} has no depthwise conv", sizes))
    if node.op == "q8_adaptive_avg_pool2d":
        outputs = per_axis(_ints(node.args[1]), 2, "output_size")
        spans = [adaptive_spans(s, o) for s, o in zip(sizes[2:], outputs, strict=True)]
        kernel = tuple(len(axis[0][0]) for axis in spans)
        if any(len(cells) != k for axis, k in zip(spans, kernel, strict=True) for cells, _ in axis):
            return Reject(("its windows over {} are of several sizes", sizes[2:]))
        starts = [[cells.start for cells, _ in axis] for axis in spans]
        steps = [{b - a for a, b in pairwise(s)} or {1} for s in starts]
        if any(len(step) > 1 for step in steps):
            return Reject(("its windows over {} do not lie evenly", sizes[2:]))
        return kernel, tuple(min(s) for s in steps), (0, 0), kernel[0] * kernel[1]
    _, size, stride, padding, ceil_mode, with_padding, override = node.args[:7]
    kernel = per_axis(_ints(size), 2, "kernel_size")
    strides = strides_or_kernel(_ints(stride), kernel)
    pads = per_axis(_ints(padding), 2, "padding")
    if override is None and any(pads) and not with_padding:
        return Reject(("padding is not counted, so windows at the border count less",))
    if ceil_mode and any(
        (s + 2 * p - k) % t
        for s, p, k, t in zip(sizes[2:], pads, kernel, strides, strict=True)
    ):  # fmt: skip
        return Reject(("with ceil_mode its last windows are cut",))
    count = override if isinstance(override, int) else kernel[0] * kernel[1]
    return kernel, tuple(strides), pads, count


def clamp_apart(node: Node, draft: Draft, rules: FuseRules) -> Answer:
    """Bounds that saturation does not give become a clamp of their own: ops here have none."""
    if node.op not in BOUNDED or node.type.dtype not in CODES:
        return None
    full = CODES[node.type.dtype]
    bounds = argument(node, "low"), argument(node, "high")
    zero = argument(node, "y_zero")
    if bounds == full:
        return None
    if node.op == "requantize" and bounds == (zero, full[1]):
        return None  # requantize with a relu is one of the family's own
    position = OPS[node.op].position("low")
    args = (*node.args[:position], *full, *node.args[position + 2 :])
    name = draft.fresh(f"{node.name}_unclamped")
    bare = replace(node, name=name, args=args, origin=())
    clamp = replace(node, op="q8_clamp", args=(Ref(name), *bounds))
    why = ("{} here saturates at {}..{} only; codes {}..{} need a clamp",
           node.op, *full, *bounds)  # fmt: skip
    return Rewrite(clamp, (node.name,), why, insert=(bare,), kind="exit")


def permute_before_dequantize(node: Node, draft: Draft, rules: FuseRules) -> Answer:
    """A permute of a dequantized constant permutes the codes, and the axis of their scales."""
    order = _order(node)
    if order is None or not isinstance(node.args[0], Ref):
        return None
    source = draft[node.args[0].node]
    if source.op != "dequantize" or not isinstance(source.args[0], Const):
        return None
    codes, scale, zero, axis, low, high = source.args
    assert isinstance(codes, Const)
    moved = order.index(axis) if isinstance(axis, int) else None
    name = f"{codes.name}/permuted"
    constant = _permuted(draft.constants[codes.name], order)
    scales = _type(scale, draft).numel
    if isinstance(axis, int) and not rules.lowering_keeps_granularity:
        if constant.type.sizes[axis] != scales:
            return Reject(
                ("with rule lowering_keeps_granularity off axis {} stays {}: {} scales against "
                 "{} rows, which cannot run; left as it was",
                 axis, axis, scales, constant.type.sizes[axis])
            )  # fmt: skip
        moved = axis
    made = replace(node, op="dequantize", args=(Const(name), scale, zero, moved, low, high))
    why = ("permuted before it is dequantized: axis {} of its {} scales is now {}",
           axis, scales, moved)  # fmt: skip
    return Rewrite(made, (source.name, node.name), why, {name: constant}, kind="exit")


def _order(node: Node) -> tuple[int, ...] | None:
    """The axes of a permute or transpose, counted from 0."""
    rank = node.type.rank
    if node.op == "aten.permute.default":
        return tuple(d % rank for d in _ints(node.args[1]))
    if node.op != "aten.transpose.int":
        return None
    order = list(range(rank))
    first, second = (d % rank for d in _ints(node.args[1:3]))
    order[first], order[second] = order[second], order[first]
    return tuple(order)


def _permuted(constant: Constant, order: tuple[int, ...]) -> Constant:
    if constant.array is not None:
        return Constant.of(constant.array.transpose(order))
    shape = tuple(constant.type.shape[i] for i in order)
    return Constant(replace(constant.type, shape=shape))


def _type(arg: Arg, draft: Draft) -> Any:
    if isinstance(arg, Ref):
        return draft[arg.node].types[arg.index]
    assert isinstance(arg, Const)
    return draft.constants[arg.name].type


def _ints(arg: Any) -> tuple[int, ...]:
    return arg if isinstance(arg, tuple) else (arg,)


def granularity_lost(node: Node, draft: Draft, rules: FuseRules) -> tuple[int, tuple[Note, ...]]:
    """How many scales a rewrite of a weighted node loses, with a note where it loses any."""
    scales = _type(argument(node, "out_multiplier"), draft).numel
    if rules.lowering_keeps_granularity or scales < 2:
        return 0, ()
    told = ("with rule lowering_keeps_granularity off its .per_tensor form takes one scale: that "
            "of channel 0; {} are lost", scales - 1)  # fmt: skip
    return scales - 1, (Note("granularity", told),)
