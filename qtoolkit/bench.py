"""What copies and operations cost on a Vulkan device: measured, stored, read back, as a table."""

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from statistics import median
from tempfile import NamedTemporaryFile
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from platformdirs import user_data_path
from scipy.optimize import nnls

from qtoolkit import backends
from qtoolkit.backends import DeviceChoice
from qtoolkit.errors import BadInput, MissingDependency, ShapeError, VulkanError
from qtoolkit.graph import DType, Graph, Node, TensorType, leaves
from qtoolkit.kernel import Array, Kernel
from qtoolkit.layout import Reps, RepSet, TensorRepr, nchw
from qtoolkit.ops import OPS, Example, OpSpec
from qtoolkit.ops.examples import codes, one_node, reals
from qtoolkit.passes.lower import Kernels, choose
from qtoolkit.passes.place.cost import MICROSECONDS, CostModel, Line

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[str, float], None]
Point = tuple[int, float]  # bytes, µs

VULKAN, COPY, HOST = "vulkan", "transition", "host"
MEASURED = "measured on "
KIB = 1024
COPIED = (KIB, 16 * KIB, 256 * KIB, 4096 * KIB)
GROWN = (32 * KIB, 512 * KIB)
QUICK_COPIED, QUICK_GROWN = COPIED[:2], GROWN[:1]
DTYPES = (DType.INT8, DType.FLOAT32)
# One measurement ends early once its shader ran that long; the first run compiles, so two at least.
ENOUGH_S, LEAST_RUNS = 0.15, 2
# Below this a clock's steps are as long as what it measures.
FINEST_US = 0.1
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


def measure(
    device: DeviceChoice = None,
    repeats: int = 5,
    progress: Progress = lambda stage, seconds: None,
    quick: bool = False,
) -> CostModel:
    """Time every copy between representations, and every op of shaders in each, on a device.

    Shader time by the device's clock, in µs, the least of up to `repeats` runs (two at least);
    uploads, downloads and the way to the queue are left out. A line is fitted over the bytes of a
    copied tensor, int8 and float32 together, or over those of all operands and results of an op,
    for its kernels together: it tells representations apart, not convolutions. quick: smaller
    tensors alone, for tests. progress(stage, seconds) is called as each stage ends.

    Raises UnknownName for a device that is not there, MissingDependency without any, VulkanError
    where it fails.
    """
    kernels = backends.kernels(VULKAN)
    name = _name(device)
    clock = _Clock(device, repeats, progress)
    copies = _copies(clock, kernels, QUICK_COPIED if quick else COPIED)
    operations = _operations(clock, kernels, QUICK_GROWN if quick else GROWN)
    slope = median(line.slope for line in copies.values())
    return CostModel(name, MICROSECONDS, slope, copies, operations)


def store(model: CostModel) -> Path:
    """Write a measured model, whole or not at all, where `stored` finds it; return the path.

    Raises BadInput for a model that was not measured, or where the folder cannot be written.
    """
    if not model.name.startswith(MEASURED):
        raise BadInput(f"cost model {model.name!r} was not measured; store what measure returns")
    target = _path(model.name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=target.parent, delete=False, encoding="utf-8") as file:
            try:
                json.dump(model.to_json(), file, indent=1)
                file.flush()
                os.replace(file.name, target)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as why:
        raise BadInput(f"{target}: cannot be written ({why}); set XDG_DATA_HOME") from why
    return target


def stored(device: DeviceChoice = None) -> CostModel | None:
    """The model stored for a device with its present driver; None without model or device.

    Raises FormatError for a file that cannot be read, UnknownName for a device that the machine
    has not among its own.
    """
    try:
        path = _path(_name(device))
    except (MissingDependency, VulkanError):
        return None
    return CostModel.load(path) if path.is_file() else None


def table(model: CostModel) -> "pd.DataFrame":
    """One row per line of a model: fixed time in µs, and µs for each further KiB."""
    import pandas as pd

    rows: list[tuple[Any, ...]] = [
        ("copy", COPY, str(a), str(b), line.fixed, line.slope * KIB)
        for (a, b), line in model.copies.items()
    ]
    rows += [
        ("operation", op, "", str(r), line.fixed, line.slope * KIB)
        for (op, r), line in model.operations.items()
    ]
    return pd.DataFrame(rows, columns=["kind", "what", "from", "to", "fixed µs", "µs/KiB"])


def fit(points: Sequence[Point]) -> Line:
    """The line through (bytes, µs) of least relative errors whose two numbers are not negative.

    Errors count in relation to the line, not to the time: where times of one size differ, the line
    goes through their mean. Points of one size tell nothing of the fixed part; it is 0 then.
    """
    nbytes, times = np.array(points, np.float64).T
    if len(set(nbytes)) == 1:
        return Line(0.0, float(times.mean() / nbytes[0]))
    columns = np.stack([np.ones_like(nbytes), nbytes / nbytes.max()], axis=1)
    expected = nbytes
    for _ in range(8):
        weights = 1 / np.maximum(expected, FINEST_US)
        found, _ = nnls(columns * weights[:, None], times * weights)
        expected = columns @ found
    return Line(float(found[0]), float(found[1] / nbytes.max()))


@dataclass(frozen=True, slots=True)
class _Clock:
    device: DeviceChoice
    repeats: int
    progress: Progress

    def time(self, case: Case, reps: Reps) -> float:
        """The least time of the case's shader in µs, its tensors lying as `reps` says."""
        graph = case.graph.placed({"y": reps})
        engine = backends.load(VULKAN, graph, {"y": case.kernel}, self.device)
        spent: list[float] = []
        try:
            while len(spent) < max(self.repeats, LEAST_RUNS):
                spent.append(engine.run(case.values)[1]["y"])
                if len(spent) >= LEAST_RUNS and sum(spent) > ENOUGH_S:
                    break
        finally:
            engine.close()
        return min(spent) * 1e6


def _copies(
    clock: _Clock, kernels: Kernels, sizes: Sequence[int]
) -> dict[tuple[TensorRepr, TensorRepr], Line]:
    points: defaultdict[tuple[TensorRepr, TensorRepr], list[Point]] = defaultdict(list)
    for nbytes in sizes:
        start = perf_counter()
        for dtype in DTYPES:
            shape = _copied_shape(nbytes // dtype.itemsize)
            x = codes(*shape) if dtype is DType.INT8 else reals(*shape)
            case = _case(OPS[COPY], Example("", (x,)), kernels)
            assert case is not None
            for pair in permutations(case.reps.outputs[0], 2):
                a, b = map(RepSet, zip(pair, strict=True))
                points[pair].append((nbytes, clock.time(case, Reps((a,), (b,)))))
        clock.progress(f"copies of {nbytes // KIB} KiB", perf_counter() - start)
    return {pair: fit(found) for pair, found in points.items()}


def _copied_shape(cells: int) -> tuple[int, int, int, int]:
    """Whole texels whichever axis is packed, and no axis beyond the 256 that every device has."""
    C = next((c for c in (64, 16) if cells >= 4 * c * c), 4)
    H = 2 ** ((cells // C).bit_length() // 2)
    return 1, C, H, cells // C // H


def _operations(
    clock: _Clock, kernels: Kernels, sizes: Sequence[int]
) -> dict[tuple[str, TensorRepr], Line]:
    limit = backends.texture_limit(VULKAN, clock.device)
    assert limit is not None
    lines: dict[tuple[str, TensorRepr], Line] = {}
    for op, listed in kernels.items():
        if op == COPY or len(listed) < 2:
            continue
        start = perf_counter()
        points: defaultdict[TensorRepr, list[Point]] = defaultdict(list)
        for case in _cases(op, kernels, sizes, limit):
            for r in case.reps.outputs[0]:
                points[r].append((case.nbytes, clock.time(case, _all_in(r, case.reps))))
        lines |= {(op, r): fit(found) for r, found in points.items()}
        if points:
            clock.progress(op, perf_counter() - start)
    return lines


def _all_in(r: TensorRepr, reps: Reps) -> Reps:
    """Results and operands in r, or where that is not admitted in what the kernel likes best."""

    def decided(repset: RepSet) -> RepSet:
        return RepSet([r if r in repset else repset.reprs[0]])

    inputs = tuple(None if repset is None else decided(repset) for repset in reps.inputs)
    return Reps(inputs, tuple(map(decided, reps.outputs)), reps.ties)


def _cases(op: str, kernels: Kernels, sizes: Sequence[int], limit: int) -> Iterator[Case]:
    """For each kernel and dtype of an op one example, as it is and grown.

    That which admits the most representations, and of those one that can grow. Others of the op
    that admit fewer are left out: the lines of an op are to be of the same cases.
    """
    spec = OPS[op]
    best: dict[tuple[str, DType], tuple[tuple[int, bool, bool], Example, Case]] = {}
    for example in (*spec.examples(), *_lacking(op)):
        case = _case(spec, example, kernels)
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
            larger = _case(spec, _repeated(spec, example, axes, factors), kernels)
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
        try:
            twice, _ = one_node(spec, _repeated(spec, example, axes, [2] * len(axes)))
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


def _case(spec: OpSpec, example: Example, kernels: Kernels) -> Case | None:
    """The example with the kernel that lower would choose; None without one."""
    graph, values = one_node(spec, example)
    kernel, _ = choose(graph["y"], graph, kernels)
    return None if kernel is None else Case(graph, kernel, values)


def _name(device: DeviceChoice) -> str:
    """The name of a model measured on a device."""
    backends.device(VULKAN, device)  # says what is missing
    from qtoolkit.backends.vulkan import opened

    info = opened(device).info
    return f"{MEASURED}{info.name}, driver {info.driver}"


def _path(name: str) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "-", name.removeprefix(MEASURED).lower()).strip("-")
    return user_data_path("qtoolkit") / "costs" / f"{slug}.json"
