"""Fusing everything but conv and linear: add, pools, moves of codes, clamps, and what remains."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.draft import NOTHING, Draft
from qtoolkit.graph import Arg, Const, Constant, DType, Node, Ref, TensorType
from qtoolkit.ops import OPS
from qtoolkit.passes.qdq import (
    ACTIVATIONS,
    DEQUANTIZE,
    QUANTIZE,
    Operand,
    Result,
    activation_bounds,
    operand,
    read_qparams,
    result,
    short,
    stated_scale,
)
from qtoolkit.passes.rules import FuseRules
from qtoolkit.qparams import QParams, fused_range, multiplier_shift, ratio
from qtoolkit.rewrite import Answer, Forward, Note, Reject, Rewrite

POOLS = {
    "aten.avg_pool2d.default": "q8_avg_pool2d",
    "aten.adaptive_avg_pool2d.default": "q8_adaptive_avg_pool2d",
}
PADS = ("aten.pad.default", "aten.constant_pad_nd.default")


def fuse_add(node: Node, draft: Draft, rules: FuseRules) -> Answer:
    """Two dequantized operands, their sum, (an activation,) a quantize: q8_add."""
    if node.op != "aten.add.Tensor":
        return None
    a, b = operand(node.args[0], draft), operand(node.args[1], draft)
    if a is None or b is None:
        return Reject(("operand {} is not quantized", "ab"[a is not None]))
    refused = per_channel_refused(a, b) or first_alone((a, b), rules)
    if refused:
        return refused
    alpha = node.args[2]
    if not isinstance(alpha, int | float) or not isfinite(alpha) or alpha < 0:
        return Reject(("alpha {} is not a finite number >= 0", alpha))
    y = result(node, (a, b), draft, rules.fold_activation)
    if isinstance(y, Reject):
        return y
    for factor in (a.qparams.scale, float(alpha) * b.qparams.scale.astype(np.float64)):
        ratio(factor, y.qparams.scale, node.name)
    low, high = y.code_range(node.name, rules)
    args: tuple[Arg, ...] = (
        a.codes, b.codes, *_scale_zero(a.qparams), *_scale_zero(b.qparams), float(alpha),
        *_scale_zero(y.qparams), low, high,
    )  # fmt: skip
    return rewritten(node, "q8_add", args, (a, b), y)


def fuse_pool(node: Node, draft: Draft, rules: FuseRules) -> Answer:
    """An average pool between dequantize and quantize."""
    if node.op not in POOLS:
        return None
    x = operand(node.args[0], draft)
    if x is None:
        return Reject(("its input is not quantized",))
    refused = per_channel_refused(x)
    if refused:
        return refused
    y = result(node, (x,), draft, rules.fold_activation)
    if isinstance(y, Reject):
        return y
    low, high = y.code_range(node.name, rules)
    divisor = node.args[6] if node.op == "aten.avg_pool2d.default" else None
    if isinstance(divisor, int) and divisor <= 0:
        return Reject(("divisor_override {} is not above 0", divisor))
    # The windows only shrink the ratio, so a ratio in bounds at count 1 stays in bounds.
    ratio(x.qparams.scale, y.qparams.scale, node.name)
    args = (
        x.codes, *node.args[1:], *_scale_zero(x.qparams), *_scale_zero(y.qparams), low, high,
    )  # fmt: skip
    return rewritten(node, POOLS[node.op], args, (x,), y)


def fuse_move(node: Node, draft: Draft, rules: FuseRules) -> Answer:
    """An op that only moves values works on codes; unlike qparams behind it are requantized."""
    spec = OPS.get(node.op)
    if spec is None or not spec.moves or node.op.startswith("aten.cat") or not node.args:
        return None
    x = operand(node.args[0], draft)
    if x is None:
        return _not_quantized(node)
    refused = per_channel_refused(x)
    if refused:
        return refused
    if len(node.types) > 1:
        return Reject(("it has {} results", len(node.types)))
    y = result(node, (x,), draft, fold_activation=False)
    if isinstance(y, Reject):
        return y
    args = list(node.with_args([x.codes, *node.args[1:]]).args)
    if node.op in PADS:
        refused = _pad_with_code(node, args, x.qparams)
        if refused:
            return refused
    moved = replace(node, args=tuple(args), types=(TensorType(node.type.shape, y.dtype),))
    if y.qparams == x.qparams:
        return Rewrite(moved, (x.node.name, node.name, *y.names),
                       ("{} moves values only: it works on codes", short(node.op)))  # fmt: skip
    requantized, constants = requantize(y.quantize, Ref(node.name), x.qparams, y, node.name)
    return Rewrite(
        moved,
        (x.node.name, node.name),
        ("{} moves values only: it works on codes, then {} changes their scale",
         short(node.op), y.quantize.name),
        constants,
        also=(requantized,),
    )  # fmt: skip


def fuse_cat(node: Node, draft: Draft, rules: FuseRules) -> Answer:
    """cat of codes; branches whose qparams differ from the result's are requantized first."""
    if node.op != "aten.cat.default":
        return None
    parts = node.args[0] if isinstance(node.args[0], tuple) else ()
    branches = [operand(part, draft) for part in parts]
    known = [b for b in branches if b is not None]
    if len(known) != len(branches) or not known:
        return Reject(("{} of {} branches are quantized", len(known), len(branches)))
    refused = per_channel_refused(*known) or first_alone(known, rules)
    if refused:
        return refused
    y = result(node, known, draft, fold_activation=False)
    if isinstance(y, Reject):
        return y
    inputs: list[Arg] = []
    inserted: list[Node] = []
    constants: dict[str, Constant] = {}
    for i, branch in enumerate(known):
        if branch.qparams == y.qparams:
            inputs.append(branch.codes)
            continue
        # The dequantize lends its place in the program to the requantize that replaces it.
        like = replace(branch.node, name=draft.fresh(f"{node.name}_requantize_{i}"))
        made, extra = requantize(like, branch.codes, branch.qparams, y, like.name)
        inserted.append(made)
        constants |= extra
        inputs.append(Ref(made.name))
    fused = replace(
        node,
        args=(tuple(inputs), *node.args[1:]),
        types=(TensorType(node.type.shape, y.dtype),),
        origin=node.origin + y.origin,
    )
    return Rewrite(
        fused,
        (*dict.fromkeys(b.node.name for b in known), node.name, *y.names),
        ("cat works on codes; {} of {} branches requantized to the joint scale",
         len(inserted), len(known)),
        constants,
        insert=tuple(inserted),
    )  # fmt: skip


def fuse_activation(node: Node, draft: Draft, rules: FuseRules) -> Answer:
    """A relu or clamp that no op before it took in: a clamp of codes, or a requantize with one."""
    if node.op not in ACTIVATIONS:
        return None
    x = operand(node.args[0], draft)
    if x is None:
        return _not_quantized(node)
    refused = per_channel_refused(x)
    if refused:
        return refused
    y = result(node, (x,), draft, fold_activation=False)
    if isinstance(y, Reject):
        return y
    low, high = fused_range(activation_bounds(node), y.qparams, node.name)
    if y.qparams == x.qparams:
        return rewritten(node, "q8_clamp", (x.codes, low, high), (x,), y)
    made, constants = requantize(node, x.codes, x.qparams, y, node.name, (low, high))
    return Rewrite(made, (x.node.name, node.name, *y.names),
                   ("{} between unlike scales: requantize into {}..{}", short(node.op), low, high),
                   constants)  # fmt: skip


def fuse_requantize(node: Node, draft: Draft, rules: FuseRules) -> Answer:
    """dequantize -> quantize: nothing if the qparams are equal, else one requantize."""
    if node.op not in QUANTIZE:
        return None
    x = operand(node.args[0], draft)
    if x is None:
        return None
    q = read_qparams(node, draft)
    if q.per_channel or x.qparams.per_channel:
        return Reject(("codes are requantized per channel, which no kernel does here",))
    dtype = node.args[-1]
    if dtype != x.dtype:
        return Reject(("codes change from {} to {}, which no kernel does", x.dtype, dtype))
    if q == x.qparams:
        return Forward(x.codes, (x.node.name, node.name), ("equal qparams: the codes stay",))
    assert isinstance(dtype, DType)
    y = Result((node,), (None, None), q, dtype)
    made, constants = requantize(node, x.codes, x.qparams, y, node.name)
    return Rewrite(made, (x.node.name, node.name), ("the scale changes",), constants)


def fold_quantized_constant(node: Node, draft: Draft, rules: FuseRules) -> Answer:
    """quantize of a constant becomes the constant's codes."""
    if node.op not in QUANTIZE or not isinstance(node.args[0], Const):
        return None
    array = draft.constants[node.args[0].name].array
    if array is None:
        return Reject(("its constant has no values",))
    codes = read_qparams(node, draft).quantize(array).astype(node.type.dtype.value)
    name = f"{node.name}/codes"
    return Forward(Const(name), (node.name,), ("a constant, quantized once",),
                   {name: Constant.of(codes)})  # fmt: skip


def settle(node: Node, draft: Draft, rules: FuseRules) -> Answer:
    """A quantize or dequantize that stays: its qparams become constants."""
    if node.op not in (*QUANTIZE, *DEQUANTIZE):
        return None
    q = read_qparams(node, draft)
    scale, zero = Const(f"{node.name}/scale"), Const(f"{node.name}/zero_point")
    fixed: tuple[Arg, ...] = (node.args[0], scale, zero, q.axis, q.low, q.high)
    op = "dequantize"
    if node.op in QUANTIZE:
        fixed, op = (*fixed, node.args[-1]), "quantize"
    stated = stated_scale(node)
    notes: tuple[Note, ...] = ()
    if stated is not None and stated != float(q.scale[0]):
        notes = (
            Note("rounded", ("scale {!r} rounded to float32 {!r}", stated, float(q.scale[0]))),
        )
    constants = {scale.name: Constant.of(q.scale), zero.name: Constant.of(q.zero_point)}
    why = ("{} stays, on the border to float; its qparams are constants", op)
    made = replace(node, op=op, args=fixed)
    return Rewrite(made, (node.name,), why, constants, notes, kind="settle")


def requantize(
    like: Node,
    codes: Arg,
    x: QParams,
    y: Result,
    name: str,
    bounds: Sequence[int] | None = None,
) -> tuple[Node, dict[str, Constant]]:
    """A requantize node in the place of `like`, with its constants."""
    multiplier, shift = multiplier_shift(ratio(x.scale, y.qparams.scale, name))
    made: dict[str, NDArray[Any]] = {"out_multiplier": multiplier, "out_shift": shift}
    low, high = bounds or (y.qparams.low, y.qparams.high)
    node = replace(
        like,
        op="requantize",
        args=(
            codes, int(x.zero_point[0]), Const(f"{like.name}/out_multiplier"),
            Const(f"{like.name}/out_shift"), None, *_scale_zero(y.qparams), low, high, "float",
        ),
        types=(TensorType(like.type.shape, y.dtype),),
    )  # fmt: skip
    return node, {f"{like.name}/{key}": Constant.of(value) for key, value in made.items()}


def rewritten(
    node: Node,
    op: str,
    args: Sequence[Arg],
    operands: Sequence[Operand],
    y: Result,
    constants: Mapping[str, Constant] = NOTHING,
    notes: tuple[Note, ...] = (),
) -> Rewrite:
    """`op` in the place of the node, its dequantized operands and what follows to the quantize."""
    fused = replace(
        node,
        op=op,
        args=tuple(args),
        types=(TensorType(node.type.shape, y.dtype),),
        origin=node.origin + y.origin,
    )
    matched = (*dict.fromkeys(o.node.name for o in operands), node.name, *y.names)
    return Rewrite(fused, matched, ("dequantize, {}, {} become {}",
                                    short(node.op), y.words, op), constants, notes)  # fmt: skip


def _not_quantized(node: Node) -> Reject | None:
    return Reject(("its input is not quantized",)) if node.type.dtype.floating else None


def per_channel_refused(*operands: Operand) -> Reject | None:
    """A refusal of activations that have more than one scale."""
    for o in operands:
        if o.qparams.per_channel:
            return Reject(("%{} is quantized per channel, which only weights may be", o.node.name))
    return None


def first_alone(operands: Sequence[Operand], rules: FuseRules) -> Reject | None:
    """A refusal of ops with two operands where rules replace the first one alone."""
    if rules.replace_all_arguments or len({o.node.name for o in operands}) == 1:
        return None
    told = "with rule replace_all_arguments off only its first operand is replaced; %{} stays float"
    other = next(o for o in operands if o.node.name != operands[0].node.name)
    return Reject((told, other.node.name))


def _pad_with_code(node: Node, args: list[Arg], x: QParams) -> Reject | None:
    """Write quantize(value) for the padding value of a constant pad."""
    at = 3 if node.op == "aten.pad.default" else 2
    if node.op == "aten.pad.default" and node.args[2] != "constant":
        return None
    value = node.args[at] if len(node.args) > at else None
    if value is not None and not isinstance(value, int | float):
        return Reject(("padding value {} is not a number", value))
    args[at:] = [int(x.quantize(np.array(value or 0.0, np.float32)))]
    return None


def _scale_zero(q: QParams) -> tuple[float, int]:
    return float(q.scale[0]), int(q.zero_point[0])
