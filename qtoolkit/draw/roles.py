"""What a node of a graph computes on, and how it is called in a picture."""

from collections.abc import Mapping

from qtoolkit.draw.choice import WEIGHTS, is_depthwise
from qtoolkit.graph import Const, Graph, Node
from qtoolkit.ops import OPS
from qtoolkit.passes.qdq import ACTIVATIONS, DEQUANTIZE, QUANTIZE

ENTER = (*QUANTIZE, "quantize")
LEAVE = (*DEQUANTIZE, "dequantize")
SHORT = {
    "q8_add": "add",
    "q8_clamp": "clamp",
    "q8_linear": "linear",
    "aten.linear.default": "linear",
    "q8_avg_pool2d": "average pool",
    "q8_adaptive_avg_pool2d": "average pool",
    "aten.adaptive_avg_pool2d.default": "average pool",
    "aten.max_pool2d.default": "max pool",
    "transition": "copy",
    "getitem": "item",
}


def roles(graph: Graph) -> Mapping[str, str]:
    """The role of each node: int8, float, border, copy, input or unsupported.

    In a q/dq graph an op counts as int8 if its inputs are dequantized and its result, through one
    activation at most, is quantized: that is what fuse makes of it.
    """
    lowered = any(n.kernel for n in graph.nodes)
    return {n.name: _role(n, graph, lowered) for n in graph.nodes}


def role_counts(graph: Graph) -> dict[str, int]:
    """How many nodes of each role are drawn, in the order of the legend."""
    found = dict.fromkeys(("int8", "float", "unsupported", "border", "copy"), 0)
    told = roles(graph)
    for node in graph.nodes:
        if told[node.name] in found and not of_constant(node):
            found[told[node.name]] += 1
    return found


def of_constant(node: Node) -> bool:
    """A quantize or dequantize of a constant: part of the op that reads it, and not drawn."""
    return node.op in (*ENTER, *LEAVE) and isinstance(node.args[0], Const)


def op_text(graph: Graph, node: Node) -> str:
    """A node's op in a few words: 'depthwise 5×5/2', 'conv 1×1', 'add'."""
    if node.op in WEIGHTS and "conv" in node.op:
        weight = graph.type_of(node.args[1])
        size = "×".join(map(str, weight.sizes[2:])) if weight else ""
        stride = node.args[3] if isinstance(node.args[3], tuple) else (node.args[3],)
        by = f"/{max(stride)}" if stride and stride[0] != 1 else ""  # type: ignore[type-var]
        kind = "depthwise" if is_depthwise(graph, node) else "conv"
        return f"{kind} {size}{by}"
    if node.op in (*ENTER, *LEAVE):
        return "quantize" if node.op in ENTER else "dequantize"
    parts = node.op.split(".")
    return SHORT.get(node.op) or (parts[1] if len(parts) > 1 else parts[0]).replace("_", " ")


def _role(node: Node, graph: Graph, lowered: bool) -> str:
    if node.op == "input":
        return "input"
    if node.op in (*ENTER, *LEAVE):
        return "border"
    if node.op == "transition":
        return "copy"
    if node.op not in OPS and node.op != "getitem":
        return "unsupported"
    if lowered and node.kernel is None and node.op != "getitem":
        return "unsupported"
    if not any(t.dtype.floating for t in node.types):
        return "int8"
    return "int8" if _between(node, graph) else "float"


def _between(node: Node, graph: Graph) -> bool:
    """Whether a float node of a q/dq graph lies between a dequantize and a quantize."""
    return _comes_dequantized(node, graph) and _goes_quantized(node, graph)


def _comes_dequantized(node: Node, graph: Graph) -> bool:
    sources = [graph[ref.node] for ref in node.refs()]
    if node.op in ACTIVATIONS and sources and sources[0].op in WEIGHTS:
        sources = [graph[ref.node] for ref in sources[0].refs()]
    return bool(sources) and all(s.op in LEAVE for s in sources)


def _goes_quantized(node: Node, graph: Graph) -> bool:
    readers = [graph[name] for name in graph.users[node.name]]
    if len(readers) == 1 and readers[0].op in ACTIVATIONS:
        readers = [graph[name] for name in graph.users[readers[0].name]]
    return bool(readers) and all(r.op in ENTER for r in readers)
