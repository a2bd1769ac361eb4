"""Transposes of matrices: those of constants are carried out, the others get one name."""

import operator
from typing import Any

import torch
from torch import fx

from qtoolkit.quantizer.plan import PRODUCTS, places

SHORT = ("aten.t.default", "aten.numpy_T.default", "aten.mT.default")
TRANSPOSED = "_transposed"


def settle_transposes(module: fx.GraphModule) -> dict[str, str]:
    """Carry out the transpose of a constant second matrix; write t, .T and .mT as transpose.

    In place. The result names, for each attribute made, what it holds: 'fc.weight_transposed'.
    """
    for node in list(module.graph.nodes):
        if str(node.target) in SHORT and node.meta["val"].dim() == 2:
            node.target, node.args = torch.ops.aten.transpose.int, (node.args[0], 0, 1)
    made: dict[str, str] = {}
    for node in module.graph.nodes:
        if str(node.target) in PRODUCTS:
            at = places(node).weight
            before = node.args[at]
            turned = _of_constant(before)
            if turned is not None:
                name = f"_transposed_{len(made)}"
                made[name] = f"{turned.target}{TRANSPOSED}"
                value = operator.attrgetter(str(turned.target))(module).detach().t().contiguous()
                module.register_buffer(name, value)
                with module.graph.inserting_before(node):
                    constant = module.graph.get_attr(name)
                constant.meta["val"] = value
                node.update_arg(at, constant)
                if not before.users:
                    module.graph.erase_node(before)
    module.recompile()
    return made


def _of_constant(matrix: Any) -> fx.Node | None:
    """The constant that a node transposes, if that is all it does."""
    if not isinstance(matrix, fx.Node) or not matrix.args:
        return None
    source, *axes = matrix.args
    if not isinstance(source, fx.Node) or source.op != "get_attr":
        return None
    if matrix.meta["val"].dim() != 2:
        return None
    match str(matrix.target), axes:
        case "aten.transpose.int", [int(a), int(b)]:
            swaps = {a % 2, b % 2} == {0, 1}
        case "aten.permute.default", [[int(a), int(_)]]:
            swaps = a % 2 == 1
        case _:
            swaps = False
    return source if swaps else None
