"""Reading the quantize and dequantize nodes that stand around an op."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.draft import Draft
from qtoolkit.errors import GraphError
from qtoolkit.graph import Arg, Const, DType, Node, Ref
from qtoolkit.passes.rules import FuseRules
from qtoolkit.qparams import QParams, fused_range
from qtoolkit.rewrite import Reject

_D = "quantized_decomposed."
QUANTIZE = (_D + "quantize_per_tensor.default", _D + "quantize_per_tensor.tensor",
            _D + "quantize_per_channel.default")  # fmt: skip
DEQUANTIZE = (_D + "dequantize_per_tensor.default", _D + "dequantize_per_tensor.tensor",
              _D + "dequantize_per_channel.default")  # fmt: skip
ACTIVATIONS = (
    "aten.relu.default", "aten.relu6.default", "aten.hardtanh.default", "aten.clamp.default",
    "aten.clamp_min.default", "aten.clamp_max.default",
)  # fmt: skip
Bounds = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Operand:
    """A dequantized operand: its codes, their meaning, and the dequantize node it comes from."""

    codes: Arg
    qparams: QParams
    node: Node
    dtype: DType


@dataclass(frozen=True, slots=True)
class Result:
    """The way from an op to its quantize: nodes passed, clamp bounds, the codes' meaning."""

    chain: tuple[Node, ...]
    bounds: Bounds
    qparams: QParams
    dtype: DType

    @property
    def quantize(self) -> Node:
        return self.chain[-1]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(n.name for n in self.chain)

    def code_range(self, name: str, rules: FuseRules) -> tuple[int, int]:
        """The codes (low, high) that the op keeps to; `name` is the node that errors name."""
        if not rules.check_relu_zero_point:
            return self.qparams.low, self.qparams.high
        return fused_range(self.bounds, self.qparams, name)

    @property
    def words(self) -> str:
        """The ops passed, by their short names: 'relu, quantize'."""
        return ", ".join(short(n.op) for n in self.chain)

    @property
    def origin(self) -> tuple[str, ...]:
        """Captured nodes passed on the way, the quantize left out."""
        return tuple(o for n in self.chain[:-1] for o in n.origin)


def short(op: str) -> str:
    """An op's name as people say it: 'conv2d' for 'aten.conv2d.default'."""
    if op in QUANTIZE:
        return "quantize"
    return op.split(".")[1] if "." in op else op


def operand(arg: Arg, draft: Draft) -> Operand | None:
    """The argument as a dequantized operand, or None if it is not one."""
    if not isinstance(arg, Ref) or draft[arg.node].op not in DEQUANTIZE:
        return None
    node = draft[arg.node]
    return Operand(node.args[0], read_qparams(node, draft), node, _dtype(node.args[0], draft))


def result(
    node: Node, operands: Sequence[Operand], draft: Draft, fold_activation: bool = True
) -> Result | Reject:
    """Follow a node's only reader, through an activation if there is one, to a quantize.

    The codes must be of one dtype from the operands to there.
    """
    chain: list[Node] = []
    bounds: Bounds = (None, None)
    at = node
    while True:
        readers = draft.readers(at.name)
        if draft.returned(at.name):
            return Reject(("%{} is an output of the graph, and float", at.name))
        if len(readers) != 1:
            return Reject(("{} nodes read %{}; one quantize would do", len(readers), at.name))
        at = draft[readers[0]]
        chain.append(at)
        if at.op in QUANTIZE:
            if at.op.endswith("per_channel.default"):
                return Reject(("%{} quantizes an activation per channel", at.name))
            dtype = at.args[-1]
            if not isinstance(dtype, DType):
                raise GraphError(f"%{at.name}: {dtype!r} is not a dtype")
            for unlike in (o for o in operands if o.dtype != dtype):
                told = ("%{} holds {} codes, %{} makes {}; no kernel changes one to the other",
                        unlike.node.name, unlike.dtype, at.name, dtype)  # fmt: skip
                return Reject(told)
            return Result(tuple(chain), bounds, read_qparams(at, draft), dtype)
        if at.op not in ACTIVATIONS or not fold_activation or len(chain) > 1:
            return Reject(("its result goes to {} (%{}), not to a quantize", at.op, at.name))
        bounds = activation_bounds(at)


def activation_bounds(node: Node) -> Bounds:
    """The clamp that an activation is: relu (0, None), relu6 (0, 6), the others as given."""
    match node.op.split(".")[1]:
        case "relu":
            return 0.0, None
        case "relu6":
            return 0.0, 6.0
        case "clamp_min":
            return _number(node, 1), None
        case "clamp_max":
            return None, _number(node, 1)
        case _:
            return _number(node, 1), _number(node, 2)


def _number(node: Node, position: int) -> float | None:
    value = node.args[position] if position < len(node.args) else None
    if value is None or isinstance(value, int | float):
        return None if value is None else float(value)
    raise GraphError(f"%{node.name}: clamp bound {value!r} is not a number")


def read_qparams(node: Node, draft: Draft) -> QParams:
    """The qparams that a quantize or dequantize node states. Raises QParamError naming it."""
    if node.op.endswith("per_channel.default"):
        _, scale, zero, axis, low, high, *_ = node.args
    else:
        (_, scale, zero, low, high, *_), axis = node.args, None
    if not isinstance(low, int) or not isinstance(high, int):
        raise GraphError(f"%{node.name}: code range {low!r}..{high!r} is not two integers")
    s, z = _values(scale, node, draft), _values(zero, node, draft)
    if axis is not None and not isinstance(axis, int):
        raise GraphError(f"%{node.name}: axis {axis!r} is not an integer")
    if axis is not None and axis < 0:
        axis += node.type.rank
    if z.size == 0 and s.size == 1:
        z = np.zeros(1, np.int32)
    return QParams.of(s.reshape(-1), z.reshape(-1), low, high, axis, name=node.name)


def stated_scale(node: Node) -> float | None:
    """The scale as the program states it in float64, where it is a plain number."""
    scale = node.args[1]
    return float(scale) if isinstance(scale, float) else None


def _dtype(codes: Arg, draft: Draft) -> DType:
    if isinstance(codes, Ref):
        return draft[codes.node].types[codes.index].dtype
    if isinstance(codes, Const):
        return draft.constants[codes.name].type.dtype
    raise GraphError(f"a dequantize reads {codes!r}, which is no tensor")


def _values(arg: Arg, node: Node, draft: Draft) -> NDArray[Any]:
    if isinstance(arg, Const):
        array = draft.constants[arg.name].array
        if array is None:
            raise GraphError(f"%{node.name}: qparams {arg} have no values; load the weights too")
        return array
    if isinstance(arg, int | float):
        return np.asarray(arg)
    raise GraphError(
        f"%{node.name}: its scale or zero point is computed at run time ({arg}); dynamic "
        "quantization is not fused yet"
    )
