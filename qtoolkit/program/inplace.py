"""What torch captured and what became of it here: each node, and the writes made functional."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.export import ExportedProgram

from qtoolkit.graph import Graph
from qtoolkit.program import export, import_program, lifted_tensors
from qtoolkit.program.translate import DROPPED
from qtoolkit.program.writes import twin, written_arguments

if TYPE_CHECKING:
    import pandas as pd

CAPTURED = ("name", "captured", "became", "as", "type", "module", "source")
IN_PLACE = ("name", "in place", "overwrites", "became", "module", "source")


def list_captured(module: torch.nn.Module | ExportedProgram, example: Any) -> "pd.DataFrame":
    """Each node that torch.export captured, in its order, and what it became in the Graph.

    became: input, constant, node, functional twin, or nothing (dropped, or a weight nobody reads).
    Raises CaptureError, as qt.capture does, for what a Graph cannot hold.
    """
    import pandas as pd

    program = export(module, example)
    graph = import_program(program)
    rows = [_row(node, program, graph) for node in program.graph.nodes if node.op != "output"]
    return pd.DataFrame(rows, columns=list(CAPTURED)).set_index("name")


def in_place(module: torch.nn.Module | ExportedProgram, example: Any) -> "pd.DataFrame":
    """Each write in place of a captured program: the value it overwrites, and its functional twin.

    Empty where the model writes nothing. Raises CaptureError, as qt.capture does, naming the node,
    the value and a remedy, for a write that cannot be made functional.
    """
    import pandas as pd

    program = export(module, example)
    graph = import_program(program)
    return pd.DataFrame(list(_writes(program, graph)), columns=list(IN_PLACE)).set_index("name")


def _writes(program: ExportedProgram, graph: Graph) -> Iterator[tuple[str, ...]]:
    for node in program.graph.nodes:
        functional = twin(node)
        if functional is node.target:
            continue
        values = ", ".join(f"%{v.name}" for v in written_arguments(node))
        where = graph[node.name].where
        yield node.name, str(node.target), values, str(functional), where.module, where.source


def _row(node: fx.Node, program: ExportedProgram, graph: Graph) -> tuple[str, ...]:
    if node.op == "placeholder" and node.name in lifted_tensors(program):
        return _constant(node, program, graph)
    if node.name not in graph:
        dropped = str(node.target) in DROPPED
        why = "always holds with fixed shapes" if dropped else "not a tensor"
        return node.name, str(node.target), "nothing", why, "", "", ""
    made = graph[node.name]
    became = "input" if made.op == "input" else "node"
    captured = "input" if made.op == "input" else str(node.target)
    if twin(node) is not node.target:
        became = "functional twin"
    types = ", ".join(map(str, made.types))
    return node.name, captured, became, made.op, types, made.where.module, made.where.source


def _constant(node: fx.Node, program: ExportedProgram, graph: Graph) -> tuple[str, ...]:
    signature = program.graph_signature
    kinds = {
        "parameter": signature.inputs_to_parameters,
        "buffer": signature.inputs_to_buffers,
        "constant": signature.inputs_to_lifted_tensor_constants,
    }
    kind, target = next((k, names[node.name]) for k, names in kinds.items() if node.name in names)
    held = graph.constants.get(target)
    if held is None:
        return node.name, kind, "nothing", "no node reads it", "", target.rpartition(".")[0], ""
    module = target.rpartition(".")[0]
    return node.name, kind, "constant", f"@{target}", str(held.type), module, ""
