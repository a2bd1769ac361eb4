"""Fusing conv and linear: weights, bias and requantization become constants of one q8 op."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.draft import Draft
from qtoolkit.errors import QParamError
from qtoolkit.graph import Arg, Const, Constant, Node, TensorType
from qtoolkit.passes.qdq import DEQUANTIZE, Operand, Result, operand, read_qparams, result, short
from qtoolkit.passes.rules import FuseRules
from qtoolkit.qparams import bias_codes, bias_scale, multiplier_shift, ratio
from qtoolkit.rewrite import Answer, Note, Reject, Rewrite

WEIGHTED: Mapping[str, str] = {
    "aten.conv1d.default": "q8_conv1d",
    "aten.conv1d.padding": "q8_conv1d",
    "aten.conv2d.default": "q8_conv2d",
    "aten.conv2d.padding": "q8_conv2d",
    "aten.linear.default": "q8_linear",
}
INT32_MAX = 2**31 - 1


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
    y = result(node, (x,), draft, rules.fold_activation)
    if isinstance(y, Reject):
        return y
    geometry = _geometry(node, draft.constants[_const(w.codes)].type.sizes)
    if isinstance(geometry, Reject):
        return geometry
    bias = _bias(node, x, w, draft, rules)
    if isinstance(bias, Reject):
        return bias
    return _fused(node, x, w, y, geometry, bias, draft, rules)


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


def _bias(
    node: Node, x: Operand, w: Operand, draft: Draft, rules: FuseRules
) -> tuple[NDArray[np.int32], tuple[Note, ...], tuple[str, ...]] | Reject:
    """The int32 bias codes, notes, and the dequantize matched on the way."""
    arg = node.args[2]
    channels = draft.constants[_const(w.codes)].type.sizes[0]
    if arg is None:
        return np.zeros(channels, np.int32), (), ()
    x_scale = float(x.qparams.scale[0])
    matched: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    if isinstance(arg, Const):
        real = draft.constants[arg.name].array
    else:
        source = draft[next(node.with_args([arg]).refs()).node]
        if source.op not in DEQUANTIZE or not isinstance(source.args[0], Const):
            return Reject(("its bias %{} is computed at run time", source.name))
        matched = (source.name,)
        codes = draft.constants[source.args[0].name].array
        stated = _bias_qparams(source, draft)
        expected = bias_scale(x_scale, w.qparams.scale).astype(np.float32)
        kept = np.array_equal(stated[0], np.broadcast_to(expected, stated[0].shape))
        if codes is not None and kept and not stated[1].any():
            return codes.astype(np.int32), (), matched
        notes = (Note("bias", ("bias requantized: its scale {} is not x_scale * w_scale {}",
                               float(stated[0].flat[0]), float(expected.flat[0]))),)  # fmt: skip
        real = None if codes is None else (codes.astype(np.float64) - stated[1]) * stated[0]
    if real is None:
        return Reject(("its bias has no values",))
    wanted = bias_codes(real, x_scale, w.qparams.scale)
    over = np.flatnonzero(np.abs(wanted) > INT32_MAX)
    if over.size:
        worst = int(over[np.argmax(np.abs(wanted[over]))])
        told = (
            "bias of channel {} is {:.6g}, code {:.4g}, beyond int32 ({} of {} channels are); its "
            "least admissible scale is {:.4g}",
            worst, float(real[worst]), float(wanted[worst]), over.size, wanted.size,
            abs(float(real[worst])) / INT32_MAX,
        )  # fmt: skip
        if rules.strict:
            raise QParamError(f"%{node.name}: " + told[0].format(*told[1:]))
        return Reject(told)
    return wanted.astype(np.int32), notes, matched


def _bias_qparams(node: Node, draft: Draft) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scale and zero point of an imported bias; the derived scale may leave a tensor's domain."""
    try:
        q = read_qparams(node, draft)
        return q.scale, q.zero_point.astype(np.int64)
    except QParamError:
        scale, zero = node.args[1], node.args[2]
        s = draft.constants[scale.name].array if isinstance(scale, Const) else scale
        z = draft.constants[zero.name].array if isinstance(zero, Const) else zero
        return (
            np.atleast_1d(np.asarray(s, np.float64)).astype(np.float32),
            np.atleast_1d(np.asarray(z, np.int64)),
        )


def _fused(
    node: Node,
    x: Operand,
    w: Operand,
    y: Result,
    geometry: tuple[Arg, ...],
    bias: tuple[NDArray[np.int32], tuple[Note, ...], tuple[str, ...]],
    draft: Draft,
    rules: FuseRules,
) -> Rewrite:
    codes, notes, bias_nodes = bias
    scale = bias_scale(float(x.qparams.scale[0]), w.qparams.scale)
    r = ratio(scale, y.qparams.scale.astype(np.float64), node.name)
    multiplier, shift = multiplier_shift(r)
    low, high = y.code_range(node.name, rules)
    made: dict[str, NDArray[Any]] = {
        "bias": codes,
        "w_zero": w.qparams.zero_point,
        "bias_scale": scale,
        "out_multiplier": multiplier,
        "out_shift": shift,
    }
    ref = {key: Const(f"{node.name}/{key}") for key in made}
    fused = replace(
        node,
        op=WEIGHTED[node.op],
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
    notes += _overflow(node, x, w, codes, draft)
    return Rewrite(
        fused,
        (w.node.name, *bias_nodes, x.node.name, node.name, *y.names),
        ("dequantize, {}, {} become {}: {}, codes kept in {}..{}",
         short(node.op), y.words, fused.op, granularity, low, high),
        {ref[key].name: Constant.of(value) for key, value in made.items()},
        notes,
    )  # fmt: skip


def _overflow(
    node: Node, x: Operand, w: Operand, bias: NDArray[np.int32], draft: Draft
) -> tuple[Note, ...]:
    """A warning if some input could wrap the int32 sum around."""
    weight = draft.constants[_const(w.codes)]
    if weight.array is None or not weight.array.size:
        return ()
    q = x.qparams
    reach_x = max(q.high - int(q.zero_point[0]), int(q.zero_point[0]) - q.low)
    centred = weight.array.astype(np.int64) - w.qparams.spread(
        w.qparams.zero_point, weight.type.rank
    )
    bound = prod(weight.type.sizes[1:]) * reach_x * int(np.abs(centred).max()) + int(
        np.abs(bias.astype(np.int64)).max(initial=0)
    )
    if bound <= INT32_MAX:
        return ()
    return (
        Note("warning", ("its int32 sum may reach {}, beyond 2^31 - 1, and wrap around", bound)),
    )


def _const(arg: Arg) -> str:
    assert isinstance(arg, Const)
    return arg.name
