"""A graph being edited: each change is an Edit that can be replayed, so a trace cannot drift."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from qtoolkit.errors import GraphError
from qtoolkit.graph import Arg, Const, Constant, Graph, Node, Ref, leaves, map_leaves
from qtoolkit.layout import Reps

NOTHING: Mapping[str, Constant] = MappingProxyType({})


class Edit(NamedTuple):
    """One change: nodes removed, nodes put in before `before`, nodes replaced in place, nodes
    given representations.

    `rename` sends readers of a removed result to another value; it applies to every node and to
    the outputs after the other parts. Constants that nobody reads go when the graph is finished.
    A NamedTuple, like Step, because passes make tens of thousands: a dataclass takes three times as
    long.
    """

    remove: tuple[str, ...] = ()
    insert: tuple[Node, ...] = ()
    before: str | None = None
    replace: tuple[Node, ...] = ()
    rename: tuple[tuple[Ref, Arg], ...] = ()
    constants: Mapping[str, Constant] = NOTHING
    reps: tuple[tuple[str, Reps], ...] = ()

    def __bool__(self) -> bool:
        other = self.remove or self.insert or self.replace or self.rename or self.constants
        return bool(self.reps or other)


def placing(name: str, reps: Reps) -> Edit:
    """The edit that gives one node its representations; made so often that its making counts."""
    return tuple.__new__(Edit, ((), (), None, (), (), NOTHING, ((name, reps),)))


class Draft:
    """A mutable copy of a Graph, at a cost per edit that does not grow with the graph.

    Order is kept as a doubly linked list; readers are indexed, so that `rename` touches only the
    nodes that read the renamed value.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.nodes: dict[str, Node] = {}
        self.constants: dict[str, Constant] = dict(graph.constants)
        self.outputs: tuple[Arg, ...] = graph.outputs
        self._next: dict[str | None, str | None] = {None: None}
        self._prev: dict[str | None, str | None] = {None: None}
        self._readers: dict[str, dict[str, None]] = {}
        self._const_readers: dict[str, dict[str, None]] = {}
        for node in graph.nodes:
            self._link(node, before=None)

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def __contains__(self, name: object) -> bool:
        return name in self.nodes

    def readers(self, name: str) -> tuple[str, ...]:
        """The nodes that read `name`; their order is that in which they began to."""
        return tuple(self._readers.get(name, ()))

    def returned(self, name: str) -> bool:
        """Whether a result of `name` is an output of the graph."""
        return any(isinstance(a, Ref) and a.node == name for a in leaves(self.outputs))

    def fresh(self, name: str) -> str:
        """`name`, or `name_1`, `name_2`, … : the first that no node bears."""
        if name not in self.nodes:
            return name
        count = 1
        while f"{name}_{count}" in self.nodes:
            count += 1
        return f"{name}_{count}"

    def order(self) -> list[str]:
        """Node names in execution order."""
        names: list[str] = []
        at = self._next[None]
        while at is not None:
            names.append(at)
            at = self._next[at]
        return names

    def apply(self, edit: Edit) -> Edit:
        """Carry out the edit and return it. Raises GraphError where it does not fit the graph."""
        self.constants.update(edit.constants)
        for node in edit.insert:
            self._link(node, before=edit.before)
        for name, reps in edit.reps:
            if name not in self.nodes:
                raise GraphError(f"cannot place %{name}: the graph has no such node")
            self.nodes[name] = self.nodes[name].placed(reps)
        for node in edit.replace:
            if node.name not in self.nodes:
                raise GraphError(f"cannot replace %{node.name}: the graph has no such node")
            self._unread(self.nodes[node.name])
            self.nodes[node.name] = node
            self._read(node)
        for old, new in edit.rename:
            self._rename(old, new)
        for name in edit.remove:
            self._unlink(name)
        return edit

    def finish(self) -> Graph:
        """The edited Graph, checked, without the constants that nobody reads any more."""
        nodes = tuple(self.nodes[name] for name in self.order())
        inputs = tuple(n.name for n in nodes if n.op == "input")
        returned = {a.name for a in leaves(self.outputs) if isinstance(a, Const)}
        read = {
            name: constant
            for name, constant in self.constants.items()
            if self._const_readers.get(name) or name in returned
        }
        g = self._graph
        return Graph(nodes, inputs, self.outputs, g.in_tree, g.out_tree, read).check()

    def _rename(self, old: Ref, new: Arg) -> None:
        def swap(leaf: Arg) -> Arg:
            return new if leaf == old else leaf

        for reader in self.readers(old.node):
            node = self.nodes[reader]
            self._unread(node)
            self.nodes[reader] = node.with_args([map_leaves(a, swap) for a in node.args])
            self._read(self.nodes[reader])
        self.outputs = tuple(map_leaves(a, swap) for a in self.outputs)

    def _link(self, node: Node, before: str | None) -> None:
        if node.name in self.nodes:
            raise GraphError(f"cannot insert %{node.name}: the name is taken")
        if before is not None and before not in self.nodes:
            raise GraphError(f"cannot insert before %{before}: the graph has no such node")
        after = self._prev[before]
        self._next[after] = self._prev[before] = node.name
        self._prev[node.name], self._next[node.name] = after, before
        self.nodes[node.name] = node
        self._readers.setdefault(node.name, {})
        self._read(node)

    def _unlink(self, name: str) -> None:
        if name not in self.nodes:
            raise GraphError(f"cannot remove %{name}: the graph has no such node")
        if self._readers[name] or self.returned(name):
            reader = next(iter(self._readers[name]), "return")
            raise GraphError(f"cannot remove %{name}: %{reader} still reads it")
        self._unread(self.nodes.pop(name))
        before, after = self._prev.pop(name), self._next.pop(name)
        self._next[before], self._prev[after] = after, before
        del self._readers[name]

    def _read(self, node: Node) -> None:
        for ref in node.refs():
            self._readers.setdefault(ref.node, {})[node.name] = None
        for const in node.consts():
            self._const_readers.setdefault(const.name, {})[node.name] = None

    def _unread(self, node: Node) -> None:
        for ref in node.refs():
            self._readers[ref.node].pop(node.name, None)
        for const in node.consts():
            self._const_readers[const.name].pop(node.name, None)


def apply_edits(graph: Graph, edits: Sequence[Edit]) -> Graph:
    """The graph after the edits, in order."""
    draft = Draft(graph)
    for edit in edits:
        draft.apply(edit)
    return draft.finish()
