"""What a kernel asks of a device, as data: dispatches, constants in shader form, host calls."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.backends.vulkan.tensors import Kind, Placed
from qtoolkit.graph import Arg, Const, Graph, Node, Ref, leaves, value_name
from qtoolkit.kernel import RUNTIME
from qtoolkit.layout import CONTIGUOUS

Array = NDArray[Any]
# Optional features of devices, by the #define of the shaders that use them: the integer dot
# product, and buffers of 8-bit integers. Without them shaders unpack words.
FEATURES = DOT, BYTES = ("DOT", "BYTES")


@dataclass(frozen=True, slots=True, eq=False)
class Blob:
    """A constant packed as its shader reads it, in a buffer."""

    data: Array


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A constant in one of the tensor representations."""

    placed: Placed
    array: Array


Operand = Placed | Blob | Constant


@dataclass(frozen=True, slots=True, eq=False)
class Dispatch:
    """One run of a shader. operands are bound from 1 on, by name; the last one is written.

    params is the uniform block at binding 0, constants are the specialization constants from 0 on,
    texels the number of invocations. feature: the optional one, of FEATURES, that the shader can
    make use of. check looks at the values of a run, for what a shader cannot
    tell, and raises.
    """

    shader: str
    operands: Mapping[str, Operand]
    params: NDArray[np.int32]
    texels: int
    constants: tuple[int, ...] = ()
    feature: str | None = None
    keep: bool | None = None
    check: Callable[[Mapping[str, Array]], None] | None = None

    @property
    def written(self) -> Placed:
        last = list(self.operands.values())[-1]
        assert isinstance(last, Placed)
        return last

    def defines(self, features: Collection[str]) -> dict[str, int]:
        """The #defines of the variant for a device that has `features`."""
        found: dict[str, int] = {}
        for name, operand in self.operands.items():
            placed = operand.placed if isinstance(operand, Constant) else operand
            if isinstance(placed, Placed) and (placed.kind is not Kind.INTS or name == "x"):
                found[f"{name.upper()}_TEXTURE"] = int(placed.texture)
                if name == "x" and self.shader in BY_KIND:
                    found["X_KIND"] = int(placed.kind)
        if self.feature is not None:
            found[self.feature] = int(self.feature in features)
        if self.keep is not None:
            found["KEEP"] = int(self.keep)
        return found


# Shaders whose x may hold more than one kind of cell.
BY_KIND = ("dequantize", "requantize", "max_pool2d", "gather")


@dataclass(frozen=True, slots=True, eq=False)
class HostCall:
    """An op that no shader computes: its definition, run on the CPU between two submissions."""

    run: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Alias:
    """The result is a value that is there already, under another name."""

    of: Placed


Bound = tuple[Dispatch, ...] | HostCall | Alias


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A placed node whose kernel is being bound: its arguments as arrays and Placed tensors."""

    node: Node
    graph: Graph

    @property
    def args(self) -> tuple[Any, ...]:
        """Arguments in schema order, constants as arrays, run-time tensors as RUNTIME."""

        def resolve(arg: Arg) -> Any:
            if isinstance(arg, tuple):
                return tuple(resolve(a) for a in arg)
            if isinstance(arg, Ref):
                return RUNTIME
            return self.graph.array(arg) if isinstance(arg, Const) else arg

        return tuple(resolve(a) for a in self.node.args)

    def x(self, slot: int = 0) -> Placed | Constant:
        """The tensor at a schema position."""
        (only,) = self.members(slot)
        return only

    def members(self, slot: int) -> tuple[Placed | Constant, ...]:
        """The tensors of a list at a schema position."""
        found = (leaf for leaf in leaves(self.node.args[slot]) if isinstance(leaf, Ref | Const))
        return tuple(self._tensor(leaf, slot) for leaf in found)

    def _tensor(self, leaf: Ref | Const, slot: int) -> Placed | Constant:
        kind = self.graph.type_of(leaf)
        assert kind is not None
        repset = self.node.reps.at(slot) if self.node.reps else None
        where = CONTIGUOUS if repset is None else repset.only
        if isinstance(leaf, Const):
            return Constant(Placed(f"@{leaf.name}", kind, where), self.graph.array(leaf))
        return Placed(value_name(leaf), kind, where)

    def y(self, index: int = 0) -> Placed:
        """Result `index`."""
        reps = self.node.reps
        where = CONTIGUOUS if reps is None else reps.outputs[index].only
        return Placed(value_name(Ref(self.node.name, index)), self.node.types[index], where)


def placed_of(operand: Placed | Constant) -> Placed:
    """Where an operand lies."""
    return operand.placed if isinstance(operand, Constant) else operand


def params(*parts: Placed | Constant | NDArray[np.int32] | Sequence[int] | int) -> Any:
    """A uniform block: tensors as struct Tensor, then integers, in order."""
    words: list[NDArray[np.int32]] = []
    for part in parts:
        if isinstance(part, Placed | Constant):
            words.append(placed_of(part).described())
        else:
            words.append(np.atleast_1d(np.asarray(part, np.int32)))
    return np.concatenate(words)


def bits(real: Array | float) -> NDArray[np.int32]:
    """The bits of float32 numbers."""
    return np.atleast_1d(np.asarray(real, np.float32)).view(np.int32)
