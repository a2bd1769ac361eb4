"""The main job: a model quantized both ways, run on every backend, and compared with itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np

from qtoolkit import backends as table
from qtoolkit.backends import DEVICES, DeviceChoice
from qtoolkit.comparison import Comparison, Missing, Row, compare, logits, top1
from qtoolkit.errors import UnknownName, UnsupportedOp
from qtoolkit.execution import Executable, Run
from qtoolkit.execution import load as bind
from qtoolkit.graph import Graph
from qtoolkit.metrics import measure, ratio_db
from qtoolkit.models import Model
from qtoolkit.passes.fuse import LeftFloat, left_float
from qtoolkit.passes.place import MIXED
from qtoolkit.passes.qdq import QUANTIZE
from qtoolkit.passes.transitions import transition_bytes
from qtoolkit.pipeline import compile
from qtoolkit.program import export, float_function, import_program, run_float
from qtoolkit.quantizer import in_float32, quantize_program
from qtoolkit.trace import Step, Trace

GRANULARITIES = ("per-channel", "per-tensor")
IMPORTED = "imported"
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class ImageResult:
    """One evaluation input: classes found by 'float', each backend and the other granularity."""

    name: str
    top1: Mapping[str, int]
    float_top3: tuple[int, ...]
    output_sqnr_db: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Compared:
    """How much of a backend's run was held against reference."""

    nodes: int
    missing: tuple[Missing, ...]
    elements: int
    equal: bool


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """One value of the compiled graph held against float, summed over all evaluation inputs."""

    name: str
    op: str
    origin: tuple[str, ...]
    where: str
    sqnr: str
    sqnr_db: float | None
    max_abs: float
    storage: str
    layout: str


@dataclass(frozen=True, eq=False)
class Exploration:
    """Everything one `explore` found.

    `refused` says why nothing ran, where that is so; `unavailable` why a backend was left out.
    """

    name: str
    weights: str
    model: Model
    float_graph: Graph
    quantized: Mapping[str, Graph]
    traces: Mapping[str, Trace]
    images: tuple[ImageResult, ...]
    equal: Mapping[str, bool]
    compared: Mapping[str, Compared]
    first_difference: Mapping[str, Any] | None
    nodes: tuple[NodeSummary, ...]
    other_nodes: tuple[NodeSummary, ...]
    left_float: tuple[LeftFloat, ...]
    transitions: tuple[int, int]
    accuracy: Mapping[str, float] | None
    runs: Mapping[str, Run]
    notes: tuple[Step, ...]
    devices: Mapping[str, str]
    seconds: Mapping[str, float]
    refused: str | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)
    storage: str = MIXED
    device: DeviceChoice = None

    @property
    def other(self) -> str | None:
        """The granularity that was run beside the chosen one; None for an imported program."""
        return other_than(self.weights)

    @property
    def backends(self) -> tuple[str, ...]:
        return tuple(self.traces)

    @property
    def compiled(self) -> Graph:
        """The graph of the last backend named, whose placement is shown."""
        return self.traces[self.backends[-1]].result

    @property
    def in_buffers(self) -> tuple[Step, ...]:
        """What storage='texture' left in buffers, each with its reason."""
        steps = self.traces[self.backends[-1]]["place"].steps
        return tuple(step for step in steps if step.kind == "buffer")


def other_than(weights: str) -> str | None:
    """The other granularity; None beside an imported program."""
    return {GRANULARITIES[0]: GRANULARITIES[1], GRANULARITIES[1]: GRANULARITIES[0]}.get(weights)


def mean_sqnr_db(nodes: Sequence[NodeSummary]) -> float | None:
    """Mean over the nodes with a finite SQNR; None if there is none."""
    found = [n.sqnr_db for n in nodes if n.sqnr_db is not None]
    return float(np.mean(found)) if found else None


@dataclass(slots=True)
class Clock:
    """Seconds per stage; each finished stage is reported."""

    report: Progress
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = perf_counter()
        yield
        self.seconds[name] = perf_counter() - start
        self.report(name, self.seconds[name])


@dataclass(slots=True)
class Tally:
    """Rows of one graph summed over inputs, each value by its name."""

    rows: dict[str, Row] = field(default_factory=dict)
    signal: dict[str, float] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)
    max_abs: dict[str, float] = field(default_factory=dict)

    def add(self, comparison: Comparison) -> None:
        for row in comparison:
            m, name = row.metrics, row.name
            self.rows[name] = row
            self.signal[name] = self.signal.get(name, 0.0) + m.signal
            self.noise[name] = self.noise.get(name, 0.0) + m.noise
            self.max_abs[name] = max(self.max_abs.get(name, 0.0), m.max_abs)

    def summaries(self, graph: Graph) -> tuple[NodeSummary, ...]:
        return tuple(self._summary(row, graph) for row in self.rows.values())

    def _summary(self, row: Row, graph: Graph) -> NodeSummary:
        sqnr, db = ratio_db(self.signal[row.name], self.noise[row.name])
        node = graph[row.name.partition("#")[0]]
        placed = node.reps.outputs[0].only if node.reps else None
        return NodeSummary(
            row.name,
            row.op,
            row.origin,
            row.where,
            sqnr,
            db,
            self.max_abs[row.name],
            placed.storage.name.lower() if placed else "",
            placed.layout.name.lower() if placed else "",
        )


class _Job:
    """The running part: executables, and what the evaluation inputs have told so far."""

    def __init__(
        self, weights: str, program: Any, traces: Mapping[str, Trace], device: DeviceChoice
    ) -> None:
        self.weights, self.program, self.traces = weights, program, traces
        self.device = device
        self.other = other_than(weights)
        self.last = list(traces)[-1]
        self.executables: dict[str, Executable] = {}
        self.images: list[ImageResult] = []
        self.tally, self.other_tally = Tally(), Tally()
        self.compared: dict[str, Compared] = {}
        self.first_difference: dict[str, Any] | None = None
        self.runs: dict[str, Run] = {}

    def load(self, beside: Trace | None, example: Any) -> None:
        """Bind every kernel and run each once, so that no compiling counts as a node's time.

        Raises UnsupportedOp listing what some backend lacks.
        """
        for backend, trace in self.traces.items():
            self.executables[backend] = self._bound(trace)
        if self.other is not None and beside is not None:
            self.executables[self.other] = self._bound(beside)
        for backend in self.traces.keys() - {"reference"}:
            self.executables[backend](example)

    def _bound(self, trace: Trace) -> Executable:
        return bind(trace.result, device=self.device if trace.backend in DEVICES else None)

    def close(self) -> None:
        """Free what devices hold."""
        for executable in self.executables.values():
            executable.close()

    def run(self, name: str, x: Any) -> None:
        """Run one evaluation input everywhere and add what it tells."""
        truth = run_float(self.program, x)
        runs = {key: executable(x) for key, executable in self.executables.items()}
        for backend in self.traces:
            self._hold_against_reference(backend, runs)
        self.tally.add(compare(truth, runs[self.last]))
        sqnr = {self.weights: output_sqnr(truth, runs[self.last])}
        if self.other is not None:
            self.other_tally.add(compare(truth, runs[self.other]))
            sqnr[self.other] = output_sqnr(truth, runs[self.other])
        found = {"float": top1(truth), **{key: top1(run) for key, run in runs.items()}}
        self.images.append(ImageResult(name, found, top3(truth), sqnr))
        # One input's runs are kept for pictures; all of them would hold gigabytes.
        self.runs = self.runs or {"float": truth, **{b: runs[b] for b in self.traces}}

    def accuracy(self, model: Model) -> dict[str, float] | None:
        """Share of held-out samples classified rightly by float and by each granularity."""
        if not model.held_out or not self.executables:
            return None
        keys = {self.weights: self.last} | ({} if self.other is None else {self.other: self.other})
        right = dict.fromkeys(("float", *keys), 0)
        forward = float_function(model.module)
        total = 0
        for x, classes in model.held_out:
            total += len(classes)
            right["float"] += agreed(forward(x), classes)
            for name, key in keys.items():
                right[name] += agreed(self.executables[key](x).outputs[0], classes)
        return {name: count / total for name, count in right.items()}

    def _hold_against_reference(self, backend: str, runs: Mapping[str, Run]) -> None:
        found = compare(runs["reference"], runs[backend])
        seen = self.compared.get(backend, Compared(0, (), 0, True))
        self.compared[backend] = Compared(
            len(found.rows),
            tuple(dict.fromkeys((*seen.missing, *found.missing))),
            seen.elements + found.elements,
            seen.equal and found.equal,
        )
        first = found.first_difference
        if first is not None and self.first_difference is None:
            steps = int(
                np.abs(
                    runs["reference"][first.against].astype(np.int64)
                    - runs[backend][first.name].astype(np.int64)
                ).max()
            )
            self.first_difference = {"backend": backend, "node": first.name, "max_steps": steps}


def agreed(logits: Any, classes: Sequence[int]) -> int:
    """How many samples have their largest logit at their class."""
    found = np.asarray(logits).reshape(len(classes), -1).argmax(axis=1)
    return int((found == np.asarray(classes)).sum())


def top3(run: Run) -> tuple[int, ...]:
    """The classes of the three largest logits of output 0, sample 0, best first."""
    return tuple(int(i) for i in np.argsort(-logits(run), kind="stable")[:3])


def output_sqnr(truth: Run, run: Run) -> float | None:
    """SQNR in dB over all floating outputs together; None where it is not finite."""
    signal = noise = 0.0
    for a, b in zip(truth.outputs, run.outputs, strict=True):
        if isinstance(a, np.ndarray) and a.dtype.kind == "f":
            found = measure(a, b)
            signal, noise = signal + found.signal, noise + found.noise
    return ratio_db(signal, noise)[1]


def explore(
    model: Model,
    weights: str = "per-channel",
    backends: Sequence[str] | None = None,
    progress: Progress = lambda stage, seconds: None,
    storage: str = MIXED,
    device: DeviceChoice = None,
) -> Exploration:
    """Quantize a model both ways, run it everywhere, and compare node by node.

    weights is the granularity looked at closely; the other one runs on the last backend beside it.
    backends: all that can run here unless given; one that cannot is told in `unavailable`, and the
    others run. storage ('mixed', 'buffer' or 'texture') and device (by index or part of its name)
    are for vulkan. A program that is quantized already is taken as it is, as "imported".
    progress(stage, seconds) is called as each stage ends. Raises what its stages raise, except that
    an op no backend can run is told in `refused` and everything else is still shown.
    """
    if weights not in GRANULARITIES:
        raise UnknownName(f"weights {weights!r}; choose one of {', '.join(GRANULARITIES)}")
    clock = Clock(progress)
    data = (model.example, model.calibration, model.evaluation, model.held_out)
    module, data = in_float32(model.module, data)
    if module is not model.module:
        example, calibration, evaluation, held_out = data
        model = replace(
            model, module=module, example=example, calibration=calibration,
            evaluation=evaluation, held_out=held_out,
        )  # fmt: skip
    asked = tuple(dict.fromkeys(("reference", *(table.BACKENDS if backends is None else backends))))
    choices = {b: device if b in DEVICES else None for b in asked}
    told = {b: table.unavailable(b, choices[b]) for b in asked if b in DEVICES}
    unavailable = {b: why for b, why in told.items() if why is not None}
    backends = tuple(b for b in asked if b not in unavailable)
    with clock.stage("capture"):
        program = export(model.module, model.example)
        float_graph = import_program(program)
    quantized, notes = _quantized(program, float_graph, model, clock)
    if IMPORTED in quantized:
        weights = IMPORTED
    other = other_than(weights)
    with clock.stage("compile"):

        def compiled(graph: Graph, backend: str) -> Trace:
            if backend not in DEVICES:
                return compile(graph, backend=backend)
            return compile(graph, backend=backend, storage=storage, device=device)

        traces = {b: compiled(quantized[weights], b) for b in backends}
        beside = None if other is None else compiled(quantized[other], backends[-1])
    job = _Job(weights, program, traces, device)
    refused, accuracy = None, None
    try:
        with clock.stage("load kernels"):
            job.load(beside, model.example)
        for name, x in model.evaluation:
            with clock.stage(f"run {name}"):
                job.run(name, x)
        if model.held_out:
            with clock.stage("accuracy"):
                accuracy = job.accuracy(model)
    except UnsupportedOp as why:
        refused = str(why)
    finally:
        job.close()
    fused = traces[backends[0]]["fuse"]
    return Exploration(
        name=model.name,
        weights=weights,
        model=model,
        float_graph=float_graph,
        quantized=quantized,
        traces=traces,
        images=tuple(job.images),
        equal={b: c.equal for b, c in job.compared.items()},
        compared=job.compared,
        first_difference=job.first_difference,
        nodes=job.tally.summaries(traces[backends[-1]].result),
        other_nodes=() if beside is None else job.other_tally.summaries(beside.result),
        left_float=left_float(fused.after, fused.steps),
        transitions=transition_bytes(traces[backends[-1]].result),
        accuracy=accuracy,
        runs=job.runs,
        notes=notes[weights],
        devices={b: e.device for b, e in job.executables.items() if b in traces},
        seconds=clock.seconds,
        refused=refused,
        unavailable=unavailable,
        storage=storage,
        device=device,
    )


def _quantized(
    program: Any, captured: Graph, model: Model, clock: Clock
) -> tuple[dict[str, Graph], dict[str, tuple[Step, ...]]]:
    """The q/dq graphs by granularity, each with what the quantizer did; or the imported one."""
    if any(n.op in QUANTIZE for n in captured.nodes):
        return {IMPORTED: captured}, {IMPORTED: ()}
    graphs: dict[str, Graph] = {}
    notes: dict[str, tuple[Step, ...]] = {}
    for granularity in GRANULARITIES:
        with clock.stage(f"quantize {granularity}"):
            found = quantize_program(program, model.calibration, granularity)
        graphs[granularity], notes[granularity] = found
    return graphs, notes
