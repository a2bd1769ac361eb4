"""What every op means: the table OPS, and the rules that follow a graph through it."""

from typing import Any

from qtoolkit.graph import Arg, Const, Graph, Node, Ref
from qtoolkit.ops import (
    activation,
    conv,
    conv_last,
    elementwise,
    embedding,
    linear,
    matmul,
    move,
    pool,
    quant,
    requantize,
)
from qtoolkit.ops.spec import Example, OpSpec
from qtoolkit.qparams import QParams

__all__ = ["OPS", "Example", "OpSpec", "tensor_qparams"]

OPS: dict[str, OpSpec] = {
    spec.name: spec
    for spec in (
        *quant.SPECS,
        *conv.SPECS,
        *conv_last.SPECS,
        *linear.SPECS,
        *matmul.SPECS,
        *elementwise.SPECS,
        *requantize.SPECS,
        *pool.SPECS,
        *move.SPECS,
        *activation.SPECS,
        *embedding.SPECS,
    )
}


def tensor_qparams(graph: Graph) -> dict[str, QParams | None]:
    """What the codes of each node's results mean, by node name; None where they are not codes.

    Inputs and results of ops outside OPS count as not quantized.
    """
    found: dict[str, QParams | None] = {}
    for node in graph.nodes:
        spec = OPS.get(node.op)
        found[node.name] = None if spec is None else _qparams(node, spec, graph, found)
    return found


def _qparams(
    node: Node, spec: OpSpec, graph: Graph, found: dict[str, QParams | None]
) -> QParams | None:
    def operand(arg: Arg, constant: bool) -> Any:
        if isinstance(arg, tuple):
            return tuple(operand(a, constant) for a in arg)
        if isinstance(arg, Ref):
            return found[arg.node]
        if isinstance(arg, Const):
            return graph.constants[arg.name].array if constant else None
        return arg

    # An opaque node of a known name may bear fewer arguments than the schema.
    named = zip(node.args, spec.schema, strict=False)
    return spec.qparams(*(operand(arg, name in spec.constants) for arg, name in named))
