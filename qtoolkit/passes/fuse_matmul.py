"""Fusing matrix products: by a constant matrix to q8_linear, of two activations to q8_matmul."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from qtoolkit.draft import Draft
from qtoolkit.graph import Arg, Const, Constant, Node, Ref
from qtoolkit.passes.fuse_other import first_alone, per_channel_refused, rewritten
from qtoolkit.passes.fuse_weighted import const_name, q8, reach, wrap_warning
from qtoolkit.passes.qdq import Operand, operand, result, short
from qtoolkit.passes.rules import FuseRules
from qtoolkit.qparams import multiplier_shift, ratio
from qtoolkit.rewrite import Answer, Reject


class Places(NamedTuple):
    """The schema positions of the two matrices and of the bias."""

    a: int
    b: int
    bias: int | None = None


PRODUCTS: Mapping[str, Places] = {
    "aten.addmm.default": Places(1, 2, 0),
    "aten.mm.default": Places(0, 1),
    "aten.bmm.default": Places(0, 1),
    "aten.matmul.default": Places(0, 1),
}
TRANSPOSES: Mapping[str, tuple[tuple[Arg, ...], ...]] = {
    "aten.t.default": ((),),
    "aten.numpy_T.default": ((),),
    "aten.mT.default": ((),),
    "aten.transpose.int": ((0, 1), (1, 0), (-1, -2), (-2, -1)),
    "aten.permute.default": (((1, 0),), ((-1, -2),)),
}
TRANSPOSED = "/transposed"
BY_QUANTIZER = "_transposed"  # how quantizer/matrices.py calls a constant that it transposed


def fuse_matmul(node: Node, draft: Draft, rules: FuseRules) -> Answer:
    """dequantize -> addmm, mm, bmm or matmul (-> activation) -> quantize becomes one q8 op."""
    if node.op not in PRODUCTS:
        return None
    at = PRODUCTS[node.op]
    if at.bias is not None and tuple(node.args[3:5]) != (1, 1):
        return Reject(("beta {} and alpha {} are not both 1", *node.args[3:5]))
    a, (b, passed) = operand(node.args[at.a], draft), _matrix(node.args[at.b], draft)
    if a is None or b is None:
        return Reject(("its {} matrix is not quantized", "first" if a is None else "second"))
    if isinstance(b.codes, Const) and draft.constants[b.codes.name].type.rank == 2:
        bias = None if at.bias is None else node.args[at.bias]
        return _by_constant(node, a, b, passed, bias, draft, rules)
    if at.bias is not None:
        return Reject(("it adds a bias to a product of two activations, which q8_matmul does not",))
    return _of_activations(node, a, b, draft, rules)


def _matrix(arg: Arg, draft: Draft) -> tuple[Operand | None, tuple[str, ...]]:
    """The second matrix, read through the transpose of a constant; that transpose, if any."""
    through = draft[arg.node] if isinstance(arg, Ref) else None
    if through is not None and tuple(through.args[1:]) in TRANSPOSES.get(through.op, ()):
        stored = operand(through.args[0], draft)
        if stored is not None and isinstance(stored.codes, Const) and through.type.rank == 2:
            return stored, (through.name,)
    return operand(arg, draft), ()


def _by_constant(
    node: Node,
    x: Operand,
    w: Operand,
    passed: tuple[str, ...],
    bias: Arg,
    draft: Draft,
    rules: FuseRules,
) -> Answer:
    """q8_linear by the transposed matrix. w is as stored: [K,N], or [N,K] if `passed`."""
    refused = per_channel_refused(x) or _per_channel(node, w, bool(passed))
    if refused:
        return refused
    name = const_name(w.codes)
    weight = draft.constants[name]
    if not passed:
        if weight.array is None:
            return Reject(("its weight has no values",))
        weight = Constant.of(weight.array.T)
        w = replace(w, codes=Const(_turned(name, draft)))
    return q8(node, "q8_linear", x, w, weight, bias, (), draft, rules, passed)


def _turned(name: str, draft: Draft) -> str:
    """The name of a constant's transpose: 'w/transposed', or 'w' if that is what it transposes."""
    before = name.removesuffix(BY_QUANTIZER)
    taken = before == name or before in draft.constants
    return name + TRANSPOSED if taken else before


def _per_channel(node: Node, w: Operand, turned: bool) -> Reject | None:
    axis = w.qparams.axis
    if axis is None:
        return None
    axis = 1 - axis if turned else axis
    told = "its weight is per-channel along axis {} ({} scales), {}; {} takes one weight scale"
    why = (
        "which is K, the axis it sums over: scales of single terms cannot leave the sum"
        if axis == 0
        else "its outputs, as linear has them along axis 0; use linear for it"
    )
    return Reject((told, axis, w.qparams.scale.size, why, short(node.op)))


def _of_activations(node: Node, a: Operand, b: Operand, draft: Draft, rules: FuseRules) -> Answer:
    refused = per_channel_refused(a, b) or first_alone((a, b), rules)
    if refused:
        return refused
    y = result(node, (a, b), draft, rules.fold_activation)
    if isinstance(y, Reject):
        return y
    scale = a.qparams.scale.astype(np.float64) * b.qparams.scale.astype(np.float64)
    r = ratio(scale, y.qparams.scale.astype(np.float64), node.name)
    multiplier, shift = multiplier_shift(r)
    made = {"out_multiplier": Constant.of(multiplier), "out_shift": Constant.of(shift)}
    low, high = y.code_range(node.name, rules)
    args: tuple[Arg, ...] = (
        a.codes, b.codes, int(a.qparams.zero_point[0]), int(b.qparams.zero_point[0]),
        *(Const(f"{node.name}/{key}") for key in made), float(y.qparams.scale[0]),
        int(y.qparams.zero_point[0]), low, high, rules.requantize,
    )  # fmt: skip
    constants = {f"{node.name}/{key}": value for key, value in made.items()}
    terms = a.node.type.sizes[-1] if a.node.type.rank else 1
    notes = wrap_warning(terms * reach(a) * reach(b))
    return rewritten(node, "q8_matmul", args, (a, b), y, constants, notes)
