"""The ops that stay float in a quantized graph, each with its reason."""

from collections.abc import Mapping

from qtoolkit.draft import Draft
from qtoolkit.graph import Node
from qtoolkit.ops import OPS
from qtoolkit.passes.qdq import ACTIVATIONS, DEQUANTIZE, QUANTIZE, operand
from qtoolkit.passes.rules import FuseRules
from qtoolkit.rewrite import Answer, Reject

_NORM = "it divides by a deviation that it takes from the values themselves, in float32"
_BATCH = "one is folded only right after a conv or a linear of rank 2, of constant weights"
_SOFTMAX = "exp and the sum of its results need more range than 256 codes of one scale"
_CURVE = "it is a curve of the real value; a table of 256 codes would do, and none is there yet"

LEFT_FLOAT: Mapping[str, str] = {
    "aten.layer_norm.default": _NORM,
    "aten.native_layer_norm.default": _NORM,
    "aten.group_norm.default": _NORM,
    "aten.instance_norm.default": _NORM,
    "aten.batch_norm.default": _BATCH,
    "aten.softmax.int": _SOFTMAX,
    "aten._softmax.default": _SOFTMAX,
    "aten._safe_softmax.default": _SOFTMAX,
    "aten.log_softmax.int": _SOFTMAX,
    "aten.scaled_dot_product_attention.default": _SOFTMAX,
    "aten.gelu.default": _CURVE,
    "aten.sigmoid.default": _CURVE,
    "aten.silu.default": _CURVE,
    "aten.tanh.default": _CURVE,
    "aten.hardsigmoid.default": _CURVE,
    "aten.hardswish.default": _CURVE,
}


def no_form(op: str) -> str:
    """The refusal of an op that has no int8 form, with its reason where one is listed."""
    reason = LEFT_FLOAT.get(op)
    return f"there is no int8 form of {op}" + (f": {reason}" if reason else "")


def explain_float(node: Node, draft: Draft, rules: FuseRules) -> Answer:
    """An op that reads dequantized values and that no rule knows: say so."""
    known = node.op in OPS and (OPS[node.op].moves or node.op in ACTIVATIONS)
    if known or node.op in (*QUANTIZE, *DEQUANTIZE, "input", "getitem"):
        return None
    if any(operand(ref, draft) for ref in node.refs()):
        return Reject(("{}", no_form(node.op)))
    return None
