"""Which representations ExecuTorch's Vulkan operators admit, as tables of their date.

The facts are data (tables/*.json); what depends on a node (a convolution's rank, the reduced axes)
is computed here.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from qtoolkit.errors import UnknownName
from qtoolkit.graph import Arg, Const, Graph, Node, Ref, TensorType
from qtoolkit.layout import PACKED_AXIS, TEXEL, Layout, Reps, RepSet, Storage, TensorRepr
from qtoolkit.passes.place.demands import ANY, MOST_RANK, Extents

TABLES = ("executorch-1.5.1", "executorch-0dd42c465d", "executorch-pr12616")
WHY = "{0}: as {1} states for {2}"
PASSIVE = ("input", "et_vk::prepack")  # they take what their first reader picks
RENAMED = {"getitem": "operator.getitem"}
SPELLED = {m: m.name if m.name.startswith("PACKED") else f"TENSOR_{m.name}_PACKED" for m in Layout}


class ExecutorchTable:
    """The demands of one table; see Table for the methods."""

    def __init__(self, name: str, told: Mapping[str, Any]) -> None:
        self.name = name
        self.stated = str(told["stated"])
        self.proposals = bool(told.get("proposals", False))
        self.repsets = {n: _repset(r) for n, r in told["repsets"].items()}
        self.ops: Mapping[str, Mapping[str, Any]] = told["ops"]
        self.neutral = self.repsets.get("ANY_STORAGE_INCL_PACKED_INT8")
        self._known: dict[object, Reps] = {}
        self._spelled: dict[str, str] = {}
        self._whys: dict[str, tuple[object, ...]] = {}

    def demands(self, node: Node, graph: Graph) -> Reps | None:
        if node.op in PASSIVE or not node.types:
            return None
        if self.proposals and node.op == "getitem":
            return ITEM
        op = self._spelled.get(node.op)
        if op is None:
            op = self._spelled[node.op] = spelled(node.op)
        entry = self.ops.get(op)
        if entry is None:
            raise UnknownName(
                f"%{node.name}: {op} is not recorded for this date (table {self.name}, which has "
                f"{len(self.ops)} ops); choose another table, or leave the node out"
            )
        pick = entry.get("pick")
        chosen = PICKS[pick](node, graph) if pick else None
        key = op, chosen, tuple([_kind(arg) for arg in node.args]), len(node.types)
        known = self._known.get(key)
        if known is None:
            tensors = tuple(i for i, kind in enumerate(key[2]) if kind is TENSOR)
            names = (chosen, *["NO_STORAGE"] * 10) if chosen and pick == "conv" else None
            inputs = names or ((chosen,) if chosen else entry["in"])
            outputs = (chosen,) if chosen else entry["out"]
            known = self._known[key] = self._reps(inputs, outputs, tensors, node)
        return known

    def why(self, node: Node) -> tuple[object, ...]:
        known = self._whys.get(node.op)
        if known is None:
            known = self._whys[node.op] = (WHY, self.name, spelled(node.op))
        return known

    def extents(self, type: TensorType, layout: Layout) -> Extents | None:
        if type.rank > MOST_RANK or layout not in PACKED_AXIS:
            return None
        n, c, h, w = (1,) * (4 - type.rank) + type.sizes
        sizes = [n, c, h, w]
        axis = PACKED_AXIS[layout]
        sizes[axis] = -(-sizes[axis] // TEXEL)
        return sizes[3], sizes[2], sizes[1] * sizes[0]

    def _reps(
        self, inputs: Sequence[str], outputs: Sequence[str], tensors: tuple[int, ...], node: Node
    ) -> Reps:
        def of(names: Sequence[str], i: int) -> RepSet:
            if len(names) == 1:
                return self.repsets[names[0]]
            return self.repsets[names[i]] if i < len(names) else EMPTY

        ins = tuple(of(inputs, i) if i in tensors else EMPTY for i in range(len(node.args)))
        outs = tuple(of(outputs, j) for j in range(len(node.types)))
        real = tuple(i for i in tensors if len(ins[i]))
        ties: list[tuple[int, ...]] = []
        if self.proposals:  # which know no ties: each operand is brought to what is proposed
            return Reps(tuple(r if len(r) else None for r in ins), outs)
        if len(inputs) == 1 and len(real) > 1:
            ties.append(real)
        if len(outputs) == 1 and len(outs) > 1:
            ties.append(tuple(-1 - j for j in range(len(outs))))
        if real and ins[real[0]] == outs[0]:
            ties.append((real[0], -1))
        return Reps(tuple(r if len(r) else None for r in ins), outs, tuple(ties))


EMPTY = RepSet(())
ITEM = Reps((ANY, None), (ANY,), ((0, -1),))


@cache
def table(name: str) -> ExecutorchTable:
    """A table by name. Raises UnknownName, listing those there are."""
    if name not in TABLES:
        raise UnknownName(f"table {name!r}; choose one of {', '.join(TABLES)}")
    file = resources.files("qtoolkit.interop.executorch") / "tables" / f"{name}.json"
    return ExecutorchTable(name, json.loads(file.read_text()))


def spelled(op: str) -> str:
    """An op as ExecuTorch's registry spells it: aten.add.Tensor -> aten::add.Tensor."""
    if "::" in op or op in RENAMED:
        return RENAMED.get(op, op)
    space, _, rest = op.partition(".")
    return f"{space}::{rest.removesuffix('.default')}" if rest else op


def spelled_repr(r: TensorRepr) -> tuple[str, str]:
    """A representation in ExecuTorch's words: ('TEXTURE_3D', 'TENSOR_WIDTH_PACKED')."""
    return r.storage.name, SPELLED[r.layout]


def read_repr(told: Sequence[str]) -> TensorRepr:
    """Read back what `spelled_repr` wrote."""
    return TensorRepr(Storage[told[0]], LAYOUTS[told[1]])


LAYOUTS = {spelling: layout for layout, spelling in SPELLED.items()}


def _repset(told: Mapping[str, Sequence[str]]) -> RepSet:
    """Textures before buffers, as ExecuTorch prefers them, then by its numbers of layouts."""
    found = [
        TensorRepr(storage, LAYOUTS[name])
        for storage, key in ((Storage.TEXTURE_3D, "texture"), (Storage.BUFFER, "buffer"))
        for name in told[key]
    ]
    return RepSet(sorted(found, key=lambda r: (-r.storage, r.layout)))


TENSOR = "tensor"


def _kind(arg: Arg) -> object:
    """TENSOR for a tensor or a list of tensors that is not empty; else None."""
    kind = arg.__class__
    if kind is Ref or kind is Const:
        return TENSOR
    if kind is not tuple or not arg:
        return None
    assert isinstance(arg, tuple)
    return TENSOR if all(isinstance(part, Ref | Const) for part in arg) else None


def _convolution(node: Node, graph: Graph) -> str:
    if node.type.rank != 3:
        return "CHANNELS_PACKED_TEXTURE"
    x, w = graph.type_of(node.args[0]), graph.type_of(node.args[1])
    if x is None or w is None:
        return "CHANNELS_PACKED_TEXTURE"
    groups = node.args[8] if len(node.args) > 8 else 1
    depthwise = groups == x.sizes[1] == node.type.sizes[1] and w.sizes[1] == 1
    return "HEIGHT_PACKED_TEXTURE" if w.sizes[-1] == 1 or depthwise else "CHANNELS_PACKED_TEXTURE"


def _index(node: Node, graph: Graph) -> str:
    x = graph.type_of(node.args[0])
    indices = node.args[1] if isinstance(node.args[1], tuple) else ()
    given = [i for i in indices if i is not None]
    flat = len(given) == 1 and (t := graph.type_of(given[0])) is not None and t.rank == 1
    return "CONTIGUOUS_BUFFER" if flat and x is not None and x.rank > 1 else "ANY_STORAGE"


def _to_copy(node: Node, graph: Graph) -> str:
    x = graph.type_of(node.args[0])
    floats = ("float16", "float32")
    both = x is not None and x.dtype in floats and node.type.dtype in floats
    return "ANY_STORAGE" if both else "CONTIGUOUS_BUFFER"


PACKED_TEXTURES = ("WIDTH_PACKED_TEXTURE", "HEIGHT_PACKED_TEXTURE", "CHANNELS_PACKED_TEXTURE")


def _reduction(node: Node, graph: Graph) -> str:
    x = graph.type_of(node.args[0])
    assert x is not None
    given = node.args[1] if len(node.args) > 1 else None
    listed = given if isinstance(given, tuple) else (given,)
    dims = sorted({int(d) % max(x.rank, 1) for d in listed if isinstance(d, int)})
    if not dims:
        row = x.rank == 2 and node.type.rank > 0 and node.type.numel == node.type.sizes[-1]
        dims = [1] if row else list(range(x.rank))
    keep = next((a for a in node.args if isinstance(a, bool)), False)
    general = len(dims) <= 2 and keep
    if len(dims) == 1 and dims[0] == x.rank - 1:
        return "ANY_TEXTURE_OR_CONTIGUOUS_BUFFER" if general else "CONTIGUOUS_BUFFER"
    if len(dims) == 2:
        reduced = {x.rank - 1 - d for d in dims}
        return PACKED_TEXTURES[min({0, 1, 2} - reduced)]
    return "ANY_TEXTURE" if general else "NO_STORAGE"


PICKS: Mapping[str, Callable[[Node, Graph], str]] = {
    "conv": _convolution,
    "index": _index,
    "to_copy": _to_copy,
    "reduce": _reduction,
}
