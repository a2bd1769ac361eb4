"""Fusing conv and linear: weights, bias and requantization become constants of one q8 op."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.draft import Draft
from qtoolkit.graph import Arg, Const, Constant, Node, TensorType
from qtoolkit.passes.fuse_bias import INT32_MAX, bias_of
from qtoolkit.passes.qdq import Operand, operand, result, short
from qtoolkit.passes.rules import FuseRules
from qtoolkit.qparams import bias_scale, multiplier_shift, ratio
from qtoolkit.rewrite import Answer, Note, Reject, Rewrite

WEIGHTED: Mapping[str, str] = {
    "aten.conv1d.default": "q8_conv1d",
    "aten.conv1d.padding": "q8_conv1d",
    "aten.conv2d.default": "q8_conv2d",
    "aten.conv2d.padding": "q8_conv2d",
    "aten.linear.default": "q8_linear",
}


def fuse_weighted(node: Node, draft: Draft, rules: FuseRules) -> Answer:
    """dequantize -> conv or linear (-> activation) -> quantize becomes one q8 op."""
    if node.op not in WEIGHTED:
        return None
    x, w = operand(node.args[0], draft), operand(node.args[1], draft)
    if x is None:
        return Reject(("its input is not quantized",))
    refused = _weight_refused(w, x, node, rules)
    if w is None or refused:
        return refused
    if w.qparams.per_channel and node.args[2] is not None and not rules.align_bias_spec:
        return Reject(
            ("its weight has {} scales and the spec of its bias is per-tensor: with rule "
             "align_bias_spec off, only one element tensors can be converted to Python scalars",
             w.qparams.scale.size)
        )  # fmt: skip
    weight = draft.constants[const_name(w.codes)]
    geometry = _geometry(node, weight.type.sizes)
    if isinstance(geometry, Reject):
        return geometry
    return q8(node, WEIGHTED[node.op], x, w, weight, node.args[2], geometry, draft, rules)


def _weight_refused(w: Operand | None, x: Operand, node: Node, rules: FuseRules) -> Reject | None:
    if w is None or not isinstance(w.codes, Const):
        return Reject(("its weight is not a quantized constant",))
    if x.qparams.per_channel:
        return Reject(("its input is quantized per channel; a sum over channels needs one scale",))
    if w.qparams.per_channel and not rules.per_channel:
        return Reject(
            ("its weight is per-channel ({} scales); with rule per_channel off, fusion declines",
             w.qparams.scale.size)
        )  # fmt: skip
    if w.qparams.axis not in (None, 0):
        return Reject(
            ("its weight is per-channel along axis {}; {} scales its outputs along axis 0",
             w.qparams.axis, node.op)
        )  # fmt: skip
    return None


def _geometry(node: Node, sizes: tuple[int, ...]) -> tuple[Arg, ...] | Reject:
    """stride, padding, dilation, groups for a weight of `sizes`; nothing for linear."""
    if node.op == "aten.linear.default":
        return ()
    _, _, _, stride, padding, dilation, groups = node.args
    if node.type.rank != len(sizes):
        return Reject(("its input has no batch axis; unsqueeze it first",))
    rank = len(sizes) - 2
    stride, dilation = _spread(stride, rank), _spread(dilation, rank)
    if not isinstance(padding, str):
        return stride, _spread(padding, rank), dilation, groups
    if padding == "valid":
        return stride, (0,) * rank, dilation, groups
    taps = zip((d for d in dilation if isinstance(d, int)), sizes[2:], strict=True)
    reach = [d * (k - 1) for d, k in taps]
    if any(r % 2 for r in reach):
        return Reject(("padding 'same' pads unevenly for a reach of {}; pad before it", reach))
    return stride, tuple(r // 2 for r in reach), dilation, groups


def _spread(arg: Arg, rank: int) -> tuple[Arg, ...]:
    values = arg if isinstance(arg, tuple) else (arg,)
    return values * rank if len(values) == 1 else values


def q8(
    node: Node,
    op: str,
    x: Operand,
    w: Operand,
    weight: Constant,
    bias_arg: Arg,
    geometry: tuple[Arg, ...],
    draft: Draft,
    rules: FuseRules,
    passed: tuple[str, ...] = (),
) -> Rewrite | Reject:
    """The q8 `op` of a node with quantized input x and the constant weight w, codes [O, ...].

    weight: the constant that w.codes names, added to the graph if it is new. bias_arg: the node's
    bias as it stands, or None. passed: nodes between the dequantize of w and this one.
    """
    y = result(node, (x,), draft, rules.fold_activation)
    if isinstance(y, Reject):
        return y
    bias = bias_of(node, bias_arg, weight.type.sizes[0], x, w, draft, rules)
    if isinstance(bias, Reject):
        return bias
    scale = bias_scale(float(x.qparams.scale[0]), w.qparams.scale)
    r = ratio(scale, y.qparams.scale.astype(np.float64), node.name)
    multiplier, shift = multiplier_shift(r)
    low, high = y.code_range(node.name, rules)
    made: dict[str, NDArray[Any]] = {
        "bias": bias.codes,
        "w_zero": w.qparams.zero_point,
        "bias_scale": scale,
        "out_multiplier": multiplier,
        "out_shift": shift,
    }
    ref = {key: Const(f"{node.name}/{key}") for key in made}
    fused = replace(
        node,
        op=op,
        args=(
            x.codes, w.codes, ref["bias"], *geometry, int(x.qparams.zero_point[0]), ref["w_zero"],
            ref["bias_scale"], ref["out_multiplier"], ref["out_shift"], float(y.qparams.scale[0]),
            int(y.qparams.zero_point[0]), low, high, rules.requantize,
        ),
        types=(TensorType(y.quantize.type.shape, y.dtype),),
        origin=node.origin + y.origin,
    )  # fmt: skip
    granularity = (
        f"{w.qparams.scale.size} weight scales" if w.qparams.per_channel else "one weight scale"
    )
    name = const_name(w.codes)
    new = {} if name in draft.constants else {name: weight}
    return Rewrite(
        fused,
        (w.node.name, *passed, *bias.matched, x.node.name, node.name, *y.names),
        ("dequantize, {}, {} become {}: {}, codes kept in {}..{}",
         short(node.op), y.words, fused.op, granularity, low, high),
        new | {ref[key].name: Constant.of(value) for key, value in made.items()},
        (*bias.notes, *_overflow(x, w, weight, bias.codes)),
    )  # fmt: skip


def _overflow(
    x: Operand, w: Operand, weight: Constant, bias: NDArray[np.int32]
) -> tuple[Note, ...]:
    """A warning if some input could wrap the int32 sum around."""
    if weight.array is None or not weight.array.size:
        return ()
    centred = weight.array.astype(np.int64) - w.qparams.spread(
        w.qparams.zero_point, weight.type.rank
    )
    bound = prod(weight.type.sizes[1:]) * reach(x) * int(np.abs(centred).max()) + int(
        np.abs(bias.astype(np.int64)).max(initial=0)
    )
    return wrap_warning(bound)


def reach(x: Operand) -> int:
    """How far a code of x may lie from its zero point."""
    q = x.qparams
    return max(q.high - int(q.zero_point[0]), int(q.zero_point[0]) - q.low)


def wrap_warning(bound: int) -> tuple[Note, ...]:
    """A warning if sums up to `bound` leave int32."""
    if bound <= INT32_MAX:
        return ()
    told = ("its int32 sum may reach {}, beyond 2^31 - 1, and wrap around", bound)
    return (Note("warning", told),)


def const_name(arg: Arg) -> str:
    """The name of an argument known to be a constant."""
    assert isinstance(arg, Const)
    return arg.name
