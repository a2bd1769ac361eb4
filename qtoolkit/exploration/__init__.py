"""The main job: a model quantized both ways, run on every backend, and compared with itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from qtoolkit import backends as table
from qtoolkit.backends import DEVICES, DeviceChoice
from qtoolkit.errors import UnknownName, UnsupportedOp
from qtoolkit.execution import Run
from qtoolkit.exploration.findings import (
    GRANULARITIES,
    Compared,
    ImageResult,
    NodeSummary,
    mean_sqnr_db,
    other_than,
)
from qtoolkit.exploration.job import Job
from qtoolkit.graph import Graph
from qtoolkit.models import Model
from qtoolkit.passes.fuse import LeftFloat, left_float
from qtoolkit.passes.place import MIXED
from qtoolkit.passes.qdq import QUANTIZE
from qtoolkit.passes.transitions import transition_bytes
from qtoolkit.pipeline import compile
from qtoolkit.program import export, import_program
from qtoolkit.quantizer import in_float32, quantize_program
from qtoolkit.trace import Step, Trace

__all__ = [
    "GRANULARITIES", "IMPORTED", "Clock", "Exploration", "ImageResult", "NodeSummary", "explore",
    "mean_sqnr_db", "other_than",
]  # fmt: skip

IMPORTED = "imported"
NOTED = ("raised", "dead", "underflowed")  # steps of the quantizer that a report lists
Progress = Callable[[str, float], None]


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
    job = Job(weights, program, traces, device)
    refused, accuracy, beside = None, None, None
    try:
        with clock.stage("load kernels"):
            unavailable |= job.try_devices(model.example)
            traces = dict(job.traces)
            beside = None if other is None else compiled(quantized[other], job.last)
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
    backends = tuple(traces)
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
        storage=storage if any(b in DEVICES for b in backends) else MIXED,
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
        graphs[granularity] = found[0]
        notes[granularity] = tuple(s for s in found[1] if s.kind in NOTED)
    return graphs, notes
