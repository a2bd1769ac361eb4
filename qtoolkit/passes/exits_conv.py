"""Exits of convolutions: channels last, im2row and linear, linear alone."""

from collections.abc import Sequence
from dataclasses import replace

from qtoolkit.draft import Draft
from qtoolkit.graph import Arg, Const, Constant, Node, Ref, TensorType
from qtoolkit.ops import OPS
from qtoolkit.ops.shapes import per_axis
from qtoolkit.passes.exits_other import argument, granularity_lost
from qtoolkit.passes.rules import FuseRules
from qtoolkit.rewrite import Answer, Note, Reject, Rewrite

LAST = {"q8_conv1d": "q8_conv1d_nlc", "q8_conv2d": "q8_conv2d_nhwc"}
GEOMETRY = slice(3, 7)  # stride, padding, dilation, groups
VECTORS = ("w_zero", "bias_scale", "out_multiplier", "out_shift")


def trivial_conv_as_linear(node: Node, draft: Draft, rules: FuseRules) -> Answer:
    """A conv whose kernel covers its input is a linear of the flattened input."""
    if node.op not in LAST:
        return None
    x, w = _type(node.args[0], draft), _type(node.args[1], draft)
    _, padding, dilation, groups = _geometry(node)
    if x.sizes[1:] != w.sizes[1:] or groups != 1 or any(padding) or any(d != 1 for d in dilation):
        return None
    width = w.numel // w.sizes[0]
    flat = draft.fresh(f"{node.name}_flat")
    shape = (x.sizes[0], width)
    view = _node(node, flat, "aten.view.default", (node.args[0], shape), shape)
    linear, constants, notes = _linear(node, Ref(flat), draft, rules, shape[:1])
    last = replace(node, op="aten.view.default", args=(Ref(linear.name), node.type.sizes))
    why = ("its kernel covers its input: a linear over {} codes", width)
    return Rewrite(last, (node.name,), why, constants, notes, (view, linear), kind="exit")


def channels_last(node: Node, draft: Draft, rules: FuseRules) -> Answer:
    """A conv gets channels as the last axis of input, weight and result, between permutes."""
    if node.op not in LAST:
        return None
    rank = node.type.rank
    to_last, to_first = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
    x, w = _type(node.args[0], draft), _const(node.args[1])
    before, inner = draft.fresh(f"{node.name}_input_last"), draft.fresh(f"{node.name}_last")
    order = (2, 3, 0) if _depthwise(node, draft) and rank == 4 else to_last
    weight = Const(f"{w.name}/last")
    lost, notes = granularity_lost(node, draft, rules)
    conv_args = [Ref(before), weight, *node.args[2:]]
    constants = {weight.name: _moved(draft.constants[w.name], order)}
    if lost:
        constants |= _keep_first(node, draft, conv_args)
    permute = _node(node, before, "aten.permute.default", (node.args[0], to_last),
                    [x.sizes[i] for i in to_last])  # fmt: skip
    y = [node.type.sizes[i] for i in to_last]
    conv = _node(node, inner, LAST[node.op], tuple(conv_args), y)
    last = replace(node, op="aten.permute.default", args=(Ref(inner), to_first))
    why = ("channels last: {} between permutes, weight in the order {}", LAST[node.op], order)
    return Rewrite(last, (node.name,), why, constants, notes, (permute, conv), kind="exit")


def im2row_and_linear(node: Node, draft: Draft, rules: FuseRules) -> Answer:
    """A dense 2-D conv becomes its windows as rows, and a linear with its multiplier and shift."""
    if node.op not in ("q8_conv2d", "q8_conv2d_nhwc"):
        return None
    last = node.op == "q8_conv2d_nhwc"
    stride, padding, dilation, groups = _geometry(node)
    w = _type(node.args[1], draft)
    if groups != 1:
        return Reject(("im2row: groups={} would mix what groups keep apart", groups))
    taps = w.sizes[1:3] if last else w.sizes[2:]
    if set(taps) == {1} and set(stride) == {1} and not any(padding):
        return Reject(("im2row: its windows are single cells; a linear already",))
    N, *sizes = node.type.sizes
    out = sizes[:2] if last else sizes[1:]
    width, cells = w.numel // w.sizes[0], out[0] * out[1]
    rows = draft.fresh(f"{node.name}_rows")
    args = (node.args[0], taps, dilation, padding, stride, argument(node, "x_zero"), last)
    made = _node(node, rows, "im2row", args, (N, cells, width))
    linear, constants, notes = _linear(node, Ref(rows), draft, rules, (N, cells))
    value, extra = Ref(linear.name), []
    if not last:
        turned = draft.fresh(f"{node.name}_turned")
        extra = [_node(node, turned, "aten.transpose.int", (value, 1, 2), (N, w.sizes[0], cells))]
        value = Ref(turned)
    view = replace(node, op="aten.view.default", args=(value, node.type.sizes))
    why = ("im2row: {} rows of {} codes, then a linear with the conv's multiplier and shift",
           cells, width)  # fmt: skip
    inserted = (made, linear, *extra)
    return Rewrite(view, (node.name,), why, constants, notes, inserted, kind="exit")


def _linear(
    node: Node, x: Ref, draft: Draft, rules: FuseRules, lead: Sequence[int]
) -> tuple[Node, dict[str, Constant], tuple[Note, ...]]:
    """The q8_linear that computes a conv from rows in the order [C][taps]."""
    w = _const(node.args[1])
    constant = draft.constants[w.name]
    if node.op in LAST.values():
        constant = _moved(constant, (0, 3, 1, 2))
    outputs = constant.type.sizes[0]
    flat = Const(f"{w.name}/rows")
    args = [x, flat, node.args[2], *node.args[GEOMETRY.stop :]]
    constants = {flat.name: _reshaped(constant, (outputs, constant.type.numel // outputs))}
    lost, notes = granularity_lost(node, draft, rules)
    name = draft.fresh(f"{node.name}_linear")
    made = _node(node, name, "q8_linear", tuple(args), (*lead, outputs))
    if lost:
        constants |= _keep_first(made, draft, args)
        made = replace(made, args=tuple(args))
    return made, constants, notes


def _keep_first(node: Node, draft: Draft, args: list[Arg]) -> dict[str, Constant]:
    """Cut the vectors among the arguments to element 0; the constants that takes."""
    made: dict[str, Constant] = {}
    for name in VECTORS:
        at = OPS[node.op].position(name)
        whole = _const(args[at])
        array = draft.constants[whole.name].array
        if array is not None:
            cut = Const(f"{whole.name}/channel_0")
            made[cut.name] = Constant.of(array[:1])
            args[at] = cut
    return made


def _node(like: Node, name: str, op: str, args: tuple[Arg, ...], sizes: Sequence[int]) -> Node:
    kind = TensorType(tuple(sizes), like.type.dtype)
    return replace(like, name=name, op=op, args=args, types=(kind,), origin=())


def _geometry(node: Node) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
    stride, padding, dilation, groups = node.args[GEOMETRY]
    axes = node.type.rank - 2
    assert isinstance(groups, int)
    s, p, d = (per_axis(v, axes, "geometry") for v in (stride, padding, dilation))  # type: ignore[arg-type]
    return tuple(s), tuple(p), tuple(d), groups


def _depthwise(node: Node, draft: Draft) -> bool:
    x, w = _type(node.args[0], draft), _type(node.args[1], draft)
    groups = node.args[GEOMETRY.stop - 1]
    return groups == x.sizes[1] and groups != 1 and w.sizes[1] == 1


def _moved(constant: Constant, order: Sequence[int]) -> Constant:
    if constant.array is not None:
        kept = constant.array[:, 0] if len(order) < constant.type.rank else constant.array
        axes = (1, 2, 0) if len(order) < constant.type.rank else order
        return Constant.of(kept.transpose(axes))
    return Constant(replace(constant.type, shape=tuple(constant.type.shape[i] for i in order)))


def _reshaped(constant: Constant, shape: tuple[int, ...]) -> Constant:
    if constant.array is not None:
        return Constant.of(constant.array.reshape(shape))
    return Constant(replace(constant.type, shape=shape))


def _type(arg: Arg, draft: Draft) -> TensorType:
    if isinstance(arg, Ref):
        return draft[arg.node].types[arg.index]
    return draft.constants[_const(arg).name].type


def _const(arg: Arg) -> Const:
    assert isinstance(arg, Const)
    return arg
