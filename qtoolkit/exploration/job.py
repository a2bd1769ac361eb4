"""The running part: every executable on every evaluation input, held against each other."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from qtoolkit.backends import DEVICES, DeviceChoice
from qtoolkit.comparison import compare, logits, top1
from qtoolkit.errors import ShapeError, VulkanError
from qtoolkit.execution import Executable, Run
from qtoolkit.execution import load as bind
from qtoolkit.exploration.findings import Compared, ImageResult, Tally, other_than
from qtoolkit.metrics import measure, ratio_db
from qtoolkit.models import Model
from qtoolkit.program import float_function, run_float
from qtoolkit.trace import Trace


class Job:
    """The running part: executables, and what the evaluation inputs have told so far."""

    def __init__(
        self, weights: str, program: Any, traces: Mapping[str, Trace], device: DeviceChoice
    ) -> None:
        self.weights, self.program, self.traces = weights, program, dict(traces)
        self.device = device
        self.other = other_than(weights)
        self.executables: dict[str, Executable] = {}
        self.images: list[ImageResult] = []
        self.tally, self.other_tally = Tally(), Tally()
        self.compared: dict[str, Compared] = {}
        self.first_difference: dict[str, Any] | None = None
        self.runs: dict[str, Run] = {}

    @property
    def last(self) -> str:
        """The backend whose results are shown."""
        return list(self.traces)[-1]

    def try_devices(self, example: Any) -> dict[str, str]:
        """Load devices and run each once; those that cannot hold the network are dropped, with why.

        Raises UnsupportedOp listing what a device's backend lacks.
        """
        dropped: dict[str, str] = {}
        for backend in [b for b in self.traces if b in DEVICES]:
            try:
                self.executables[backend] = self._bound(self.traces[backend])
                self.executables[backend](example)
            except (VulkanError, ShapeError) as why:
                dropped[backend] = str(why)
                del self.traces[backend]
                if backend in self.executables:
                    self.executables.pop(backend).close()
        return dropped

    def load(self, beside: Trace | None, example: Any) -> None:
        """Bind every kernel and run each once, so that no compiling counts as a node's time.

        Raises UnsupportedOp listing what some backend lacks.
        """
        for backend, trace in self.traces.items():
            if backend not in self.executables:
                self.executables[backend] = self._bound(trace)
        if self.other is not None and beside is not None:
            self.executables[self.other] = self._bound(beside)
        for backend in self.traces.keys() - {"reference", *DEVICES}:
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
