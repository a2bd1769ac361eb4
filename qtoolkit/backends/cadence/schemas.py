"""Which ops and overloads a lowered program needs, as a selective build lists them."""

from collections.abc import Mapping
from dataclasses import dataclass

from qtoolkit.backends.cadence.names import OURS, Name
from qtoolkit.errors import UnsupportedOp
from qtoolkit.graph import Graph


@dataclass(frozen=True, slots=True)
class Needed:
    """Every op and overload of a program, with the nodes that need it, in graph order."""

    nodes: Mapping[Name, tuple[str, ...]]

    def to_yaml(self) -> str:
        """Entries of a custom_ops.yaml: out variants with the C++ kernel of the core chosen."""
        entries = []
        for name in self.nodes:
            key = "op" if name.op.startswith("aten::") else "func"
            entries.append(
                f"- {key}: {name.out_schema}\n"
                "  kernels:\n"
                "    - arg_meta: null\n"
                f"      kernel_name: {name.kernel_name}\n"
            )
        return "\n".join(entries)

    def __str__(self) -> str:
        lines = [
            f"{name.core:8}  {len(nodes):4}  {name.schema}" for name, nodes in self.nodes.items()
        ]
        return "\n".join([f"{'core':8}  {'uses':>4}  schema", *lines])


def needed(graph: Graph) -> Needed:
    """The ops that a graph compiled for a Cadence target calls.

    Raises UnsupportedOp naming every node whose op neither the family nor ExecuTorch's portable
    library has.
    """
    found: dict[Name, list[str]] = {}
    lacking: list[str] = []
    for node in graph.nodes:
        if node.op in ("input", "getitem"):
            continue
        if node.kernel is None:
            lacking.append(f"%{node.name} ({node.op})")
            continue
        name = Name.parse(node.kernel.partition(":")[2])
        if name.core == OURS or not name.has_kernel:
            at = f" at {node.where}" if str(node.where) else ""
            lacking.append(f"%{node.name} ({node.op}){at}")
        else:
            found.setdefault(name, []).append(node.name)
    if lacking:
        raise UnsupportedOp(
            f"no target of the Cadence family has an op for {len(lacking)} "
            f"node{'s' * (len(lacking) > 1)}: {'; '.join(lacking)}. Replace them in the model, or "
            "register an op of your own"
        )
    return Needed({name: tuple(nodes) for name, nodes in found.items()})
