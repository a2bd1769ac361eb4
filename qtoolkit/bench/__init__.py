"""What copies and operations cost on a Vulkan device: measured, stored, read back, as a table."""

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from qtoolkit.bench.cases import DTYPES, Case, case_of, cases
from qtoolkit.errors import BadInput, MissingDependency, VulkanError
from qtoolkit.graph import DType
from qtoolkit.layout import Reps, RepSet, TensorRepr
from qtoolkit.ops import OPS, Example
from qtoolkit.ops.examples import codes, reals
from qtoolkit.passes.lower import Kernels
from qtoolkit.passes.place.cost import MICROSECONDS, CostModel, Line

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[str, float], None]
Point = tuple[int, float]  # bytes, µs

VULKAN, COPY = "vulkan", "transition"
MEASURED = "measured on "
KIB = 1024
COPIED = (KIB, 16 * KIB, 256 * KIB, 4096 * KIB)
GROWN = (32 * KIB, 512 * KIB)
QUICK_COPIED, QUICK_GROWN = COPIED[:2], GROWN[:1]
# One measurement ends early once its shader ran that long; the first run compiles, so two at least.
ENOUGH_S, LEAST_RUNS = 0.15, 2
# Below this a clock's steps are as long as what it measures.
FINEST_US = 0.1


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
            case = case_of(OPS[COPY], Example("", (x,)), kernels)
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
        for case in cases(op, kernels, sizes, limit):
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


def _name(device: DeviceChoice) -> str:
    """The name of a model measured on a device."""
    backends.device(VULKAN, device)  # says what is missing
    from qtoolkit.backends.vulkan import opened

    info = opened(device).info
    return f"{MEASURED}{info.name}, driver {info.driver}"


def _path(name: str) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "-", name.removeprefix(MEASURED).lower()).strip("-")
    return user_data_path("qtoolkit") / "costs" / f"{slug}.json"
