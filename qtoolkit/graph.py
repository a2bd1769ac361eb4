"""The immutable Graph: tensor types, nodes, arguments, and the text form that tests compare."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from html import escape
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.errors import GraphError
from qtoolkit.layout import Reps


class DType(StrEnum):
    """Element types; the value is torch's and NumPy's name."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return 2 if self is DType.BFLOAT16 else int(np.dtype(self.value).itemsize)

    @property
    def floating(self) -> bool:
        return self in (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16)


@dataclass(frozen=True, slots=True)
class Dim:
    """A dimension known only by its bounds."""

    name: str
    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.name}:{self.low}..{self.high}"


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and dtype of a tensor. str() gives 'float32[1,3,224,224]'."""

    shape: tuple[int | Dim, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape as integers; a Dim counts as its upper bound."""
        return tuple(d.high if isinstance(d, Dim) else d for d in self.shape)

    @property
    def numel(self) -> int:
        return prod(self.sizes)

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Ref:
    """Result `index` of the node called `node`."""

    node: str
    index: int = 0

    def __str__(self) -> str:
        return f"%{self.node}" if self.index == 0 else f"%{self.node}#{self.index}"


def value_name(ref: Ref) -> str:
    """The key of a result in Run.values."""
    return ref.node if ref.index == 0 else f"{ref.node}#{ref.index}"


@dataclass(frozen=True, slots=True)
class Const:
    """The constant called `name`."""

    name: str

    def __str__(self) -> str:
        return f"@{self.name}"


Arg = Ref | Const | DType | None | bool | int | float | complex | str | tuple["Arg", ...]


@dataclass(frozen=True, slots=True)
class Where:
    """Where a node comes from: module path ('features.0.conv') and source line ('net.py:31')."""

    module: str = ""
    source: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.module, self.source) if part)


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A constant's type with its array, or its type alone when no values are known."""

    type: TensorType
    array: NDArray[Any] | None = None

    @classmethod
    def of(cls, array: NDArray[Any]) -> "Constant":
        kept = np.ascontiguousarray(array).reshape(np.shape(array))
        kept.setflags(write=False)
        return cls(TensorType(kept.shape, DType(kept.dtype.name)), kept)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant) or self.type != other.type:
            return False
        if self.array is None or other.array is None:
            return self.array is other.array
        return self.array is other.array or self.array.tobytes() == other.array.tobytes()

    def __hash__(self) -> int:
        return hash(self.type)


@dataclass(frozen=True, slots=True)
class Node:
    """One operation. args are in schema order with defaults filled in; an input has op 'input'.

    types holds one type per result. origin lists the captured nodes this one computes, in order;
    kernel and reps are None until lowered and placed.
    """

    name: str
    op: str
    args: tuple[Arg, ...]
    types: tuple[TensorType, ...]
    origin: tuple[str, ...] = ()
    where: Where = Where()
    kernel: str | None = None
    reps: Reps | None = None

    @property
    def type(self) -> TensorType:
        """The type of the first result."""
        return self.types[0]

    def refs(self) -> Iterator[Ref]:
        """Every Ref among the arguments, in order, those in lists too, repeats included."""
        return (leaf for leaf in leaves(self.args) if isinstance(leaf, Ref))

    def consts(self) -> Iterator[Const]:
        """Every Const among the arguments, in order."""
        return (leaf for leaf in leaves(self.args) if isinstance(leaf, Const))

    def with_args(self, args: Sequence[Arg]) -> "Node":
        return replace(self, args=tuple(args))

    def placed(self, reps: Reps) -> "Node":
        """The same node with these representations."""
        return Node(self.name, self.op, self.args, self.types, self.origin, self.where,
                    self.kernel, reps)  # fmt: skip

    def __str__(self) -> str:
        types = ", ".join(map(str, self.types))
        return f"%{self.name}: {types} = {self.op}({', '.join(map(format_arg, self.args))})"


def leaves(arg: Arg) -> Iterator[Arg]:
    """The non-tuple parts of an argument, depth first."""
    if isinstance(arg, tuple):
        for part in arg:
            yield from leaves(part)
    else:
        yield arg


def map_leaves(arg: Arg, change: Any) -> Arg:
    """The argument with `change` applied to every non-tuple part."""
    return (
        tuple(map_leaves(part, change) for part in arg) if isinstance(arg, tuple) else change(arg)
    )


def format_arg(arg: Arg) -> str:
    """An argument as the text form writes it."""
    if isinstance(arg, tuple):
        return f"({', '.join(map(format_arg, arg))})"
    if isinstance(arg, DType | Ref | Const):
        return str(arg)
    return repr(arg)


@dataclass(frozen=True, eq=False)
class Graph:
    """An immutable program. Nodes are in execution order; the inputs are nodes of op 'input'.

    outputs may repeat a value, pass an input through or hold None. in_tree and out_tree are
    torch's serialized pytree specs, kept for interop and otherwise unread.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[Arg, ...]
    in_tree: str = ""
    out_tree: str = ""
    constants: Mapping[str, Constant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "constants", MappingProxyType(dict(self.constants)))

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        return MappingProxyType({n.name: n for n in self.nodes})

    @cached_property
    def users(self) -> Mapping[str, tuple[str, ...]]:
        """For each node, the nodes that read it, in graph order; one entry per reader."""
        found: dict[str, dict[str, None]] = {n.name: {} for n in self.nodes}
        for n in self.nodes:
            for ref in n.refs():
                found[ref.node][n.name] = None
        return MappingProxyType({name: tuple(readers) for name, readers in found.items()})

    def __getitem__(self, name: str) -> Node:
        if name not in self.by_name:
            raise GraphError(f"no node %{name} in this graph; its nodes are listed by .text()")
        return self.by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def placed(self, reps: Mapping[str, Reps]) -> "Graph":
        """The same graph with the representations of some nodes; nothing else can change."""
        nodes = tuple(n.placed(reps[n.name]) if n.name in reps else n for n in self.nodes)
        return replace(self, nodes=nodes)

    def type_of(self, arg: Arg) -> TensorType | None:
        """The type of a Ref or Const; None for anything else."""
        if isinstance(arg, Ref):
            return self.by_name[arg.node].types[arg.index]
        return self.constants[arg.name].type if isinstance(arg, Const) else None

    def array(self, arg: Arg) -> NDArray[Any]:
        """The values of a Const. Raises GraphError if it has a type alone."""
        if not isinstance(arg, Const):
            raise GraphError(f"{format_arg(arg)} is not a constant")
        value = self.constants[arg.name].array
        if value is None:
            raise GraphError(f"@{arg.name} has a type but no values; load the graph with weights")
        return value

    def check(self) -> "Graph":
        """Return self, or raise GraphError at the first broken rule."""
        seen: set[str] = set()
        for n in self.nodes:
            for ref in n.refs():
                if ref.node not in seen:
                    raise GraphError(f"%{n.name} reads %{ref.node}, which is not defined before it")
                if ref.index >= len(self.by_name[ref.node].types):
                    raise GraphError(f"%{n.name} reads {ref}, but %{ref.node} has no such result")
            for const in n.consts():
                if const.name not in self.constants:
                    raise GraphError(f"%{n.name} reads {const}, which the graph does not hold")
            if n.name in seen:
                raise GraphError(f"two nodes are called %{n.name}")
            seen.add(n.name)
        if self.inputs != tuple(n.name for n in self.nodes if n.op == "input"):
            raise GraphError("graph.inputs and the nodes of op 'input' differ")
        for leaf in leaves(self.outputs):
            if isinstance(leaf, Ref) and leaf.node not in seen:
                raise GraphError(f"output {leaf} is not defined")
        return self

    def text(self, where: bool = False) -> str:
        """The graph as text, one node a line: the form that golden tests hold."""
        lines = [
            f"@{name}: {c.type}" + ("" if c.array is not None else "  # values not kept")
            for name, c in sorted(self.constants.items())
        ]
        for n in self.nodes:
            line = str(n)
            if n.kernel:
                line += f"  via {n.kernel}"
            if n.reps is not None:
                line += f"  at {n.reps}"
            if where and str(n.where):
                line += f"  # {n.where}"
            lines.append(line)
        lines.append(f"return {', '.join(map(format_arg, self.outputs))}")
        return "\n".join(lines) + "\n"

    def counts(self) -> dict[str, int]:
        """How many nodes there are of each op, inputs left out, most frequent first."""
        found: dict[str, int] = {}
        for n in self.nodes:
            if n.op != "input":
                found[n.op] = found.get(n.op, 0) + 1
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def __repr__(self) -> str:
        ops = ", ".join(f"{count} {op}" for op, count in list(self.counts().items())[:6])
        mib = sum(c.type.nbytes for c in self.constants.values()) / 2**20
        return f"Graph({len(self.nodes)} nodes: {ops}; {mib:.2f} MiB of constants)"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p><pre>{escape(self.text(where=True))}</pre>"
