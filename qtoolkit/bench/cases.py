"""Graphs of one op to measure: an op's own examples, and the same grown to other sizes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qtoolkit.errors import ShapeError
from qtoolkit.graph import DType, Graph, Node, TensorType, leaves
from qtoolkit.kernel import Array, Kernel
from qtoolkit.layout import Reps, nchw
from qtoolkit.ops import OPS, Example, OpSpec
from qtoolkit.ops.examples import codes, one_node, reals
from qtoolkit.passes.lower import Kernels, choose

HOST = "host"
DTYPES = (DType.INT8, DType.FLOAT32)
# The axes along which a case may grow, the most natural first.
GROWTH = ((-2, -1), (-2,), (-1,), (0,))
SIZES = ("size", "shape")  # arguments that give the sizes of a view
# What the examples of ops lack: several results, and views that admit every representation.
LACKING: dict[str, tuple[Any, ...]] = {
    "aten.split.Tensor": (3, 1),
    "aten.split_with_sizes.default": ((2, 3), 1),
    "aten.chunk.default": (2, 1),
    "aten.flatten.using_ints": (1, 1),
    "aten.squeeze.default": (),
    "aten.squeeze.dim": (1,),
    "aten.squeeze.dims": ((1, 2),),
}


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One op in a graph of its own, unplaced: node y, its kernel, what the inputs hold."""

    graph: Graph
    kernel: Kernel
    values: Mapping[str, Array]

    @property
    def node(self) -> Node:
        return self.graph["y"]

    @property
    def reps(self) -> Reps:
        return self.kernel.reps(self.node, self.graph)

    @property
    def tensors(self) -> tuple[TensorType, ...]:
        """The types of all operands, constants too, and of all results."""
        found = (self.graph.type_of(leaf) for leaf in leaves(self.node.args))
        return (*(t for t in found if t is not None), *self.node.types)

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in self.tensors)

    @property
    def extent(self) -> int:
        """Cells along the longest axis that a texture of one of the tensors could have."""
        runtime = (*(self.graph.type_of(ref) for ref in self.node.refs()), *self.node.types)
        shapes = (nchw(t.sizes) for t in runtime if t is not None)
        return max(max(n * c, h, w) for n, c, h, w in shapes)


def cases(op: str, kernels: Kernels, sizes: Sequence[int], limit: int) -> Iterator[Case]:
    """For each kernel and dtype of an op one example, as it is and grown.

    That which admits the most representations, and of those one that can grow. Others of the op
    that admit fewer are left out: the lines of an op are to be of the same cases.
    """
    spec = OPS[op]
    best: dict[tuple[str, DType], tuple[tuple[int, bool, bool], Example, Case]] = {}
    for example in (*spec.examples(), *_lacking(op)):
        case = case_of(spec, example, kernels)
        if case is None or case.kernel.name == HOST or case.tensors[0].dtype not in DTYPES:
            continue
        many = case.node.type.numel > 1
        rank = len(case.reps.outputs[0]), many, _axes(spec, example, case) is not None
        key = case.kernel.name, case.tensors[0].dtype
        if rank[0] > 1 and (key not in best or rank > best[key][0]):
            best[key] = rank, example, case
    most = max((rank[0] for rank, _, _ in best.values()), default=0)
    for rank, example, case in best.values():
        if rank[0] == most:
            yield case
            yield from _grown(spec, example, case, kernels, sizes, limit)


def _lacking(op: str) -> Iterator[Example]:
    if op in LACKING:
        yield Example("int8", (codes(2, 5, 7, 33), *LACKING[op]))
        yield Example("float32", (reals(2, 5, 7, 33), *LACKING[op]))


def _grown(
    spec: OpSpec, example: Example, case: Case, kernels: Kernels, sizes: Sequence[int], limit: int
) -> Iterator[Case]:
    """The case with its run-time tensors repeated until all tensors together reach each size."""
    axes = _axes(spec, example, case)
    if axes is None:
        return
    factors = [1] * len(axes)
    for nbytes in sizes:
        if case.nbytes >= nbytes:
            continue
        before = case
        while case.nbytes < nbytes:
            factors[int(np.argmin(factors))] *= 2
            larger = case_of(spec, _repeated(spec, example, axes, factors), kernels)
            if larger is None or larger.extent > limit:
                break
            case = larger
        if case is not before:
            yield case
        if case.nbytes < nbytes:
            return


def _axes(spec: OpSpec, example: Example, case: Case) -> tuple[int, ...] | None:
    """Along which axes the example can be repeated without becoming another case."""
    for axes in GROWTH:
        doublings = [[1 + (i <= j) for i in range(len(axes))] for j in range(len(axes))]
        try:  # as _grown does it: one axis after the other
            for factors in doublings:
                twice, _ = one_node(spec, _repeated(spec, example, axes, factors))
        except (ShapeError, IndexError):
            continue
        types = twice["y"].types
        ranks, grew = [t.rank for t in types], types[0].numel > case.node.type.numel
        if grew and ranks == [t.rank for t in case.node.types]:
            return axes
    return None


def _repeated(
    spec: OpSpec, example: Example, axes: Sequence[int], factors: Sequence[int]
) -> Example:
    """The example with all that is no constant repeated along some axes; IndexError without one."""

    def change(value: Any, name: str) -> Any:
        if name in spec.constants:
            return value
        if name in SIZES:
            return _multiplied(value, axes, factors)
        if isinstance(value, tuple | list) and any(isinstance(v, np.ndarray) for v in value):
            return tuple(change(v, name) for v in value)
        if isinstance(value, np.ndarray):
            return np.tile(value, _multiplied((1,) * value.ndim, axes, factors))
        return value

    changed = (change(v, name) for name, v in zip(spec.schema, example.args, strict=True))
    return replace(example, args=tuple(changed))


def _multiplied(
    values: Sequence[int], axes: Sequence[int], factors: Sequence[int]
) -> tuple[int, ...]:
    made = list(values)
    for axis, factor in zip(axes, factors, strict=True):
        made[axis] *= factor if made[axis] > 0 else 1
    return tuple(made)


def case_of(spec: OpSpec, example: Example, kernels: Kernels) -> Case | None:
    """The example with the kernel that lower would choose; None without one."""
    graph, values = one_node(spec, example)
    kernel, _ = choose(graph["y"], graph, kernels)
    return None if kernel is None else Case(graph, kernel, values)
