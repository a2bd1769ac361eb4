"""Recorded runs of ExecuTorch's Vulkan backend: read as graphs, and placements written alike.

Of a recording only pre.nodes, texture_limits and force_fp16 are read; what came out of the run
stands in `outcome`, for comparison.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qtoolkit.errors import FormatError
from qtoolkit.graph import Arg, Const, Constant, DType, Graph, Node, Ref, TensorType
from qtoolkit.passes.place import Limits

DTYPES = frozenset(d.value for d in DType)


@dataclass(frozen=True, slots=True)
class Delegate:
    """One delegated graph: as a Graph, the nodes as recorded, the limits it was placed under.

    users: the readers of a value in the order in which fx holds them, where that is not the order
    of the graph (rewriting a node puts it at the end).
    """

    graph: Graph
    nodes: tuple[Mapping[str, Any], ...]
    limits: Limits
    users: Mapping[str, tuple[str, ...]]
    outcome: Mapping[str, Any] | None = None


def load_recorded(path: str | os.PathLike[str]) -> tuple[Delegate, ...]:
    """The delegates of a recorded run. Raises FormatError naming what is not as it should be."""
    try:
        told = json.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as why:
        raise FormatError(f"{path}: cannot be read as JSON ({why})") from why
    delegates = told.get("delegates") if isinstance(told, dict) else None
    if not isinstance(delegates, list):
        raise FormatError(f"{path}: no recorded run: it has no list 'delegates'")
    return tuple(read_delegate(d, f"{path}: delegate {i}") for i, d in enumerate(delegates))


def read_delegate(told: Mapping[str, Any], where: str = "recorded graph") -> Delegate:
    """A delegate from its recorded form. Raises FormatError."""
    try:
        nodes = tuple(told["pre"]["nodes"])
        w, h, d = (int(e) for e in told["texture_limits"])
        half = bool(told.get("force_fp16", False))
        graph = _Reader(nodes).graph()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as why:
        raise FormatError(f"{where}: not as recorded runs are: {why!r}") from why
    users = {str(n["name"]): tuple(map(str, n["users"])) for n in nodes if "users" in n}
    return Delegate(graph, nodes, Limits((w, h, d), half=half), users, told)


class _Reader:
    """From the nodes of one recorded graph to a Graph."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        self.nodes = nodes
        self.values: dict[str, Arg] = {}
        self.constants: dict[str, Constant] = {}
        self.made: list[Node] = []
        self.outputs: tuple[Arg, ...] = ()

    def graph(self) -> Graph:
        for told in self.nodes:
            self._node(told)
        inputs = tuple(n.name for n in self.made if n.op == "input")
        read = {c.name for n in self.made for c in n.consts()}
        read |= {a.name for a in self.outputs if isinstance(a, Const)}
        constants = {name: c for name, c in self.constants.items() if name in read}
        return Graph(tuple(self.made), inputs, self.outputs, constants=constants).check()

    def _node(self, told: Mapping[str, Any]) -> None:
        name, kind = str(told["name"]), told["op"]
        if kind == "output":
            returned = told["args"][0]
            listed = returned if isinstance(returned, list) else [returned]
            self.outputs = tuple(self._arg(a) for a in listed)
            return
        types = _types(told.get("val"))
        if kind == "placeholder":
            if told.get("tensorref"):
                self.constants[name] = Constant(types[0])
                self.values[name] = Const(name)
            else:
                self._keep(Node(name, "input", (), types))
            return
        if kind != "call_function":
            raise ValueError(f"%{name} is a {kind}; graphs of delegates have calls alone")
        args = tuple(self._arg(a) for a in told["args"])
        target = str(told["target"])
        if target in ("getitem", "operator.getitem"):
            source = args[0]
            assert isinstance(source, Ref)
            args, target = (Ref(source.node, int(told["args"][1])), args[1]), "getitem"
        self._keep(Node(name, target, args, types, (name,)))

    def _keep(self, node: Node) -> None:
        self.made.append(node)
        # What is no tensor (a symbolic size) is a word to its readers: nothing to place.
        self.values[node.name] = Ref(node.name) if node.types else node.name

    def _arg(self, told: Any) -> Arg:
        if isinstance(told, list):
            return tuple(self._arg(part) for part in told)
        if isinstance(told, dict):
            if "n" in told:
                return self.values[told["n"]]
            return _named(str(next(iter(told.values()))))
        if told is None or isinstance(told, bool | int | float | str):
            return told
        raise ValueError(f"an argument {told!r}")


def _named(text: str) -> Arg:
    """A dtype; other things of torch (memory formats, devices) stay words."""
    word = text.removeprefix("torch.")
    return DType(word) if word in DTYPES else word


def _types(val: Any) -> tuple[TensorType, ...]:
    """The types of a recorded value; none of what is no tensor, a symbolic size for example."""
    vals = val if isinstance(val, list) else [val]
    if not all(isinstance(v, dict) and "shape" in v for v in vals):
        return ()
    return tuple(
        TensorType(tuple(map(int, v["shape"])), DType(v["dtype"].removeprefix("torch.")))
        for v in vals
    )


def named(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Name and target of each recorded node, in order."""
    for told in nodes:
        yield str(told["name"]), str(told["target"])
